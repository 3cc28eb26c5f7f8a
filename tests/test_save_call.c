/* fl_save_call: what a file says of a call, and that `flhost run` repeats it. */
#include "cli/run/safetensors.h"
#include "tests/scenario.h"

#include <flhost/flhost.h>
#include <flhost/testing.h>
#include <math.h>
#include <unistd.h>

#define ck_ok(expression) ck_assert_msg((expression) == FL_OK, "%s: %s", #expression, fl_error_message())

static fl_host *host;

static void set_up(void) {
  static const char *const nothing[] = {NULL};
  fl_host_options options = {.size = sizeof options, .environment = nothing, .flags = FL_HOST_NO_PLUGINS};
  ck_ok(fl_host_create(&options, &host));
  copy_built("plugins/cpu.so", "plugins");
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_PLATFORM=cpu");
}

static void tear_down(void) {
  fl_host_destroy(host);
  end_scenario();
}

static safetensors read_back(const char *path) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors file;
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  return file;
}

/* silu_and_mul of rows that lie apart: [0, 1 | 5, 2] is [0, 2 / (1 + exp(-1))]. */
typedef struct apart {
  float data[14], out[4];
  int64_t shape[2], strides[2], out_shape[2];
  DLTensor x, result;
} apart;

static void lay_apart(apart *t) {
  *t = (apart){.data = {0, 1, 5, 2, -9, -9, -9, -9, -9, -9, 0, 1, 5, 2},
               .shape = {2, 4},
               .strides = {10, 1},
               .out_shape = {2, 2}};
  t->out[1] = t->out[3] = 2 / (1 + expf(-1));
  t->x = (DLTensor){.data = t->data,
                    .device = {kDLCPU, 0},
                    .ndim = 2,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = t->shape,
                    .strides = t->strides};
  t->result =
      (DLTensor){.data = t->out, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = t->out_shape};
}

static const char *save(apart *t, const char *note) {
  const char *path = scratch("call.safetensors");
  fl_value expected[] = {fl_none(), fl_tensor(&t->result)};
  fl_value values[] = {fl_tensor(&t->x), fl_none()};
  fl_call call = FL_CALL(values);
  fl_saved_call about = {.size = sizeof about, .expected = expected, .source = "by hand", .note = note};
  ck_ok(fl_save_call(path, fl_find_op(host, "silu_and_mul"), &call, &about));
  return path;
}

START_TEST(a_saved_call_is_repeated_by_the_command_which_agrees_with_what_was_expected) {
  apart t;
  lay_apart(&t);
  outcome run = FLHOST("run", save(&t, NULL));
  assert_status(run, 0);
}
END_TEST

START_TEST(a_saved_call_whose_results_are_wrong_is_found_wrong_by_the_command) {
  apart t;
  lay_apart(&t);
  t.out[3] += 1;
  outcome run = FLHOST("run", save(&t, NULL));
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': 1 of 4 elements differ, worst at 3");
}
END_TEST

START_TEST(tensors_are_saved_without_the_gaps_between_their_rows) {
  apart t;
  lay_apart(&t);
  safetensors file = read_back(save(&t, "row 1"));
  const DLTensor *x = safetensors_find(&file, "x");
  ck_assert_ptr_nonnull(x);
  ck_assert_int_eq(x->shape[0] * x->shape[1], 8);
  ck_assert_mem_eq(x->data, t.data, 4 * sizeof(float));
  ck_assert_mem_eq((float *)x->data + 4, t.data + 10, 4 * sizeof(float));
  ck_assert_str_eq(safetensors_metadata(&file, "op"), "silu_and_mul");
  ck_assert_str_eq(safetensors_metadata(&file, "source"), "by hand");
  ck_assert_str_eq(safetensors_metadata(&file, "note"), "row 1");
  safetensors_free(&file);
}
END_TEST

static json_t *layout_of(const char *path) {
  safetensors file = read_back(path);
  json_t *layout = parse_json(safetensors_metadata(&file, "layout"), JSON_OBJECT);
  safetensors_free(&file);
  return layout;
}

static json_int_t number_at(const json_t *layout, const char *name, const char *key) {
  return json_integer_value(json_object_get(json_object_get(layout, name), key));
}

START_TEST(strides_offset_and_alignment_are_saved) {
  apart t;
  lay_apart(&t);
  t.x.data = t.data + 4;
  t.x.byte_offset = 24;
  t.x.shape[0] = 1;
  const json_t *layout = layout_of(save(&t, NULL));
  json_t *strides = json_object_get(json_object_get(layout, "x"), "strides");
  ck_assert_int_eq(json_integer_value(json_array_get(strides, 0)), 10);
  ck_assert_int_eq(json_integer_value(json_array_get(strides, 1)), 1);
  ck_assert_int_eq(number_at(layout, "x", "offset"), 24);
  ck_assert_int_eq(number_at(layout, "x", "address"), (json_int_t)((uintptr_t)(t.data + 10) % 256));
  ck_assert_ptr_null(json_object_get(layout, "out.out")); /* the call did not have it */
}
END_TEST

