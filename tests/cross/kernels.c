/*
 * The CPU plugin's optimised kernels beside its references, on calls of `flhost verify`. Without a host, Check or any
 * library but the C library's, so that it can be built for another architecture than this and run in an emulator
 * (`make check-aarch64`). The summary is Check's, for tests/run.
 */
#include "cli/trials/fill.h"
#include "cli/trials/state.h"
#include "core/cases.h"
#include "core/ops.h"
#include "core/schema.h"

#include <dlfcn.h>
#include <flhost/testing.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many calls of an op are made with each element type, of how many that are tried. What costs more takes an
 * emulator too long. */
enum { CALLS = 8, TRIED = 60, MOST_ELEMENTS = 1 << 17, MOST_OPERATIONS = 2 << 20 };

static int n_tests, n_failures;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
}

/* ------------------------------------------------------------------------------------------------------ the plugin */

enum { MAX_IMPLS = 256 };
static fl_impl impls[MAX_IMPLS];
static int n_impls;
static const char *wanted_variant;
static char message[512];

static fl_status collect(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  if (n_impls == MAX_IMPLS)
    return FL_ENOMEM;
  impls[n_impls++] = *impl;
  return FL_OK;
}

static void keep_error(fl_registry *registry, const char *text) {
  (void)registry;
  snprintf(message, sizeof message, "%s", text);
}

static fl_status give_setting(fl_registry *registry, const char *name, char *value, size_t size) {
  (void)registry;
  snprintf(value, size, "%s", strcmp(name, "VLLM_FL_CPU_ISA") ? "null" : wanted_variant);
  return FL_OK;
}

/* As many ranges as there may be, the last one first. */
static fl_status in_ranges(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  fl_status status = FL_OK;
  for (int64_t first = (n - 1) / grain * grain; first >= 0 && n > 0 && !status; first -= grain)
    status = body(user, first, first + grain < n ? first + grain : n);
  return status;
}

static fl_status load_plugin(const char *path, const char *variant) {
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .abi_minor = FL_ABI_MINOR,
                          .register_impl = collect,
                          .error = keep_error,
                          .setting = give_setting,
                          .parallel_for = in_ranges};
  fl_register_fn entry = NULL;
  n_impls = 0;
  wanted_variant = variant;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library)
    *(void **)&entry = dlsym(library, "register_builtins");
  if (entry)
    return entry(&registry);
  snprintf(message, sizeof message, "%s", dlerror());
  return FL_ENOENT;
}

