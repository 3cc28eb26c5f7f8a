/*
 * What a thread remembers of the calls that passed the full check, so that the next call of the same form need not go
 * through it: an engine calls an op with the same shapes once a layer. A form holds all that the check looks at but the
 * addresses, of which only the overlap matters. It is the thread's own: read and written without a lock.
 *
 * Looking is on the call path, so it stands here to be compiled into it.
 */
#ifndef FLHOST_CORE_CALL_CHECKED_FORMS_H
#define FLHOST_CORE_CALL_CHECKED_FORMS_H

#include "core/call/nesting.h"
#include "core/call/workspaces.h"
#include "core/schema.h"
#include "core/support.h"
#include <string.h>

enum {
  FL_CHECKED_FORMS = 64, /* places; which op shares one with which is chance */
  FL_CHECKED_FORM_SCALARS = 20,
  FL_CHECKED_FORM_TENSORS = 16,
  FL_CHECKED_FORM_DIMS = 4,
  FL_CHECKED_FORM_PAIRS = 48,
  FL_CHECKED_FORM_WORDS = 3, /* strings, and lists of integers: */
  FL_CHECKED_FORM_TEXT = 32, /* bytes of each at most */
  FL_CHECKED_STRINGS = 16
};

/* Sixteen bytes, compared at once. */
typedef uint64_t fl_half_line __attribute__((vector_size(16)));

/* A string, or a list of integers, by what it says. */
typedef struct fl_checked_form_word {
  uint64_t offset;       /* bytes, in the values */
  uint32_t type, length; /* as the value has them */
  char text[FL_CHECKED_FORM_TEXT];
} fl_checked_form_word;

/* A value that is neither of these nor a tensor, to the bit: whoever makes values with fl_none() and the like leaves no
 * bit to chance. */
typedef struct fl_checked_form_scalar {
  fl_half_line bits;
  uint64_t offset; /* bytes, in the values */
} fl_checked_form_scalar;

/* Everything of a tensor but its address. */
typedef struct fl_checked_form_tensor {
  uint64_t device, form;         /* as they lie in a DLTensor; the form is ndim and dtype */
  int64_t first_size, last_size; /* of a plain one */
  uint64_t offset, last_offset;  /* bytes: in the values, and of the last size in the shape */
  uint64_t begin;                /* address of the first element, in the call that is being looked at */
  bool plain;                    /* one or two dimensions, no strides */
  bool strided;                  /* strides are given */
  uint64_t bytes;                /* from the first to behind the last element; 0: it has none */
  int64_t shape[FL_CHECKED_FORM_DIMS], strides[FL_CHECKED_FORM_DIMS];
} fl_checked_form_tensor;

/* Two tensors of which the call writes the first: apart, or (may_be) at the very same place. They overlap where
 * begin of the other - begin of the written + `shift` is less than `span`. */
typedef struct fl_checked_form_pair {
  const fl_checked_form_tensor *written, *other;
  uint64_t shift, span;
  bool may_be;
} fl_checked_form_pair;

typedef struct fl_checked_form {
  uint64_t plain; /* fl_schema.id, if all tensors are plain, and all else are numbers and arguments; else 0 */
  uint64_t head;  /* size and count of the call, which lie side by side */
  const fl_checked_form_scalar *scalars_end;
  fl_checked_form_tensor *tensors_end;
  const fl_checked_form_pair *pairs_end;
  uint64_t schema; /* fl_schema.id; 0: nothing is remembered */
  int32_t ranks;   /* of the call; fl_schema.over_ranks says what more than one change */
  int32_t result;  /* the result that is no tensor, */
  uint32_t type;   /* and its type, or none; -1: none is */
  uint32_t n_words;
  fl_checked_form_scalar scalars[FL_CHECKED_FORM_SCALARS];
  fl_checked_form_tensor tensors[FL_CHECKED_FORM_TENSORS];
  fl_checked_form_pair pairs[FL_CHECKED_FORM_PAIRS];
  fl_checked_form_word words[FL_CHECKED_FORM_WORDS];
} fl_checked_form;

/* A thread's forms, one for each of a fixed number of ops; never NULL. And what else of calls is the thread's own:
 * those inside a call that it is in, strings that were results, by their addresses, and workspaces. */
typedef struct fl_checked_forms {
  fl_checked_form *places[FL_CHECKED_FORMS];
  fl_nesting nesting;
  const char *strings[FL_CHECKED_STRINGS];
  fl_own_workspace workspaces[FL_NESTING_MAX + 1];
  fl_workspace_place workspace_places[FL_WORKSPACE_PLACES];
} fl_checked_forms;

