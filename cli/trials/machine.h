/* The machine that figures were taken on, for reports of benchmarks. */
#ifndef FLHOST_CLI_TRIALS_MACHINE_H
#define FLHOST_CLI_TRIALS_MACHINE_H

#include <jansson.h>

/* {cpu, architecture, processors, kernel, compiler, flhost, date (UTC), load (-1: unknown)}; NULL: out of memory. */
json_t *machine_json(void);

#endif
