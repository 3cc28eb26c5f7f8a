/* Test data: what the elements of a generated tensor are. */
#ifndef FLHOST_CLI_TRIALS_FILL_H
#define FLHOST_CLI_TRIALS_FILL_H

#include <flhost/flhost.h>
#include <flhost/testing.h>

/* Fills `data` with the elements of a compact tensor, always the same ones for one `seed`. With `awkward`, and where
 * the contents allow it, each row gets one zero, infinity, NaN, denormal or largest value. false: the element type is
 * not known here, or the range has no such values. */
bool fill_tensor(const fl_input *input, uint64_t seed, bool awkward, void *data);

#endif
