/* From the future: ABI 0.99, whose note and structs have grown at their ends. */
#include "scale.h"

typedef struct new_note {
  fl_plugin_note old;
  char homepage[64];
} new_note;

FL_EXPORT extern const new_note flhost_plugin_note;
enum { NOTE_SIZE = sizeof(new_note) - offsetof(fl_plugin_note, size) };
__attribute__((section(".note.flhost"), used, aligned(4))) const new_note flhost_plugin_note = {
    {8, NOTE_SIZE, 1, "flhost", NOTE_SIZE, FL_ABI_MAJOR, 99, 0, "new_minor", "9", "Test", "MIT", ""},
    "https://example.org"};

typedef struct new_op {
  fl_op_def old;
  const char *since;
} new_op;

typedef struct new_impl {
  fl_impl old;
  void (*warm_up)(void *self);
} new_impl;

fl_status register_builtins(fl_registry *registry) {
  new_op op = {scale_op, "0.99"};
  new_impl impl = {scale_row("vendor.new_minor", "new_minor"), NULL};
  op.old.size = sizeof op;
  impl.old.size = sizeof impl;
  if (registry->abi_minor >= 99)
    return FL_ESTATE;
  fl_status status = registry->register_op(registry, &op.old);
  return status ? status : registry->register_impl(registry, &impl.old);
}
