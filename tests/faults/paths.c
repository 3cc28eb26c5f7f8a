#include "tests/faults/paths.h"

#include <dlfcn.h>
#include <flhost/testing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(findings *found, const char *format, ...) FL_PRINTF(2, 3);
static void say(findings *found, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(found->text + found->length, sizeof found->text - found->length, format, arguments);
  va_end(arguments);
  if (length > 0 && (size_t)length < sizeof found->text - found->length)
    found->length += (size_t)length;
}

static void take_line(void *user, int level, const char *line) {
  fault_place *place = user;
  if (level < FL_LOG_WARNING)
    return;
  place->warnings++;
  snprintf(place->last_warning, sizeof place->last_warning, "%s", line);
}

fl_status new_host(fault_place *place, fl_host **host) {
  static char path[1024], config[1024];
  snprintf(path, sizeof path, "VLLM_FL_PLUGIN_PATH=%s/plugins:%s/plugins", place->build, place->directory);
  snprintf(config, sizeof config, "VLLM_FL_CONFIG=%s/policy.yaml", place->directory);
  const char *const environment[] = {path, config, NULL};
  fl_host_options options = {
      .size = sizeof options, .environment = environment, .log = take_line, .log_user = place, .platform = "cpu"};
  return fl_host_create(&options, host);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

typedef struct tensors {
  float x[2][8], out[2][8], weight[8];
  int64_t shape[2], wide[1];
  DLTensor dl[3];
  fl_value values[7];
} tensors;

/* rms_norm(x, residual, weight, epsilon, variance_size) -> (out, residual_out) */
static fl_call rms_norm(tensors *t) {
  *t = (tensors){.shape = {2, 8}, .wide = {8}};
  for (int i = 0; i < 16; i++)
    t->x[i / 8][i % 8] = (float)(i - 5);
  for (int i = 0; i < 8; i++)
    t->weight[i] = 1.0f + (float)i;
  void *const data[] = {t->x, t->weight, t->out};
  for (int i = 0; i < 3; i++)
    t->dl[i] = (DLTensor){.data = data[i],
                          .device = {kDLCPU, 0},
                          .ndim = i == 1 ? 1 : 2,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = i == 1 ? t->wide : t->shape};
  const fl_value values[] = {fl_tensor(&t->dl[0]), fl_none(), fl_tensor(&t->dl[1]), fl_float(1e-6), fl_none(),
                             fl_tensor(&t->dl[2]), fl_none()};
  memcpy(t->values, values, sizeof values);
  return (fl_call){.size = sizeof(fl_call), .count = 7, .values = t->values};
}

static void say_result(const tensors *t, findings *found) {
  for (int i = 0; i < 16; i++)
    say(found, "%.4f ", (double)t->out[i / 8][i % 8]);
}

static fl_status call_once(fl_host *host, findings *found) {
  tensors t;
  fl_call call = rms_norm(&t);
  fl_status status = fl_call_op(host, "rms_norm", &call);
  if (!status)
    say_result(&t, found);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ paths */

/* One that could not be loaded now says why, which is as good as a warning. */
static fl_status list_plugins(fault_place *place, fl_host *host, findings *found) {
  fl_plugins *plugins = NULL;
  fl_status status = fl_get_discovered_plugins(host, &plugins);
  const fl_plugin_info *plugin;
  for (uint32_t i = 0; !status && (plugin = fl_plugin_at(plugins, i)); i++) {
    say(found, "%s %s %s %u; ", plugin->name, plugin->route, plugin->status, plugin->impls);
    place->warnings += strcmp(plugin->status, "loaded") && strcmp(plugin->status, "unavailable") && *plugin->reason;
  }
  fl_plugins_free(plugins);
  return status;
}

static fl_status list_settings(fl_host *host, findings *found) {
  fl_settings *settings = NULL;
  fl_status status = fl_get_settings(host, &settings);
  const fl_setting *setting;
  for (uint32_t i = 0; !status && (setting = fl_setting_at(settings, i)); i++)
    say(found, "%s=%s (%s); ", setting->name, setting->value, setting->origin);
  fl_settings_free(settings);
  return status;
}

static fl_status create(fault_place *place, findings *found) {
  fl_host *host = NULL;
  fl_status status = new_host(place, &host);
  if (!status)
    status = list_plugins(place, host, found);
  if (!status)
    status = list_settings(host, found);
  fl_host_destroy(host);
  return status;
}

static fl_status first_call(fault_place *place, findings *found) {
  return call_once(place->host, found);
}

static fl_status first_call_of_plugin(fault_place *place, findings *found) {
  fl_op *op = fl_find_op(place->host, "lazy_a");
  if (!op)
    return strstr(fl_error_message(), "memory") ? FL_ENOMEM : FL_ENOENT;
  say(found, "%s", fl_op_schema(op));
  return FL_OK;
}

static fl_status explain(fault_place *place, findings *found) {
  fl_explanation *explanation = NULL;
  fl_status status = fl_explain(place->host, "rms_norm", kDLCPU, &explanation);
  if (!status) {
    say(found, "%s by %s: ", explanation->selected, explanation->order_origin);
    const fl_explained *impl;
    for (uint32_t i = 0; (impl = fl_explained_at(explanation, i)); i++)
      say(found, "%s %d %s; ", impl->impl_id, (int)impl->verdict, impl->reason);
  }
  fl_explanation_free(explanation);
  return status;
}

static fl_status plugins(fault_place *place, findings *found) {
  return list_plugins(place, place->host, found);
}

static fl_status settings(fault_place *place, findings *found) {
  return list_settings(place->host, found);
}

static fl_status snapshot(fault_place *place, findings *found) {
  fl_snapshot *snapshot = fl_registry_snapshot(place->host);
  if (!snapshot)
    return FL_ENOMEM;
  uint32_t n = fl_snapshot_op_count(snapshot);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++)
      say(found, "%s %s; ", fl_snapshot_op_name(snapshot, i), fl_snapshot_impl(snapshot, i, j)->impl_id);
  fl_snapshot_release(snapshot);
  return FL_OK;
}

static fl_status manifest(fault_place *place, findings *found) {
  fl_manifest *manifest = NULL;
  fl_status status = fl_get_manifest(place->host, kDLCPU, &manifest);
  if (!status)
    say(found, "%s", manifest->text);
  fl_manifest_free(manifest);
  return status;
}

static fl_status platform(fault_place *place, findings *found) {
  fl_platform_report *report = NULL;
  fl_status status = fl_get_platform(place->host, &report);
  if (!status)
    say(found, "%s", report->active);
  fl_platform_report_free(report);
  return status;
}

static fl_status policy(fault_place *place, findings *found) {
  char file[1024];
  fl_policy *read = NULL, *strict = NULL, *order = NULL;
  const char *const tokens[] = {"vendor", "reference"};
  snprintf(file, sizeof file, "%s/policy.yaml", place->directory);
  fl_status status = fl_policy_from_config(file, &read);
  if (!status)
    status = fl_policy_with_strict(read, true, &strict);
  if (!status)
    status = fl_policy_with_op_order(strict, "gelu", tokens, 2, &order);
  if (!status)
    say(found, "%s", fl_policy_fingerprint(order));
  fl_policy_release(order);
  fl_policy_release(strict);
  fl_policy_release(read);
  return status;
}

static fl_status scope(fault_place *place, findings *found) {
  fl_scope scope, inner;
  const char *const denied[] = {"acme"};
  fl_status status = fl_scope_prefer(place->host, "reference", &scope);
  if (status)
    return status;
  status = call_once(place->host, found);
  fl_status entered = fl_scope_deny_vendors(place->host, denied, 1, &inner);
  if (!entered) {
    if (!status)
      status = call_once(place->host, found);
    entered = fl_scope_leave(&inner);
  }
  fl_status left = fl_scope_leave(&scope);
  return status ? status : entered ? entered : left;
}

static fl_status freeze(fault_place *place, findings *found) {
  uint32_t n = 0, without = 0;
  fl_status status = fl_warm_up(place->host, kDLCPU, &n, &without);
  if (!status)
    status = fl_freeze(place->host, "faults");
  if (status)
    return status;
  say(found, "%u %u ", n, without);
  status = call_once(place->host, found);
  fl_status thawed = fl_thaw(place->host, "faults");
  return status ? status : thawed;
}

static fl_status leave(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

static fl_status registering(fault_place *place, findings *found) {
  const fl_op_def op = {.size = sizeof op, .schema = "brought(Tensor x, int n=1) -> Tensor out"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "brought",
                        .impl_id = "default.brought",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = leave};
  fl_withdraw_plugin(place->host, "engine"); /* what is left where withdrawing failed */
  fl_status status = fl_register_op(place->host, &op);
  if (!status)
    status = fl_register_impl(place->host, &impl);
  if (status)
    return status;
  char selected[FL_NAME_MAX + 1];
  status = fl_get_selected_impl_id(place->host, "brought", kDLCPU, selected, sizeof selected);
  say(found, "%s", selected);
  fl_status withdrawn = fl_withdraw_plugin(place->host, "engine");
  return status ? status : withdrawn;
}

static fl_status load(fault_place *place, findings *found) {
  char file[1024];
  snprintf(file, sizeof file, "%s/other/two_vendors.so", place->directory);
  fl_status status = fl_load_plugin(place->host, file);
  fl_op *op = status ? NULL : fl_find_op(place->host, "test_scale");
  if (!status && !op)
    return FL_ENOMEM;
  if (op)
    say(found, "%s", fl_op_schema(op));
  return status;
}

static fl_status discover(fault_place *place, findings *found) {
  uint32_t n = 0;
  fl_clear_discovered_plugins(place->host);
  fl_status status = fl_discover_plugins(place->host, &n);
  if (!status)
    status = list_plugins(place, place->host, found);
  return status;
}

static fl_status inferring(fault_place *place, findings *found) {
  tensors t;
  fl_call call = rms_norm(&t);
  fl_tensor_spec spec;
  size_t size = 0;
  fl_op *op = fl_find_op(place->host, "rms_norm");
  if (!op)
    return FL_ENOMEM;
  fl_status status = fl_infer(op, &call, &spec, 1, sizeof spec);
  if (!status)
    status = fl_check(op, &call);
  if (!status)
    status = fl_workspace_size(op, &call, &size);
  if (!status)
    say(found, "%d %lld %zu", spec.ndim, (long long)spec.shape[1], size);
  return status;
}

static fl_status cases(fault_place *place, findings *found) {
  fl_input inputs[5];
  fl_op *op = fl_find_op(place->host, "rms_norm");
  if (!op)
    return FL_ENOMEM;
  fl_status status = fl_generate_inputs(op, 0, 1, 0, inputs, 5, sizeof *inputs);
  if (!status)
    say(found, "%d %lld", inputs[0].spec.ndim, (long long)inputs[0].spec.shape[0]);
  return status;
}

static size_t size_of_weight(void *self, const fl_call *call) {
  (void)self;
  return (size_t)call->values[1].v.tensor->shape[0] * sizeof(float);
}

static fl_status keep_weight(void *self, fl_call *call, void *memory, size_t size) {
  (void)self;
  memcpy(memory, fl_data(call->values[1].v.tensor), size);
  return FL_OK;
}

/* Fails without what was prepared. */
static fl_status add_weight(void *self, fl_call *call) {
  const float *weight = fl_prepared_data(call, keep_weight, self), *x = fl_data(call->values[0].v.tensor);
  float *out = fl_data(call->values[2].v.tensor);
  for (int i = 0; weight && i < 16; i++)
    out[i] = x[i] + weight[i % 8];
  return weight ? FL_OK : FL_EINTERNAL;
}

static fl_status prepare(fault_place *place, findings *found) {
  const fl_host_options options = {
      .size = sizeof options, .log = take_line, .log_user = place, .platform = "cpu", .flags = FL_HOST_NO_PLUGINS};
  const fl_op_def op = {.size = sizeof op,
                        .schema = "added(Tensor x, Tensor weight) -> Tensor out",
                        .rules = "x: float32[n, m]; weight: float32[m]; out: float32[n, m]"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "added",
                        .impl_id = "default.added",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = add_weight,
                        .prepares = 1 << 1,
                        .prepared_size = size_of_weight,
                        .prepare = keep_weight};
  fl_host *host = NULL;
  tensors t;
  rms_norm(&t);
  fl_value values[] = {fl_tensor(&t.dl[0]), fl_tensor(&t.dl[1]), fl_tensor(&t.dl[2])};
  fl_call call = FL_CALL(values);
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = fl_register_op(host, &op);
  if (!status)
    status = fl_register_impl(host, &impl);
  fl_op *added = status ? NULL : fl_find_op(host, "added");
  if (!status)
    status = added ? fl_prepare(added, &call, &call.prepared) : FL_ENOMEM;
  if (!status)
    status = fl_invoke(added, &call);
  if (!status)
    say_result(&t, found);
  fl_prepared_free(call.prepared);
  if (!status)
    say(found, "%u left", (unsigned)fl_prepared_bytes(host));
  fl_host_destroy(host);
  return status;
}

/* Of an op that is not what the reference makes of it. */
static fl_status one_more(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  for (int i = 0; i < 16; i++)
    ((float *)fl_data(out))[i] = ((const float *)fl_data(x))[i] + (self ? 1 : 0);
  return FL_OK;
}

static fl_status add_to(fl_host *host, const char *id, fl_kind kind, fl_kernel_fn fn, void *self) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "same",
                        .impl_id = id,
                        .kind = kind,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = fn,
                        .self = self};
  return fl_register_impl(host, &impl);
}

