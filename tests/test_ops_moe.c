/* Mixture of experts: routing by hand, experts against the formula in double precision, edges and bad calls. */
#include "core/support.h"
#include "tests/op_case.h"

#include <math.h>

static void assert_all(op_case *c, const char *name, const double *values, int64_t n, double tolerance) {
  for (int64_t i = 0; i < n; i++)
    ck_each(fabs(op_case_get(c, name, i) - values[i]) <= tolerance, "%s[%d] is %g, expected %g", name, (int)i,
            op_case_get(c, name, i), values[i]);
}

/* ---------------------------------------------------------------------------------------------------------- routing */

START_TEST(grouped_topk_chooses_from_the_best_groups_and_weighs_without_the_bias) {
  /* Groups {0, 1}, {2, 3}, {4, 5}. By best score: {2, 3} and {4, 5}; with the bias, by the two best: {0, 1}, {2, 3}. */
  const double logits[] = {0, 0, 2, -9, 1, -9}, bias[] = {1, 1, 0, 0, -3, -3};
  const double without[] = {2, 4}, with_bias[] = {0, 1};
  op_case *c = op_case_make("grouped_topk gating_output=f1x6 topk=2 renormalize=true num_expert_group=3 topk_group=2 "
                            "scoring_func=sigmoid routed_scaling_factor=2.5 e_score_correction_bias=f6",
                            float32, 0);
  op_case_set_all(c, "gating_output", logits);
  op_case_set_all(c, "e_score_correction_bias", bias);
  op_case_run(c, both[_i]);
  assert_all(c, "topk_ids", with_bias, 2, 0);
  assert_all(c, "topk_weights", (double[]){1.25, 1.25}, 2, 1e-6);
  *op_case_value(c, "e_score_correction_bias") = fl_none();
  op_case_run(c, both[_i]);
  double a = 1 / (1 + exp(-2)), b = 1 / (1 + exp(-1));
  assert_all(c, "topk_ids", without, 2, 0);
  assert_all(c, "topk_weights", (double[]){2.5 * a / (a + b), 2.5 * b / (a + b)}, 2, 1e-6);
  op_case_free(c);
}
END_TEST

#define GROUPED                                                                                                        \
  "grouped_topk gating_output=f3x8 topk=3 renormalize=false num_expert_group=4 topk_group=2 scoring_func=sigmoid"

START_TEST(of_equal_experts_the_lowest_is_chosen) {
  static const char *const calls[] = {"grouped_topk gating_output=f3x8 topk=3 renormalize=false", GROUPED,
                                      "topk_softmax gating_output=f3x8 topk=3"};
  for (size_t i = 0; i < 3; i++) {
    op_case *c = op_case_make(calls[i], floats[_i % 3], 5);
    for (int64_t j = 0; j < 24; j++)
      op_case_set(c, "gating_output", j, 0.5);
    op_case_run(c, both[_i / 3]);
    for (int64_t j = 0; j < 9; j++)
      ck_assert_double_eq(op_case_get(c, "topk_ids", j), (double)(j % 3));
    op_case_free(c);
  }
}
END_TEST

/* Scores in bfloat16: those that a rounding makes equal are a tie. */
START_TEST(O4_grouped_topk_rounds_scores_to_the_type_of_the_logits) {
  op_case *c =
      op_case_make("grouped_topk gating_output=f1x2 topk=1 renormalize=false scoring_func=sigmoid", bfloat16, 0);
  op_case_set_all(c, "gating_output", (double[]){6, 6.03125}); /* 0.99753 and 0.99760: 1 - 2^-8 is nearest */
  op_case_run(c, both[_i]);
  ck_assert_double_eq(op_case_get(c, "topk_ids", 0), 0);
  ck_assert_double_eq(op_case_get(c, "topk_weights", 0), 0.99609375);
  op_case_free(c);
}
END_TEST

START_TEST(topk_softmax_takes_scores_that_are_not_finite_for_0) {
  const double bad[] = {NAN, INFINITY};
  for (size_t i = 0; i < 2; i++) {
    op_case *c = op_case_make("topk_softmax gating_output=f1x4 topk=2 renormalize=true", float32, 0);
    op_case_set(c, "gating_output", 2, bad[i]);
    op_case_run(c, both[_i]);
    assert_all(c, "topk_ids", (double[]){0, 1}, 2, 0);
    assert_all(c, "topk_weights", (double[]){0, 0}, 2, 0);
    op_case_free(c);
  }
}
END_TEST

