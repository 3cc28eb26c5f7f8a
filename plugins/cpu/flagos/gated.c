/*
 * Gated activations, a block of a row at a time, with the roundings of vLLM's native definition: where these fall
 * between steps they decide more than the tolerance allows.
 */
#include "plugins/cpu/gated.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/quantile.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

/* The attributes of all of them. */
typedef struct parameters {
  float alpha, beta, limit;
  bool limited; /* situ_and_mul's linear_beta is given: it is `limit` */
} parameters;

/* Gates become results; factors may be overwritten. */
typedef void (*gated_fn)(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                         int64_t n);

static void halves_row(const cpu_block_type *type, gated_fn function, const parameters *p, const void *x, void *out,
                       int64_t d) {
  float gate[CPU_BLOCK], up[CPU_BLOCK];
  for (int64_t first = 0; first < d; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(d - first);
    type->load(gate, x, first, n);
    type->load(up, x, d + first, n);
    function(type, p, gate, up, n);
    type->store(out, first, gate, n);
  }
}

/* Gate and factor alternate. */
static void interleaved_row(const cpu_block_type *type, gated_fn function, const parameters *p, const void *x,
                            void *out, int64_t d) {
  float both[2 * CPU_BLOCK], gate[CPU_BLOCK], up[CPU_BLOCK];
  for (int64_t first = 0; first < d; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(d - first);
    type->load(both, x, 2 * first, 2 * n);
    for (int64_t i = 0; i < n; i++) {
      gate[i] = both[2 * i];
      up[i] = both[2 * i + 1];
    }
    function(type, p, gate, up, n);
    type->store(out, first, gate, n);
  }
}

typedef void (*row_fn)(const cpu_block_type *type, gated_fn function, const parameters *p, const void *x, void *out,
                       int64_t d);

static fl_status gated(fl_call *call, row_fn row, gated_fn function, const parameters *p) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, call->count - 1)};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    row(&cpu_block_types[dtype], function, p, rows.at[0], rows.at[1], d);
  return FL_OK;
}

static void multiply(float *restrict gate, const float *restrict up, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    gate[i] *= up[i];
}

static void silu_gate(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                      int64_t n) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    gate[i] = vector_silu(gate[i]);
  type->round(gate, n);
  multiply(gate, up, n);
}

/* silu_and_mul(x) -> out */
fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, halves_row, silu_gate, NULL);
}

static void silu_factor(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                        int64_t n) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    up[i] = vector_silu(up[i]);
  type->round(up, n);
  multiply(gate, up, n);
}

/* mul_and_silu(x) -> out */
static fl_status mul_and_silu(void *self, fl_call *call) {
  (void)self;
  return gated(call, halves_row, silu_factor, NULL);
}

static void gelu_gate(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                      int64_t n) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    gate[i] = vector_gelu(gate[i]);
  type->round(gate, n);
  multiply(gate, up, n);
}

static void gelu_tanh_gate(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                           int64_t n) {
  (void)p;
  for (int64_t i = 0; i < n; i++)
    gate[i] = vector_gelu_tanh(gate[i]);
  type->round(gate, n);
  multiply(gate, up, n);
}

static gated_fn gelu_of(const char *approximate) {
  return strcmp(approximate, "tanh") ? gelu_gate : gelu_tanh_gate;
}

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, halves_row, gelu_of(call->values[1].v.s), NULL);
}

/* g sigmoid(alpha g), rounded at each step, of the clamped gate; the factor is clamped and shifted by `shift`. */
static void clamp_and_gate(const cpu_block_type *type, const parameters *p, float shift, float *restrict gate,
                           float *restrict up, int64_t n) {
  float logistic[CPU_BLOCK], limit = p->limit, alpha = p->alpha;
  type->round(&limit, 1);
  for (int64_t i = 0; i < n; i++) {
    gate[i] = vector_clamp_above(gate[i], limit);
    up[i] = vector_clamp(up[i], limit) + shift;
    logistic[i] = gate[i] * alpha;
  }
  type->round(logistic, n);
  for (int64_t i = 0; i < n; i++)
    logistic[i] = vector_sigmoid(logistic[i]);
  type->round(logistic, n);
  multiply(gate, logistic, n);
  type->round(gate, n);
  type->round(up, n);
  multiply(gate, up, n);
}

