/*
 * What a host tells: Host's methods that give dicts and lists, with the names of the library's structs.
 */
#include "python/extension/describe.h"
#include "python/extension/host.h"

#include <flhost/vllm.h>

#define END_OF_FIELDS                                                                                                  \
  { NULL, FL_PY_TEXT, 0 }

/* Op and device of a method that takes them; false with an exception set. */
static bool read_op(fl_py_host *host, PyObject *arguments, PyObject *keywords, const char **op, int32_t *device) {
  static char *names[] = {"op", "device", NULL};
  PyObject *word = NULL;
  return host && PyArg_ParseTupleAndKeywords(arguments, keywords, "s|O", names, op, &word) &&
         (*device = fl_py_device(host, word));
}

static bool read_device(fl_py_host *host, PyObject *arguments, PyObject *keywords, int32_t *device) {
  static char *names[] = {"device", NULL};
  PyObject *word = NULL;
  return host && PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", names, &word) &&
         (*device = fl_py_device(host, word));
}

/* -------------------------------------------------------------------------------------------------- what runs, why */

static PyObject *resolve(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_resolution, impl_id, FL_PY_CHARS),
      FL_PY_FIELD(fl_resolution, vendor, FL_PY_CHARS),
      FL_PY_FIELD(fl_resolution, kind, FL_PY_KIND),
      FL_PY_FIELD(fl_resolution, priority, FL_PY_INT32),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_resolution found = {.size = sizeof found};
  const char *op;
  int32_t device;
  fl_status status = FL_OK;
  bool done;
  if (!read_op(host, arguments, keywords, &op, &device))
    return NULL;
  FL_PY_UNDER_POLICY(host, done, status, status = fl_resolve_op(host->host, op, device, &found));
  return done ? fl_py_dict(&found, fields) : NULL;
}