static const fl_impl *find_impl(const char *op, const char *id) {
  for (int i = 0; i < n_impls; i++)
    if (!strcmp(impls[i].op_name, op) && !strcmp(impls[i].impl_id, id))
      return &impls[i];
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- calls */

/* What is the same for all implementations that are called. */
typedef struct made_call {
  const fl_schema *schema;
  uint32_t dtype, n_values;
  uint64_t number;
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  fl_tensor_spec specs[FL_SCHEMA_MAX_VALUES]; /* by value: arguments, results; not present: it is no tensor */
} made_call;

static int64_t elements_of(const fl_tensor_spec *spec) {
  int64_t n = spec->present;
  for (int d = 0; d < spec->ndim; d++)
    n *= spec->shape[d];
  return n;
}

static size_t bytes_of(const fl_tensor_spec *spec) {
  return (size_t)elements_of(spec) * (spec->dtype.bits / 8u);
}

static DLTensor tensor_like(fl_tensor_spec *spec, void *data) {
  return (DLTensor){
      .data = data, .device = {kDLCPU, 0}, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
}

/* FL_ENOENT: the op does not take this element type; FL_EINVAL: this number makes no call, or too large a one. */
static fl_status make_call(made_call *made, const fl_schema *schema, uint32_t dtype, uint64_t number) {
  fl_value values[FL_SCHEMA_MAX_VALUES];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  fl_bindings bindings;
  fl_cost cost = {.size = sizeof cost};
  int64_t elements = 0;
  uint32_t n = schema->n_arguments;
  *made = (made_call){
      .schema = schema, .dtype = dtype, .number = number, .n_values = schema->n_arguments + schema->n_results};
  fl_status status = fl_schema_generate_inputs(schema, dtype, NULL, 1, number, made->inputs, n, sizeof made->inputs[0]);
  if (status)
    return status;
  for (uint32_t i = 0; i < n; i++) {
    values[i] = made->inputs[i].value;
    if (schema->values[i].type != FL_TENSOR || !made->inputs[i].spec.present)
      continue;
    made->specs[i] = made->inputs[i].spec;
    tensors[i] = tensor_like(&made->specs[i], NULL);
    values[i] = fl_tensor(&tensors[i]);
  }
  const fl_call call = {.size = sizeof call, .count = n, .values = values};
  status = fl_schema_bind(schema, &call, &bindings, made->specs + n);
  for (uint32_t i = 0; i < made->n_values && !status; i++) {
    made->specs[i].present &= schema->values[i].type == FL_TENSOR;
    elements += elements_of(&made->specs[i]);
  }
  if (!status && *schema->flops)
    status = fl_cost_evaluate(schema, &call, &bindings, made->specs + n, &cost);
  return status || (elements <= MOST_ELEMENTS && cost.flops <= MOST_OPERATIONS) ? status : FL_EINVAL;
}

/* A call of one implementation, with memory of its own: so many bytes lie behind each tensor. */
enum { BEHIND = 64, UNTOUCHED = 0x5a };

typedef struct attempt {
  fl_value values[FL_SCHEMA_MAX_VALUES];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  void *data[FL_SCHEMA_MAX_VALUES];
  void *workspace;
} attempt;

static bool same_spec(const fl_tensor_spec *a, const fl_tensor_spec *b) {
  return a->present && b->present && a->ndim == b->ndim && !memcmp(&a->dtype, &b->dtype, sizeof a->dtype) &&
         !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]);
}

/* Where a result lies: in every other call in place, where it may. */
static uint32_t place_of(const made_call *made, uint32_t i) {
  int32_t alias = made->schema->values[i].alias;
  bool in_place = made->number % 2 && alias >= 0 && same_spec(&made->specs[i], &made->specs[alias]);
  return in_place ? (uint32_t)alias : i;
}

static bool begin_attempt(attempt *a, made_call *made) {
  *a = (attempt){0};
  for (uint32_t i = 0; i < made->n_values; i++) {
    bool is_argument = i < made->schema->n_arguments;
    uint32_t at = place_of(made, i);
    a->values[i] = is_argument ? made->inputs[i].value : fl_none();
    if (!made->specs[i].present)
      continue;
    if (at == i) {
      a->data[i] = malloc(bytes_of(&made->specs[i]) + BEHIND);
      a->tensors[i] = tensor_like(&made->specs[i], a->data[i]);
      memset(a->data[i], UNTOUCHED, bytes_of(&made->specs[i]) + BEHIND);
      if (is_argument && !fill_tensor(&made->inputs[i], made->number * 64 + i, made->number % 5 >= 3, a->data[i]))
        return false;
    }
    a->values[i] = fl_tensor(&a->tensors[at]);
  }
  return true;
}

static void end_attempt(attempt *a) {
  for (int i = 0; i < FL_SCHEMA_MAX_VALUES; i++)
    free(a->data[i]);
  free(a->workspace);
}

static fl_status run_attempt(attempt *a, const made_call *made, const fl_impl *impl) {
  const char *reason;
  fl_call call = {.size = sizeof call,
                  .count = made->n_values,
                  .values = a->values,
                  .message = message,
                  .message_size = sizeof message};
  message[0] = 0;
  if (impl->supports_args && !impl->supports_args(impl->self, &call, &reason))
    return FL_ENOTSUP;
  call.workspace_size = impl->workspace_size ? impl->workspace_size(impl->self, &call) : 0;
  call.workspace = a->workspace = call.workspace_size ? malloc(call.workspace_size) : NULL;
  return impl->fn(impl->self, &call);
}