START_TEST(topk_softmax_weighs_by_probability) {
  op_case *c = op_case_make("topk_softmax gating_output=f1x4 topk=2", float16, 0);
  double sum = exp(0) + exp(1) + exp(3) + exp(2);
  op_case_set_all(c, "gating_output", (double[]){0, 1, 3, 2});
  op_case_run(c, both[_i]);
  assert_all(c, "topk_ids", (double[]){2, 3}, 2, 0);
  assert_all(c, "topk_weights", (double[]){exp(3) / sum, exp(2) / sum}, 2, 1e-6);
  *op_case_value(c, "renormalize") = fl_bool(true);
  op_case_run(c, both[_i]);
  assert_all(c, "topk_weights", (double[]){exp(3) / (exp(3) + exp(2)), exp(2) / (exp(3) + exp(2))}, 2, 1e-6);
  op_case_free(c);
}
END_TEST

START_TEST(moe_align_fills_each_experts_blocks_and_marks_the_rest) {
  /* Of 6 places expert 1 has 3 and expert 3 has 3, blocks of 2: [1 1 | 1 -][3 3 | 3 -]. */
  op_case *c = op_case_make("moe_align_block_size topk_ids=l3x2 num_experts=4 block_size=2", float32, 0);
  const double ids[] = {3, 1, 1, 3, 3, 1};
  op_case_set_all(c, "topk_ids", ids);
  op_case_run(c, both[_i]);
  ck_assert_int_eq(op_case_tensor(c, "sorted_token_ids")->shape[0], 6 + 4);
  ck_assert_int_eq(op_case_tensor(c, "expert_ids")->shape[0], 5);
  assert_all(c, "sorted_token_ids", (double[]){1, 2, 5, 6, 0, 3, 4, 6, 6, 6}, 10, 0);
  assert_all(c, "expert_ids", (double[]){1, 1, 3, 3, -1}, 5, 0);
  assert_all(c, "num_tokens_post_pad", (double[]){8}, 1, 0);
  op_case_free(c);
}
END_TEST

/* 1 + 2^-8 + 2^-8 in bfloat16: added up in float32 it is 1 + 2^-7, step by step it would stay 1. */
START_TEST(O4_moe_sum_rounds_once) {
  op_case *c = op_case_make("moe_sum x=f2x3x300", bfloat16, 7);
  for (int64_t i = 0; i < 2 * 3 * 300; i++)
    op_case_set(c, "x", i, i / 300 % 3 ? 0.00390625 : 1);
  op_case_run(c, both[_i]);
  for (int64_t i = 0; i < 600; i++)
    ck_assert_double_eq(op_case_get(c, "out", i), 1.0078125);
  op_case_free(c);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- experts */

#define EXPERTS "x=f70x24 w13=f4x36x24 w2=f4x24x18 topk_weights=w70x2 topk_ids=i70x2%4 w13_bias=f4x36 w2_bias=f4x24"

static double activated(const char *name, const double *gate_up, int64_t inner, int64_t i) {
  double gate = gate_up[i], up = gate_up[inner + i];
  if (!strcmp(name, "silu"))
    return gate / (1 + exp(-gate)) * up;
  if (!strcmp(name, "gelu"))
    return gate * 0.5 * (1 + erf(gate / sqrt(2))) * up;
  if (!strcmp(name, "gelu_tanh"))
    return gate * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate))) * up;
  if (!strcmp(name, "swiglustep"))
    return fmin(gate / (1 + exp(-gate)), 7) * fmax(-7, fmin(up, 7));
  gate = fmin(gate_up[2 * i], 7);
  return (fmax(-7, fmin(gate_up[2 * i + 1], 7)) + 1) * gate / (1 + exp(-1.702 * gate));
}

enum { HIDDEN = 24, INNER = 18 };

