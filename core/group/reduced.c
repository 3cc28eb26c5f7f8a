/*
 * Reductions that a communicator does not know: all ranks' elements are gathered, some at a time, and every rank that
 * wants the result reduces them on the processor, in the order of ranks, so that all get the same bits. float16,
 * bfloat16 and float8 are reduced in float32 and rounded once. Elements on a device are copied to the host and back.
 */
#include "core/group/reduced.h"

#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------- one column's end */

/* An element as what it is reduced in. */
typedef union number {
  double f;
  float s;
  int64_t i;
} number;

typedef enum domain { SINGLE, DOUBLE, INTEGER, TRUTH } domain;

static domain domain_of(DLDataType dtype) {
  if (dtype.code == FL_DTYPE_BOOL)
    return TRUTH;
  if (dtype.code == kDLInt || dtype.code == kDLUInt)
    return INTEGER;
  return dtype.bits == 64 ? DOUBLE : SINGLE;
}

static number load(domain in, const fl_element_type *type, const void *data, int64_t i) {
  number n = {0};
  if (in == SINGLE)
    n.s = (float)type->get(data, i);
  else if (in == DOUBLE)
    n.f = ((const double *)data)[i];
  else if (in == TRUTH)
    n.i = ((const uint8_t *)data)[i] != 0;
  else if (type->bit == FL_INT64)
    n.i = ((const int64_t *)data)[i];
  else
    n.i = (int64_t)type->get(data, i);
  return n;
}

static void store(domain in, const fl_element_type *type, void *data, int64_t i, number n) {
  if (in == SINGLE)
    type->put(data, i, n.s);
  else if (in == DOUBLE)
    ((double *)data)[i] = n.f;
  else if (type->bit == FL_INT64)
    ((int64_t *)data)[i] = n.i;
  else if (type->bit == FL_INT32)
    ((int32_t *)data)[i] = (int32_t)(uint32_t)(uint64_t)n.i; /* wraps around */
  else
    ((uint8_t *)data)[i] = (uint8_t)(uint64_t)n.i;
}

/* A NaN wins, as in torch.maximum. */
static double combine_floats(int32_t reduction, double a, double b) {
  switch (reduction) {
  case FL_REDUCE_PROD:
    return a * b;
  case FL_REDUCE_MAX:
    return a > b || isnan(a) ? a : b;
  case FL_REDUCE_MIN:
    return a < b || isnan(a) ? a : b;
  default:
    return a + b;
  }
}

