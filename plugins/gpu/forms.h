/*
 * What a vendor's library chose for each form that its calls come in: a table that is filled, never emptied, and read
 * without a lock. A form is whole words without padding, compared as bytes; what was chosen for it begins with it.
 */
#ifndef FLHOST_GPU_FORMS_H
#define FLHOST_GPU_FORMS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { GPU_FORM_PROBES = 16 };

typedef _Atomic(void *) gpu_form_slot;

static inline size_t gpu_form_hash(const void *form, size_t size) {
  uint64_t hash = 0, word;
  for (size_t at = 0; at < size; at += sizeof word) {
    memcpy(&word, (const char *)form + at, sizeof word);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return (size_t)hash;
}

/* The form's slot among `n`, or the empty one for it; NULL: all its places are taken. */
static inline gpu_form_slot *gpu_form_find(gpu_form_slot *slots, size_t n, const void *form, size_t size) {
  size_t first = gpu_form_hash(form, size);
  for (size_t i = 0; i < GPU_FORM_PROBES; i++) {
    gpu_form_slot *slot = &slots[(first + i) % n];
    const void *chosen = atomic_load_explicit(slot, memory_order_acquire);
    if (!chosen || !memcmp(chosen, form, size))
      return slot;
  }
  return NULL;
}

#endif
