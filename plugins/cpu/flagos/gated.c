/*
 * Gated activations with the roundings of vLLM's native definition: where these fall between steps they decide more
 * than the tolerance allows.
 */
#include "plugins/cpu/gated.h"
#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/quantile.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

/* The attributes of all of them. */
typedef struct parameters {
  float alpha, beta, limit; /* limit: situ_and_mul's linear_beta, too */
} parameters;

typedef struct gated_job {
  cpu_dtype dtype;
  int64_t size; /* of a row of results */
  parameters p;
} gated_job;

/* One element. */
typedef float (*gated_fn)(cpu_dtype dtype, const parameters *p, float gate, float up);

/* Gates, then factors; or both in turn. */
typedef enum layout { HALVES, INTERLEAVED } layout;

CPU_TEMPLATE void load_pairs(cpu_dtype dtype, layout order, float *gate, float *up, const void *x, int64_t size,
                             int64_t first, int64_t n) {
  float both[2 * CPU_CHUNK];
  if (order == HALVES) {
    cpu_load_ahead(dtype, gate, x, first, n);
    cpu_load_ahead(dtype, up, x, size + first, n);
    return;
  }
  int64_t more = 2 * n - CPU_CHUNK;
  cpu_load_ahead(dtype, both, x, 2 * first, more < 0 ? 2 * n : CPU_CHUNK);
  cpu_load_ahead(dtype, both + CPU_CHUNK, x, 2 * first + CPU_CHUNK, more < 0 ? 0 : more);
  for (int i = 0; i < CPU_CHUNK; i++) {
    gate[i] = both[2 * i];
    up[i] = both[2 * i + 1];
  }
}

CPU_TEMPLATE void chunk(cpu_dtype dtype, layout order, gated_fn function, const parameters *p, const void *x, void *out,
                        int64_t size, int64_t first, int64_t n, bool around) {
  float gate[CPU_CHUNK], up[CPU_CHUNK];
  load_pairs(dtype, order, gate, up, x, size, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    gate[i] = function(dtype, p, gate[i], up[i]);
  cpu_store_around(dtype, out, first, gate, n, around);
}

CPU_TEMPLATE void row_of(cpu_dtype dtype, layout order, gated_fn function, const parameters *attributes, int64_t size,
                         const cpu_rows *rows) {
  const parameters p = *attributes;
  bool around = cpu_rows_around(rows, 1);
  int64_t i = 0;
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    chunk(dtype, order, function, &p, rows->at[0], rows->at[1], size, i, CPU_CHUNK, around);
  if (i < size)
    chunk(dtype, order, function, &p, rows->at[0], rows->at[1], size, i, size - i, false);
}

/* The row function of an activation. */
CPU_TEMPLATE void row(layout order, gated_fn function, const gated_job *job, const parameters *p,
                      const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, order, function, p, job->size, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, order, function, p, job->size, rows);
  else
    row_of(CPU_BFLOAT16, order, function, p, job->size, rows);
}

CPU_TEMPLATE void halves_row(gated_fn function, const gated_job *job, const cpu_rows *rows) {
  row(HALVES, function, job, &job->p, rows);
}

static fl_status gated(fl_call *call, cpu_row_fn row_function, parameters p) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  const gated_job job = {cpu_dtype_of(x), x->shape[x->ndim - 1] / 2, p};
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(2, tensors, (cpu_row_cost){3 * bytes * CPU_WORK_EXP, bytes}, row_function, &job);
}

CPU_TEMPLATE float silu_gate(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)p;
  return cpu_round(dtype, vector_silu(gate)) * up;
}

static void silu_row(const void *job, const cpu_rows *rows) {
  halves_row(silu_gate, job, rows);
}

/* silu_and_mul(x) -> out */
fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, silu_row, (parameters){0});
}

CPU_TEMPLATE float silu_factor(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)p;
  return gate * cpu_round(dtype, vector_silu(up));
}

static void silu_factor_row(const void *job, const cpu_rows *rows) {
  halves_row(silu_factor, job, rows);
}

/* mul_and_silu(x) -> out */
static fl_status mul_and_silu(void *self, fl_call *call) {
  (void)self;
  return gated(call, silu_factor_row, (parameters){0});
}

CPU_TEMPLATE float gelu_gate(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)p;
  return cpu_round(dtype, vector_gelu(gate)) * up;
}

