/*
 * A platform of two devices whose memory is memory of this process that nobody but the plugin's own kernels and copies
 * may touch: it is mapped without any right while none of these runs, so that a kernel of the host's processor that
 * gets hold of such a tensor, or a host that looks into one, crashes. A test part: never installed.
 *
 * The devices are of different architectures, td_1 and td_2. Errors of kernels are as late as those of real devices:
 * test_device_fail(x, FAIL_LATE) succeeds, and the next synchronize or kernel of the device fails. TEST_DEVICE_ERROR
 * says what a kernel does wrong: "behind" its result, or its "workspace", it writes a byte.
 */
#include "device.h"
#include <flhost/dtype.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

FL_PLUGIN("test_device", "1", "Test", "MIT", "");

enum { DEVICES = 2, BLOCKS_MAX = 4096, ALIGNMENT = 256, PAGE = 4096 };
static const size_t memory_size = (size_t)256 << 20;

FL_EXPORT extern device_state test_device_state;
device_state test_device_state;

typedef struct block {
  size_t offset, size;
} block;

typedef struct device {
  char *memory;
  block blocks[BLOCKS_MAX]; /* in use, by offset */
  unsigned n;
  unsigned users;    /* kernels and copies that run */
  size_t open;       /* bytes that they may touch, while some run */
  const char *error; /* of a kernel, not told so far */
} device;

static device devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const char *last_error = "";

static void count(unsigned *events) {
  pthread_mutex_lock(&lock);
  ++*events;
  pthread_mutex_unlock(&lock);
}

static fl_status fail(fl_status status, const char *words) {
  last_error = words;
  return status;
}

/* -------------------------------------------------------------------------------------------------------- memory */

