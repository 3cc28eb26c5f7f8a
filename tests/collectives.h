/* Ranks as threads or processes, and every collective on them against values that are computed from all ranks' inputs.
 */
#ifndef FLHOST_TESTS_COLLECTIVES_H
#define FLHOST_TESTS_COLLECTIVES_H

#include "tests/fixture.h"

/* What one rank does; it checks by itself. */
typedef void (*rank_body)(fl_host *host, fl_group *group);

/* Makes a group of that many ranks on the processor and has each do it in a thread, then leave. */
void ranks_as_threads(fl_host *host, int32_t ranks, rank_body body);

/* The same in processes that are forked before a host is there: each makes its own by `make`. */
void ranks_as_processes(fl_host *(*make)(void), int32_t ranks, rank_body body);

/* Those of cli/trials/collectives.h, each of which must be right; the `sizes` smallest sizes. */
void check_collectives(fl_host *host, fl_group *group, int sizes);

#endif
