/*
 * The identity of an implementation, for the keys of an engine's caches: a digest of what decides its results. SHA-256
 * is libmd's.
 */
#include "core/registry.h"
#include "core/support.h"

#include <sha2.h>
#include <string.h>

/* The NUL goes in too, so that no two lists of texts give the same bytes. */
static void add(SHA2_CTX *digest, const char *text) {
  SHA256Update(digest, (const uint8_t *)text, strlen(text) + 1);
}

fl_status fl_impl_uuid(fl_host *host, const char *name, const char *impl_id, char uuid[65]) {
  fl_status status = FL_OK;
  SHA2_CTX digest;
  const fl_op *op = fl_find_op(host, name);
  if (!op)
    return FL_ENOENT;
  pthread_mutex_lock(&host->lock);
  const fl_impl_record *record = fl_registry_find_impl(op, impl_id);
  if (!record) {
    status = fl_registry_no_such_impl(op, impl_id);
  } else if (!*record->provider->build_id) {
    status = fl_error(FL_ENOTSUP, "plugin '%s' of '%s' has no build id: link it with -Wl,--build-id",
                      record->provider->plugin, impl_id);
  } else {
    SHA256Init(&digest);
    add(&digest, op->schema->text);
    add(&digest, impl_id);
    add(&digest, record->provider->build_id);
    if (record->variant)
      add(&digest, record->variant);
    SHA256End(&digest, uuid);
  }
  pthread_mutex_unlock(&host->lock);
  return status;
}
