/* The Ascend plugin over its stand-in: see npu.h. */
#include "tests/npu.h"
#include "tests/scratch.h"

#include <dlfcn.h>

enum { MAX_IMPLS = 128 };

static fl_impl impls[MAX_IMPLS];
static int n_impls;
const fl_platform *npu;
stand_in npu_control;
char npu_message[512];

static fl_status collect_impl(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  ck_assert_int_lt(n_impls, MAX_IMPLS);
  impls[n_impls++] = *impl;
  return FL_OK;
}

static fl_status collect_component(fl_registry *registry, const fl_component *component) {
  (void)registry;
  ck_assert_str_eq(component->type, "platform");
  npu = component->functions;
  return FL_OK;
}

static void *symbol(void *library, const char *name) {
  void *address = dlsym(library, name);
  ck_assert_msg(address != NULL, "no %s", name);
  return address;
}

void npu_open_control(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  npu_control.library = library;
  *(void **)&npu_control.set = symbol(library, "stand_in_set");
  *(void **)&npu_control.count = symbol(library, "stand_in_count");
  *(void **)&npu_control.log = symbol(library, "stand_in_log");
  *(void **)&npu_control.clear = symbol(library, "stand_in_clear");
}

void npu_open_plugin(const char *home, const char *node) {
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .abi_minor = FL_ABI_MINOR,
                          .register_impl = collect_impl,
                          .register_component = collect_component};
  fl_register_fn entry;
  setenv("FLHOST_ASCEND_NODE", node, 1);
  setenv("ASCEND_HOME_PATH", home, 1);
  n_impls = 0;
  void *library = dlopen(built("plugins/ascend.so"), RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  *(void **)&entry = symbol(library, "register_builtins");
  ck_assert_int_eq(entry(&registry), FL_OK);
}

void npu_open(void) {
  npu_open_plugin(built("tests/drivers/ascend"), "/dev/null");
  npu_open_control(built("tests/drivers/ascend/lib64/libascendcl.so"));
}

int npu_runtime(const char *name, int argument) {
  int (*function)(int);
  *(void **)&function = dlsym(npu_control.library, name);
  ck_assert_ptr_nonnull(*(void **)&function);
  return function(argument);
}

int npu_thread_device(void) {
  int (*get)(int *), device = -1;
  *(void **)&get = dlsym(npu_control.library, "aclrtGetDevice");
  return get(&device) ? -1 : device;
}

/* What a stream keeps for its calls stays until the process ends. */
void npu_check_clean(void) {
  static const char *const names[] = {"tensors", "lists", "scalars", "arrays", "executors", "violations"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    ck_assert_msg(npu_control.count(names[i]) == 0, "%lld %s are left; the log:\n%s",
                  (long long)npu_control.count(names[i]), names[i], npu_control.log());
}

const fl_impl *npu_at(int i) {
  return i < n_impls ? &impls[i] : NULL;
}

const fl_impl *npu_find(const char *op) {
  for (int i = 0; i < n_impls; i++)
    if (!strcmp(impls[i].op_name, op))
      return &impls[i];
  return NULL;
}

fl_status npu_call(const fl_impl *impl, fl_value *values, uint32_t n) {
  fl_call call = {
      .size = sizeof call, .count = n, .values = values, .message = npu_message, .message_size = sizeof npu_message};
  npu_message[0] = 0;
  return impl->fn(impl->self, &call);
}

bool npu_supports(const fl_impl *impl, fl_value *values, uint32_t n, const char **reason) {
  fl_call call = {.size = sizeof call, .count = n, .values = values};
  *reason = NULL;
  return impl->supports_args(impl->self, &call, reason);
}

void npu_wait(void) {
  ck_assert_msg(npu->synchronize(NULL, 0, NULL, false) == FL_OK, "%s", npu->error(NULL));
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

static size_t storage_of(const npu_tensor *tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor->tensor.ndim; d++)
    last += (tensor->shape[d] - 1) * tensor->strides[d];
  return npu_count(tensor) ? (size_t)(last + 1) * tensor->size : 0;
}

npu_tensor *npu_make(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding) {
  npu_tensor *made = calloc(1, sizeof *made);
  int64_t stride = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    made->shape[d] = shape[d];
    made->strides[d] = stride;
    stride = stride * shape[d] + (d == ndim - 1 ? padding : 0);
  }
  made->size = dtype.bits / 8;
  made->tensor = (DLTensor){.device = {kDLExtDev, 0}, .ndim = ndim, .dtype = dtype, .shape = made->shape};
  made->tensor.strides = padding ? made->strides : NULL;
  ck_assert_msg(npu->allocate(NULL, 0, storage_of(made), &made->memory) == FL_OK, "%s", npu->error(NULL));
  ck_assert_uint_eq((uintptr_t)made->memory % 256, 0);
  made->tensor.data = made->memory;
  return made;
}

void npu_free(npu_tensor *tensor) {
  if (tensor)
    ck_assert_msg(npu->release(NULL, 0, tensor->memory) == FL_OK, "%s", npu->error(NULL));
  free(tensor);
}

int64_t npu_count(const npu_tensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->tensor.ndim; d++)
    n *= tensor->shape[d];
  return n;
}

static size_t place_of(const npu_tensor *tensor, int64_t i) {
  int64_t at = 0;
  for (int d = tensor->tensor.ndim - 1; d >= 0; d--) {
    at += i % tensor->shape[d] * tensor->strides[d];
    i /= tensor->shape[d];
  }
  return (size_t)at * tensor->size;
}

static void move(const npu_tensor *tensor, char *data, bool to_device) {
  size_t bytes = storage_of(tensor);
  char *copy = malloc(bytes + 1);
  ck_assert_int_eq(npu->copy(NULL, 0, copy, tensor->memory, bytes, FL_COPY_TO_HOST, NULL), FL_OK);
  for (int64_t i = 0; i < npu_count(tensor); i++)
    if (to_device)
      memcpy(copy + place_of(tensor, i), data + (size_t)i * tensor->size, tensor->size);
    else
      memcpy(data + (size_t)i * tensor->size, copy + place_of(tensor, i), tensor->size);
  if (to_device)
    ck_assert_int_eq(npu->copy(NULL, 0, tensor->memory, copy, bytes, FL_COPY_TO_DEVICE, NULL), FL_OK);
  free(copy);
}

void npu_write(npu_tensor *tensor, const void *data) {
  move(tensor, (char *)data, true);
}

void npu_read(const npu_tensor *tensor, void *data) {
  move(tensor, data, false);
}
