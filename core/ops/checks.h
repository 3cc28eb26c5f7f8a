/* What the entries' check hooks have in common: attributes in a range or in a list of words. `index` and `name` are the
 * argument's; one that is none passes. FL_EINVAL with what was given and what is expected. */
#ifndef FLHOST_CORE_OPS_CHECKS_H
#define FLHOST_CORE_OPS_CHECKS_H

#include <flhost/plugin.h>

fl_status fl_check_finite(fl_call *call, uint32_t index, const char *name);
fl_status fl_check_positive(fl_call *call, uint32_t index, const char *name);     /* and finite */
fl_status fl_check_not_negative(fl_call *call, uint32_t index, const char *name); /* and finite */
fl_status fl_check_word(fl_call *call, uint32_t index, const char *name, const char *const *words, uint32_t n);

/* Two numbers, 1 or more: rows and columns of `what`. */
fl_status fl_check_block_size(fl_call *call, uint32_t index, const char *what);

/*
 * Attributes that size a result or what an implementation needs beside it: `size`, of which the tensors explain `given`
 * (both in elements), must not be more than 2^24, or 64 times that. A short file must not make a process take all of a
 * machine's memory. `what` is what has the size: "'out'". FL_EINVAL.
 */
fl_status fl_check_sized(fl_call *call, const char *arguments, const char *what, int64_t size, int64_t given);

/* How many elements of a row of `x` count, variance_size, which may be none. */
fl_status fl_check_variance_size(fl_call *call, uint32_t index, const DLTensor *x);

#endif