/* Adds `factor` times what expert `e` makes of token `m` times `weight`. */
static void add_expert(op_case *c, const char *activation, int64_t m, int64_t e, double weight, double factor,
                       double *sums) {
  double gate_up[2 * INNER];
  for (int64_t i = 0; i < 2 * INNER; i++) {
    gate_up[i] = op_case_get(c, "w13_bias", e * 2 * INNER + i);
    for (int64_t k = 0; k < HIDDEN; k++)
      gate_up[i] +=
          weight * op_case_get(c, "x", m * HIDDEN + k) * op_case_get(c, "w13", (e * 2 * INNER + i) * HIDDEN + k);
  }
  for (int64_t column = 0; column < HIDDEN; column++) {
    double sum = op_case_get(c, "w2_bias", e * HIDDEN + column);
    for (int64_t i = 0; i < INNER; i++)
      sum += op_case_get(c, "w2", (e * HIDDEN + column) * INNER + i) * activated(activation, gate_up, INNER, i);
    sums[column] += factor * sum;
  }
}

static void check_experts(op_case *c, const char *id, const char *activation, int64_t topk, bool on_input) {
  const double tolerance[] = {1e-5, 2e-2, 1e-1};
  DLDataType dtype = op_case_tensor(c, "x")->dtype;
  double allowed = tolerance[dtype.bits == 32 ? 0 : dtype.code == kDLFloat ? 1 : 2];
  bool mapped = op_case_value(c, "expert_map")->type == FL_TENSOR;
  op_case_run(c, id);
  for (int64_t m = 0; m < 70; m += 23) {
    double sums[HIDDEN] = {0};
    for (int64_t j = 0; j < topk; j++) {
      double weight = op_case_get(c, "topk_weights", m * topk + j);
      int64_t e = (int64_t)op_case_get(c, "topk_ids", m * topk + j);
      e = mapped ? (int64_t)op_case_get(c, "expert_map", e) : e;
      if (e >= 0)
        add_expert(c, activation, m, e, on_input ? weight : 1, on_input ? 1 : weight, sums);
    }
    for (int64_t column = 0; column < HIDDEN; column++) {
      double got = op_case_get(c, "out", m * HIDDEN + column), sum = sums[column];
      ck_each(fabs(got - sum) <= allowed * fmax(1, fabs(sum)), "%s, %s: out[%d, %d] is %g, expected %g", id, activation,
              (int)m, (int)column, got, sum);
    }
  }
}

START_TEST(experts_compute_the_formula_with_each_activation_and_any_strides) {
  static const char *const activations[] = {"silu", "gelu", "gelu_tanh", "swigluoai", "swiglustep"};
  for (int strided = 0; strided < 2; strided++)
    for (size_t i = 0; i < 5; i++) {
      op_case *c = op_case_make("unquantized_fused_moe " EXPERTS, floats[_i % 3], strided ? 3 : 0);
      *op_case_value(c, "activation") = fl_string(activations[i]);
      check_experts(c, both[_i / 3], activations[i], 2, false);
      op_case_free(c);
    }
}
END_TEST

START_TEST(experts_that_are_not_here_add_nothing) {
  op_case *c = op_case_make("modular_fused_moe " EXPERTS " expert_map=l6", float32, 0);
  op_case_set_all(c, "expert_map", (double[]){-1, 3, -1, 0, 1, 1});
  for (int64_t i = 0; i < 140; i++)
    op_case_set(c, "topk_ids", i, (double)(i % 3 ? i % 6 : 0));
  check_experts(c, both[_i], "silu", 2, false);
  for (int64_t i = 0; i < 6; i++)
    op_case_set(c, "expert_map", i, -1);
  op_case_run(c, both[_i]);
  for (int64_t i = 0; i < 70 * 24; i++)
    ck_each(op_case_get(c, "out", i) == 0, "out[%d] is %g", (int)i, op_case_get(c, "out", i));
  op_case_free(c);
}
END_TEST

START_TEST(the_routers_weight_may_be_applied_to_the_input) {
  op_case *c = op_case_make("unquantized_fused_moe x=f70x24 w13=f4x36x24 w2=f4x24x18 topk_weights=w70x1 "
                            "topk_ids=i70x1%4 w13_bias=f4x36 w2_bias=f4x24 apply_router_weight_on_input=true",
                            float32, 0);
  check_experts(c, both[_i], "silu", 1, true);
  op_case_free(c);
}
END_TEST

#define CODED "modular_fused_moe x=f70x64 topk_weights=w70x2 topk_ids=i70x2%4 w13_bias=w4x64 w2_bias=f4x64 "

