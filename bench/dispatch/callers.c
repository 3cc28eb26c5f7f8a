/* Hosts, ops and callers that the rows share. The kernel does nothing, so that only the way to it is measured. */
#include "bench/dispatch/dispatch.h"

#include "bench/forward.h"

#include <string.h>

static void quiet(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

fl_status bench_host_at(const char *home, uint32_t flags, const char *log_level, fl_host **host) {
  char home_setting[PATH_MAX];
  snprintf(home_setting, sizeof home_setting, "HOME=%s", home ? home : "");
  const char *const environment[] = {home ? home_setting : NULL, NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .flags = FL_HOST_NO_PLUGINS | flags,
                                   .environment = environment,
                                   .platform = "cpu",
                                   .log = quiet};
  fl_status status = fl_host_create(&options, host);
  return status ? status : fl_set_log_level(*host, log_level);
}

fl_status bench_host(uint32_t flags, const char *log_level, fl_host **host) {
  return bench_host_at(NULL, flags, log_level, host);
}

fl_status bench_op(fl_host *host, const char *name) {
  char schema[FL_NAME_MAX + 32];
  snprintf(schema, sizeof schema, "%s(Tensor x) -> Tensor out", name);
  const fl_op_def op = {.size = sizeof op, .schema = schema};
  return fl_register_op(host, &op);
}

fl_status bench_nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

bool bench_takes_all(void *self, const fl_call *call, const char **reason) {
  (void)self, (void)call, (void)reason;
  return true;
}

fl_impl bench_impl(const char *op, const char *id, fl_kind kind, const char *vendor) {
  return (fl_impl){.size = sizeof(fl_impl),
                   .op_name = op,
                   .impl_id = id,
                   .kind = kind,
                   .vendor = vendor,
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = bench_nothing};
}

static DLTensor tensor(float *data, int64_t *shape, int32_t ndim) {
  return (DLTensor){
      .data = data, .ndim = ndim, .shape = shape, .device = {.device_type = kDLCPU}, .dtype = {kDLFloat, 32, 1}};
}

static void init(bench_caller *caller, fl_host *host, const char *op) {
  memset(caller, 0, sizeof *caller);
  caller->host = host;
  caller->name = op;
  caller->op = fl_find_op(host, op);
  caller->shape[0] = 2;
  caller->shape[1] = caller->weight_shape[0] = 64;
  caller->x = tensor(caller->data[0], caller->shape, 2);
  caller->residual = tensor(caller->data[1], caller->shape, 2);
  caller->weight = tensor(caller->data[2], caller->weight_shape, 1);
  caller->out = tensor(caller->data[3], caller->shape, 2);
  caller->residual_out = tensor(caller->data[4], caller->shape, 2);
  caller->call = (fl_call){.size = sizeof caller->call, .values = caller->values};
}

void bench_caller_init(bench_caller *caller, fl_host *host, const char *op) {
  init(caller, host, op);
  caller->values[0] = fl_tensor(&caller->x);
  caller->values[1] = fl_tensor(&caller->out);
  caller->call.count = 2;
}

void bench_caller_init_rms_norm(bench_caller *caller, fl_host *host, bool residual) {
  init(caller, host, "rms_norm");
  caller->values[0] = fl_tensor(&caller->x);
  caller->values[1] = fl_tensor(residual ? &caller->residual : NULL);
  caller->values[2] = fl_tensor(&caller->weight);
  caller->values[3] = fl_float(1e-6);
  caller->values[4] = fl_none();
  caller->values[5] = fl_tensor(&caller->out);
  caller->values[6] = fl_tensor(residual ? &caller->residual_out : NULL);
  caller->call.count = 7;
}

/* The direct call goes through a pointer that the compiler does not see through, as a plugin's does. */
static fl_kernel_fn volatile direct_kernel = bench_nothing;

__attribute__((aligned(64))) fl_status bench_run_pointer(void *context, long n) {
  bench_caller *caller = context;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++)
    status |= direct_kernel(NULL, &caller->call);
  return status;
}

__attribute__((aligned(64))) fl_status bench_run_library(void *context, long n) {
  bench_caller *caller = context;
  const bench_pointer pointer = {direct_kernel, NULL};
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++)
    status |= bench_forward(&pointer, &caller->call);
  return status;
}

__attribute__((aligned(64))) fl_status bench_run_handle(void *context, long n) {
  bench_caller *caller = context;
  fl_op *op = caller->op;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++)
    status |= fl_invoke(op, &caller->call);
  return status;
}

__attribute__((aligned(64))) fl_status bench_run_name(void *context, long n) {
  bench_caller *caller = context;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++)
    status |= fl_call_op(caller->host, caller->name, &caller->call);
  return status;
}
