/* What a frozen host refuses: see frozen.h. */
#include "core/registry/frozen.h"

void fl_frozen_by(const fl_host *host, fl_text *text) {
  for (uint32_t i = 0; i < host->frozen_by.n; i++)
    fl_text_add(text, "%s'%s'", i ? ", " : "", host->frozen_by.items[i]);
}

void fl_freeze_state(const fl_host *host, fl_text *text) {
  fl_text_add(text, "the host is frozen by ");
  fl_frozen_by(host, text);
  if (host->frozen_by.n == 1)
    fl_text_add(text, "; fl_thaw(host, \"%s\") thaws it", host->frozen_by.items[0]);
  else
    fl_text_add(text, "; fl_thaw(host, NAME) with each of these names thaws it");
}

fl_status fl_refuse_frozen(fl_host *host, const char *what) {
  fl_text state = {0};
  if (!host->frozen_by.n)
    return FL_OK;
  fl_freeze_state(host, &state);
  fl_status status = fl_error(FL_ESTATE, "%s is refused: %s", what, fl_text_get(&state));
  fl_text_free(&state);
  return status;
}

fl_status fl_refuse_frozen_unlocked(fl_host *host, const char *what) {
  pthread_mutex_lock(&host->lock);
  fl_status status = fl_refuse_frozen(host, what);
  pthread_mutex_unlock(&host->lock);
  return status;
}

bool fl_keeps_frozen(fl_host *host, const char *op, const char *impl_id, const char *reason, fl_status status) {
  fl_text state = {0};
  if (!atomic_load_explicit(&host->frozen, memory_order_acquire))
    return false;
  pthread_mutex_lock(&host->lock);
  bool frozen = host->frozen_by.n; /* it may have been thawed since */
  if (frozen)
    fl_freeze_state(host, &state);
  pthread_mutex_unlock(&host->lock);
  if (frozen)
    fl_error(status, "%s\n  Op '%s' keeps to '%s': %s", reason, op, impl_id, fl_text_get(&state));
  fl_text_free(&state);
  return frozen;
}
