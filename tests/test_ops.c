/* The entries of the built-in ops: what calls they accept, what they say about others, what follows for results. */
#include "core/cases.h"
#include "core/ops.h"
#include "tests/tensors.h"

#include <math.h>

static fl_schema *entry(const char *name) {
  fl_schema *schema = NULL;
  for (const fl_op_def *const *def = fl_builtin_ops; *def; def++) {
    ck_assert_msg(fl_schema_create_checked(*def, &schema) == FL_OK, "%s", fl_error_message());
    if (!strcmp(schema->op_name, name))
      return schema;
    fl_schema_free(schema);
  }
  ck_abort_msg("no op %s", name);
  return NULL;
}

/* `n` specs of a call of `schema` with `values`. */
#define INFER(schema_, specs_, n_, ...)                                                                                \
  do {                                                                                                                 \
    fl_value values_[] = {__VA_ARGS__};                                                                                \
    fl_call call_ = FL_CALL(values_);                                                                                  \
    ck_assert_msg(fl_schema_infer(schema_, &call_, specs_, n_) == FL_OK, "%s", fl_error_message());                    \
  } while (0)

static void assert_spec(const fl_tensor_spec *spec, DLDataType dtype, int ndim, const int64_t *shape) {
  ck_assert(spec->present);
  ck_assert_mem_eq(&spec->dtype, &dtype, sizeof dtype);
  ck_assert_int_eq(spec->ndim, ndim);
  for (int i = 0; i < ndim; i++)
    ck_assert_int_eq(spec->shape[i], shape[i]);
}

START_TEST(O5_every_entry_is_described_and_names_are_unique) {
  for (const fl_op_def *const *def = fl_builtin_ops; *def; def++) {
    fl_schema *schema = NULL;
    ck_assert_msg(fl_schema_create_checked(*def, &schema) == FL_OK, "%s", fl_error_message());
    ck_assert(*schema->category && *schema->doc && strstr(schema->formula, "vLLM"));
    size_t length = strlen(schema->op_name) + 1; /* with the '(' that ends it */
    for (const fl_op_def *const *other = fl_builtin_ops; other < def; other++)
      ck_assert(strncmp((*other)->schema, schema->text, length));
    fl_schema_free(schema);
  }
}
END_TEST

