/*
 * Calls of the Ascend plugin over its stand-in: what each failure of CANN becomes, what is left behind, workspaces,
 * streams and threads, and the same from a host.
 */
#include "tests/kernels.h"
#include "tests/npu.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>

/* Whoever has initialised ACL finalises it: not us. */
static void tear_down(void) {
  npu_check_clean();
  ck_assert_int_eq(npu_control.count("finalised"), 0);
  ck_assert_int_eq(npu_control.count("reset"), 0);
}

/* x [rows, 2d] and out [rows, d], as the gated activations have them. */
typedef struct gated {
  npu_tensor *x, *out;
  fl_value values[2];
} gated;

static gated make_gated(int64_t rows, int64_t d) {
  gated made = {.x = npu_make(float32, 2, (int64_t[]){rows, 2 * d}, 0),
                .out = npu_make(float32, 2, (int64_t[]){rows, d}, 0)};
  float *ones = malloc((size_t)(rows * 2 * d) * sizeof *ones);
  for (int64_t i = 0; i < rows * 2 * d; i++)
    ones[i] = 1;
  npu_write(made.x, ones);
  free(ones);
  made.values[0] = fl_tensor(&made.x->tensor);
  made.values[1] = fl_tensor(&made.out->tensor);
  npu_control.clear();
  return made;
}

static void free_gated(gated *made) {
  npu_free(made->x);
  npu_free(made->out);
}

static fl_status call_gated(const char *op, gated *made) {
  return npu_call(npu_find(op), made->values, 2);
}

static void check_gated(const gated *made) {
  int64_t n = npu_count(made->out);
  float *result = malloc((size_t)n * sizeof *result);
  npu_wait();
  npu_read(made->out, result);
  for (int64_t i = 0; i < n; i++)
    ck_assert_float_eq_tol(result[i], 0.7310586f, 1e-5f); /* silu(1) * 1 */
  free(result);
}

/* What each code of phase 1 means for the call, and for the calls after it. */
static const struct {
  const char *code;
  fl_status status;
  bool remembered;
  const char *words;
} codes[] = {
    {"161001", FL_ENOTSUP, false, "refuses arguments"}, {"161002", FL_ENOTSUP, false, "refuses arguments"},
    {"561002", FL_ENOTSUP, false, "no tiling"},         {"561003", FL_ENOTSUP, true, "no kernel for this chip"},
    {"561107", FL_ENOTSUP, true, "ASCEND_OPP_PATH"},    {"561112", FL_ENOTSUP, true, "no kernel package"},
    {"207001", FL_ENOMEM, false, "out of memory"},      {"207018", FL_ENOMEM, false, "out of device memory"},
    {"200000", FL_ENOMEM, false, "out of host memory"}, {"361001", FL_EDEVICE, false, "the runtime failed"},
    {"507015", FL_EDEVICE, false, "AI core"},           {"507899", FL_EDEVICE, false, "driver failed"},
    {"107002", FL_EDEVICE, false, "no device"},         {"207004", FL_EDEVICE, false, "no such device"},
    {"207020", FL_EDEVICE, false, "in time"},           {"148049", FL_ENOTSUP, true, "ASCEND_OPP_PATH"},
    {"100037", FL_EDEVICE, false, "finalised"},         {"561000", FL_EINTERNAL, false, "internal error of CANN"},
    {"100000", FL_EINTERNAL, false, "wrong use of ACL"}};
enum { N_CODES = sizeof codes / sizeof codes[0] };

START_TEST(a_code_of_phase_1_says_what_becomes_of_the_call) {
  gated made = make_gated(3, 8);
  const fl_impl *impl = npu_find("silu_and_mul");
  const char *reason = NULL;
  char expected[64];
  ck_assert(npu_supports(impl, made.values, 2, &reason));
  npu_control.set("aclnnSwiGluGetWorkspaceSize", codes[_i].code);
  ck_assert_int_eq(call_gated("silu_and_mul", &made), codes[_i].status);
  snprintf(expected, sizeof expected, "aclnnSwiGluGetWorkspaceSize returned %s (", codes[_i].code);
  ck_contains(npu_message, expected);
  ck_contains(npu_message, codes[_i].words);
  ck_assert_int_eq(npu_control.count("launched"), 0);
  ck_assert_int_eq(npu_supports(impl, made.values, 2, &reason), !codes[_i].remembered);
  ck_assert_int_eq(impl->is_available(impl->self, &reason), !codes[_i].remembered);
  if (codes[_i].remembered) {
    ck_contains(reason, "on Ascend910B3: ");
    ck_contains(reason, codes[_i].words);
  }
  npu_control.set("aclnnSwiGluGetWorkspaceSize", "0");
  if (!codes[_i].remembered) {
    ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
    check_gated(&made);
  }
  free_gated(&made);
}
END_TEST