CPU_TEMPLATE float gelu_tanh_gate(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)p;
  return cpu_round(dtype, vector_gelu_tanh(gate)) * up;
}

static void gelu_row(const void *job, const cpu_rows *rows) {
  halves_row(gelu_gate, job, rows);
}

static void gelu_tanh_row(const void *job, const cpu_rows *rows) {
  halves_row(gelu_tanh_gate, job, rows);
}

static bool is_tanh(const fl_value *approximate) {
  return !strcmp(approximate->v.s, "tanh");
}

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, is_tanh(&call->values[1]) ? gelu_tanh_row : gelu_row, (parameters){0});
}

/* g sigmoid(alpha g), rounded at each step, of the clamped gate; the factor is clamped and shifted by `shift`. `plain`:
 * alpha is 1 and the shift 0, which leave nothing to round; and what is NaN then makes the result so. */
CPU_TEMPLATE float clamp_and_gate(cpu_dtype dtype, const parameters *p, bool plain, float shift, float gate, float up) {
  float limit = cpu_round(dtype, p->limit), factor = vector_clamp(up, limit) + shift;
  float limited = vector_clamp_above(gate, limit);
  float logistic = plain ? vector_sigmoid_factor(limited) : vector_sigmoid(cpu_round(dtype, limited * p->alpha));
  return cpu_round(dtype, limited * cpu_round(dtype, logistic)) * (plain ? factor : cpu_round(dtype, factor));
}

CPU_TEMPLATE float swigluoai(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return clamp_and_gate(dtype, p, false, 1.0f, gate, up);
}

static void swigluoai_row(const void *user, const cpu_rows *rows) {
  const gated_job *job = user;
  row(INTERLEAVED, swigluoai, job, &job->p, rows);
}

/* swigluoai_and_mul(x, alpha, limit) -> out */
fl_status cpu_flagos_swigluoai_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, swigluoai_row,
               (parameters){.alpha = (float)call->values[1].v.f, .limit = (float)call->values[2].v.f});
}

CPU_TEMPLATE float silu_with_clamp(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return clamp_and_gate(dtype, p, false, p->beta, gate, up);
}

CPU_TEMPLATE float plain_silu_with_clamp(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return clamp_and_gate(dtype, p, true, p->beta, gate, up);
}

static void silu_with_clamp_row(const void *job, const cpu_rows *rows) {
  halves_row(silu_with_clamp, job, rows);
}

static void plain_silu_with_clamp_row(const void *job, const cpu_rows *rows) {
  halves_row(plain_silu_with_clamp, job, rows);
}

/* silu_and_mul_with_clamp(x, limit, alpha, beta) -> out */
static fl_status silu_and_mul_with_clamp(void *self, fl_call *call) {
  const fl_value *values = call->values;
  const parameters p = {.limit = (float)values[1].v.f, .alpha = (float)values[2].v.f, .beta = (float)values[3].v.f};
  bool plain = p.alpha == 1.0f && p.beta == 0.0f;
  (void)self;
  return gated(call, plain ? plain_silu_with_clamp_row : silu_with_clamp_row, p);
}

CPU_TEMPLATE float fatrelu(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)dtype;
  return (gate <= p->limit ? 0.0f : gate) * up;
}

static void fatrelu_row(const void *job, const cpu_rows *rows) {
  halves_row(fatrelu, job, rows);
}

/* fatrelu_and_mul(x, threshold) -> out */
static fl_status fatrelu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, fatrelu_row, (parameters){.limit = (float)call->values[1].v.f});
}

CPU_TEMPLATE float swiglustep(cpu_dtype dtype, const parameters *p, float gate, float up) {
  float limit = cpu_round(dtype, p->limit);
  return vector_clamp_above(cpu_round(dtype, vector_silu(gate)), limit) * vector_clamp(up, limit);
}

static void swiglustep_row(const void *job, const cpu_rows *rows) {
  halves_row(swiglustep, job, rows);
}

/* swiglustep_and_mul(x, limit) -> out */
fl_status cpu_flagos_swiglustep_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, swiglustep_row, (parameters){.limit = (float)call->values[1].v.f});
}

CPU_TEMPLATE float situ(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)dtype;
  return p->beta * vector_tanh(gate / p->beta) * vector_sigmoid(gate) * up;
}

CPU_TEMPLATE float situ_limited(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return situ(dtype, p, gate, p->limit * vector_tanh(up / p->limit));
}

