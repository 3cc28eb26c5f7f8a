/*
 * Gated activations with the roundings of vLLM's native definition: where these fall between steps they decide more
 * than the tolerance allows.
 */
#include "plugins/cpu/gated.h"
#include "plugins/cpu/flagos/vectors/gelu.h"
#include "plugins/cpu/flagos/vectors/lookup.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/quantile.h"

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
  const uint16_t *results; /* of the activation, where they are looked up */
} gated_job;

/* The activations of a chunk of gates: numbers of the type, if they may be looked up. */
typedef void (*gate_fn)(cpu_dtype dtype, const parameters *p, float *gates);

/* What becomes of the factor before it is multiplied with that. */
typedef struct factor_form {
  float (*of)(cpu_dtype dtype, const parameters *p, float up); /* NULL: it stays as it is */
  bool rounded;
} factor_form;

/* Gates, then factors; the other way round; or both in turn. */
typedef enum layout { HALVES, SWAPPED_HALVES, INTERLEAVED } layout;

/* What decides on the instructions. */
typedef struct gated_form {
  layout order;
  gate_fn gate; /* NULL: it is looked up */
  factor_form factor;
  bool is_little; /* to compute; not of the interleaved order */
} gated_form;

/* An activation as ops have it. */
typedef struct gated_function {
  cpu_row_fn row;
  lookup_table *tables; /* LOOKUP_TABLES; NULL: the activation is always computed */
  cpu_row_fn looked_up; /* as `row` */
  cpu_row_fn gates;     /* rows of CPU_CHUNK gates and, of the same type, their activations */
} gated_function;

/* Of pairs in turn, a chunk from pair `first` on, what comes first and what second. */
CPU_TEMPLATE void take_apart(cpu_dtype dtype, char *gates, char *ups, const char *x, int64_t first) {
  const char *from = x + 2 * first * cpu_dtype_size(dtype);
  cpu_fetch_ahead(dtype, x, 2 * first, CPU_CHUNK);
  cpu_fetch_ahead(dtype, x, 2 * first + CPU_CHUNK, CPU_CHUNK);
  for (int i = 0; i < CPU_CHUNK && dtype == CPU_FLOAT32; i++) {
    ((cpu_element32 *)gates)[i] = ((const cpu_element32 *)from)[2 * i];
    ((cpu_element32 *)ups)[i] = ((const cpu_element32 *)from)[2 * i + 1];
  }
  for (int i = 0; i < CPU_CHUNK && dtype != CPU_FLOAT32; i++) {
    ((cpu_element16 *)gates)[i] = ((const cpu_element16 *)from)[2 * i];
    ((cpu_element16 *)ups)[i] = ((const cpu_element16 *)from)[2 * i + 1];
  }
}

/* `ups`: not of the interleaved order. */
CPU_TEMPLATE void chunk(cpu_dtype dtype, gated_form form, const parameters *p, const uint16_t *results,
                        const char *gates, const char *ups, char *out, int64_t first, bool around) {
  float gate[CPU_CHUNK], up[CPU_CHUNK];
  char apart[2][sizeof gate], found[LOOKUP_BYTES];
  const int step = form.order == INTERLEAVED ? 2 : 1;
  int64_t at = first;
  const char *numbers = gates + step * first * (int64_t)sizeof *results;
  if (form.order == INTERLEAVED) {
    take_apart(dtype, apart[0], apart[1], gates, first);
    gates = apart[0];
    ups = apart[1];
    at = 0;
  } else if (form.is_little) {
    cpu_fetch_next(dtype, gates, at, CPU_CHUNK);
    cpu_fetch_next(dtype, ups, at, CPU_CHUNK);
  } else {
    cpu_fetch_ahead(dtype, gates, at, CPU_CHUNK);
    cpu_fetch_ahead(dtype, ups, at, CPU_CHUNK);
  }
  if (form.gate) {
    cpu_load(dtype, gate, gates, at, CPU_CHUNK);
  } else {
    lookup_chunk(results, found, numbers, step);
    cpu_widen(dtype, gate, found);
  }
  cpu_load(dtype, up, ups, at, CPU_CHUNK);
  if (form.gate)
    form.gate(dtype, p, gate);
  for (int i = 0; i < CPU_CHUNK && form.factor.of; i++)
    up[i] = form.factor.of(dtype, p, up[i]);
  if (form.factor.rounded)
    cpu_round_chunk(dtype, up);
  for (int i = 0; i < CPU_CHUNK; i++)
    gate[i] *= up[i];
  cpu_store_around(dtype, out, first, gate, CPU_CHUNK, around);
}