/* Of two operators the second is refused: the first was not launched, and its executor is destroyed. */
START_TEST(a_call_that_is_refused_has_launched_nothing) {
  gated made = make_gated(3, 8);
  npu_control.set("aclnnInplaceMulGetWorkspaceSize", "161002");
  ck_assert_int_eq(call_gated("mul_and_silu", &made), FL_ENOTSUP);
  ck_assert_int_eq(npu_control.count("launched"), 0);
  ck_assert_int_eq(npu_control.count("executors"), 0);
  npu_control.set("aclnnInplaceMulGetWorkspaceSize", "0");
  ck_assert_int_eq(call_gated("mul_and_silu", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

/* Phase 2 of the first operator may still say that it is not supported; of a later one no more. */
START_TEST(a_failure_of_phase_2_is_told_by_what_was_launched) {
  static const struct {
    const char *function, *code;
    fl_status status;
    int launched;
  } cases[] = {{"aclnnSilu", "507015", FL_EDEVICE, 0},         {"aclnnSilu", "561003", FL_ENOTSUP, 0},
               {"aclnnSilu", "207018", FL_ENOMEM, 0},          {"aclnnInplaceMul", "507015", FL_EDEVICE, 1},
               {"aclnnInplaceMul", "561003", FL_EINTERNAL, 1}, {"aclnnInplaceMul", "161002", FL_EINTERNAL, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    gated made = make_gated(3, 8);
    npu_control.set(cases[i].function, cases[i].code);
    ck_assert_int_eq(call_gated("mul_and_silu", &made), cases[i].status);
    ck_contains(npu_message, cases[i].function);
    ck_contains(npu_message, cases[i].code);
    ck_assert_int_eq(npu_control.count("launched"), cases[i].launched);
    npu_wait();
    npu_control.set(cases[i].function, "0");
    npu_check_clean();
    free_gated(&made);
  }
}
END_TEST

/* A call of each op that makes a kind of descriptor, which then cannot be made. */
START_TEST(a_descriptor_that_cannot_be_made_leaves_nothing_behind) {
  static const struct {
    const char *op, *function;
  } cases[] = {{"silu_and_mul", "aclCreateTensor"},        {"silu_and_mul", "aclCreateTensor"},
               {"gemma_rms_norm", "aclCreateScalar"},      {"conv2d", "aclCreateIntArray"},
               {"mm_encoder_attn", "aclCreateTensorList"}, {"mm_encoder_attn", "aclCreateTensor"}};
  npu_tensor *a = npu_make(float16, 4, (int64_t[]){1, 4, 4, 16}, 0),
             *b = npu_make(float16, 4, (int64_t[]){1, 4, 4, 16}, 0);
  npu_tensor *half = npu_make(float16, 4, (int64_t[]){1, 4, 4, 8}, 0), *row = npu_make(float16, 1, (int64_t[]){16}, 0);
  const int64_t twos[] = {1, 1}, zeros[] = {0, 0};
  const fl_value any = fl_tensor(&a->tensor), other = fl_tensor(&b->tensor), weight = fl_tensor(&row->tensor);
  fl_value gated_values[] = {any, fl_tensor(&half->tensor)};
  fl_value gemma[] = {any, other, weight, fl_float(1e-6), any, other};
  fl_value convolution[] = {any,       other, fl_none(), fl_ints(twos, 2), fl_ints(zeros, 2), fl_ints(twos, 2),
                            fl_int(1), any};
  fl_value attention[] = {any, other, other, fl_none(), fl_none(), fl_none(), any};
  fl_value *const values[] = {gated_values, gated_values, gemma, convolution, attention, attention};
  const uint32_t counts[] = {2, 2, 6, 8, 7, 7};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int nth = 1; nth <= 2; nth++) {
      char when[32];
      snprintf(when, sizeof when, "1@%d", nth);
      npu_control.set(cases[i].function, when);
      fl_status status = npu_call(npu_find(cases[i].op), values[i], counts[i]);
      if (status != FL_OK) {
        ck_assert_int_eq(status, FL_ENOMEM);
        ck_contains(npu_message, cases[i].function);
        ck_assert_int_eq(npu_control.count("launched"), 0);
      } else {
        ck_assert_int_eq(nth, 2); /* it makes one only */
      }
      npu_wait();
      npu_control.set(cases[i].function, "0");
      npu_control.clear();
      npu_check_clean();
    }
  npu_free(a);
  npu_free(b);
  npu_free(half);
  npu_free(row);
}
END_TEST

START_TEST(a_kernel_that_fails_shows_when_its_stream_is_waited_for) {
  gated made = make_gated(3, 8);
  npu_control.set("kernel", "507015@1");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu->synchronize(NULL, 0, NULL, _i), FL_EDEVICE);
  ck_contains(npu->error(NULL), "returned 507015 (a kernel failed on an AI core)");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

START_TEST(a_device_that_is_lost_fails_the_call) {
  gated made = make_gated(3, 8);
  npu_control.set("aclrtSetDevice", "507899");
  npu_control.set("aclrtGetDevice", "507899");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_EDEVICE);
  ck_contains(npu_message, "aclrtSetDevice returned 507899");
  npu_control.set("aclrtSetDevice", "0");
  npu_control.set("aclrtGetDevice", "0");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- workspace */

static fl_status call_with_workspace(const char *op, fl_value *values, uint32_t n, void *workspace, size_t size) {
  const fl_impl *impl = npu_find(op);
  fl_call call = {.size = sizeof call,
                  .count = n,
                  .values = values,
                  .message = npu_message,
                  .message_size = sizeof npu_message,
                  .workspace = workspace,
                  .workspace_size = size};
  return impl->fn(impl->self, &call);
}

/* rms_norm wants scratch memory as well. */
typedef struct norm {
  npu_tensor *x, *weight, *out;
  fl_value values[7];
} norm;

static norm make_norm(int64_t rows) {
  norm made = {.x = npu_make(float32, 2, (int64_t[]){rows, 64}, 0),
               .weight = npu_make(float32, 1, (int64_t[]){64}, 0),
               .out = npu_make(float32, 2, (int64_t[]){rows, 64}, 0)};
  const fl_value values[] = {
      fl_tensor(&made.x->tensor),   fl_none(), fl_tensor(&made.weight->tensor), fl_float(1e-6), fl_none(),
      fl_tensor(&made.out->tensor), fl_none()};
  memcpy(made.values, values, sizeof values);
  npu_control.clear();
  return made;
}

static void free_norm(norm *made) {
  npu_free(made->x);
  npu_free(made->weight);
  npu_free(made->out);
}

START_TEST(the_calls_own_workspace_is_used_when_it_suffices) {
  norm made = make_norm(100);
  const fl_impl *impl = npu_find("rms_norm");
  fl_call call = {.size = sizeof call, .count = 7, .values = made.values};
  size_t size = impl->workspace_size(impl->self, &call);
  void *workspace;
  ck_assert_uint_ge(size, 100 * sizeof(float) + 192);
  ck_assert_int_eq(npu_control.count("executors"), 0); /* asking leaves nothing behind */
  ck_assert_int_eq(npu->allocate(NULL, 0, size, &workspace), FL_OK);
  npu_control.clear();
  ck_assert_int_eq(call_with_workspace("rms_norm", made.values, 7, workspace, size), FL_OK);
  ck_assert_int_eq(npu_control.count("allocations"), 0);
  npu_wait();
  npu_control.clear();
  ck_assert_int_eq(call_with_workspace("rms_norm", made.values, 7, workspace, 100), FL_OK); /* too small for anything */
  ck_assert_int_eq(npu_control.count("allocations"), 2);
  npu_wait();
  ck_assert_int_eq(npu->release(NULL, 0, workspace), FL_OK);
  free_norm(&made);
}
END_TEST

START_TEST(the_size_of_a_workspace_needs_no_data) {
  norm made = make_norm(100);
  const fl_impl *impl = npu_find("rms_norm");
  fl_call call = {.size = sizeof call, .count = 7, .values = made.values};
  size_t size = impl->workspace_size(impl->self, &call);
  made.x->tensor.data = made.weight->tensor.data = made.out->tensor.data = NULL;
  ck_assert_uint_ge(impl->workspace_size(impl->self, &call), size);
  npu_control.set("aclnnRmsNormGetWorkspaceSize", "161002");
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), 0);
  npu_control.set("aclnnRmsNormGetWorkspaceSize", "0");
  free_norm(&made);
}
END_TEST

/* Without a workspace the stream's own buffers serve: they grow after a wait, else nothing waits. */
START_TEST(a_streams_buffers_grow_only_when_its_work_is_done) {
  gated made = make_gated(3, 8);
  npu_control.set("workspace", "1000");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_control.count("allocations"), 1);
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_control.count("allocations"), 1);
  ck_assert_int_eq(npu_control.count("waits"), 0);
  ck_assert_int_eq(npu_control.count("queued"), 2);
  npu_control.set("workspace", "1500");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_control.count("waits"), 1);
  ck_assert_int_eq(npu_control.count("allocations"), 2);
  npu_control.set("workspace", "2000"); /* it was doubled */
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_control.count("allocations"), 2);
  npu_control.set("workspace", "0");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

