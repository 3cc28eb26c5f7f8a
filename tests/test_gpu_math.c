/*
 * Matrix products of the GPU plugins by stand-ins for cuBLASLt and rocBLAS: what a call asks the library for and what
 * it does not, and what becomes of each error. That results are right is what test_gpu_kernels finds out. The plugins'
 * functions are called as the host calls them, without one.
 */
#include "tests/gpu.h"
#include "tests/kernels.h"

#include <pthread.h>

enum { M = 3, N = 24, K = 16, MOST_WORKSPACE = 8192 };

static gpu_plugin plugin;
static const gpu_setup *setup;
static char words[512];
static _Alignas(256) char workspace[MOST_WORKSPACE];

static const gpu_setup *const cuda = &gpu_setups[0], *const rocm = &gpu_setups[2];

static void set_up(const gpu_setup *chosen, const char *math, const char *settings) {
  setup = chosen;
  gpu_plugin_on_stand_in(&plugin, setup, math);
  stand_in_set(settings);
}

static const fl_impl *impl_of(const char *op) {
  return gpu_plugin_impl(&plugin, op, NULL);
}

/* A linear layer of ones: every result is K, plus 2 with the bias. */
typedef struct layer {
  owned *x, *weight, *bias, *out;
  fl_value values[5];
} layer;

static owned *filled(int ndim, const int64_t *shape, int64_t padding, double value, int device) {
  owned *made = make_constant(float32, ndim, shape, padding, value);
  made->tensor.device = (DLDevice){(DLDeviceType)setup->device_type, device};
  return made;
}

static layer make_layer(int64_t m, int64_t k, int64_t padding, bool bias, int device) {
  layer l = {.x = filled(2, (int64_t[]){m, k}, padding, 1, device),
             .weight = filled(2, (int64_t[]){N, k}, padding, 1, device),
             .bias = filled(1, (int64_t[]){N}, 0, 2, device),
             .out = filled(2, (int64_t[]){m, N}, padding, -1, device)};
  l.values[0] = fl_tensor(&l.x->tensor);
  l.values[1] = fl_tensor(&l.weight->tensor);
  l.values[2] = bias ? fl_tensor(&l.bias->tensor) : fl_none();
  l.values[3] = fl_bool(false);
  l.values[4] = fl_tensor(&l.out->tensor);
  return l;
}

static void free_layer(layer *l) {
  unmake(l->x);
  unmake(l->weight);
  unmake(l->bias);
  unmake(l->out);
}

static fl_call call_of(layer *l, size_t workspace_size, void *stream) {
  words[0] = 0;
  return (fl_call){.size = sizeof(fl_call),
                   .count = 5,
                   .values = l->values,
                   .stream = stream,
                   .message = words,
                   .message_size = sizeof words,
                   .workspace = workspace_size ? workspace : NULL,
                   .workspace_size = workspace_size};
}

static fl_status run(layer *l, size_t workspace_size, void *stream) {
  const fl_impl *impl = impl_of("replicated_linear");
  fl_call call = call_of(l, workspace_size, stream);
  return impl->fn(impl->self, &call);
}

static void assert_results(const layer *l, double expected) {
  for (int64_t i = 0; i < count(&l->out->tensor); i++)
    ck_assert_double_eq(get(&l->out->tensor, element_offset(&l->out->tensor, i)), expected);
}

#define assert_status(call, expected) assert_call_status(call, expected, words)

/* ------------------------------------------------------------------------------------------------- what a call does */

START_TEST(a_form_that_was_seen_before_asks_for_nothing_but_the_product) {
  set_up(_i ? rocm : cuda, NULL, "");
  layer l = make_layer(M, K, 0, false, 0);
  assert_status(run(&l, 0, NULL), FL_OK);
  ck_assert_int_eq(stand_in_lines("make handle"), 1);
  stand_in_clear();
  assert_status(run(&l, 0, NULL), FL_OK);
  ck_assert_int_eq(stand_in_lines(_i ? "gemm 24 3 16 " : "matmul 24 3 16 "), 1);
  ck_assert_int_eq(stand_in_lines("make") + stand_in_lines("heuristic") + stand_in_lines("allocate") +
                       stand_in_lines("synchronize") + stand_in_lines("load") + stand_in_lines("launch"),
                   0);
  assert_results(&l, K);
  free_layer(&l);
}
END_TEST