CPU_TEMPLATE void row_of(cpu_dtype dtype, gated_form form, const gated_job *job, const parameters *attributes,
                         const cpu_rows *rows) {
  const parameters p = *attributes;
  const uint16_t *results = job->results;
  const int64_t bytes = cpu_dtype_size(dtype), of_gate = form.order == INTERLEAVED ? 2 * bytes : bytes;
  const char *x = rows->at[0], *behind = x + job->size * bytes;
  cpu_span span;
  for (cpu_span_begin(&span, job->size, CPU_CHUNK, cpu_rows_around(rows, 1)); span.size; cpu_span_next(&span)) {
    const char *gates = cpu_span_in(&span, 0, form.order == SWAPPED_HALVES ? behind : x, of_gate);
    const char *ups =
        form.order == INTERLEAVED ? NULL : cpu_span_in(&span, 1, form.order == HALVES ? behind : x, bytes);
    char *out = cpu_span_out(&span, 0, rows->at[1]);
    const bool around = span.around;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK)
      chunk(dtype, form, &p, results, gates, ups, out, i, around);
    cpu_span_end(&span, 0, rows->at[1], bytes);
  }
}

/* The row function of an activation that is computed; `p` is the job's or the row's. */
CPU_TEMPLATE void row(gated_form form, const gated_job *job, const parameters *p, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, form, job, p, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, form, job, p, rows);
  else
    row_of(CPU_BFLOAT16, form, job, p, rows);
}

CPU_TEMPLATE void halves_row(gate_fn gate, factor_form factor, const gated_job *job, const cpu_rows *rows) {
  row((gated_form){HALVES, gate, factor, false}, job, &job->p, rows);
}

/* The same of one that is looked up, whichever that is. */
CPU_TEMPLATE void looked_up_row(layout order, factor_form factor, const gated_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, (gated_form){order, NULL, factor, false}, job, &job->p, rows);
  else
    row_of(CPU_BFLOAT16, (gated_form){order, NULL, factor, false}, job, &job->p, rows);
}

/* Not by cpu_store, which may make 0 of what is smaller than a normal number: a factor can make more of it. */
CPU_TEMPLATE void gates_as(cpu_dtype dtype, gate_fn function, const parameters *p, const cpu_rows *rows) {
  float values[CPU_CHUNK];
  uint16_t *out = rows->at[1];
  cpu_load(dtype, values, rows->at[0], 0, CPU_CHUNK);
  function(dtype, p, values);
  if (dtype == CPU_FLOAT16)
    cpu_narrow_float16((char *)out, values);
  for (int i = 0; i < CPU_CHUNK && dtype == CPU_BFLOAT16; i++)
    out[i] = (uint16_t)(fl_float_bits(values[i]) >> 16);
}

CPU_TEMPLATE void gates_row(gate_fn function, const gated_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT16)
    gates_as(CPU_FLOAT16, function, &job->p, rows);
  else
    gates_as(CPU_BFLOAT16, function, &job->p, rows);
}

/* x is the call's first value, out its last. */
static fl_status gated(fl_call *call, const gated_function *function, parameters p) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  gated_job job = {.dtype = cpu_dtype_of(x), .size = x->shape[x->ndim - 1] / 2, .p = p};
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  const lookup_function computed = {job.dtype, function->gates, &job, &p, sizeof p};
  job.results = lookup_results(function->tables, &computed, cpu_rows_of(x) * job.size);
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(2, tensors, (cpu_row_cost){3 * bytes * (job.results ? 1 : CPU_WORK_EXP), bytes},
                      job.results ? function->looked_up : function->row, &job);
}

static const factor_form as_it_is;

static void looked_up_halves_row(const void *job, const cpu_rows *rows) {
  looked_up_row(HALVES, as_it_is, job, rows);
}

