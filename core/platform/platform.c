/*
 * The hardware platform: see platform.h. Device nodes say cheaply that there is nothing to ask; the bus and the driver
 * are looked at apart, so that a device without driver is told from no device at all (H1).
 */
#include "core/platform/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const fl_platform_kind fl_platform_kinds[] = {
    {.name = "cpu", .title = "CPU", .device_type = kDLCPU},
    {.name = "cuda",
     .title = "NVIDIA",
     .device_type = kDLCUDA,
     .aliases = {"nvidia"},
     .pci_vendor = 0x10de,
     .pci_classes = {0x0300, 0x0302},
     .nodes = {"/dev/nvidiactl", "/dev/dxg"},
     .patterns = {"/dev/nvidiactl", "/dev/nvidia[0-9]*", "/dev/nvidia-uvm"},
     .kernel = {"/proc/driver/nvidia/version", "/dev/dxg"},
     .module = "nvidia",
     .versions = {"/proc/driver/nvidia/version"},
     .masks = {"CUDA_VISIBLE_DEVICES"},
     .driver = {.libraries = {"libcuda.so.1"},
                .count = fl_count_cuda,
                .count_in_use = fl_count_cuda_in_use,
                .version = fl_version_cuda}},
    {.name = "rocm",
     .title = "AMD",
     .device_type = kDLROCM,
     .aliases = {"amd"},
     .pci_vendor = 0x1002,
     .pci_classes = {0x0300, 0x0380, 0x1200},
     .nodes = {"/dev/kfd"},
     .patterns = {"/dev/kfd", "/dev/dri/renderD*"},
     .kernel = {"/sys/module/amdgpu"},
     .module = "amdgpu",
     .versions = {"/sys/module/amdgpu/version"}, /* of one that is not the kernel's own */
     .masks = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"},
     .driver = {.libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
                .root = "ROCM_PATH",
                .usual_root = "/opt/rocm",
                .count = fl_count_rocm,
                .version = fl_version_rocm}},
    {.name = "ascend",
     .title = "Ascend",
     .device_type = kDLExtDev,
     .aliases = {"npu"},
     .pci_vendor = 0x19e5,
     .pci_classes = {0x1200}, /* the vendor also makes network cards and disks */
     .nodes = {"/dev/davinci_manager"},
     .patterns = {"/dev/davinci_manager", "/dev/davinci[0-9]*", "/dev/devmm_svm", "/dev/hisi_hdc"},
     .kernel = {"/dev/davinci_manager"}, /* which the driver makes */
     .versions = {"/usr/local/Ascend/driver/version.info"},
     .masks = {"ASCEND_RT_VISIBLE_DEVICES"},
     .driver = {.libraries = {"libascendcl.so", "libacl_rt.so"},
                .count = fl_count_ascend,
                .version = fl_version_ascend}},
    {.name = NULL},
};

const char *const fl_platform_names[] = {"cpu", "cuda", "rocm", "ascend", NULL};

const char *fl_platform_canonical(const char *name) {
  for (const fl_platform_kind *kind = fl_platform_kinds; kind->name; kind++)
    for (const char *const *alias = kind->aliases; *alias; alias++)
      if (!strcmp(name, *alias))
        return kind->name;
  return name;
}

const char *fl_platform_node(const fl_platform_kind *kind) {
  for (const char *const *node = kind->nodes; *node; node++)
    if (!access(*node, F_OK))
      return *node;
  return NULL;
}

bool fl_component_is_platform(const fl_component_record *component) {
  return !strcmp(component->type, "platform");
}

bool fl_component_is_active(const fl_component_record *component, const char **reason) {
  *reason = NULL;
  if (component->asking)
    pthread_mutex_lock(component->asking);
  bool active = component->platform.is_active(component->self, reason);
  if (component->asking)
    pthread_mutex_unlock(component->asking);
  return active;
}