static PyObject *explain(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_explanation, op, FL_PY_TEXT),
      FL_PY_FIELD(fl_explanation, order_origin, FL_PY_TEXT),
      FL_PY_FIELD(fl_explanation, selected, FL_PY_TEXT),
      FL_PY_FIELD(fl_explanation, error, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  static const fl_py_field impl_fields[] = {
      FL_PY_FIELD(fl_explained, impl_id, FL_PY_TEXT),  FL_PY_FIELD(fl_explained, kind, FL_PY_TEXT),
      FL_PY_FIELD(fl_explained, vendor, FL_PY_TEXT),   FL_PY_FIELD(fl_explained, priority, FL_PY_INT32),
      FL_PY_FIELD(fl_explained, plugin, FL_PY_TEXT),   FL_PY_FIELD(fl_explained, verdict, FL_PY_VERDICT),
      FL_PY_FIELD(fl_explained, reason, FL_PY_TEXT),   FL_PY_FIELD(fl_explained, variant, FL_PY_TEXT),
      FL_PY_FIELD(fl_explained, prepares, FL_PY_BOOL), END_OF_FIELDS,
  };
  static const fl_py_field replaced_fields[] = {
      FL_PY_FIELD(fl_replaced, class_name, FL_PY_TEXT),
      FL_PY_FIELD(fl_replaced, allowed, FL_PY_BOOL),
      FL_PY_FIELD(fl_replaced, reason, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  static const fl_py_field missing_fields[] = {
      FL_PY_FIELD(fl_missing_plugin, plugin, FL_PY_TEXT), FL_PY_FIELD(fl_missing_plugin, file, FL_PY_TEXT),
      FL_PY_FIELD(fl_missing_plugin, status, FL_PY_TEXT), FL_PY_FIELD(fl_missing_plugin, lists_op, FL_PY_BOOL),
      FL_PY_FIELD(fl_missing_plugin, reason, FL_PY_TEXT), END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_explanation *found = NULL;
  const char *op;
  int32_t device;
  fl_status status = FL_OK;
  bool done;
  if (!read_op(host, arguments, keywords, &op, &device))
    return NULL;
  FL_PY_UNDER_POLICY(host, done, status, status = fl_explain(host->host, op, device, &found));
  PyObject *dict = done ? fl_py_dict(found, fields) : NULL;
  if (dict &&
      (!fl_py_put(dict, "order", fl_py_texts(found->order, found->n_order)) ||
       !fl_py_put(dict, "impls", fl_py_dicts(found->impls, found->n_impls, found->impl_size, impl_fields)) ||
       !fl_py_put(dict, "replaces",
                  fl_py_dicts(found->replaces, found->n_replaces, found->replaced_size, replaced_fields)) ||
       !fl_py_put(dict, "missing", fl_py_dicts(found->missing, found->n_missing, found->missing_size, missing_fields))))
    Py_CLEAR(dict);
  fl_explanation_free(found);
  return dict;
}

static PyObject *manifest(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_manifest, library, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest, device_type, FL_PY_DEVICE),
      FL_PY_FIELD(fl_manifest, policy, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest, text, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest, sha256, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest, problem, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  static const fl_py_field row_fields[] = {
      FL_PY_FIELD(fl_manifest_row, op, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest_row, impl_id, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest_row, vendor, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest_row, kind, FL_PY_KIND),
      FL_PY_FIELD(fl_manifest_row, place, FL_PY_UINT32),
      FL_PY_FIELD(fl_manifest_row, plugin, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest_row, version, FL_PY_TEXT),
      FL_PY_FIELD(fl_manifest_row, build_id, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_manifest *found = NULL;
  int32_t device;
  fl_status status = FL_OK;
  bool done;
  if (!read_device(host, arguments, keywords, &device))
    return NULL;
  FL_PY_UNDER_POLICY(host, done, status, status = fl_get_manifest(host->host, device, &found));
  PyObject *dict = done ? fl_py_dict(found, fields) : NULL;
  if (dict && (!fl_py_put(dict, "without", fl_py_texts(found->without, found->n_without)) ||
               !fl_py_put(dict, "rows", fl_py_dicts(found->rows, found->n_rows, found->row_size, row_fields))))
    Py_CLEAR(dict);
  fl_manifest_free(found);
  return dict;
}

/* ---------------------------------------------------------------------------------------------------- what is there */

/* Settings by name: the value as Python has it, and where it comes from. */
static PyObject *config(PyObject *self, PyObject *none) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_setting, variable, FL_PY_TEXT),
      FL_PY_FIELD(fl_setting, origin, FL_PY_TEXT),
      FL_PY_FIELD(fl_setting, doc, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_settings *found = NULL;
  fl_status status = FL_OK;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_get_settings(host->host, &found));
  PyObject *dict = fl_py_ok(status) ? PyDict_New() : NULL, *json = dict ? PyImport_ImportModule("json") : NULL;
  for (uint32_t i = 0; dict && i < found->n; i++) {
    const fl_setting *setting = fl_setting_at(found, i);
    PyObject *row = json ? fl_py_dict(setting, fields) : NULL;
    bool done = row && fl_py_put(row, "value", PyObject_CallMethod(json, "loads", "s", setting->value)) &&
                !PyDict_SetItemString(dict, setting->name, row);
    Py_XDECREF(row);
    if (!done)
      Py_CLEAR(dict);
  }
  Py_XDECREF(json);
  fl_settings_free(found);
  return dict;
}

static PyObject *plugins(PyObject *self, PyObject *none) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_plugin_info, name, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, file, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, version, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, vendor, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, licence, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, route, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, abi, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, status, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, reason, FL_PY_TEXT),
      FL_PY_FIELD(fl_plugin_info, load_us, FL_PY_DOUBLE),
      FL_PY_FIELD(fl_plugin_info, impls, FL_PY_UINT32),
      FL_PY_FIELD(fl_plugin_info, impl_vendor, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_plugins *found = NULL;
  fl_status status = FL_OK;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_get_discovered_plugins(host->host, &found));
  PyObject *list = fl_py_ok(status) ? fl_py_dicts(found->items, found->n, found->item_size, fields) : NULL;
  fl_plugins_free(found);
  return list;
}

static PyObject *platform_of(const fl_platform_info *info) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_platform_info, name, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_info, plugin, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_info, active, FL_PY_BOOL),
      FL_PY_FIELD(fl_platform_info, pci_devices, FL_PY_UINT32),
      FL_PY_FIELD(fl_platform_info, pci, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_info, driver_found, FL_PY_BOOL),
      FL_PY_FIELD(fl_platform_info, driver, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_info, device_count, FL_PY_INT32),
      FL_PY_FIELD(fl_platform_info, diagnosis, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_info, device_type, FL_PY_DEVICE),
      END_OF_FIELDS,
  };
  static const fl_py_field step_fields[] = {
      FL_PY_FIELD(fl_platform_step, name, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_step, state, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_step, finding, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_step, advice, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  static const fl_py_field device_fields[] = {
      FL_PY_FIELD(fl_device_properties, name, FL_PY_CHARS),
      FL_PY_FIELD(fl_device_properties, arch, FL_PY_CHARS),
      FL_PY_FIELD(fl_device_properties, driver, FL_PY_CHARS),
      FL_PY_FIELD(fl_device_properties, units, FL_PY_INT32),
      FL_PY_FIELD(fl_device_properties, memory_total, FL_PY_UINT64),
      FL_PY_FIELD(fl_device_properties, memory_free, FL_PY_UINT64),
      END_OF_FIELDS,
  };
  PyObject *dict = fl_py_dict(info, fields);
  if (dict &&
      (!fl_py_put(dict, "steps", fl_py_dicts(info->steps, info->n_steps, info->step_size, step_fields)) ||
       !fl_py_put(dict, "devices", fl_py_dicts(info->devices, info->n_devices, info->device_size, device_fields))))
    Py_CLEAR(dict);
  return dict;
}

static PyObject *platform(PyObject *self, PyObject *none) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_platform_report, active, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_report, active_origin, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_report, config_file, FL_PY_TEXT),
      FL_PY_FIELD(fl_platform_report, unserved, FL_PY_TEXT),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_platform_report *found = NULL;
  fl_status status = FL_OK;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_get_platform(host->host, &found));
  PyObject *dict = fl_py_ok(status) ? fl_py_dict(found, fields) : NULL, *list = dict ? PyList_New(found->n) : NULL;
  for (uint32_t i = 0; list && i < found->n; i++) {
    PyObject *item = platform_of(fl_platform_at(found, i));
    if (!item || PyList_SetItem(list, i, item))
      Py_CLEAR(list);
  }
  if (dict && !fl_py_put(dict, "platforms", list))
    Py_CLEAR(dict);
  fl_platform_report_free(found);
  return dict;
}

