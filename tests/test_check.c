/* Checks of a call's values, tensors and memory, and the entry's own functions. */
#include "tests/tensors.h"

static DLTensor x8, out8; /* float32 [2, 8], apart */

static void set_up(void) {
  static int64_t shape[] = {2, 8};
  x8 = tensor(f32, place(0), 2, shape);
  out8 = tensor(f32, place(1), 2, shape);
}

/* ---------------------------------------------------------------------------------------------------------- values */

START_TEST(the_number_of_values_is_exact) {
  fl_schema *schema = make_schema("f(Tensor x, int n=1) -> Tensor", NULL);
  ACCEPTED(schema, fl_tensor(&x8), fl_int(1), fl_tensor(&out8));
  REFUSED(schema, "f: 2 values, expected 2 arguments and 1 results: f(Tensor x, int n=1) -> Tensor", fl_tensor(&x8),
          fl_tensor(&out8));
  REFUSED(schema, "f: 4 values, expected 2 arguments and 1 results: f(Tensor x, int n=1) -> Tensor", fl_tensor(&x8),
          fl_int(1), fl_tensor(&out8), fl_none());
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_call_without_size_or_values_is_refused) {
  fl_schema *schema = make_schema("f(int n) -> ()", NULL);
  fl_value values[] = {fl_int(1)};
  fl_call call = FL_CALL(values);
  call.size = 4;
  ck_assert_int_eq(fl_schema_check(schema, &call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: the call's size is 4 bytes, expected sizeof(fl_call)");
  call = (fl_call){.size = sizeof call, .count = 1};
  ck_assert_int_eq(fl_schema_check(schema, &call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: the call's values are a null pointer");
  fl_schema_free(schema);
}
END_TEST

START_TEST(O6_a_value_of_another_type_is_named_with_both_types) {
  fl_schema *schema = make_schema("f(Tensor x, int i, float f, bool b, str s, int[] l) -> ()", NULL);
  fl_value good[] = {fl_tensor(&x8), fl_int(1), fl_float(1), fl_bool(true), fl_string("s"), fl_ints((int64_t[]){1}, 1)};
  static const char *const types[] = {"Tensor", "int", "float", "bool", "str", "int[]"};
  static const char *const names[] = {"x", "i", "f", "b", "s", "l"};
  for (int expected = 0; expected < 6; expected++)
    for (int given = 0; given < 6; given++) {
      fl_value values[6];
      fl_call call = FL_CALL(values);
      char message[128];
      memcpy(values, good, sizeof values);
      values[expected] = good[given];
      if (given == expected) {
        ck_assert_int_eq(fl_schema_check(schema, &call), FL_OK);
        continue;
      }
      ck_assert_int_eq(fl_schema_check(schema, &call), FL_EINVAL);
      snprintf(message, sizeof message, "f: argument '%s': %s, expected %s", names[expected], types[given],
               types[expected]);
      ck_assert_str_eq(fl_error_message(), message);
    }
  good[1].type = 77;
  REFUSED(schema, "f: argument 'i': a value of unknown type 77, expected int", good[0], good[1], good[2], good[3],
          good[4], good[5]);
  fl_schema_free(schema);
}
END_TEST

START_TEST(O1_none_is_accepted_only_where_it_is_optional) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor? y, int i, int? j) -> ()", NULL);
  ACCEPTED(schema, fl_tensor(&x8), fl_none(), fl_int(1), fl_none());
  REFUSED(schema, "f: argument 'x': none, expected Tensor", fl_none(), fl_none(), fl_int(1), fl_none());
  REFUSED(schema, "f: argument 'i': none, expected int", fl_tensor(&x8), fl_none(), fl_none(), fl_none());
  REFUSED(schema, "f: argument 'j': float, expected int or none", fl_tensor(&x8), fl_none(), fl_int(1), fl_float(1));
  fl_schema_free(schema);
}
END_TEST

START_TEST(null_pointers_are_refused) {
  fl_schema *schema = make_schema("f(Tensor x, str s, int[] l) -> ()", NULL);
  fl_value no_tensor = fl_tensor(&x8), no_string = fl_string("s");
  no_tensor.v.tensor = NULL;
  no_string.v.s = NULL;
  ACCEPTED(schema, fl_tensor(&x8), fl_string("s"), fl_ints(NULL, 0));
  REFUSED(schema, "f: argument 'x': a null pointer, expected Tensor", no_tensor, fl_string("s"), fl_ints(NULL, 0));
  REFUSED(schema, "f: argument 's': a null pointer, expected str", fl_tensor(&x8), no_string, fl_ints(NULL, 0));
  REFUSED(schema, "f: argument 'l': a null pointer, expected int[]", fl_tensor(&x8), fl_string("s"), fl_ints(NULL, 1));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_result_that_the_call_writes_may_be_none_or_of_its_type) {
  fl_schema *schema = make_schema("f(int n) -> (str s, int i)", NULL);
  fl_value null_string = fl_string("");
  null_string.v.s = NULL;
  ACCEPTED(schema, fl_int(1), fl_none(), fl_none());
  ACCEPTED(schema, fl_int(1), null_string, fl_int(0));
  REFUSED(schema, "f: result 's': int, expected str", fl_int(1), fl_int(0), fl_none());
  fl_schema_free(schema);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- tensors */

static const struct {
  int ndim;
  int64_t shape[3], strides[3]; /* strides: {-9} for none */
  const char *message;          /* NULL: accepted */
} tensors[] = {
    {2, {3, 4}, {-9}, NULL},
    {2, {3, 4}, {4, 1}, NULL},
    {2, {3, 4}, {100, 1}, NULL},
    {2, {3, 4}, {0, 1}, NULL},
    {2, {3, 4}, {1, 3}, "stride 3 of the last dimension, expected 1"},
    {2, {3, 4}, {4, -1}, "stride -1 of the last dimension, expected 1"},
    {2, {3, 4}, {-4, 1}, "stride -4 of dimension 0, expected 0 or more"},
    {2, {3, 1}, {4, 7}, NULL},
    {2, {1, 4}, {-4, 1}, NULL},
    {2, {3, 0}, {1, 3}, NULL},
    {2, {0, 4}, {1, 3}, NULL},
    {0, {0}, {-9}, NULL},
    {2, {3, -1}, {-9}, "size -1 of dimension 1, expected 0 or more"},
    {-1, {0}, {-9}, "-1 dimensions, expected 0 to 8"},
    {9, {0}, {-9}, "9 dimensions, expected 0 to 8"},
    {2, {INT64_MAX, 4}, {-9}, "its shape and strides reach beyond the address space"},
    {2, {2, 4}, {INT64_MAX, 1}, "its shape and strides reach beyond the address space"},
    {2, {INT64_MAX, 0}, {-9}, NULL},
    {3, {INT64_MAX, 2, 0}, {-9}, "its shape and strides reach beyond the address space"},
    {3, {(int64_t)1 << 40, 0, (int64_t)1 << 40}, {-9}, "its shape and strides reach beyond the address space"},
    {2, {1, 4}, {INT64_MAX, 1}, "its shape and strides reach beyond the address space"},
    {2, {1, 4}, {INT64_MIN, 1}, "its shape and strides reach beyond the address space"},
    {2, {0, 4}, {INT64_MAX, 1}, "its shape and strides reach beyond the address space"},
};

/* What lies in a driver's buffer has no address that strides could go beyond. */
START_TEST(O2_strides_of_a_drivers_buffer_have_a_limit_too) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", "x: T[3]; out: T[2, 3]; T = uint8");
  DLDataType byte = {kDLUInt, 8, 1};
  DLTensor x = strided(byte, place(0), DIMS(3), NULL), out = strided(byte, place(1), DIMS(2, 3), STRIDES(INT64_MAX, 1));
  x.device = out.device = (DLDevice){kDLOpenCL, 0};
  REFUSED(schema, "f: result 'out': its shape and strides reach beyond the address space", fl_tensor(&x),
          fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_device_that_cannot_be_is_refused) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", NULL);
  x8.device = out8.device = (DLDevice){kDLCPU, 7};
  REFUSED(schema, "f: argument 'x': on cpu:7, expected cpu:0: there is one processor", fl_tensor(&x8),
          fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_bool_of_another_byte_is_refused) {
  fl_schema *schema = make_schema("f(bool b) -> ()", NULL);
  fl_value value = fl_bool(true);
  ACCEPTED(schema, value);
  memset(&value.v.b, 2, 1);
  REFUSED(schema, "f: argument 'b': a bool whose byte is 2, expected 0 or 1", value);
  fl_schema_free(schema);
}
END_TEST

START_TEST(O2_tensors_may_be_strided_with_a_contiguous_last_dimension) {
  fl_schema *schema = make_schema("f(Tensor x) -> ()", NULL);
  bool compact = tensors[_i].strides[0] == -9;
  DLTensor x = strided(f32, place(0), tensors[_i].ndim, (int64_t *)tensors[_i].shape,
                       compact ? NULL : (int64_t *)tensors[_i].strides);
  char message[128];
  snprintf(message, sizeof message, "f: argument 'x': %s", tensors[_i].message ? tensors[_i].message : "");
  if (tensors[_i].message)
    REFUSED(schema, message, fl_tensor(&x));
  else
    ACCEPTED(schema, fl_tensor(&x));
  fl_schema_free(schema);
}
END_TEST

START_TEST(O2_only_tensors_without_elements_may_have_no_data) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", NULL);
  DLTensor x = tensor(f32, NULL, DIMS(0, 8)), out = tensor(f32, NULL, DIMS(0, 8)), bad = tensor(f32, place(0), 2, NULL);
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&out));
  x8.data = NULL;
  REFUSED(schema, "f: argument 'x': null data, expected memory for its elements", fl_tensor(&x8), fl_tensor(&out8));
  REFUSED(schema, "f: argument 'x': no shape, expected 2 sizes", fl_tensor(&bad), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

START_TEST(all_tensors_are_on_one_device) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", NULL);
  x8.device = out8.device = (DLDevice){kDLCUDA, 1};
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&out8));
  out8.device.device_id = 0;
  REFUSED(schema, "f: result 'out': on cuda:0, expected cuda:1 (that of 'x')", fl_tensor(&x8), fl_tensor(&out8));
  out8.device = (DLDevice){kDLCPU, 1};
  REFUSED(schema, "f: result 'out': on cpu:1, expected cuda:1 (that of 'x')", fl_tensor(&x8), fl_tensor(&out8));
  out8.device = (DLDevice){(DLDeviceType)99, 0};
  REFUSED(schema, "f: result 'out': on device type 99:0, expected cuda:1 (that of 'x')", fl_tensor(&x8),
          fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

/* 0 is what an engine gets that forgets to set it; such a tensor must not run anywhere. */
START_TEST(S1_a_device_type_that_is_none_of_DLPacks_is_refused) {
  static const int types[] = {0, -1, 20, 99};
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", NULL);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    char message[128];
    x8.device = out8.device = (DLDevice){(DLDeviceType)types[i], 0};
    snprintf(message, sizeof message,
             "f: argument 'x': device type %d is not known, expected a DLDeviceType, 1 (cpu) to 19", types[i]);
    REFUSED(schema, message, fl_tensor(&x8), fl_tensor(&out8));
  }
  fl_schema_free(schema);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- memory */

START_TEST(O1_an_output_may_be_exactly_its_argument_where_the_schema_says_so) {
  fl_schema *schema = make_schema("f(Tensor(a!) x) -> Tensor(a) out", NULL);
  DLTensor shifted = x8, same_place = x8;
  shifted.byte_offset = 32;
  same_place.data = (char *)x8.data - 64;
  same_place.byte_offset = 64;
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&out8));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&x8));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&same_place));
  REFUSED(schema, "f: result 'out': overlaps argument 'x', expected exactly that tensor or other memory",
          fl_tensor(&x8), fl_tensor(&shifted));
  fl_schema_free(schema);
}
END_TEST