START_TEST(O5_float16_of_the_norms_has_vllms_override) {
  static const char *const names[] = {"rms_norm", "fused_add_rms_norm", "silu_and_mul"};
  for (int i = 0; i < 3; i++) {
    fl_schema *schema = entry(names[i]);
    fl_tolerance half = fl_schema_tolerance(schema, f16), single = fl_schema_tolerance(schema, f32);
    ck_assert(half.atol == (i < 2 ? 1e-2 : 1e-3) && half.rtol == (i < 2 ? 2e-3 : 1e-3));
    ck_assert(single.atol == 1e-5 && single.rtol == 1.3e-6);
    fl_schema_free(schema);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- activation */

START_TEST(O2_O3_silu_and_mul_halves_the_last_dimension) {
  fl_schema *schema = entry("silu_and_mul");
  static const struct {
    int ndim;
    int64_t in[3], out[3];
  } rows[] = {{1, {8}, {4}}, {2, {0, 16}, {0, 8}}, {2, {83, 16}, {83, 8}}, {3, {2, 3, 34}, {2, 3, 17}}};
  const DLDataType dtypes[] = {f32, f16, bf16};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int t = 0; t < 3; t++) {
      DLTensor x = tensor(dtypes[t], place(0), rows[i].ndim, (int64_t *)rows[i].in);
      DLTensor out = tensor(dtypes[t], place(1), rows[i].ndim, (int64_t *)rows[i].out);
      fl_tensor_spec spec;
      INFER(schema, &spec, 1, fl_tensor(&x));
      assert_spec(&spec, dtypes[t], rows[i].ndim, rows[i].out);
      ACCEPTED(schema, fl_tensor(&x), fl_tensor(&out));
    }
  fl_schema_free(schema);
}
END_TEST

/* Is there a call of the op with tensors of that type? */
static bool takes(const fl_schema *schema, uint32_t dtype) {
  fl_input inputs[64];
  fl_status status = FL_EINVAL; /* what a number without a call gives */
  for (uint64_t number = 0; number < 200 && status == FL_EINVAL; number++)
    status = fl_schema_generate_inputs(schema, dtype, NULL, 1, number, inputs, schema->n_arguments, sizeof *inputs);
  ck_assert_msg(status == FL_OK || status == FL_ENOENT, "%s: %s", schema->op_name, fl_error_message());
  return status == FL_OK;
}

START_TEST(O3_operators_take_the_three_float_types_and_no_other) {
  int n = 0;
  for (const fl_op_def *const *def = fl_builtin_ops; *def; def++) {
    fl_schema *schema = NULL;
    if (!(*def)->rules || !strstr((*def)->rules, "; T = ")) /* no tensors, or only those of indices */
      continue;
    ck_assert_msg(fl_schema_create_checked(*def, &schema) == FL_OK, "%s", fl_error_message());
    for (uint32_t dtype = FL_FLOAT32; dtype <= FL_BOOLEAN; dtype <<= 1)
      ck_assert_msg(takes(schema, dtype) == !!(dtype & (FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16)), "%s, type %x",
                    schema->op_name, dtype);
    fl_schema_free(schema);
    n++;
  }
  ck_assert_int_gt(n, 40);
}
END_TEST

START_TEST(O6_silu_and_mul_refuses_with_the_reason) {
  fl_schema *schema = entry("silu_and_mul");
  DLTensor x = tensor(f32, place(0), DIMS(3, 8)), odd = tensor(f32, place(0), DIMS(3, 7));
  DLTensor scalar = tensor(f32, place(0), 0, NULL), ints = tensor(i32, place(0), DIMS(3, 8));
  DLTensor out = tensor(f32, place(1), DIMS(3, 4)), wide = tensor(f32, place(1), DIMS(3, 8));
  DLTensor half = tensor(f16, place(1), DIMS(3, 4)), first_half = strided(f32, place(0), DIMS(3, 4), STRIDES(8, 1));
  REFUSED(schema, "silu_and_mul: argument 'x': shape [3, 7], expected [..., 2*d]", fl_tensor(&odd), fl_tensor(&out));
  REFUSED(schema, "silu_and_mul: argument 'x': shape [], expected [..., 2*d]", fl_tensor(&scalar), fl_tensor(&out));
  REFUSED(schema, "silu_and_mul: argument 'x': dtype int32, expected float32, float16 or bfloat16", fl_tensor(&ints),
          fl_tensor(&out));
  REFUSED(schema, "silu_and_mul: result 'out': shape [3, 8], expected [3, 4] (d of 'x')", fl_tensor(&x),
          fl_tensor(&wide));
  REFUSED(schema, "silu_and_mul: result 'out': dtype float16, expected float32", fl_tensor(&x), fl_tensor(&half));
  REFUSED(schema, "silu_and_mul: result 'out': overlaps argument 'x', expected other memory", fl_tensor(&x),
          fl_tensor(&first_half));
  fl_schema_free(schema);
}
END_TEST

START_TEST(O6_gelu_and_mul_knows_two_words) {
  fl_schema *schema = entry("gelu_and_mul");
  DLTensor x = tensor(bf16, place(0), DIMS(3, 8)), out = tensor(bf16, place(1), DIMS(3, 4));
  fl_tensor_spec spec;
  INFER(schema, &spec, 1, fl_tensor(&x), fl_string("tanh"));
  assert_spec(&spec, bf16, 2, (int64_t[]){3, 4});
  ACCEPTED(schema, fl_tensor(&x), fl_string("none"), fl_tensor(&out));
  ACCEPTED(schema, fl_tensor(&x), fl_string("tanh"), fl_tensor(&out));
  REFUSED(schema, "gelu_and_mul: argument 'approximate': \"tahn\", expected \"none\" or \"tanh\"; did you mean 'tanh'?",
          fl_tensor(&x), fl_string("tahn"), fl_tensor(&out));
  REFUSED(schema, "gelu_and_mul: argument 'approximate': \"\", expected \"none\" or \"tanh\"", fl_tensor(&x),
          fl_string(""), fl_tensor(&out));
  REFUSED(schema, "gelu_and_mul: argument 'approximate': none, expected str", fl_tensor(&x), fl_string(NULL),
          fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- normalisation */

START_TEST(rms_norm_with_and_without_residual_and_weight) {
  fl_schema *schema = entry("rms_norm");
  DLTensor x = tensor(bf16, place(0), DIMS(2, 3, 8)), residual = tensor(bf16, place(1), DIMS(2, 3, 8));
  DLTensor weight = tensor(bf16, place(2), DIMS(8)), weight32 = tensor(f32, place(2), DIMS(8));
  DLTensor out = tensor(bf16, place(3), DIMS(2, 3, 8)), residual_out = tensor(bf16, place(4), DIMS(2, 3, 8));
  fl_value eps = fl_float(1e-6), none = fl_none();
  fl_tensor_spec specs[2];
  INFER(schema, specs, 2, fl_tensor(&x), fl_tensor(&residual), fl_tensor(&weight), eps, none);
  assert_spec(&specs[0], bf16, 3, x.shape);
  assert_spec(&specs[1], bf16, 3, x.shape);
  INFER(schema, specs, 2, fl_tensor(&x), none, none, eps, none);
  ck_assert(!specs[1].present);
  ACCEPTED(schema, fl_tensor(&x), none, none, eps, none, fl_tensor(&out), none);
  ACCEPTED(schema, fl_tensor(&x), none, fl_tensor(&weight32), eps, none, fl_tensor(&out), none);
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&residual), fl_tensor(&weight), eps, fl_int(8), fl_tensor(&out),
           fl_tensor(&residual_out));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&residual), fl_tensor(&weight), eps, fl_int(1), fl_tensor(&x),
           fl_tensor(&residual));
  REFUSED(schema, "rms_norm: result 'residual_out': none, expected Tensor, as argument 'residual'", fl_tensor(&x),
          fl_tensor(&residual), none, eps, none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: result 'out': overlaps argument 'residual', expected other memory", fl_tensor(&x),
          fl_tensor(&residual), none, eps, none, fl_tensor(&residual), fl_tensor(&residual_out));
  fl_schema_free(schema);
}
END_TEST

