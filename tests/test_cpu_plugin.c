/*
 * The CPU backend against plugin.h alone: a registry of this file's own collects its implementations, and each is run
 * over the golden files and over cases that these do not have (strides, in place, bad indices). O4, O5, O6, O8 are the
 * rules for implementations of operators.
 */
#include "cli/compare.h"
#include "cli/safetensors.h"
#include "tests/suite.h"

#include <dirent.h>
#include <dlfcn.h>
#include <flhost/dtype.h>
#include <math.h>

static const DLDataType float32 = {kDLFloat, 32, 1}, float16 = {kDLFloat, 16, 1}, bfloat16 = {kDLBfloat, 16, 1};
static const DLDataType int32 = {kDLInt, 32, 1}, int64 = {kDLInt, 64, 1};
static const char *const both[] = {"reference.c", "default.flagos"};

/* ---------------------------------------------------------------------------------------------- the plugin, loaded */

enum { MAX_IMPLS = 32, MESSAGE_MAX = 512, MAX_VALUES = 16 };

static fl_impl impls[MAX_IMPLS];
static int n_impls;
static char message[MESSAGE_MAX];

static fl_status collect(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  ck_assert_int_lt(n_impls, MAX_IMPLS);
  ck_assert_uint_eq(impl->size, sizeof *impl);
  impls[n_impls++] = *impl;
  return FL_OK;
}

static void load_plugin(void) {
  char path[512];
  fl_registry registry = {.size = sizeof registry, .abi_major = FL_ABI_MAJOR, .register_impl = collect};
  n_impls = 0;
  snprintf(path, sizeof path, "%s/plugins/cpu.so", build_dir());
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  fl_register_fn entry = NULL;
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_ptr_nonnull(*(void **)&entry);
  ck_assert_int_eq(entry(&registry), FL_OK);
}

static const fl_impl *find_impl(const char *op, const char *id) {
  for (int i = 0; i < n_impls; i++)
    if (!strcmp(impls[i].op_name, op) && !strcmp(impls[i].impl_id, id))
      return &impls[i];
  ck_abort_msg("no implementation %s of %s", id, op);
  return NULL;
}

static fl_status call_impl(const char *op, const char *id, fl_value *values, uint32_t n) {
  const fl_impl *impl = find_impl(op, id);
  fl_call call = {
      .size = sizeof call, .count = n, .values = values, .message = message, .message_size = sizeof message};
  message[0] = 0;
  return impl->fn(impl->self, &call);
}

static void check_call(const char *op, const char *id, fl_value *values, uint32_t n) {
  fl_status status = call_impl(op, id, values, n);
  ck_assert_msg(status == FL_OK, "%s %s: status %d, %s", op, id, status, message);
}

/* ------------------------------------------------------------------------------------------------- golden files */

/* The values of an op in order, as its schema has them. */
typedef struct golden_op {
  const char *op;
  struct {
    const char *name;
    enum { TENSOR, FLOAT, INT, BOOL, STRING, RESULT } type;
    fl_value (*fallback)(void);
  } values[MAX_VALUES];
} golden_op;

static fl_value default_false(void) {
  return fl_bool(false);
}

static fl_value default_zero(void) {
  return fl_int(0);
}

static fl_value default_approximate(void) {
  return fl_string("none");
}

static const golden_op golden_ops[] = {
    {"silu_and_mul", {{"x", TENSOR, fl_none}, {"out", RESULT, fl_none}}},
    {"gelu_and_mul", {{"x", TENSOR, fl_none}, {"approximate", STRING, default_approximate}, {"out", RESULT, fl_none}}},
    {"rms_norm",
     {{"x", TENSOR, fl_none},
      {"residual", TENSOR, fl_none},
      {"weight", TENSOR, fl_none},
      {"epsilon", FLOAT, fl_none},
      {"variance_size", INT, fl_none},
      {"out", RESULT, fl_none},
      {"residual_out", RESULT, fl_none}}},
    {"fused_add_rms_norm",
     {{"x", TENSOR, fl_none},
      {"x_residual", TENSOR, fl_none},
      {"weight", TENSOR, fl_none},
      {"epsilon", FLOAT, fl_none},
      {"variance_size", INT, fl_none},
      {"out", RESULT, fl_none},
      {"residual_out", RESULT, fl_none}}},
    {"rotary_embedding",
     {{"query", TENSOR, fl_none},
      {"key", TENSOR, fl_none},
      {"cos", TENSOR, fl_none},
      {"sin", TENSOR, fl_none},
      {"position_ids", TENSOR, fl_none},
      {"interleaved", BOOL, default_false},
      {"rope_dim_offset", INT, default_zero},
      {"inverse", BOOL, default_false},
      {"query_out", RESULT, fl_none},
      {"key_out", RESULT, fl_none}}},
};
enum { N_GOLDEN_OPS = sizeof golden_ops / sizeof golden_ops[0] };

