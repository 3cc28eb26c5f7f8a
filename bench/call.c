/*
 * What a call through the host costs, beside the same kernel called directly: nanoseconds a call, one row for each way
 * to call and number of threads. The op does nothing, so that only the way to it is measured.
 */
#include <flhost/flhost.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_THREADS = 64, ROUNDS = 5 };

static fl_status nothing(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

/* The direct call goes through a pointer that the compiler does not see through, as a plugin's does. */
static fl_kernel_fn volatile direct_kernel = nothing;

typedef struct call_way {
  const char *name;
  uint32_t host_flags;
  fl_status (*call)(fl_host *host, fl_op *op, fl_call *call);
} call_way;

static fl_status direct(fl_host *host, fl_op *op, fl_call *call) {
  (void)host;
  (void)op;
  return direct_kernel(NULL, call);
}

static fl_status by_handle(fl_host *host, fl_op *op, fl_call *call) {
  (void)host;
  return fl_invoke(op, call);
}

static fl_status by_name(fl_host *host, fl_op *op, fl_call *call) {
  (void)op;
  return fl_call_op(host, "bench_nothing", call);
}

static const call_way ways[] = {
    {"kernel, called directly", 0, direct},
    {"fl_invoke, unchecked", FL_HOST_NO_ARGUMENT_CHECKS, by_handle},
    {"fl_invoke", 0, by_handle},
    {"fl_invoke, counted", FL_HOST_STATISTICS, by_handle},
    {"fl_call_op (by name)", 0, by_name},
};

typedef struct job {
  const call_way *way;
  fl_host *host;
  fl_op *op;
  pthread_barrier_t *barrier;
  long calls;
  double ns; /* a call */
  fl_status status;
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *work(void *argument) {
  job *j = argument;
  float data[8] = {0}, result[8];
  int64_t shape[] = {8};
  DLTensor x = {.data = data, .ndim = 1, .shape = shape, .device = {.device_type = kDLCPU}, .dtype = {kDLFloat, 32, 1}};
  DLTensor out = x;
  fl_value values[2];
  double start;
  out.data = result;
  values[0] = fl_tensor(&x);
  values[1] = fl_tensor(&out);
  fl_call call = FL_CALL(values);
  j->status = j->way->call(j->host, j->op, &call);
  if (j->status)
    fprintf(stderr, "%s: %s\n", j->way->name, fl_error_message());
  pthread_barrier_wait(j->barrier);
  start = now();
  for (long i = 0; i < j->calls; i++)
    j->status |= j->way->call(j->host, j->op, &call);
  j->ns = (now() - start) / (double)j->calls;
  return NULL;
}

/* The slowest thread's time, the best of some rounds; negative when a call failed. */
static double measure(const call_way *way, fl_host *host, fl_op *op, int n_threads, long calls) {
  double best = -1;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_t barrier;
    pthread_t threads[MAX_THREADS];
    job jobs[MAX_THREADS];
    double slowest = 0;
    int n = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
    for (; n < n_threads; n++) {
      jobs[n] = (job){.way = way, .host = host, .op = op, .barrier = &barrier, .calls = calls};
      if (pthread_create(&threads[n], NULL, work, &jobs[n]))
        abort(); /* the others wait at the barrier for ever */
    }
    for (int i = 0; i < n; i++) {
      pthread_join(threads[i], NULL);
      if (jobs[i].status)
        return -1;
      slowest = jobs[i].ns > slowest ? jobs[i].ns : slowest;
    }
    pthread_barrier_destroy(&barrier);
    best = best < 0 || slowest < best ? slowest : best;
  }
  return best;
}

/* One way of calling, in a host of its own. */
static fl_status run(const call_way *way, int n_threads, long calls) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=WARNING", NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .flags = FL_HOST_NO_PLUGINS | way->host_flags,
                                   .environment = environment,
                                   .platform = "cpu"};
  const fl_op_def op = {.size = sizeof op, .schema = "bench_nothing(Tensor x) -> Tensor out"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "bench_nothing",
                        .impl_id = "default.flagos",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = nothing};
  fl_host *host = NULL;
  double ns = -1;
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = fl_register_op(host, &op);
  if (!status)
    status = fl_register_impl(host, &impl);
  if (status)
    fprintf(stderr, "%s\n", fl_error_message());
  else if ((ns = measure(way, host, fl_find_op(host, "bench_nothing"), n_threads, calls)) < 0)
    status = FL_EINTERNAL;
  if (!status)
    printf("%-28s %2d thread%s %9.1f ns\n", way->name, n_threads, n_threads > 1 ? "s" : " ", ns);
  fl_host_destroy(host);
  return status;
}

/* Arguments: calls a thread (2000000), greatest number of threads (2). */
int main(int argc, char **argv) {
  long calls = argc > 1 ? atol(argv[1]) : 2000000;
  int most = argc > 2 ? atoi(argv[2]) : 2;
  if (calls < 1 || most < 1 || most > MAX_THREADS) {
    fprintf(stderr, "usage: call [CALLS [THREADS]] (at least 1; at most %d threads)\n", MAX_THREADS);
    return 2;
  }
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
    for (int threads = 1; threads <= most; threads *= 2)
      if (run(&ways[i], threads, calls))
        return 1;
  return 0;
}