START_TEST(the_same_address_with_other_strides_is_not_the_same_tensor) {
  fl_schema *schema = make_schema("f(Tensor(a!) x) -> Tensor(a) out", NULL);
  DLTensor rows = strided(f32, place(0), DIMS(2, 8), STRIDES(8, 1)),
           apart = strided(f32, place(0), DIMS(2, 8), STRIDES(16, 1));
  DLTensor one = strided(f32, place(0), DIMS(1, 8), STRIDES(8, 1)),
           other = strided(f32, place(0), DIMS(1, 8), STRIDES(99, 1));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&rows));
  ACCEPTED(schema, fl_tensor(&one), fl_tensor(&other));
  REFUSED(schema, "f: result 'out': overlaps argument 'x', expected exactly that tensor or other memory",
          fl_tensor(&x8), fl_tensor(&apart));
  fl_schema_free(schema);
}
END_TEST

START_TEST(an_output_may_not_be_an_argument_that_the_schema_does_not_lend) {
  fl_schema *schema = make_schema("f(Tensor(a!) x, Tensor y) -> (Tensor(a) p, Tensor q)", "y: T[...]; q: T[...]");
  DLTensor y = tensor(f32, place(2), DIMS(2, 8)), q = tensor(f32, place(3), DIMS(2, 8));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&y), fl_tensor(&x8), fl_tensor(&q));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&x8), fl_tensor(&out8), fl_tensor(&q)); /* inputs may overlap */
  REFUSED(schema, "f: result 'p': overlaps argument 'y', expected other memory", fl_tensor(&x8), fl_tensor(&y),
          fl_tensor(&y), fl_tensor(&q));
  REFUSED(schema, "f: result 'p': overlaps argument 'y', expected other memory", fl_tensor(&x8), fl_tensor(&x8),
          fl_tensor(&x8), fl_tensor(&q));
  REFUSED(schema, "f: result 'q': overlaps argument 'x', expected other memory", fl_tensor(&x8), fl_tensor(&y),
          fl_tensor(&out8), fl_tensor(&x8));
  REFUSED(schema, "f: result 'p': overlaps result 'q', expected other memory", fl_tensor(&x8), fl_tensor(&y),
          fl_tensor(&out8), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

START_TEST(state_that_is_overwritten_may_overlap_nothing) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor(a!) state) -> Tensor", "x: T[...]; state: U[n]; out: T[...]");
  DLTensor state = tensor(f32, place(0), DIMS(4));
  REFUSED(schema, "f: argument 'state': overlaps argument 'x', expected other memory", fl_tensor(&x8),
          fl_tensor(&state), fl_tensor(&out8));
  state.data = place(1);
  REFUSED(schema, "f: argument 'state': overlaps result 'out', expected other memory", fl_tensor(&x8),
          fl_tensor(&state), fl_tensor(&out8));
  state.data = place(2);
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&state), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