/* --------------------------------------------------------------------------------------------------------- results */

static fl_tolerance tolerance_of(const made_call *made, uint32_t i) {
  fl_tolerance allowed = fl_schema_tolerance(made->schema, made->specs[i].dtype);
  const fl_element_type *type = fl_element_type_of_bit(made->dtype);
  if (!type)
    return allowed;
  fl_tolerance activations = fl_schema_tolerance(made->schema, type->dtype);
  allowed.atol = allowed.atol > 0 ? fmax(allowed.atol, activations.atol) : 0;
  allowed.rtol = allowed.rtol > 0 ? fmax(allowed.rtol, activations.rtol) : 0;
  return allowed;
}

/* Says what is wrong; *worst becomes the largest error as a share of what is allowed. */
static bool agrees(const made_call *made, const attempt *got, const attempt *expected, double *worst) {
  bool agree = true;
  for (uint32_t i = 0; i < made->n_values && agree; i++) {
    const fl_argument *value = &made->schema->values[i];
    if (got->data[i] && (i >= made->schema->n_arguments || value->mutates)) {
      fl_tolerance allowed = tolerance_of(made, i);
      fl_comparison found = {.size = sizeof found};
      agree = !fl_compare_tensors(&got->tensors[i], &expected->tensors[i], allowed.atol, allowed.rtol, false, &found) &&
              found.pass;
      *worst = found.max_share > *worst ? found.max_share : *worst;
      if (!agree)
        fail("  call %d, '%s': %s", (int)made->number, value->name, found.problem);
    } else if (value->type == FL_STRING && i >= made->schema->n_arguments) {
      agree = !strcmp(got->values[i].v.s, expected->values[i].v.s);
      if (!agree)
        fail("  call %d, '%s': \"%s\", expected \"%s\"", (int)made->number, value->name, got->values[i].v.s,
             expected->values[i].v.s);
    }
  }
  return agree;
}

/* Is the process as it was, and what lies behind the tensors; does a second call give the same bits? */
static bool keeps_contract(const made_call *made, const attempt *first, const attempt *second,
                           const process_state *before) {
  char words[256];
  const char *difference = state_difference(before, words, sizeof words);
  if (difference)
    fail("  call %d: it %s", (int)made->number, difference);
  for (uint32_t i = 0; i < made->n_values && !difference; i++) {
    size_t bytes = bytes_of(&made->specs[i]);
    const char *wrong = NULL;
    if (first->data[i] && memcmp(first->data[i], second->data[i], bytes))
      wrong = "other bits the second time";
    for (size_t k = bytes; first->data[i] && k < bytes + BEHIND; k++)
      wrong = ((const char *)first->data[i])[k] == UNTOUCHED ? wrong : "something was written behind its end";
    if (wrong) {
      fail("  call %d, '%s': %s", (int)made->number, made->schema->values[i].name, wrong);
      return false;
    }
  }
  return !difference;
}

/* FL_EINVAL: this number makes no call, or one that both refuse; FL_ENOTSUP: the optimised kernel does not take it.
 * FL_EINTERNAL: something is wrong, and said. */
static fl_status compare(const made_call *made, attempt all[3], const fl_impl *reference, const fl_impl *flagos,
                         double *worst) {
  attempt *expected = &all[0], *got = &all[1], *again = &all[2];
  char refusal[sizeof message];
  process_state before;
  fl_status refused = run_attempt(expected, made, reference);
  snprintf(refusal, sizeof refusal, "%s", message);
  state_take(&before);
  fl_status status = run_attempt(got, made, flagos);
  if (status == FL_ENOTSUP)
    return status;
  if (status != refused) {
    fail("  call %d: status %d, \"%s\"; the reference's is %d, \"%s\"", (int)made->number, status, message, refused,
         refusal);
    return FL_EINTERNAL;
  }
  if (refused)
    return FL_EINVAL;
  if (run_attempt(again, made, flagos)) {
    fail("  call %d: it fails the second time: %s", (int)made->number, message);
    return FL_EINTERNAL;
  }
  bool good = agrees(made, got, expected, worst) && keeps_contract(made, got, again, &before);
  return good ? FL_OK : FL_EINTERNAL;
}