START_TEST(O6_rms_norm_refuses_with_the_reason) {
  fl_schema *schema = entry("rms_norm");
  DLTensor x = tensor(f16, place(0), DIMS(3, 8)), out = tensor(f16, place(1), DIMS(3, 8));
  DLTensor weight4 = tensor(f16, place(2), DIMS(4)), bf = tensor(bf16, place(2), DIMS(8));
  DLTensor residual = tensor(f16, place(3), DIMS(2, 8)), cuda = tensor(f16, place(2), DIMS(8));
  fl_value eps = fl_float(1e-6), none = fl_none();
  cuda.device = (DLDevice){kDLCUDA, 0};
  REFUSED(schema, "rms_norm: argument 'weight': shape [4], expected [8] (H of 'x')", fl_tensor(&x), none,
          fl_tensor(&weight4), eps, none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'weight': dtype bfloat16, expected float16 (that of 'x') or float32",
          fl_tensor(&x), none, fl_tensor(&bf), eps, none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'weight': on cuda:0, expected cpu:0 (that of 'x')", fl_tensor(&x), none,
          fl_tensor(&cuda), eps, none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'residual': shape [2, 8], expected [3, 8] (the leading dimensions of 'x')",
          fl_tensor(&x), fl_tensor(&residual), none, eps, none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'epsilon': int, expected float", fl_tensor(&x), none, none, fl_int(0), none,
          fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'epsilon': -1, expected a finite number, 0 or more", fl_tensor(&x), none, none,
          fl_float(-1), none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'epsilon': inf, expected a finite number, 0 or more", fl_tensor(&x), none, none,
          fl_float(INFINITY), none, fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'variance_size': 9, expected 1 to 8 (the last dimension of 'x')", fl_tensor(&x),
          none, none, eps, fl_int(9), fl_tensor(&out), none);
  REFUSED(schema, "rms_norm: argument 'variance_size': 0, expected 1 to 8 (the last dimension of 'x')", fl_tensor(&x),
          none, none, eps, fl_int(0), fl_tensor(&out), none);
  ACCEPTED(schema, fl_tensor(&x), none, none, fl_float(0), none, fl_tensor(&out), none);
  fl_schema_free(schema);
}
END_TEST