/* Both modes, and an implementation that canary mode finds wrong. */
static fl_status watched(fault_place *place, findings *found) {
  static char evidence[1024];
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", place->directory);
  const char *const environment[] = {"VLLM_FL_GUARD=1", "VLLM_FL_CANARY=1", evidence, NULL};
  fl_host_options options = {.size = sizeof options,
                             .environment = environment,
                             .log = take_line,
                             .log_user = place,
                             .platform = "cpu",
                             .flags = FL_HOST_NO_PLUGINS};
  const fl_op_def op = {
      .size = sizeof op, .schema = "same(Tensor x) -> Tensor out", .rules = "x: float32[n, m]; out: float32[n, m]"};
  fl_host *host = NULL;
  tensors t;
  rms_norm(&t);
  fl_value values[] = {fl_tensor(&t.dl[0]), fl_tensor(&t.dl[2])};
  fl_call call = FL_CALL(values);
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = fl_register_op(host, &op);
  if (!status)
    status = add_to(host, "reference.same", FL_KIND_REFERENCE, one_more, NULL);
  if (!status)
    status = add_to(host, "default.more", FL_KIND_DEFAULT, one_more, &host);
  if (!status)
    status = fl_call_op(host, "same", &call);
  if (!status)
    say_result(&t, found);
  fl_host_destroy(host);
  return status;
}