/* ---------------------------------------------------------------------------------------------- what is registered */

/* Names of a set of device types; "any" for all. */
static PyObject *devices_of(uint64_t set) {
  const char *names[64];
  uint32_t n = 0;
  for (int32_t type = 0; set != FL_DEVICE_ANY && type < 64; type++)
    if ((set & FL_DEVICE(type)) && fl_device_type_name(type))
      names[n++] = fl_device_type_name(type);
  if (set == FL_DEVICE_ANY)
    names[n++] = "any";
  return fl_py_texts(names, n);
}

/* Names of a set of element types; none for those of the schema. */
static PyObject *dtypes_of(uint32_t set) {
  const char *names[32];
  uint32_t n = 0;
  for (uint32_t i = 0; i < 32; i++) {
    const fl_element_type *element = set & (1u << i) ? fl_element_type_of_bit(1u << i) : NULL;
    if (element)
      names[n++] = element->name;
  }
  return fl_py_texts(names, n);
}

static PyObject *impl_of(const fl_impl_info *info) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_impl_info, op_name, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, impl_id, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, vendor, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, plugin, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, min_arch, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, variant, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, kind, FL_PY_KIND),
      FL_PY_FIELD(fl_impl_info, priority, FL_PY_INT32),
      FL_PY_FIELD(fl_impl_info, flags, FL_PY_UINT32),
      FL_PY_FIELD(fl_impl_info, available, FL_PY_BOOL),
      FL_PY_FIELD(fl_impl_info, reason, FL_PY_TEXT),
      FL_PY_FIELD(fl_impl_info, asked, FL_PY_BOOL),
      FL_PY_FIELD(fl_impl_info, has_supports_args, FL_PY_BOOL),
      END_OF_FIELDS,
  };
  PyObject *dict = fl_py_dict(info, fields);
  if (dict &&
      (!fl_py_put(dict, "devices", devices_of(info->devices)) || !fl_py_put(dict, "dtypes", dtypes_of(info->dtypes))))
    Py_CLEAR(dict);
  return dict;
}

/* One snapshot, of what a method wants: names of ops, or implementations of one op or all. */
static fl_snapshot *snapshot_of(fl_py_host *host) {
  fl_snapshot *found = NULL;
  fl_status status = FL_OK;
  bool done;
  FL_PY_UNDER_POLICY(host, done, status,
                     status = (found = fl_registry_snapshot(host->host)) ? FL_OK : fl_error_status());
  return done ? found : NULL;
}

static PyObject *ops(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  fl_snapshot *found = host ? snapshot_of(host) : NULL;
  uint32_t n = found ? fl_snapshot_op_count(found) : 0;
  PyObject *list = found ? PyList_New(n) : NULL;
  (void)none;
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *name = PyUnicode_FromString(fl_snapshot_op_name(found, i));
    if (!name || PyList_SetItem(list, i, name))
      Py_CLEAR(list);
  }
  fl_snapshot_release(found);
  return list;
}