/* What a graph is captured with stays as it is: memory that the call brings, or none. */
START_TEST(a_captured_call_allocates_nothing_and_brings_its_workspace) {
  gated made = make_gated(3, 8);
  const fl_impl *impl = npu_find("silu_and_mul");
  fl_call call = {.size = sizeof call, .count = 2, .values = made.values};
  size_t size = impl->workspace_size(impl->self, &call);
  void *workspace;
  ck_assert_int_eq(npu->allocate(NULL, 0, size, &workspace), FL_OK);
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK); /* the stream has a buffer now */
  npu_wait();
  npu_control.clear();
  npu_control.set("capture", "1");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_ENOTSUP);
  ck_contains(npu_message, "workspace of 192 bytes: the stream is being captured in a graph");
  ck_contains(npu_message, "fl_workspace_size");
  ck_assert_int_eq(npu_control.count("launched"), 0);
  ck_assert_int_eq(npu_control.count("executors"), 0);
  ck_assert_int_eq(call_with_workspace("silu_and_mul", made.values, 2, workspace, size), FL_OK);
  npu_control.set("workspace", "0"); /* nothing is needed */
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_control.count("launched"), 2);
  ck_assert_int_eq(npu_control.count("allocations"), 0);
  npu_control.set("capture", "0");
  check_gated(&made);
  ck_assert_int_eq(npu->release(NULL, 0, workspace), FL_OK);
  free_gated(&made);
}
END_TEST

