/*
 * flhost/manifest.h: what calls run, and what identifies it: keys for compile caches.
 */
#ifndef FLHOST_MANIFEST_H
#define FLHOST_MANIFEST_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One implementation that calls of an op may run. */
typedef struct fl_manifest_row {
  const char *op, *impl_id, *vendor; /* vendor: NULL if none */
  fl_kind kind;
  uint32_t place;       /* 0: tried first; the next is tried where supports_args or the element type says no */
  const char *plugin;   /* who registered it: "engine" for the engine itself, "flhost" for the host */
  const char *version;  /* the plugin's, the library's for "flhost"; "" for the engine */
  const char *build_id; /* of the plugin's file, "" if it has none; "engine" for the engine, the library's version for
                           the host */
} fl_manifest_row;

/*
 * What calls for one device type run, and a digest of it for the key of a compile cache. The digest is the SHA-256, in
 * hex, of `text`: lines that end in \n, of fields separated by \t. In a field, a backslash and the bytes 00 to 1f and
 * 7f are written \xHH, with small letters. Lists are sorted bytewise. In this order:
 *
 *     flhost-manifest 1                        the version of this form
 *     library VERSION                          fl_version()
 *     device TYPE                              DLPack's number, in decimal
 *     policy FINGERPRINT                       fl_policy_fingerprint
 *     setting VLLM_FL_PREFER_ENABLED BOOL      true or false
 *     setting USE_FLAGGEMS BOOL
 *     setting flagos_whitelist OP...           only if it is set
 *     setting flagos_blacklist OP...           only if it is set
 *     setting custom_ops all|none +OP... -OP...
 *     setting enforced OP...                   fl_op_enforce_enable; only if there are any
 *     setting VLLM_FL_OOT_ENABLED BOOL
 *     setting VLLM_FL_OOT_WHITELIST LAYER...   only if it is set
 *     setting oot_blacklist LAYER...           only if it is set
 *     layer CLASS OP PLUGIN                    one for each class that a plugin brings, by class
 *     op NAME SCHEMA                           one for each op with an implementation for the device type (or without
 *                                              tensors), by name, each followed by
 *     impl PLACE IMPL_ID KIND VENDOR PLUGIN VERSION BUILD_ID
 *                                              one for each of its rows, by place; KIND is flagos, vendor or
 *                                              reference, VENDOR empty if there is none
 *     variant NAME                             behind such a row, where it has one (fl_impl.variant)
 *
 * An op's last row is the first that takes all calls, as what stands behind it is never reached in a frozen host. The
 * text is the same in every process and for any order of loading. Of the hardware it says
 * nothing but the variants that plugins chose for it, and an implementation of the engine's own is known by name alone.
 */
typedef struct fl_manifest {
  uint32_t size;       /* sizeof(fl_manifest) of the library */
  const char *library; /* fl_version() */
  int32_t device_type;
  const char *policy; /* fingerprint */
  const void *rows;   /* fl_manifest_row_at */
  uint32_t n_rows, row_size;
  const char *const *without; /* ops with an implementation for the device type of which none may run; by name */
  uint32_t n_without;
  const char *text;
  const char *sha256;  /* 64 hex digits; NULL if a plugin's file has no build id: nothing would tell its builds apart */
  const char *problem; /* then: which plugin, and what to do; else NULL */
} fl_manifest;

/* Row i; NULL: there are fewer. */
static inline const fl_manifest_row *fl_manifest_row_at(const fl_manifest *manifest, uint32_t i) {
  return (const fl_manifest_row *)fl_item_at(manifest->rows, manifest->n_rows, manifest->row_size, i);
}

/*
 * Under the policy in force in this thread; an implementation that calls skip because it failed is left out. Unless the
 * host is frozen the next call may already run something else. The caller frees it. FL_EINVAL: no such device type.
 */
FL_API fl_status fl_get_manifest(fl_host *host, int32_t device_type, fl_manifest **manifest);
FL_API void fl_manifest_free(fl_manifest *manifest);

/*
 * The identity of an implementation, for keys of caches: the SHA-256, in hex, of the op's schema, the impl_id, the
 * variant where it has one and the build id of the plugin's file ("engine" for an implementation of the engine's own).
 * The same inputs give the same text in every process; a change of any gives another. FL_ENOENT: no such op or
 * implementation; FL_ENOTSUP: the plugin's file has no build id, so that nothing would tell one build of it from the
 * next.
 */
FL_API fl_status fl_impl_uuid(fl_host *host, const char *op, const char *impl_id, char uuid[65]);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_MANIFEST_H */
