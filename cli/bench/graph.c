/* Calls as a graph: see graph.h. */
#include "cli/bench/graph.h"

/* The copies of the call's tensors take turns, as they do outside of graphs. */
static fl_status call_op(const call_graph *graph, const timed_call *call, const fl_prepared *const *prepared, int n) {
  fl_call each = {.size = sizeof each, .count = call->n_values, .stream = graph->stream};
  fl_status status = FL_OK;
  for (int i = 0; i < n && !status; i++) {
    uint32_t copy = (uint32_t)i % call->copies;
    each.values = call->values + (size_t)copy * call->n_values;
    each.prepared = prepared ? prepared[copy] : NULL;
    status = fl_invoke(call->op, &each);
  }
  return status;
}

/* Failing on the way, it takes the stream out of the capture all the same. */
static fl_status capture(call_graph *made, const timed_call *call, const fl_prepared *const *prepared,
                         char words[TRIAL_WORDS]) {
  void *torn = NULL;
  fl_status status = fl_graph_begin(made->host, made->device, made->stream);
  if (!status) {
    status = call_op(made, call, prepared, GRAPH_CALLS);
    if (!status)
      return fl_graph_end(made->host, made->device, made->stream, &made->graph);
    snprintf(words, TRIAL_WORDS, "%s", fl_error_message());
    if (!fl_graph_end(made->host, made->device, made->stream, &torn))
      fl_graph_destroy(made->host, made->device, torn);
  }
  return status;
}

fl_status call_graph_capture(call_graph *made, const timed_call *call, const fl_prepared *const *prepared,
                             char words[TRIAL_WORDS]) {
  *made = (call_graph){.host = call->host, .device = call->device};
  *words = 0;
  fl_status status = fl_stream_create(made->host, made->device, 0, &made->stream);
  /* Once before: what it allocates and chooses is then there. */
  if (!status)
    status = call_op(made, call, prepared, 1);
  if (!status)
    status = fl_device_synchronize(made->host, made->device, made->stream, false);
  if (!status)
    status = capture(made, call, prepared, words);
  if (status && !*words)
    snprintf(words, TRIAL_WORDS, "%s", fl_error_message());
  if (status)
    call_graph_free(made);
  return status;
}

fl_status call_graph_launch(const call_graph *graph, long n) {
  fl_status status = FL_OK;
  while (n-- && !status)
    status = fl_graph_launch(graph->host, graph->device, graph->graph, graph->stream);
  return status ? status : fl_device_synchronize(graph->host, graph->device, graph->stream, false);
}

void call_graph_free(call_graph *graph) {
  if (graph->graph)
    fl_graph_destroy(graph->host, graph->device, graph->graph);
  if (graph->stream)
    fl_stream_destroy(graph->host, graph->device, graph->stream);
  *graph = (call_graph){.host = NULL};
}