static void situ_row(const void *job, const cpu_rows *rows) {
  halves_row(situ, job, rows);
}

static void situ_limited_row(const void *job, const cpu_rows *rows) {
  halves_row(situ_limited, job, rows);
}

/* situ_and_mul(x, beta, linear_beta) -> out */
static fl_status situ_and_mul(void *self, fl_call *call) {
  const fl_value *linear_beta = &call->values[2];
  parameters p = {.beta = (float)call->values[1].v.f};
  (void)self;
  if (linear_beta->type != FL_FLOAT)
    return gated(call, situ_row, p);
  p.limit = (float)linear_beta->v.f;
  return gated(call, situ_limited_row, p);
}

/* --------------------------------------------------------------------------------------------- gelu_and_mul_sparse */

/* Sum of what the first `size` elements of a row deviate from `mean`, or of the squares of that; in double, whose
 * digits outlast any order of additions, and in lanes, which are independent of each other. Lanes beyond the end count
 * as `mean`. */
CPU_TEMPLATE void add_deviations(cpu_dtype dtype, const void *row, int64_t first, int64_t n, double mean, bool squared,
                                 double *sums) {
  float values[CPU_CHUNK];
  cpu_load(dtype, values, row, first, n);
  for (int i = 0; i < CPU_CHUNK; i++) {
    double apart = i < n ? (double)values[i] - mean : 0;
    sums[i] += squared ? apart * apart : apart;
  }
}

CPU_TEMPLATE double sum_row(cpu_dtype dtype, const void *row, int64_t size, double mean, bool squared) {
  double sums[CPU_CHUNK] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    add_deviations(dtype, row, i, CPU_CHUNK, mean, squared, sums);
  if (i < size)
    add_deviations(dtype, row, i, size - i, mean, squared, sums);
  for (int lane = 0; lane < CPU_CHUNK; lane++)
    sum += sums[lane];
  return sum;
}

/* mean + std * quantile, rounded at each step. */
CPU_TEMPLATE float cut_of(cpu_dtype dtype, const void *row, int64_t size, float quantile) {
  double mean = sum_row(dtype, row, size, 0, false) / (double)size;
  float deviation = (float)sqrt(sum_row(dtype, row, size, mean, true) / (double)size);
  float scaled = cpu_round(dtype, cpu_round(dtype, deviation) * quantile);
  return cpu_round(dtype, cpu_round(dtype, (float)mean) + scaled);
}

/* `limit` is the cut. */
CPU_TEMPLATE float sparse_gate(cpu_dtype dtype, const parameters *p, float gate) {
  float above = cpu_round(dtype, gate - p->limit);
  return above < 0.0f ? 0.0f : above;
}

CPU_TEMPLATE float sparse_gelu(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return gelu_gate(dtype, p, sparse_gate(dtype, p, gate), up);
}

CPU_TEMPLATE float sparse_gelu_tanh(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return gelu_tanh_gate(dtype, p, sparse_gate(dtype, p, gate), up);
}

/* `limit` of the job is the quantile. */
static parameters cut_of_row(const gated_job *job, const void *x) {
  float quantile = job->p.limit;
  if (job->dtype == CPU_FLOAT32)
    return (parameters){.limit = cut_of(CPU_FLOAT32, x, job->size, quantile)};
  if (job->dtype == CPU_FLOAT16)
    return (parameters){.limit = cut_of(CPU_FLOAT16, x, job->size, quantile)};
  return (parameters){.limit = cut_of(CPU_BFLOAT16, x, job->size, quantile)};
}

static void sparse_row(const void *user, const cpu_rows *rows) {
  const parameters p = cut_of_row(user, rows->at[0]);
  row(HALVES, sparse_gelu, user, &p, rows);
}

static void sparse_tanh_row(const void *user, const cpu_rows *rows) {
  const parameters p = cut_of_row(user, rows->at[0]);
  row(HALVES, sparse_gelu_tanh, user, &p, rows);
}

/* gelu_and_mul_sparse(x, activation_sparsity, approximate) -> out */
static fl_status gelu_and_mul_sparse(void *self, fl_call *call) {
  const parameters quantile = {.limit = cpu_normal_quantile(call->values[1].v.f)};
  (void)self;
  return gated(call, is_tanh(&call->values[2]) ? sparse_tanh_row : sparse_row, quantile);
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
