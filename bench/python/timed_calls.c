/*
 * What part of an engine's calls is flhost's own, for bench/python/llm.py. It is in a process twice, with one clock:
 * loaded before the engine's libraries (LD_PRELOAD) it times each fl_invoke, and as a plugin, in place of the one that
 * TIMED_PLUGIN names, each kernel of that. What a call takes without its kernel is dispatch, with the caches as the
 * kernels leave them and each first call's choosing; the two readings of the clock in between are in it, too. At the
 * end a line goes to standard error. For engines that call from one thread.
 */
#include <dlfcn.h>
#include <flhost/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

FL_PLUGIN("timed", "1.0.0", "bench", "Apache-2.0", "");

typedef struct fl_op fl_op; /* call.h is for who links the library */
FL_EXPORT fl_status fl_invoke(fl_op *op, fl_call *call);

static fl_status (*invoke)(fl_op *op, fl_call *call);
static long long n_calls;
static double in_calls, in_kernels;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((constructor)) static void begin(void) {
  void *found = dlsym(RTLD_NEXT, "fl_invoke");
  __builtin_memcpy(&invoke, &found, sizeof invoke);
}

/* Programs that the engine starts have nothing to say. */
__attribute__((destructor)) static void end(void) {
  if (n_calls)
    fprintf(stderr, "calls: %lld, %.6f s, kernels in them %.6f s\n", n_calls, in_calls, in_kernels);
}

fl_status fl_invoke(fl_op *op, fl_call *call) {
  double at = now();
  fl_status status = invoke(op, call);
  in_calls += now() - at;
  n_calls++;
  return status;
}

/* ---------------------------------------------------------------------------------------------------- the plugin */

/* `self` of each row: the row as its plugin wrote it. */
static fl_status kernel(void *self, fl_call *call) {
  const fl_impl *row = self;
  double at = now();
  fl_status status = row->fn(row->self, call);
  in_kernels += now() - at;
  return status;
}

static bool is_available(void *self, const char **reason) {
  const fl_impl *row = self;
  return row->is_available(row->self, reason);
}

static bool supports_args(void *self, const fl_call *call, const char **reason) {
  const fl_impl *row = self;
  return row->supports_args(row->self, call, reason);
}

static size_t workspace_size(void *self, const fl_call *call) {
  const fl_impl *row = self;
  return row->workspace_size(row->self, call);
}

static fl_status (*register_row)(fl_registry *registry, const fl_impl *row);

/* Weights are not prepared: examples/llm does not ask for it. */
static fl_status register_timed(fl_registry *registry, const fl_impl *given) {
  fl_impl *row = malloc(sizeof *row), timed = *given;
  if (!row)
    return FL_ENOMEM;
  *row = *given;
  timed.self = row;
  timed.fn = kernel;
  timed.is_available = row->is_available ? is_available : NULL;
  timed.supports_args = row->supports_args ? supports_args : NULL;
  timed.workspace_size = row->workspace_size ? workspace_size : NULL;
  timed.prepares = 0;
  timed.prepared_size = NULL;
  timed.prepare = NULL;
  return register_row(registry, &timed);
}

fl_status register_builtins(fl_registry *registry) {
  const char *path = getenv("TIMED_PLUGIN");
  void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *found = plugin ? dlsym(plugin, "register_builtins") : NULL;
  fl_register_fn register_plugin;
  if (!found) {
    registry->error(registry, "TIMED_PLUGIN names no plugin");
    return FL_EINVAL;
  }
  __builtin_memcpy(&register_plugin, &found, sizeof register_plugin);
  register_row = registry->register_impl;
  registry->register_impl = register_timed;
  fl_status status = register_plugin(registry);
  registry->register_impl = register_row;
  return status;
}
