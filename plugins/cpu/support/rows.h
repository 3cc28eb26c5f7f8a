/*
 * Walks over the rows (last dimension) of several tensors of the same leading shape in step, whatever the strides of
 * their leading dimensions. A kernel is a function of a row, which cpu_rows_run calls for all of them, or a loop:
 *     DLTensor *const tensors[] = {x, out};
 *     for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
 *       one_row(rows.at[0], rows.at[1]);
 */
#ifndef FLHOST_CPU_SUPPORT_ROWS_H
#define FLHOST_CPU_SUPPORT_ROWS_H

#include "plugins/cpu/cpu.h"

#include <stddef.h>
#include <string.h>

enum { CPU_ROWS_TENSORS = 4 };

/* A leading dimension. */
typedef struct cpu_rows_dim {
  int64_t size, index;              /* index: where the walk is */
  int64_t stride[CPU_ROWS_TENSORS]; /* in bytes */
} cpu_rows_dim;

typedef struct cpu_rows {
  int n_tensors, n_dims;           /* n_dims: leading dimensions */
  bool around;                     /* the caches: where results are written that none would hold */
  bool far;                        /* rows come from behind the second cache */
  int64_t left;                    /* rows still to come, the present one included */
  void *at[CPU_ROWS_TENSORS];      /* the present row of each tensor; NULL where there is no tensor */
  int64_t bytes[CPU_ROWS_TENSORS]; /* of a row of each, if its elements follow each other */
  cpu_rows_dim dims[FL_MAX_DIMS];  /* the last: what lies behind those that there are is not copied */
} cpu_rows;

/* The leading shape is that of the first tensor, which must be there; others may be NULL. Dimensions that there are not
 * stay as they are: eight would take longer to clear, or to copy, than a short row to compute. */
static inline void cpu_rows_set(cpu_rows *rows, int n_tensors, DLTensor *const *tensors) {
  rows->n_tensors = n_tensors;
  rows->n_dims = tensors[0]->ndim - 1;
  rows->around = rows->far = false;
  rows->left = 1;
  for (int d = 0; d < rows->n_dims; d++) {
    rows->dims[d].size = tensors[0]->shape[d];
    rows->dims[d].index = 0;
    rows->left *= rows->dims[d].size;
  }
  for (int t = 0; t < CPU_ROWS_TENSORS; t++) {
    const DLTensor *tensor = t < n_tensors ? tensors[t] : NULL;
    const int64_t item = tensor ? (tensor->dtype.bits + 7) / 8 : 0;
    rows->at[t] = tensor ? fl_data(tensor) : NULL;
    rows->bytes[t] = tensor && tensor->ndim > rows->n_dims ? tensor->shape[rows->n_dims] * item : item;
    for (int d = 0; d < rows->n_dims; d++)
      rows->dims[d].stride[t] = tensor ? fl_stride(tensor, d) * item : 0;
  }
}

static inline cpu_rows cpu_rows_begin(int n_tensors, DLTensor *const *tensors) {
  cpu_rows rows;
  cpu_rows_set(&rows, n_tensors, tensors);
  return rows;
}

static inline void cpu_rows_copy(cpu_rows *to, const cpu_rows *from) {
  memcpy(to, from, offsetof(cpu_rows, dims));
  for (int d = 0; d < from->n_dims; d++)
    to->dims[d] = from->dims[d];
}

/* A walk over the other leading dimensions: its rows are all rows of the last one. Of rows that have just begun. */
static inline cpu_rows cpu_rows_without_last(const cpu_rows *rows) {
  cpu_rows others;
  cpu_rows_copy(&others, rows);
  const cpu_rows_dim last = others.dims[--others.n_dims];
  for (int t = 0; t < others.n_tensors; t++)
    others.bytes[t] = last.stride[t] > 0 ? last.size * last.stride[t] : others.bytes[t];
  others.left = last.size ? others.left / last.size : 0;
  return others;
}

/* How many there are. */
static inline int64_t cpu_rows_of(const DLTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->ndim - 1; d++)
    n *= tensor->shape[d];
  return n;
}

static inline void cpu_rows_next(cpu_rows *rows) {
  rows->left--;
  for (cpu_rows_dim *dim = rows->dims + rows->n_dims; dim-- > rows->dims;) {
    bool wraps = ++dim->index == dim->size;
    int64_t steps = wraps ? 1 - dim->size : 1;
    for (int t = 0; t < rows->n_tensors; t++)
      if (rows->at[t])
        rows->at[t] = (char *)rows->at[t] + steps * dim->stride[t];
    if (!wraps)
      return;
    dim->index = 0;
  }
}