/* The kinds of codes; scales are for so many rows and columns each, 0: all. */
static const struct {
  const char *call;
  int64_t rows, columns;
} coded[] = {
    {CODED "w13=c4x64x64%97 w2=c4x64x32%89 w13_scale=w4 w2_scale=w4", 0, 0},
    {CODED "w13=e4x64x64%17 w2=e4x64x32%13 w13_scale=w4x64 w2_scale=w4x64", 1, 0},
    {CODED "w13=c4x64x64%97 w2=c4x64x32%89 w13_scale=w4x64x1 w2_scale=w4x64x1", 1, 0},
    {CODED "w13=e4x64x64%17 w2=e4x64x32%13 w13_scale=w4x3x2 w2_scale=w4x3x1 block_size=24,40", 24, 40},
    {CODED "w13=u4x64x32%251 w2=u4x64x16%241 w13_scale=u4x64x2%5 w2_scale=u4x64x1%3", 1, 32},
    {CODED "w13=f4x64x64 w2=e4x64x32%13 w2_scale=w4x64", 1, 0}, /* one of the two */
};
enum { N_CODED = sizeof coded / sizeof coded[0] };

/* Scales that keep values small. */
static void set_scales(op_case *c, const char *name) {
  const fl_value *given = op_case_value(c, name);
  for (int64_t i = 0; given->type == FL_TENSOR && i < count(given->v.tensor); i++)
    op_case_set(c, name, i,
                given->v.tensor->dtype.code == kDLUInt ? 120 + (double)(i % 4) : 0.001 * (double)(i % 7 + 1));
}

/* What the code at [e, row, column] of an expert's weights stands for. */
static double decoded(op_case *c, const char *name, const char *scale, size_t kind, int64_t e, int64_t row,
                      int64_t column) {
  static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const DLTensor *codes = op_case_tensor(c, name);
  int64_t k = codes->shape[2], at = (e * codes->shape[1] + row) * k + column;
  if (op_case_value(c, scale)->type == FL_NONE)
    return op_case_get(c, name, at);
  const DLTensor *scales = op_case_tensor(c, scale);
  int64_t n = coded[kind].rows ? (codes->shape[1] + coded[kind].rows - 1) / coded[kind].rows : 1;
  int64_t each = count(scales) / scales->shape[0] / n;
  double by = op_case_get(c, scale,
                          (e * n + (coded[kind].rows ? row / coded[kind].rows : 0)) * each +
                              (coded[kind].columns ? column / coded[kind].columns : 0));
  if (codes->dtype.code != kDLUInt)
    return op_case_get(c, name, at) * by;
  int both_codes = (int)op_case_get(c, name, (e * codes->shape[1] + row) * k + column / 2);
  int code = column % 2 ? both_codes >> 4 : both_codes & 15;
  return (code & 8 ? -1 : 1) * values[code & 7] * exp2(by - 127);
}

static void decode_into(op_case *plain, op_case *c, const char *name, const char *scale, size_t kind) {
  const DLTensor *to = op_case_tensor(plain, name);
  for (int64_t i = 0; i < count(to); i++)
    op_case_set(plain, name, i,
                decoded(c, name, scale, kind, i / to->shape[2] / to->shape[1], i / to->shape[2] % to->shape[1],
                        i % to->shape[2]));
}

/* A few tokens an expert, and many, are multiplied otherwise. */
START_TEST(weights_that_are_codes_count_as_what_they_stand_for) {
  size_t kind = (size_t)_i % N_CODED;
  for (int strided = 0; strided < 2; strided++)
    for (int few = 0; few < 2; few++) {
      op_case *c = op_case_make(coded[kind].call, float32, strided ? 3 : 0);
      op_case *plain = op_case_make(CODED "w13=f4x64x64 w2=f4x64x32", float32, 0);
      set_scales(c, "w13_scale");
      set_scales(c, "w2_scale");
      decode_into(plain, c, "w13", "w13_scale", kind);
      decode_into(plain, c, "w2", "w2_scale", kind);
      for (int64_t i = 0; few && i < 140; i++) { /* all tokens but two go to expert 0 */
        double expert = i < 4 ? (double)(i % 2 + 1) : i % 2 ? 3 : 0;
        op_case_set(c, "topk_ids", i, expert);
        op_case_set(plain, "topk_ids", i, expert);
      }
      op_case_run(c, both[_i / N_CODED]);
      op_case_run(plain, "reference.c");
      double largest = 0;
      for (int64_t i = 0; i < 70 * 64; i++)
        largest = fmax(largest, fabs(op_case_get(plain, "out", i)));
      ck_assert_double_gt(largest, 0.01);
      for (int64_t i = 0; i < 70 * 64; i++)
        ck_each(fabs(op_case_get(c, "out", i) - op_case_get(plain, "out", i)) <= 2e-5 * largest,
                "out[%d] is %g, expected %g", (int)i, op_case_get(c, "out", i), op_case_get(plain, "out", i));
      op_case_free(c);
      op_case_free(plain);
    }
}
END_TEST

