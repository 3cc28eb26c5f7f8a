/*
 * Row kernels and attention of the CPU plugin in ranges: a registry of this suite's own offers a pool that cuts loops
 * in odd places, runs the pieces in odd orders and some of them in another thread. The results have the same bits as in
 * one go.
 */
#include "tests/op_case.h"

#include <pthread.h>
#include <stdlib.h>

static bool cuts;
static int ranges;

typedef struct piece {
  fl_range_fn body;
  void *user;
  int64_t first, end;
  fl_status status;
} piece;

static void *run_piece(void *user) {
  piece *p = user;
  p->status = p->body(p->user, p->first, p->end);
  return NULL;
}

/* From the last range to the first, of one, two, three, four, one … grains; every third in a thread of its own. */
static fl_status odd_parallel_for(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  ck_assert_int_ge(grain, 1);
  if (!cuts || n <= grain)
    return n > 0 ? body(user, 0, n) : FL_OK;
  int64_t end = n;
  for (int i = 0; end > 0; i++) {
    int64_t first = (end - 1) / grain * grain - i % 4 * grain;
    piece p = {body, user, first < 0 ? 0 : first, end, FL_OK};
    pthread_t thread;
    if (i % 3 == 2) {
      ck_assert_int_eq(pthread_create(&thread, NULL, run_piece, &p), 0);
      pthread_join(thread, NULL);
    } else {
      run_piece(&p);
    }
    if (p.status)
      return p.status;
    end = p.first;
    ranges++;
  }
  return FL_OK;
}

static void load_with_odd_pool(void) {
  registry_parallel_for = odd_parallel_for;
  load_plugin();
}

/* Enough rows each for several ranges, and row sizes that are no multiple of a vector's. */
static const char *const calls[] = {
    "silu_and_mul x=f3x67x2002",
    "mul_and_silu x=f200x2002",
    "gelu_and_mul x=f200x2002 approximate=none",
    "gelu_and_mul x=f200x2002 approximate=tanh",
    "gelu_and_mul_sparse x=f200x2002 activation_sparsity=0.9 approximate=tanh",
    "swigluoai_and_mul x=f200x2002",
    "situ_and_mul x=f200x2002 beta=2 linear_beta=3",
    "gelu x=f2x101x1003",
    "gelu_new x=f201x1003",
    "xielu x=f201x1003 alpha_p=f1 alpha_n=f1",
    "rms_norm x=f2x401x1003 weight=f1003",
    "rms_norm x=f801x1003 residual=f801x1003 weight=w1003",
    "gemma_rms_norm x=f801x1003 weight=f1003",
    "rms_norm_gated x=f401x1006 z=f401x1006 weight=f1006 group_size=503",
    "layer_norm x=f801x1003 weight=f1003 bias=f1003",
    "nemotron_layer_norm x=f801x1003 residual=f801x1003 weight=f1003 bias=f1003",
    "add x=f3x801x1003 y=f3x801x1003",
    "apply_penalties logits=w201x1003 prompt_token_ids=l201x30%1003 output_token_ids=i201x40%1003 "
    "presence_penalties=w201 frequency_penalties=w201 repetition_penalties=w201",
    "apply_min_p logits=w201x1003 min_p=w201",
    "apply_top_k_top_p logits=w201x1003 top_k=l201 top_p=w201",
    "gumbel_sample logits=w201x1003 uniform=w201x1003 temperature=w201",
    "gather_logprobs logits=f201x1003 token_ids=i201%1003 num_logprobs=20",
    "rotary_embedding query=f301x12x40 key=f301x2x40 cos=f301x20 sin=f301x20 position_ids=l301%301",
    "apply_rotary_emb x=f3x301x11x40 cos=f301x20 sin=f301x20",
    "quant_fp8 x=f801x1003 group_shape=1,-1",
    "quant_fp8 x=f801x1003 group_shape=-1,-1",
    "quant_fp8 x=f801x1024 group_shape=1,128",
    "moe_sum x=f301x5x1003",
    "topk_softmax gating_output=f4001x61 topk=3",
    "vocab_parallel_embedding input_ids=i701%300 weight=f300x1003",
    "vocab_parallel_embedding input_ids=i7x1001%300 weight=f300x64",
    "vocab_parallel_embedding input_ids=i7001%300 weight=f200x64 org_vocab_end=200",
    "mm_encoder_attn query=f2x801x4x20 key=f2x801x2x20 value=f2x801x2x20",
    "mla_prefill query=f801x3x24 kv_c=f801x32 k_pe=f801x8 kv_b_proj=f96x32 v_head_dim=16 scale=0.3",
    "mla_decode query=f301x4x72 kv_cache=f64x16x72 block_table=i301x20%64 seq_lens=i301%301 scale=0.3 kv_lora_rank=56",
    "reshape_and_cache key=f801x5x72 value=f801x5x72 key_cache=f40x16x5x72 value_cache=f40x16x5x72 "
    "slot_mapping=i801%600",
    "merge_attn_states prefix_output=f301x7x40 prefix_lse=w7x301 suffix_output=f301x7x40 suffix_lse=w7x301",
    "causal_conv1d x=f203x1003 weight=f203x4 bias=f203 conv_state=f1x203x3",
    "causal_conv1d x=f4003x17 weight=w4003x3 conv_state=f17x4003x2 query_start_loc=i17 has_initial_state=b16%2",
    ("selective_scan u=f203x300 delta=f203x300 A=f203x5 B=f1x5x300 C=f1x5x300 D=f203 z=f203x300 delta_bias=f203 "
     "delta_softplus=true ssm_state=f1x203x5"),
    "mamba_chunk_scan x=f300x5x40 dt=f300x5 A=f5 B=f300x1x7 C=f300x1x7 D=f5 dt_softplus=true ssm_state=f1x5x40x7",
};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