/* What the runtime does not say of a stream is taken for no. */
START_TEST(a_stream_of_which_nothing_is_known_is_not_captured) {
  gated made = make_gated(3, 8);
  npu_control.set("aclmdlRICaptureGetInfo", "207000");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

START_TEST(a_workspace_that_cannot_be_had_fails_the_call) {
  gated made = make_gated(3, 8);
  norm of_scratch = make_norm(10);
  npu_control.set("workspace", "1000");
  npu_control.set("aclrtMalloc", "207001");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_ENOMEM);
  ck_assert_str_eq(npu_message, "workspace of 1000 bytes: aclrtMalloc returned 207001 (out of memory)");
  ck_assert_int_eq(npu_call(npu_find("rms_norm"), of_scratch.values, 7), FL_ENOMEM);
  ck_contains(npu_message, "scratch memory of ");
  npu_control.set("aclrtMalloc", "0");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  npu_control.set("workspace", "100000");
  npu_control.set("aclrtSynchronizeStream", "507015"); /* while it grows */
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_EDEVICE);
  ck_contains(npu_message, "workspace of 100000 bytes: aclrtSynchronizeStream returned 507015");
  npu_control.set("aclrtSynchronizeStream", "0");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  check_gated(&made);
  free_gated(&made);
  free_norm(&of_scratch);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- streams and threads */

START_TEST(operators_are_queued_in_order_on_the_calls_stream) {
  gated made = make_gated(3, 8);
  int (*create)(void **), (*destroy)(void *);
  void *stream;
  *(void **)&create = dlsym(npu_control.library, "aclrtCreateStream");
  *(void **)&destroy = dlsym(npu_control.library, "aclrtDestroyStream");
  ck_assert_int_eq(create(&stream), 0);
  fl_call call = {.size = sizeof call, .count = 2, .values = made.values, .stream = stream};
  const fl_impl *impl = npu_find("mul_and_silu");
  npu_control.clear();
  ck_assert_int_eq(impl->fn(impl->self, &call), FL_OK);
  ck_assert_str_eq(npu_control.log(), "launch aclnnSilu on 0.1\nlaunch aclnnInplaceMul on 0.1\n");
  ck_assert_int_eq(npu->synchronize(NULL, 0, stream, false), FL_OK);
  check_gated(&made);
  ck_assert_int_eq(destroy(stream), 0);
  free_gated(&made);
}
END_TEST