/* Two float32 tensors in one buffer: offset and strides in elements. */
static const struct {
  const char *what;
  int64_t shape[3], offset_x, strides_x[3], offset_out, strides_out[3];
  bool apart;
} layouts[] = {
    {"two rows blocks", {1, 4, 8}, 0, {0, 8, 1}, 32, {0, 8, 1}, true},
    {"one row shared", {1, 4, 8}, 0, {0, 8, 1}, 24, {0, 8, 1}, false},
    {"last element shared", {1, 1, 8}, 0, {0, 8, 1}, 7, {0, 8, 1}, false},
    {"touching", {1, 1, 8}, 0, {0, 8, 1}, 8, {0, 8, 1}, true},
    {"left and right half of columns", {1, 4, 8}, 0, {0, 16, 1}, 8, {0, 16, 1}, true},
    {"right and left half of columns", {1, 4, 8}, 8, {0, 16, 1}, 0, {0, 16, 1}, true},
    {"columns that share one", {1, 4, 8}, 0, {0, 16, 1}, 7, {0, 16, 1}, false},
    {"columns that share one across the row's end", {1, 4, 8}, 0, {0, 15, 1}, 8, {0, 15, 1}, false},
    {"halves, rows shifted", {1, 4, 8}, 0, {0, 16, 1}, 24, {0, 16, 1}, true},
    {"every second row", {1, 4, 8}, 0, {0, 16, 1}, 8, {0, 32, 1}, true},
    {"rows of another pitch", {1, 4, 8}, 0, {0, 16, 1}, 8, {0, 12, 1}, false},
    {"heads of a fused projection", {4, 2, 8}, 0, {48, 8, 1}, 16, {48, 8, 1}, true},
    {"heads in turn", {4, 2, 8}, 0, {32, 16, 1}, 8, {32, 16, 1}, true},
    {"heads that share one", {4, 2, 8}, 0, {48, 8, 1}, 8, {48, 8, 1}, false},
    {"outer dimension in turn", {4, 2, 8}, 0, {8, 64, 1}, 32, {8, 64, 1}, true},
};

