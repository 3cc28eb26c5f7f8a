/* Devices of a host: see device.h. What engines call for device memory is in memory.c. */
#include "core/platform/device.h"
#include "core/platform/processor.h"

#include "core/platform/availability.h"
#include "core/platform/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

fl_status fl_device_types_create(fl_host *host) {
  host->device_types = calloc(FL_DEVICE_SLOTS, sizeof *host->device_types);
  return host->device_types ? FL_OK : fl_error_no_memory();
}

void fl_device_types_free(fl_host *host) {
  for (int i = 0; host->device_types && i < FL_DEVICE_SLOTS; i++) {
    free(host->device_types[i].backend);
    free(host->device_types[i].devices);
  }
  free(host->device_types);
}

/* --------------------------------------------------------------------------------------------------- who brings it */

static bool brings(const fl_component_record *component, int32_t device_type) {
  return fl_component_is_platform(component) && component->platform.allocate &&
         component->platform.device_type == device_type;
}

/* A platform that may bring the memory, to be asked without the host's lock. */
typedef struct candidate {
  fl_backend backend;
  fl_component_record component; /* its strings are not to be used */
} candidate;

/* All of a device type, the platform in force first; malloc'ed. NULL: out of memory. The host's lock is held. */
static candidate *list_candidates(const fl_host *host, int32_t device_type, uint32_t *n) {
  candidate *list = calloc(host->n_components + 1, sizeof *list);
  *n = 0;
  for (int in_force = 1; list && in_force >= 0; in_force--)
    for (uint32_t i = 0; i < host->n_components; i++) {
      const fl_component_record *component = &host->components[i];
      bool is_in_force = host->platform_plugin && !strcmp(component->plugin, host->platform_plugin) &&
                         !strcmp(component->name, host->platform);
      if (is_in_force != (bool)in_force || !brings(component, device_type))
        continue;
      candidate *to = &list[(*n)++];
      to->component = *component;
      to->component.type = "platform";
      to->backend = (fl_backend){.platform = component->platform, .self = component->self, .count = FL_COUNT_UNASKED};
      snprintf(to->backend.name, sizeof to->backend.name, "%s", component->name);
      snprintf(to->backend.plugin, sizeof to->backend.plugin, "%s", component->plugin);
    }
  return list;
}

/* "cuda" */
static const char *type_words(int32_t device_type, char *buffer, size_t size) {
  const char *name = fl_device_type_name(device_type);
  if (name)
    snprintf(buffer, size, "%s", name);
  else
    snprintf(buffer, size, "device type %d", device_type);
  return buffer;
}

const char *fl_device_words(DLDevice device, char *buffer, size_t size) {
  size_t length = strlen(type_words((int32_t)device.device_type, buffer, size));
  snprintf(buffer + length, size - length, ":%d", device.device_id);
  return buffer;
}

/* Nobody does: what there is instead. */
static fl_status nobody_brings(fl_host *host, int32_t device_type) {
  char name[32];
  fl_text there = {0};
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_components; i++) {
    const fl_component_record *component = &host->components[i];
    if (fl_component_is_platform(component) && component->platform.allocate)
      fl_text_add(&there, ", %s (plugin '%s')", type_words(component->platform.device_type, name, sizeof name),
                  component->plugin);
  }
  pthread_mutex_unlock(&host->lock);
  fl_status status = fl_error(FL_ENOENT, "no plugin brings the memory of %s; there is cpu%s",
                              type_words(device_type, name, sizeof name), fl_text_get(&there));
  fl_text_free(&there);
  return status;
}

/* The first that is active. */
static fl_status choose(fl_host *host, int32_t device_type, const candidate *list, uint32_t n, fl_backend *backend) {
  fl_status status = FL_ENOENT;
  char name[32];
  for (uint32_t i = 0; i < n; i++) {
    fl_said said;
    if (fl_component_is_active(&list[i].component, &said)) {
      *backend = list[i].backend;
      return FL_OK;
    }
    status = fl_error(FL_ENOENT, "the platform '%s' of plugin '%s', which brings the memory of %s, is not active: %s",
                      list[i].backend.name, list[i].backend.plugin, type_words(device_type, name, sizeof name),
                      fl_said_shown(&said, "it gives no reason"));
  }
  return n ? status : nobody_brings(host, device_type);
}

/* Keeps it for the generation that it was found in. */
static void keep_backend(fl_host *host, int32_t device_type, uint32_t generation, const fl_backend *backend) {
  fl_device_type *type = &host->device_types[device_type];
  fl_backend *copy = malloc(sizeof *copy);
  if (!copy)
    return; /* it is looked for again */
  *copy = *backend;
  pthread_mutex_lock(&host->lock);
  if (generation == host->registry_generation) {
    fl_backend *before = type->backend;
    type->backend = copy;
    type->found = generation;
    copy = before;
  }
  pthread_mutex_unlock(&host->lock);
  free(copy);
}

