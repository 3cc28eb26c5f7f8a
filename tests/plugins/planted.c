/*
 * An op with a reference implementation that is right, and one of a vendor with an error that `flhost verify` must
 * find. Built once for each error (ERROR, NAME).
 */
#include <flhost/plugin.h>

#include <math.h>
#include <stdatomic.h>
#include <string.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

enum error {
  NOTHING,
  LAST_ELEMENT,     /* wrong value at the last element */
  BEHIND_ROW,       /* writes one element behind each row */
  OVERWRITES_INPUT, /* writes an argument that nothing marks as mutable */
  OVERWRITES_X,     /* writes the argument that the result may be, though it is another tensor */
  IGNORES_STRIDE,   /* takes each tensor for compact */
  IGNORES_OFFSET,   /* takes the data pointer for the first element */
  ODD_SIZES,        /* leaves out what does not fill a vector of four */
  DROPS_NAN,        /* gives 0 for NaN */
  IN_PLACE,         /* wrong in place only: reads what it has written */
  FORGETS_WEIGHT,   /* does not look whether the optional argument is there */
  OTHER_THREADS,    /* not the same bits in another thread, though declared deterministic */
  OTHER_BITS,       /* not the same bits when called again */
  ENOTSUP_AFTER_YES,
  WRITES_BEFORE_ENOTSUP,
  FAILS,           /* returns an error that the reference does not return */
  WRONG_PREPARED,  /* prepares another weight than there is */
  PREPARES_BEHIND, /* writes more than it asked for */
  FAILS_TO_PREPARE,
  PREPARES /* well */
};

enum { X, WEIGHT, OUT };

static const fl_op_def op = {.size = sizeof(fl_op_def),
                             .schema = "planted(Tensor(a!) x, Tensor? weight=None) -> Tensor(a) out",
                             .rules = "x: T[..., d]; weight: T[d]; T = float32",
                             .category = "test",
                             .doc = "out = max(x, 0) * weight",
                             .cases = "d: 8 1 33 64; weight: normal none"};

/* The row of that number. */
static float *row_of(const DLTensor *tensor, int64_t number, enum error error) {
  float *row = (float *)(error == IGNORES_OFFSET ? (char *)tensor->data : (char *)fl_data(tensor));
  int64_t d = tensor->shape[tensor->ndim - 1];
  if (error == IGNORES_STRIDE)
    return row + number * d;
  for (int dim = tensor->ndim - 2; dim >= 0; dim--) {
    row += number % tensor->shape[dim] * fl_stride(tensor, dim);
    number /= tensor->shape[dim];
  }
  return row;
}

static float one(float x, float weight, enum error error) {
  if (error == DROPS_NAN)
    return fmaxf(x, 0) * weight;
  return (x < 0 ? 0 : x) * weight;
}

static void run_row(const float *x, const float *weight, float *out, int64_t d, enum error error) {
  int64_t n = error == ODD_SIZES ? d / 4 * 4 : d;
  for (int64_t i = 0; i < n; i++)
    out[i] = one(x[error == IN_PLACE && i ? i - 1 : i], weight ? weight[i] : 1, error);
  for (int64_t i = 0; error == IN_PLACE && x != out && i < n; i++)
    out[i] = one(x[i], weight ? weight[i] : 1, error);
  if (error == BEHIND_ROW)
    out[d] = 0;
}

/* A little more in threads that are not the first one; a little more with each call. */
static float drift(enum error error) {
  static _Thread_local char mark;
  static _Atomic(char *) first;
  static atomic_int calls;
  char *none = NULL;
  if (error == OTHER_BITS)
    return 1 + (float)(atomic_fetch_add(&calls, 1) % 2) * 0x1p-22f;
  if (error != OTHER_THREADS || atomic_compare_exchange_strong(&first, &none, &mark) || none == &mark)
    return 1;
  return 1 + 0x1p-22f;
}