START_TEST(memory_overlaps_only_if_elements_do) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor out", NULL);
  DLTensor x = strided(f32, place(0), 3, (int64_t *)layouts[_i].shape, (int64_t *)layouts[_i].strides_x);
  DLTensor out = strided(f32, place(0), 3, (int64_t *)layouts[_i].shape, (int64_t *)layouts[_i].strides_out);
  x.byte_offset = 4 * (uint64_t)layouts[_i].offset_x;
  out.byte_offset = 4 * (uint64_t)layouts[_i].offset_out;
  if (layouts[_i].apart)
    ACCEPTED(schema, fl_tensor(&x), fl_tensor(&out));
  else
    REFUSED(schema, "f: result 'out': overlaps argument 'x', expected other memory", fl_tensor(&x), fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

START_TEST(elements_of_an_output_may_not_overlap_each_other) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor out", NULL);
  static int64_t shape[] = {3, 2, 8};
  static const struct {
    int64_t strides[3];
    bool good;
  } rows[] = {{{16, 8, 1}, true},  {{8, 24, 1}, true}, {{100, 9, 1}, true}, {{0, 8, 1}, false},
              {{7, 21, 1}, false}, {{8, 8, 1}, false}, {{8, 16, 1}, false}, {{16, 0, 1}, false}};
  DLTensor x = tensor(f32, place(0), 3, shape);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    DLTensor out = strided(f32, place(1), 3, shape, (int64_t *)rows[i].strides);
    ACCEPTED(schema, fl_tensor(&out), fl_tensor(&x)); /* an argument's may */
    if (rows[i].good)
      ACCEPTED(schema, fl_tensor(&x), fl_tensor(&out));
    else
      REFUSED(schema, "f: result 'out': its strides let elements overlap each other", fl_tensor(&x), fl_tensor(&out));
  }
  fl_schema_free(schema);
}
END_TEST