/* The lock is held. */
static bool map(device *d) {
  if (!d->memory) {
    void *memory = mmap(NULL, memory_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    d->memory = memory == MAP_FAILED ? NULL : memory;
  }
  return d->memory != NULL;
}

/* What is in use, to the end of a page. The lock is held. */
static size_t used(const device *d) {
  size_t end = d->n ? d->blocks[d->n - 1].offset + d->blocks[d->n - 1].size : 0;
  return (end + PAGE - 1) / PAGE * PAGE;
}

/* Opens what is in use now. The lock is held. */
static void open_used(device *d) {
  if (used(d) <= d->open)
    return;
  d->open = used(d);
  mprotect(d->memory, d->open, PROT_READ | PROT_WRITE);
}

static void enter(device *d) {
  pthread_mutex_lock(&lock);
  d->users++;
  open_used(d);
  pthread_mutex_unlock(&lock);
}

static void leave(device *d) {
  pthread_mutex_lock(&lock);
  if (!--d->users && d->open) {
    mprotect(d->memory, d->open, PROT_NONE);
    d->open = 0;
  }
  pthread_mutex_unlock(&lock);
}

static device *find_device(int32_t index) {
  return index >= 0 && index < DEVICES ? &devices[index] : NULL;
}

/* For other code of the tests that plays a part of the device, a communicator's: its memory may be touched until it is
 * closed again. */
FL_EXPORT void test_device_open(int32_t index, bool opens);

void test_device_open(int32_t index, bool opens) {
  (opens ? enter : leave)(find_device(index));
}

static bool is_of(const device *d, const void *memory, size_t size) {
  const char *at = memory;
  return d->memory && at >= d->memory && size <= memory_size && at <= d->memory + memory_size - size;
}

static fl_status allocate(void *self, int32_t index, size_t size, void **memory) {
  device *d = find_device(index);
  size_t offset = 0, rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned place = 0;
  (void)self;
  if (!d)
    return fail(FL_EDEVICE, "no such device");
  pthread_mutex_lock(&lock);
  bool there = map(d) && d->n < BLOCKS_MAX && size <= memory_size && !test_device_state.full;
  for (; there && place < d->n && d->blocks[place].offset < offset + rounded; place++)
    offset = d->blocks[place].offset + d->blocks[place].size;
  there = there && offset + rounded <= memory_size;
  if (there) {
    memmove(&d->blocks[place + 1], &d->blocks[place], (d->n - place) * sizeof *d->blocks);
    d->blocks[place] = (block){offset, rounded};
    d->n++;
    test_device_state.allocations++;
    *memory = d->memory + offset;
    if (d->users)
      open_used(d);
  }
  pthread_mutex_unlock(&lock);
  return there ? FL_OK : fail(FL_ENOMEM, "test device: out of memory");
}

static fl_status release(void *self, int32_t index, void *memory) {
  device *d = find_device(index);
  bool found = false;
  (void)self;
  pthread_mutex_lock(&lock);
  for (unsigned i = 0; d && i < d->n && !found; i++)
    if (d->memory + d->blocks[i].offset == (char *)memory) {
      found = true;
      memmove(&d->blocks[i], &d->blocks[i + 1], (d->n - i - 1) * sizeof *d->blocks);
      d->n--;
      test_device_state.allocations--;
    }
  pthread_mutex_unlock(&lock);
  return found ? FL_OK : fail(FL_EDEVICE, "not memory of this device");
}

static fl_status copy(void *self, int32_t index, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  device *d = find_device(index);
  (void)self, (void)stream;
  if (!d || (direction != FL_COPY_TO_HOST && !is_of(d, to, size)) ||
      (direction != FL_COPY_TO_DEVICE && !is_of(d, from, size)))
    return fail(FL_EDEVICE, "illegal address");
  enter(d);
  memmove(to, from, size);
  leave(d);
  return FL_OK;
}

static void set_error(device *d, const char *words) {
  pthread_mutex_lock(&lock);
  d->error = words;
  pthread_mutex_unlock(&lock);
}

/* Tells of an error once. */
static const char *take_error(device *d) {
  pthread_mutex_lock(&lock);
  const char *error = d->error;
  d->error = NULL;
  pthread_mutex_unlock(&lock);
  return error;
}

static fl_status synchronize(void *self, int32_t index, void *stream, bool all) {
  device *d = find_device(index);
  (void)self, (void)stream, (void)all;
  count(&test_device_state.synchronous);
  const char *error = d ? take_error(d) : "no such device";
  return error ? fail(FL_EDEVICE, error) : FL_OK;
}

static fl_status is_captured(void *self, int32_t index, void *stream, bool *captured) {
  (void)self, (void)index, (void)stream;
  *captured = test_device_state.captured;
  return FL_OK;
}

static const char *error(void *self) {
  (void)self;
  return last_error;
}

/* ----------------------------------------------------------------------------------------------------- the platform */

static bool is_active(void *self, const char **reason) {
  (void)self;
  count(&test_device_state.active);
  *reason = test_device_state.asleep ? "the test device is asleep" : NULL;
  return !test_device_state.asleep;
}

static int device_count(void *self) {
  (void)self;
  return DEVICES;
}

static fl_status properties(void *self, int32_t index, fl_device_properties *properties) {
  (void)self;
  count(&test_device_state.properties);
  if (!find_device(index))
    return fail(FL_EDEVICE, "no such device");
  properties->units = 1;
  properties->memory_total = properties->memory_free = memory_size;
  snprintf(properties->name, sizeof properties->name, "test part, memory of the host");
  snprintf(properties->arch, sizeof properties->arch, "td_%d", index + 1);
  snprintf(properties->driver, sizeof properties->driver, "1.0");
  return FL_OK;
}

static fl_status current_device(void *self, int32_t *index) {
  (void)self;
  *index = 0;
  return FL_OK;
}

/* td_2 reaches td_1. */
static bool arch_reaches(void *self, const char *arch, const char *least) {
  (void)self;
  return strcmp(arch, least) >= 0;
}

/* --------------------------------------------------------------------------------------------------------- elements */

static float load(const DLTensor *tensor, const char *at, int64_t i) {
  if (tensor->dtype.bits == 32)
    return ((const float *)at)[i];
  uint16_t bits = ((const uint16_t *)at)[i];
  return tensor->dtype.code == kDLBfloat ? fl_bf16_to_float(bits) : fl_f16_to_float(bits);
}

static void store(const DLTensor *tensor, char *at, int64_t i, float value) {
  if (tensor->dtype.bits == 32)
    ((float *)at)[i] = value;
  else
    ((uint16_t *)at)[i] = tensor->dtype.code == kDLBfloat ? fl_float_to_bf16(value) : fl_float_to_f16(value);
}

/* As the element type has it. */
static float rounded(const DLTensor *tensor, float value) {
  char at[sizeof value];
  store(tensor, at, 0, value);
  return load(tensor, at, 0);
}

static int64_t count_rows(const DLTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->ndim - 1; i++)
    n *= tensor->shape[i];
  return n;
}