START_TEST(fused_add_rms_norm_needs_its_residual) {
  fl_schema *schema = entry("fused_add_rms_norm");
  DLTensor x = tensor(f32, place(0), DIMS(0, 16)), residual = tensor(f32, place(1), DIMS(0, 16));
  DLTensor out = tensor(f32, place(2), DIMS(0, 16)), sum = tensor(f32, place(3), DIMS(0, 16));
  DLTensor weight = tensor(f32, place(4), DIMS(16));
  fl_value eps = fl_float(1e-6), none = fl_none();
  fl_tensor_spec specs[2];
  INFER(schema, specs, 2, fl_tensor(&x), fl_tensor(&residual), fl_tensor(&weight), eps, none);
  assert_spec(&specs[0], f32, 2, x.shape);
  assert_spec(&specs[1], f32, 2, x.shape);
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&residual), fl_tensor(&weight), eps, none, fl_tensor(&out),
           fl_tensor(&sum));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&residual), none, eps, none, fl_tensor(&x), fl_tensor(&residual));
  REFUSED(schema, "fused_add_rms_norm: argument 'x_residual': none, expected Tensor", fl_tensor(&x), none, none, eps,
          none, fl_tensor(&out), fl_tensor(&sum));
  REFUSED(schema, "fused_add_rms_norm: argument 'epsilon': nan, expected a finite number, 0 or more", fl_tensor(&x),
          fl_tensor(&residual), none, fl_float((double)NAN), none, fl_tensor(&out), fl_tensor(&sum));
  REFUSED(schema, "fused_add_rms_norm: argument 'variance_size': 17, expected 1 to 16 (the last dimension of 'x')",
          fl_tensor(&x), fl_tensor(&residual), none, eps, fl_int(17), fl_tensor(&out), fl_tensor(&sum));
  fl_schema_free(schema);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ rotary embedding */

typedef struct rotary {
  DLTensor query, key, cos, sin, positions;
  bool no_key;
  int64_t offset;
} rotary;

/* 7 tokens, 4 query heads and 2 key heads of 48, of which 32 are rotated. */
static rotary good_rotary(void) {
  static int64_t query[] = {7, 4, 48}, key[] = {7, 2, 48}, table[] = {64, 16}, tokens[] = {7};
  return (rotary){tensor(bf16, place(0), 3, query),
                  tensor(bf16, place(1), 3, key),
                  tensor(bf16, place(2), 2, table),
                  tensor(bf16, place(3), 2, table),
                  tensor(i64, place(4), 1, tokens),
                  false,
                  0};
}

/* In place; `message` NULL: accepted. */
static void try_rotary(rotary r, const char *message) {
  fl_schema *schema = entry("rotary_embedding");
  fl_value key = r.no_key ? fl_none() : fl_tensor(&r.key);
  if (message)
    REFUSED(schema, message, fl_tensor(&r.query), key, fl_tensor(&r.cos), fl_tensor(&r.sin), fl_tensor(&r.positions),
            fl_bool(false), fl_int(r.offset), fl_bool(false), fl_tensor(&r.query), key);
  else
    ACCEPTED(schema, fl_tensor(&r.query), key, fl_tensor(&r.cos), fl_tensor(&r.sin), fl_tensor(&r.positions),
             fl_bool(false), fl_int(r.offset), fl_bool(false), fl_tensor(&r.query), key);
  fl_schema_free(schema);
}

START_TEST(rotary_embedding_takes_heads_in_a_dimension_of_their_own) {
  rotary r = good_rotary();
  try_rotary(r, NULL);
  r.offset = 16;
  try_rotary(r, NULL);
  r.no_key = true;
  try_rotary(r, NULL);
  r.positions.dtype = i32;
  r.cos.dtype = r.sin.dtype = f32;
  try_rotary(r, NULL);
}
END_TEST

START_TEST(rotary_embedding_of_two_dimensions_takes_the_head_size_from_cos) {
  rotary r = good_rotary();
  r.query = tensor(bf16, place(0), DIMS(7, 128));
  r.key = tensor(bf16, place(1), DIMS(7, 64));
  try_rotary(r, NULL);
  r.query.shape[1] = 120;
  try_rotary(r,
             "rotary_embedding: argument 'query': shape [7, 120], expected [7, h, d] or [7, h*2*r] (h*2*r, r = 16 of "
             "'cos')");
  r.query.shape[1] = 96;
  try_rotary(r, "rotary_embedding: argument 'key': 2 heads, expected a divisor of the 3 heads of 'query'");
  r.offset = 1;
  try_rotary(r, "rotary_embedding: argument 'rope_dim_offset': 1, expected 0 to 0 (size of a head less rotated "
                "dimensions)");
}
END_TEST