static gated shared;

static void *call_from_thread(void *argument) {
  gated *made = argument;
  bool has_device = made->x->tensor.device.device_id == 0;
  ck_assert_int_eq(npu_thread_device(), -1);
  for (int i = 0; i < 50; i++)
    if (npu_find("mul_and_silu")
            ->fn(npu_find("mul_and_silu")->self,
                 &(fl_call){.size = sizeof(fl_call), .count = 2, .values = made->values}))
      return argument;
  return has_device ? NULL : argument;
}

/* A thread that never set a device; several on one stream. */
START_TEST(calls_come_from_any_thread) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  shared = make_gated(3, 8);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_from_thread, &shared), 0);
  for (int i = 0; i < THREADS; i++) {
    void *result;
    ck_assert_int_eq(pthread_join(threads[i], &result), 0);
    ck_assert_ptr_null(result);
  }
  ck_assert_int_eq(npu_control.count("launched"), 4 * 50 * 2);
  ck_assert_int_eq(call_gated("silu_and_mul", &shared), FL_OK);
  check_gated(&shared);
  free_gated(&shared);
}
END_TEST

START_TEST(a_call_leaves_the_threads_device_alone) {
  gated made = make_gated(3, 8);
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 1), 0);
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_thread_device(), 1);
  check_gated(&made);
  free_gated(&made);
}
END_TEST

static void *count_in_thread(void *argument) {
  (void)argument;
  return npu->device_count(NULL) == 2 ? NULL : "no devices";
}

static void *mul_in_thread(void *made) {
  return call_gated("mul_and_silu", made) ? "the call failed" : NULL;
}

/* What a thread may be at when another forks: in the child nobody will come to an end with it. */
static const struct {
  const char *stalled;
  void *(*use)(void *);
} at_forks[] = {{"stall aclInit", count_in_thread}, {"stall aclrtMalloc", mul_in_thread}};