START_TEST(handles_of_a_driver_are_not_addresses) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor out", NULL);
  x8.device = out8.device = (DLDevice){kDLOpenCL, 0};
  out8.data = (char *)x8.data + 8; /* another object, by chance beside the first */
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&out8));
  out8.data = x8.data;
  out8.byte_offset = 64;
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&out8));
  out8.byte_offset = 63;
  REFUSED(schema, "f: result 'out': overlaps argument 'x', expected other memory", fl_tensor(&x8), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- results */

START_TEST(an_optional_result_is_given_exactly_when_its_argument_is) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor(b!)? r) -> (Tensor out, Tensor(b)? r_out)", "x: T; out: int32[]");
  DLTensor r = tensor(f32, place(2), DIMS(2, 8)), out = tensor(i32, place(3), 0, NULL);
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&r), fl_tensor(&out), fl_tensor(&out8));
  ACCEPTED(schema, fl_tensor(&x8), fl_none(), fl_tensor(&out), fl_none());
  REFUSED(schema, "f: result 'r_out': none, expected Tensor, as argument 'r'", fl_tensor(&x8), fl_tensor(&r),
          fl_tensor(&out), fl_none());
  REFUSED(schema, "f: result 'r_out': given, expected none, as argument 'r'", fl_tensor(&x8), fl_none(),
          fl_tensor(&out), fl_tensor(&out8));
  REFUSED(schema, "f: result 'out': none, expected Tensor", fl_tensor(&x8), fl_none(), fl_none(), fl_none());
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_result_that_is_optional_in_itself_may_be_left_out) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor? out", NULL);
  ACCEPTED(schema, fl_tensor(&x8), fl_none());
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&out8));
  out8.dtype = i32;
  REFUSED(schema, "f: result 'out': dtype int32, expected float32 (that of 'x')", fl_tensor(&x8), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

START_TEST(rules_decide_whether_a_result_that_may_be_none_is_there) {
  fl_schema *schema =
      make_schema("f(Tensor x, Tensor? zero=None, bool symmetric=True) -> Tensor? out",
                  "x: T[..., n]; zero: T[..., n]; out: like zero or T[..., n] when symmetric == 0; T = float32");
  ACCEPTED(schema, fl_tensor(&x8), fl_none(), fl_bool(true), fl_none());
  ACCEPTED(schema, fl_tensor(&x8), fl_none(), fl_bool(false), fl_tensor(&out8));
  ACCEPTED(schema, fl_tensor(&x8), fl_tensor(&x8), fl_bool(true), fl_tensor(&out8));
  REFUSED(schema, "f: result 'out': given, expected none", fl_tensor(&x8), fl_none(), fl_bool(true), fl_tensor(&out8));
  REFUSED(schema, "f: result 'out': none, expected Tensor", fl_tensor(&x8), fl_none(), fl_bool(false), fl_none());
  fl_schema_free(schema);
}
END_TEST

START_TEST(O6_inference_needs_no_data_and_no_results_in_the_call) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor(b!)? r) -> (Tensor out, Tensor(b)? r_out, str name)", NULL);
  fl_value values[5] = {fl_tensor(&x8), fl_none(), fl_int(1), fl_int(2), fl_int(3)}; /* results are not looked at */
  fl_call call = FL_CALL(values);
  fl_tensor_spec specs[4];
  x8.data = NULL;
  for (call.count = 2; call.count <= 5; call.count++) {
    memset(specs, 0xee, sizeof specs);
    ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 3), FL_OK);
    ck_assert(specs[0].present && !specs[1].present && !specs[2].present);
    ck_assert_int_eq(specs[0].ndim, 2);
  }
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 3), FL_EINVAL); /* 6 values */
  call.count = 1;
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 3), FL_EINVAL);
  call.count = 2;
  memset(specs, 0xee, sizeof specs);
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 1), FL_OK);
  ck_assert_int_eq(((unsigned char *)&specs[1])[0], 0xee);
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 4), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: room for 4 results, expected at most 3");
  fl_schema_free(schema);
}
END_TEST