/* A scale of 255 makes its row NaN, and no other. */
START_TEST(a_scale_of_mxfp4_that_is_nan_makes_its_row_nan) {
  op_case *c = op_case_make(coded[4].call, bfloat16, 0);
  set_scales(c, "w13_scale");
  set_scales(c, "w2_scale");
  op_case_set(c, "w2_scale", 2 * 64 + 7, 255);
  op_case_run(c, both[_i]);
  for (int64_t m = 0; m < 70; m++)
    for (int64_t column = 0; column < 64; column++) {
      bool uses = op_case_get(c, "topk_ids", 2 * m) == 2 || op_case_get(c, "topk_ids", 2 * m + 1) == 2;
      ck_each(isnan(op_case_get(c, "out", m * 64 + column)) == (uses && column == 7), "out[%d, %d] is %g", (int)m,
              (int)column, op_case_get(c, "out", m * 64 + column));
    }
  op_case_free(c);
}
END_TEST

static void assert_same(op_case *a, op_case *b, double tolerance) {
  for (int64_t i = 0; i < count(op_case_tensor(a, "out")); i++)
    ck_each(fabs(op_case_get(a, "out", i) - op_case_get(b, "out", i)) <= tolerance, "out[%d] is %g, expected %g",
            (int)i, op_case_get(a, "out", i), op_case_get(b, "out", i));
}

/* More tokens than are sorted at a time; what the others compute too, from the same routing. */
START_TEST(fused_moe_is_its_router_and_its_experts) {
  static const char *const routers[] = {
      "topk_softmax gating_output=f600x4 topk=2 renormalize=true",
      "grouped_topk gating_output=f600x4 topk=2 renormalize=true num_expert_group=2 topk_group=1 scoring_func=sigmoid "
      "routed_scaling_factor=1.5 e_score_correction_bias=w4"};
  static const char *const fused[] = {
      "fused_moe x=f600x16 w13=f4x20x16 w2=f4x16x10 router_logits=f600x4 top_k=2",
      "fused_moe x=f600x16 w13=f4x20x16 w2=f4x16x10 router_logits=f600x4 top_k=2 use_grouped_topk=true "
      "num_expert_group=2 topk_group=1 scoring_func=sigmoid routed_scaling_factor=1.5 e_score_correction_bias=w4"};
  for (size_t i = 0; i < 2; i++) {
    op_case *router = op_case_make(routers[i], float32, 0), *whole = op_case_make(fused[i], float32, 0);
    op_case *experts = op_case_make("transformers_fused_moe x=f600x16 w13=f4x20x16 w2=f4x16x10 topk_ids=i600x2 "
                                    "topk_weights=w600x2",
                                    float32, 0);
    for (int64_t j = 0; j < 2400; j++)
      op_case_set(whole, "router_logits", j, op_case_get(router, "gating_output", j));
    op_case_run(router, both[_i]);
    *op_case_value(experts, "topk_ids") = *op_case_value(router, "topk_ids");
    *op_case_value(experts, "topk_weights") = *op_case_value(router, "topk_weights");
    op_case_run(experts, both[_i]);
    op_case_run(whole, both[_i]);
    assert_same(whole, experts, 1e-12);
    op_case_free(router);
    op_case_free(whole);
    op_case_free(experts);
  }
}
END_TEST

/* Sigmoid, a bias and a factor without groups. */
START_TEST(fused_moe_routes_by_sigmoid_and_bias_without_groups) {
  op_case *c = op_case_make("fused_moe x=f1x2 w13=f3x2x2 w2=f3x2x1 router_logits=w1x3 top_k=1 renormalize=false "
                            "scoring_func=sigmoid routed_scaling_factor=2 e_score_correction_bias=w3",
                            float32, 0);
  op_case *e =
      op_case_make("transformers_fused_moe x=f1x2 w13=f3x2x2 w2=f3x2x1 topk_ids=i1x1 topk_weights=w1x1", float32, 0);
  op_case_set_all(c, "router_logits", (double[]){3, 0, 1});
  op_case_set_all(c, "e_score_correction_bias", (double[]){0, 1, 0}); /* 0.5 + 1 is more than sigmoid(3) */
  op_case_set(e, "topk_ids", 0, 1);
  op_case_set(e, "topk_weights", 0, 1);
  op_case_run(c, both[_i]);
  op_case_run(e, both[_i]);
  assert_same(c, e, 1e-6);
  op_case_free(c);
  op_case_free(e);
}
END_TEST

