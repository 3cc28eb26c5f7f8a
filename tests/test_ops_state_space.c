/*
 * State-space models: convolution, scans and mixers against their formulas in double precision, what is left in the
 * states, sequences of all kinds, and bad calls.
 */
#include "core/support.h"
#include "tests/op_case.h"

#include <math.h>

/* The same values in both. */
static void copy_tensor(op_case *to, op_case *from, const char *name) {
  for (int64_t i = 0; i < count(op_case_tensor(to, name)); i++)
    op_case_set(to, name, i, op_case_get(from, name, i));
}

static void assert_near(double got, double expected, double tolerance, const char *what, int64_t i) {
  ck_each(fabs(got - expected) <= tolerance * fmax(1, fabs(expected)), "%s[%d] is %g, expected %g", what, (int)i, got,
          expected);
}

static double tolerance_of(DLDataType dtype) {
  return dtype.bits == 32 ? 2e-5 : dtype.code == kDLFloat ? 2e-3 : 2e-2;
}

static double silu(double v) {
  return v / (1 + exp(-v));
}

static double softplus(double v) {
  return log1p(exp(v));
}

/* ------------------------------------------------------------------------------------------------------- sequences */

/* Six sequences of 300 + 1 + 0 + 2 + 4 + 3 tokens, then 2 tokens of none. The third is empty, the fifth is skipped; the
 * first and the fourth begin from their state. */
enum { TOKENS = 312, SEQUENCES = 6, SLOTS = 7 };
#define BATCH " query_start_loc=i7 cache_indices=l6 has_initial_state=b6"
static const double starts[] = {0, 300, 301, 301, 303, 307, 310}, slots[] = {6, 2, 0, 4, -1, 1};
static const double begins_from_state[] = {1, 0, 0, 1, 1, 0};

static void set_batch(op_case *c) {
  op_case_set_all(c, "query_start_loc", starts);
  op_case_set_all(c, "cache_indices", slots);
  op_case_set_all(c, "has_initial_state", begins_from_state);
}

/* ------------------------------------------------------------------------------------------------------ convolution */

enum { CHANNELS = 5, WIDTH = 4 };

START_TEST(causal_conv1d_keeps_each_sequences_past_in_its_slot) {
  op_case *c = op_case_make("causal_conv1d x=f5x312 weight=f5x4 bias=f5 conv_state=f7x5x3" BATCH, floats[_i % 3],
                            _i / 6 ? 3 : 0);
  double before[SLOTS * CHANNELS * 3], allowed = tolerance_of(floats[_i % 3]);
  bool seen[SLOTS] = {false};
  set_batch(c);
  for (int i = 0; i < SLOTS * CHANNELS * 3; i++)
    before[i] = op_case_get(c, "conv_state", i);
  op_case_run(c, both[_i / 3 % 2]);
  for (int s = 0; s < SEQUENCES; s++) {
    int begin = (int)starts[s], length = (int)starts[s + 1] - begin, slot = (int)slots[s];
    for (int d = 0; d < CHANNELS && slot >= 0 && length; d++) {
      double past[TOKENS + 3];
      seen[slot] = true;
      for (int k = 0; k < 3; k++)
        past[k] = begins_from_state[s] != 0 ? before[(slot * CHANNELS + d) * 3 + k] : 0;
      for (int t = 0; t < length; t++)
        past[3 + t] = op_case_get(c, "x", d * TOKENS + begin + t);
      for (int t = 0; t < length; t++) {
        double sum = op_case_get(c, "bias", d);
        for (int j = 0; j < WIDTH; j++)
          sum += op_case_get(c, "weight", d * WIDTH + j) * past[t + j];
        assert_near(op_case_get(c, "out", d * TOKENS + begin + t), silu(sum), allowed, "out", d * TOKENS + begin + t);
      }
      for (int k = 0; k < 3; k++)
        assert_near(op_case_get(c, "conv_state", (slot * CHANNELS + d) * 3 + k), past[length + k], 0, "conv_state", k);
    }
  }
  for (int i = 0; i < SLOTS * CHANNELS * 3; i++)
    ck_each(seen[i / (CHANNELS * 3)] || op_case_get(c, "conv_state", i) == before[i], "conv_state[%d] changed", i);
  for (int d = 0; d < CHANNELS; d++) /* the skipped sequence, and behind the last */
    for (int t = 303; t < TOKENS; t++)
      ck_each((t >= 307 && t < 310) || op_case_get(c, "out", d * TOKENS + t) == 0, "out[%d, %d] is not 0", d, t);
  op_case_free(c);
}
END_TEST