static fl_status find_backend(fl_host *host, int32_t device_type, bool may_load, fl_backend *backend) {
  uint32_t n = 0;
  if (device_type == kDLCPU) {
    *backend = (fl_backend){.platform = fl_processor, .name = "cpu", .plugin = "flhost", .count = 1};
    return FL_OK;
  }
  if (device_type <= 0 || device_type >= FL_DEVICE_SLOTS)
    return fl_error(FL_EINVAL, "device type %d is not known", device_type);
  const fl_device_type *type = &host->device_types[device_type];
  pthread_mutex_lock(&host->lock);
  uint32_t generation = host->registry_generation;
  bool found = type->found == generation;
  if (found)
    *backend = *type->backend;
  candidate *list = found ? NULL : list_candidates(host, device_type, &n);
  pthread_mutex_unlock(&host->lock);
  if (found)
    return FL_OK;
  if (!list)
    return fl_error_no_memory();
  if (!n && may_load) { /* a plugin that nobody has needed so far may bring it */
    free(list);
    fl_status status = host->hooks->load_deferred_platform(host, NULL);
    return status ? status : find_backend(host, device_type, false, backend);
  }
  fl_status status = choose(host, device_type, list, n, backend);
  if (!status)
    keep_backend(host, device_type, generation, backend);
  free(list);
  return status;
}

fl_status fl_backend_find(fl_host *host, int32_t device_type, fl_backend *backend) {
  return find_backend(host, device_type, atomic_load(&host->n_deferred) != 0, backend);
}

fl_status fl_backend_count(fl_host *host, int32_t device_type, fl_backend *backend) {
  fl_status status = fl_backend_find(host, device_type, backend);
  if (status || backend->count != FL_COUNT_UNASKED)
    return status;
  backend->count = backend->platform.device_count ? backend->platform.device_count(backend->self) : -1;
  fl_device_type *type = &host->device_types[device_type];
  pthread_mutex_lock(&host->lock);
  if (backend->count > 0 && type->found && type->backend->self == backend->self &&
      type->backend->platform.device_count == backend->platform.device_count)
    type->backend->count = backend->count;
  pthread_mutex_unlock(&host->lock);
  return FL_OK;
}

fl_status fl_backend_open(fl_host *host, DLDevice device, fl_backend *backend) {
  char name[32];
  fl_status status = fl_backend_count(host, (int32_t)device.device_type, backend);
  if (status || (device.device_id >= 0 && (backend->count < 0 || device.device_id < backend->count)))
    return status;
  fl_device_words(device, name, sizeof name);
  if (!backend->count)
    return fl_error(FL_ENOENT, "%s: plugin '%s' reports no device", name, backend->plugin);
  if (backend->count < 0)
    return fl_error(FL_EINVAL, "%s: expected an index from 0 on", name);
  return fl_error(FL_EINVAL, "%s: there is no such device, expected an index from 0 to %d", name, backend->count - 1);
}

bool fl_backend_is_captured(const fl_backend *backend, DLDevice device, void *stream) {
  const fl_platform *platform = &backend->platform;
  bool captured = false;
  return platform->is_captured && !platform->is_captured(backend->self, device.device_id, stream, &captured) &&
         captured;
}

fl_status fl_backend_said(const fl_backend *backend, DLDevice device, fl_status status, const char *what) {
  const char *words = backend->platform.error(backend->self);
  char name[32];
  return fl_error(status, "%s: %s: %s", fl_device_words(device, name, sizeof name), what,
                  words && *words ? words : "the plugin gives no reason");
}

fl_status fl_backend_failed(const fl_backend *backend, DLDevice device, fl_status status, const char *what) {
  return fl_backend_said(backend, device, status == FL_ENOMEM ? FL_ENOMEM : FL_EDEVICE, what);
}

fl_status fl_direction_check(const char *function, int32_t direction) {
  if (direction >= FL_COPY_TO_DEVICE && direction <= FL_COPY_ON_DEVICE)
    return FL_OK;
  return fl_error(FL_EINVAL,
                  "%s: direction is %d, expected FL_COPY_TO_DEVICE (1), FL_COPY_TO_HOST (2) or FL_COPY_ON_DEVICE (3)",
                  function, direction);
}

/* --------------------------------------------------------------------------------------------------- architectures */

static bool is_for(const fl_impl_record *impl, int32_t device_type) {
  return impl->min_arch && device_type > 0 && device_type < FL_DEVICE_SLOTS && impl->devices & FL_DEVICE(device_type);
}

