/*
 * Devices of a host: who brings the memory of a device type, and which architectures its devices have. A plugin's
 * platform is asked without any lock but that of availability; what it said is kept for one generation of the registry.
 */
#ifndef FLHOST_CORE_PLATFORM_DEVICE_H
#define FLHOST_CORE_PLATFORM_DEVICE_H

#include "core/platform/probe.h"
#include "core/registry.h"

/* Who brings the memory of a device type; a copy, so that it stays good when the plugin is withdrawn. */
typedef struct fl_backend {
  fl_platform platform; /* with all functions from `properties` on */
  void *self;
  char name[FL_NAME_MAX + 1], plugin[FL_NAME_MAX + 1];
  int32_t count; /* of devices; FL_COUNT_UNASKED, or negative: unknown */
} fl_backend;

enum { FL_COUNT_UNASKED = INT32_MIN };

/* What a host knows of one device type. Guarded by the host's lock. */
typedef struct fl_device_type {
  uint32_t found; /* generation of the registry that `backend` is of; 0 = none */
  fl_backend *backend;
  uint32_t asked; /* generation in which `devices` were asked for; 0 = never */
  fl_device_list *devices;
  bool (*arch_reaches)(void *self, const char *arch, const char *least); /* of who said so; may be NULL */
  void *arch_self;
} fl_device_type;

/* What a host knows of device types, nothing yet. */
fl_status fl_device_types_create(fl_host *host);
void fl_device_types_free(fl_host *host);

/* "cuda:0" */
const char *fl_device_words(DLDevice device, char *buffer, size_t size);

/* FL_ENOENT: nobody brings memory of that type, or its platform is not active; FL_EINVAL: not a device type. The host
 * itself brings that of kDLCPU. No driver is initialised. The host's lock must not be held. */
fl_status fl_backend_find(fl_host *host, int32_t device_type, fl_backend *backend);

/* The same, and the devices are counted, which may initialise the driver. */
fl_status fl_backend_count(fl_host *host, int32_t device_type, fl_backend *backend);

/* The same, and the index is that of a device: FL_EINVAL if not, FL_ENOENT if there is none at all. */
fl_status fl_backend_open(fl_host *host, DLDevice device, fl_backend *backend);

/* Is a stream of the device being captured in a graph? False also where nobody can say. */
bool fl_backend_is_captured(const fl_backend *backend, DLDevice device, void *stream);

/* The failure of one of its functions, in its own words: as it is, and as FL_ENOMEM or FL_EDEVICE whatever it is. */
fl_status fl_backend_said(const fl_backend *backend, DLDevice device, fl_status status, const char *what);
fl_status fl_backend_failed(const fl_backend *backend, DLDevice device, fl_status status, const char *what);

/* FL_EINVAL: it is none of FL_COPY_*. */
fl_status fl_direction_check(const char *function, int32_t direction);

/*
 * Sees to it that the architectures of a type's devices are known, if an implementation of the op that the filter
 * (NULL: none) lets in asks for one and they were not asked for in this generation of the registry. `in_use`: the
 * process has tensors there, so that its driver may be asked; else a child process asks first, since a driver that was
 * initialised does not survive a fork. The host's lock must not be held.
 */
void fl_architectures_ask(fl_host *host, const fl_op *op, const fl_policy *filter, int32_t device_type, bool in_use);

/* The same for every type that an implementation of the op is for. */
void fl_architectures_ask_all(fl_host *host, const fl_op *op, const fl_policy *filter);

/* Were they asked for, or is there no need to? The host's lock is held. */
bool fl_architectures_asked(const fl_host *host, const fl_impl_record *impl, int32_t device_type);

/* The devices of a type, a bit each, that reach the implementation's min_arch; all bits where nothing speaks against
 * any. The host's lock is held. */
uint64_t fl_architectures_reaching(const fl_host *host, const fl_impl_record *impl, int32_t device_type);

/* "needs sm_90, device 0 is sm_80". The host's lock is held. */
void fl_architectures_reason(const fl_host *host, const fl_impl_record *impl, int32_t device_type, fl_text *text);

#endif
