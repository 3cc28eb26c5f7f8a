/* The golden files (tests/golden): vLLM's own results, against which a test holds what an implementation makes. */
#ifndef FLHOST_TESTS_GOLDEN_FILES_H
#define FLHOST_TESTS_GOLDEN_FILES_H

#include "core/schema.h"
#include "tests/suite.h"

/* Makes the call; fails the test if it cannot. */
typedef void (*golden_call)(void *user, const fl_schema *schema, fl_value *values, uint32_t n);

/* Every file of an op; how many tensors were compared: results, and state that the call changes. `exact`: bit for bit
 * where the file says so, else within the op's tolerance. */
int check_golden_op(const fl_schema *schema, bool exact, golden_call call, void *user);

#endif