static char *row_of(const DLTensor *tensor, int64_t row) {
  int64_t offset = 0;
  for (int i = tensor->ndim - 2; i >= 0; i--) {
    offset += row % tensor->shape[i] * fl_stride(tensor, i);
    row /= tensor->shape[i];
  }
  return (char *)fl_data(tensor) + offset * (tensor->dtype.bits / 8);
}

static int64_t row_length(const DLTensor *tensor) {
  return tensor->ndim ? tensor->shape[tensor->ndim - 1] : 1;
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

/* What a kernel computes. */
typedef fl_status (*compute_fn)(fl_call *call);

static void note_kernel(const fl_call *call, int32_t index) {
  pthread_mutex_lock(&lock);
  test_device_state.stream = call->stream;
  test_device_state.device = index;
  test_device_state.kernels++;
  pthread_mutex_unlock(&lock);
}

/* Every kernel comes through here: the memory is open while it runs. */
static fl_status launch(void *self, fl_call *call) {
  compute_fn compute;
  const DLTensor *first = call->values[0].v.tensor;
  device *d = find_device(first->device.device_id);
  memcpy(&compute, &self, sizeof compute);
  const char *earlier = d ? take_error(d) : "no such device";
  if (earlier)
    return fl_fail(call, FL_EDEVICE, "%s", earlier);
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR && count_rows(call->values[i].v.tensor) &&
        row_length(call->values[i].v.tensor) && !is_of(d, fl_data(call->values[i].v.tensor), 1))
      return fl_fail(call, FL_EDEVICE, "value %u is not memory of this device", i);
  note_kernel(call, first->device.device_id);
  static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER; /* a stream runs one kernel after the other */
  enter(d);
  pthread_mutex_lock(&queue);
  fl_status status = compute(call);
  pthread_mutex_unlock(&queue);
  leave(d);
  return status;
}

/* Is this the error that the tests want? */
static bool errs(const char *how) {
  const char *wanted = getenv("TEST_DEVICE_ERROR");
  return wanted && !strcmp(wanted, how);
}

static fl_status silu_and_mul(fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  int64_t n = row_length(out);
  for (int64_t row = 0; row < count_rows(out); row++)
    for (int64_t i = 0; i < n; i++) {
      float gate = load(x, row_of(x, row), i), factor = load(x, row_of(x, row), i + n);
      store(out, row_of(out, row), i, rounded(out, gate / (1 + expf(-gate))) * factor);
    }
  if (errs("behind") && count_rows(out) && n)
    row_of(out, count_rows(out) - 1)[n * (out->dtype.bits / 8)] ^= 1;
  return FL_OK;
}

/* out = norm(out), with sums of squares in double. */
static void normalise(const DLTensor *out, const DLTensor *weight, float epsilon) {
  int64_t n = row_length(out);
  for (int64_t row = 0; row < count_rows(out); row++) {
    char *at = row_of(out, row);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
      sum += (double)load(out, at, i) * (double)load(out, at, i);
    float scale = 1 / sqrtf((float)(sum / (double)n) + epsilon);
    for (int64_t i = 0; i < n; i++) {
      float value = load(out, at, i) * scale;
      store(out, at, i, weight ? rounded(out, value) * load(weight, fl_data(weight), i) : value);
    }
  }
}

static const DLTensor *tensor_or_null(const fl_value *value) {
  return value->type == FL_TENSOR ? value->v.tensor : NULL;
}