/* vLLM IR's default tolerances, with its override for the norms (spec table 1.13), independent of the host's entries.
 */
static void tolerance(const char *op, DLDataType dtype, double *atol, double *rtol) {
  bool norm = strstr(op, "rms_norm");
  if (dtype.code == kDLBfloat) {
    *atol = 1e-3;
    *rtol = 1.6e-2;
  } else if (dtype.bits == 16) {
    *atol = norm ? 1e-2 : 1e-3;
    *rtol = norm ? 2e-3 : 1e-3;
  } else {
    *atol = 1e-5;
    *rtol = 1.3e-6;
  }
}

static fl_value attribute(json_t *attributes, const char *name, int type, fl_value (*fallback)(void)) {
  json_t *json = json_object_get(attributes, name);
  if (!json)
    return fallback();
  return type == FLOAT    ? fl_float(json_number_value(json))
         : type == INT    ? fl_int(json_integer_value(json))
         : type == STRING ? fl_string(json_string_value(json))
                          : fl_bool(json_is_true(json));
}

/* Runs one file; how many tensors were compared. */
static int check_golden_file(const golden_op *op, const char *id, const char *path) {
  char error[SAFETENSORS_ERROR_MAX], name[64];
  safetensors file;
  safetensors_entry results[MAX_VALUES];
  fl_value values[MAX_VALUES];
  uint32_t n = 0;
  int compared = 0, n_results = 0;
  ck_assert_msg(safetensors_read(path, &file, error), "%s: %s", path, error);
  ck_assert_str_eq(safetensors_metadata(&file, "op"), op->op);
  json_t *attributes = json_loads(safetensors_metadata(&file, "attrs"), 0, NULL);
  bool bit_exact = !strcmp(id, "reference.c") && !strcmp(safetensors_metadata(&file, "bitexact"), "yes");
  for (; op->values[n].name; n++) {
    if (op->values[n].type == TENSOR) {
      values[n] = fl_tensor(safetensors_find(&file, op->values[n].name));
    } else if (op->values[n].type == RESULT) {
      snprintf(name, sizeof name, "out.%s", op->values[n].name);
      DLTensor *expected = safetensors_find(&file, name);
      values[n] = fl_none();
      if (!expected)
        continue;
      ck_assert(safetensors_entry_create(&results[n_results], name, expected->dtype, expected->ndim, expected->shape));
      values[n] = fl_tensor(&results[n_results++].tensor);
    } else {
      values[n] = attribute(attributes, op->values[n].name, op->values[n].type, op->values[n].fallback);
    }
  }
  check_call(op->op, id, values, n);
  for (int i = 0; i < n_results; i++, compared++) {
    DLTensor *expected = safetensors_find(&file, results[i].name);
    double atol, rtol;
    tolerance(op->op, expected->dtype, &atol, &rtol);
    comparison c = compare_tensors(&results[i].tensor, expected, atol, rtol, bit_exact);
    ck_assert_msg(c.pass, "%s, %s, %s: %s", path, id, results[i].name, c.problem);
    safetensors_entry_free(&results[i]);
  }
  json_decref(attributes);
  safetensors_free(&file);
  return compared;
}

static void check_golden_op(const golden_op *op, const char *id) {
  char directory[64], path[512];
  int compared = 0;
  snprintf(directory, sizeof directory, "tests/golden/%s", op->op);
  DIR *listing = opendir(directory);
  ck_assert_msg(listing != NULL, "%s is missing", directory);
  for (struct dirent *file; (file = readdir(listing));) {
    if (file->d_name[0] == '.')
      continue;
    snprintf(path, sizeof path, "%s/%s", directory, file->d_name);
    compared += check_golden_file(op, id, path);
  }
  closedir(listing);
  ck_assert_int_gt(compared, 10);
}

START_TEST(O4_reference_reproduces_the_golden_files_bit_for_bit_where_they_say_so) {
  check_golden_op(&golden_ops[_i], "reference.c");
}
END_TEST

START_TEST(O5_default_agrees_with_the_golden_files_within_tolerance) {
  check_golden_op(&golden_ops[_i], "default.flagos");
}
END_TEST

/* --------------------------------------------------------------------------------------- tensors made by the tests */

/* A tensor whose storage may be larger than what it shows. */
typedef struct owned {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  size_t bytes;
} owned;

