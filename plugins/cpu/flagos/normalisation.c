/*
 * RMS norm: squares are added in float in independent sums, scale and weight are applied in float and rounded once, as
 * vLLM's CUDA and CPU kernels do. The norm is that of the unrounded sum of x and residual, as in vLLM's native
 * definition. The order of additions is fixed: the same bits every time.
 */
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/rows.h"

#include <math.h>

typedef struct norm_row {
  const void *x, *residual, *weight;
  void *out, *residual_out;
  int64_t size, variance_size;
  float epsilon, weight_from;
  bool around, residual_around; /* the caches: out, residual_out */
  cpu_next_row next;            /* of x; with a residual enough is under way */
} norm_row;

/* What decides on the instructions. Of no weight the type is CPU_OTHER. */
typedef struct norm_form {
  cpu_dtype dtype, weight_dtype;
  bool residual;
} norm_form;

/* A chunk of x, plus the residual where there is one. */
CPU_TEMPLATE void load_input(norm_form form, const norm_row *row, float *values, int64_t first, int64_t n) {
  float residual[CPU_CHUNK];
  cpu_load(form.dtype, values, row->x, first, n);
  if (!form.residual)
    return;
  cpu_load(form.dtype, residual, row->residual, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] += residual[i];
}

CPU_TEMPLATE void add_squares(norm_form form, const norm_row *row, float *lanes, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_input(form, row, values, first, n);
  cpu_squares_add_chunk(lanes, values);
}

CPU_TEMPLATE float sum_of_squares(norm_form form, const norm_row *row) {
  cpu_squares squares = {{0}};
  int64_t i = 0, size = row->variance_size;
  for (; i + 2 * CPU_CHUNK <= size; i += 2 * CPU_CHUNK) {
    add_squares(form, row, squares.lanes, i, CPU_CHUNK);
    add_squares(form, row, squares.lanes + CPU_CHUNK, i + CPU_CHUNK, CPU_CHUNK);
  }
  for (; i < size; i += CPU_CHUNK)
    add_squares(form, row, squares.lanes, i, size - i < CPU_CHUNK ? size - i : CPU_CHUNK);
  return cpu_squares_sum(&squares);
}

CPU_TEMPLATE void normalise_chunk(norm_form form, const norm_row *row, float scale, int64_t first, int64_t n) {
  float values[CPU_CHUNK], weight[CPU_CHUNK];
  if (!form.residual && row->next.at)
    cpu_prefetch_chunk(form.dtype, row->next.at, row->next.is_short, first);
  load_input(form, row, values, first, n);
  if (row->residual_out)
    cpu_store_around(form.dtype, row->residual_out, first, values, n, row->residual_around);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] *= scale;
  if (form.weight_dtype != CPU_OTHER) {
    cpu_load_other(form.dtype, form.weight_dtype, weight, row->weight, first, n);
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] *= row->weight_from + weight[i];
  }
  cpu_store_around(form.dtype, row->out, first, values, n, row->around);
}

/* In place is fine: a chunk of x and residual is read for the last time before it is overwritten. */
CPU_TEMPLATE void normalise(norm_form form, const norm_row *of) {
  const norm_row row = *of;
  float scale = 1.0f / sqrtf(sum_of_squares(form, &row) / (float)row.variance_size + row.epsilon);
  int64_t i = 0;
  for (; i + CPU_CHUNK <= row.size; i += CPU_CHUNK)
    normalise_chunk(form, &row, scale, i, CPU_CHUNK);
  if (i < row.size)
    normalise_chunk(form, &row, scale, i, row.size - i);
}

CPU_TEMPLATE void normalise_with(cpu_dtype dtype, cpu_dtype weight_dtype, const norm_row *row) {
  if (row->residual)
    normalise((norm_form){dtype, weight_dtype, true}, row);
  else
    normalise((norm_form){dtype, weight_dtype, false}, row);
}

CPU_TEMPLATE void normalise_as(cpu_dtype dtype, cpu_dtype weight_dtype, const norm_row *row) {
  if (weight_dtype == CPU_OTHER)
    normalise_with(dtype, CPU_OTHER, row);
  else if (weight_dtype == CPU_FLOAT32)
    normalise_with(dtype, CPU_FLOAT32, row);
  else if (weight_dtype == CPU_FLOAT16)
    normalise_with(dtype, CPU_FLOAT16, row);
  else
    normalise_with(dtype, CPU_BFLOAT16, row);
}

/* Functions of their own: together they are more than compilers optimise well. */
static __attribute__((noinline)) void normalise_float32(cpu_dtype weight_dtype, const norm_row *row) {
  normalise_as(CPU_FLOAT32, weight_dtype, row);
}

static __attribute__((noinline)) void normalise_float16(cpu_dtype weight_dtype, const norm_row *row) {
  normalise_as(CPU_FLOAT16, weight_dtype, row);
}

static __attribute__((noinline)) void normalise_bfloat16(cpu_dtype weight_dtype, const norm_row *row) {
  normalise_as(CPU_BFLOAT16, weight_dtype, row);
}

static void norm_one_row(const void *user, const cpu_rows *rows) {
  static void (*const functions[CPU_N_DTYPES])(cpu_dtype weight_dtype, const norm_row *row) = {
      [CPU_FLOAT32] = normalise_float32, [CPU_FLOAT16] = normalise_float16, [CPU_BFLOAT16] = normalise_bfloat16};
  const cpu_norm *norm = user;
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype);
  const norm_row row = {.x = rows->at[0],
                        .residual = rows->at[1],
                        .weight = norm->weight ? fl_data(norm->weight) : NULL,
                        .out = rows->at[2],
                        .residual_out = rows->at[3],
                        .size = norm->hidden,
                        .variance_size = norm->variance_size,
                        .epsilon = norm->epsilon,
                        .weight_from = norm->from_one ? 1.0f : 0.0f,
                        .around = cpu_rows_around(rows, 2),
                        .residual_around = cpu_rows_around(rows, 3),
                        .next = rows->far ? cpu_rows_ahead(rows, 0, bytes) : (cpu_next_row){NULL, false}};
  functions[norm->dtype](norm->weight ? norm->weight_dtype : CPU_OTHER, &row);
}

static bool same_place(const DLTensor *a, const DLTensor *b) {
  return a && b && fl_data(a) == fl_data(b);
}

fl_status cpu_flagos_norm(const cpu_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype), touched = norm->residual ? 4 : 2;
  bool in_place = same_place(norm->x, norm->out) || same_place(norm->residual, norm->residual_out);
  return cpu_rows_run(4, tensors, (cpu_row_cost){touched * bytes, in_place ? 0 : touched / 2 * bytes}, norm_one_row,
                      norm);
}

static const fl_impl ops[] = {
    {.op_name = "rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "fused_add_rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "gemma_rms_norm", CPU_FLAGOS, .fn = cpu_gemma_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
};
OP_LIST(ops);