static fl_status try_call(made_call *made, const fl_impl *reference, const fl_impl *flagos, double *worst) {
  attempt all[3];
  bool filled = true;
  for (int i = 0; i < 3; i++)
    filled &= begin_attempt(&all[i], made);
  fl_status status = filled ? compare(made, all, reference, flagos, worst) : FL_EINVAL;
  for (int i = 0; i < 3; i++)
    end_attempt(&all[i]);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- tests */

static void end_test(bool good, const char *op, const char *dtype, const char *words) {
  n_tests++;
  n_failures += !good;
  printf("%s %-28s %-9s %s\n", good ? "good" : "BAD ", op, dtype, words);
  fflush(stdout);
}

/* One op with one element type; whether there was anything to call. */
static bool test_op(const fl_schema *schema, uint32_t dtype) {
  const fl_impl *reference = find_impl(schema->op_name, "reference.c"),
                *flagos = find_impl(schema->op_name, "default.flagos");
  const fl_element_type *type = fl_element_type_of_bit(dtype);
  int called = 0, bad = !reference || !flagos;
  double worst = 0;
  for (uint64_t number = 0; number < TRIED && called < CALLS && !bad; number++) {
    static made_call made;
    fl_status status = make_call(&made, schema, dtype, number);
    if (status == FL_ENOENT)
      return false;
    if (!status)
      status = try_call(&made, reference, flagos, &worst);
    called += status == FL_OK;
    bad += status == FL_EINTERNAL;
  }
  char words[128];
  snprintf(words, sizeof words, "%d calls, worst error %.2g of the tolerance", called, worst);
  end_test(!bad && called, schema->op_name, type ? type->name : "", words);
  return true;
}

static void test_all_ops(void) {
  static const uint32_t dtypes[] = {FL_FLOAT32, FL_BFLOAT16, FL_FLOAT16};
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry; entry++) {
    fl_schema *schema = NULL;
    bool tested = false;
    if (fl_schema_create_checked(*entry, &schema)) {
      end_test(false, (*entry)->schema, "", fl_error_message());
      continue;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
      tested |= test_op(schema, dtypes[i]);
    if (!tested && !test_op(schema, 0))
      end_test(false, schema->op_name, "", "no call can be made");
    fl_schema_free(schema);
  }
}

/* Of an architecture without variants the base is what runs, and those of others are refused. */
static void test_variants(const char *plugin) {
  bool refused = load_plugin(plugin, "avx512") && strstr(message, "VLLM_FL_CPU_ISA=avx512: this plugin was built");
  end_test(refused, "another architecture's variant", "", message);
  fl_status status = load_plugin(plugin, "auto");
  const fl_impl *flagos = find_impl("rms_norm", "default.flagos");
  bool base = !status && flagos && flagos->variant && !strcmp(flagos->variant, "baseline");
  end_test(base, "the base is what runs", "", status ? message : "");
}

int main(int argc, char **argv) {
  const char *build = getenv("FLHOST_BUILD");
  char plugin[512];
  snprintf(plugin, sizeof plugin, "%s/plugins/cpu.so", argc > 1 ? argv[1] : build ? build : "build");
  test_variants(plugin);
  test_all_ops();
  printf("%d%%: Checks: %d, Failures: %d, Errors: 0\n", n_tests ? (n_tests - n_failures) * 100 / n_tests : 0, n_tests,
         n_failures);
  return n_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
