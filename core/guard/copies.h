/*
 * A call's tensors as copies that are watched: what an implementation gets in place of the caller's. On the host they
 * may lie between guard pages; on a device between margins, with an image of all of it on the host.
 */
#ifndef FLHOST_CORE_GUARD_COPIES_H
#define FLHOST_CORE_GUARD_COPIES_H

#include "core/registry.h"

/* What the call does with a tensor. */
typedef enum fl_copy_role {
  FL_COPY_INPUT,  /* reads it */
  FL_COPY_STATE,  /* may overwrite it */
  FL_COPY_RESULT, /* writes all of it */
  FL_COPY_SCRATCH /* the workspace */
} fl_copy_role;

typedef struct fl_copy {
  fl_copy_role role;
  const char *name; /* of the argument or result */
  const DLTensor *original;
  DLTensor tensor; /* the copy */
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  DLTensor lent; /* the same, as the implementation gets it, which may spoil it */
  int64_t lent_shape[FL_MAX_DIMS], lent_strides[FL_MAX_DIMS];
  char *map; /* with its guard pages; on a device the image, from malloc */
  size_t map_size;
  char *inside; /* what may be touched: slack, elements, slack */
  size_t inside_size;
  char *first;     /* the elements, gaps between rows included */
  size_t span;     /* bytes of those */
  char *before;    /* the elements before the call, gaps included; NULL: a result, or an input that is on the host */
  char *earlier;   /* of a result in guarded mode: room for what an earlier run wrote; else NULL */
  char *gaps;      /* of a copy with gaps between its rows: room to look at them; else NULL */
  void *on_device; /* `inside` there; NULL: on the host */
  unsigned char pattern; /* what is in `inside` besides elements; in a result, before the run, all of it */
  int watch;             /* fl_touch_watch; negative: none */
  char what[640];
} fl_copy;

typedef struct fl_copies {
  fl_op *op;
  const fl_impl_record *record;
  fl_call call; /* over `values`, as the implementation gets it: fl_copies_lend */
  const fl_call *given;
  fl_value values[FL_SCHEMA_MAX_VALUES];
  uint8_t at[FL_SCHEMA_MAX_VALUES]; /* copies[at[i]] is value i's */
  fl_copy copies[FL_SCHEMA_MAX_VALUES + 1];
  uint32_t n;
  void *workspace; /* the copy of the call's; NULL: that itself */
  bool guarded;    /* between guard pages, inputs read-only */
  bool at_end;     /* the tensors lie at the end of their pages, else at the beginning */
} fl_copies;

enum { FL_COPY_NONE = 255 }; /* fl_copies.at: no tensor */

/* What fills memory in a first run and in a second one: large finite numbers in every format, so that a kernel that
 * reads them gives a wrong result. */
enum { FL_PATTERN = 0xfb, FL_PATTERN_AGAIN = 0x6b };

/* Makes them; zero-initialised but for op, record, guarded and at_end. What cannot be made is an error, and nothing is
 * left behind: FL_ENOTSUP for tensors of which there can be no copy. */
fl_status fl_copies_make(fl_copies *copies, const fl_call *call);

/* Makes the call what it is to be called with. */
void fl_copies_lend(fl_copies *copies);

/* Everything as before the call, with another pattern; what results were is kept. */
fl_status fl_copies_renew(fl_copies *copies, unsigned char pattern);

/* Gets what a device made of them. The device is done. */
fl_status fl_copies_fetch(fl_copies *copies);

/* What an implementation did wrong, by words in `text`; false: nothing. Looks at guard pages, margins, gaps and
 * inputs. */
bool fl_copies_spoilt(const fl_copies *copies, fl_text *text);

/* Does a result have an element that is the pattern, in each byte? After a second run with another pattern: that was so
 * in both, with words. */
bool fl_copies_maybe_unwritten(const fl_copies *copies);
bool fl_copies_unwritten(const fl_copies *copies, fl_text *text);

/* Is there a number in a result that is not finite, though all inputs are? With words. */
bool fl_copies_not_finite(const fl_copies *copies, fl_text *text);

/* Gives the caller what the implementation wrote: results, and of states what changed. */
fl_status fl_copies_give(fl_copies *copies);

void fl_copies_free(fl_copies *copies);

#endif