/* Two halves of each row, as a query and a key are of one product; the result in the place of the first. */
START_TEST(tensors_that_share_memory_are_saved_as_such_and_do_so_again) {
  float data[12] = {1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60}, sum[4] = {11, 22, 44, 55}, weight[2] = {1, 1};
  int64_t shape[] = {2, 2}, strides[] = {6, 1}, one[] = {2};
  const DLTensor of = {
      .data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape, .strides = strides};
  DLTensor x = of, residual = of, scale = of, after = of;
  residual.data = data + 3;
  scale = (DLTensor){.data = weight, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = one};
  after.data = sum;
  after.strides = NULL;
  fl_op *op = fl_find_op(host, "fused_add_rms_norm");
  fl_value values[16] = {{0}}, expected[16] = {{0}};
  uint32_t n = fl_op_argument_count(op), all = n + fl_op_result_count(op);
  for (uint32_t i = 0; i < all; i++) {
    const char *name = fl_op_argument(op, i)->name;
    if (i >= n && fl_op_argument(op, i)->alias >= 0)
      values[i] = values[fl_op_argument(op, i)->alias];
    else if (!strcmp(name, "x") || !strcmp(name, "x_residual"))
      values[i] = fl_tensor(name[1] ? &residual : &x);
    else if (!strcmp(name, "weight"))
      values[i] = fl_tensor(&scale);
    else if (i < n)
      values[i] = !strcmp(name, "epsilon") ? fl_float(1e-6) : fl_op_argument(op, i)->default_value;
    if (i >= n && values[i].type == FL_TENSOR && values[i].v.tensor == &residual)
      expected[i] = fl_tensor(&after);
  }
  fl_call call = {.size = sizeof call, .count = all, .values = values};
  fl_saved_call about = {.size = sizeof about, .expected = expected};
  const char *path = scratch("shared.safetensors");
  ck_ok(fl_save_call(path, op, &call, &about));
  const json_t *layout = layout_of(path);
  ck_assert_int_eq(number_at(layout, "x_residual", "at"), 12);
  ck_assert_int_eq(number_at(layout, "x", "memory"), number_at(layout, "x_residual", "memory"));
  ck_assert_ptr_nonnull(json_object_get(json_object_get(layout, "out.out"), "memory"));
  ck_assert_ptr_null(json_object_get(json_object_get(layout, "weight"), "memory"));
  assert_quiet(FLHOST("run", path));
}
END_TEST

START_TEST(edge_and_number_of_calls_are_saved_and_any_other_word_is_refused) {
  apart t;
  lay_apart(&t);
  fl_value values[] = {fl_tensor(&t.x), fl_none()};
  fl_call call = FL_CALL(values);
  fl_op *op = fl_find_op(host, "silu_and_mul");
  const char *path = scratch("edge.safetensors");
  fl_saved_call about = {.size = sizeof about, .edge = FL_EDGE_BEGINNING, .calls = 7};
  ck_ok(fl_save_call(path, op, &call, &about));
  safetensors file = read_back(path);
  ck_assert_str_eq(safetensors_metadata(&file, "edge"), "beginning");
  ck_assert_str_eq(safetensors_metadata(&file, "calls"), "7");
  safetensors_free(&file);
  assert_quiet(FLHOST("run", path));
  about.edge = (fl_edge)3;
  ck_assert_int_eq(fl_save_call(path, op, &call, &about), FL_EINVAL);
}
END_TEST

