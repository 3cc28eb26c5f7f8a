/*
 * Calling operators from an engine. Build it against an installed flhost:
 *     cc call_op.c $(pkg-config --cflags --libs flhost) -lm -o call_op
 * VLLM_FL_PREFER=reference ./call_op shows another implementation at work.
 */
#include <flhost/flhost.h>
#include <math.h>
#include <stdlib.h>

/* A float32 tensor on the CPU over memory of the caller's. */
static DLTensor tensor(float *data, int ndim, int64_t *shape) {
  DLTensor t = {.data = data, .ndim = ndim, .shape = shape};
  t.device.device_type = kDLCPU;
  t.dtype = (DLDataType){.code = kDLFloat, .bits = 32, .lanes = 1};
  return t;
}

int main(void) {
  float x_data[2 * 8], out_data[2 * 4], error = 0;
  int64_t x_shape[] = {2, 8};
  fl_host *host = NULL;
  fl_tensor_spec spec;
  fl_resolution winner = {.size = sizeof winner};
  int exit_status = EXIT_FAILURE;

  for (int i = 0; i < 16; i++)
    x_data[i] = 0.25f * (float)(i - 8);
  DLTensor x = tensor(x_data, 2, x_shape);

  /* Settings from the environment and files, plugins from their directories. Once per process. */
  if (fl_host_create(NULL, &host))
    goto out;

  /* A handle is looked up once and then called without a search. */
  fl_op *op = fl_find_op(host, "silu_and_mul");
  fl_value values[] = {fl_tensor(&x), fl_none()};
  fl_call call = FL_CALL(values);

  /* The caller provides the outputs; the op says of which shape. */
  if (!op || fl_infer(op, &call, &spec, 1, sizeof(fl_tensor_spec)))
    goto out;
  DLTensor result = tensor(out_data, spec.ndim, spec.shape);
  values[1] = fl_tensor(&result);

  if (fl_invoke(op, &call) || fl_resolve_op(host, "silu_and_mul", kDLCPU, &winner))
    goto out;
  for (int i = 0; i < 8; i++) {
    float gate = x_data[i / 4 * 8 + i % 4], up = x_data[i / 4 * 8 + 4 + i % 4];
    error = fmaxf(error, fabsf(out_data[i] - gate / (1 + expf(-gate)) * up));
  }
  printf("silu_and_mul by %s: largest error %g\n", winner.impl_id, (double)error);
  exit_status = error < 1e-5f ? EXIT_SUCCESS : EXIT_FAILURE;

out:
  if (exit_status)
    fprintf(stderr, "call_op: %s\n", fl_error_message());
  fl_host_destroy(host);
  return exit_status;
}
