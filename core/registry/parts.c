/* Where ops can be run by their parts: see parts.h. */
#include "core/registry/parts.h"

#include "core/registry/implementations.h"
#include "core/registry/registry.h"
#include "core/support.h"

#include <string.h>

bool fl_parts_create(fl_host *host, fl_op *op) {
  fl_impl impl = *host->hooks->parts;
  impl.self = op;
  const fl_provider *provider = fl_registry_provider(host, FL_PROVIDER_HOST, fl_version());
  op->parts = provider ? fl_impl_record_create(&impl, provider, op) : NULL;
  return op->parts;
}

/* The op of a part; NULL: there is none so far. */
static fl_op *part_named(fl_host *host, fl_op *const *new_ops, uint32_t n_new_ops, const char *name, size_t length) {
  char whole[FL_NAME_MAX + 1];
  snprintf(whole, sizeof whole, "%.*s", (int)length, name);
  fl_op *op = fl_registry_known(host, whole);
  for (uint32_t i = 0; !op && i < n_new_ops; i++)
    if (!strcmp(new_ops[i]->name, whole))
      op = new_ops[i];
  return op;
}

bool fl_parts_next(fl_host *host, const char **at, fl_op **part) {
  const char *name;
  size_t length;
  if (!fl_parts_next_op(at, &name, &length))
    return false;
  *part = part_named(host, NULL, 0, name, length);
  return true;
}

static const fl_impl_set *set_of(const fl_op *op) {
  return op->successor ? op->successor : atomic_load_explicit(&op->impls, memory_order_relaxed);
}

bool fl_parts_listed(const fl_op *op) {
  const fl_impl_set *set = set_of(op);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (set->impls[i] == op->parts)
      return true;
  return false;
}

/* For which devices there is an implementation of it. */
static uint64_t devices_of(const fl_op *op) {
  const fl_impl_set *set = set_of(op);
  uint64_t devices = op->parts_devices;
  for (uint32_t i = 0; set && i < set->n; i++)
    if (set->impls[i] != op->parts && set->impls[i] != op->host_fallback)
      devices |= atomic_load_explicit(&set->impls[i]->devices, memory_order_relaxed);
  return devices;
}

/* True: there are more than before. */
static bool find_more(fl_host *host, fl_op *const *new_ops, uint32_t n_new_ops, fl_op *op) {
  const char *at = fl_parts_text(op), *name;
  size_t length;
  uint64_t devices = UINT64_MAX, before = op->parts_devices;
  while (fl_parts_next_op(&at, &name, &length)) {
    fl_op *part = part_named(host, new_ops, n_new_ops, name, length);
    if (part)
      part->is_part = true;
    devices &= part ? devices_of(part) : 0;
  }
  op->parts_devices = devices;
  return devices != before;
}

/* Parts may have parts: from none on, as long as there are more. */
void fl_parts_find_devices(fl_host *host, fl_op *const *new_ops, uint32_t n_new_ops) {
  bool more;
  for (fl_op *op = host->with_parts; op; op = op->next_with_parts)
    op->parts_devices = 0;
  for (uint32_t i = 0; i < n_new_ops; i++)
    new_ops[i]->parts_devices = 0;
  do {
    more = false;
    for (fl_op *op = host->with_parts; op; op = op->next_with_parts)
      more |= find_more(host, new_ops, n_new_ops, op);
    for (uint32_t i = 0; i < n_new_ops; i++)
      if (new_ops[i]->parts)
        more |= find_more(host, new_ops, n_new_ops, new_ops[i]);
  } while (more);
}

void fl_parts_add_op(fl_host *host, fl_op *op) {
  if (!op->parts)
    return;
  op->next_with_parts = host->with_parts;
  host->with_parts = op;
}