START_TEST(a_split_over_threads_does_not_change_a_bit) {
  DLDataType dtype = floats[_i % 3];
  op_case *whole = op_case_make(calls[_i / 3], dtype, 3), *split = op_case_make(calls[_i / 3], dtype, 3);
  cuts = false;
  op_case_run(whole, "default.flagos");
  cuts = true;
  op_case_run(split, "default.flagos");
  ck_assert_msg(ranges >= 2, "%s: %d ranges, expected several", calls[_i / 3], ranges);
  for (uint32_t i = 0; i < whole->schema->n_arguments + whole->schema->n_results; i++) { /* states are arguments */
    if (!whole->tensors[i])
      continue;
    ck_assert_uint_eq(whole->tensors[i]->bytes, split->tensors[i]->bytes);
    ck_assert_msg(!memcmp(whole->tensors[i]->tensor.data, split->tensors[i]->tensor.data, whole->tensors[i]->bytes),
                  "%s: '%s' differs", calls[_i / 3], whole->schema->values[i].name);
  }
  op_case_free(whole);
  op_case_free(split);
}
END_TEST

/* Results of 36 MB, in float32. */
static const char *const large[] = {
    "silu_and_mul x=f4400x4128",
    "gelu x=f4400x2064",
    "rms_norm x=f4400x2064 weight=f2064",
    "rms_norm x=f70400x129 weight=f129", /* rows shorter than a page */
    "fused_add_rms_norm x=f4400x2064 x_residual=f4400x2064 weight=f2064 epsilon=1e-6",
    "rms_norm_gated x=f4400x2048 z=f4400x2048 weight=f2048 group_size=1024",
    "rms_norm_gated x=f4400x2064 z=f4400x2064 weight=f2064",
    "moe_sum x=f4400x2x2064",
    "apply_rotary_emb x=f4400x16x128 cos=f4400x64 sin=f4400x64",
    "vocab_parallel_embedding input_ids=i44x100%300 weight=f300x2064",
    "vocab_parallel_embedding input_ids=i4400%300 weight=f200x2064 org_vocab_end=200",
};
enum { N_LARGE = sizeof large / sizeof large[0] };