/* Only in place: x is out. */
static fl_status rms_norm(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE, OUT };
  const DLTensor *x = call->values[X].v.tensor, *out = call->values[OUT].v.tensor;
  if (fl_data(x) != fl_data(out))
    return fl_fail(call, FL_EINTERNAL, "called with two tensors, although it works only in place");
  normalise(out, tensor_or_null(&call->values[WEIGHT]), (float)call->values[EPSILON].v.f);
  return FL_OK;
}

static bool takes_rms_norm(void *self, const fl_call *call, const char **reason) {
  enum { RESIDUAL = 1, VARIANCE_SIZE = 4 };
  (void)self;
  if (reason)
    *reason = "neither residual nor variance_size";
  return call->values[RESIDUAL].type == FL_NONE && call->values[VARIANCE_SIZE].type == FL_NONE;
}

static fl_status fused_add_rms_norm(fl_call *call) {
  enum { X, X_RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE, OUT, RESIDUAL_OUT };
  const DLTensor *x = call->values[X].v.tensor, *residual = call->values[X_RESIDUAL].v.tensor;
  const DLTensor *out = call->values[OUT].v.tensor, *sum = call->values[RESIDUAL_OUT].v.tensor;
  const DLTensor *weight = tensor_or_null(&call->values[WEIGHT]);
  int64_t n = row_length(x);
  for (int64_t row = 0; row < count_rows(x); row++) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
      float value = load(x, row_of(x, row), i) + load(residual, row_of(residual, row), i);
      squares += (double)value * (double)value;
    }
    float scale = 1 / sqrtf((float)(squares / (double)n) + (float)call->values[EPSILON].v.f);
    for (int64_t i = 0; i < n; i++) {
      float value = load(x, row_of(x, row), i) + load(residual, row_of(residual, row), i);
      store(sum, row_of(sum, row), i, value);
      value *= scale;
      store(out, row_of(out, row), i, weight ? rounded(out, value) * load(weight, fl_data(weight), i) : value);
    }
  }
  return FL_OK;
}

static bool takes_fused(void *self, const fl_call *call, const char **reason) {
  enum { VARIANCE_SIZE = 4 };
  (void)self;
  if (reason)
    *reason = "no variance_size";
  return call->values[VARIANCE_SIZE].type == FL_NONE;
}

/* The halves in float32, in the workspace. */
static size_t staged_size(void *self, const fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor;
  (void)self;
  return (size_t)(count_rows(x) * row_length(x)) * sizeof(float);
}

static fl_status mul_and_silu(fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  int64_t n = row_length(x);
  float *staged = call->workspace;
  if (call->workspace_size < staged_size(NULL, call))
    return fl_fail(call, FL_ENOTSUP, "workspace of %zu bytes, expected %zu", call->workspace_size,
                   staged_size(NULL, call));
  if (call->workspace && !is_of(&devices[x->device.device_id], staged, call->workspace_size))
    return fl_fail(call, FL_EDEVICE, "the workspace is not memory of this device");
  for (int64_t row = 0; row < count_rows(x); row++)
    for (int64_t i = 0; i < n; i++)
      staged[row * n + i] = load(x, row_of(x, row), i);
  if (errs("workspace") && staged)
    ((char *)staged)[call->workspace_size] ^= 1;
  for (int64_t row = 0; row < count_rows(out); row++)
    for (int64_t i = 0; i < n / 2; i++) {
      float gate = staged[row * n + n / 2 + i];
      store(out, row_of(out, row), i, staged[row * n + i] * rounded(out, gate / (1 + expf(-gate))));
    }
  return FL_OK;
}

static fl_status relu2(fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  for (int64_t row = 0; row < count_rows(x); row++)
    for (int64_t i = 0; i < row_length(x); i++) {
      float value = load(x, row_of(x, row), i);
      store(out, row_of(out, row), i, value > 0 || isnan(value) ? value * value : 0);
    }
  return FL_OK;
}