/* ------------------------------------------------------------------------------------------------- time, and others */

/* Fails in its first call, and works from then on. */
static fl_status fails_once(void *self, fl_call *call) {
  int *calls = self;
  return ++*calls == 1 ? FL_EINTERNAL : one_more(NULL, call);
}

/* What failed is left out for a while and then tried again, whatever time it is by then. */
static fl_status retry(fault_place *place, findings *found) {
  static char config[1024];
  snprintf(config, sizeof config, "VLLM_FL_CONFIG=%s/retry.yaml", place->directory);
  const char *const environment[] = {config, NULL};
  fl_host_options options = {.size = sizeof options,
                             .environment = environment,
                             .log = take_line,
                             .log_user = place,
                             .platform = "cpu",
                             .flags = FL_HOST_NO_PLUGINS};
  const fl_op_def op = {
      .size = sizeof op, .schema = "same(Tensor x) -> Tensor out", .rules = "x: float32[n, m]; out: float32[n, m]"};
  fl_host *host = NULL;
  fl_failed_impls *failed = NULL;
  tensors t;
  int calls = 0;
  rms_norm(&t);
  fl_value values[] = {fl_tensor(&t.dl[0]), fl_tensor(&t.dl[2])};
  fl_call call = FL_CALL(values);
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = fl_register_op(host, &op);
  if (!status)
    status = add_to(host, "reference.same", FL_KIND_REFERENCE, one_more, NULL);
  if (!status)
    status = add_to(host, "default.once", FL_KIND_DEFAULT, fails_once, &calls);
  for (int i = 0; i < 4 && !status; i++) {
    status = fl_call_op(host, "same", &call);
    say_result(&t, found);
    usleep(i ? 40000 : 0); /* at first it is left out */
  }
  if (!status)
    status = fl_get_failed_impls(host, NULL, &failed);
  if (!status)
    say(found, "%s, %u failed", calls > 1 ? "tried again" : "not tried again", failed->n);
  fl_failed_impls_free(failed);
  fl_host_destroy(host);
  return status;
}