START_TEST(X1_a_child_that_is_forked_while_a_thread_uses_the_runtime_can_use_it) {
  pthread_t thread;
  void *wrong;
  int status = 1;
  gated made = {0};
  if (_i)
    made = make_gated(3, 8);
  npu_control.set(at_forks[_i].stalled, "500");
  ck_assert_int_eq(pthread_create(&thread, NULL, at_forks[_i].use, &made), 0);
  while (!npu_control.count("stalls"))
    usleep(1000);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    alarm(10);
    _exit(at_forks[_i].use(&made) != NULL);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  pthread_join(thread, &wrong);
  ck_assert_int_eq(status, 0);
  ck_assert_msg(!wrong, "%s", (char *)wrong);
  if (_i) {
    check_gated(&made);
    free_gated(&made);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ chips */

START_TEST(a_chip_that_is_not_known_is_named) {
  gated made = make_gated(3, 8);
  const char *reason;
  npu_control.set("soc", "Ascend910B"); /* the first generation's, not an A2 */
  ck_assert(!npu_supports(npu_find("silu_and_mul"), made.values, 2, &reason));
  ck_assert_str_eq(reason, "the chip is Ascend910B, expected an A2, A3, 310P or 950");
  free_gated(&made);
}
END_TEST

START_TEST(a_chip_without_name_is_told) {
  gated made = make_gated(3, 8);
  const char *reason;
  npu_control.set("soc", "");
  ck_assert(!npu_supports(npu_find("silu_and_mul"), made.values, 2, &reason));
  ck_assert_str_eq(reason, "aclrtGetSocName does not know the chip");
  free_gated(&made);
}
END_TEST

START_TEST(attention_backend_names_vllm_plugin_FLs_classes) {
  static const struct {
    bool use_mla, use_sparse;
    fl_status status;
    const char *name;
  } cases[] = {{false, false, FL_OK, "vllm_fl.dispatch.backends.vendor.ascend.impl.attention.AscendAttentionBackend"},
               {true, false, FL_OK, "vllm_fl.dispatch.backends.vendor.ascend.impl.attention.AscendMLABackend"},
               {true, true, FL_ENOTSUP, NULL},
               {false, true, FL_EINVAL, NULL}};
  for (int i = 0; i < 4; i++) {
    fl_value values[] = {fl_bool(cases[i].use_mla), fl_bool(cases[i].use_sparse), fl_none()};
    ck_assert_int_eq(npu_call(npu_find("attention_backend"), values, 3), cases[i].status);
    if (cases[i].name)
      ck_assert_str_eq(values[2].v.s, cases[i].name);
  }
}
END_TEST

/* cos and sin are halves of one cache, as vLLM builds it: nothing is joined. */
/* Parts of a context without tokens: one of them, and both, with what is not a number in the other. */
START_TEST(merged_states_of_empty_parts_are_those_of_the_other) {
  const float lses[4][2] = {{1, -INFINITY}, {INFINITY, 2}, {-INFINITY, -INFINITY}, {0, 0}};
  const float expected[4] = {10, 20, 10, 15}, expected_lse[4] = {1, 2, -INFINITY, 0.6931472f};
  npu_tensor *parts[6];
  fl_value values[6];
  for (int i = 0; i < 6; i++) {
    parts[i] = i % 2 ? npu_make(float32, 2, (int64_t[]){1, 4}, 0) : npu_make(float32, 3, (int64_t[]){4, 1, 1}, 0);
    values[i] = fl_tensor(&parts[i]->tensor);
  }
  /* out and lse stand at 4 and 5, the parts before them: output, lse */
  float prefix[] = {10, 10, 10, 10}, suffix[] = {20, 20, NAN, 20}, lse[4], result[4];
  for (int which = 0; which < 2; which++) {
    for (int i = 0; i < 4; i++)
      lse[i] = lses[i][which];
    npu_write(parts[2 * which], which ? suffix : prefix);
    npu_write(parts[2 * which + 1], lse);
  }
  ck_assert_msg(npu_call(npu_find("merge_attn_states"), values, 6) == FL_OK, "%s", npu_message);
  npu_wait();
  npu_read(parts[4], result);
  npu_read(parts[5], lse);
  for (int i = 0; i < 4; i++) {
    ck_assert_float_eq_tol(result[i], expected[i], 1e-5f);
    if (isinf(expected_lse[i]))
      ck_assert(isinf(lse[i]) && lse[i] < 0);
    else
      ck_assert_float_eq_tol(lse[i], expected_lse[i], 1e-5f);
  }
  for (int i = 0; i < 6; i++)
    npu_free(parts[i]);
}
END_TEST

START_TEST(a_rotary_cache_is_used_where_it_lies) {
  const int64_t q_shape[] = {3, 2, 16}, cache_shape[] = {10, 16};
  npu_tensor *q = npu_make(float32, 3, q_shape, 0), *k = npu_make(float32, 3, q_shape, 0);
  npu_tensor *cache = npu_make(float32, 2, cache_shape, 0), *ids = npu_make(int64, 1, (int64_t[]){3}, 0);
  int64_t half_shape[] = {10, 8}, strides[] = {16, 1};
  const int64_t positions[] = {1, 9, 0};
  DLTensor cos = cache->tensor, sin = cache->tensor;
  float values_of[160] = {0};
  npu_write(cache, values_of);
  npu_write(ids, positions);
  cos.shape = sin.shape = half_shape;
  cos.strides = sin.strides = strides;
  sin.byte_offset = 8 * sizeof(float);
  fl_value values[] = {fl_tensor(&q->tensor),   fl_tensor(&k->tensor), fl_tensor(&cos), fl_tensor(&sin),
                       fl_tensor(&ids->tensor), fl_bool(false),        fl_int(0),       fl_bool(false),
                       fl_tensor(&q->tensor),   fl_tensor(&k->tensor)};
  const char *reason;
  npu_control.clear();
  ck_assert(npu_supports(npu_find("rotary_embedding"), values, 10, &reason));
  ck_assert_int_eq(npu_call(npu_find("rotary_embedding"), values, 10), FL_OK);
  ck_assert_str_eq(npu_control.log(), "launch aclnnRopeWithSinCosCache on 0.0\n");
  npu_wait();
  float result[96];
  npu_read(q, result);
  for (int i = 0; i < 96; i++)
    ck_assert_float_eq(result[i], 0); /* rotated by a table of zeros */
  npu_free(q);
  npu_free(k);
  npu_free(cache);
  npu_free(ids);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- in a host */

static fl_host *open_host(void) {
  fl_host *host = test_host(NULL, 0);
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  ck_ok(fl_load_plugin(host, built("plugins/ascend.so")));
  return host;
}

START_TEST(a_tensor_of_the_device_never_reaches_a_kernel_of_the_cpu) {
  fl_host *host = open_host();
  gated made = make_gated(3, 8);
  int64_t strides[] = {32, 1};
  fl_call call = FL_CALL(made.values);
  char id[64];
  ck_ok(fl_get_selected_impl_id(host, "silu_and_mul", kDLExtDev, id, sizeof id));
  ck_assert_str_eq(id, "vendor.ascend");
  ck_ok(fl_invoke(fl_find_op(host, "silu_and_mul"), &call));
  check_gated(&made);
  made.x->tensor.shape[0] = made.out->tensor.shape[0] = 2; /* every other row, which the operator does not take */
  made.x->tensor.strides = strides;
  fl_value clamped[] = {made.values[0], fl_float(1.702), fl_float(7), made.values[1]};
  fl_call refused = FL_CALL(clamped);
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "swigluoai_and_mul"), &refused), FL_ENOIMPL);
  ck_contains(fl_error_message(), "aclnnClippedSwiglu takes compact tensors only");
  made.x->tensor.strides = NULL;
  free_gated(&made);
  fl_host_destroy(host);
}
END_TEST