static PyObject *impls(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"op", NULL};
  const char *op = NULL;
  fl_py_host *host = fl_py_open_host(self);
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|z:impls", names, &op))
    return NULL;
  PyObject *known = op ? fl_py_op_find(host, op) : Py_NewRef(Py_None); /* or there is none of that name */
  fl_snapshot *found = known ? snapshot_of(host) : NULL;
  PyObject *list = found ? PyList_New(0) : NULL;
  for (uint32_t i = 0; list && i < fl_snapshot_op_count(found); i++)
    for (uint32_t j = 0; list && j < fl_snapshot_impl_count(found, i); j++) {
      if (op && strcmp(fl_snapshot_op_name(found, i), op) != 0)
        continue;
      PyObject *item = impl_of(fl_snapshot_impl(found, i, j));
      if (!item || PyList_Append(list, item))
        Py_CLEAR(list);
      Py_XDECREF(item);
    }
  fl_snapshot_release(found);
  Py_XDECREF(known);
  return list;
}

static PyObject *impl_uuid(PyObject *self, PyObject *arguments) {
  fl_py_host *host = fl_py_open_host(self);
  const char *op, *impl_id;
  char uuid[65];
  fl_status status = FL_OK;
  if (!host || !PyArg_ParseTuple(arguments, "ss:impl_uuid", &op, &impl_id))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_impl_uuid(host->host, op, impl_id, uuid));
  return fl_py_ok(status) ? PyUnicode_FromString(uuid) : NULL;
}

/* ------------------------------------------------------------------------------------------------ what became of it */

static PyObject *failed_impls(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"op", NULL};
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_failed_impl, op, FL_PY_TEXT),
      FL_PY_FIELD(fl_failed_impl, impl_id, FL_PY_TEXT),
      FL_PY_FIELD(fl_failed_impl, reason, FL_PY_TEXT),
      FL_PY_FIELD(fl_failed_impl, retry_in, FL_PY_DOUBLE),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_failed_impls *found = NULL;
  const char *op = NULL;
  fl_status status = FL_OK;
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|z:failed_impls", names, &op))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_get_failed_impls(host->host, op, &found));
  PyObject *list = fl_py_ok(status) ? fl_py_dicts(found->items, found->n, found->item_size, fields) : NULL;
  fl_failed_impls_free(found);
  return list;
}

static PyObject *counters(PyObject *self, PyObject *arguments) {
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_counters, calls, FL_PY_UINT64),
      FL_PY_FIELD(fl_counters, fallbacks_not_supported, FL_PY_UINT64),
      FL_PY_FIELD(fl_counters, fallbacks_failed, FL_PY_UINT64),
      FL_PY_FIELD(fl_counters, failures, FL_PY_UINT64),
      FL_PY_FIELD(fl_counters, prepared, FL_PY_UINT64),
      FL_PY_FIELD(fl_counters, prepared_bytes, FL_PY_UINT64),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_counters found = {.size = sizeof found};
  const char *op, *impl_id;
  fl_status status = FL_OK;
  if (!host || !PyArg_ParseTuple(arguments, "ss:counters", &op, &impl_id))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_get_counters(host->host, op, impl_id, &found));
  return fl_py_ok(status) ? fl_py_dict(&found, fields) : NULL;
}

static PyObject *prepared_bytes(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  uint64_t bytes;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(bytes = fl_prepared_bytes(host->host));
  return fl_py_ok(FL_OK) ? PyLong_FromUnsignedLongLong(bytes) : NULL;
}

/* ---------------------------------------------------------------------------------------------------- vLLM's names */

/* A word that a question about a host is asked with; NULL with an exception set. */
static const char *word_of(const fl_py_host *host, PyObject *name, const char *function, const char *expected) {
  if (host && !PyUnicode_Check(name))
    fl_py_raise_type("%s: %R, expected %s", function, name, expected);
  return host && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
}

static PyObject *oot_op(PyObject *self, PyObject *name) {
  fl_py_host *host = fl_py_open_host(self);
  const char *word = word_of(host, name, "oot_op", "the name of a class"), *op;
  fl_status status = FL_OK;
  if (!word)
    return NULL;
  FL_PY_WITHOUT_GIL(op = fl_oot_op(host->host, word); status = op ? FL_OK : fl_error_status());
  return fl_py_ok(status) ? PyUnicode_FromString(op) : NULL;
}

/* That nobody brings one is an answer: NULL. */
static fl_status class_path_or_none(fl_host *host, const char *type, const char **path) {
  fl_status status = fl_class_path(host, type, path);
  return status == FL_ENOENT ? FL_OK : status;
}