static int end_soon(void *user, int channel) {
  (void)user, (void)channel;
  usleep(20000);
  return 3;
}

static int never_end(void *user, int channel) {
  (void)user, (void)channel;
  while (pause())
    continue;
  return 0;
}

/* A child that ends in time, and one that does not. */
static fl_status limits(fault_place *place, findings *found) {
  fl_child_options options = {.size = sizeof options, .run = end_soon, .timeout_ms = 5000, .silence_ms = 5000};
  fl_child_result result = {.size = sizeof result};
  (void)place;
  fl_status status = fl_child_run(&options, &result);
  if (status)
    return status;
  say(found, "%s; ", result.words);
  say(found, "%s; ", result.seconds >= 0 && result.seconds < 5 ? "soon" : "not soon");
  options.run = never_end;
  options.timeout_ms = 50;
  status = fl_child_run(&options, &result);
  if (!status)
    say(found, "%s", result.words);
  return status;
}

/* A rank comes, reduces, splits its group and leaves; of one rank, since others would wait for one that fails. */
static fl_status group(fault_place *place, findings *found) {
  const DLDataType float32 = {kDLFloat, 32, 1};
  const fl_group_options options = {.size = sizeof options, .timeout = 5};
  fl_group_id id;
  fl_group *whole = NULL, *part = NULL;
  fl_communicators *list;
  float x[4] = {1, 2, 3, 4};
  fl_status status = fl_group_make_id(place->host, kDLCPU, &id);
  if (!status)
    status = fl_group_create(place->host, &id, 0, 1, &options, &whole);
  if (!status)
    status = fl_all_reduce(whole, x, x, 4, float32, FL_REDUCE_SUM, NULL);
  if (!status)
    status = fl_group_split(whole, 0, 0, &options, &part);
  if (!status)
    status = fl_all_gather(part, x, x, 4, float32, NULL);
  fl_group_destroy(part);
  fl_group_destroy(whole);
  if (!status && !(status = fl_get_communicators(place->host, &list))) {
    say(found, "%s of %u: %g %g", id.communicator, list->n, x[0], x[3]);
    fl_communicators_free(list);
  }
  return status;
}

