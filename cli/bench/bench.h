/* `flhost bench` in parts: a call and its memory, rows of the report, timing one op. */
#ifndef FLHOST_CLI_BENCH_BENCH_H
#define FLHOST_CLI_BENCH_BENCH_H

#include "cli/trials/device.h"
#include "cli/trials/trial.h"
#include <flhost/testing.h>
#include <jansson.h>

/* ------------------------------------------------------------------------------------------------------------ calls */

/* A call to time an op with. Arrays are by value of the schema: arguments, then results. */
typedef struct timed_call {
  fl_host *host;
  DLDevice device; /* of its tensors */
  fl_op *op;
  uint32_t number, n_calls; /* which, of how many */
  uint32_t n_arguments, n_values;
  fl_input *inputs;        /* of arguments only */
  fl_tensor_spec *results; /* of results only, from 0 */
  fl_cost cost;
  uint32_t copies; /* of its tensors, which take turns; those of copy i begin at i * n_values */
  DLTensor *tensors;
  device_memory *memory;
  fl_value *values;
} timed_call;

/* Chooses the arguments, without memory for them; `sizes` may be NULL. FL_ENOENT: the op does not take that element
 * type. */
fl_status timed_call_plan(timed_call *call, fl_host *host, DLDevice device, fl_op *op, uint32_t dtype,
                          const char *sizes, uint32_t number);
/* Allocates and fills tensors, and as many copies of them as have `rotated` bytes together. FL_ENOMEM: there is not so
 * much memory; FL_EDEVICE; FL_EINVAL: with these sizes an argument has no values to take. */
fl_status timed_call_fill(timed_call *call, double rotated);
void timed_call_free(timed_call *call);
double timed_call_bytes(const timed_call *call); /* of one copy of its tensors */
double timed_call_tensor_bytes(const timed_call *call, uint32_t index);

/* The element type that the call was made for, "" without tensors. */
const char *timed_call_dtype(const timed_call *call, uint32_t asked);
/* "x[1, 4096] weight[14336, 4096]"; malloc'ed, NULL when out of memory. */
char *timed_call_shapes(const timed_call *call);

/* ------------------------------------------------------------------------------------------------------------- rows */

/* What stands beside the implementations when it is asked for (--peer); threads that a peer may have. */
enum { BENCH_PEERS_MOST = 4, BENCH_THREADS_MOST = 1024 };

/* One implementation with one call. Strings but `dtype` are malloc'ed; a number that there is none of is NAN. */
typedef struct timing {
  char *op, *impl_id, *shapes;
  const char *dtype;
  double bytes, flops; /* of a call; flops -1: not known */
  double us;           /* median */
  double graph_us;     /* of one call within a graph of the device's */
  double as_reference; /* how many times as fast as the reference, and as a memcpy that moves as many bytes */
  double as_memcpy;
  double as_peer[BENCH_PEERS_MOST]; /* as what --peer names, in its order */
  double prepared;                  /* bytes of prepared weights that it was called with */
  int rounds;
  bool is_beside;    /* no implementation: memcpy, or a peer */
  bool failed;       /* it returned an error, or did not come back */
  char *reason;      /* why it was not timed */
  char *no_graph;    /* why it was not timed in a graph, on a device */
  double earlier_us; /* in the file that is compared with; `is_new`: the row is not there */
  bool is_new;
} timing;

typedef struct timings {
  timing *items;
  size_t n, capacity;
} timings;

/* A new row, of which nothing is known; NULL when out of memory. Earlier rows may move. It takes `shapes`, also when it
 * fails; the element type's name is borrowed. */
timing *timings_add_row(timings *rows, const char *op, const char *impl_id, const char *dtype, char *shapes);
/* With what is known of the call. */
timing *timings_add(timings *rows, const timed_call *call, const char *impl_id, const char *dtype);
void timings_free(timings *rows);

/* What the command line asks for. */
typedef struct bench_request {
  const char *impl;  /* --impl, or NULL */
  const char *sizes; /* --dims, or NULL */
  uint32_t dtype;    /* --dtype, or 0 */
  DLDevice device;   /* --device, or the processor */
  bool no_reference;
  bool prepared;     /* --prepared: with prepared weights, where there are */
  bool small, large; /* --size: the first call, the last one; else all */
  double seconds;
  double rotated; /* bytes that copies of the tensors have together, which take turns; 0: one copy */
  const char *peers[BENCH_PEERS_MOST];
  int n_peers;
  int threads;              /* of the processor's kernels, and of peers */
  struct torch_peer *torch; /* peer.h; NULL where no peer needs it */
  trial_limits limits;      /* of the children that call */
  bool json;
} bench_request;

/* Are calls timed in a graph, too? On a device. */
bool bench_has_graphs(const bench_request *asked);

/* Times one op's implementations, and adds their rows. The exit status: not EXIT_OK where it cannot go on. */
int bench_op(fl_host *host, const bench_request *asked, const fl_snapshot *snapshot, uint32_t index, timings *rows);

/* --------------------------------------------------------------------------------------------------- an earlier run */

/* The report of an earlier run, and what of it this run has not. */
typedef struct earlier_run {
  const char *path;
  json_t *report;
  bool *taken; /* by row: this run has it, too */
  size_t n;
  timings left; /* what this run was asked for and has not */
} earlier_run;

/* false, with a message: it cannot be read, or is no report of this command. */
bool earlier_read(earlier_run *earlier, const char *path);
void earlier_free(earlier_run *earlier);

/* Puts its figures beside those of this run's rows, and fills `left`. false: out of memory. */
bool earlier_match(earlier_run *earlier, timings *rows, const bench_request *asked, int n_ops, char **ops);

/* Prints; the exit status of printing. `earlier` may be NULL. */
int timings_print_table(const timings *rows, const bench_request *asked, const earlier_run *earlier);
int timings_print_json(const timings *rows, const bench_request *asked, const earlier_run *earlier);

#endif
