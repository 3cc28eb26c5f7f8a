/*
 * What the Ascend plugin's ops refuse, and the words for it: what CANN's operators do not take is told before a call,
 * so that the next candidate runs. test_ascend_ops.c has the calls that are taken.
 */
#include "tests/kernels.h"
#include "tests/npu.h"

static const DLDataType int8 = {kDLInt, 8, 1};

enum { MOST = 24 };

/* The tensors of one test. */
static npu_tensor *made[MOST];
static int n_made;

static void set_up(void) {
  npu_open();
  n_made = 0;
}

static void tear_down(void) {
  while (n_made)
    npu_free(made[--n_made]);
  npu_check_clean();
}

static fl_value of_shape(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding) {
  ck_assert_int_lt(n_made, MOST);
  made[n_made] = npu_make(dtype, ndim, shape, padding);
  return fl_tensor(&made[n_made++]->tensor);
}

#define TENSOR(dtype, ...)                                                                                             \
  of_shape(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, 0)
/* With rows that are 16 elements apart. */
#define GAPPED(dtype, ...)                                                                                             \
  of_shape(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, 16)

static void assert_taken_or_refused(const char *op, fl_value *values, uint32_t n, const char *words) {
  const char *reason;
  bool taken = npu_supports(npu_find(op), values, n, &reason);
  ck_assert_msg(taken == !words, "%s: %s", op, taken ? "taken" : reason);
  if (words)
    ck_assert_msg(strstr(reason, words) != NULL, "%s: %s, expected %s", op, reason, words);
}

#define REFUSED(op, words, ...)                                                                                        \
  assert_taken_or_refused(op, (fl_value[]){__VA_ARGS__}, sizeof((fl_value[]){__VA_ARGS__}) / sizeof(fl_value), words)
#define TAKEN(op, ...) REFUSED(op, NULL, __VA_ARGS__)

START_TEST(numbers_that_would_be_rounded_to_16_bits_are_refused) {
  fl_value x = TENSOR(bfloat16, 2, 8), out = TENSOR(bfloat16, 2, 4), wide = TENSOR(float32, 2, 8),
           wide_out = TENSOR(float32, 2, 4), weight = TENSOR(bfloat16, 4, 8);
  TAKEN("fatrelu_and_mul", x, fl_float(0.5), out);
  TAKEN("fatrelu_and_mul", wide, fl_float(0.1), wide_out);
  REFUSED("fatrelu_and_mul", "'threshold' is no number of the element type", x, fl_float(0.1), out);
  TAKEN("logits_processor", x, weight, fl_none(), fl_none(), fl_float(30), fl_float(0.5), out);
  REFUSED("logits_processor", "'soft_cap' or 'scale'", x, weight, fl_none(), fl_none(), fl_float(30.1), fl_float(1),
          out);
  REFUSED("logits_processor", "'soft_cap' or 'scale'", x, weight, fl_none(), fl_none(), fl_none(), fl_float(0.1), out);
}
END_TEST

START_TEST(tensors_with_gaps_are_refused_where_operators_want_none) {
  fl_value x = TENSOR(float32, 2, 8), gapped = GAPPED(float32, 2, 8), out = TENSOR(float32, 2, 4),
           gapped_out = GAPPED(float32, 2, 4), weight = TENSOR(float32, 4, 8), row = TENSOR(float32, 8);
  fl_value cube = TENSOR(float32, 2, 2, 8);
  TAKEN("silu_and_mul", gapped, gapped_out);
  TAKEN("situ_and_mul", gapped, fl_float(1), fl_none(), out);
  REFUSED("situ_and_mul", "compact", x, fl_float(1), fl_none(), gapped_out);
  REFUSED("swigluoai_and_mul", "compact", gapped, fl_float(1.702), fl_float(7), out);
  TAKEN("replicated_linear", gapped, weight, fl_none(), fl_bool(false), out);
  REFUSED("replicated_linear", "CANN writes compact matrices only", x, weight, fl_none(), fl_bool(false), gapped_out);
  TAKEN("rms_norm", gapped, fl_none(), row, fl_float(1e-6), fl_none(), x, fl_none());
  REFUSED("rms_norm", "in place, CANN takes compact tensors only", gapped, fl_none(), row, fl_float(1e-6), fl_none(),
          gapped, fl_none());
  made[6]->tensor.strides = (int64_t[]){64, 8, 1}; /* of its leading dimensions, one is not a multiple of the other */
  REFUSED("parallel_lm_head", "not evenly spaced", cube, weight, fl_none(), TENSOR(float32, 2, 2, 4));
}
END_TEST