/* Files are written by hand, too. */
START_TEST(a_layout_that_is_wrong_is_refused_by_its_words) {
  static const char *const wrong[][4] = {
      {"layout", "[]", "is not a JSON object", ""},
      {"layout", "{", "metadata 'layout': ", "column"},
      {"layout", "{\"y\": {}}", "names 'y', which the call does not have", ""},
      {"layout", "{\"x\": {\"stride\": [4, 1]}}", "'x': 'stride' is not known", "did you mean 'strides'?"},
      {"layout", "{\"x\": {\"strides\": [4]}}", "'x': strides are not a list of 2", ""},
      {"layout", "{\"x\": {\"strides\": [-4, 1]}}", "'x': stride 0 is not an integer from 0", ""},
      {"layout", "{\"x\": {\"strides\": [4611686018427387904, 1]}}", "'x': its strides span more than any memory", ""},
      {"layout", "{\"x\": {\"strides\": [1000000000000, 1]}}", "bytes of memory for 32 of elements", ""},
      {"layout", "{\"x\": {\"address\": 256}}", "'address' is not a number from 0 to 255", ""},
      {"edge", "middle", "'middle' is neither end nor beginning", ""},
      {"calls", "many", "'many' is not a number from 1 to 1000000", ""}};
  apart t;
  lay_apart(&t);
  safetensors file = read_back(save(&t, NULL));
  char error[SAFETENSORS_ERROR_MAX];
  json_object_set_new(file.metadata, wrong[_i][0], json_string(wrong[_i][1]));
  ck_assert_msg(safetensors_write(scratch("wrong.safetensors"), &file, error), "%s", error);
  safetensors_free(&file);
  outcome run = FLHOST("run", scratch("wrong.safetensors"));
  assert_status(run, 2);
  assert_contains(run.err, wrong[_i][2]);
  assert_contains(run.err, wrong[_i][3]);
}
END_TEST
enum { N_WRONG = 11 };

START_TEST(attributes_are_saved_with_every_bit_and_a_number_that_json_lacks_is_refused) {
  float data[] = {1, 2};
  int64_t shape[] = {2};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  fl_op *op = fl_find_op(host, "rms_norm");
  fl_value values[16];
  fl_call call = {.size = sizeof call, .count = fl_op_argument_count(op), .values = values};
  for (uint32_t i = 0; i < call.count; i++)
    values[i] = fl_op_argument(op, i)->default_value;
  uint32_t epsilon = 0;
  while (strcmp(fl_op_argument(op, epsilon)->name, "epsilon"))
    epsilon++;
  values[0] = fl_tensor(&x);
  values[epsilon] = fl_float(0.1);
  ck_ok(fl_save_call(scratch("norm.safetensors"), op, &call, NULL));
  safetensors file = read_back(scratch("norm.safetensors"));
  json_t *attributes = parse_json(safetensors_metadata(&file, "attrs"), JSON_OBJECT);
  ck_assert_double_eq(json_real_value(json_object_get(attributes, "epsilon")), 0.1);
  safetensors_free(&file);
  values[epsilon] = fl_float(NAN);
  ck_assert_int_eq(fl_save_call(scratch("nan.safetensors"), op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "attribute 'epsilon'");
  ck_assert(access(scratch("nan.safetensors"), F_OK));
}
END_TEST

START_TEST(nothing_is_written_through_a_link) {
  apart t;
  lay_apart(&t);
  const char *target = scratch_file("target", "kept");
  ck_assert(!symlink(target, scratch("call.safetensors.part")));
  fl_value values[] = {fl_tensor(&t.x), fl_none()};
  fl_call call = FL_CALL(values);
  ck_assert_int_eq(fl_save_call(scratch("call.safetensors"), fl_find_op(host, "silu_and_mul"), &call, NULL),
                   FL_EINTERNAL);
  FILE *stream = fopen(target, "r");
  char text[8] = "";
  ck_assert_ptr_nonnull(fgets(text, sizeof text, stream));
  fclose(stream);
  ck_assert_str_eq(text, "kept");
}
END_TEST

START_TEST(what_is_missing_is_said) {
  fl_value values[] = {fl_none()};
  fl_call call = {.size = sizeof call, .count = 0, .values = values};
  fl_op *op = fl_find_op(host, "silu_and_mul");
  ck_assert_int_eq(fl_save_call(NULL, op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "the path is NULL");
  ck_assert_int_eq(fl_save_call("x", NULL, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "the op is NULL");
  ck_assert_int_eq(fl_save_call("x", op, &call, NULL), FL_EINVAL);
  assert_contains(fl_error_message(), "0 values, expected at least its 1 arguments");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_saved_call_is_repeated_by_the_command_which_agrees_with_what_was_expected);
  tcase_add_test(tests, a_saved_call_whose_results_are_wrong_is_found_wrong_by_the_command);
  tcase_add_test(tests, tensors_are_saved_without_the_gaps_between_their_rows);
  tcase_add_test(tests, strides_offset_and_alignment_are_saved);
  tcase_add_test(tests, tensors_that_share_memory_are_saved_as_such_and_do_so_again);
  tcase_add_test(tests, edge_and_number_of_calls_are_saved_and_any_other_word_is_refused);
  tcase_add_loop_test(tests, a_layout_that_is_wrong_is_refused_by_its_words, 0, N_WRONG);
  tcase_add_test(tests, attributes_are_saved_with_every_bit_and_a_number_that_json_lacks_is_refused);
  tcase_add_test(tests, nothing_is_written_through_a_link);
  tcase_add_test(tests, what_is_missing_is_said);
}

int main(void) {
  return run_suite("save_call", add_tests, 120);
}
