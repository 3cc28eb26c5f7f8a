/* What `flhost run` prints of the files that it ran. */
#ifndef FLHOST_CLI_RUN_PRINT_H
#define FLHOST_CLI_RUN_PRINT_H

#include "cli/run/file.h"

/* JSON has every file, whatever else is asked for; without any, so does a table. */
typedef struct run_forms {
  bool json;
  bool summary; /* a table with a line an op */
  bool explain; /* a few lines an op: what it gets after these calls, and why; after that table, or alone */
} run_forms;

/* To standard output; `host` is the one that ran them. The exit status: not 0 when it could not be printed. */
int run_print(fl_host *host, DLDevice device, const run_report *reports, size_t n, int repeat, run_forms forms);

#endif
