/*
 * A saved call's tensors where they lay when it failed (tests/golden/README.md, "layout"): with their strides, offsets
 * and alignment, in memory that they share, at its edge if that is asked for. All of it is watched.
 */
#ifndef FLHOST_CLI_TRIALS_PLACEMENT_H
#define FLHOST_CLI_TRIALS_PLACEMENT_H

#include "cli/trials/guarded.h"

#include <jansson.h>

/* One tensor; its name and form are the caller's. */
typedef struct placed {
  const char *name;       /* as in the layout; NULL: no tensor */
  const DLTensor *form;   /* shape and element type */
  guarded view;           /* in the image on the host */
  DLTensor tensor;        /* to be passed */
  const guarded *memory;  /* that it lies in */
  int64_t number;         /* of that in the layout; negative: its own */
  size_t offset, address; /* bytes from its data pointer to its first element, and where that lies, modulo 256 */
  size_t at;              /* bytes from the beginning of the memory */
} placed;

typedef struct placement {
  placed *tensors; /* by value */
  guarded *memories;
  uint32_t n, n_memories;
} placement;

enum { PLACEMENT_WORDS = 512 };

/* Makes it for tensors whose names and forms are set; `saved` is that object, by name. false, with words, for one that
 * is wrong. To be freed in any case. */
bool placement_create(placement *made, place at, json_t *saved, memory_edge edge, char words[PLACEMENT_WORDS]);
void placement_free(placement *made);

/* Puts everything back as it was before the call, and gets what a device has made of it. */
fl_status placement_reset(const placement *made);
fl_status placement_fetch(const placement *made);

/* Is everything but the elements of tensors for which `written` is true as it was put? Else the tensor next to what is
 * not, with words ("element [2, 0]"); NULL: it is. Its elements count as put from then on. */
const placed *placement_changed(const placement *made, const bool *written, char words[PLACEMENT_WORDS]);

/* Words for an address beyond the edge of memory; for a signal handler. */
bool placement_locate(const placement *made, const void *address, char *words, size_t size);

#endif