START_TEST(rotary_embedding_of_no_tokens_or_no_rotation_is_fine) {
  rotary r = good_rotary();
  r.query = tensor(bf16, NULL, DIMS(0, 4, 48));
  r.key = tensor(bf16, NULL, DIMS(0, 2, 48));
  r.positions = tensor(i64, NULL, DIMS(0));
  try_rotary(r, NULL);
  r.query.ndim = r.key.ndim = 2;
  r.cos = r.sin = tensor(bf16, NULL, DIMS(64, 0));
  r.query.shape[1] = r.key.shape[1] = 0;
  try_rotary(r, NULL);
}
END_TEST

START_TEST(O6_rotary_embedding_refuses_with_the_reason) {
  rotary r = good_rotary();
  r.offset = 17;
  try_rotary(r, "rotary_embedding: argument 'rope_dim_offset': 17, expected 0 to 16 (size of a head less rotated "
                "dimensions)");
  r.offset = -1;
  try_rotary(r, "rotary_embedding: argument 'rope_dim_offset': -1, expected 0 to 16 (size of a head less rotated "
                "dimensions)");
  r = good_rotary();
  r.key = tensor(bf16, place(1), DIMS(7, 3, 48));
  try_rotary(r, "rotary_embedding: argument 'key': 3 heads, expected a divisor of the 4 heads of 'query'");
  r.key = tensor(bf16, place(1), DIMS(7, 64));
  try_rotary(r, "rotary_embedding: argument 'key': 2 dimensions, expected 3 (as 'query')");
  r.key = tensor(bf16, place(1), DIMS(7, 2, 40));
  try_rotary(r, "rotary_embedding: argument 'key': shape [7, 2, 40], expected [7, k, 48] (d of 'query') or [7, k*2*r]");
  r = good_rotary();
  r.cos = tensor(bf16, place(2), DIMS(64, 25));
  try_rotary(r, "rotary_embedding: argument 'sin': shape [64, 16], expected [64, 25] (r of 'cos')");
  r.sin = tensor(bf16, place(3), DIMS(64, 25));
  try_rotary(r, "rotary_embedding: argument 'cos': rotates 50 dimensions of a head, but heads of 'query' have 48");
  r = good_rotary();
  r.cos.dtype = f16;
  try_rotary(r, "rotary_embedding: argument 'cos': dtype float16, expected bfloat16 (that of 'query') or float32");
  r.cos.dtype = f32;
  try_rotary(r, "rotary_embedding: argument 'sin': expected the dtype of 'cos'");
  r = good_rotary();
  r.positions = tensor(i64, place(4), DIMS(6));
  try_rotary(r, "rotary_embedding: argument 'position_ids': shape [6], expected [7] (n of 'query')");
  r.positions = tensor(f32, place(4), DIMS(7));
  try_rotary(r, "rotary_embedding: argument 'position_ids': dtype float32, expected int32 or int64");
}
END_TEST

START_TEST(O6_rotary_embedding_infers_both_results) {
  fl_schema *schema = entry("rotary_embedding");
  rotary r = good_rotary();
  fl_tensor_spec specs[2];
  INFER(schema, specs, 2, fl_tensor(&r.query), fl_tensor(&r.key), fl_tensor(&r.cos), fl_tensor(&r.sin),
        fl_tensor(&r.positions), fl_bool(true), fl_int(0), fl_bool(false));
  assert_spec(&specs[0], bf16, 3, r.query.shape);
  assert_spec(&specs[1], bf16, 3, r.key.shape);
  INFER(schema, specs, 2, fl_tensor(&r.query), fl_none(), fl_tensor(&r.cos), fl_tensor(&r.sin), fl_tensor(&r.positions),
        fl_bool(true), fl_int(0), fl_bool(false));
  ck_assert(!specs[1].present);
  fl_schema_free(schema);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- attention */

START_TEST(O8_attention_backend_returns_a_string) {
  fl_schema *schema = entry("attention_backend");
  fl_tensor_spec spec;
  ck_assert_int_eq(schema->device_argument, -1);
  ck_assert_int_eq(schema->values[2].type, FL_STRING);
  ACCEPTED(schema, fl_bool(true), fl_bool(false), fl_none());
  REFUSED(schema, "attention_backend: argument 'use_mla': int, expected bool", fl_int(1), fl_bool(false), fl_none());
  INFER(schema, &spec, 1, fl_bool(true), fl_bool(false));
  ck_assert(!spec.present);
  fl_schema_free(schema);
}
END_TEST

/* The elements of all results of a call with the inputs that were generated, but for one attribute; 0: it is refused.
 */
static double elements_with(const fl_schema *schema, const fl_input *inputs, uint32_t changed, fl_value value) {
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  fl_value values[FL_SCHEMA_MAX_VALUES];
  fl_call call = {.size = sizeof call, .count = schema->n_arguments, .values = values};
  double total = 0;
  for (uint32_t i = 0; i < schema->n_arguments; i++) {
    const fl_tensor_spec *spec = &inputs[i].spec;
    tensors[i] =
        (DLTensor){.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = (int64_t *)spec->shape};
    values[i] = i == changed                          ? value
                : schema->values[i].type != FL_TENSOR ? inputs[i].value
                : spec->present                       ? fl_tensor(&tensors[i])
                                                      : fl_none();
  }
  if (fl_schema_infer(schema, &call, specs, schema->n_results))
    return 0;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    double elements = schema->values[schema->n_arguments + i].type == FL_TENSOR && specs[i].present;
    for (int dim = 0; dim < specs[i].ndim; dim++)
      elements *= (double)specs[i].shape[dim];
    total += elements;
  }
  return total;
}

