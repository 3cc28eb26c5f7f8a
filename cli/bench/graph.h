/*
 * Calls of one implementation as a graph of the device's: captured once, launched as often as is timed. What the host
 * and the driver take for each call is then paid at the capture.
 */
#ifndef FLHOST_CLI_BENCH_GRAPH_H
#define FLHOST_CLI_BENCH_GRAPH_H

#include "cli/bench/bench.h"

/* Calls in one graph: enough that its launch is a small part. */
enum { GRAPH_CALLS = 16 };

/* Zero-initialise. */
typedef struct call_graph {
  fl_host *host;
  DLDevice device;
  void *stream, *graph;
} call_graph;

/* Of the implementation that the scope in force lets in; `prepared` is that of each copy of the call, or NULL. On
 * failure `words` say why, and there is nothing to free; FL_ENOTSUP: the device has no graphs. */
fl_status call_graph_capture(call_graph *made, const timed_call *call, const fl_prepared *const *prepared,
                             char words[TRIAL_WORDS]);

/* Launches it n times, and waits for the last. */
fl_status call_graph_launch(const call_graph *graph, long n);

void call_graph_free(call_graph *graph);

#endif