START_TEST(an_algorithm_is_asked_for_once_for_each_form) {
  enum { FORMS = 5 };
  layer layers[FORMS];
  set_up(cuda, NULL, "math_workspace=0");
  for (int64_t i = 0; i < FORMS; i++)
    layers[i] = make_layer(1 + i, K, 0, i % 2, 0);
  for (int i = 0; i < 2 * FORMS; i++) {
    assert_status(run(&layers[i % FORMS], 0, NULL), FL_OK);
    assert_results(&layers[i % FORMS], i % FORMS % 2 ? K + 2 : K);
  }
  ck_assert_int_eq(stand_in_lines("heuristic"), FORMS);
  for (int i = 0; i < FORMS; i++)
    free_layer(&layers[i]);
}
END_TEST

/* More forms than there are places to remember them. */
START_TEST(forms_that_cannot_be_remembered_are_computed_all_the_same) {
  enum { FORMS = 9000 };
  set_up(cuda, NULL, "math_workspace=0");
  layer l = make_layer(1, 1, 0, false, 0);
  for (int64_t i = 0; i < FORMS; i++) {
    owned *weight = l.weight;
    int64_t stride = 1 + i; /* of a matrix of one column, in memory of as many rows */
    weight->tensor.strides = (int64_t[]){stride, 1};
    weight->tensor.shape[0] = l.out->tensor.shape[1] = 1;
    assert_status(run(&l, 0, NULL), FL_OK);
    ck_assert_double_eq(get(&l.out->tensor, 0), 1);
  }
  free_layer(&l);
}
END_TEST

START_TEST(the_product_is_queued_on_the_calls_stream_behind_its_bias) {
  char stream;
  set_up(_i ? rocm : cuda, NULL, "delay=1");
  int (*synchronize)(void *);
  stand_in_find(_i ? "hipStreamSynchronize" : "cuStreamSynchronize", &synchronize);
  layer l = make_layer(M, K, 0, true, 0);
  assert_status(run(&l, 0, &stream), FL_OK);
  assert_results(&l, -1); /* nobody has waited */
  if (!_i) {
    int (*retain)(void **, int), (*push)(void *);
    void *context;
    stand_in_find("cuDevicePrimaryCtxRetain", &retain);
    stand_in_find("cuCtxPushCurrent_v2", &push);
    ck_assert_int_eq(retain(&context, 0), 0);
    ck_assert_int_eq(push(context), 0);
  }
  ck_assert_int_eq(synchronize(&stream), 0);
  assert_results(&l, K + 2);
  free_layer(&l);
}
END_TEST

START_TEST(a_workspace_is_used_as_far_as_it_goes) {
  static const struct {
    size_t given;
    const char *used;
  } cases[] = {{0, "workspace 0 "}, {4095, "workspace 0 "}, {4096, "workspace 4096 "}, {8192, "workspace 4096 "}};
  set_up(cuda, NULL, "math_workspace=4096");
  const fl_impl *impl = impl_of("replicated_linear");
  layer l = make_layer(M, K, 0, true, 0);
  fl_call call = call_of(&l, 0, NULL);
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), 4096);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stand_in_clear();
    assert_status(run(&l, cases[i].given, NULL), FL_OK);
    ck_contains(stand_in_log(), cases[i].used);
    assert_results(&l, K + 2);
  }
  free_layer(&l);
}
END_TEST

START_TEST(rocblas_gets_the_calls_workspace_or_none) {
  set_up(rocm, NULL, "");
  const fl_impl *impl = impl_of("replicated_linear");
  layer l = make_layer(M, K, 0, false, 0);
  fl_call call = call_of(&l, 0, NULL);
  ck_assert_uint_eq(impl->workspace_size(impl->self, &call), (size_t)M * N * 4 * 16);
  assert_status(run(&l, 4096, NULL), FL_OK);
  ck_contains(stand_in_log(), "gemm 24 3 16 workspace 4096 ");
  stand_in_clear();
  assert_status(run(&l, 0, NULL), FL_OK);
  ck_contains(stand_in_log(), "gemm 24 3 16 workspace 0 ");
  free_layer(&l);
}
END_TEST

START_TEST(each_device_has_a_handle_of_its_own) {
  set_up(_i ? rocm : cuda, NULL, "devices=2");
  for (int i = 0; i < 4; i++) {
    layer l = make_layer(M, K, 0, false, i % 2);
    assert_status(run(&l, 0, NULL), FL_OK);
    assert_results(&l, K);
    free_layer(&l);
  }
  ck_assert_int_eq(stand_in_lines("make handle"), 2);
}
END_TEST

START_TEST(a_product_of_nothing_is_the_bias_and_rows_may_lie_apart) {
  set_up(_i ? rocm : cuda, NULL, "");
  layer nothing = make_layer(M, 0, 0, true, 0), apart = make_layer(M, K, 5, true, 0);
  assert_status(run(&nothing, 0, NULL), FL_OK);
  assert_results(&nothing, 2);
  assert_status(run(&apart, 0, NULL), FL_OK);
  assert_results(&apart, K + 2);
  free_layer(&nothing);
  free_layer(&apart);
}
END_TEST

