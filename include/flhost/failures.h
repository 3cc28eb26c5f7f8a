/*
 * flhost/failures.h: what failed, and how often.
 */
#ifndef FLHOST_FAILURES_H
#define FLHOST_FAILURES_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An implementation that calls skip because it failed. */
typedef struct fl_failed_impl {
  const char *op, *impl_id, *reason;
  double retry_in; /* seconds until it is tried again; negative: never, or not while the host is frozen */
} fl_failed_impl;

/* Several of them. */
typedef struct fl_failed_impls {
  uint32_t size; /* sizeof(fl_failed_impls) of the library */
  uint32_t n, item_size;
  const void *items; /* fl_failed_impl_at */
} fl_failed_impls;

/* Item i of the list; NULL: there are fewer. */
static inline const fl_failed_impl *fl_failed_impl_at(const fl_failed_impls *list, uint32_t i) {
  return (const fl_failed_impl *)fl_item_at(list->items, list->n, list->item_size, i);
}

/* Impls that are skipped because they failed, of one op or (NULL) all. The caller frees the list. FL_ENOENT: no such
 * op.
 */
FL_API fl_status fl_get_failed_impls(fl_host *host, const char *op, fl_failed_impls **failed);
FL_API void fl_failed_impls_free(fl_failed_impls *failed);

/* Lets them be tried again: those of one op, or (NULL) all; also those that canary mode found wrong, which nothing else
 * lets in again. */
FL_API void fl_clear_failed_impls(fl_host *host, const char *op);

/* What became of an implementation's calls since the host was created, or forked. */
typedef struct fl_counters {
  uint32_t size;                    /* sizeof(fl_counters) of the caller */
  uint64_t calls;                   /* with FL_HOST_STATISTICS, else 0; of reference.host always */
  uint64_t fallbacks_not_supported; /* passed over, supports_args or FL_ENOTSUP */
  uint64_t fallbacks_failed;        /* left for the next after a failure */
  uint64_t failures;
  uint64_t prepared, prepared_bytes; /* prepared weights that there are at present (fl_prepare), and their bytes */
} fl_counters;

/* FL_ENOENT: no such op or impl. */
FL_API fl_status fl_get_counters(fl_host *host, const char *op, const char *impl_id, fl_counters *counters);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_FAILURES_H */