/* Does an implementation of the op that is for the device type ask for an architecture? */
static bool op_asks(const fl_op *op, const fl_policy *filter, int32_t device_type) {
  bool asks = false;
  if (fl_thread_join())
    return false;
  fl_thread *self = &fl_self;
  uint64_t outer = fl_read_begin(self);
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n && !asks; i++)
    asks = is_for(set->impls[i], device_type) && !fl_keeps_out(filter, set->impls[i]);
  fl_read_end(self, outer);
  return asks;
}

/* Asks the devices; an empty list where nobody can say, NULL where memory ran out: nothing is known then, either. */
static fl_device_list *list_devices(fl_host *host, int32_t device_type, bool in_use, fl_backend *backend) {
  fl_kept_error before; /* that nothing is known is no error of the caller's */
  fl_device_list *list = calloc(1, sizeof *list);
  fl_error_keep(&before);
  if (list && !fl_backend_find(host, device_type, backend)) {
    if (in_use)
      fl_list_devices(&backend->platform, backend->self, list);
    else
      fl_probe_devices(&backend->platform, backend->self, backend->plugin, FL_DRIVER_TIMEOUT_MS, list);
  }
  fl_error_restore(&before);
  return list;
}

void fl_architectures_ask(fl_host *host, const fl_op *op, const fl_policy *filter, int32_t device_type, bool in_use) {
  if (device_type <= kDLCPU || device_type >= FL_DEVICE_SLOTS || !op_asks(op, filter, device_type))
    return;
  fl_device_type *type = &host->device_types[device_type];
  pthread_mutex_lock(&host->lock);
  uint32_t generation = host->registry_generation;
  bool known = type->asked == generation && (!in_use || (type->devices && type->devices->n));
  pthread_mutex_unlock(&host->lock);
  if (known)
    return;
  fl_backend backend = {0};
  fl_device_list *list = list_devices(host, device_type, in_use, &backend);
  pthread_mutex_lock(&host->lock);
  fl_device_list *before = list;
  if (generation == host->registry_generation) {
    before = type->devices;
    type->devices = list;
    type->arch_reaches = backend.platform.arch_reaches;
    type->arch_self = backend.self;
    type->asked = generation;
  }
  pthread_mutex_unlock(&host->lock);
  free(before);
}

void fl_architectures_ask_all(fl_host *host, const fl_op *op, const fl_policy *filter) {
  for (int32_t type = kDLCPU + 1; type < FL_DEVICE_SLOTS; type++)
    fl_architectures_ask(host, op, filter, type, false);
}

bool fl_architectures_asked(const fl_host *host, const fl_impl_record *impl, int32_t device_type) {
  return device_type <= kDLCPU || !is_for(impl, device_type) ||
         host->device_types[device_type].asked == host->registry_generation;
}

static const fl_device_list *known_devices(const fl_host *host, int32_t device_type) {
  const fl_device_type *type = &host->device_types[device_type];
  return type->asked == host->registry_generation ? type->devices : NULL;
}

/* The rule of plugin.h. True also where nothing is known of the device. */
static bool reaches(const fl_device_type *type, const char *arch, const char *min_arch) {
  char least[sizeof((fl_device_properties *)NULL)->arch];
  bool reached = !*arch || !*min_arch;
  for (const char *at = min_arch; !reached && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    snprintf(least, sizeof least, "%.*s", (int)strcspn(at, ","), at);
    reached = type->arch_reaches ? type->arch_reaches(type->arch_self, arch, least) : !strcmp(arch, least);
  }
  return reached;
}

uint64_t fl_architectures_reaching(const fl_host *host, const fl_impl_record *impl, int32_t device_type) {
  uint64_t reaching = 0;
  const fl_device_list *list = is_for(impl, device_type) ? known_devices(host, device_type) : NULL;
  if (!list || !list->n)
    return UINT64_MAX;
  for (uint32_t i = 0; i < list->n; i++)
    if (reaches(&host->device_types[device_type], list->devices[i].arch, impl->min_arch))
      reaching |= UINT64_C(1) << i;
  /* Of devices that did not answer nothing is known. */
  uint64_t unknown = list->n < FL_DEVICES_MAX ? UINT64_MAX << list->n : 0;
  bool all = reaching == (list->n < FL_DEVICES_MAX ? ~unknown : UINT64_MAX);
  return all ? UINT64_MAX : list->count >= 0 && (uint32_t)list->count == list->n ? reaching : reaching | unknown;
}

void fl_architectures_reason(const fl_host *host, const fl_impl_record *impl, int32_t device_type, fl_text *text) {
  const fl_device_list *list = known_devices(host, device_type);
  const char *before = NULL;
  fl_text_add(text, "needs %s", impl->min_arch);
  for (uint32_t i = 0; list && i < list->n; i++) {
    const char *arch = list->devices[i].arch;
    if (reaches(&host->device_types[device_type], arch, impl->min_arch) || (before && !strcmp(before, arch)))
      continue;
    fl_text_add(text, ", device %u is %s", i, arch);
    before = arch;
  }
}
