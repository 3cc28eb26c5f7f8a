/* One safetensors file as one call of an operator: what `flhost run` does for each of its files. */
#ifndef FLHOST_CLI_RUN_FILE_H
#define FLHOST_CLI_RUN_FILE_H

#include <flhost/flhost.h>

typedef enum run_status {
  RUN_OK,      /* the results are as expected; or there is nothing to compare with and nowhere to write */
  RUN_WRITTEN, /* nothing to compare with; the results were written */
  RUN_FAILED,  /* the results are not as expected */
  RUN_NO_IMPL, /* no implementation for the call */
  RUN_ERROR    /* the file, the call or writing the results failed */
} run_status;

/* Strings are malloc'ed, NULL where not known. */
typedef struct run_report {
  const char *path; /* as it was given; the caller's */
  run_status status;
  char *op, *impl_id;
  char *why;     /* why that implementation ran */
  char *source;  /* what computed the expected results */
  char *problem; /* why the status is none of the first two */
  bool expected; /* the file has results to compare with */
  bool compared; /* some of them are tensors: the numbers below are meaningful */
  double max_abs_err, max_rel_err;
  double share;      /* the worst error as a share of what was allowed there */
  double atol, rtol; /* what was allowed; 0, 0 = bit for bit */
  double time_us;    /* the fastest call; negative: not called */
} run_report;

/*
 * Reads `path`, calls the op that its metadata names with the tensors and attributes in it, on `device`, once to warm
 * up and then `repeat` times, and compares with the results in it. With `out_path` (or NULL) the results are written
 * there. What ranks can share is called on so many of them, or fewer where it does not divide, as threads of this
 * process. The host should count calls (FL_HOST_STATISTICS): that tells which implementation ran.
 */
run_report run_file(fl_host *host, DLDevice device, const char *path, const char *out_path, int repeat, int32_t ranks);

void run_report_free(run_report *report);

#endif