/* Another thread's libraries come and go. */
typedef struct visitor {
  char file[1024];
  _Atomic bool stop, wrong;
  _Atomic unsigned rounds;
} visitor;

static void *open_and_close(void *user) {
  visitor *v = user;
  do {
    void *library = dlopen(v->file, RTLD_NOW | RTLD_LOCAL);
    if (!library || !dlsym(library, "register_builtins") || dlclose(library))
      v->wrong = true;
    v->rounds++;
  } while (!v->stop);
  return NULL;
}

static fl_status beside_others(fault_place *place, findings *found) {
  static visitor v;
  pthread_t thread;
  snprintf(v.file, sizeof v.file, "%s/other/two_vendors.so", place->directory);
  v.stop = v.wrong = false;
  v.rounds = 0;
  if (pthread_create(&thread, NULL, open_and_close, &v))
    return FL_ENOMEM;
  while (!v.rounds)
    usleep(100);
  fl_status status = FL_OK;
  for (int i = 0; i < 5 && !status; i++)
    status = create(place, found);
  v.stop = true;
  pthread_join(thread, NULL);
  say(found, "others %s", v.wrong ? "fail" : "work");
  return status;
}

const fault_path paths[] = {
    {"create", true, true, create, 0},
    {"watched", true, true, watched, 0},
    {"call", false, true, first_call, 0},
    {"call-plugin", false, true, first_call_of_plugin, 0},
    {"explain", false, true, explain, 0},
    {"plugins", false, false, plugins, 0},
    {"settings", false, false, settings, 0},
    {"snapshot", false, true, snapshot, 0},
    {"manifest", false, true, manifest, 0},
    {"platform", false, true, platform, 0},
    {"policy", false, false, policy, 0},
    {"scope", false, true, scope, 0},
    {"freeze", false, true, freeze, 0},
    {"register", false, false, registering, 0},
    {"load", false, true, load, 0},
    {"discover", false, true, discover, 0},
    {"infer", false, true, inferring, 0},
    {"prepare", true, true, prepare, 0},
    {"cases", false, false, cases, 0},
    {"group", false, true, group, 0},
    {"retry", true, false, retry, FAULT_AHEAD},
    {"limits", true, false, limits, FAULT_AHEAD},
    {"others", true, false, beside_others, FAULT_AHEAD}, /* whose calls would fail, too */
};
const size_t n_paths = sizeof paths / sizeof *paths;
