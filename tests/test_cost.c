/* What a call costs (fl_op_cost), by hand and for every built-in op, and the calls to time an op with. */
#include "core/ops.h"
#include "tests/fixture.h"
#include "tests/op_case.h"

#include <flhost/testing.h>
#include <math.h>

static fl_host *host;

static void set_up(void) {
  host = test_host(NULL, 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

static uint32_t count_builtin(void) {
  uint32_t n = 0;
  while (fl_builtin_ops[n])
    n++;
  return n;
}

/* ------------------------------------------------------------------------------------------------------ by hand */

#define LAYER                                                                                                          \
  "multi_head_latent_attention position_ids=i3%4 hidden_states=f3x8 kv_a_proj_with_mqa=f6x8 q_proj=f10x8 "             \
  "kv_a_layernorm=f4 kv_b_proj=f12x4 o_proj=f8x6 cos=f4x1 sin=f4x1 num_heads=2 qk_nope_head_dim=3 "                    \
  "qk_rope_head_dim=2 v_head_dim=3 kv_lora_rank=4 scale=1"

/* Calls in the form of op_case.h, without results. */
static const struct {
  const char *call;
  const DLDataType *dtype;
  double bytes, flops;
} counted[] = {
    /* 7 x 16 read, 7 x 8 written; exp, +, /, * for each of 56 */
    {"silu_and_mul x=f7x16", &bfloat16, 2 * (112 + 56), 4 * 56},
    /* a multiplication and an addition for each of 3 x 5 x 8, then the bias */
    {"replicated_linear x=f3x8 weight=f5x8", &bfloat16, 2 * (24 + 40 + 15), 240},
    {"replicated_linear x=f3x8 weight=f5x8 bias=f5", &bfloat16, 2 * (24 + 40 + 5 + 15), 255},
    {"replicated_linear x=f3x8 weight=f5x8 bias=f5 skip_bias_add=true", &bfloat16, 2 * (24 + 40 + 5 + 15), 240},
    {"replicated_linear x=f2x3x8 weight=f5x8", &float32, 4 * (48 + 40 + 30), 480},
    /* squares and their sum 2, the quotient 1, the weight 1, for each of 4 x 32 */
    {"rms_norm x=f4x32 weight=w32", &float32, 4 * (128 + 32 + 128), 512},
    {"rms_norm x=f4x32 weight=w32 variance_size=8", &float32, 4 * (128 + 32 + 128), 256 + 64},
    {"rms_norm x=f4x32 residual=f4x32", &bfloat16, 2 * 4 * 128, 128 + 3 * 128},
    {"mixer2_gated_rms_norm x=f4x8 gate=f4x8 use_rms_norm=false", &float32, 4 * 3 * 32, 4 * 32},
    {"situ_and_mul x=f2x8 linear_beta=2", &float32, 4 * 24, 11 * 8},
    /* 4 tokens, 2 + 1 heads, 4 pairs of 4 products and 2 sums; 4 of 10 rows of each table */
    {"rotary_embedding query=f4x2x8 key=f4x1x8 cos=f10x4 sin=f10x4 position_ids=i4%10", &float32,
     4 * (2 * 64 + 2 * 32 + 4 + 2 * 4 * 4), 288},
    {"rotary_embedding query=f4x16 cos=f2x4 sin=f2x4 position_ids=l4%2", &float32, 4 * (2 * 64 + 8 + 2 * 2 * 4), 192},
    /* rows of the 6 tokens, but no row twice */
    {"vocab_parallel_embedding input_ids=i6%10 weight=f1000x4", &float32, 4 * (6 + 24 + 24), 0},
    {"vocab_parallel_embedding input_ids=i6%4 weight=f4x4", &float32, 4 * (6 + 16 + 24), 0},
    /* 16 of 20 rows */
    {"logits_processor hidden_states=f3x8 weight=f20x8 org_vocab_size=16", &bfloat16, 2 * (24 + 128 + 48), 48 * 16},
    {"logits_processor hidden_states=f3x8 weight=f20x8 soft_cap=30", &bfloat16, 2 * (24 + 160 + 60), 60 * 19},
    /* 7 x 7 places, 4 outputs, 3 x 2 x 2 products with their sum */
    {"conv2d x=f1x3x8x8 weight=f4x3x2x2", &float32, 4 * (192 + 48 + 196), 196 * 24},
    /* 4 x 6 pairs of 2 heads, two products of 8 */
    {"mm_encoder_attn query=f1x4x2x8 key=f1x6x2x8 value=f1x6x2x8", &float32, 4 * (64 + 96 + 96 + 64), 1536},
    {"mm_encoder_attn query=f1x8x16 key=f1x8x2x8 value=f1x8x2x8 cu_seqlens=i3%9", &float32, 4 * (4 * 128 + 3), 2048},
    /* queries see 3, 4 and 5 rows; 9 = 4 + 2 + 3 products a pair and head; 5 rows of 2 heads made of 4 x 7 */
    {"mla_prefill query=f3x2x6 kv_c=f5x4 k_pe=f5x2 kv_b_proj=f14x4 v_head_dim=3 scale=1 query_offset=2", &float32,
     4 * (36 + 20 + 10 + 56 + 18), 2 * 12 * 2 * 9 + 2 * 5 * 2 * 28},
    /* 2 x 3 blocks of 16 rows of 24, of a cache of 10 blocks or of 4 */
    {"mla_decode query=f2x4x24 kv_cache=f10x16x24 block_table=i2x3%10 seq_lens=i2%48 scale=1 kv_lora_rank=16", &float16,
     2 * (192 + 6 * 16 * 24 + 128) + 4 * (6 + 2 + 8), 2 * 2 * 4 * 48 * (24 + 16)},
    {"mla_decode query=f2x4x24 kv_cache=f4x16x24 block_table=i2x3%4 seq_lens=i2%48 scale=1 kv_lora_rank=16", &float16,
     2 * (192 + 4 * 16 * 24 + 128) + 4 * (6 + 2 + 8), 2 * 2 * 4 * 48 * (24 + 16)},
    /* 2 x 3 blocks of 2 rows of 2 heads of 8, of a cache of 10; 4 x 6 pairs less the 2 that are not seen yet */
    {"paged_attention query=f4x4x8 key_cache=f10x2x2x8 value_cache=f10x2x2x8 block_table=i2x3%10 query_start_loc=i3 "
     "seq_lens=i2 scale=1",
     &float16, 2 * (128 + 128 + 2 * 6 * 2 * 2 * 8) + 4 * (6 + 3 + 2 + 16), 4 * 4 * 8 * 22},
    /* 3 of 5 tokens, read and written */
    {"reshape_and_cache key=f5x2x8 value=f5x2x8 key_cache=f7x4x2x8 value_cache=f7x4x2x8 slot_mapping=l3%28", &float32,
     8 * 3 + 4 * 4 * 3 * 2 * 8, 0},
    /* 4 of 16 experts, each 6 x 8 and 8 x 3 */
    {"unquantized_fused_moe x=f2x8 w13=f16x6x8 w2=f16x8x3 topk_weights=w2x2 topk_ids=i2x2%16", &float32,
     4 * (16 + 4 * 72 + 4 + 4 + 16), 2 * 2 * 6 * 8 * 3},
    {"moe_sum x=f5x3x4", &float32, 4 * (60 + 20), 40},
    /* 3 products, 3 sums and silu for each of 40; one slot of 4 x 2 is written */
    {"causal_conv1d x=f4x10 weight=f4x3 conv_state=f7x4x2", &float32, 4 * (40 + 12 + 40 + 8), 360},
    /* two slots, read and written */
    {"causal_conv1d x=f4x10 weight=f4x3 conv_state=f7x4x2 query_start_loc=i3%11 cache_indices=i2%7 "
     "has_initial_state=b2%2",
     &float32, 4 * (40 + 12 + 40 + 4 * 8) + 12 + 8 + 2, 360},
    /* 6 tokens: products with 12 x 4, 4 x 3 and 4 x 4, and two with each of 4 channels */
    {"short_conv hidden_states=f6x4 in_proj=f12x4 conv_weight=f4x3 out_proj=f4x4", &float32,
     4 * (24 + 48 + 12 + 16 + 24), 2 * 6 * (48 + 12 + 16) + 2 * 6 * 4},
    /* 3 tokens: five products with weights, then 6 pairs of 2 heads, 5 + 3 products each; 3 of 4 rows of the tables */
    {LAYER, &float32, 4 * (3 + 24 + 48 + 80 + 4 + 48 + 48 + 24 + 6), 2 * 3 * (48 + 80 + 48 + 48) + 2 * 6 * 2 * 8},
    /* over 2 of 5 blocks of 2 rows: 3 x 4 pairs of 2 heads, 4 + 2 + 4 products each; 3 rows are written */
    {LAYER " kv_cache=f5x2x6 block_table=i1x2%5 seq_lens=i1%4", &float32,
     4 * (3 + 24 + 48 + 80 + 4 + 48 + 48 + 24 + 6) + 4 * (2 + 1) + 4 * (4 + 3) * 6,
     2 * 3 * (48 + 80 + 48 + 48) + 2 * 12 * 2 * 10},
    {"attention_backend", &float32, 0, 0},
};
enum { N_COUNTED = sizeof counted / sizeof counted[0] };

START_TEST(counts_are_those_by_hand) {
  op_case *made = op_case_make(counted[_i].call, *counted[_i].dtype, 0);
  fl_call call = {.size = sizeof call, .count = made->schema->n_arguments, .values = made->values};
  fl_cost cost = {.size = sizeof cost};
  ck_ok(fl_op_cost(fl_find_op(host, made->schema->op_name), &call, &cost));
  ck_assert_msg(cost.bytes == counted[_i].bytes, "%s: %g bytes, expected %g", counted[_i].call, cost.bytes,
                counted[_i].bytes);
  ck_assert_msg(cost.flops == counted[_i].flops, "%s: %g flops, expected %g", counted[_i].call, cost.flops,
                counted[_i].flops);
  op_case_free(made);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ every built-in op */

/* A call without data, of what the generator gave. */
typedef struct draft {
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  fl_value values[FL_SCHEMA_MAX_VALUES];
  fl_call call;
} draft;

static void draft_from_inputs(draft *d, const fl_op *op) {
  uint32_t n = fl_op_argument_count(op);
  for (uint32_t i = 0; i < n; i++) {
    fl_tensor_spec *spec = &d->inputs[i].spec;
    d->tensors[i] = (DLTensor){.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
    d->values[i] = spec->present ? fl_tensor(&d->tensors[i]) : d->inputs[i].value;
  }
  d->call = (fl_call){.size = sizeof d->call, .count = n, .values = d->values};
}

static double bytes_of(const fl_tensor_spec *spec) {
  double bytes = spec->present ? spec->dtype.bits / 8.0 : 0;
  for (int i = 0; i < spec->ndim; i++)
    bytes *= (double)spec->shape[i];
  return bytes;
}

/* Every tensor once, and once more if it is state: what no count may exceed. */
static double most_bytes(const draft *d, const fl_op *op) {
  fl_tensor_spec results[FL_SCHEMA_MAX_RESULTS];
  uint32_t n = fl_op_result_count(op);
  double bytes = 0;
  ck_ok(fl_infer(op, &d->call, results, n, sizeof(fl_tensor_spec)));
  for (uint32_t i = 0; i < n; i++)
    bytes += bytes_of(&results[i]);
  for (uint32_t i = 0; i < d->call.count; i++)
    bytes += bytes_of(&d->inputs[i].spec) * (fl_op_argument(op, i)->mutates ? 2 : 1);
  return bytes;
}

static const fl_op *builtin(int index) {
  char name[FL_NAME_MAX + 1];
  const char *schema = fl_builtin_ops[index]->schema;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(schema, "("), schema);
  return fl_find_op(host, name);
}

START_TEST(every_builtin_op_has_counts_for_its_generated_calls) {
  enum { NUMBERS = 300 };
  const fl_op *op = builtin(_i);
  int made = 0;
  double bytes = 0, flops = 0;
  ck_assert_msg(*fl_op_flops(op), "%s has no count of operations", fl_op_name(op));
  for (uint64_t number = 0; number < NUMBERS; number++) {
    draft d;
    fl_cost cost = {.size = sizeof cost};
    if (fl_generate_inputs(op, 0, 1, number, d.inputs, fl_op_argument_count(op), sizeof(fl_input)))
      continue;
    draft_from_inputs(&d, op);
    if (fl_infer(op, &d.call, NULL, 0, sizeof(fl_tensor_spec)))
      continue;
    ck_ok(fl_op_cost(op, &d.call, &cost));
    double most = most_bytes(&d, op);
    ck_assert_msg(cost.bytes <= most, "%s: %g bytes in call %d, its tensors have %g", fl_op_name(op), cost.bytes,
                  (int)number, most);
    bytes += cost.bytes;
    flops += cost.flops;
    made++;
  }
  ck_assert_int_gt(made, 0);
  ck_assert_msg(bytes > 0 || !strcmp(fl_op_name(op), "attention_backend"), "%s: no bytes in any call", fl_op_name(op));
  ck_assert_msg(flops > 0 || !strcmp(fl_op_flops(op), "0"), "%s: no operations in any call", fl_op_name(op));
}
END_TEST

/* The first that the op takes; 0: none. */
static uint32_t timed_dtype(const fl_op *op) {
  static const uint32_t dtypes[] = {FL_BFLOAT16, FL_FLOAT32, FL_INT32, FL_INT8};
  uint32_t count = fl_op_argument_count(op), n;
  if (!strcmp(fl_op_name(op), "attention_backend")) /* it takes no tensors, so any would do */
    return 0;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    draft d;
    if (!fl_generate_bench_inputs(op, dtypes[i], NULL, 0, d.inputs, count, sizeof(fl_input), &n))
      return dtypes[i];
  }
  ck_abort_msg("%s: no calls to time: %s", fl_op_name(op), fl_error_message());
  return 0;
}

START_TEST(every_builtin_op_has_calls_to_time_from_one_token_to_thousands) {
  const fl_op *op = builtin(_i);
  uint32_t n = 1;
  double before = 0;
  uint32_t dtype = timed_dtype(op);
  if (!dtype) /* it has no tensors */
    return;
  for (uint32_t number = 0; number < n; number++) {
    draft d;
    fl_cost cost = {.size = sizeof cost};
    ck_ok(fl_generate_bench_inputs(op, dtype, NULL, number, d.inputs, fl_op_argument_count(op), sizeof(fl_input), &n));
    draft_from_inputs(&d, op);
    ck_ok(fl_op_cost(op, &d.call, &cost));
    ck_assert_msg(cost.bytes > before, "%s: call %u moves no more bytes than the one before", fl_op_name(op),
                  (unsigned)number);
    before = cost.bytes;
  }
  ck_assert_uint_eq(n, 3);
}
END_TEST

/* --------------------------------------------------------------------------------------------- the language's rules */

static fl_status define(const char *bytes, const char *flops) {
  const fl_op_def def = {.size = sizeof def,
                         .schema = "op(Tensor(a!) x, Tensor(b!)? state, Tensor? table, int? k=None, bool twice=False, "
                                   "float eps=1.0, str mode=\"a\") -> Tensor(a) out",
                         .rules = "x: float32[..., d]; state: float32[s, d]; table: int64[n]",
                         .bytes = bytes,
                         .flops = flops};
  return fl_register_op(host, &def);
}

/* A call of that op: x [2, 3, 4], state [5, 4] if wanted, no table. */
static fl_status cost_of(bool with_state, fl_value k, bool twice, fl_cost *cost) {
  int64_t shape[] = {2, 3, 4}, state_shape[] = {5, 4};
  DLTensor x = {.device = {kDLCPU, 0}, .ndim = 3, .dtype = float32, .shape = shape}, state = x;
  state.ndim = 2;
  state.shape = state_shape;
  fl_value values[] = {fl_tensor(&x), fl_tensor(with_state ? &state : NULL), fl_none(), k, fl_bool(twice), fl_float(1),
                       fl_string("a")};
  fl_call call = FL_CALL(values);
  cost->size = sizeof *cost;
  return fl_op_cost(fl_find_op(host, "op"), &call, cost);
}

START_TEST(without_counts_each_tensor_counts_once_and_a_state_twice) {
  fl_cost cost;
  ck_ok(define(NULL, NULL));
  ck_ok(cost_of(false, fl_none(), false, &cost));
  ck_assert_double_eq(cost.bytes, 4 * (24 + 24));
  ck_assert_double_eq(cost.flops, -1);
  ck_ok(cost_of(true, fl_none(), false, &cost));
  ck_assert_double_eq(cost.bytes, 4 * (24 + 24 + 20 + 20));
}
END_TEST

START_TEST(words_mean_what_plugin_h_says) {
  static const struct {
    const char *flops;
    double without, with; /* state, k = 7 and twice */
  } rows[] = {
      {"numel(...)", 6, 6},
      {"numel(x) + 100*numel(state) + 1000*numel(table)", 24, 2024},
      {"nbytes(out)", 96, 96},
      {"itemsize(x) + 10*itemsize(table)", 4, 4},
      {"given(state) + 10*given(k) + 100*given(x)", 100, 111},
      {"k + 100*twice", 0, 107},
      {"s + 10*n", 0, 5},
      {" ( d - 1 ) * d / 2 ", 6, 6},
      {"min( 2*d , 7 ) + max(min(s, 3), 1)", 8, 10},
      {"5e-1*d", 2, 2},
      {"7/2", 3.5, 3.5},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fl_cost cost;
    tear_down();
    set_up();
    ck_ok(define(NULL, rows[i].flops));
    ck_assert_str_eq(fl_op_flops(fl_find_op(host, "op")), rows[i].flops);
    ck_ok(cost_of(false, fl_none(), false, &cost));
    ck_assert_double_eq(cost.flops, rows[i].without);
    ck_ok(cost_of(true, fl_int(7), true, &cost));
    ck_assert_double_eq(cost.flops, rows[i].with);
  }
}
END_TEST

START_TEST(default_stands_for_the_usual_bytes) {
  fl_cost cost;
  ck_ok(define("default - 2*nbytes(state) + 16", NULL));
  ck_assert_str_eq(fl_op_bytes(fl_find_op(host, "op")), "default - 2*nbytes(state) + 16");
  ck_ok(cost_of(true, fl_none(), false, &cost));
  ck_assert_double_eq(cost.bytes, 4 * (24 + 24) + 16);
}
END_TEST

#define TEN(text) text text text text text text text text text text

START_TEST(mistakes_are_refused_at_registration_with_the_column) {
  static const struct {
    const char *flops, *message;
  } rows[] = {
      {"2*e", "flops '2*e', column 3: found 'e', expected a number, a dimension of the rules, an int, a bool or a"},
      {"twic", "did you mean 'twice'?"},
      {"eps", "flops 'eps', column 1: found 'eps'"},
      {"mode*d", "flops 'mode*d', column 1: found 'mode'"},
      {"x", "flops 'x', column 1: found 'x'"},
      {"numel(stat)",
       "flops 'numel(stat)', column 7: found 'stat', expected the name of a tensor; did you mean 'state'?"},
      {"numel(k)", "column 7: found 'k', expected the name of a tensor"},
      {"numel()", "column 7: found ')', expected the name of a tensor"},
      {"nbytes(...)", "column 8: found '...', expected the name of a tensor"},
      {"given(out)", "column 7: found 'out', expected the name of an argument"},
      {"nume(x)",
       "column 1: found 'nume', expected numel, nbytes, itemsize, given, min or max before '('; did you mean "
       "'numel'?"},
      {"min(d)", "column 6: found ')', expected ','"},
      {"max(d, s", "column 9: found the end, expected ')'"},
      {"(d", "column 3: found the end, expected ')'"},
      {"d d", "column 3: expected an operator or the end of 'd d'"},
      {"d +", "column 4: expected a number, a name or an expression in parentheses"},
      {"default", "column 1: found 'default'"},
      {TEN("min(") TEN("min(") TEN("min(") TEN("min("), "more than 32 levels of parentheses and signs"},
      {TEN("-") TEN("-") TEN("-") TEN("-") "d", "more than 32 levels of parentheses and signs"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ck_assert_int_eq(define(NULL, rows[i].flops), FL_EINVAL);
    ck_contains(fl_error_message(), rows[i].message);
  }
  ck_assert_int_eq(define("defaul", NULL), FL_EINVAL);
  ck_contains(fl_error_message(), "bytes 'defaul', column 1: found 'defaul'");
  ck_assert_ptr_null(fl_find_op(host, "op"));
}
END_TEST

START_TEST(a_count_without_a_number_is_an_error_of_the_call_that_names_it) {
  fl_cost cost = {.flops = 5};
  ck_ok(define(NULL, "d/s"));
  ck_assert_int_eq(cost_of(false, fl_none(), false, &cost), FL_EINVAL);
  ck_contains(fl_error_message(), "flops 'd/s', column 2: 4 / 0 is not a number");
  ck_assert_double_eq(cost.flops, 5);
  tear_down();
  set_up();
  ck_ok(define(NULL, "s - d"));
  ck_assert_int_eq(cost_of(false, fl_none(), false, &cost), FL_EINVAL);
  ck_contains(fl_error_message(), "op: flops 's - d' is -4 for these arguments, expected 0 or more");
}
END_TEST

START_TEST(bad_arguments_are_refused_as_in_a_call) {
  fl_value values[] = {fl_int(1)};
  fl_call call = FL_CALL(values);
  fl_cost cost = {.size = sizeof cost}, none = {0};
  const fl_op *op = fl_find_op(host, "moe_sum");
  ck_assert_int_eq(fl_op_cost(op, &call, &cost), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "moe_sum: argument 'x': int, expected Tensor");
  ck_assert_int_eq(fl_op_cost(op, &call, &none), FL_EINVAL);
  ck_contains(fl_error_message(), "sizeof(fl_cost)");
  ck_assert_int_eq(fl_op_cost(op, &call, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_op_cost(NULL, &call, &cost), FL_ENOENT);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- calls to time */

static const int64_t *shape_of(const char *op, const char *sizes, uint32_t number, uint32_t argument) {
  static fl_input inputs[FL_SCHEMA_MAX_VALUES];
  const fl_op *found = fl_find_op(host, op);
  ck_ok(fl_generate_bench_inputs(found, FL_FLOAT16, sizes, number, inputs, fl_op_argument_count(found),
                                 sizeof(fl_input), NULL));
  return inputs[argument].spec.shape;
}

START_TEST(sizes_of_the_caller_go_before_those_of_the_entry) {
  ck_assert_int_eq(shape_of("replicated_linear", NULL, 2, 0)[0], 4096);
  ck_assert_int_eq(shape_of("replicated_linear", "k: 64", 2, 0)[0], 4096);
  ck_assert_int_eq(shape_of("replicated_linear", "k: 64", 2, 0)[1], 64);
  ck_assert_int_eq(shape_of("replicated_linear", "k: 64; n: k*2", 1, 1)[0], 128);
  ck_assert_int_eq(shape_of("replicated_linear", "...: [5, 6]", 0, 0)[1], 6);
  ck_assert_int_eq(shape_of("replicated_linear", "...: [1] [2] [3] [4]", 3, 0)[0], 4);
  ck_assert_int_eq(shape_of("mla_decode", "b: 4; n: 2", 0, 1)[0], 8); /* blocks: b*n */
}
END_TEST

START_TEST(sizes_that_say_nothing_are_refused) {
  static const struct {
    const char *op, *sizes;
    uint32_t number;
    const char *message;
  } rows[] = {
      {"moe_sum", "j: 3", 0, "sizes 'j: 3', column 1: found 'j', expected a dimension of the rules, an argument or"},
      {"moe_sum", "k: 3 x", 0, "sizes 'k: 3 x', column 6"},
      {"moe_sum", "x: normal", 0, "sizes 'x: normal': 'x' is neither a dimension nor an int"},
      {"gelu", "approximate: tanh", 0, "'approximate' is neither a dimension nor an int"},
      {"moe_sum", "...: [1]; k: 2", 1, "moe_sum: call 1 to time it with, expected 0 to 0"},
      {"moe_sum", NULL, 3, "moe_sum: call 3 to time it with, expected 0 to 2"},
  };
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const fl_op *op = fl_find_op(host, rows[i].op);
    ck_assert_int_eq(fl_generate_bench_inputs(op, 0, rows[i].sizes, rows[i].number, inputs, fl_op_argument_count(op),
                                              sizeof(fl_input), NULL),
                     FL_EINVAL);
    ck_contains(fl_error_message(), rows[i].message);
  }
  ck_assert_int_eq(fl_generate_bench_inputs(NULL, 0, NULL, 0, inputs, 1, sizeof(fl_input), NULL), FL_ENOENT);
  ck_assert_int_eq(
      fl_generate_bench_inputs(fl_find_op(host, "moe_sum"), FL_INT8, NULL, 0, inputs, 1, sizeof(fl_input), NULL),
      FL_ENOENT);
}
END_TEST

START_TEST(nothing_of_a_timed_call_is_left_to_chance) {
  fl_input a[FL_SCHEMA_MAX_VALUES], b[FL_SCHEMA_MAX_VALUES];
  const fl_op *op = fl_find_op(host, "rotary_embedding");
  uint32_t n = fl_op_argument_count(op);
  ck_ok(fl_generate_bench_inputs(op, FL_BFLOAT16, NULL, 1, a, n, sizeof(fl_input), NULL));
  ck_ok(fl_generate_bench_inputs(op, FL_BFLOAT16, NULL, 1, b, n, sizeof(fl_input), NULL));
  ck_assert_mem_eq(a, b, n * sizeof *a);
  enum { QUERY, KEY, COS, SIN, POSITION_IDS, INTERLEAVED };
  ck_assert(a[KEY].spec.present);
  ck_assert_int_eq(a[COS].spec.dtype.code, kDLBfloat); /* as the activations, though float32 is allowed */
  ck_assert_int_eq(a[POSITION_IDS].spec.dtype.bits, 32);
  ck_assert(!a[INTERLEAVED].value.v.b); /* the defaults */
  op = fl_find_op(host, "apply_rotary_emb");
  ck_ok(fl_generate_bench_inputs(op, FL_BFLOAT16, NULL, 0, a, fl_op_argument_count(op), sizeof(fl_input), NULL));
  ck_assert(a[3].value.v.b); /* is_neox_style */
}
END_TEST

START_TEST(a_mistake_in_bench_is_refused_at_registration) {
  const fl_op_def def = {.size = sizeof def, .schema = "op(Tensor x) -> Tensor", .bench = "n: 1"};
  ck_assert_int_eq(fl_register_op(host, &def), FL_EINVAL);
  ck_contains(fl_error_message(), "bench 'n: 1', column 1: found 'n'");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, counts_are_those_by_hand, 0, N_COUNTED);
  tcase_add_loop_test(tests, every_builtin_op_has_counts_for_its_generated_calls, 0, loop_cases((int)count_builtin()));
  tcase_add_loop_test(tests, every_builtin_op_has_calls_to_time_from_one_token_to_thousands, 0,
                      loop_cases((int)count_builtin()));
  tcase_add_test(tests, without_counts_each_tensor_counts_once_and_a_state_twice);
  tcase_add_test(tests, words_mean_what_plugin_h_says);
  tcase_add_test(tests, default_stands_for_the_usual_bytes);
  tcase_add_test(tests, mistakes_are_refused_at_registration_with_the_column);
  tcase_add_test(tests, a_count_without_a_number_is_an_error_of_the_call_that_names_it);
  tcase_add_test(tests, bad_arguments_are_refused_as_in_a_call);
  tcase_add_test(tests, sizes_of_the_caller_go_before_those_of_the_entry);
  tcase_add_test(tests, sizes_that_say_nothing_are_refused);
  tcase_add_test(tests, nothing_of_a_timed_call_is_left_to_chance);
  tcase_add_test(tests, a_mistake_in_bench_is_refused_at_registration);
}

int main(void) {
  return run_suite("cost", add_tests, 30);
}