START_TEST(inference_leaves_the_specs_alone_on_error) {
  fl_schema *schema = make_schema("f(Tensor x) -> Tensor", NULL);
  fl_value values[] = {fl_int(1)};
  fl_call call = FL_CALL(values);
  fl_tensor_spec spec = {.ndim = 5};
  ck_assert_int_eq(fl_schema_infer(schema, &call, &spec, 1), FL_EINVAL);
  ck_assert_int_eq(spec.ndim, 5);
  fl_schema_free(schema);
}
END_TEST

/* --------------------------------------------------------------------------------------------- an entry's functions */

/* [n, k] from x [n, …], as many results as k is positive; sees no results. */
static fl_status infer_columns(fl_call *call, fl_tensor_spec *results) {
  const DLTensor *x = call->values[0].v.tensor;
  int64_t k = call->values[1].v.i;
  if (k > 100)
    return fl_fail(call, FL_EINVAL, "argument 'k': %d, expected 100 or less", (int)k);
  if (k > 90)
    return FL_ENOTSUP;
  results[0].present = true;
  results[0].ndim = 2;
  results[0].dtype = f16;
  results[0].shape[0] = x->shape[0];
  results[0].shape[1] = k;
  results[1] = results[0];
  results[1].present = k > 2;
  return FL_OK;
}

static fl_status check_even(fl_call *call) {
  return call->values[1].v.i % 2 ? fl_fail(call, FL_EINVAL, "argument 'k': odd") : FL_OK;
}