CPU_TEMPLATE void silu(cpu_dtype dtype, const parameters *p, float *gates) {
  (void)p;
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] = vector_silu(gates[i]);
  cpu_round_chunk(dtype, gates);
}

static void silu_row(const void *job, const cpu_rows *rows) {
  halves_row(silu, as_it_is, job, rows);
}

static void silu_gates(const void *job, const cpu_rows *rows) {
  gates_row(silu, job, rows);
}

static lookup_table silu_tables[LOOKUP_TABLES];

const uint16_t *cpu_silu_results(cpu_dtype dtype, int64_t elements) {
  const gated_job job = {.dtype = dtype, .size = CPU_CHUNK};
  const lookup_function computed = {dtype, silu_gates, &job, &job.p, sizeof job.p};
  return lookup_results(silu_tables, &computed, elements);
}

/* silu_and_mul(x) -> out */
fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call) {
  static const gated_function function = {silu_row, silu_tables, looked_up_halves_row, silu_gates};
  (void)self;
  return gated(call, &function, (parameters){0});
}

static void swapped_silu_row(const void *user, const cpu_rows *rows) {
  const gated_job *job = user;
  row((gated_form){SWAPPED_HALVES, silu, as_it_is, false}, job, &job->p, rows);
}

static void looked_up_swapped_row(const void *job, const cpu_rows *rows) {
  looked_up_row(SWAPPED_HALVES, as_it_is, job, rows);
}

/* mul_and_silu(x) -> out */
static fl_status mul_and_silu(void *self, fl_call *call) {
  static const gated_function function = {swapped_silu_row, silu_tables, looked_up_swapped_row, silu_gates};
  (void)self;
  return gated(call, &function, (parameters){0});
}

CPU_TEMPLATE void gelu(cpu_dtype dtype, const parameters *p, float *gates) {
  (void)p;
  cpu_gelu_chunk(gates);
  cpu_round_chunk(dtype, gates);
}

static void gelu_row(const void *job, const cpu_rows *rows) {
  halves_row(gelu, as_it_is, job, rows);
}

static void gelu_gates(const void *job, const cpu_rows *rows) {
  gates_row(gelu, job, rows);
}

CPU_TEMPLATE void gelu_tanh(cpu_dtype dtype, const parameters *p, float *gates) {
  (void)p;
  cpu_gelu_tanh_chunk(gates);
  cpu_round_chunk(dtype, gates);
}

static void gelu_tanh_row(const void *job, const cpu_rows *rows) {
  halves_row(gelu_tanh, as_it_is, job, rows);
}

static void gelu_tanh_gates(const void *job, const cpu_rows *rows) {
  gates_row(gelu_tanh, job, rows);
}

static bool is_tanh(const fl_value *approximate) {
  return !strcmp(approximate->v.s, "tanh");
}

static lookup_table gelu_tables[LOOKUP_TABLES], gelu_tanh_tables[LOOKUP_TABLES];

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call) {
  static const gated_function by_erf = {gelu_row, gelu_tables, looked_up_halves_row, gelu_gates},
                              by_tanh = {gelu_tanh_row, gelu_tanh_tables, looked_up_halves_row, gelu_tanh_gates};
  (void)self;
  return gated(call, is_tanh(&call->values[1]) ? &by_tanh : &by_erf, (parameters){0});
}

/* g sigmoid(alpha g), rounded at each step, of the clamped gate. `plain`: alpha is 1, and what is NaN makes the product
 * so. */
CPU_TEMPLATE void clamp_and_gate(cpu_dtype dtype, const parameters *p, bool plain, float *gates) {
  const float limit = cpu_round(dtype, p->limit), alpha = p->alpha;
  float logistic[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++) {
    gates[i] = vector_clamp_above(gates[i], limit);
    logistic[i] = plain ? gates[i] : gates[i] * alpha;
  }
  if (!plain)
    cpu_round_chunk(dtype, logistic);
  for (int i = 0; i < CPU_CHUNK; i++)
    logistic[i] = plain ? vector_sigmoid_factor(logistic[i]) : vector_sigmoid(logistic[i]);
  cpu_round_chunk(dtype, logistic);
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] *= logistic[i];
  cpu_round_chunk(dtype, gates);
}