START_TEST(norms_refuse_what_operators_lack) {
  fl_value x = TENSOR(bfloat16, 2, 64), other = TENSOR(bfloat16, 2, 64), out = TENSOR(bfloat16, 2, 64);
  fl_value row = TENSOR(bfloat16, 64), wide_row = TENSOR(float32, 64);
  fl_value deep = TENSOR(bfloat16, 1, 1, 1, 1, 1, 1, 2, 64), deep_out = TENSOR(bfloat16, 1, 1, 1, 1, 1, 1, 2, 64);
  const fl_value eps = fl_float(1e-6), none = fl_none();
  TAKEN("rms_norm", x, none, wide_row, eps, none, out, none);
  TAKEN("rms_norm", x, none, none, eps, fl_int(64), out, none);
  REFUSED("rms_norm", "whole row", x, none, row, eps, fl_int(32), out, none);
  REFUSED("rms_norm", "the weight's element type", x, other, wide_row, eps, none, x, other);
  REFUSED("rms_norm", "one of the two results is in place", x, other, row, eps, none, x, out);
  REFUSED("gemma_rms_norm", "the weight's element type", x, none, wide_row, eps, out, none);
  REFUSED("rms_norm_gated", "no dimension left", deep, none, row, eps, none, fl_bool(false), fl_string("silu"),
          deep_out);
}
END_TEST

START_TEST(chips_refuse_what_they_lack) {
  static const char *const chips[] = {"Ascend310P3", "Ascend910_9391", "Ascend950PR_9599"};
  static const int64_t tensor[] = {-1, -1};
  fl_value x = TENSOR(float16, 2, 8), out = TENSOR(float16, 2, 8), alpha = TENSOR(float16, 1);
  fl_value q = TENSOR(float8, 2, 8), scale = TENSOR(float32, 1);
  fl_value key = TENSOR(float16, 3, 2, 16), cache = TENSOR(float16, 2, 2, 2, 16), slots = TENSOR(int64, 3);
  npu_control.set("soc", chips[_i]);
  assert_taken_or_refused("gelu_new", (fl_value[]){x, out}, 2, _i == 0 ? "on 310P CANN has no tanh" : NULL);
  assert_taken_or_refused("xielu", (fl_value[]){x, alpha, alpha, fl_float(0.5), fl_float(-1e-6), out}, 6,
                          _i == 0   ? "does not have the operator on 310P"
                          : _i == 2 ? "does not have the operator on 950"
                                    : NULL);
  assert_taken_or_refused(
      "quant_fp8", (fl_value[]){x, fl_none(), fl_none(), fl_ints(tensor, 2), fl_bool(false), fl_int(0), q, scale}, 8,
      _i == 0   ? "does not have the operator on 310P"
      : _i == 1 ? "CANN has the operator on 950 only"
                : NULL);
  assert_taken_or_refused("reshape_and_cache", (fl_value[]){key, key, cache, cache, slots, fl_none(), fl_none()}, 7,
                          _i == 0   ? "does not have the operator on 310P"
                          : _i == 2 ? "does not have the operator on 950"
                                    : NULL);
}
END_TEST

