/* The CPU plugin's implementations, called without a host: see kernels.h. */
#include "tests/kernels.h"

#include "core/cases.h"
#include "core/ops.h"
#include "core/support.h"

#include <dlfcn.h>
#include <flhost/element.h>
#include <math.h>

enum { MAX_IMPLS = 256 };

static fl_impl impls[MAX_IMPLS];
static int n_impls;
_Thread_local char message[512];
/* A host's loop: as many ranges as there may be, the last one first. */
static fl_status in_ranges(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  fl_status status = FL_OK;
  ck_assert_int_ge(grain, 1);
  for (int64_t first = (n - 1) / grain * grain; first >= 0 && n > 0 && !status; first -= grain)
    status = body(user, first, first + grain < n ? first + grain : n);
  return status;
}

fl_parallel_for_fn registry_parallel_for = in_ranges;

static fl_status collect(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  ck_assert_int_lt(n_impls, MAX_IMPLS);
  ck_assert_uint_eq(impl->size, sizeof *impl);
  impls[n_impls++] = *impl;
  return FL_OK;
}

static void keep_error(fl_registry *registry, const char *text) {
  (void)registry;
  snprintf(message, sizeof message, "%s", text);
}

/* As a host with no file and no options has them; most are not set. */
static fl_status setting_here(fl_registry *registry, const char *name, char *value, size_t size) {
  const char *text = getenv(name);
  (void)registry;
  snprintf(value, size, "%s", text ? text : "null");
  return FL_OK;
}

const char *try_plugin(void) {
  char path[512];
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .register_impl = collect,
                          .error = keep_error,
                          .setting = setting_here,
                          .parallel_for = registry_parallel_for};
  message[0] = 0;
  n_impls = 0;
  snprintf(path, sizeof path, "%s/plugins/cpu.so", build_dir());
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  fl_register_fn entry = NULL;
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_ptr_nonnull(*(void **)&entry);
  return entry(&registry) ? message : NULL;
}

void load_plugin(void) {
  const char *refusal = try_plugin();
  ck_assert_msg(!refusal, "%s", refusal);
}

const fl_impl *find_impl(const char *op, const char *id) {
  for (int i = 0; i < n_impls; i++)
    if (!strcmp(impls[i].op_name, op) && !strcmp(impls[i].impl_id, id))
      return &impls[i];
  ck_abort_msg("no implementation %s of %s", id, op);
  return NULL;
}

fl_status call_impl(const char *op, const char *id, fl_value *values, uint32_t n) {
  const fl_impl *impl = find_impl(op, id);
  fl_call call = {
      .size = sizeof call, .count = n, .values = values, .message = message, .message_size = sizeof message};
  message[0] = 0;
  return impl->fn(impl->self, &call);
}

void check_call(const char *op, const char *id, fl_value *values, uint32_t n) {
  fl_status status = call_impl(op, id, values, n);
  ck_assert_msg(status == FL_OK, "%s %s: status %d, %s", op, id, status, message);
}

int count_impls(void) {
  return n_impls;
}

void set(DLTensor *tensor, int64_t i, double value) {
  fl_element_type_of(tensor->dtype)->put(fl_data(tensor), i, value);
}

double get(const DLTensor *tensor, int64_t i) {
  return fl_element_type_of(tensor->dtype)->get(fl_data(tensor), i);
}

owned *make(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding) {
  owned *made = calloc(1, sizeof *made);
  int64_t size = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    made->shape[d] = shape[d];
    made->strides[d] = size;
    size = size * shape[d] + padding;
  }
  made->bytes = (size_t)size * dtype.bits / 8;
  made->tensor = (DLTensor){.data = malloc(made->bytes + !made->bytes),
                            .device = {kDLCPU, 0},
                            .ndim = ndim,
                            .dtype = dtype,
                            .shape = made->shape,
                            .strides = padding ? made->strides : NULL};
  memset(made->tensor.data, 0x5a, made->bytes);
  return made;
}

void unmake(owned *made) {
  if (made)
    free(made->tensor.data);
  free(made);
}