CPU_TEMPLATE void clamped_gate(cpu_dtype dtype, const parameters *p, float *gates) {
  clamp_and_gate(dtype, p, false, gates);
}

static void clamped_gates(const void *job, const cpu_rows *rows) {
  gates_row(clamped_gate, job, rows);
}

CPU_TEMPLATE void plain_clamped_gate(cpu_dtype dtype, const parameters *p, float *gates) {
  clamp_and_gate(dtype, p, true, gates);
}

static void plain_clamped_gates(const void *job, const cpu_rows *rows) {
  gates_row(plain_clamped_gate, job, rows);
}

/* The factor is clamped, too, and shifted by beta; if that is 0, there is nothing to round. */
CPU_TEMPLATE float clamp_factor(cpu_dtype dtype, const parameters *p, float up) {
  return vector_clamp(up, cpu_round(dtype, p->limit));
}

static const factor_form clamped = {clamp_factor, false};

static void looked_up_clamped_row(const void *job, const cpu_rows *rows) {
  looked_up_row(HALVES, clamped, job, rows);
}

CPU_TEMPLATE float shift_factor(cpu_dtype dtype, const parameters *p, float up) {
  return clamp_factor(dtype, p, up) + p->beta;
}

static const factor_form shifted = {shift_factor, true};

static void looked_up_shifted_row(const void *job, const cpu_rows *rows) {
  looked_up_row(HALVES, shifted, job, rows);
}

static void swigluoai_row(const void *user, const cpu_rows *rows) {
  const gated_job *job = user;
  row((gated_form){INTERLEAVED, clamped_gate, shifted, false}, job, &job->p, rows);
}

static void looked_up_swigluoai_row(const void *job, const cpu_rows *rows) {
  looked_up_row(INTERLEAVED, shifted, job, rows);
}

static lookup_table swigluoai_tables[LOOKUP_TABLES], clamped_silu_tables[LOOKUP_TABLES];

/* swigluoai_and_mul(x, alpha, limit) -> out */
fl_status cpu_flagos_swigluoai_and_mul(void *self, fl_call *call) {
  static const gated_function function = {swigluoai_row, swigluoai_tables, looked_up_swigluoai_row, clamped_gates};
  (void)self;
  return gated(call, &function,
               (parameters){.alpha = (float)call->values[1].v.f, .beta = 1.0f, .limit = (float)call->values[2].v.f});
}

static void silu_with_clamp_row(const void *job, const cpu_rows *rows) {
  halves_row(clamped_gate, shifted, job, rows);
}

static void plain_silu_with_clamp_row(const void *job, const cpu_rows *rows) {
  halves_row(plain_clamped_gate, clamped, job, rows);
}

/* silu_and_mul_with_clamp(x, limit, alpha, beta) -> out */
static fl_status silu_and_mul_with_clamp(void *self, fl_call *call) {
  static const gated_function any = {silu_with_clamp_row, clamped_silu_tables, looked_up_shifted_row, clamped_gates},
                              plain = {plain_silu_with_clamp_row, clamped_silu_tables, looked_up_clamped_row,
                                       plain_clamped_gates};
  const fl_value *values = call->values;
  const parameters p = {.limit = (float)values[1].v.f, .alpha = (float)values[2].v.f, .beta = (float)values[3].v.f};
  (void)self;
  return gated(call, p.alpha == 1.0f && p.beta == 0.0f ? &plain : &any, p);
}

CPU_TEMPLATE void fatrelu(cpu_dtype dtype, const parameters *p, float *gates) {
  const float threshold = p->limit;
  (void)dtype;
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] = gates[i] <= threshold ? 0.0f : gates[i];
}

static void fatrelu_row(const void *user, const cpu_rows *rows) {
  const gated_job *job = user;
  row((gated_form){HALVES, fatrelu, as_it_is, .is_little = true}, job, &job->p, rows);
}

/* fatrelu_and_mul(x, threshold) -> out */
static fl_status fatrelu_and_mul(void *self, fl_call *call) {
  static const gated_function function = {.row = fatrelu_row};
  (void)self;
  return gated(call, &function, (parameters){.limit = (float)call->values[1].v.f});
}