/* Gives each result memory that begins with a line of the caches, or does not. */
static void place_results(op_case *made, size_t offset) {
  const fl_schema *schema = made->schema;
  ck_assert_int_eq(op_case_check(made), FL_OK);
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++) {
    owned *result = made->tensors[i];
    if (!result)
      continue;
    void *memory = aligned_alloc(64, (result->bytes + offset + 63) / 64 * 64);
    ck_assert_ptr_nonnull(memory);
    free(result->tensor.data);
    result->tensor.data = memory;
    result->tensor.byte_offset = offset;
  }
}

/* What most processors' last cache does not hold is written around it where rows begin with lines. */
START_TEST(large_results_are_the_same_wherever_they_lie) {
  op_case *on_lines = op_case_make(large[_i], float32, 0), *elsewhere = op_case_make(large[_i], float32, 0);
  place_results(on_lines, 0);
  place_results(elsewhere, 16);
  op_case_run(on_lines, "default.flagos");
  op_case_run(elsewhere, "default.flagos");
  for (uint32_t i = 0; i < on_lines->schema->n_arguments + on_lines->schema->n_results; i++)
    if (on_lines->tensors[i])
      ck_assert_msg(!memcmp(fl_data(&on_lines->tensors[i]->tensor), fl_data(&elsewhere->tensors[i]->tensor),
                            on_lines->tensors[i]->bytes),
                    "%s: '%s' differs", large[_i], on_lines->schema->values[i].name);
  op_case_free(on_lines);
  op_case_free(elsewhere);
}
END_TEST

/* A NaN with all of its bits set is one bit from a number once it is rounded to fewer. */
START_TEST(a_nan_of_the_angles_stays_one) {
  static const char *const forms[] = {
      "apply_rotary_emb x=f1x2x40 cos=w1x20 sin=w1x20 enable_fp32_compute=true",
      "rotary_embedding query=f1x2x40 key=f1x2x40 cos=w1x20 sin=w1x20 position_ids=l1%1"};
  op_case *made = op_case_make(forms[_i], bfloat16, 0);
  const uint32_t bits = 0x7fffffffu;
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 20; j++)
      memcpy((float *)op_case_tensor(made, i ? "sin" : "cos")->data + j, &bits, sizeof bits);
  op_case_run(made, "default.flagos");
  const uint16_t *out = made->tensors[made->schema->n_arguments]->tensor.data;
  for (int i = 0; i < 2 * 40; i++)
    ck_each((out[i] & 0x7fff) > 0x7f80, "element %d is %x", i, (unsigned)out[i]);
  op_case_free(made);
}
END_TEST

START_TEST(one_token_is_one_range) {
  static const char *const small[] = {
      "silu_and_mul x=f1x22016", "rms_norm x=f1x8192 weight=f8192",
      "rotary_embedding query=f1x32x128 key=f1x8x128 cos=f1x64 sin=f1x64 position_ids=l1%1",
      "vocab_parallel_embedding input_ids=i1%1 weight=f300x8192"};
  op_case *made = op_case_make(small[_i], bfloat16, 0);
  cuts = true;
  op_case_run(made, "default.flagos");
  ck_assert_int_eq(ranges, 0);
  op_case_free(made);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_with_odd_pool, NULL);
  tcase_add_loop_test(tests, a_split_over_threads_does_not_change_a_bit, 0, loop_cases(3 * N_CALLS));
  tcase_add_loop_test(tests, large_results_are_the_same_wherever_they_lie, 0, loop_cases(N_LARGE));
  tcase_add_loop_test(tests, a_nan_of_the_angles_stays_one, 0, 2);
  tcase_add_loop_test(tests, one_token_is_one_range, 0, 4);
}

int main(void) {
  return run_suite("cpu_rows", add_tests, 60);
}