/* x - 1, then what is asked for. */
static fl_status fail_as_told(fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[2].v.tensor;
  int64_t how = call->values[1].v.i;
  for (int64_t row = 0; row < count_rows(x); row++)
    for (int64_t i = 0; i < row_length(x); i++)
      store(out, row_of(out, row), i, load(x, row_of(x, row), i) - 1);
  if (how == FAIL_AT_ONCE)
    return fl_fail(call, FL_EDEVICE, "launch failed");
  if (how == FAIL_LATE)
    set_error(&devices[x->device.device_id], "a kernel used an illegal address");
  return FL_OK;
}

/* x + 1 */
static fl_status succeed(fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[2].v.tensor;
  for (int64_t row = 0; row < count_rows(x); row++)
    for (int64_t i = 0; i < row_length(x); i++)
      store(out, row_of(out, row), i, load(x, row_of(x, row), i) + 1);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------- registration */

typedef struct row {
  const char *op, *impl_id;
  compute_fn compute;
  uint32_t flags;
  int32_t priority;
  const char *min_arch;
  bool (*supports_args)(void *self, const fl_call *call, const char **reason);
  size_t (*workspace_size)(void *self, const fl_call *call);
} row;

static const row rows[] = {
    {.op = "silu_and_mul", .compute = silu_and_mul},
    {.op = "rms_norm", .compute = rms_norm, .flags = FL_IMPL_INPLACE_ONLY, .supports_args = takes_rms_norm},
    {.op = "fused_add_rms_norm", .compute = fused_add_rms_norm, .supports_args = takes_fused},
    {.op = "mul_and_silu", .compute = mul_and_silu, .workspace_size = staged_size},
    {.op = "relu2", .compute = relu2, .min_arch = "td_2"},
    {.op = "quick_gelu", .compute = relu2, .min_arch = "td_9"},
    {.op = "gelu_fast", .compute = relu2, .min_arch = "td_8,td_1"},
    {.op = "test_device_fail", .compute = fail_as_told, .priority = 120},
    {.op = "test_device_fail", .impl_id = "vendor.test_second", .compute = succeed},
};

static fl_status register_rows(fl_registry *registry) {
  fl_status status = FL_OK;
  for (size_t i = 0; i < sizeof rows / sizeof *rows && !status; i++) {
    fl_impl impl = {.size = sizeof impl,
                    .flags = rows[i].flags,
                    .op_name = rows[i].op,
                    .impl_id = rows[i].impl_id ? rows[i].impl_id : "vendor.test_device",
                    .kind = FL_KIND_VENDOR,
                    .priority = rows[i].priority,
                    .vendor = "test_device",
                    .devices = FL_DEVICE(kDLExtDev),
                    .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
                    .min_arch = rows[i].min_arch,
                    .fn = launch,
                    .supports_args = rows[i].supports_args,
                    .workspace_size = rows[i].workspace_size};
    memcpy(&impl.self, &rows[i].compute, sizeof impl.self);
    status = registry->register_impl(registry, &impl);
  }
  return status;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def fails = {.size = sizeof fails,
                                  .schema = "test_device_fail(Tensor(a!) x, int how=0) -> Tensor(a) out",
                                  .category = "test",
                                  .doc = "x - 1 or an error, else x + 1"};
  static const fl_platform platform = {.size = sizeof platform,
                                       .device_type = kDLExtDev,
                                       .is_active = is_active,
                                       .device_count = device_count,
                                       .properties = properties,
                                       .current_device = current_device,
                                       .allocate = allocate,
                                       .release = release,
                                       .copy = copy,
                                       .synchronize = synchronize,
                                       .error = error,
                                       .arch_reaches = arch_reaches,
                                       .is_captured = is_captured};
  static const fl_component component = {.size = sizeof component,
                                         .type = "platform",
                                         .name = "test_device",
                                         .functions = &platform,
                                         .functions_type = FL_FUNCTIONS_PLATFORM,
                                         .functions_size = sizeof platform};
  fl_status status = registry->register_op(registry, &fails);
  if (!status)
    status = register_rows(registry);
  return status ? status : registry->register_component(registry, &component);
}