static void swigluoai(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                      int64_t n) {
  clamp_and_gate(type, p, 1.0f, gate, up, n);
}

/* swigluoai_and_mul(x, alpha, limit) -> out */
fl_status cpu_flagos_swigluoai_and_mul(void *self, fl_call *call) {
  const parameters p = {.alpha = (float)call->values[1].v.f, .limit = (float)call->values[2].v.f};
  (void)self;
  return gated(call, interleaved_row, swigluoai, &p);
}

static void silu_with_clamp(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                            int64_t n) {
  clamp_and_gate(type, p, p->beta, gate, up, n);
}

/* silu_and_mul_with_clamp(x, limit, alpha, beta) -> out */
static fl_status silu_and_mul_with_clamp(void *self, fl_call *call) {
  const fl_value *values = call->values;
  const parameters p = {.limit = (float)values[1].v.f, .alpha = (float)values[2].v.f, .beta = (float)values[3].v.f};
  (void)self;
  return gated(call, halves_row, silu_with_clamp, &p);
}

static void fatrelu(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                    int64_t n) {
  float threshold = p->limit;
  (void)type;
  for (int64_t i = 0; i < n; i++)
    gate[i] = (gate[i] <= threshold ? 0.0f : gate[i]) * up[i];
}

/* fatrelu_and_mul(x, threshold) -> out */
static fl_status fatrelu_and_mul(void *self, fl_call *call) {
  const parameters p = {.limit = (float)call->values[1].v.f};
  (void)self;
  return gated(call, halves_row, fatrelu, &p);
}

static void swiglustep(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                       int64_t n) {
  float limit = p->limit;
  type->round(&limit, 1);
  for (int64_t i = 0; i < n; i++)
    gate[i] = vector_silu(gate[i]);
  type->round(gate, n);
  for (int64_t i = 0; i < n; i++)
    gate[i] = vector_clamp_above(gate[i], limit) * vector_clamp(up[i], limit);
}

/* swiglustep_and_mul(x, limit) -> out */
fl_status cpu_flagos_swiglustep_and_mul(void *self, fl_call *call) {
  const parameters p = {.limit = (float)call->values[1].v.f};
  (void)self;
  return gated(call, halves_row, swiglustep, &p);
}

static void situ(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up, int64_t n) {
  float beta = p->beta, limit = p->limit;
  (void)type;
  for (int64_t i = 0; p->limited && i < n; i++)
    up[i] = limit * vector_tanh(up[i] / limit);
  for (int64_t i = 0; i < n; i++)
    gate[i] = beta * vector_tanh(gate[i] / beta) * vector_sigmoid(gate[i]) * up[i];
}

/* situ_and_mul(x, beta, linear_beta) -> out */
static fl_status situ_and_mul(void *self, fl_call *call) {
  const fl_value *linear_beta = &call->values[2];
  parameters p = {.beta = (float)call->values[1].v.f, .limited = linear_beta->type == FL_FLOAT};
  (void)self;
  if (p.limited)
    p.limit = (float)linear_beta->v.f;
  return gated(call, halves_row, situ, &p);
}

/* --------------------------------------------------------------------------------------------- gelu_and_mul_sparse */

static double deviation(float value, double mean, bool squared) {
  double apart = (double)value - mean;
  return squared ? apart * apart : apart;
}

/* Sum of what the first d elements of a row deviate from `mean`, or of the squares of that; in double, whose digits
 * outlast any order of additions, and in lanes, which are independent of each other. */
