/*
 * Prepared weights: an op weighted(x, weight) = x * weight, with a reference that prepares nothing, one implementation
 * that keeps the weight as it was, and one for each thing that can go wrong while preparing.
 */
#include <flhost/plugin.h>

#include <string.h>

FL_PLUGIN("prepares", "1", "Test", "MIT", "");

enum { X, WEIGHT, OUT };

static const fl_op_def weighted = {
    .size = sizeof(fl_op_def),
    .schema = "weighted(Tensor x, Tensor? weight=None) -> Tensor out",
    .rules = "x: T[..., d]; weight: W[d] or W[1, d]; out: T[..., d]; W = float32|float64; T = float32",
    .category = "test",
    .doc = "out = x * weight"};
static const fl_op_def as_well = {.size = sizeof(fl_op_def),
                                  .schema = "weighted_too(Tensor x, Tensor? weight=None) -> Tensor out",
                                  .rules = "x: float32[..., d]; weight: float32[d]; out: float32[..., d]",
                                  .category = "test",
                                  .doc = "out = x * weight"};

static const DLTensor *weight_of(const fl_call *call) {
  return call->values[WEIGHT].type == FL_TENSOR ? call->values[WEIGHT].v.tensor : NULL;
}

static size_t all_of_it(void *self, const fl_call *call) {
  const DLTensor *weight = weight_of(call);
  (void)self;
  return weight ? (size_t)weight->shape[weight->ndim - 1] * sizeof(float) : 0;
}

static size_t more_than_there_is(void *self, const fl_call *call) {
  (void)self, (void)call;
  return (size_t)-100;
}

/* What `self` does while it prepares. */
enum deed { KEEPS, FAILS, SAYS_NOTHING, DECLINES, WRITES_BEHIND, WRITES_FAR_BEHIND, ODD_STATUS, CHANGES_CALL };
static const enum deed deeds[] = {KEEPS,      FAILS,       SAYS_NOTHING, DECLINES, WRITES_BEHIND, WRITES_FAR_BEHIND,
                                  ODD_STATUS, CHANGES_CALL};

static fl_status prepare(void *self, fl_call *call, void *memory, size_t size) {
  const enum deed deed = self ? *(const enum deed *)self : KEEPS;
  if ((uintptr_t)memory % 64)
    return fl_fail(call, FL_EINTERNAL, "the memory is not aligned");
  if (call->prepared)
    return fl_fail(call, FL_EINTERNAL, "prepared before");
  memcpy(memory, fl_data(weight_of(call)), size);
  if (deed == FAILS)
    return fl_fail(call, FL_EDEVICE, "the packer is out of order");
  if (deed == WRITES_BEHIND)
    ((char *)memory)[size] = 0;
  if (deed == WRITES_FAR_BEHIND)
    ((char *)memory)[size + 200] = 0;
  if (deed == CHANGES_CALL)
    call->values = NULL;
  return deed == SAYS_NOTHING ? FL_EINTERNAL : deed == DECLINES ? FL_ENOTSUP : deed == ODD_STATUS ? 77 : FL_OK;
}

static fl_status multiply(const fl_call *call, const float *kept) {
  const DLTensor *x = call->values[X].v.tensor, *weight = weight_of(call);
  const float *from = fl_data(x);
  float *out = fl_data(call->values[OUT].v.tensor);
  int64_t n = 1, d = x->shape[x->ndim - 1];
  if (!kept && weight)
    kept = fl_data(weight);
  for (int i = 0; i < x->ndim; i++)
    n *= x->shape[i];
  for (int64_t i = 0; i < n; i++)
    out[i] = from[i] * (kept ? kept[i % d] : 1);
  return FL_OK;
}

static fl_status run(void *self, fl_call *call) {
  return multiply(call, fl_prepared_data(call, prepare, self));
}

static fl_status run_plainly(void *self, fl_call *call) {
  (void)self;
  return multiply(call, NULL);
}

static fl_status fails_at_two_rows(void *self, fl_call *call) {
  return call->values[X].v.tensor->shape[0] == 2 ? fl_fail(call, FL_EDEVICE, "two rows") : run(self, call);
}

static bool takes_few(void *self, const fl_call *call, const char **reason) {
  (void)self;
  return call->values[X].v.tensor->shape[0] <= 2 || fl_reason(reason, "more than two rows");
}

#define KEEPING .prepares = 1 << WEIGHT, .prepared_size = all_of_it, .prepare = prepare
#define BAD(id_, vendor_, deed_)                                                                                       \
  {                                                                                                                    \
    .op_name = "weighted", .impl_id = id_, .kind = FL_KIND_VENDOR, .vendor = vendor_, .fn = run, KEEPING,              \
    .self = (void *)&deeds[deed_]                                                                                      \
  }

fl_status register_builtins(fl_registry *registry) {
  fl_impl impls[] = {
      {.op_name = "weighted", .impl_id = "default.flagos", .kind = FL_KIND_DEFAULT, .fn = run, KEEPING},
      {.op_name = "weighted", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE, .fn = run_plainly},
      {.op_name = "weighted_too", .impl_id = "default.flagos", .kind = FL_KIND_DEFAULT, .fn = run, KEEPING},
      BAD("vendor.fails", "fails", FAILS),
      BAD("vendor.says_nothing", "says_nothing", SAYS_NOTHING),
      BAD("vendor.declines", "declines", DECLINES),
      BAD("vendor.writes_behind", "writes_behind", WRITES_BEHIND),
      BAD("vendor.writes_far_behind", "writes_far_behind", WRITES_FAR_BEHIND),
      BAD("vendor.odd_status", "odd_status", ODD_STATUS),
      BAD("vendor.changes_call", "changes_call", CHANGES_CALL),
      {.op_name = "weighted",
       .impl_id = "vendor.greedy",
       .kind = FL_KIND_VENDOR,
       .vendor = "greedy",
       .fn = run,
       .prepares = 1 << WEIGHT,
       .prepared_size = more_than_there_is,
       .prepare = prepare},
      {.op_name = "weighted",
       .impl_id = "vendor.few",
       .kind = FL_KIND_VENDOR,
       .vendor = "few",
       .fn = fails_at_two_rows,
       .supports_args = takes_few,
       KEEPING,
       .self = (void *)&deeds[KEEPS]},
      {.op_name = "weighted",
       .impl_id = "vendor.beyond",
       .kind = FL_KIND_VENDOR,
       .vendor = "beyond",
       .fn = run,
       .prepares = ~UINT64_C(0),
       .prepared_size = all_of_it,
       .prepare = prepare},
  };
  fl_status status = registry->register_op(registry, &weighted);
  if (!status)
    status = registry->register_op(registry, &as_well);
  for (size_t i = 0; !status && i < sizeof impls / sizeof *impls; i++) {
    impls[i].size = sizeof impls[i];
    impls[i].devices = FL_DEVICE(kDLCPU);
    status = registry->register_impl(registry, &impls[i]);
  }
  return status;
}