/* What a file of some hundred bytes can say: small tensors, and any number for an attribute. */
START_TEST(no_attribute_alone_makes_a_result_large) {
  static const int64_t numbers[] = {1000003,          1 << 24,       INT32_MAX, (int64_t)1 << 31,
                                    (int64_t)1 << 40, INT64_MAX / 2, INT64_MAX};
  static const double most = 1 << 26;
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  int tried = 0;
  for (const fl_op_def *const *def = fl_builtin_ops; *def; def++) {
    fl_schema *schema = NULL;
    ck_assert_msg(fl_schema_create_checked(*def, &schema) == FL_OK, "%s", fl_error_message());
    for (uint64_t call = 0; call < 32; call++) {
      if (fl_schema_generate_inputs(schema, 0, NULL, 1, call, inputs, schema->n_arguments, sizeof *inputs))
        continue; /* this number makes no call */
      for (uint32_t i = 0; i < schema->n_arguments; i++)
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
          int64_t list[] = {numbers[n], numbers[n], numbers[n]};
          fl_value value =
              schema->values[i].type == FL_INT ? fl_int(numbers[n]) : fl_ints(list, inputs[i].value.length);
          if (schema->values[i].type != FL_INT && (schema->values[i].type != FL_INT_LIST || value.length > 3))
            continue;
          double elements = elements_with(schema, inputs, i, value);
          ck_each(elements <= most, "%s: %g elements with %s=%lld", schema->op_name, elements, schema->values[i].name,
                  (long long)numbers[n]);
          tried++;
        }
    }
    fl_schema_free(schema);
  }
  ck_assert_int_gt(tried, 1000);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, O5_every_entry_is_described_and_names_are_unique);
  tcase_add_test(tests, O5_float16_of_the_norms_has_vllms_override);
  tcase_add_test(tests, O2_O3_silu_and_mul_halves_the_last_dimension);
  tcase_add_test(tests, O3_operators_take_the_three_float_types_and_no_other);
  tcase_add_test(tests, O6_silu_and_mul_refuses_with_the_reason);
  tcase_add_test(tests, O6_gelu_and_mul_knows_two_words);
  tcase_add_test(tests, rms_norm_with_and_without_residual_and_weight);
  tcase_add_test(tests, O6_rms_norm_refuses_with_the_reason);
  tcase_add_test(tests, fused_add_rms_norm_needs_its_residual);
  tcase_add_test(tests, rotary_embedding_takes_heads_in_a_dimension_of_their_own);
  tcase_add_test(tests, rotary_embedding_of_two_dimensions_takes_the_head_size_from_cos);
  tcase_add_test(tests, rotary_embedding_of_no_tokens_or_no_rotation_is_fine);
  tcase_add_test(tests, O6_rotary_embedding_refuses_with_the_reason);
  tcase_add_test(tests, O6_rotary_embedding_infers_both_results);
  tcase_add_test(tests, O8_attention_backend_returns_a_string);
  tcase_add_test(tests, no_attribute_alone_makes_a_result_large);
}

int main(void) {
  return run_suite("ops", add_tests, 10);
}
