/* Keeping a failing call: as small as it fails, in a file that `flhost run` repeats. */
#ifndef FLHOST_CLI_VERIFY_SAVE_H
#define FLHOST_CLI_VERIFY_SAVE_H

#include "cli/verify/verify.h"

/* Can files be written there? Makes the directory if need be. Exit status; says why not. */
int verify_check_save(const char *directory);

/* Looks for smaller sizes with which the call fails, too, and saves it with what it takes to fail; row->saved is then
 * the file. What does not fail a second time by itself, a race of threads for one, is saved as it is, and says so. A
 * call that cannot be saved is left out, with a message. false: out of memory. */
bool verify_save_smallest(const verify_impl *impl, const verify_impl *reference, const verify_request *asked,
                          const call_source *source, const failed_call *failed, fl_op *op, verify_row *row);

#endif