/* What the single operator does not take is made in steps. */
START_TEST(rows_with_gaps_take_two_operators) {
  gated made = make_gated(4, 8);
  int64_t strides[] = {32, 1};
  npu_tensor *row = npu_make(float32, 1, (int64_t[]){16}, 0), *result = npu_make(float32, 1, (int64_t[]){8}, 0);
  fl_value of_one_dim[] = {fl_tensor(&row->tensor), fl_string("none"), fl_tensor(&result->tensor)};
  made.x->tensor.shape[0] = made.out->tensor.shape[0] = 2;
  made.x->tensor.strides = strides;
  npu_control.clear();
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_OK);
  ck_assert_int_eq(npu_call(npu_find("gelu_and_mul"), of_one_dim, 3), FL_OK);
  ck_assert_str_eq(npu_control.log(), "launch aclnnSilu on 0.0\nlaunch aclnnInplaceMul on 0.0\n"
                                      "launch aclnnGeluV2 on 0.0\nlaunch aclnnInplaceMul on 0.0\n");
  npu_wait();
  made.x->tensor.strides = NULL;
  npu_free(row);
  npu_free(result);
  free_gated(&made);
}
END_TEST

START_TEST(a_lost_device_is_a_failure_of_the_implementation) {
  fl_host *host = open_host();
  gated made = make_gated(3, 8);
  fl_call call = FL_CALL(made.values);
  fl_failed_impls *failed;
  npu_control.set("aclnnSwiGlu", "507899");
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "silu_and_mul"), &call), FL_EDEVICE);
  ck_contains(fl_error_message(), "aclnnSwiGlu returned 507899");
  ck_ok(fl_get_failed_impls(host, "silu_and_mul", &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "vendor.ascend");
  fl_failed_impls_free(failed);
  npu_control.set("aclnnSwiGlu", "0");
  fl_clear_failed_impls(host, NULL);
  ck_ok(fl_invoke(fl_find_op(host, "silu_and_mul"), &call));
  check_gated(&made);
  free_gated(&made);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F5_a_device_that_is_not_there_is_held_against_nobody) {
  fl_host *host = open_host();
  gated made = make_gated(3, 8);
  fl_call call = FL_CALL(made.values);
  fl_failed_impls *failed;
  for (int32_t device = 7; device >= -1; device -= 8) {
    char expected[96];
    snprintf(expected, sizeof expected, "silu_and_mul: there is no Ascend device %d; the driver reports 2", device);
    made.x->tensor.device.device_id = made.out->tensor.device.device_id = device;
    ck_assert_int_eq(fl_invoke(fl_find_op(host, "silu_and_mul"), &call), FL_EINVAL);
    ck_assert_str_eq(fl_error_message(), expected);
  }
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  made.x->tensor.device.device_id = made.out->tensor.device.device_id = 0;
  ck_ok(fl_invoke(fl_find_op(host, "silu_and_mul"), &call));
  check_gated(&made);
  free_gated(&made);
  fl_host_destroy(host);
}
END_TEST

/* Where even the number of devices is not to be had, it is the device that fails. */
START_TEST(a_device_that_cannot_be_set_is_lost_whatever_its_number) {
  gated made = make_gated(3, 8);
  made.x->tensor.device.device_id = made.out->tensor.device.device_id = 7;
  npu_control.set("aclrtGetDeviceCount", "507899");
  ck_assert_int_eq(call_gated("silu_and_mul", &made), FL_EDEVICE);
  ck_contains(npu_message, "aclrtSetDevice returned 107001");
  free_gated(&made);
}
END_TEST

