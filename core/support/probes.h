/*
 * USDT probes for bpftrace, perf and gdb (docs/architecture.md, "Tracing"), where <sys/sdt.h> was there when the
 * library was built: each is one instruction that does nothing, and a note in the file that says where it is and where
 * its arguments lie. Where it was not, they are nothing at all. None is on the path of a call that goes well.
 */
#ifndef FLHOST_CORE_SUPPORT_PROBES_H
#define FLHOST_CORE_SUPPORT_PROBES_H

#include <stdint.h>

#ifdef __has_include
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif
#ifndef DTRACE_PROBE3
#define DTRACE_PROBE3(provider, name, a, b, c)    ((void)(a), (void)(b), (void)(c))
#define DTRACE_PROBE4(provider, name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

/* An op was bound to an implementation, for tensors on a type of device (0: it has none). */
static inline void fl_probe_resolve(const char *op, const char *impl_id, int32_t device_type) {
  DTRACE_PROBE3(flhost, resolve, op, impl_id, device_type);
}

/* A call goes on from one implementation to the next that is asked; "" if there is none. */
static inline void fl_probe_fallback(const char *op, const char *from, const char *to, const char *reason) {
  DTRACE_PROBE4(flhost, fallback, op, from, to, reason);
}

/* An implementation failed, with an fl_status and its own words. */
static inline void fl_probe_failure(const char *op, const char *impl_id, int32_t status, const char *message) {
  DTRACE_PROBE4(flhost, failure, op, impl_id, status, message);
}

/* A plugin was loaded, or not (an fl_status), and how long that took. */
static inline void fl_probe_plugin_load(const char *name, const char *file, int32_t status, uint64_t microseconds) {
  DTRACE_PROBE4(flhost, plugin_load, name, file, status, microseconds);
}

#endif