START_TEST(an_entrys_infer_says_what_rules_cannot) {
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x, int k) -> (Tensor a, Tensor? b)", .infer = infer_columns};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  DLTensor a = tensor(f16, place(2), DIMS(2, 4)), b = tensor(f16, place(3), DIMS(2, 4));
  fl_value values[] = {fl_tensor(&x8), fl_int(4)};
  fl_call call = FL_CALL(values);
  fl_tensor_spec specs[2];
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 2), FL_OK);
  ck_assert(specs[0].present && specs[1].present && specs[0].shape[0] == 2 && specs[0].shape[1] == 4);
  ck_assert_int_eq(specs[0].device.device_type, kDLCPU);
  ACCEPTED(schema, fl_tensor(&x8), fl_int(4), fl_tensor(&a), fl_tensor(&b));
  REFUSED(schema, "f: result 'a': shape [2, 4], expected [2, 3]", fl_tensor(&x8), fl_int(3), fl_tensor(&a),
          fl_tensor(&b));
  REFUSED(schema, "f: result 'b': none, expected Tensor", fl_tensor(&x8), fl_int(4), fl_tensor(&a), fl_none());
  a.shape[1] = 2;
  ACCEPTED(schema, fl_tensor(&x8), fl_int(2), fl_tensor(&a), fl_none());
  REFUSED(schema, "f: result 'b': given, expected none", fl_tensor(&x8), fl_int(2), fl_tensor(&a), fl_tensor(&b));
  REFUSED(schema, "f: argument 'k': 101, expected 100 or less", fl_tensor(&x8), fl_int(101), fl_tensor(&a), fl_none());
  values[1] = fl_int(95);
  ck_assert_int_eq(fl_schema_infer(schema, &call, specs, 2), FL_ENOTSUP);
  ck_assert_str_eq(fl_error_message(), "f: the op's own check refuses the arguments");
  fl_schema_free(schema);
}
END_TEST

/* What goes wrong depends on k. */
static fl_status infer_badly(fl_call *call, fl_tensor_spec *results) {
  switch (call->values[1].v.i) {
  case 0:
    results->ndim = FL_MAX_DIMS + 1;
    break;
  case 1:
    results->ndim = -1;
    break;
  case 2:
    results->shape[0] = -7;
    break;
  case 3:
    results->dtype.bits = 0;
    break;
  case 4:
    results->device.device_type = kDLCUDA;
    break;
  case 5:
    return 99;
  default:
    return FL_OK;
  }
  return FL_OK;
}

/* Else a caller would loop over dimensions that are not there. */
START_TEST(an_entrys_infer_is_not_believed_blindly) {
  static const char *const messages[] = {
      "f: the op's own infer gives result 'out' 9 dimensions, expected 0 to 8",
      "f: the op's own infer gives result 'out' -1 dimensions, expected 0 to 8",
      "f: the op's own infer gives result 'out' size -7 of dimension 0, expected 0 or more",
      "f: the op's own infer gives result 'out' a dtype of 0 bits and 1 lanes",
      "f: the op's own infer gives result 'out' a tensor on cuda:0, expected cpu:0",
      "f: the op's own check returned 99, which is no status",
  };
  enum { N = sizeof messages / sizeof *messages };
  fl_op_def def = {.size = sizeof def,
                   .schema = "f(Tensor x, int k) -> Tensor out",
                   .rules = "x: T[n, d]; out: T[n, d]",
                   .infer = infer_badly};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  for (int k = 0; k < N; k++) {
    fl_value values[] = {fl_tensor(&x8), fl_int(k), fl_tensor(&out8)};
    fl_call call = FL_CALL(values);
    fl_tensor_spec spec = {.ndim = 5};
    ck_assert_int_eq(fl_schema_check(schema, &call), FL_EINTERNAL);
    ck_assert_str_eq(fl_error_message(), messages[k]);
    ck_assert_int_eq(fl_schema_infer(schema, &call, &spec, 1), FL_EINTERNAL);
    ck_assert_int_eq(spec.ndim, 5);
  }
  ACCEPTED(schema, fl_tensor(&x8), fl_int(N), fl_tensor(&out8));
  fl_schema_free(schema);
}
END_TEST