START_TEST(O2_no_tokens_are_no_work) {
  static const char *const calls[] = {
      "grouped_topk gating_output=f0x8 topk=2 renormalize=true", "topk_softmax gating_output=f3x0x8 topk=2",
      "moe_sum x=f0x2x8", "unquantized_fused_moe x=f0x4 w13=f2x4x4 w2=f2x4x2 topk_weights=w0x2 topk_ids=i0x2",
      "fused_moe x=f0x4 w13=f2x4x4 w2=f2x4x2 router_logits=f0x2 top_k=1"};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    for (int which = 0; which < 2; which++) {
      op_case *c = op_case_make(calls[i], bfloat16, 0);
      op_case_run(c, both[which]);
      op_case_free(c);
    }
  op_case *c = op_case_make("moe_align_block_size topk_ids=i0x2 num_experts=3 block_size=4", float32, 0);
  op_case_run(c, "reference.c");
  assert_all(c, "expert_ids", (double[]){-1, -1, -1}, 3, 0);
  assert_all(c, "num_tokens_post_pad", (double[]){0}, 1, 0);
  op_case_free(c);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- bad calls */

#define ROUTED "unquantized_fused_moe x=f5x8 w13=f3x12x8 w2=f3x8x6 topk_weights=w5x2 "
#define FUSED  "fused_moe x=f5x8 w13=f4x12x8 w2=f4x8x6 "

static const struct {
  const char *call, *message;
} refused[] = {
    {"grouped_topk gating_output=f5x8 topk=0 renormalize=true",
     "grouped_topk: argument 'topk': 0, expected 1 to 8 (the number of experts in 'topk_group' groups)"},
    {"grouped_topk gating_output=f5x8 topk=-1 renormalize=true",
     "grouped_topk: argument 'topk': -1, expected 1 to 8 (the number of experts in 'topk_group' groups)"},
    {"grouped_topk gating_output=f5x8 topk=3 renormalize=true num_expert_group=4",
     "grouped_topk: argument 'topk': 3, expected 1 to 2 (the number of experts in 'topk_group' groups)"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true num_expert_group=3",
     "grouped_topk: argument 'num_expert_group': 3, expected a divisor of 8 (the experts of 'gating_output')"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true num_expert_group=0",
     "grouped_topk: argument 'num_expert_group': 0, expected 1 to 8 (the experts of 'gating_output')"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true num_expert_group=4 topk_group=5",
     "grouped_topk: argument 'topk_group': 5, expected 1 to 4 (argument 'num_expert_group')"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true num_expert_group=8 topk_group=2 "
     "e_score_correction_bias=f8",
     "grouped_topk: argument 'num_expert_group': 8, expected groups of 2 experts or more: with "
     "'e_score_correction_bias' a group is as good as its two best"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true e_score_correction_bias=f7",
     "grouped_topk: argument 'e_score_correction_bias': shape [7], expected [8] (e of 'gating_output')"},
    {"grouped_topk gating_output=f5x8 topk=2 renormalize=true scoring_func=sigmod",
     "grouped_topk: argument 'scoring_func': \"sigmod\", expected \"softmax\" or \"sigmoid\"; did you mean 'sigmoid'?"},
    {"topk_softmax gating_output=f5x8 topk=9",
     "topk_softmax: argument 'topk': 9, expected 1 to 8 (the experts of 'gating_output')"},
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=0 block_size=16",
     "moe_align_block_size: argument 'num_experts': 0, expected 1 to 2147483647 (what int32 can say)"},
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=4 block_size=0",
     "moe_align_block_size: argument 'block_size': 0, expected 1 to 2147483647 (what int32 can say)"},
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=65536 block_size=65536",
     "moe_align_block_size: arguments 'num_experts' and 'block_size': 65536 and 65536, expected fewer than 2^31 "
     "entries in 'sorted_token_ids'"},
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=2147483647 block_size=1",
     "moe_align_block_size: argument 'num_experts': 2147483647 elements of a count for each, expected at most "
     "16777216: "
     "16777216, or 64 for each of the 10 that the tensors explain"},
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=16777216 block_size=64",
     "moe_align_block_size: arguments 'num_experts' and 'block_size': 1056964618 elements of 'sorted_token_ids', "
     "expected at most 16777216: 16777216, or 64 for each of the 10 that the tensors explain"},
    {"moe_sum x=f8", "moe_sum: argument 'x': shape [8], expected [..., k, h]"},
    {ROUTED "topk_ids=i5x3",
     "unquantized_fused_moe: argument 'topk_ids': shape [5, 3], expected [5, 2] (k of 'topk_weights')"},
    {ROUTED "topk_ids=i5x2%3 activation=sliu", "unquantized_fused_moe: argument 'activation': \"sliu\", expected "
                                               "\"silu\", \"gelu\", \"gelu_tanh\", \"swigluoai\" "
                                               "or \"swiglustep\"; did you mean 'silu'?"},
    {ROUTED "topk_ids=i5x2%3 apply_router_weight_on_input=true",
     "unquantized_fused_moe: argument 'apply_router_weight_on_input': true, expected false for 2 experts a token (only "
     "for 1)"},
    {ROUTED "topk_ids=i5x2%3 w2_bias=f3x6",
     "unquantized_fused_moe: argument 'w2_bias': shape [3, 6], expected [3, 8] (h of 'x')"},
    {"transformers_fused_moe x=f5x8 w13=f3x13x8 w2=f3x8x6 topk_ids=i5x2%3 topk_weights=w5x2",
     "transformers_fused_moe: argument 'w13': shape [3, 13, 8], expected [e, 2*i, 8]"},
    {FUSED "router_logits=f5x3 top_k=2", "fused_moe: argument 'router_logits': 3 experts, expected 4 (of 'w13')"},
    {FUSED "router_logits=f5x4 top_k=2 expert_map=i6%4",
     "fused_moe: argument 'router_logits': 4 experts, expected 6 (of 'expert_map')"},
    {FUSED "router_logits=f5x4 top_k=5",
     "fused_moe: argument 'top_k': 5, expected 1 to 4 (the experts of 'router_logits')"},
    {FUSED "router_logits=f5x4 top_k=3 use_grouped_topk=true num_expert_group=2",
     "fused_moe: argument 'top_k': 3, expected 1 to 2 (the number of experts in 'topk_group' groups)"},
    {CODED "w13=c4x64x64 w2=f4x64x32", "modular_fused_moe: argument 'w13_scale': none, expected Tensor while 'w13' is "
                                       "int8, float8_e4m3fn or uint8 (MXFP4)"},
    {CODED "w13=f4x64x64 w2=f4x64x32 w2_scale=w4", "modular_fused_moe: argument 'w2_scale': given, expected none "
                                                   "unless 'w2' is int8, float8_e4m3fn or uint8 (MXFP4)"},
    {CODED "w13=c4x64x64 w2=f4x64x32 w13_scale=u4x64x2",
     "modular_fused_moe: argument 'w13_scale': expected float32 while 'w13' is int8 or float8_e4m3fn"},
    {CODED "w13=u4x64x32 w2=f4x64x32 w13_scale=w4",
     "modular_fused_moe: argument 'w13_scale': expected uint8 while 'w13' is uint8 (MXFP4)"},
    {CODED "w13=e4x64x64 w2=f4x64x32 w13_scale=w4 block_size=24,0",
     "modular_fused_moe: argument 'block_size': [24, 0], expected 1 or more"},
    {CODED "w13=e4x64x64 w2=f4x64x32 w13_scale=w4 block_size=24",
     "modular_fused_moe: argument 'block_size': 1 numbers, expected 2 (rows and columns of an expert's weights)"},
    {FUSED "router_logits=f5x4 top_k=2 w13_scale=w4",
     "fused_moe: argument 'w13_scale': given, expected none unless 'w13' is int8, float8_e4m3fn or uint8 (MXFP4)"},
};

