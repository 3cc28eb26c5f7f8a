/* A call that several ranks share, as threads of this process: each gets its shard of the arguments, and the results
 * are joined. What `flhost run --ranks` does with each file. */
#ifndef FLHOST_CLI_RUN_RANKS_H
#define FLHOST_CLI_RUN_RANKS_H

#include <flhost/flhost.h>

enum { RUN_RANKS_MOST = 64, RUN_RANKS_WORDS = 1024 };

/* On how many ranks, `most` at most, a call's arguments can be divided evenly; 1: the op is not shared, or only as a
 * whole. `values` lie in the processor's memory. */
int32_t run_ranks_of(const fl_op *op, const fl_value *values, int32_t most);

/* Makes the call of the op's values (arguments, results) on so many ranks, and writes the joined results, the time of
 * the slowest rank, and what went wrong into `words`. FL_EINTERNAL also where the ranks' results differ. */
fl_status run_over_ranks(fl_host *host, fl_op *op, const fl_value *values, int32_t ranks, double *time_us,
                         char words[RUN_RANKS_WORDS]);

#endif