/* Kernel [1, 2], no bias: y[t] = x[t - 1] + 2 x[t]. */
START_TEST(causal_conv1d_by_hand) {
  op_case *c = op_case_make("causal_conv1d x=f1x3 weight=f1x2 activation=none", float32, 0);
  const double x[] = {1, 10, 100}, weight[] = {1, 2}, expected[] = {2, 21, 210};
  op_case_set_all(c, "x", x);
  op_case_set_all(c, "weight", weight);
  op_case_run(c, both[_i]);
  for (int i = 0; i < 3; i++)
    ck_assert_double_eq(op_case_get(c, "out", i), expected[i]);
  op_case_free(c);
}
END_TEST

/* A sequence in pieces is the sequence: each piece goes on where the one before ended, of one token, too. */
START_TEST(a_convolution_may_be_continued) {
  const char *id = both[_i];
  op_case *whole = op_case_make("causal_conv1d x=f5x9 weight=f5x4 bias=f5", float32, 0);
  op_case *state = op_case_make("causal_conv1d x=f5x1 weight=f5x4 conv_state=w1x5x3", float32, 0);
  const char *const pieces[] = {"causal_conv1d x=f5x6 weight=f5x4 bias=f5 conv_state=w1x5x3",
                                "causal_conv1d x=f5x1 weight=f5x4 bias=f5 conv_state=w1x5x3 has_initial_state=b1",
                                "causal_conv1d x=f5x2 weight=f5x4 bias=f5 conv_state=w1x5x3 has_initial_state=b1"};
  const int lengths[] = {6, 1, 2};
  int begin = 0;
  op_case_run(whole, id);
  for (int piece = 0; piece < 3; begin += lengths[piece++]) {
    op_case *part = op_case_make(pieces[piece], float32, 0);
    if (piece)
      op_case_set(part, "has_initial_state", 0, 1);
    *op_case_value(part, "conv_state") = *op_case_value(state, "conv_state");
    for (int i = 0; i < 5 * lengths[piece]; i++)
      op_case_set(part, "x", i, op_case_get(whole, "x", i / lengths[piece] * 9 + begin + i % lengths[piece]));
    op_case_run(part, id);
    for (int i = 0; i < 5 * lengths[piece]; i++)
      ck_assert_double_eq(op_case_get(part, "out", i),
                          op_case_get(whole, "out", i / lengths[piece] * 9 + begin + i % lengths[piece]));
    op_case_free(part);
  }
  op_case_free(whole);
  op_case_free(state);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ scans */

START_TEST(selective_scan_computes_the_formula_and_leaves_its_state) {
  enum { D = 6, N = 19, G = 2 };
  op_case *c = op_case_make("selective_scan u=f6x312 delta=f6x312 A=w6x19 B=f2x19x312 C=f2x19x312 D=w6 z=f6x312 "
                            "delta_bias=w6 delta_softplus=true ssm_state=w7x6x19" BATCH,
                            floats[_i % 3], _i / 6 ? 3 : 0);
  op_case *before = op_case_make("selective_scan u=f1x1 delta=f1x1 A=w1x1 B=f1x1x1 C=f1x1x1 delta_softplus=true "
                                 "ssm_state=w7x6x19",
                                 float32, 0);
  double allowed = tolerance_of(floats[_i % 3]);
  set_batch(c);
  for (int i = 0; i < D * N; i++) /* decaying, as -exp(A_log) is */
    op_case_set(c, "A", i, -0.05 - fabs(op_case_get(c, "A", i)));
  copy_tensor(c, before, "ssm_state");
  op_case_run(c, both[_i / 3 % 2]);
  for (int s = 0; s < SEQUENCES; s++)
    for (int d = 0; d < D && slots[s] >= 0; d += 5) {
      double h[N];
      int row = ((int)slots[s] * D + d) * N, group = d / (D / G);
      for (int n = 0; n < N; n++)
        h[n] = begins_from_state[s] != 0 ? op_case_get(before, "ssm_state", row + n) : 0;
      for (int t = (int)starts[s]; t < (int)starts[s + 1]; t++) {
        double u = op_case_get(c, "u", d * TOKENS + t), y = op_case_get(c, "D", d) * u;
        double delta = softplus(op_case_get(c, "delta", d * TOKENS + t) + op_case_get(c, "delta_bias", d));
        for (int n = 0; n < N; n++) {
          int at = (group * N + n) * TOKENS + t;
          h[n] = exp(delta * op_case_get(c, "A", d * N + n)) * h[n] + delta * u * op_case_get(c, "B", at);
          y += h[n] * op_case_get(c, "C", at);
        }
        assert_near(op_case_get(c, "out", d * TOKENS + t), y * silu(op_case_get(c, "z", d * TOKENS + t)), allowed,
                    "out", d * TOKENS + t);
      }
      for (int n = 0; n < N && starts[s + 1] > starts[s]; n++)
        assert_near(op_case_get(c, "ssm_state", row + n), h[n], 2e-5, "ssm_state", row + n);
    }
  for (int d = 0; d < D; d++)
    for (int t = 303; t < TOKENS; t++)
      ck_each((t >= 307 && t < 310) || op_case_get(c, "out", d * TOKENS + t) == 0, "out[%d, %d] is not 0", d, t);
  for (int n = 0; n < D * N; n++) { /* of the empty sequence, and of a slot that nobody has */
    int unowned = 3 * D * N + n;
    assert_near(op_case_get(c, "ssm_state", n), op_case_get(before, "ssm_state", n), 0, "ssm_state", n);
    assert_near(op_case_get(c, "ssm_state", unowned), op_case_get(before, "ssm_state", unowned), 0, "ssm_state",
                unowned);
  }
  op_case_free(c);
  op_case_free(before);
}
END_TEST

/* What Mamba-2's scan is computed from, beside the tensors. */
typedef struct ssd {
  int heads, size, groups, states;
  bool d_by_element, limited;
} ssd;

static double ssd_delta(op_case *c, const ssd *f, int head, int t) {
  double dt = softplus(op_case_get(c, "dt", t * f->heads + head) + op_case_get(c, "dt_bias", head));
  return f->limited ? fmin(fmax(dt, 0.5), 0.75) : dt;
}

/* Element p of a head after one token, whose row of the state is h. */
static double ssd_token(op_case *c, const ssd *f, int head, int p, int t, double *h) {
  int at = (t * f->heads + head) * f->size + p, group = head / (f->heads / f->groups);
  double x = op_case_get(c, "x", at), dt = ssd_delta(c, f, head, t);
  double y = x * op_case_get(c, "D", f->d_by_element ? head * f->size + p : head);
  for (int n = 0; n < f->states; n++) {
    int of_group = (t * f->groups + group) * f->states + n;
    h[n] = exp(dt * op_case_get(c, "A", head)) * h[n] + dt * x * op_case_get(c, "B", of_group);
    y += h[n] * op_case_get(c, "C", of_group);
  }
  return y * silu(op_case_get(c, "z", at));
}

START_TEST(mamba_chunk_scan_computes_the_formula_and_leaves_its_state) {
  static const char *const calls[] = {
      "mamba_chunk_scan x=f312x4x3 dt=f312x4 A=w4 B=f312x2x17 C=f312x2x17 D=w4 z=f312x4x3 dt_bias=w4 dt_softplus=true "
      "ssm_state=w7x4x3x17 chunk_size=8" BATCH,
      "mamba_chunk_scan x=f312x4x3 dt=w312x4 A=w4 B=f312x2x17 C=f312x2x17 D=f4x3 z=f312x4x3 dt_bias=f4 "
      "dt_softplus=true "
      "ssm_state=w7x4x3x17 dt_min=0.5 dt_max=0.75" BATCH};
  op_case *before = op_case_make("mamba_chunk_scan x=f1x1x1 dt=f1x1 A=w1 B=f1x1x1 C=f1x1x1 dt_softplus=true "
                                 "ssm_state=w7x4x3x17",
                                 float32, 0);
  double allowed = tolerance_of(floats[_i % 3]);
  for (int which = 0; which < 2; which++) {
    const ssd f = {4, 3, 2, 17, which == 1, which == 1};
    op_case *c = op_case_make(calls[which], floats[_i % 3], _i / 6 ? 3 : 0);
    set_batch(c);
    for (int i = 0; i < f.heads; i++)
      op_case_set(c, "A", i, -0.05 - fabs(op_case_get(c, "A", i)));
    copy_tensor(c, before, "ssm_state");
    op_case_run(c, both[_i / 3 % 2]);
    for (int s = 0; s < SEQUENCES; s++)
      for (int row = 0; row < f.heads * f.size && slots[s] >= 0; row += 5) {
        double h[17];
        int at = ((int)slots[s] * f.heads * f.size + row) * f.states;
        for (int n = 0; n < f.states; n++)
          h[n] = begins_from_state[s] != 0 ? op_case_get(before, "ssm_state", at + n) : 0;
        for (int t = (int)starts[s]; t < (int)starts[s + 1]; t++) {
          int64_t element = (int64_t)t * f.heads * f.size + row;
          double expected = ssd_token(c, &f, row / f.size, row % f.size, t, h);
          assert_near(op_case_get(c, "out", element), expected, allowed, "out", element);
        }
        for (int n = 0; n < f.states && starts[s + 1] > starts[s]; n++)
          assert_near(op_case_get(c, "ssm_state", at + n), h[n], 2e-5, "ssm_state", at + n);
      }
    op_case_free(c);
  }
  op_case_free(before);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- mixers */

/* out [tokens, n] = x [tokens, k] W^T, W [n, k]; rows of x are `stride` apart. */
static void project(op_case *c, const char *weight, const double *x, int stride, int tokens, int n, int k,
                    double *out) {
  for (int t = 0; t < tokens; t++)
    for (int row = 0; row < n; row++) {
      out[t * n + row] = 0;
      for (int i = 0; i < k; i++)
        out[t * n + row] += x[t * stride + i] * op_case_get(c, weight, row * k + i);
    }
}

static void normalise(op_case *c, const char *weight, double *x, int n) {
  double squares = 0;
  for (int i = 0; i < n; i++)
    squares += x[i] * x[i];
  for (int i = 0; i < n; i++)
    x[i] *= op_case_get(c, weight, i) / sqrt(squares / n + 1e-6);
}

/* No other software offers this layer alone, so it has no golden file: the whole formula, in double precision. */
START_TEST(plamo2_mamba_mixer_computes_the_formula) {
  enum { T = 9, M = 8, I = 12, H = 3, P = I / H, N = 5, R = 4, W = 3, BCDT = 2 * N + R };
  op_case *c = op_case_make("plamo2_mamba_mixer hidden_states=f9x8 in_proj=f24x8 conv_weight=f12x3 bcdt_proj=f14x12 "
                            "dt_proj=f3x4 dt_bias=w3 A=w3 D=w3 b_norm=f5 c_norm=f5 dt_norm=f4 out_proj=f8x12 "
                            "num_heads=3",
                            floats[_i % 3], _i / 6 ? 3 : 0);
  double hidden[T * M], gate_x[T * 2 * I], x[T * I], bcdt[T * BCDT], dt[T * H], y[T * I], out[T * M], h[I][N] = {{0}};
  const double allowed[] = {2e-5, 1e-2, 6e-2};
  for (int i = 0; i < H; i++)
    op_case_set(c, "A", i, -0.05 - fabs(op_case_get(c, "A", i)));
  op_case_run(c, both[_i / 3 % 2]);
  for (int i = 0; i < T * M; i++)
    hidden[i] = op_case_get(c, "hidden_states", i);
  project(c, "in_proj", hidden, M, T, 2 * I, M, gate_x);
  for (int t = 0; t < T; t++)
    for (int i = 0; i < I; i++) {
      double sum = 0;
      for (int j = 0; j < W; j++)
        if (t - W + 1 + j >= 0)
          sum += op_case_get(c, "conv_weight", i * W + j) * gate_x[(t - W + 1 + j) * 2 * I + I + i];
      x[t * I + i] = silu(sum);
    }
  project(c, "bcdt_proj", x, I, T, BCDT, I, bcdt);
  for (int t = 0; t < T; t++) {
    normalise(c, "b_norm", bcdt + t * BCDT, N);
    normalise(c, "c_norm", bcdt + t * BCDT + N, N);
    normalise(c, "dt_norm", bcdt + t * BCDT + 2 * N, R);
  }
  project(c, "dt_proj", bcdt + 2 * N, BCDT, T, H, R, dt);
  for (int t = 0; t < T; t++)
    for (int i = 0; i < I; i++) {
      int head = i / P;
      double step = softplus(dt[t * H + head] + op_case_get(c, "dt_bias", head));
      double sum = op_case_get(c, "D", head) * x[t * I + i];
      for (int n = 0; n < N; n++) {
        h[i][n] = exp(step * op_case_get(c, "A", head)) * h[i][n] + step * x[t * I + i] * bcdt[t * BCDT + n];
        sum += h[i][n] * bcdt[t * BCDT + N + n];
      }
      y[t * I + i] = sum * silu(gate_x[t * 2 * I + i]);
    }
  project(c, "out_proj", y, I, T, M, I, out);
  for (int i = 0; i < T * M; i++)
    assert_near(op_case_get(c, "out", i), out[i], allowed[_i % 3], "out", i);
  op_case_free(c);
}
END_TEST

/* Mixers of 300 inner channels or more take several blocks. */
static const char *const mixers[] = {
    "mamba_mixer hidden_states=f12x16 in_proj=f600x16 conv_weight=f300x4 conv_bias=f300 x_proj=f11x300 "
    "dt_proj=f300x3 dt_bias=w300 A=w300x4 D=w300 out_proj=f16x300 dt_norm=f3 b_norm=f4 c_norm=w4 "
    "conv_state=f5x300x3 ssm_state=w5x300x4",
    "mamba_mixer2 hidden_states=f12x16 in_proj=f686x16 conv_weight=f350x4 conv_bias=w350 dt_bias=w6 A=w6 D=w6 "
    "norm_weight=f330 out_proj=f16x330 conv_state=f5x350x3 ssm_state=w5x6x55x5 n_groups=2 head_dim=55",
    "mamba_mixer2 hidden_states=f12x16 in_proj=f676x16 conv_weight=f340x4 conv_bias=w340 dt_bias=w6 A=w6 D=w6 "
    "norm_weight=f330 out_proj=f16x330 conv_state=f5x340x3 ssm_state=w5x6x55x5 n_groups=1 head_dim=55",
    "plamo2_mamba_mixer hidden_states=f12x16 in_proj=f600x16 conv_weight=f300x4 bcdt_proj=f14x300 dt_proj=f3x4 "
    "dt_bias=w3 A=w3 D=w3 b_norm=f5 c_norm=f5 dt_norm=f4 out_proj=f16x300 conv_state=f5x300x3 ssm_state=w5x3x100x5 "
    "num_heads=3",
    "short_conv hidden_states=f12x16 in_proj=f900x16 conv_weight=f300x3 conv_bias=f300 out_proj=f16x300 "
    "conv_state=f5x300x2"};

/* A state, whatever its type, follows from what is rounded to the type of the result. */
static void check_tensor(op_case *a, op_case *b, const char *name) {
  fl_tolerance allowed = fl_schema_tolerance(a->schema, op_case_tensor(a, "out")->dtype);
  for (int64_t i = 0; i < count(op_case_tensor(a, name)); i++) {
    double got = op_case_get(a, name, i), expected = op_case_get(b, name, i);
    ck_each(fabs(got - expected) <= allowed.atol + allowed.rtol * fabs(expected), "%s[%d] is %g, expected %g", name,
            (int)i, got, expected);
  }
}

/* The inner weights of a layer are small, as they are in models. */
static op_case *make_mixer(const char *text, DLDataType dtype, int64_t padding) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s query_start_loc=i4 cache_indices=i3 has_initial_state=b3", text);
  op_case *c = op_case_make(whole, dtype, padding);
  op_case_set_all(c, "query_start_loc", (double[]){0, 5, 7, 12});
  op_case_set_all(c, "cache_indices", (double[]){3, -1, 4});
  op_case_set_all(c, "has_initial_state", (double[]){1, 0, 0});
  for (uint32_t i = 0; i < c->schema->n_arguments; i++) {
    const char *name = c->schema->values[i].name;
    int64_t n = c->tensors[i] ? count(&c->tensors[i]->tensor) : 0;
    bool is_weight = strstr(name, "proj"), decays = !strcmp(name, "A");
    for (int64_t j = 0; is_weight && j < n; j++)
      op_case_set(c, name, j, op_case_get(c, name, j) / 8);
    for (int64_t j = 0; decays && j < n; j++)
      op_case_set(c, name, j, -0.05 - fabs(op_case_get(c, name, j)));
  }
  return c;
}

START_TEST(O2_O5_the_mixers_agree_on_batches_and_take_strides) {
  const char *text = mixers[_i / 3];
  op_case *reference = make_mixer(text, floats[_i % 3], 0);
  op_case *flagos = make_mixer(text, floats[_i % 3], 0), *strided = make_mixer(text, floats[_i % 3], 3);
  bool has_scan = !strstr(text, "short_conv");
  op_case_run(reference, "reference.c");
  op_case_run(flagos, "default.flagos");
  op_case_run(strided, "default.flagos");
  check_tensor(flagos, reference, "out");
  check_tensor(flagos, reference, "conv_state");
  if (has_scan)
    check_tensor(flagos, reference, "ssm_state");
  for (int64_t i = 0; i < 12 * 16; i++) {
    ck_assert_double_eq(op_case_get(strided, "out", i), op_case_get(flagos, "out", i));
    ck_assert(i / 16 < 5 || i / 16 > 6 || op_case_get(flagos, "out", i) == 0); /* the skipped sequence */
  }
  op_case_free(reference);
  op_case_free(flagos);
  op_case_free(strided);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ edges */

START_TEST(O2_no_tokens_are_no_work_and_leave_the_state_alone) {
  static const char *const calls[] = {
      "causal_conv1d x=f3x0 weight=f3x4 conv_state=f1x3x3",
      "selective_scan u=f3x0 delta=f3x0 A=w3x4 B=f1x4x0 C=f1x4x0 delta_softplus=true ssm_state=w1x3x4",
      "mamba_chunk_scan x=f0x2x3 dt=f0x2 A=w2 B=f0x1x4 C=f0x1x4 dt_softplus=true ssm_state=w1x2x3x4",
      "short_conv hidden_states=f0x4 in_proj=f12x4 conv_weight=f4x3 out_proj=f4x4 conv_state=f1x4x2"};
  static const char *const states[] = {"conv_state", "ssm_state", "ssm_state", "conv_state"};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    for (int which = 0; which < 2; which++) {
      op_case *c = op_case_make(calls[i], bfloat16, 0), *untouched = op_case_make(calls[i], bfloat16, 0);
      op_case_run(c, both[which]);
      for (int64_t j = 0; j < count(op_case_tensor(c, states[i])); j++)
        assert_near(op_case_get(c, states[i], j), op_case_get(untouched, states[i], j), 0, states[i], j);
      op_case_free(c);
      op_case_free(untouched);
    }
}
END_TEST

/* Above 20 softplus is the identity, and there is no overflow far above. */
START_TEST(large_steps_do_not_overflow) {
  op_case *c =
      op_case_make("selective_scan u=f1x1 delta=f1x1 A=w1x1 B=f1x1x1 C=f1x1x1 delta_softplus=true", float32, 0);
  const char *const ones[] = {"u", "B", "C"};
  for (int i = 0; i < 3; i++)
    op_case_set(c, ones[i], 0, 1);
  op_case_set(c, "A", 0, -1);
  op_case_set(c, "delta", 0, 1000);
  op_case_run(c, both[_i]);
  ck_assert_double_eq(op_case_get(c, "out", 0), 1000);
  op_case_free(c);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- bad calls */

#define CONV "causal_conv1d x=f4x6 weight=f4x3 "
#define SCAN "selective_scan u=f4x6 delta=f4x6 A=w4x2 B=f2x2x6 C=f2x2x6 delta_softplus=true "
#define SSD  "mamba_chunk_scan x=f6x4x2 dt=f6x4 A=w4 B=f6x2x3 C=f6x2x3 dt_softplus=true "

static const struct {
  const char *call, *message;
} refused[] = {
    {"causal_conv1d x=f4x6 weight=f5x3", "causal_conv1d: argument 'weight': shape [5, 3], expected [4, w] (d of 'x')"},
    {CONV "conv_state=f2x4x3",
     "causal_conv1d: argument 'conv_state': shape [2, 4, 3], expected [s, 4, 2] (w - 1, w = 3 of 'weight')"},
    {CONV "activation=slu",
     "causal_conv1d: argument 'activation': \"slu\", expected \"none\" or \"silu\"; did you mean 'silu'?"},
    {CONV "cache_indices=i1%1", "causal_conv1d: argument 'cache_indices': given, expected none without 'conv_state'"},
    {CONV "query_start_loc=i2%2 has_initial_state=b1",
     "causal_conv1d: argument 'has_initial_state': given, expected none without 'conv_state'"},
    {CONV "conv_state=f2x4x2 cache_indices=i2%2",
     "causal_conv1d: argument 'cache_indices': shape [2], expected [1] without 'query_start_loc'"},
    {CONV "conv_state=f2x4x2 query_start_loc=i4%4",
     "causal_conv1d: argument 'conv_state': 2 slots, expected 3 or more without 'cache_indices'"},
    {"selective_scan u=f5x6 delta=f5x6 A=w5x2 B=f2x2x6 C=f2x2x6 delta_softplus=true",
     "selective_scan: argument 'B': 2 groups, expected a divisor of 5 (the channels of 'u')"},
    {"selective_scan u=f5x6 delta=f5x6 A=w5x2 B=f0x2x6 C=f0x2x6 delta_softplus=true",
     "selective_scan: argument 'B': 0 groups, expected a divisor of 5 (the channels of 'u')"},
    {SCAN "D=w3", "selective_scan: argument 'D': shape [3], expected [4] (d of 'u')"},
    {SSD "chunk_size=6", "mamba_chunk_scan: argument 'chunk_size': 6, expected a power of 2"},
    {SSD "chunk_size=0", "mamba_chunk_scan: argument 'chunk_size': 0, expected a power of 2"},
    {SSD "dt_min=2 dt_max=1",
     "mamba_chunk_scan: argument 'dt_max': 1, expected none or at least 2 (argument 'dt_min')"},
    {"mamba_chunk_scan x=f6x4x2 dt=f6x4 A=w4 B=f6x3x3 C=f6x3x3 dt_softplus=true",
     "mamba_chunk_scan: argument 'B': 3 groups, expected a divisor of 4 (the heads of 'x')"},
    {"short_conv hidden_states=f6x4 in_proj=f11x4 conv_weight=f4x3 out_proj=f4x4",
     "short_conv: argument 'in_proj': shape [11, 4], expected [3*i, 4]"},
    {"plamo2_mamba_mixer hidden_states=f9x8 in_proj=f24x8 conv_weight=f12x3 bcdt_proj=f14x12 dt_proj=f5x4 dt_bias=w5 "
     "A=w5 D=w5 b_norm=f5 c_norm=f5 dt_norm=f4 out_proj=f8x12 num_heads=5",
     "plamo2_mamba_mixer: argument 'num_heads': 5, expected a divisor of 12 (i of 'out_proj')"},
    {"mamba_mixer2 hidden_states=f6x16 in_proj=f45x16 conv_weight=f24x4 dt_bias=w3 A=w3 D=w3 norm_weight=f18 "
     "out_proj=f16x18 n_groups=2 head_dim=6 chunk_size=4",
     "mamba_mixer2: argument 'in_proj': shape [45, 16], expected [2*h*head_dim + 2*n_groups*n + h, 16] "
     "(2*h*head_dim + 2*n_groups*n + h, h = 3 of 'A', head_dim = 6 of 'head_dim', n_groups = 2 of 'n_groups', h = 3 of "
     "'A')"},
    {"mamba_mixer2 hidden_states=f6x16 in_proj=f51x16 conv_weight=f30x4 dt_bias=w3 A=w3 D=w3 norm_weight=f18 "
     "out_proj=f16x18 n_groups=2 head_dim=6 chunk_size=4",
     "mamba_mixer2: argument 'n_groups': 2 groups, expected a divisor of 3 (the heads of 'A')"},
};

START_TEST(O6_bad_arguments_are_named_with_what_is_expected) {
  op_case_refused(refused[_i].call, refused[_i].message);
}
END_TEST

/* An index that is out of range; where it does not stand in the first place, the others are in order. */
static const struct {
  const char *call, *tensor;
  int64_t index;
  double value;
  const char *message;
} bad_indices[] = {
    {CONV "query_start_loc=i3%3", "query_start_loc", 0, 1,
     "argument 'query_start_loc'[0] is 1, expected 0 to 0 (the first sequence begins at 0)"},
    {CONV "query_start_loc=l3%3", "query_start_loc", 2, 7,
     "argument 'query_start_loc'[2] is 7, expected 1 to 6 (from the one before to the number of tokens)"},
    {SCAN "query_start_loc=i3%3", "query_start_loc", 2, 0,
     "argument 'query_start_loc'[2] is 0, expected 1 to 6 (from the one before to the number of tokens)"},
    {SSD "query_start_loc=i3%3", "query_start_loc", 1, -1,
     "argument 'query_start_loc'[1] is -1, expected 0 to 6 (from the one before to the number of tokens)"},
    {CONV "query_start_loc=i3%3 conv_state=f2x4x2 cache_indices=i2%2", "cache_indices", 1, 2,
     "argument 'cache_indices'[1] is 2, expected -1 to 1 (slots of the state; -1: skipped)"},
    {SCAN "query_start_loc=i3%3 ssm_state=w2x4x2 cache_indices=l2%2", "cache_indices", 0, -2,
     "argument 'cache_indices'[0] is -2, expected -1 to 1 (slots of the state; -1: skipped)"},
    {SSD "query_start_loc=i3%3 ssm_state=w2x4x2x3 cache_indices=l2%2", "cache_indices", 1, 5e9,
     "argument 'cache_indices'[1] is 5000000000, expected -1 to 1 (slots of the state; -1: skipped)"},
    {"short_conv hidden_states=f6x4 in_proj=f12x4 conv_weight=f4x3 out_proj=f4x4 conv_state=f2x4x2 cache_indices=i1%1",
     "cache_indices", 0, 2, "argument 'cache_indices'[0] is 2, expected -1 to 1 (slots of the state; -1: skipped)"},
};

START_TEST(O6_an_index_out_of_range_is_named_and_nothing_is_written) {
  for (int which = 0; which < 2; which++) {
    op_case *c = op_case_make(bad_indices[_i].call, float32, 0);
    op_case_set(c, bad_indices[_i].tensor, bad_indices[_i].index, bad_indices[_i].value);
    op_case_refused_by(c, both[which], bad_indices[_i].message);
    op_case_free(c);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, causal_conv1d_keeps_each_sequences_past_in_its_slot, 0, loop_cases(12));
  tcase_add_loop_test(tests, causal_conv1d_by_hand, 0, 2);
  tcase_add_loop_test(tests, a_convolution_may_be_continued, 0, 2);
  tcase_add_loop_test(tests, selective_scan_computes_the_formula_and_leaves_its_state, 0, loop_cases(12));
  tcase_add_loop_test(tests, mamba_chunk_scan_computes_the_formula_and_leaves_its_state, 0, loop_cases(12));
  tcase_add_loop_test(tests, plamo2_mamba_mixer_computes_the_formula, 0, loop_cases(12));
  tcase_add_loop_test(tests, O2_O5_the_mixers_agree_on_batches_and_take_strides, 0,
                      3 * (int)(sizeof mixers / sizeof mixers[0]));
  tcase_add_test(tests, O2_no_tokens_are_no_work_and_leave_the_state_alone);
  tcase_add_loop_test(tests, large_steps_do_not_overflow, 0, 2);
  tcase_add_loop_test(tests, O6_bad_arguments_are_named_with_what_is_expected, 0, sizeof refused / sizeof refused[0]);
  tcase_add_loop_test(tests, O6_an_index_out_of_range_is_named_and_nothing_is_written, 0,
                      sizeof bad_indices / sizeof bad_indices[0]);
}

int main(void) {
  return run_suite("ops_state_space", add_tests, 30);
}