void *fl_checked_forms_create(void); /* NULL: out of memory */
void fl_checked_forms_free(void *forms);

/* Remembers a call that passed the full check; some are too unusual to be remembered. */
void fl_checked_form_keep(fl_checked_forms *forms, const fl_schema *schema, const fl_call *call);

/* True: a call of just this form passed, and where this one's tensors lie is good too. False says nothing. `schema` is
 * fl_schema.id. */
bool fl_checked_form_has(const fl_checked_forms *forms, uint64_t schema, const fl_call *call);

/* True: a call with arguments of just this form passed, and *results, one for each of the schema's, say what results
 * that had to have. False says nothing. The call's results are not looked at, nor where its tensors lie. */
bool fl_checked_form_infer(const fl_checked_forms *forms, const fl_schema *schema, const fl_call *call,
                           fl_tensor_spec *results);

static inline fl_half_line fl_checked_form_load(const void *from) {
  fl_half_line bytes;
  memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

static inline const fl_value *fl_checked_form_at(const fl_value *values, uint64_t offset) {
  return (const fl_value *)((const char *)values + offset);
}

static inline bool fl_checked_form_has_scalars(const fl_checked_form *known, const fl_value *values) {
  fl_half_line different = {0, 0};
  /* Two at a time: where their number is odd, the last stands there twice. */
  for (const fl_checked_form_scalar *scalar = known->scalars, *end = known->scalars_end; scalar < end; scalar += 2)
    different |= (fl_checked_form_load(fl_checked_form_at(values, scalar[0].offset)) ^ scalar[0].bits) |
                 (fl_checked_form_load(fl_checked_form_at(values, scalar[1].offset)) ^ scalar[1].bits);
  return !(different[0] | different[1]);
}

/* Device, element type and number of dimensions, and there is a shape: then it may be read. */
static inline bool fl_checked_form_has_form(const fl_checked_form_tensor *known, const DLTensor *tensor) {
  uint64_t device, form;
  _Static_assert(sizeof device == sizeof tensor->device, "a device is eight bytes");
  _Static_assert(offsetof(DLTensor, dtype) == offsetof(DLTensor, ndim) + 4, "ndim and dtype lie side by side");
  memcpy(&device, &tensor->device, sizeof device);
  memcpy(&form, &tensor->ndim, sizeof form);
  return likely(device == known->device) && likely(form == known->form) && likely(tensor->shape != NULL);
}

static inline bool fl_checked_form_is_plain(const fl_checked_form_tensor *known, const DLTensor *tensor) {
  int64_t last;
  memcpy(&last, (const char *)tensor->shape + known->last_offset, sizeof last);
  return likely(tensor->shape[0] == known->first_size) && likely(last == known->last_size) && likely(!tensor->strides);
}

static inline bool fl_checked_form_has_pairs(const fl_checked_form *known) {
  for (const fl_checked_form_pair *pair = known->pairs, *end = known->pairs_end; likely(pair < end); pair++) {
    uint64_t apart = pair->other->begin - pair->written->begin;
    if (unlikely(apart + pair->shift < pair->span) && !(pair->may_be && !apart))
      return false;
  }
  return true;
}

static inline fl_checked_form *fl_checked_form_of(const fl_checked_forms *forms, uint64_t schema) {
  return forms->places[schema % FL_CHECKED_FORMS];
}

/* True: a call of just this form passed, and where this one's tensors lie is good too. False says nothing; of a form
 * that is not plain it says less than fl_checked_form_has. `schema` is fl_schema.id. */
static inline __attribute__((always_inline)) bool fl_checked_form_has_plain(const fl_checked_forms *forms,
                                                                            uint64_t schema, const fl_call *call) {
  fl_checked_form *known = fl_checked_form_of(forms, schema);
  const fl_value *values = call->values;
  uint64_t head; /* the call's size and number of values */
  memcpy(&head, call, sizeof head);
  if (!likely(known->plain == schema) || !likely(head == known->head) || !likely(values && !call->prepared) ||
      !likely(fl_checked_form_has_scalars(known, values)))
    return false;
  fl_checked_form_tensor *form = known->tensors, *end = known->tensors_end;
  do { /* a plain call has a tensor */
    const fl_value *value = fl_checked_form_at(values, form->offset);
    const DLTensor *tensor = value->v.tensor;
    if (!likely(value->type == FL_TENSOR) || !likely(tensor) || !likely(fl_checked_form_has_form(form, tensor)) ||
        !likely(fl_checked_form_is_plain(form, tensor)) || !likely(tensor->data))
      return false;
    form->begin = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
  } while (++form < end);
  return fl_checked_form_has_pairs(known);
}

#endif