/* Every name that may be forced. */
static bool list_names(const fl_platform_kind *kinds, const fl_component_record *components, uint32_t n,
                       fl_strings *names) {
  bool done = true;
  for (const fl_platform_kind *kind = kinds; kind->name && done; kind++) {
    done = fl_strings_add(names, kind->name);
    for (const char *const *alias = kind->aliases; *alias && done; alias++)
      done = fl_strings_add(names, *alias);
  }
  for (uint32_t i = 0; i < n && done; i++)
    done = !fl_component_is_platform(&components[i]) || fl_strings_has(names, components[i].name) ||
           fl_strings_add(names, components[i].name);
  return done && fl_strings_add(names, "auto");
}

static fl_status unknown_platform(const fl_platform_kind *kinds, const char *forced,
                                  const fl_component_record *components, uint32_t n) {
  fl_strings names = {0};
  fl_text list = {0};
  bool done = list_names(kinds, components, n, &names);
  for (uint32_t i = 0; i < names.n; i++)
    fl_text_add(&list, "%s%s", i ? ", " : "", names.items[i]);
  bool is_gpu = !strcasecmp(forced, "gpu"); /* one letter from "cpu", which is not what was meant */
  const char *nearest = is_gpu ? NULL : fl_nearest_word(forced, (const char *const *)names.items, names.n);
  fl_status status = !done || list.failed ? fl_error_no_memory()
                                          : fl_error(FL_ECONFIG, "unknown platform '%s', expected one of %s%s%s%s",
                                                     forced, fl_text_get(&list), nearest ? "; did you mean '" : "",
                                                     nearest ? nearest : "", nearest ? "'?" : "");
  fl_text_free(&list);
  fl_strings_free(&names);
  return status;
}

/* A plugin's platform of that name goes before the built-in one. */
static fl_status activate_forced(const fl_platform_kind *kinds, const char *forced,
                                 const fl_component_record *components, uint32_t n, const char **name,
                                 const char **plugin) {
  const char *canonical = fl_platform_canonical(forced);
  for (uint32_t i = 0; i < n; i++)
    if (fl_component_is_platform(&components[i]) && !strcmp(components[i].name, canonical)) {
      *name = components[i].name;
      *plugin = components[i].plugin;
      return FL_OK;
    }
  for (const fl_platform_kind *kind = kinds; kind->name; kind++)
    if (!strcmp(kind->name, canonical)) {
      *name = kind->name;
      return FL_OK;
    }
  return unknown_platform(kinds, forced, components, n);
}

/* H2. *active NULL: no plugin's platform is active. */
static fl_status find_active_component(const fl_component_record *components, uint32_t n,
                                       const fl_component_record **active) {
  *active = NULL;
  for (uint32_t i = 0; i < n; i++) {
    const char *reason;
    if (!fl_component_is_platform(&components[i]) || !fl_component_is_active(&components[i], &reason))
      continue;
    if (*active)
      return fl_error(FL_EINVAL,
                      "two platforms claim to be active: '%s' of plugin '%s' and '%s' of plugin '%s'; choose one with "
                      "VLLM_FL_PLATFORM, or remove one of the plugins",
                      (*active)->name, (*active)->plugin, components[i].name, components[i].plugin);
    *active = &components[i];
  }
  return FL_OK;
}

/* The first built-in platform that has a device, else the first of the table, which needs none. */
static const char *detect(const fl_platform_kind *kinds) {
  for (const fl_platform_kind *kind = kinds + 1; kind->name; kind++) {
    fl_probe probe;
    if (!fl_platform_node(kind))
      continue;
    fl_probe_driver(&kind->driver, true, FL_DRIVER_TIMEOUT_MS, &probe);
    if (probe.count > 0)
      return kind->name;
  }
  return kinds->name;
}

fl_status fl_platform_activate_among(const fl_platform_kind *kinds, const char *forced,
                                     const fl_component_record *components, uint32_t n, const char **name,
                                     const char **plugin) {
  const fl_component_record *active;
  *plugin = NULL;
  if (forced)
    return activate_forced(kinds, forced, components, n, name, plugin);
  fl_status status = find_active_component(components, n, &active);
  if (status)
    return status;
  *name = active ? active->name : detect(kinds);
  *plugin = active ? active->plugin : NULL;
  return FL_OK;
}

fl_status fl_platform_activate(const char *forced, const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin) {
  return fl_platform_activate_among(fl_platform_kinds, forced, components, n, name, plugin);
}