/* A call of a host's asks what architecture each device has. */
START_TEST(a_call_makes_a_context_on_its_own_device_alone) {
  fl_host *host = open_host();
  npu_control.set("devices", "4");
  gated made = make_gated(3, 8);
  fl_value clipped[] = {made.values[0], fl_float(1.702), fl_float(7), made.values[1]};
  fl_call call = FL_CALL(clipped);
  npu_control.clear();
  ck_ok(fl_invoke(fl_find_op(host, "swigluoai_and_mul"), &call));
  ck_assert_int_eq(npu_control.count("contexts"), 1);
  ck_assert_int_eq(npu_control.count("made contexts"), 0);
  ck_assert_int_eq(npu_thread_device(), 0);
  npu_wait();
  free_gated(&made);
  fl_host_destroy(host);
}
END_TEST

/* Not supported is not a failure: nothing is held against the implementation. */
START_TEST(an_operator_without_kernel_is_passed_over_from_then_on) {
  fl_host *host = open_host();
  gated made = make_gated(3, 8);
  fl_call call = FL_CALL(made.values);
  fl_failed_impls *failed;
  npu_control.set("aclnnSwiGluGetWorkspaceSize", "561112");
  ck_assert_int_ne(fl_invoke(fl_find_op(host, "silu_and_mul"), &call), FL_OK);
  npu_control.set("aclnnSwiGluGetWorkspaceSize", "0");
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "silu_and_mul"), &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "no kernel package for this chip is installed");
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  free_gated(&made);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, npu_open, tear_down);
  tcase_add_loop_test(tests, a_code_of_phase_1_says_what_becomes_of_the_call, 0, N_CODES);
  tcase_add_test(tests, a_call_that_is_refused_has_launched_nothing);
  tcase_add_test(tests, a_failure_of_phase_2_is_told_by_what_was_launched);
  tcase_add_test(tests, a_descriptor_that_cannot_be_made_leaves_nothing_behind);
  tcase_add_loop_test(tests, a_kernel_that_fails_shows_when_its_stream_is_waited_for, 0, 2);
  tcase_add_test(tests, a_device_that_is_lost_fails_the_call);
  tcase_add_test(tests, the_calls_own_workspace_is_used_when_it_suffices);
  tcase_add_test(tests, the_size_of_a_workspace_needs_no_data);
  tcase_add_test(tests, a_streams_buffers_grow_only_when_its_work_is_done);
  tcase_add_test(tests, a_captured_call_allocates_nothing_and_brings_its_workspace);
  tcase_add_test(tests, a_stream_of_which_nothing_is_known_is_not_captured);
  tcase_add_test(tests, a_workspace_that_cannot_be_had_fails_the_call);
  tcase_add_test(tests, operators_are_queued_in_order_on_the_calls_stream);
  tcase_add_test(tests, calls_come_from_any_thread);
  tcase_add_test(tests, a_call_leaves_the_threads_device_alone);
  tcase_add_loop_test(tests, X1_a_child_that_is_forked_while_a_thread_uses_the_runtime_can_use_it, 0, 2);
  tcase_add_test(tests, a_chip_that_is_not_known_is_named);
  tcase_add_test(tests, a_chip_without_name_is_told);
  tcase_add_test(tests, attention_backend_names_vllm_plugin_FLs_classes);
  tcase_add_test(tests, merged_states_of_empty_parts_are_those_of_the_other);
  tcase_add_test(tests, a_rotary_cache_is_used_where_it_lies);
  tcase_add_test(tests, a_tensor_of_the_device_never_reaches_a_kernel_of_the_cpu);
  tcase_add_test(tests, rows_with_gaps_take_two_operators);
  tcase_add_test(tests, a_lost_device_is_a_failure_of_the_implementation);
  tcase_add_test(tests, a_call_makes_a_context_on_its_own_device_alone);
  tcase_add_test(tests, F5_a_device_that_is_not_there_is_held_against_nobody);
  tcase_add_test(tests, a_device_that_cannot_be_set_is_lost_whatever_its_number);
  tcase_add_test(tests, an_operator_without_kernel_is_passed_over_from_then_on);
}

int main(void) {
  return run_suite("ascend_calls", add_tests, 30);
}
