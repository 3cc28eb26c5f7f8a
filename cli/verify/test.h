/* One implementation, one call, from the inside: what the checks of run.c and more.c share. */
#ifndef FLHOST_CLI_VERIFY_TEST_H
#define FLHOST_CLI_VERIFY_TEST_H

#include "cli/trials/state.h"
#include "cli/verify/verify.h"

/* One test: what it is about, and the first thing that is wrong. */
typedef struct verify_test {
  const verify_impl *impl;
  const test_call *call;
  verify_row *row;
  const process_state *state; /* that calls have to leave as it was; NULL: not looked at */
  char *problem;
  bool no_memory;
} verify_test;

/* Sets the problem; the first one stays. Gives false. */
bool verify_fail(verify_test *t, const char *format, ...) FL_PRINTF(2, 3);

/* What the implementation said. */
const char *verify_words(const attempt *made);

/* Are the results, and the states, those of the reference? Was nothing else written? Is there nothing else to see
 * afterwards? */
bool verify_is_right(verify_test *t, const attempt *made);
bool verify_stays_inside(verify_test *t, const attempt *made);
bool verify_leaves_nothing(verify_test *t);

/* Same bits as an earlier attempt? */
bool verify_has_bits(verify_test *t, const attempt *first, const attempt *made, const char *when);

/* The call as it is tested: varied, unless the op refuses that. false: no memory. */
bool verify_create_attempt(attempt *made, place at, const test_call *call, memory_edge edge);

/* Puts the problem, if there is one, into the row, with the call's words. false: out of memory. */
bool verify_conclude(verify_test *t, const attempt *made);

/* --------------------------------------------------------------------------------------------------- what is tested */

/* Tests one implementation with one call, whose expected results are known. *passed: it took the call, and all was
 * well. false: out of memory. */
bool verify_with_call(const verify_impl *impl, const test_call *call, const process_state *state, verify_row *row,
                      bool *passed);

/* Tests it with those calls that passed (`passed`, by call), in ways that take longer: at the edges of memory, again
 * and again, by threads with different data. `failed`, which may be shared, says which call it is at and how, and in
 * the end which one failed. false: out of memory. */
bool verify_more(const verify_impl *impl, const test_call *calls, const bool *passed, uint32_t n, double seconds,
                 verify_row *row, failed_call *failed);

/* Makes a call in the way in which it failed, at the edge of memory, or as often as it takes: failed->calls is then how
 * often that was. false: out of memory. */
bool verify_again(const verify_impl *impl, const test_call *call, double seconds, verify_row *row, failed_call *failed);

#endif