int64_t element_offset(const DLTensor *tensor, int64_t i) {
  int64_t offset = 0;
  if (!tensor->strides)
    return i;
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    offset += i % tensor->shape[d] * fl_stride(tensor, d);
    i /= tensor->shape[d];
  }
  return offset;
}

int64_t count(const DLTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->ndim; d++)
    n *= tensor->shape[d];
  return n;
}

void fill(DLTensor *tensor, uint32_t seed) {
  for (int64_t i = 0; i < count(tensor); i++) {
    seed = seed * 1664525u + 1013904223u;
    set(tensor, element_offset(tensor, i), ((double)(seed >> 8) / (1 << 23) - 1) * 4);
  }
}

void unmake_all(owned **all, size_t n) {
  for (size_t i = 0; i < n; i++)
    unmake(all[i]);
}

owned *make_filled(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed) {
  owned *made = make(dtype, ndim, shape, padding);
  fill(&made->tensor, seed);
  return made;
}

owned *make_bounded(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed, double bound) {
  owned *made = make_filled(dtype, ndim, shape, padding, seed);
  for (int64_t i = 0; i < count(&made->tensor); i++)
    set(&made->tensor, element_offset(&made->tensor, i), element(made, i) / 4 * bound);
  return made;
}

owned *make_constant(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, double value) {
  owned *made = make(dtype, ndim, shape, padding);
  for (int64_t i = 0; i < count(&made->tensor); i++)
    set(&made->tensor, element_offset(&made->tensor, i), value);
  return made;
}

owned *make_indices(DLDataType dtype, int ndim, const int64_t *shape, const int64_t *indices) {
  owned *made = make(dtype, ndim, shape, 0);
  for (int64_t i = 0; i < count(&made->tensor); i++)
    set(&made->tensor, i, (double)indices[i]);
  return made;
}

fl_value value_of(owned *tensor) {
  return tensor ? fl_tensor(&tensor->tensor) : fl_none();
}

double element(const owned *tensor, int64_t i) {
  return get(&tensor->tensor, element_offset(&tensor->tensor, i));
}

void check_same_elements(const DLTensor *compact, const owned *strided) {
  size_t bytes = compact->dtype.bits / 8;
  char *expected = malloc(strided->bytes);
  memset(expected, 0x5a, strided->bytes);
  for (int64_t i = 0; i < count(compact); i++)
    memcpy(expected + (size_t)element_offset(&strided->tensor, i) * bytes, (char *)compact->data + (size_t)i * bytes,
           bytes);
  ck_assert_mem_eq(strided->tensor.data, expected, strided->bytes);
  free(expected);
}

fl_schema *schema_of(const char *op) {
  fl_schema *schema = NULL;
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry && !schema; entry++) {
    ck_assert_msg(fl_schema_create_checked(*entry, &schema) == FL_OK, "%s", fl_error_message());
    if (strcmp(schema->op_name, op)) {
      fl_schema_free(schema);
      schema = NULL;
    }
  }
  ck_assert_msg(schema != NULL, "no entry for %s", op);
  return schema;
}

void check_refused(const char *op, const char *expected, const fl_value *values, uint32_t n) {
  fl_value copy[FL_SCHEMA_MAX_VALUES];
  fl_call call = {.size = sizeof call, .count = n, .values = copy};
  fl_schema *schema = schema_of(op);
  memcpy(copy, values, n * sizeof *copy);
  fl_status status = fl_schema_check(schema, &call);
  ck_assert_msg(status == FL_EINVAL, "status %d where this was expected: %s", status, expected);
  ck_assert_str_eq(fl_error_message(), expected);
  fl_schema_free(schema);
}

void check_close(const char *op, const DLTensor *result, const DLTensor *expected) {
  fl_schema *schema = schema_of(op);
  fl_tolerance tolerance = fl_schema_tolerance(schema, expected->dtype);
  for (int64_t i = 0; i < count(expected); i++) {
    double a = get(result, element_offset(result, i)), b = get(expected, element_offset(expected, i));
    bool same = (isnan(a) && isnan(b)) || a == b;
    ck_each(same || fabs(a - b) <= tolerance.atol + tolerance.rtol * fabs(b), "%s: element %lld is %.9g, expected %.9g",
            op, (long long)i, a, b);
  }
  fl_schema_free(schema);
}