START_TEST(zero_tokens_ask_the_library_for_nothing) {
  set_up(_i ? rocm : cuda, NULL, "");
  layer l = make_layer(0, K, 0, true, 0);
  assert_status(run(&l, 0, NULL), FL_OK);
  ck_assert_str_eq(stand_in_log(), "");
  free_layer(&l);
}
END_TEST

static pthread_barrier_t line;
static void *run_once(void *argument) {
  layer l = make_layer(M, K, 0, true, 0);
  char said[512];
  const fl_impl *impl = impl_of("replicated_linear");
  fl_call call = {.size = sizeof call, .count = 5, .values = l.values, .message = said, .message_size = sizeof said};
  pthread_barrier_wait(&line);
  fl_status status = impl->fn(impl->self, &call);
  bool right = !status && get(&l.out->tensor, 0) == K + 2;
  free_layer(&l);
  return right ? argument : NULL;
}

START_TEST(threads_that_call_first_together_make_one_handle) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  set_up(_i ? rocm : cuda, NULL, "");
  pthread_barrier_init(&line, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, run_once, &line), 0);
  for (int i = 0; i < THREADS; i++) {
    void *right;
    pthread_join(threads[i], &right);
    ck_assert_ptr_nonnull(right);
  }
  ck_assert_int_eq(stand_in_lines("make handle"), 1);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- refusals */

static const struct {
  bool rocm;
  const char *library, *reason;
} missing[] = {
    {false, "/nonexistent/libcublasLt.so.13",
     "FLHOST_CUBLASLT: /nonexistent/libcublasLt.so.13: cannot open shared object"},
    {true, "/nonexistent/librocblas.so.5", "FLHOST_ROCBLAS: /nonexistent/librocblas.so.5: cannot open shared object"},
    {false, "libm.so.6", "cuBLASLt lacks cublasLtCreate: is it too old?"},
    {true, "libm.so.6", "rocBLAS lacks rocblas_create_handle: is it too old?"},
};

START_TEST(a_library_that_is_missing_is_named_and_other_ops_do_without_it) {
  const char *reason = NULL;
  set_up(missing[_i].rocm ? rocm : cuda, missing[_i].library, "");
  const fl_impl *linear = impl_of("replicated_linear"), *other = impl_of("silu_and_mul");
  ck_assert(!linear->is_available(linear->self, &reason));
  ck_contains(reason, missing[_i].reason);
  ck_assert(other->is_available(other->self, &reason));
  layer l = make_layer(M, K, 0, false, 0);
  assert_status(run(&l, 0, NULL), FL_ENOTSUP);
  ck_contains(words, missing[_i].reason);
  free_layer(&l);
}
END_TEST

static const struct {
  bool rocm;
  const char *settings, *words;
  fl_status status;
} failures[] = {
    {false, "math_create=1", "cuBLASLt: making a handle: CUBLAS_STATUS_NOT_INITIALIZED (1)", FL_EDEVICE},
    {false, "math_create=3", "cuBLASLt: making a handle: CUBLAS_STATUS_ALLOC_FAILED (3)", FL_ENOMEM},
    {false, "math_create=77", "cuBLASLt: making a handle: unknown error (77)", FL_EINTERNAL},
    {false, "math_none=1", "cuBLASLt: a matrix product: CUBLAS_STATUS_NOT_SUPPORTED (15)", FL_ENOTSUP},
    {false, "math_run=8", "cuBLASLt: a matrix product: CUBLAS_STATUS_ARCH_MISMATCH (8)", FL_ENOTSUP},
    {false, "math_run=13", "cuBLASLt: a matrix product: CUBLAS_STATUS_EXECUTION_FAILED (13)", FL_EDEVICE},
    {false, "math_run=14", "cuBLASLt: a matrix product: CUBLAS_STATUS_INTERNAL_ERROR (14)", FL_EINTERNAL},
    {true, "math_create=5", "rocBLAS: making a handle: rocblas_status_memory_error (5)", FL_ENOMEM},
    {true, "math_prepare=6", "rocBLAS: making a handle: rocblas_status_internal_error (6)", FL_EINTERNAL},
    {true, "math_none=1", "rocBLAS: a matrix product: rocblas_status_not_implemented (2)", FL_ENOTSUP},
    {true, "math_run=5", "rocBLAS: a matrix product: rocblas_status_memory_error (5)", FL_ENOMEM},
    {true, "math_run=15", "rocBLAS: a matrix product: rocblas_status_arch_mismatch (15)", FL_ENOTSUP},
};
enum { N_FAILURES = sizeof failures / sizeof failures[0] };