START_TEST(rotary_embeddings_refuse_other_tables_and_too_many_heads) {
  fl_value q = TENSOR(bfloat16, 2, 1000, 4), few = TENSOR(bfloat16, 2, 8, 4), cos = TENSOR(bfloat16, 9, 2);
  fl_value sin = TENSOR(bfloat16, 9, 2), wide = TENSOR(float32, 9, 2), ids = TENSOR(int64, 2);
  const fl_value none = fl_none(), no = fl_bool(false), yes = fl_bool(true), zero = fl_int(0);
  TAKEN("rotary_embedding", few, none, cos, sin, ids, no, zero, yes, few, none);
  TAKEN("rotary_embedding", q, q, cos, sin, ids, no, zero, no, q, q);
  REFUSED("rotary_embedding", "fewer than 1000 heads", q, none, cos, sin, ids, no, zero, no, q, none);
  REFUSED("rotary_embedding", "element type of 'query'", few, none, wide, wide, ids, no, zero, no, few, none);
  REFUSED("rotary_embedding", "fewer than 896", TENSOR(bfloat16, 2, 1, 896), none, TENSOR(bfloat16, 9, 448),
          TENSOR(bfloat16, 9, 448), ids, no, zero, no, TENSOR(bfloat16, 2, 1, 896), none);
  made[5]->tensor.strides = (int64_t[]){2};
  REFUSED("rotary_embedding", "'position_ids' is not compact", few, none, cos, sin, ids, no, zero, no, few, none);
  fl_value x = TENSOR(float16, 2, 8, 4), table = TENSOR(float16, 2, 2);
  TAKEN("apply_rotary_emb", x, table, table, yes, no, TENSOR(float16, 2, 8, 4));
  REFUSED("apply_rotary_emb", "computes in the element type", x, table, table, yes, yes, TENSOR(float16, 2, 8, 4));
}
END_TEST

START_TEST(quantisation_on_950_takes_whole_groups) {
  static const int64_t token[] = {1, -1}, of_16[] = {1, 16}, of_7[] = {1, 7};
  fl_value x = TENSOR(float16, 3, 32), q = TENSOR(float8, 3, 32), scale = TENSOR(float32, 3, 1);
  fl_value groups = TENSOR(float32, 3, 2), parts = TENSOR(float32, 3, 5), gapped = GAPPED(float8, 3, 32);
  const fl_value none = fl_none(), no = fl_bool(false), zero = fl_int(0);
  npu_control.set("soc", "Ascend950PR_9599");
  TAKEN("quant_fp8", x, none, none, fl_ints(token, 2), no, zero, q, scale);
  TAKEN("quant_fp8", x, none, none, fl_ints(of_16, 2), no, zero, q, groups);
  REFUSED("quant_fp8", "power of two", x, none, none, fl_ints(of_16, 2), fl_bool(true), zero, q, groups);
  REFUSED("quant_fp8", "not whole", x, none, none, fl_ints(of_7, 2), no, zero, q, parts);
  REFUSED("quant_fp8", "compact", x, none, none, fl_ints(token, 2), no, zero, gapped, scale);
}
END_TEST

START_TEST(experts_refuse_maps_codes_and_routing_that_operators_lack) {
  fl_value x = TENSOR(float16, 2, 16), w13 = TENSOR(float16, 4, 16, 16), w2 = TENSOR(float16, 4, 16, 8);
  fl_value weights = TENSOR(float32, 2, 2), ids = TENSOR(int32, 2, 2), map = TENSOR(int32, 4);
  fl_value out = TENSOR(float16, 2, 16), logits = TENSOR(float32, 2, 4), half_logits = TENSOR(float16, 2, 4);
  const fl_value none = fl_none(), no = fl_bool(false), yes = fl_bool(true), one = fl_int(1), two = fl_int(2);
  const fl_value silu = fl_string("silu"), softmax = fl_string("softmax"), factor = fl_float(1);
  const fl_value block = fl_ints((int64_t[]){128, 128}, 2), scale = TENSOR(float32, 4);
  TAKEN("unquantized_fused_moe", x, w13, w2, weights, ids, fl_string("gelu_tanh"), no, none, none, none, out);
  REFUSED("unquantized_fused_moe", "a map leaves out", x, w13, w2, weights, ids, silu, no, map, none, none, out);
  TAKEN("fused_moe", x, w13, w2, logits, two, yes, no, one, one, softmax, factor, none, silu, no, none, none, none,
        none, none, block, out);
  TAKEN("fused_moe", x, w13, w2, logits, two, yes, yes, one, one, fl_string("sigmoid"), fl_float(2.5), none, silu, no,
        none, none, none, none, none, block, out);
  REFUSED("fused_moe", "does not round scores to 16 bits", x, w13, w2, half_logits, two, yes, no, one, one,
          fl_string("sigmoid"), factor, none, silu, no, none, none, none, none, none, block, out);
  TAKEN("modular_fused_moe", x, w13, w2, weights, ids, silu, no, none, none, none, none, none, block, out);
  REFUSED("modular_fused_moe", "weights are codes", x, TENSOR(int8, 4, 16, 16), w2, weights, ids, silu, no, none, none,
          none, scale, none, block, out);
  REFUSED("fused_moe", "weights are codes", x, w13, TENSOR(float8, 4, 16, 8), logits, two, yes, no, one, one, softmax,
          factor, none, silu, no, none, none, none, none, scale, block, out);
  TAKEN("grouped_topk", logits, two, yes, one, one, softmax, factor, none, weights, ids);
  REFUSED("grouped_topk", "always renormalises", logits, two, no, one, one, fl_string("sigmoid"), factor, none, weights,
          ids);
  REFUSED("grouped_topk", "groups of more than 2", logits, two, yes, two, one, softmax, factor, none, weights, ids);
  REFUSED("grouped_topk", "does not round scores", half_logits, two, yes, one, one, softmax, factor, TENSOR(float32, 4),
          weights, ids);
}
END_TEST