/* An argument that is wrong is named as such, not as a result that does not fit. */
START_TEST(an_entrys_check_runs_before_results_are_inferred_and_may_say_why) {
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x, int k) -> Tensor", .check = check_even};
  fl_schema *schema = NULL;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  ACCEPTED(schema, fl_tensor(&x8), fl_int(4), fl_tensor(&out8));
  REFUSED(schema, "f: argument 'k': odd", fl_tensor(&x8), fl_int(3), fl_tensor(&out8));
  REFUSED(schema, "f: argument 'k': float, expected int", fl_tensor(&x8), fl_float(3), fl_tensor(&out8));
  DLTensor other = tensor(f16, place(2), DIMS(5));
  REFUSED(schema, "f: argument 'k': odd", fl_tensor(&x8), fl_int(3), fl_tensor(&other));
  fl_value values[] = {fl_tensor(&x8), fl_int(3)};
  fl_call call = FL_CALL(values);
  fl_tensor_spec spec;
  ck_assert_int_eq(fl_schema_infer(schema, &call, &spec, 1), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: argument 'k': odd");
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_call_of_an_older_caller_is_enough_for_the_entrys_functions) {
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x, int k) -> Tensor", .check = check_even};
  fl_schema *schema = NULL;
  fl_value values[] = {fl_tensor(&x8), fl_int(3), fl_tensor(&out8)};
  fl_call call = FL_CALL(values);
  char untouched[8] = "before";
  call.message = untouched;
  call.message_size = sizeof untouched;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_OK);
  call.size = offsetof(fl_call, stream);
  ck_assert_int_eq(fl_schema_check(schema, &call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "f: argument 'k': odd");
  ck_assert_str_eq(untouched, "before");
  fl_schema_free(schema);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, the_number_of_values_is_exact);
  tcase_add_test(tests, a_call_without_size_or_values_is_refused);
  tcase_add_test(tests, O6_a_value_of_another_type_is_named_with_both_types);
  tcase_add_test(tests, O1_none_is_accepted_only_where_it_is_optional);
  tcase_add_test(tests, null_pointers_are_refused);
  tcase_add_test(tests, a_result_that_the_call_writes_may_be_none_or_of_its_type);
  tcase_add_loop_test(tests, O2_tensors_may_be_strided_with_a_contiguous_last_dimension, 0,
                      sizeof tensors / sizeof tensors[0]);
  tcase_add_test(tests, O2_only_tensors_without_elements_may_have_no_data);
  tcase_add_test(tests, all_tensors_are_on_one_device);
  tcase_add_test(tests, S1_a_device_type_that_is_none_of_DLPacks_is_refused);
  tcase_add_test(tests, O1_an_output_may_be_exactly_its_argument_where_the_schema_says_so);
  tcase_add_test(tests, O2_strides_of_a_drivers_buffer_have_a_limit_too);
  tcase_add_test(tests, a_device_that_cannot_be_is_refused);
  tcase_add_test(tests, a_bool_of_another_byte_is_refused);
  tcase_add_test(tests, the_same_address_with_other_strides_is_not_the_same_tensor);
  tcase_add_test(tests, an_output_may_not_be_an_argument_that_the_schema_does_not_lend);
  tcase_add_test(tests, state_that_is_overwritten_may_overlap_nothing);
  tcase_add_loop_test(tests, memory_overlaps_only_if_elements_do, 0, sizeof layouts / sizeof layouts[0]);
  tcase_add_test(tests, elements_of_an_output_may_not_overlap_each_other);
  tcase_add_test(tests, handles_of_a_driver_are_not_addresses);
  tcase_add_test(tests, an_optional_result_is_given_exactly_when_its_argument_is);
  tcase_add_test(tests, a_result_that_is_optional_in_itself_may_be_left_out);
  tcase_add_test(tests, rules_decide_whether_a_result_that_may_be_none_is_there);
  tcase_add_test(tests, O6_inference_needs_no_data_and_no_results_in_the_call);
  tcase_add_test(tests, inference_leaves_the_specs_alone_on_error);
  tcase_add_test(tests, an_entrys_infer_says_what_rules_cannot);
  tcase_add_test(tests, an_entrys_infer_is_not_believed_blindly);
  tcase_add_test(tests, an_entrys_check_runs_before_results_are_inferred_and_may_say_why);
  tcase_add_test(tests, a_call_of_an_older_caller_is_enough_for_the_entrys_functions);
}

int main(void) {
  return run_suite("check", add_tests, 10);
}