/* Steps that many rows forward, at most `left`. */
static inline void cpu_rows_skip(cpu_rows *rows, int64_t n) {
  rows->left -= n;
  for (cpu_rows_dim *dim = rows->dims + rows->n_dims; n && dim-- > rows->dims;) {
    int64_t at = (dim->index + n) % dim->size, steps = at - dim->index;
    n = (dim->index + n) / dim->size;
    dim->index = at;
    for (int t = 0; t < rows->n_tensors; t++)
      if (rows->at[t])
        rows->at[t] = (char *)rows->at[t] + steps * dim->stride[t];
  }
}

/* The last leading dimension: where rows that follow each other lie. Rows without any are one by itself. */
static inline cpu_rows_dim cpu_rows_last(const cpu_rows *rows) {
  return rows->n_dims ? rows->dims[rows->n_dims - 1] : (cpu_rows_dim){.size = 1};
}

/* Which of the first dimension the present row belongs to; 0 where rows have no dimension before them. */
static inline int64_t cpu_rows_first(const cpu_rows *rows) {
  return rows->n_dims ? rows->dims[0].index : 0;
}

/* May a row of this tensor be written around the caches? Then whole lines are. */
static inline bool cpu_rows_around(const cpu_rows *rows, int tensor) {
  return rows->around && !((uintptr_t)rows->at[tensor] % 64);
}

/* The row behind the present one of a tensor, for fetching while this one is computed with a second time. It may lie
 * behind the last row, and is not to be read. */
typedef struct cpu_next_row {
  const char *at; /* NULL: it is not worth fetching */
  bool is_short;  /* the first cache has room for both rows and more, else the second one */
} cpu_next_row;

/* Rows that come from the second cache are fetched from there only if the first one has room for them. */
static inline cpu_next_row cpu_rows_ahead(const cpu_rows *rows, int tensor, int64_t bytes) {
  const int64_t is_short = 8 << 10, most = rows->far ? 256 << 10 : 16 << 10;
  if (!rows->at[tensor] || !rows->n_dims || bytes > most)
    return (cpu_next_row){NULL, false};
  return (cpu_next_row){(const char *)rows->at[tensor] + rows->dims[rows->n_dims - 1].stride[tensor],
                        !rows->far || bytes <= is_short};
}

/* Computes the present row. Any thread may call it, for rows in any order. */
typedef void (*cpu_row_fn)(const void *user, const cpu_rows *rows);

/* What a row costs. */
typedef struct cpu_row_cost {
  int64_t work;    /* bytes read and written, times CPU_WORK_EXP where each element wants an exponential function */
  int64_t written; /* bytes that go to memory which the kernel does not read */
} cpu_row_cost;

enum { CPU_WORK_EXP = 3 };

/* Calls `row` for every row, in several threads where there are enough of them. */
fl_status cpu_rows_run(int n_tensors, DLTensor *const *tensors, cpu_row_cost cost, cpu_row_fn row, const void *user);

/* Computes `n` rows from the present one on, which follow each other in the last leading dimension. */
typedef void (*cpu_run_fn)(const void *user, const cpu_rows *rows, int64_t n);

/* The same for rows so short that to call a function for each takes as long as the row. */
fl_status cpu_rows_run_by_run(int n_tensors, DLTensor *const *tensors, cpu_row_cost cost, cpu_run_fn run,
                              const void *user);

/* cpu_rows_run for the rows that are left of a walk. */
fl_status cpu_rows_walk(const cpu_rows *rows, cpu_row_cost cost, cpu_row_fn row, const void *user);

/* Are results of so many bytes written around the caches? They are if this machine's part of the last cache cannot
 * hold them: they would only drive out of it what others need. What lies in no cache is read before it is written,
 * which writing around them saves, where there are instructions for it. */
bool cpu_rows_outgrow_caches(int64_t bytes);

/* Ends a range of results, written around the caches or not: who sees that the range is done sees them. */
void cpu_rows_written(bool around);

/* So many steps of a loop, of `work` each as above, take ten microseconds or more: its grain. */
static inline int64_t cpu_grain(int64_t work) {
  const int64_t enough = 192 << 10;
  return enough / (work > 0 ? work : 1) + 1;
}

#endif