START_TEST(convolutions_and_attention_refuse_sizes) {
  static const int64_t one[] = {1, 1}, zero[] = {0, 0}, far[] = {256, 0};
  fl_value x = TENSOR(float16, 1, 4, 8, 8), w = TENSOR(float16, 4, 4, 1, 1), out = TENSOR(float16, 1, 4, 8, 8);
  fl_value padded = TENSOR(float16, 1, 4, 520, 8), q = TENSOR(float16, 1, 4, 2, 24),
           even = TENSOR(float16, 1, 4, 2, 32);
  const fl_value none = fl_none();
  TAKEN("conv2d", x, w, none, fl_ints(one, 2), fl_ints(zero, 2), fl_ints(one, 2), fl_int(1), out);
  REFUSED("conv2d", "padding and dilation of up to 255", x, w, none, fl_ints(one, 2), fl_ints(far, 2), fl_ints(one, 2),
          fl_int(1), padded);
  TAKEN("mm_encoder_attn", even, even, even, none, none, none, even);
  REFUSED("mm_encoder_attn", "a multiple of 16", q, q, q, none, none, none, q);
  REFUSED("mm_encoder_attn", "'cu_seqlens' on the host", even, even, even, none, TENSOR(int32, 3), none, even);
}
END_TEST

START_TEST(int8_refuses_zero_points_and_rows_that_operators_do_not_compute) {
  fl_value x = TENSOR(float16, 3, 40), q = TENSOR(int8, 3, 40), scales = TENSOR(float32, 3, 1);
  fl_value wide = TENSOR(float32, 3, 40), scale = TENSOR(float32, 1), azps = TENSOR(int32, 3, 1);
  const fl_value none = fl_none(), yes = fl_bool(true), no = fl_bool(false);
  npu_control.set("soc", _i ? "Ascend310P3" : "Ascend910B3");
  assert_taken_or_refused("scaled_int8_quant", (fl_value[]){x, none, none, yes, q, scales, none}, 7,
                          _i ? "a multiple of 32 elements" : NULL);
  assert_taken_or_refused("scaled_int8_quant", (fl_value[]){wide, scale, none, yes, q, scale, none}, 7,
                          _i ? "has no reciprocal" : NULL);
  REFUSED("scaled_int8_quant", "float16 and bfloat16 only", wide, none, none, yes, q, scales, none);
  REFUSED("scaled_int8_quant", "rounds a zero point", x, none, none, no, q, scales, azps);
  REFUSED("scaled_int8_quant", "not compact", x, none, none, yes, GAPPED(int8, 3, 40), scales, none);
}
END_TEST

START_TEST(quantised_norms_refuse_codes_of_float8_and_gaps) {
  fl_value x = TENSOR(float16, 3, 40), weight = TENSOR(float16, 40), q = TENSOR(int8, 3, 40),
           scales = TENSOR(float32, 3, 1);
  const fl_value none = fl_none(), epsilon = fl_float(1e-6), int8_codes = fl_string("int8");
  TAKEN("rms_norm_dynamic_per_token_quant", x, weight, epsilon, int8_codes, none, none, q, scales);
  REFUSED("rms_norm_dynamic_per_token_quant", "float8_e4m3fn", x, weight, epsilon, fl_string("float8_e4m3fn"), none,
          none, TENSOR(float8, 3, 40), scales);
  REFUSED("rms_norm_dynamic_per_token_quant", "not compact", x, weight, epsilon, int8_codes, none,
          GAPPED(float16, 3, 40), q, scales);
}
END_TEST

