/*
 * flhost/registry.h: registering from the engine, and what is registered.
 */
#ifndef FLHOST_REGISTRY_H
#define FLHOST_REGISTRY_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers from the engine itself, as a plugin named "engine" would; visible at once. Errors are those of
 * fl_registry's functions, and FL_ESTATE: the host is frozen. */
FL_API fl_status fl_register_op(fl_host *host, const fl_op_def *op);
FL_API fl_status fl_register_impl(fl_host *host, const fl_impl *impl);

/* Withdraws one implementation that the engine registered, so that another may have its id: returns when no call of it
 * is in flight, as fl_withdraw_plugin does, and with the same FL_ESTATE. FL_ENOENT: no such op, or none of the engine's
 * of that id. */
FL_API fl_status fl_withdraw_impl(fl_host *host, const char *op, const char *impl_id);

/* One registered implementation. */
typedef struct fl_impl_info {
  uint32_t size;                                              /* sizeof(fl_impl_info) of the library */
  const char *op_name, *impl_id, *vendor, *plugin, *min_arch; /* vendor, min_arch: NULL if none */
  fl_kind kind;
  int32_t priority;
  uint32_t flags, dtypes;
  uint64_t devices;
  bool available;         /* false also where it was not asked */
  const char *reason;     /* why it is not available, or was not asked; else NULL */
  bool has_supports_args; /* it has that function; without, it is said to take all calls */
  bool asked;          /* whether it is available; an implementation whose vendor is denied, or not allowed, is not */
  const char *barred;  /* what canary mode found wrong with it: no policy that may choose another runs it; else NULL */
  const char *variant; /* fl_impl.variant; NULL if none */
  uint64_t prepares;   /* arguments of which it makes prepared weights, 1 << index of each (fl_prepare); 0: of none */
} fl_impl_info;

/* What is registered at one moment, and available: of those that the policy in force in this thread lets in,
 * is_available is asked if it was not before. Stays as it is until released, whatever happens to the host's registry.
 */
typedef struct fl_snapshot fl_snapshot;
FL_API fl_snapshot *fl_registry_snapshot(fl_host *host);
FL_API void fl_snapshot_release(fl_snapshot *snapshot);
FL_API uint32_t fl_snapshot_op_count(const fl_snapshot *snapshot);
FL_API const char *fl_snapshot_op_name(const fl_snapshot *snapshot, uint32_t op); /* sorted by name */
FL_API uint32_t fl_snapshot_impl_count(const fl_snapshot *snapshot, uint32_t op);
FL_API const fl_impl_info *fl_snapshot_impl(const fl_snapshot *snapshot, uint32_t op, uint32_t impl);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_REGISTRY_H */
