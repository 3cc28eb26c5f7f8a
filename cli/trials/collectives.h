/* Collectives with inputs that are known everywhere, so that each rank can say what it must get: for `flhost verify
 * communicator` and the tests. */
#ifndef FLHOST_CLI_TRIALS_COLLECTIVES_H
#define FLHOST_CLI_TRIALS_COLLECTIVES_H

#include <flhost/flhost.h>

/* One of them. All ranks make the same. */
typedef struct collective_case {
  int32_t kind; /* fl_collective_kind; FL_SEND: messages of all ranks to all, twice, at once; FL_RECV: around a ring */
  int32_t reduction, root;
  const fl_element_type *type;
  int64_t count; /* of _V: about this many, differing, and some 0 */
  bool in_place;
} collective_case;

enum { COLLECTIVE_MISMATCH = 256 };

/* Makes it on the group's device. FL_OK, or the group's error; `mismatch` says then what this rank got wrong, "" for
 * nothing. FL_ENOMEM, too: no memory for the buffers, and the other ranks may wait. */
fl_status collective_try(fl_host *host, fl_group *group, const collective_case *wanted,
                         char mismatch[COLLECTIVE_MISMATCH]);

/* Every collective × element type × reduction × size, in place and apart: case number i, and how many there are, of the
 * `sizes` smallest sizes (COLLECTIVE_SIZES: all). */
enum { COLLECTIVE_SIZES = 6 };
uint32_t collective_cases(int sizes);
collective_case collective_case_at(uint32_t i, int32_t ranks);

/* "all_reduce of 13 float16 (sum), root 2, in place" */
const char *collective_words(const collective_case *wanted, char *text, size_t size);

#endif