static double sum_row(const cpu_block_type *type, const void *row, int64_t d, double mean, bool squared) {
  enum { LANES = 8 };
  float values[CPU_BLOCK];
  double sums[LANES] = {0}, sum = 0;
  for (int64_t first = 0; first < d; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(d - first), i = 0;
    type->load(values, row, first, n);
    for (; i + LANES <= n; i += LANES)
      for (int lane = 0; lane < LANES; lane++)
        sums[lane] += deviation(values[i + lane], mean, squared);
    for (; i < n; i++)
      sums[0] += deviation(values[i], mean, squared);
  }
  for (int lane = 0; lane < LANES; lane++)
    sum += sums[lane];
  return sum;
}

/* mean + std * quantile, rounded at each step. */
static float cut_of(const cpu_block_type *type, const void *row, int64_t d, float quantile) {
  double mean = sum_row(type, row, d, 0, false) / (double)d;
  float rounded_mean = (float)mean, scaled = (float)sqrt(sum_row(type, row, d, mean, true) / (double)d), cut;
  type->round(&rounded_mean, 1);
  type->round(&scaled, 1);
  scaled *= quantile;
  type->round(&scaled, 1);
  cut = rounded_mean + scaled;
  type->round(&cut, 1);
  return cut;
}

/* `limit` is the cut. */
static void sparse_gate(const cpu_block_type *type, const parameters *p, gated_fn gelu, float *restrict gate,
                        float *restrict up, int64_t n) {
  float cut = p->limit;
  for (int64_t i = 0; i < n; i++)
    gate[i] -= cut;
  type->round(gate, n);
  for (int64_t i = 0; i < n; i++)
    gate[i] = gate[i] < 0.0f ? 0.0f : gate[i];
  gelu(type, p, gate, up, n);
}

static void sparse_gelu(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                        int64_t n) {
  sparse_gate(type, p, gelu_gate, gate, up, n);
}

static void sparse_gelu_tanh(const cpu_block_type *type, const parameters *p, float *restrict gate, float *restrict up,
                             int64_t n) {
  sparse_gate(type, p, gelu_tanh_gate, gate, up, n);
}

/* gelu_and_mul_sparse(x, activation_sparsity, approximate) -> out */
static fl_status gelu_and_mul_sparse(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 3)};
  float quantile = cpu_normal_quantile(call->values[1].v.f);
  gated_fn function = gelu_of(call->values[2].v.s) == gelu_gate ? sparse_gelu : sparse_gelu_tanh;
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2;
  (void)self;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left && d; cpu_rows_next(&rows)) {
    const parameters p = {.limit = cut_of(&cpu_block_types[dtype], rows.at[0], d, quantile)};
    halves_row(&cpu_block_types[dtype], function, &p, rows.at[0], rows.at[1], d);
  }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "silu_and_mul", CPU_FLAGOS, .fn = cpu_flagos_silu_and_mul},
    {.op_name = "mul_and_silu", CPU_FLAGOS, .fn = mul_and_silu},
    {.op_name = "gelu_and_mul", CPU_FLAGOS, .fn = cpu_flagos_gelu_and_mul},
    {.op_name = "gelu_and_mul_sparse", CPU_FLAGOS, .fn = gelu_and_mul_sparse},
    {.op_name = "swigluoai_and_mul", CPU_FLAGOS, .fn = cpu_flagos_swigluoai_and_mul},
    {.op_name = "fatrelu_and_mul", CPU_FLAGOS, .fn = fatrelu_and_mul},
    {.op_name = "silu_and_mul_with_clamp", CPU_FLAGOS, .fn = silu_and_mul_with_clamp},
    {.op_name = "swiglustep_and_mul", CPU_FLAGOS, .fn = cpu_flagos_swiglustep_and_mul},
    {.op_name = "situ_and_mul", CPU_FLAGOS, .fn = situ_and_mul},
};
OP_LIST(ops);