static void set(DLTensor *tensor, int64_t i, double value) {
  void *data = fl_data(tensor);
  if (tensor->dtype.code == kDLInt && tensor->dtype.bits == 64)
    ((int64_t *)data)[i] = (int64_t)value;
  else if (tensor->dtype.code == kDLInt)
    ((int32_t *)data)[i] = (int32_t)value;
  else if (tensor->dtype.bits == 32)
    ((float *)data)[i] = (float)value;
  else
    ((uint16_t *)data)[i] =
        tensor->dtype.code == kDLBfloat ? fl_float_to_bf16((float)value) : fl_float_to_f16((float)value);
}

static double get(const DLTensor *tensor, int64_t i) {
  const void *data = fl_data(tensor);
  if (tensor->dtype.bits == 32)
    return (double)((const float *)data)[i];
  return (double)(tensor->dtype.code == kDLBfloat ? fl_bf16_to_float(((const uint16_t *)data)[i])
                                                  : fl_f16_to_float(((const uint16_t *)data)[i]));
}

/* Compact when `padding` is 0; else that many elements lie behind each row and each further leading step. */
static owned *make(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding) {
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

static void unmake(owned *made) {
  if (made)
    free(made->tensor.data);
  free(made);
}

/* Where the i-th element lies in the storage. */
static int64_t place(const DLTensor *tensor, int64_t i) {
  int64_t offset = 0;
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    offset += i % tensor->shape[d] * fl_stride(tensor, d);
    i /= tensor->shape[d];
  }
  return offset;
}

static int64_t count(const DLTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->ndim; d++)
    n *= tensor->shape[d];
  return n;
}

/* Some values between -4 and 4; the same for the same `seed`, whatever the strides. */
static void fill(DLTensor *tensor, uint32_t seed) {
  for (int64_t i = 0; i < count(tensor); i++) {
    seed = seed * 1664525u + 1013904223u;
    set(tensor, place(tensor, i), ((double)(seed >> 8) / (1 << 23) - 1) * 4);
  }
}

/* The same elements (bit for bit), and where `strided` has padding, that is as make() left it. */
static void check_same_elements(const DLTensor *compact, const owned *strided) {
  size_t bytes = compact->dtype.bits / 8;
  char *expected = malloc(strided->bytes);
  memset(expected, 0x5a, strided->bytes);
  for (int64_t i = 0; i < count(compact); i++)
    memcpy(expected + (size_t)place(&strided->tensor, i) * bytes, (char *)compact->data + (size_t)i * bytes, bytes);
  ck_assert_mem_eq(strided->tensor.data, expected, strided->bytes);
  free(expected);
}

static void check_close(const char *op, const DLTensor *result, const DLTensor *expected) {
  double atol, rtol;
  tolerance(op, expected->dtype, &atol, &rtol);
  comparison c = compare_tensors(result, expected, atol, rtol, false);
  ck_assert_msg(c.pass, "%s: %s", op, c.problem);
}

/* ------------------------------------------------------------------------------------------------- registration */

START_TEST(every_op_has_a_reference_and_a_default_implementation_for_the_cpu) {
  static const char *const ops[] = {"silu_and_mul",       "gelu_and_mul",     "rms_norm",
                                    "fused_add_rms_norm", "rotary_embedding", "attention_backend"};
  for (size_t i = 0; i < 6; i++) {
    const fl_impl *reference = find_impl(ops[i], "reference.c"), *flagos = find_impl(ops[i], "default.flagos");
    ck_assert_int_eq(reference->kind, FL_KIND_REFERENCE);
    ck_assert_int_eq(flagos->kind, FL_KIND_DEFAULT);
    ck_assert_uint_eq(reference->devices, FL_DEVICE(kDLCPU));
    ck_assert_uint_eq(flagos->devices, FL_DEVICE(kDLCPU));
    ck_assert_uint_eq(reference->dtypes, FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16);
    ck_assert_uint_eq(flagos->dtypes, FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16);
  }
  ck_assert_int_eq(n_impls, 12);
}
END_TEST

static fl_status refuse(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  (void)impl;
  return FL_EEXIST;
}