START_TEST(O6_bad_arguments_are_named_with_what_is_expected) {
  op_case_refused(refused[_i].call, refused[_i].message);
}
END_TEST

/* An index that is out of range: of `tensor` the last is `value`. */
static const struct {
  const char *call, *tensor;
  double value;
  const char *message;
} bad_indices[] = {
    {"moe_align_block_size topk_ids=i5x2%4 num_experts=4 block_size=2", "topk_ids", 4,
     "argument 'topk_ids'[4, 1] is 4, expected 0 to 3 (experts)"},
    {"moe_align_block_size topk_ids=l5x2%4 num_experts=4 block_size=2", "topk_ids", -1,
     "argument 'topk_ids'[4, 1] is -1, expected 0 to 3 (experts)"},
    {ROUTED "topk_ids=i5x2%3", "topk_ids", 3, "argument 'topk_ids'[4, 1] is 3, expected 0 to 2 (experts of 'w13')"},
    {ROUTED "topk_ids=l5x2%3", "topk_ids", -1, "argument 'topk_ids'[4, 1] is -1, expected 0 to 2 (experts of 'w13')"},
    {ROUTED "topk_ids=i5x2%3 expert_map=i6%3", "topk_ids", 6,
     "argument 'topk_ids'[4, 1] is 6, expected 0 to 5 (experts of 'expert_map')"},
    {ROUTED "topk_ids=i5x2%3 expert_map=l6%3", "expert_map", 3,
     "argument 'expert_map'[5] is 3, expected -1 to 2 (experts of 'w13'; -1: none here)"},
    {"transformers_fused_moe x=f5x8 w13=f3x12x8 w2=f3x8x6 topk_ids=i5x2%3 topk_weights=w5x2", "topk_ids", 1e9,
     "argument 'topk_ids'[4, 1] is 1000000000, expected 0 to 2 (experts of 'w13')"},
    {FUSED "router_logits=f5x6 top_k=2 expert_map=i6%4", "expert_map", -2,
     "argument 'expert_map'[5] is -2, expected -1 to 3 (experts of 'w13'; -1: none here)"},
};