START_TEST(products_of_int8_refuse_blocks_zero_points_and_float32) {
  static const int64_t block[] = {16, 16};
  fl_value x = TENSOR(int8, 3, 32), weight = TENSOR(int8, 48, 32), out = TENSOR(bfloat16, 3, 48),
           one = TENSOR(float32, 1);
  fl_value tokens = TENSOR(float32, 3, 1), channels = TENSOR(float32, 48), groups = TENSOR(float32, 3, 2);
  fl_value blocks = TENSOR(float32, 3, 2), azp = TENSOR(int32, 1), wide = TENSOR(float32, 3, 48);
  const fl_value none = fl_none(), type = fl_string("bfloat16"), size = fl_ints(block, 2);
  TAKEN("scaled_mm", x, weight, one, channels, none, none, type, size, out);
  TAKEN("scaled_mm", x, weight, tokens, one, none, none, type, size, out);
  REFUSED("scaled_mm", "no scales of blocks", x, weight, groups, blocks, none, none, type, size, out);
  REFUSED("scaled_mm", "no zero points", x, weight, one, one, none, azp, type, size, out);
  REFUSED("scaled_mm", "float16 and bfloat16", x, weight, one, one, none, none, fl_string("float32"), size, wide);
  REFUSED("scaled_mm", "compact", GAPPED(int8, 3, 32), weight, one, one, none, none, type, size, out);
}
END_TEST

START_TEST(caches_refuse_float8_gaps_and_more_tokens_than_rows) {
  fl_value key = TENSOR(float16, 3, 2, 16), cache = TENSOR(float16, 2, 2, 2, 16), slots = TENSOR(int64, 3);
  fl_value gapped = GAPPED(float16, 2, 2, 2, 16), narrow = TENSOR(float8, 2, 2, 2, 16), scale = TENSOR(float32, 1);
  fl_value many = TENSOR(float16, 5, 2, 16), many_slots = TENSOR(int32, 5);
  fl_value kv_c = TENSOR(bfloat16, 3, 16), k_pe = TENSOR(bfloat16, 3, 1, 8), latent = TENSOR(bfloat16, 2, 2, 24);
  const fl_value none = fl_none();
  TAKEN("reshape_and_cache", key, key, cache, cache, slots, none, none);
  REFUSED("reshape_and_cache", "no float8", key, key, narrow, narrow, slots, scale, scale);
  REFUSED("reshape_and_cache", "compact caches only", key, key, cache, gapped, slots, none, none);
  REFUSED("reshape_and_cache", "no more tokens than the cache has rows", many, many, cache, cache, many_slots, none,
          none);
  TAKEN("concat_and_cache_mla", kv_c, k_pe, latent, slots);
  REFUSED("concat_and_cache_mla", "compact caches only", kv_c, k_pe, GAPPED(bfloat16, 2, 2, 24), slots);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, numbers_that_would_be_rounded_to_16_bits_are_refused);
  tcase_add_test(tests, tensors_with_gaps_are_refused_where_operators_want_none);
  tcase_add_test(tests, norms_refuse_what_operators_lack);
  tcase_add_loop_test(tests, chips_refuse_what_they_lack, 0, 3);
  tcase_add_test(tests, rotary_embeddings_refuse_other_tables_and_too_many_heads);
  tcase_add_test(tests, quantisation_on_950_takes_whole_groups);
  tcase_add_test(tests, experts_refuse_maps_codes_and_routing_that_operators_lack);
  tcase_add_loop_test(tests, int8_refuses_zero_points_and_rows_that_operators_do_not_compute, 0, 2);
  tcase_add_test(tests, quantised_norms_refuse_codes_of_float8_and_gaps);
  tcase_add_test(tests, products_of_int8_refuse_blocks_zero_points_and_float32);
  tcase_add_test(tests, caches_refuse_float8_gaps_and_more_tokens_than_rows);
  tcase_add_test(tests, convolutions_and_attention_refuse_sizes);
}

int main(void) {
  return run_suite("ascend_refusals", add_tests, 30);
}