START_TEST(a_refused_implementation_is_passed_on) {
  char path[512];
  fl_registry registry = {.size = sizeof registry, .abi_major = FL_ABI_MAJOR, .register_impl = refuse};
  snprintf(path, sizeof path, "%s/plugins/cpu.so", build_dir());
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  fl_register_fn entry = NULL;
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_int_eq(entry(&registry), FL_EEXIST);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- activation */

/* All dtypes, rows that are longer than a block and no multiple of it. */
START_TEST(gated_activations_take_strided_tensors_of_any_rank) {
  const DLDataType dtypes[] = {float32, float16, bfloat16};
  DLDataType dtype = dtypes[_i % 3];
  const char *id = both[_i / 3];
  const int64_t in_shape[] = {2, 1, 3, 2 * 301}, out_shape[] = {2, 1, 3, 301};
  owned *x = make(dtype, 4, in_shape, 0), *out = make(dtype, 4, out_shape, 0);
  owned *strided_x = make(dtype, 4, in_shape, 5), *strided_out = make(dtype, 4, out_shape, 3);
  fill(&x->tensor, 1);
  fill(&strided_x->tensor, 1);
  fl_value compact[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_value strided[] = {fl_tensor(&strided_x->tensor), fl_tensor(&strided_out->tensor)};
  check_call("silu_and_mul", id, compact, 2);
  check_call("silu_and_mul", id, strided, 2);
  check_same_elements(&out->tensor, strided_out);
  double gate = get(&x->tensor, 7), up = get(&x->tensor, 301 + 7);
  ck_assert_double_eq_tol(get(&out->tensor, 7), gate / (1 + exp(-gate)) * up, 0.05);
  unmake(x);
  unmake(out);
  unmake(strided_x);
  unmake(strided_out);
}
END_TEST

/* Every finite 16-bit value of the gate, times 1: the default implementation against the reference. */
START_TEST(O5_default_activations_agree_with_the_reference_on_every_value) {
  static const char *const modes[] = {NULL, "none", "tanh"};
  const DLDataType dtype = _i % 2 ? float16 : bfloat16;
  const char *mode = modes[_i / 2], *op = mode ? "gelu_and_mul" : "silu_and_mul";
  enum { D = 65536 };
  const int64_t in_shape[] = {1, 2 * D}, out_shape[] = {1, D};
  owned *x = make(dtype, 2, in_shape, 0), *results[2];
  for (int64_t i = 0; i < D; i++) {
    ((uint16_t *)x->tensor.data)[i] = (uint16_t)i;
    set(&x->tensor, D + i, 1);
  }
  for (int which = 0; which < 2; which++) {
    results[which] = make(dtype, 2, out_shape, 0);
    fl_value values[] = {fl_tensor(&x->tensor), mode ? fl_string(mode) : fl_tensor(&results[which]->tensor),
                         fl_tensor(&results[which]->tensor)};
    check_call(op, both[which], values, mode ? 3 : 2);
  }
  check_close(op, &results[1]->tensor, &results[0]->tensor);
  unmake(x);
  unmake(results[0]);
  unmake(results[1]);
}
END_TEST

START_TEST(silu_and_gelu_at_infinity_are_what_pytorch_gives) {
  const int64_t in_shape[] = {4}, out_shape[] = {2};
  owned *x = make(float32, 1, in_shape, 0), *out = make(float32, 1, out_shape, 0);
  for (int64_t i = 0; i < 4; i++)
    set(&x->tensor, i, i == 0 ? INFINITY : i == 1 ? -INFINITY : 1);
  fl_value silu[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_value none[] = {fl_tensor(&x->tensor), fl_string("none"), fl_tensor(&out->tensor)};
  fl_value tanh[] = {fl_tensor(&x->tensor), fl_string("tanh"), fl_tensor(&out->tensor)};
  for (int which = 0; which < 2; which++) {
    check_call("silu_and_mul", both[which], silu, 2);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
    check_call("gelu_and_mul", both[which], none, 3);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
    check_call("gelu_and_mul", both[which], tanh, 3);
    ck_assert(isinf(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
  }
  unmake(x);
  unmake(out);
}
END_TEST

START_TEST(an_unknown_gelu_approximation_is_a_bad_argument) {
  const int64_t in_shape[] = {1, 4}, out_shape[] = {1, 2};
  owned *x = make(float32, 2, in_shape, 0), *out = make(float32, 2, out_shape, 0);
  fl_value values[] = {fl_tensor(&x->tensor), fl_string("tanhh"), fl_tensor(&out->tensor)};
  for (int which = 0; which < 2; which++) {
    ck_assert_int_eq(call_impl("gelu_and_mul", both[which], values, 3), FL_EINVAL);
    ck_assert_str_eq(message, "argument 'approximate' is \"tanhh\", expected \"none\" or \"tanh\"");
  }
  unmake(x);
  unmake(out);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- norms */

START_TEST(rms_norm_takes_strided_tensors_and_works_in_place) {
  const int64_t shape[] = {2, 3, 301}, weight_shape[] = {301};
  const DLDataType dtypes[] = {float32, float16, bfloat16};
  DLDataType dtype = dtypes[_i % 3];
  const char *id = both[_i / 3];
  owned *x = make(dtype, 3, shape, 0), *residual = make(dtype, 3, shape, 0), *weight = make(dtype, 1, weight_shape, 0);
  owned *out = make(dtype, 3, shape, 0), *residual_out = make(dtype, 3, shape, 0);
  owned *strided_x = make(dtype, 3, shape, 7), *strided_residual = make(dtype, 3, shape, 2);
  fill(&x->tensor, 1);
  fill(&strided_x->tensor, 1);
  fill(&residual->tensor, 2);
  fill(&strided_residual->tensor, 2);
  fill(&weight->tensor, 3);
  fl_value functional[] = {
      fl_tensor(&x->tensor),   fl_tensor(&residual->tensor),    fl_tensor(&weight->tensor), fl_float(1e-6), fl_none(),
      fl_tensor(&out->tensor), fl_tensor(&residual_out->tensor)};
  fl_value in_place[] = {fl_tensor(&strided_x->tensor),
                         fl_tensor(&strided_residual->tensor),
                         fl_tensor(&weight->tensor),
                         fl_float(1e-6),
                         fl_none(),
                         fl_tensor(&strided_x->tensor),
                         fl_tensor(&strided_residual->tensor)};
  check_call("fused_add_rms_norm", id, functional, 7);
  check_call("rms_norm", id, in_place, 7);
  check_same_elements(&out->tensor, strided_x);
  check_same_elements(&residual_out->tensor, strided_residual);
  owned *all[] = {x, residual, weight, out, residual_out, strided_x, strided_residual};
  for (size_t i = 0; i < 7; i++)
    unmake(all[i]);
}
END_TEST

/* A float32 weight (Gemma) means one rounding of (x * scale) * weight; one of x's type means two. */
START_TEST(O4_the_weights_type_decides_where_the_reference_rounds) {
  enum { N = 64 };
  const int64_t shape[] = {1, N}, weight_shape[] = {N};
  owned *x = make(bfloat16, 2, shape, 0), *out = make(bfloat16, 2, shape, 0);
  owned *wide = make(float32, 1, weight_shape, 0), *narrow = make(bfloat16, 1, weight_shape, 0);
  double sum = 0;
  int differ = 0;
  fill(&x->tensor, 4);
  fill(&narrow->tensor, 5);
  for (int64_t i = 0; i < N; i++) {
    set(&wide->tensor, i, get(&narrow->tensor, i));
    sum += get(&x->tensor, i) * get(&x->tensor, i);
  }
  float scale = 1 / sqrtf((float)sum / N + 1e-5f);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_tensor(&wide->tensor), fl_float(1e-5), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
  for (int pass = 0; pass < 2; pass++) {
    check_call("rms_norm", "reference.c", values, 7);
    for (int64_t i = 0; i < N; i++) {
      float normed = (float)get(&x->tensor, i) * scale, w = (float)get(&wide->tensor, i);
      uint16_t once = fl_float_to_bf16(normed * w);
      uint16_t twice = fl_float_to_bf16(fl_bf16_to_float(fl_float_to_bf16(normed)) * w);
      ck_assert_uint_eq(((uint16_t *)out->tensor.data)[i], pass ? twice : once);
      differ += once != twice;
    }
    values[2] = fl_tensor(&narrow->tensor);
  }
  ck_assert_int_gt(differ, 0);
  owned *all[] = {x, out, wide, narrow};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
}
END_TEST

START_TEST(a_variance_size_outside_the_row_is_a_bad_argument) {
  const int64_t shape[] = {2, 8};
  owned *x = make(float32, 2, shape, 0), *out = make(float32, 2, shape, 0);
  fill(&x->tensor, 1);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_none(), fl_float(1e-6), fl_int(9),
                       fl_tensor(&out->tensor), fl_none()};
  for (int which = 0; which < 2; which++) {
    values[4] = fl_int(9);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_EINVAL);
    ck_assert_str_eq(message, "argument 'variance_size' is 9, expected 1 to 8 (the size of a row of 'x')");
    values[4] = fl_int(0);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_EINVAL);
    values[4] = fl_int(8);
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_OK);
  }
  unmake(x);
  unmake(out);
}
END_TEST

START_TEST(a_weight_of_another_kind_is_not_supported_and_nothing_is_written) {
  const int64_t shape[] = {2, 8}, weight_shape[] = {8};
  owned *x = make(float32, 2, shape, 0), *out = make(float32, 2, shape, 0), *weight = make(int32, 1, weight_shape, 0);
  owned *untouched = make(float32, 2, shape, 0);
  fill(&x->tensor, 1);
  fl_value values[] = {fl_tensor(&x->tensor),   fl_none(), fl_tensor(&weight->tensor), fl_float(1e-6), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
  for (int which = 0; which < 2; which++) {
    ck_assert_int_eq(call_impl("rms_norm", both[which], values, 7), FL_ENOTSUP);
    ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
  }
  owned *all[] = {x, out, weight, untouched};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- rotary */

enum { TOKENS = 5, HEADS = 3, SIZE = 24, PAIRS = 4, POSITIONS = 16 };

typedef struct rotary {
  owned *query, *key, *cos, *sin, *ids, *query_out, *key_out;
  fl_value values[10];
} rotary;

static rotary make_rotary(DLDataType dtype, DLDataType table, DLDataType index, int64_t padding) {
  const int64_t query[] = {TOKENS, HEADS, SIZE}, key[] = {TOKENS, 1, SIZE}, angles[] = {POSITIONS, PAIRS};
  const int64_t ids[] = {TOKENS};
  rotary r = {.query = make(dtype, 3, query, padding),
              .key = make(dtype, 3, key, padding),
              .cos = make(table, 2, angles, padding),
              .sin = make(table, 2, angles, padding),
              .ids = make(index, 1, ids, 0),
              .query_out = make(dtype, 3, query, 0),
              .key_out = make(dtype, 3, key, 0)};
  fill(&r.query->tensor, 1);
  fill(&r.key->tensor, 2);
  for (int64_t i = 0; i < POSITIONS * PAIRS; i++) {
    set(&r.cos->tensor, place(&r.cos->tensor, i), cos(0.3 * (double)i));
    set(&r.sin->tensor, place(&r.sin->tensor, i), sin(0.3 * (double)i));
  }
  for (int64_t i = 0; i < TOKENS; i++)
    set(&r.ids->tensor, i, (double)(i * 7 % POSITIONS));
  const fl_value values[] = {fl_tensor(&r.query->tensor),
                             fl_tensor(&r.key->tensor),
                             fl_tensor(&r.cos->tensor),
                             fl_tensor(&r.sin->tensor),
                             fl_tensor(&r.ids->tensor),
                             fl_bool(false),
                             fl_int(0),
                             fl_bool(false),
                             fl_tensor(&r.query_out->tensor),
                             fl_tensor(&r.key_out->tensor)};
  memcpy(r.values, values, sizeof values);
  return r;
}

static void unmake_rotary(rotary *r) {
  owned *all[] = {r->query, r->key, r->cos, r->sin, r->ids, r->query_out, r->key_out};
  for (size_t i = 0; i < 7; i++)
    unmake(all[i]);
}

START_TEST(rotary_in_place_on_strided_tensors_gives_what_it_gives_out_of_place) {
  const DLDataType dtypes[] = {float32, float16, bfloat16};
  DLDataType dtype = dtypes[_i % 3];
  const char *id = both[_i / 3];
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    rotary compact = make_rotary(dtype, float32, int32, 0), strided = make_rotary(dtype, float32, int64, 5);
    compact.values[5] = strided.values[5] = fl_bool(interleaved);
    compact.values[6] = strided.values[6] = fl_int(6);
    strided.values[8] = strided.values[0];
    strided.values[9] = strided.values[1];
    check_call("rotary_embedding", id, compact.values, 10);
    check_call("rotary_embedding", id, strided.values, 10);
    check_same_elements(&compact.query_out->tensor, strided.query);
    check_same_elements(&compact.key_out->tensor, strided.key);
    /* Elements outside [6, 6 + 8) pass through; inside something happened. */
    const DLTensor *in = &compact.query->tensor, *out = &compact.query_out->tensor;
    for (int64_t i = 0; i < SIZE; i++) {
      int64_t at = (1 * HEADS + 2) * SIZE + i; /* token 1 is at position 7 */
      ck_assert_msg((get(in, at) == get(out, at)) == (i < 6 || i >= 14), "element %d", (int)i);
    }
    unmake_rotary(&compact);
    unmake_rotary(&strided);
  }
}
END_TEST

START_TEST(rotary_computes_the_rotation_and_its_inverse_takes_it_back) {
  const char *id = both[_i];
  rotary r = make_rotary(float32, float32, int64, 0);
  check_call("rotary_embedding", id, r.values, 10);
  int64_t position = 7, head = (1 * HEADS + 1) * SIZE;
  for (int64_t i = 0; i < PAIRS; i++) {
    double c = get(&r.cos->tensor, position * PAIRS + i), s = get(&r.sin->tensor, position * PAIRS + i);
    double x1 = get(&r.query->tensor, head + i), x2 = get(&r.query->tensor, head + PAIRS + i);
    ck_assert_double_eq_tol(get(&r.query_out->tensor, head + i), x1 * c - x2 * s, 1e-6);
    ck_assert_double_eq_tol(get(&r.query_out->tensor, head + PAIRS + i), x2 * c + x1 * s, 1e-6);
  }
  r.values[7] = fl_bool(true);
  r.values[0] = r.values[8];
  r.values[1] = r.values[9];
  check_call("rotary_embedding", id, r.values, 10);
  for (int64_t i = 0; i < TOKENS * HEADS * SIZE; i++)
    ck_assert_double_eq_tol(get(&r.query_out->tensor, i), get(&r.query->tensor, i), 1e-5);
  unmake_rotary(&r);
}
END_TEST

/* [T, heads * size] with size from cos, and no key. */
START_TEST(rotary_takes_flat_queries_and_no_key) {
  const char *id = both[_i];
  const int64_t flat[] = {TOKENS, HEADS * 2 * PAIRS}, split[] = {TOKENS, HEADS, 2 * PAIRS};
  rotary r = make_rotary(bfloat16, bfloat16, int64, 0);
  owned *a = make(bfloat16, 2, flat, 0), *a_out = make(bfloat16, 2, flat, 0);
  owned *b = make(bfloat16, 3, split, 0), *b_out = make(bfloat16, 3, split, 0);
  fill(&a->tensor, 9);
  fill(&b->tensor, 9);
  r.values[1] = r.values[9] = fl_none();
  r.values[0] = fl_tensor(&a->tensor);
  r.values[8] = fl_tensor(&a_out->tensor);
  check_call("rotary_embedding", id, r.values, 10);
  r.values[0] = fl_tensor(&b->tensor);
  r.values[8] = fl_tensor(&b_out->tensor);
  check_call("rotary_embedding", id, r.values, 10);
  ck_assert_mem_eq(a_out->tensor.data, b_out->tensor.data, a_out->bytes);
  owned *all[] = {a, a_out, b, b_out};
  for (size_t i = 0; i < 4; i++)
    unmake(all[i]);
  unmake_rotary(&r);
}
END_TEST

START_TEST(rotary_heads_longer_than_a_block_agree_between_the_implementations) {
  const int64_t query[] = {2, 1, 1300}, angles[] = {4, 600}, ids[] = {2};
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    owned *x = make(float16, 3, query, 0), *c = make(float16, 2, angles, 0), *s = make(float16, 2, angles, 0);
    owned *positions = make(int64, 1, ids, 0), *out[] = {make(float16, 3, query, 0), make(float16, 3, query, 0)};
    fill(&x->tensor, 1);
    fill(&c->tensor, 2);
    fill(&s->tensor, 3);
    set(&positions->tensor, 0, 3);
    set(&positions->tensor, 1, 1);
    for (int which = 0; which < 2; which++) {
      fl_value values[] = {fl_tensor(&x->tensor),
                           fl_none(),
                           fl_tensor(&c->tensor),
                           fl_tensor(&s->tensor),
                           fl_tensor(&positions->tensor),
                           fl_bool(interleaved),
                           fl_int(100),
                           fl_bool(true),
                           fl_tensor(&out[which]->tensor),
                           fl_none()};
      check_call("rotary_embedding", both[which], values, 10);
    }
    ck_assert_mem_eq(out[0]->tensor.data, out[1]->tensor.data, out[0]->bytes);
    owned *all[] = {x, c, s, positions, out[0], out[1]};
    for (size_t i = 0; i < 6; i++)
      unmake(all[i]);
  }
}
END_TEST

START_TEST(O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written) {
  const char *id = both[_i];
  const double bad[] = {POSITIONS, -1};
  for (int wide = 0; wide < 2; wide++)
    for (int which = 0; which < 2; which++) {
      char expected[128];
      rotary r = make_rotary(float32, float32, wide ? int64 : int32, 0);
      owned *untouched = make(float32, 3, r.query->shape, 0);
      set(&r.ids->tensor, TOKENS - 1, bad[which]);
      ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
      snprintf(expected, sizeof expected, "argument 'position_ids'[4] is %d, expected 0 to 15 (rows of 'cos')",
               (int)bad[which]);
      ck_assert_str_eq(message, expected);
      ck_assert_mem_eq(r.query_out->tensor.data, untouched->tensor.data, untouched->bytes);
      unmake(untouched);
      unmake_rotary(&r);
    }
}
END_TEST

START_TEST(O6_a_rope_offset_beyond_the_head_is_a_bad_argument) {
  const char *id = both[_i];
  rotary r = make_rotary(float32, float32, int64, 0);
  r.values[6] = fl_int(SIZE - 2 * PAIRS + 1);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(message, "argument 'rope_dim_offset' is 17, expected 0 to 16"));
  r.values[6] = fl_int(-1);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_EINVAL);
  r.values[6] = fl_int(SIZE - 2 * PAIRS);
  ck_assert_int_eq(call_impl("rotary_embedding", id, r.values, 10), FL_OK);
  unmake_rotary(&r);
}
END_TEST