static int64_t combine_integers(int32_t reduction, int64_t a, int64_t b) {
  switch (reduction) {
  case FL_REDUCE_PROD:
    return (int64_t)((uint64_t)a * (uint64_t)b);
  case FL_REDUCE_MAX:
    return a > b ? a : b;
  case FL_REDUCE_MIN:
    return a < b ? a : b;
  default:
    return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

/* The sum or product of two floats as doubles, rounded to float, is that of floats: 53 bits are more than twice 24. */
static number combine(domain in, int32_t reduction, number a, number b) {
  number n = {0};
  if (in == SINGLE)
    n.s = (float)combine_floats(reduction, (double)a.s, (double)b.s);
  else if (in == DOUBLE)
    n.f = combine_floats(reduction, a.f, b.f);
  else if (in == INTEGER)
    n.i = combine_integers(reduction, a.i, b.i);
  else
    n.i = reduction == FL_REDUCE_PROD || reduction == FL_REDUCE_MIN ? a.i & b.i : a.i | b.i;
  return n;
}

static number divide(domain in, number n, int32_t ranks) {
  if (in == SINGLE)
    n.s /= (float)ranks;
  else if (in == DOUBLE)
    n.f /= (double)ranks;
  else
    n.i /= ranks;
  return n;
}

/* What the type can hold of an integer sum, before it is divided. */
static number wrapped(const fl_element_type *type, number n) {
  int above = 64 - type->dtype.bits;
  uint64_t shifted = (uint64_t)n.i << above;
  n.i = type->dtype.code == kDLUInt ? (int64_t)(shifted >> above) : (int64_t)shifted >> above;
  return n;
}

/* `ranks` rows of `count` elements into one. */
static void reduce_rows(const fl_element_type *type, int32_t reduction, const void *rows, int32_t ranks, int64_t count,
                        void *result) {
  domain in = domain_of(type->dtype);
  for (int64_t i = 0; i < count; i++) {
    number n = load(in, type, rows, i);
    for (int32_t r = 1; r < ranks; r++)
      n = combine(in, reduction, n, load(in, type, rows, r * count + i));
    if (reduction == FL_REDUCE_AVG)
      n = divide(in, in == INTEGER ? wrapped(type, n) : n, ranks);
    store(in, type, result, i, n);
  }
}

/* ------------------------------------------------------------------------------------------------------ the host's */

/* The group's room for what is gathered, and bytes of it at a time. */
enum { GATHERED = 1, AT_A_TIME = 1 << 20 };

static char *place(const void *buffer, int64_t i, size_t item) {
  return (char *)(uintptr_t)buffer + (size_t)i * item;
}

/* All ranks' `count` elements at `send`, reduced into `recv` where that is not NULL. */
static fl_status reduce_part(fl_group *group, const fl_collective *c, const void *send, void *recv, int64_t count) {
  size_t item = c->dtype.bits / 8, size = (size_t)count * item, all_size = size * (size_t)group->ranks;
  char *all = fl_group_memory(group, GATHERED, all_size);
  if (!all)
    return fl_error_status();
  fl_collective gather = fl_collective_of(FL_ALL_GATHER, send, all, count, c->dtype, c->stream);
  fl_status status = fl_collective_make(group, &gather);
  if (status || !recv)
    return status;
  if (group->on_host) {
    reduce_rows(fl_element_type_of(c->dtype), c->reduction, all, group->ranks, count, recv);
    return FL_OK;
  }
  char *here = calloc(1, size + all_size); /* the result, and all of it */
  if (!here)
    return fl_error_no_memory();
  status = fl_device_copy(group->host, group->device, here + size, all, all_size, FL_COPY_TO_HOST, c->stream);
  if (!status) {
    reduce_rows(fl_element_type_of(c->dtype), c->reduction, here + size, group->ranks, count, here);
    status = fl_device_copy(group->host, group->device, recv, here, size, FL_COPY_TO_DEVICE, c->stream);
  }
  free(here);
  return status;
}

/* Some elements at a time, so that no more memory is needed than for these. */
static fl_status reduce_slices(fl_group *group, const fl_collective *c, const void *send, void *recv, int64_t count) {
  size_t item = c->dtype.bits / 8;
  int64_t step = AT_A_TIME / (int64_t)(item * (size_t)group->ranks) + 1;
  fl_status status = FL_OK;
  for (int64_t from = 0; from < count && !status; from += step) {
    int64_t n = count - from < step ? count - from : step;
    status = reduce_part(group, c, place(send, from, item), recv ? place(recv, from, item) : NULL, n);
  }
  return status;
}

fl_status fl_collective_reduce_here(fl_group *group, const fl_collective *c) {
  size_t item = c->dtype.bits / 8;
  fl_status status = FL_OK;
  bool scatters = c->kind == FL_REDUCE_SCATTER || c->kind == FL_REDUCE_SCATTER_V;
  if (!scatters)
    return reduce_slices(group, c, c->send, c->kind == FL_ALL_REDUCE || c->root == group->rank ? c->recv : NULL,
                         c->count);
  /* The part of each rank in turn. In place, a part's result lies in that part alone. */
  for (int32_t i = 0; i < group->ranks && !status; i++) {
    int64_t from = c->kind == FL_REDUCE_SCATTER ? i * c->count : c->recv_offsets[i];
    int64_t count = c->kind == FL_REDUCE_SCATTER ? c->count : c->recv_counts[i];
    status = reduce_slices(group, c, place(c->send, from, item), i == group->rank ? c->recv : NULL, count);
  }
  return status;
}

static void divide_all(const fl_element_type *type, void *elements, int64_t count, int32_t ranks) {
  domain in = domain_of(type->dtype);
  for (int64_t i = 0; i < count; i++)
    store(in, type, elements, i, divide(in, load(in, type, elements, i), ranks));
}

fl_status fl_collective_divide(fl_group *group, void *elements, int64_t count, DLDataType dtype, void *stream) {
  const fl_element_type *type = fl_element_type_of(dtype);
  size_t size = (size_t)count * (dtype.bits / 8);
  if (!count)
    return FL_OK;
  if (group->on_host) {
    divide_all(type, elements, count, group->ranks);
    return FL_OK;
  }
  void *here = calloc(1, size);
  if (!here)
    return fl_error_no_memory();
  fl_status status = fl_device_copy(group->host, group->device, here, elements, size, FL_COPY_TO_HOST, stream);
  if (!status) {
    divide_all(type, here, count, group->ranks);
    status = fl_device_copy(group->host, group->device, elements, here, size, FL_COPY_TO_DEVICE, stream);
  }
  free(here);
  return status;
}