CPU_TEMPLATE void swiglustep(cpu_dtype dtype, const parameters *p, float *gates) {
  const float limit = cpu_round(dtype, p->limit);
  silu(dtype, p, gates);
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] = vector_clamp_above(gates[i], limit);
}

static void swiglustep_row(const void *job, const cpu_rows *rows) {
  halves_row(swiglustep, clamped, job, rows);
}

static void swiglustep_gates(const void *job, const cpu_rows *rows) {
  gates_row(swiglustep, job, rows);
}

static lookup_table swiglustep_tables[LOOKUP_TABLES];

/* swiglustep_and_mul(x, limit) -> out */
fl_status cpu_flagos_swiglustep_and_mul(void *self, fl_call *call) {
  static const gated_function function = {swiglustep_row, swiglustep_tables, looked_up_clamped_row, swiglustep_gates};
  (void)self;
  return gated(call, &function, (parameters){.limit = (float)call->values[1].v.f});
}

/* beta tanh(g / beta) sigmoid(g), by one division: as vector_tanh and vector_sigmoid have them, -e / (2 + e) over 1 +
 * exp(-g). Not rounded: never looked up. */
CPU_TEMPLATE void situ(cpu_dtype dtype, const parameters *p, float *gates) {
  const float beta = fabsf(p->beta), by = -2.0f / beta;
  (void)dtype;
  for (int i = 0; i < CPU_CHUNK; i++) {
    const float gate = gates[i], e = vector_expm1(by * fabsf(gate));
    const float magnitude = beta * e / (-(2.0f + e) * vector_one_plus_exp_minus(gate));
    gates[i] = copysignf(magnitude, gate);
  }
}

CPU_TEMPLATE float limit_factor(cpu_dtype dtype, const parameters *p, float up) {
  (void)dtype;
  return p->limit * vector_tanh(up / p->limit);
}

static const factor_form limited = {limit_factor, false};

static void situ_row(const void *job, const cpu_rows *rows) {
  halves_row(situ, as_it_is, job, rows);
}

static void situ_limited_row(const void *job, const cpu_rows *rows) {
  halves_row(situ, limited, job, rows);
}

/* situ_and_mul(x, beta, linear_beta) -> out */
static fl_status situ_and_mul(void *self, fl_call *call) {
  static const gated_function any = {.row = situ_row}, with_limit = {.row = situ_limited_row};
  const fl_value *linear_beta = &call->values[2];
  parameters p = {.beta = (float)call->values[1].v.f};
  (void)self;
  if (linear_beta->type != FL_FLOAT)
    return gated(call, &any, p);
  p.limit = (float)linear_beta->v.f;
  return gated(call, &with_limit, p);
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
CPU_TEMPLATE void keep_above(cpu_dtype dtype, const parameters *p, float *gates) {
  const float cut = p->limit;
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] -= cut;
  cpu_round_chunk(dtype, gates);
  for (int i = 0; i < CPU_CHUNK; i++)
    gates[i] = gates[i] < 0.0f ? 0.0f : gates[i];
}

CPU_TEMPLATE void sparse_gelu(cpu_dtype dtype, const parameters *p, float *gates) {
  keep_above(dtype, p, gates);
  gelu(dtype, p, gates);
}

CPU_TEMPLATE void sparse_gelu_tanh(cpu_dtype dtype, const parameters *p, float *gates) {
  keep_above(dtype, p, gates);
  gelu_tanh(dtype, p, gates);
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
  row((gated_form){HALVES, sparse_gelu, as_it_is, false}, user, &p, rows);
}

static void sparse_tanh_row(const void *user, const cpu_rows *rows) {
  const parameters p = cut_of_row(user, rows->at[0]);
  row((gated_form){HALVES, sparse_gelu_tanh, as_it_is, false}, user, &p, rows);
}

/* gelu_and_mul_sparse(x, activation_sparsity, approximate) -> out */
static fl_status gelu_and_mul_sparse(void *self, fl_call *call) {
  static const gated_function by_erf = {.row = sparse_row}, by_tanh = {.row = sparse_tanh_row};
  (void)self;
  return gated(call, is_tanh(&call->values[2]) ? &by_tanh : &by_erf,
               (parameters){.limit = normal_quantile(call->values[1].v.f)});
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