/* ------------------------------------------------------------------------------------------- attention, no tokens */

START_TEST(O8_attention_backend_names_vllms_cpu_class_and_knows_its_limits) {
  fl_value values[] = {fl_bool(false), fl_bool(false), fl_none()};
  for (int which = 0; which < 2; which++) {
    values[0] = values[1] = fl_bool(false);
    check_call("attention_backend", both[which], values, 3);
    ck_assert_str_eq(values[2].v.s, "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend");
    values[0] = fl_bool(true);
    ck_assert_int_eq(call_impl("attention_backend", both[which], values, 3), FL_ENOTSUP);
    ck_assert_str_eq(message, "vLLM has no MLA attention backend for CPUs");
    values[0] = fl_bool(false);
    values[1] = fl_bool(true);
    ck_assert_int_eq(call_impl("attention_backend", both[which], values, 3), FL_EINVAL);
    ck_assert_ptr_nonnull(strstr(message, "argument 'use_sparse' is true"));
  }
}
END_TEST

START_TEST(O2_no_tokens_succeed_and_write_nothing) {
  const int64_t shape[] = {3, 0, 8}, half[] = {3, 0, 4}, query[] = {0, 2, 8}, angles[] = {4, 4}, ids[] = {0};
  for (int which = 0; which < 2; which++) {
    owned *x = make(float16, 3, shape, 0), *out = make(float16, 3, shape, 0), *short_out = make(float16, 3, half, 0);
    owned *q = make(float16, 3, query, 0), *angle = make(float16, 2, angles, 0), *positions = make(int64, 1, ids, 0);
    fl_value silu[] = {fl_tensor(&x->tensor), fl_tensor(&short_out->tensor)};
    fl_value norm[] = {fl_tensor(&x->tensor),   fl_none(), fl_none(), fl_float(1e-6), fl_none(),
                       fl_tensor(&out->tensor), fl_none()};
    fl_value rotate[] = {fl_tensor(&q->tensor),
                         fl_none(),
                         fl_tensor(&angle->tensor),
                         fl_tensor(&angle->tensor),
                         fl_tensor(&positions->tensor),
                         fl_bool(false),
                         fl_int(0),
                         fl_bool(false),
                         fl_tensor(&q->tensor),
                         fl_none()};
    check_call("silu_and_mul", both[which], silu, 2);
    check_call("rms_norm", both[which], norm, 7);
    check_call("rotary_embedding", both[which], rotate, 10);
    owned *all[] = {x, out, short_out, q, angle, positions};
    for (size_t i = 0; i < 6; i++)
      unmake(all[i]);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O4_reference_reproduces_the_golden_files_bit_for_bit_where_they_say_so, 0, N_GOLDEN_OPS);
  tcase_add_loop_test(tests, O5_default_agrees_with_the_golden_files_within_tolerance, 0, N_GOLDEN_OPS);
  tcase_add_test(tests, every_op_has_a_reference_and_a_default_implementation_for_the_cpu);
  tcase_add_test(tests, a_refused_implementation_is_passed_on);
  tcase_add_loop_test(tests, gated_activations_take_strided_tensors_of_any_rank, 0, 6);
  tcase_add_loop_test(tests, O5_default_activations_agree_with_the_reference_on_every_value, 0, 6);
  tcase_add_test(tests, silu_and_gelu_at_infinity_are_what_pytorch_gives);
  tcase_add_test(tests, an_unknown_gelu_approximation_is_a_bad_argument);
  tcase_add_loop_test(tests, rms_norm_takes_strided_tensors_and_works_in_place, 0, 6);
  tcase_add_test(tests, O4_the_weights_type_decides_where_the_reference_rounds);
  tcase_add_test(tests, a_variance_size_outside_the_row_is_a_bad_argument);
  tcase_add_test(tests, a_weight_of_another_kind_is_not_supported_and_nothing_is_written);
  tcase_add_loop_test(tests, rotary_in_place_on_strided_tensors_gives_what_it_gives_out_of_place, 0, 6);
  tcase_add_loop_test(tests, rotary_computes_the_rotation_and_its_inverse_takes_it_back, 0, 2);
  tcase_add_loop_test(tests, rotary_takes_flat_queries_and_no_key, 0, 2);
  tcase_add_test(tests, rotary_heads_longer_than_a_block_agree_between_the_implementations);
  tcase_add_loop_test(tests, O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O6_a_rope_offset_beyond_the_head_is_a_bad_argument, 0, 2);
  tcase_add_test(tests, O8_attention_backend_names_vllms_cpu_class_and_knows_its_limits);
  tcase_add_test(tests, O2_no_tokens_succeed_and_write_nothing);
}

int main(void) {
  return run_suite("cpu_plugin", add_tests, 20);
}
