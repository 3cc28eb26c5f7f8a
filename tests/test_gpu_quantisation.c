/* quant_fp8 on stand-ins in both types of codes, which generated calls do not have: the same codes as the CPU's. */
#include "tests/gpu.h"
#include "tests/kernels.h"

enum { X, SCALE, SCALE_UB, GROUP_SHAPE, USE_UE8M0, NUM_TOKEN_PADDING, Q, SCALE_OUT, N_VALUES };
enum { TOKENS = 5, PADDED = 7, WORKSPACE = 4096 };

static const struct {
  int64_t group_shape[2];
  int columns;
  bool given, power_of_two, padded;
  int64_t scales[2]; /* shape of scale_out; the first 0: one for the tensor */
} modes[] = {
    {{-1, -1}, 48, false, false, true, {0}},         {{-1, -1}, 37, false, false, false, {0}},
    {{1, -1}, 48, false, false, true, {TOKENS, 1}},  {{1, -1}, 37, false, false, false, {TOKENS, 1}},
    {{1, 16}, 48, false, false, false, {TOKENS, 3}}, {{1, 16}, 37, false, true, false, {TOKENS, 3}},
    {{-1, -1}, 48, true, false, true, {0}},          {{-1, 1}, 37, true, false, false, {1, 37}},
};
enum { N_MODES = sizeof modes / sizeof modes[0] };

static const DLDataType codes[] = {{FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, {FL_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}};
enum { N_CODES = sizeof codes / sizeof codes[0] };

/* The contents, beside which a given scale is small, are out of range in places; NaN and a zero of each sign are there.
 */
static void fill_x(DLTensor *x) {
  fill(x, 3);
  for (int64_t i = 0; i < count(x); i += 11)
    set(x, i, i % 2 ? -3.5 : 3e-7);
  set(x, 2, -0.0);
  set(x, 4, 0);
  set(x, 5, (double)__builtin_nanf(""));
}

/* One side: the device's tensors are the host's. */
static void run_mode(fl_host *host, int mode, DLDataType type, DLDevice device, owned **q, owned **scale_out) {
  static float workspace[WORKSPACE];
  const int64_t x_shape[] = {TOKENS, modes[mode].columns},
                q_shape[] = {modes[mode].padded ? PADDED : TOKENS, modes[mode].columns}, one[] = {1};
  bool whole = !modes[mode].scales[0];
  const int64_t *scale_shape = whole ? one : modes[mode].scales;
  owned *x = make(bfloat16, 2, x_shape, 0), *scale = make(float32, whole ? 1 : 2, scale_shape, 0);
  *q = make(type, 2, q_shape, 0);
  *scale_out = make(float32, whole ? 1 : 2, scale_shape, 0);
  fill_x(&x->tensor);
  for (int64_t i = 0; i < count(&scale->tensor); i++)
    set(&scale->tensor, i, 0.011);
  x->tensor.device = scale->tensor.device = (*q)->tensor.device = (*scale_out)->tensor.device = device;
  fl_value values[N_VALUES] = {fl_tensor(&x->tensor),
                               modes[mode].given ? fl_tensor(&scale->tensor) : fl_none(),
                               fl_none(),
                               fl_ints(modes[mode].group_shape, 2),
                               fl_bool(modes[mode].power_of_two),
                               fl_int(modes[mode].padded ? PADDED : 0),
                               fl_tensor(&(*q)->tensor),
                               fl_tensor(&(*scale_out)->tensor)};
  fl_call call = {.size = sizeof call,
                  .count = N_VALUES,
                  .values = values,
                  .workspace = workspace,
                  .workspace_size = sizeof workspace};
  ck_ok(fl_call_op(host, "quant_fp8", &call));
  unmake(x);
  unmake(scale);
}

START_TEST(codes_of_both_float8_types_are_those_of_the_cpu) {
  const gpu_setup *setup = &gpu_setups[_i % 2]; /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  for (int type = 0; type < N_CODES; type++) {
    int mode = _i / 2;
    owned *q[2], *scales[2];
    run_mode(host, mode, codes[type], (DLDevice){kDLCPU, 0}, &q[0], &scales[0]);
    run_mode(host, mode, codes[type], (DLDevice){(DLDeviceType)setup->device_type, 0}, &q[1], &scales[1]);
    check_same_elements(&scales[0]->tensor, scales[1]);
    check_same_elements(&q[0]->tensor, q[1]);
    for (int side = 0; side < 2; side++) {
      unmake(q[side]);
      unmake(scales[side]);
    }
  }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, codes_of_both_float8_types_are_those_of_the_cpu, 0, 2 * N_MODES);
}

int main(void) {
  return run_suite("gpu_quantisation", add_tests, 60);
}