static void spoil(const fl_call *call, int64_t rows, int64_t d, enum error error) {
  const DLTensor *x = call->values[X].v.tensor, *out = call->values[OUT].v.tensor;
  float factor = drift(error);
  if (error == LAST_ELEMENT)
    row_of(out, rows - 1, error)[d - 1] += 1;
  if (error == OVERWRITES_INPUT && call->values[WEIGHT].type == FL_TENSOR)
    *(float *)fl_data(call->values[WEIGHT].v.tensor) = 3;
  if (error == OVERWRITES_X && fl_data(x) != fl_data(out))
    *row_of(x, rows - 1, error) = 3;
  for (int64_t row = 0; factor != 1 && row < rows; row++)
    for (int64_t i = 0; i < d; i++)
      row_of(out, row, error)[i] *= factor;
}

static fl_status run(fl_call *call, enum error error) {
  const DLTensor *x = call->values[X].v.tensor, *out = call->values[OUT].v.tensor;
  const float *weight = call->values[WEIGHT].type == FL_TENSOR ? fl_data(call->values[WEIGHT].v.tensor) : NULL;
  int64_t rows = 1, d = x->shape[x->ndim - 1];
  for (int dim = 0; dim < x->ndim - 1; dim++)
    rows *= x->shape[dim];
  if (error == ENOTSUP_AFTER_YES && d == 64)
    return fl_fail(call, FL_ENOTSUP, "rows of 64 are too long");
  if (error == FAILS && rows > 1000)
    return fl_fail(call, FL_EDEVICE, "too many rows");
  if (error == WRITES_BEFORE_ENOTSUP && d == 64) {
    if (rows)
      *row_of(out, 0, error) = 0;
    return fl_fail(call, FL_ENOTSUP, "rows of 64 are too long");
  }
  if (!rows)
    return FL_OK;
  for (int64_t row = 0; row < rows; row++)
    run_row(row_of(x, row, error), error == FORGETS_WEIGHT ? NULL : weight, row_of(out, row, error), d, error);
  spoil(call, rows, d, error);
  return FL_OK;
}

static fl_status right(void *self, fl_call *call) {
  (void)self;
  return run(call, NOTHING);
}

static size_t prepared_size(void *self, const fl_call *call) {
  (void)self;
  return call->values[WEIGHT].type == FL_TENSOR ? (size_t)call->values[WEIGHT].v.tensor->shape[0] * sizeof(float) : 0;
}

static fl_status prepare(void *self, fl_call *call, void *memory, size_t size) {
  (void)self;
  if (ERROR == FAILS_TO_PREPARE)
    return fl_fail(call, FL_EDEVICE, "no packing today");
  memcpy(memory, fl_data(call->values[WEIGHT].v.tensor), size);
  if (ERROR == WRONG_PREPARED)
    *(float *)memory = 100;
  if (ERROR == PREPARES_BEHIND)
    ((char *)memory)[size] = 0;
  return FL_OK;
}

static fl_status wrong(void *self, fl_call *call) {
  const void *prepared = fl_prepared_data(call, prepare, self);
  if (!prepared)
    return run(call, ERROR);
  DLTensor weight = *call->values[WEIGHT].v.tensor;
  fl_value values[] = {call->values[X], fl_tensor(&weight), call->values[OUT]};
  fl_call with = *call;
  with.values = values;
  weight.data = (void *)(uintptr_t)prepared;
  weight.byte_offset = 0;
  return run(&with, ERROR);
}

static bool says_yes(void *self, const fl_call *call, const char **reason) {
  (void)self;
  (void)call;
  (void)reason;
  return true;
}

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "planted",
                  .impl_id = "reference.right",
                  .kind = FL_KIND_REFERENCE,
                  .devices = FL_DEVICE(kDLCPU),
                  .dtypes = FL_FLOAT32,
                  .flags = FL_IMPL_DETERMINISTIC,
                  .fn = right};
  fl_status status = registry->register_op(registry, &op);
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.wrong";
  impl.kind = FL_KIND_VENDOR;
  impl.vendor = "wrong";
  impl.fn = wrong;
  impl.prepares = ERROR >= WRONG_PREPARED ? 1 << WEIGHT : 0;
  impl.prepared_size = prepared_size;
  impl.prepare = prepare;
  impl.supports_args = ERROR == ENOTSUP_AFTER_YES ? says_yes : NULL;
  return status ? status : registry->register_impl(registry, &impl);
}