START_TEST(O6_an_index_out_of_range_is_named_and_nothing_is_written) {
  for (int which = 0; which < 2; which++) {
    op_case *c = op_case_make(bad_indices[_i].call, float32, 0);
    op_case_set(c, bad_indices[_i].tensor, count(op_case_tensor(c, bad_indices[_i].tensor)) - 1, bad_indices[_i].value);
    op_case_refused_by(c, both[which], bad_indices[_i].message);
    op_case_free(c);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, grouped_topk_chooses_from_the_best_groups_and_weighs_without_the_bias, 0, 2);
  tcase_add_loop_test(tests, of_equal_experts_the_lowest_is_chosen, 0, loop_cases(6));
  tcase_add_loop_test(tests, O4_grouped_topk_rounds_scores_to_the_type_of_the_logits, 0, 2);
  tcase_add_loop_test(tests, topk_softmax_takes_scores_that_are_not_finite_for_0, 0, 2);
  tcase_add_loop_test(tests, topk_softmax_weighs_by_probability, 0, 2);
  tcase_add_loop_test(tests, moe_align_fills_each_experts_blocks_and_marks_the_rest, 0, 2);
  tcase_add_loop_test(tests, O4_moe_sum_rounds_once, 0, 2);
  tcase_add_loop_test(tests, experts_compute_the_formula_with_each_activation_and_any_strides, 0, loop_cases(6));
  tcase_add_loop_test(tests, experts_that_are_not_here_add_nothing, 0, 2);
  tcase_add_loop_test(tests, the_routers_weight_may_be_applied_to_the_input, 0, 2);
  tcase_add_loop_test(tests, weights_that_are_codes_count_as_what_they_stand_for, 0, 2 * N_CODED);
  tcase_add_loop_test(tests, a_scale_of_mxfp4_that_is_nan_makes_its_row_nan, 0, 2);
  tcase_add_loop_test(tests, fused_moe_is_its_router_and_its_experts, 0, 2);
  tcase_add_loop_test(tests, fused_moe_routes_by_sigmoid_and_bias_without_groups, 0, 2);
  tcase_add_test(tests, O2_no_tokens_are_no_work);
  tcase_add_loop_test(tests, O6_bad_arguments_are_named_with_what_is_expected, 0, sizeof refused / sizeof refused[0]);
  tcase_add_loop_test(tests, O6_an_index_out_of_range_is_named_and_nothing_is_written, 0,
                      sizeof bad_indices / sizeof bad_indices[0]);
}

int main(void) {
  return run_suite("ops_moe", add_tests, 20);
}