static PyObject *class_path(PyObject *self, PyObject *type) {
  fl_py_host *host = fl_py_open_host(self);
  const char *word = word_of(host, type, "class_path", "the type of a class"), *path;
  fl_status status;
  bool ok;
  if (!word)
    return NULL;
  FL_PY_UNDER_POLICY(host, ok, status, status = class_path_or_none(host->host, word, &path));
  return !ok ? NULL : path ? PyUnicode_FromString(path) : Py_NewRef(Py_None);
}

/* A question about a name that has yes or no for an answer. */
static PyObject *ask(PyObject *self, PyObject *name, const char *function, bool (*answer)(fl_host *, const char *)) {
  fl_py_host *host = fl_py_open_host(self);
  const char *word = word_of(host, name, function, "a name");
  bool yes;
  if (!word)
    return NULL;
  FL_PY_WITHOUT_GIL(yes = answer(host->host, word));
  return fl_py_ok(FL_OK) ? PyBool_FromLong(yes) : NULL;
}

static PyObject *is_oot_allowed(PyObject *self, PyObject *name) {
  return ask(self, name, "is_oot_allowed", fl_is_oot_allowed);
}

static PyObject *is_flagos_allowed(PyObject *self, PyObject *name) {
  return ask(self, name, "is_flagos_allowed", fl_is_flagos_allowed);
}

static PyObject *is_oot_enabled(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  (void)none;
  return host ? PyBool_FromLong(fl_is_oot_enabled(host->host)) : NULL;
}

static PyObject *custom_op_counts(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  uint32_t enabled = 0, disabled = 0;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(fl_custom_op_counts(host->host, &enabled, &disabled));
  return fl_py_ok(FL_OK) ? Py_BuildValue("(II)", enabled, disabled) : NULL;
}

PyMethodDef fl_py_report_methods[] = {
    FL_PY_METHOD_WITH_KEYWORDS(
        resolve, "($self, op, device='cpu')",
        "The implementation that the policy in force puts first: a dict of impl_id, vendor, kind, priority."),
    FL_PY_METHOD_WITH_KEYWORDS(
        explain, "($self, op, device='cpu')",
        "Why an op resolves as it does: a dict with the order of tokens, and what became of each "
        "implementation. `op` may be a layer class of vLLM's."),
    FL_PY_METHOD_WITH_KEYWORDS(manifest, "($self, device='cpu')",
                               "What calls run, and a digest of it (sha256) for keys of caches: a dict."),
    FL_PY_METHOD(config, METH_NOARGS, "($self)", "Every setting by name: a dict of value, origin, variable and doc."),
    FL_PY_METHOD(plugins, METH_NOARGS, "($self)", "Every plugin that was found: a list of dicts."),
    FL_PY_METHOD(platform, METH_NOARGS, "($self)", "What was found of hardware and drivers: a dict."),
    FL_PY_METHOD(ops, METH_NOARGS, "($self)", "Names of all ops. Loads what is deferred."),
    FL_PY_METHOD_WITH_KEYWORDS(impls, "($self, op=None)",
                               "Registered implementations, of one op or all: a list of dicts."),
    FL_PY_METHOD(impl_uuid, METH_VARARGS, "($self, op, impl_id)", "An implementation's identity, for keys of caches."),
    FL_PY_METHOD_WITH_KEYWORDS(failed_impls, "($self, op=None)",
                               "Implementations that calls skip because they failed: a list of dicts."),
    FL_PY_METHOD(counters, METH_VARARGS, "($self, op, impl_id)",
                 "What became of an implementation's calls: a dict. Calls are counted with statistics=True."),
    FL_PY_METHOD(prepared_bytes, METH_NOARGS, "($self)", "Bytes of all weights that are prepared (Op.prepare)."),
    FL_PY_METHOD(oot_op, METH_O, "($self, class_name)",
                 "The op that replaces a layer class of vLLM's, if that is allowed."),
    FL_PY_METHOD(class_path, METH_O, "($self, type)",
                 "The path of the class that a plugin brings for vLLM on this platform, or None. `type` is "
                 "'attention_backend', 'mla_attention_backend', 'worker' or 'model_runner'."),
    FL_PY_METHOD(is_oot_allowed, METH_O, "($self, layer)", "May that layer be replaced?"),
    FL_PY_METHOD(is_oot_enabled, METH_NOARGS, "($self)", "Are layers replaced at all?"),
    FL_PY_METHOD(is_flagos_allowed, METH_O, "($self, op)", "May the op use implementations of kind default?"),
    FL_PY_METHOD(custom_op_counts, METH_NOARGS, "($self)", "(enabled, disabled) by custom_ops."),
    {NULL, NULL, 0, NULL},
};