START_TEST(a_failed_product_says_where_and_the_next_one_works) {
  set_up(failures[_i].rocm ? rocm : cuda, NULL, failures[_i].settings);
  layer l = make_layer(M, K, 0, true, 0);
  assert_status(run(&l, 0, NULL), failures[_i].status);
  ck_contains(words, "replicated_linear: ");
  ck_contains(words, failures[_i].words);
  stand_in_set("");
  assert_status(run(&l, 0, NULL), FL_OK);
  assert_results(&l, K + 2);
  free_layer(&l);
}
END_TEST

START_TEST(a_handle_that_cannot_be_prepared_is_given_back) {
  set_up(rocm, NULL, "math_prepare=6");
  layer l = make_layer(M, K, 0, false, 0);
  assert_status(run(&l, 0, NULL), FL_EINTERNAL);
  ck_assert_int_eq(stand_in_lines("make handle"), 1);
  ck_assert_int_eq(stand_in_lines("destroy handle"), 1);
  free_layer(&l);
}
END_TEST

START_TEST(a_captured_stream_gets_products_of_a_handle_that_was_made_before) {
  set_up(_i ? rocm : cuda, NULL, "capturing=1");
  layer l = make_layer(M, K, 0, false, 0);
  assert_status(run(&l, 0, NULL), FL_ENOTSUP);
  ck_contains(words, "is not used on device 0 yet, and cannot be made ready while a stream is captured");
  stand_in_set("");
  assert_status(run(&l, 0, NULL), FL_OK);
  stand_in_set("capturing=1");
  assert_status(run(&l, 0, NULL), FL_OK);
  assert_results(&l, K);
  free_layer(&l);
}
END_TEST

START_TEST(matrices_that_the_library_cannot_take_are_refused_with_a_reason) {
  static int64_t overlap[] = {1, 1}, far[] = {INT64_C(1) << 32, 1};
  const char *reason = NULL;
  set_up(_i ? rocm : cuda, NULL, "");
  const fl_impl *impl = impl_of("replicated_linear");
  layer l = make_layer(M, K, 0, false, 0);
  fl_call call = call_of(&l, 0, NULL);
  ck_assert(impl->supports_args(impl->self, &call, &reason));
  l.x->tensor.strides = overlap;
  ck_assert(!impl->supports_args(impl->self, &call, &reason));
  ck_assert_str_eq(reason, "a matrix whose rows overlap");
  l.x->tensor.strides = far;
  ck_assert(!impl->supports_args(impl->self, &call, &reason));
  ck_assert_str_eq(reason, "a matrix of more than 2147483647 rows or columns");
  ck_assert(!impl->supports_args(impl->self, &call, NULL));
  l.x->tensor.strides = NULL;
  l.x->tensor.dtype = bfloat16;
  ck_assert(!impl->supports_args(impl->self, &call, &reason));
  ck_contains(reason, "the same for all tensors");
  assert_status(run(&l, 0, NULL), FL_ENOTSUP);
  free_layer(&l);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_form_that_was_seen_before_asks_for_nothing_but_the_product, 0, 2);
  tcase_add_test(tests, an_algorithm_is_asked_for_once_for_each_form);
  tcase_add_test(tests, forms_that_cannot_be_remembered_are_computed_all_the_same);
  tcase_add_loop_test(tests, the_product_is_queued_on_the_calls_stream_behind_its_bias, 0, 2);
  tcase_add_test(tests, a_workspace_is_used_as_far_as_it_goes);
  tcase_add_test(tests, rocblas_gets_the_calls_workspace_or_none);
  tcase_add_loop_test(tests, each_device_has_a_handle_of_its_own, 0, 2);
  tcase_add_loop_test(tests, a_product_of_nothing_is_the_bias_and_rows_may_lie_apart, 0, 2);
  tcase_add_loop_test(tests, zero_tokens_ask_the_library_for_nothing, 0, 2);
  tcase_add_loop_test(tests, threads_that_call_first_together_make_one_handle, 0, 2);
  tcase_add_loop_test(tests, a_library_that_is_missing_is_named_and_other_ops_do_without_it, 0, 4);
  tcase_add_loop_test(tests, a_failed_product_says_where_and_the_next_one_works, 0, N_FAILURES);
  tcase_add_test(tests, a_handle_that_cannot_be_prepared_is_given_back);
  tcase_add_loop_test(tests, a_captured_stream_gets_products_of_a_handle_that_was_made_before, 0, 2);
  tcase_add_loop_test(tests, matrices_that_the_library_cannot_take_are_refused_with_a_reason, 0, 2);
}

int main(void) {
  return run_suite("gpu_math", add_tests, 60);
}
