/*
 * Experts by the stand-in for cuBLASLt, as batches of products whose matrices are found through arrays of addresses in
 * device memory: what a call asks for, what it refuses, and what becomes of each error. That results are right on
 * generated calls is what test_gpu_kernels finds out.
 */
#include "tests/gpu.h"
#include "tests/kernels.h"

enum { HIDDEN = 24, INNER = 16, EXPERTS = 3, TOPK = 2, TOKENS = 3 * 64 };
enum { X, W13, W2, WEIGHTS, IDS, ACTIVATION, ON_INPUT, MAP, W13_BIAS, W2_BIAS, OUT, N_VALUES };

#define OP "unquantized_fused_moe"
#define ID "vendor.cuda.cublaslt"

static const gpu_setup *const cuda = &gpu_setups[0];
static gpu_plugin plugin;
static char words[512];

static void set_up(const char *library, const char *settings) {
  gpu_plugin_on_stand_in(&plugin, cuda, library);
  stand_in_set(settings);
}

static const fl_impl *impl_of(const char *op, const char *id) {
  return gpu_plugin_impl(&plugin, op, id);
}

/* Expert e gives (e + 1) silu(1) for every token, weighted 0.5, plus 4 (e + 1) where there are biases. */
typedef struct mixture {
  owned *tensors[N_VALUES];
  fl_value values[N_VALUES];
  fl_call call;
  size_t workspace; /* bytes that there are */
} mixture;

static owned *filled(DLDataType dtype, int ndim, const int64_t *shape, double value) {
  owned *made = make(dtype, ndim, shape, 0);
  for (int64_t i = 0; i < count(&made->tensor); i++)
    set(&made->tensor, i, value);
  made->tensor.device = (DLDevice){kDLCUDA, 0};
  return made;
}

static void put(mixture *m, int at, owned *tensor) {
  m->tensors[at] = tensor;
  m->values[at] = fl_tensor(&tensor->tensor);
}

static void scale_by_expert(owned *made) {
  int64_t of_one = count(&made->tensor) / made->shape[0];
  for (int64_t i = 0; i < count(&made->tensor); i++)
    set(&made->tensor, i, get(&made->tensor, i) * (double)(1 + i / of_one));
}

static void make_workspace(mixture *m, size_t size) {
  m->workspace = m->call.workspace_size = size;
  m->call.workspace = aligned_alloc(256, (size + 255) / 256 * 256 + 256);
  memset(m->call.workspace, 0xa5, size);
}

/* Without a workspace. Token t goes to the experts t % EXPERTS and that behind it. */
static void make_mixture(mixture *m, DLDataType dtype, int64_t tokens, bool biased) {
  *m = (mixture){.values = {[ACTIVATION] = fl_string("silu"), [ON_INPUT] = fl_bool(false)}};
  put(m, X, filled(dtype, 2, (int64_t[]){tokens, HIDDEN}, 1));
  put(m, W13, filled(dtype, 3, (int64_t[]){EXPERTS, 2 * INNER, HIDDEN}, 1.0 / HIDDEN));
  put(m, W2, filled(dtype, 3, (int64_t[]){EXPERTS, HIDDEN, INNER}, 1.0 / INNER));
  put(m, WEIGHTS, filled(float32, 2, (int64_t[]){tokens, TOPK}, 0.5));
  put(m, IDS, filled(int32, 2, (int64_t[]){tokens, TOPK}, 0));
  put(m, OUT, filled(dtype, 2, (int64_t[]){tokens, HIDDEN}, -1));
  if (biased) {
    put(m, W13_BIAS, filled(dtype, 2, (int64_t[]){EXPERTS, 2 * INNER}, 0));
    put(m, W2_BIAS, filled(dtype, 2, (int64_t[]){EXPERTS, HIDDEN}, 4));
    scale_by_expert(m->tensors[W2_BIAS]);
  }
  scale_by_expert(m->tensors[W2]);
  for (int64_t i = 0; i < tokens * TOPK; i++)
    set(&m->tensors[IDS]->tensor, i, (double)((i / TOPK + i % TOPK) % EXPERTS));
  m->call = (fl_call){
      .size = sizeof m->call, .count = N_VALUES, .values = m->values, .message = words, .message_size = sizeof words};
  words[0] = 0;
}

/* The workspace is what `impl` asks for. */
static void begin(mixture *m, const fl_impl *impl, DLDataType dtype, int64_t tokens, bool biased) {
  make_mixture(m, dtype, tokens, biased);
  make_workspace(m, impl->workspace_size(impl->self, &m->call));
}

static const fl_impl *begin_batches(mixture *m, int64_t tokens, bool biased) {
  const fl_impl *impl = impl_of(OP, ID);
  begin(m, impl, bfloat16, tokens, biased);
  return impl;
}

static void end(mixture *m) {
  free(m->call.workspace);
  for (int i = 0; i < N_VALUES; i++)
    unmake(m->tensors[i]);
}

static double of_token(const mixture *m, int64_t token) {
  double expected = 0;
  for (int64_t j = 0; j < TOPK; j++) {
    double id = get(&m->tensors[IDS]->tensor, token * TOPK + j);
    if (id >= 0 && id < EXPERTS)
      expected += 0.5 * (id + 1) * (0.731058579 + (m->tensors[W2_BIAS] ? 4 : 0));
  }
  return expected;
}

static bool has_results(const mixture *m) {
  const DLTensor *out = &m->tensors[OUT]->tensor;
  bool right = true;
  for (int64_t i = 0; i < count(out); i++) {
    double expected = of_token(m, i / HIDDEN), off = get(out, i) - expected;
    right &= off <= 0.02 * (1 + expected) && off >= -0.02 * (1 + expected);
  }
  return right;
}

#define assert_status(call, expected) assert_call_status(call, expected, words)

static void assert_computed(const fl_impl *impl, mixture *m) {
  assert_status(impl->fn(impl->self, &m->call), FL_OK);
  ck_assert(has_results(m));
  ck_assert_int_eq(stand_in_lines("product "), 0); /* of an address that is not good */
}

/* ------------------------------------------------------------------------------------------------- what a call does */

START_TEST(a_call_is_two_batches_between_its_kernels_and_nothing_else) {
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, TOKENS, _i);
  assert_computed(impl, &m); /* loads, and asks for algorithms */
  stand_in_clear();
  assert_computed(impl, &m);
  ck_assert_int_eq(stand_in_lines("launch"), _i ? 7 : 5);
  ck_assert_int_eq(stand_in_lines("launch multiply"), 0);
  ck_assert_int_eq(stand_in_lines("batch 32 64 24 "), 1);
  ck_assert_int_eq(stand_in_lines("batch 24 64 16 "), 1);
  ck_assert_int_eq(stand_in_lines("allocate") + stand_in_lines("synchronize") + stand_in_lines("load") +
                       stand_in_lines("copy") + stand_in_lines("heuristic") + stand_in_lines("make"),
                   0);
  end(&m);
}
END_TEST

/* Places of pairs, their counts, and what is left of blocks. */
static const struct {
  int64_t tokens;
  int ids[5]; /* in turn */
  int rows;
} shares[] = {
    {TOKENS, {0, 0, 0, 0, 0}, 64},          /* all with one */
    {TOKENS, {2, 2, 2, 2, 2}, 64},          /* the last one */
    {TOKENS, {0, 2, 2, 0, 2}, 64},          /* one has none */
    {TOKENS - 95, {1, 0, 2, 1, 1}, 64},     /* hardly enough */
    {2 * TOKENS + 5, {1, 0, 2, 1, 1}, 128}, /* larger blocks */
    {9 * 64, {0, 1, 1, 2, 1}, 128},
};
enum { N_SHARES = sizeof shares / sizeof shares[0] };

START_TEST(experts_may_have_any_share_of_the_tokens) {
  char batch[32];
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, shares[_i].tokens, true);
  for (int64_t i = 0; i < shares[_i].tokens * TOPK; i++)
    set(&m.tensors[IDS]->tensor, i, shares[_i].ids[i % 5]);
  assert_computed(impl, &m);
  snprintf(batch, sizeof batch, "batch 32 %d 24 ", shares[_i].rows);
  ck_assert_int_eq(stand_in_lines(batch), 1);
  end(&m);
}
END_TEST

/* The address sanitizer looks on. */
START_TEST(ids_that_there_cannot_be_count_as_none) {
  static const double ids[] = {0, -5, EXPERTS, 2147483647, 2, 1, -2147483647, -1, 1, 77777777};
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, TOKENS, _i);
  for (int64_t i = 0; i < TOKENS * TOPK; i++)
    set(&m.tensors[IDS]->tensor, i, ids[i % 10]);
  assert_computed(impl, &m);
  for (int64_t i = 0; i < TOKENS * TOPK; i++)
    set(&m.tensors[IDS]->tensor, i, -1);
  assert_computed(impl, &m);
  ck_assert_double_eq(get(&m.tensors[OUT]->tensor, 0), 0);
  end(&m);
}
END_TEST

/* What it maps to need not be there, either. */
START_TEST(an_expert_map_says_whose_the_ids_are) {
  static const double map[EXPERTS] = {2, 9, 0};
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, TOKENS, false);
  put(&m, MAP, filled(_i ? int64 : int32, 1, (int64_t[]){EXPERTS}, 0));
  for (int i = 0; i < EXPERTS; i++)
    set(&m.tensors[MAP]->tensor, i, map[i]);
  for (int64_t i = 0; i < TOKENS * TOPK; i++)
    set(&m.tensors[IDS]->tensor, i, (double)(i % 4)); /* the map has no fourth */
  assert_status(impl->fn(impl->self, &m.call), FL_OK);
  for (int64_t i = 0; i < TOKENS * TOPK; i++) { /* now as if there had been none */
    double id = (double)(i % 4);
    set(&m.tensors[IDS]->tensor, i, id < EXPERTS ? map[(int)id] : -1);
  }
  ck_assert(has_results(&m));
  end(&m);
}
END_TEST

START_TEST(no_tokens_ask_the_library_for_nothing) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, 0, true);
  ck_assert(impl->supports_args(impl->self, &m.call, &reason));
  ck_assert_uint_eq(m.workspace, 0);
  assert_status(impl->fn(impl->self, &m.call), FL_OK);
  ck_assert_str_eq(stand_in_log(), "");
  end(&m);
}
END_TEST

/* The arrays are filled by a kernel that runs when somebody waits: whoever reads them before finds what was there. */
START_TEST(addresses_are_read_when_the_stream_gets_there) {
  char stream;
  int (*synchronize)(void *), (*retain)(void **, int), (*push)(void *);
  void *context;
  mixture m;
  set_up(NULL, "delay=1");
  stand_in_find("cuStreamSynchronize", &synchronize);
  stand_in_find("cuDevicePrimaryCtxRetain", &retain);
  stand_in_find("cuCtxPushCurrent_v2", &push);
  const fl_impl *impl = begin_batches(&m, TOKENS, true);
  m.call.stream = &stream;
  assert_status(impl->fn(impl->self, &m.call), FL_OK);
  ck_assert(!has_results(&m));
  ck_assert_int_eq(retain(&context, 0), 0);
  ck_assert_int_eq(push(context), 0);
  ck_assert_int_eq(synchronize(&stream), 0);
  ck_assert(has_results(&m));
  end(&m);
}
END_TEST

START_TEST(the_librarys_workspace_comes_last_and_may_be_less) {
  static const struct {
    size_t without;
    const char *used;
  } cases[] = {{0, "workspace 4096 "}, {1, "workspace 0 "}, {4096, "workspace 0 "}};
  mixture m;
  set_up(NULL, "math_workspace=4096");
  const fl_impl *impl = begin_batches(&m, TOKENS, false);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stand_in_clear();
    m.call.workspace_size = m.workspace - cases[i].without;
    assert_computed(impl, &m);
    ck_contains(stand_in_log(), cases[i].used);
  }
  stand_in_clear();
  set(&m.tensors[OUT]->tensor, 0, -1);
  m.call.workspace_size = m.workspace - 4097;
  assert_status(impl->fn(impl->self, &m.call), FL_ENOTSUP);
  ck_contains(words, OP ": a workspace of ");
  ck_contains(words, " bytes, needs ");
  ck_assert_double_eq(get(&m.tensors[OUT]->tensor, 0), -1);
  ck_assert_str_eq(stand_in_log(), "");
  end(&m);
}
END_TEST

START_TEST(a_captured_stream_gets_batches_of_a_handle_that_was_made_before) {
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = begin_batches(&m, TOKENS, false);
  assert_computed(impl, &m);
  stand_in_set("capturing=1");
  set(&m.tensors[OUT]->tensor, 0, -1);
  assert_computed(impl, &m);
  end(&m);
}
END_TEST

START_TEST(a_captured_stream_finds_no_handle_that_was_not_made_before) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  mixture m;
  set_up(NULL, "capturing=1");
  const fl_impl *impl = begin_batches(&m, TOKENS, false);
  ck_assert(!impl->supports_args(impl->self, &m.call, &reason));
  ck_contains(reason, "cuBLASLt is not used on device 0 yet, and cannot be made ready while a stream is captured");
  end(&m);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- refusals */

static const struct {
  const char *library, *settings, *reason;
} missing[] = {
    {"/nonexistent/libcublasLt.so.13", "", "FLHOST_CUBLASLT: /nonexistent/libcublasLt.so.13: cannot open shared"},
    {"libm.so.6", "", "cuBLASLt lacks cublasLtCreate: is it too old?"},
    {NULL, "math_old=1", "cuBLASLt takes no arrays of addresses: is it too old?"},
};
enum { N_MISSING = sizeof missing / sizeof missing[0] };

START_TEST(a_library_that_is_missing_or_too_old_is_told_and_our_kernels_do_without) {
  const char *reason = NULL;
  mixture m;
  set_up(missing[_i].library, missing[_i].settings);
  const fl_impl *impl = impl_of(OP, ID), *own = impl_of(OP, cuda->impl_id);
  ck_assert(!impl->is_available(impl->self, &reason));
  ck_contains(reason, missing[_i].reason);
  ck_assert(own->is_available(own->self, &reason));
  begin(&m, own, bfloat16, TOKENS, true);
  assert_computed(own, &m);
  end(&m);
}
END_TEST

static const struct {
  const char *settings, *words;
  fl_status status;
} failures[] = {
    {"math_create=3", "cuBLASLt: making a handle: CUBLAS_STATUS_ALLOC_FAILED (3)", FL_ENOMEM},
    {"math_run=13", "cuBLASLt: a matrix product: CUBLAS_STATUS_EXECUTION_FAILED (13)", FL_EDEVICE},
    {"math_run=14", "cuBLASLt: a matrix product: CUBLAS_STATUS_INTERNAL_ERROR (14)", FL_EINTERNAL},
    {"math_none=1", "cuBLASLt: a matrix product: CUBLAS_STATUS_NOT_SUPPORTED (15)", FL_ENOTSUP},
};
enum { N_FAILURES = sizeof failures / sizeof failures[0] };

/* That there is no algorithm is known before, and once. */
START_TEST(a_failure_says_where_and_leaves_the_result_alone) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  mixture m;
  set_up(NULL, failures[_i].settings);
  const fl_impl *impl = begin_batches(&m, TOKENS, true);
  bool taken = impl->supports_args(impl->self, &m.call, &reason);
  ck_assert_int_eq(taken, failures[_i].status != FL_ENOTSUP);
  ck_assert(taken || strstr(reason, "cuBLASLt: choosing an algorithm: CUBLAS_STATUS_NOT_SUPPORTED (15)"));
  assert_status(impl->fn(impl->self, &m.call), failures[_i].status);
  ck_contains(words, OP ": ");
  ck_contains(words, failures[_i].words);
  ck_assert_double_eq(get(&m.tensors[OUT]->tensor, 0), -1);
  stand_in_set("");
  if (taken)
    assert_computed(impl, &m);
  else
    ck_assert(!impl->supports_args(impl->self, &m.call, &reason));
  end(&m);
}
END_TEST

typedef enum change { FEW, FLOAT32, FLOAT32_BIAS, LONG_MAP, ODD_ROWS, ODD_PLACE, ODD_EXPERTS, RELU2 } change;

static const struct {
  change what;
  const char *reason;
} refusals[] = {
    {FEW, "fewer than 64 pairs of a token and an expert to each expert on average"},
    {FLOAT32, "float16 or bfloat16 expected"},
    {FLOAT32_BIAS, "a bias of another element type than x's"},
    {LONG_MAP, "an expert map of more experts than are here"},
    {ODD_ROWS, "weights whose rows do not all begin at multiples of 16 bytes"},
    {ODD_PLACE, "weights whose rows do not all begin at multiples of 16 bytes"},
    {ODD_EXPERTS, "weights whose rows do not all begin at multiples of 16 bytes"},
    {RELU2, "an activation that there is no kernel of"},
};
enum { N_REFUSALS = sizeof refusals / sizeof refusals[0] };

static void change_call(mixture *m, change what) {
  static int64_t odd_rows[] = {4 * INNER * HIDDEN, HIDDEN + 1, 1}, odd_experts[] = {2 * INNER * HIDDEN + 4, HIDDEN, 1};
  owned *w13 = m->tensors[W13];
  if (what == FLOAT32_BIAS)
    m->tensors[W2_BIAS]->tensor.dtype = float32;
  else if (what == LONG_MAP)
    put(m, MAP, filled(int32, 1, (int64_t[]){EXPERTS + 1}, 0));
  else if (what == ODD_ROWS || what == ODD_EXPERTS)
    w13->tensor.strides = what == ODD_ROWS ? odd_rows : odd_experts;
  else if (what == ODD_PLACE)
    w13->tensor.byte_offset = 2;
  else if (what == RELU2)
    m->values[ACTIVATION] = fl_string("relu2");
}

START_TEST(what_the_library_is_not_asked_for_is_refused_with_a_reason) {
  char room[FL_REASON_MAX] = "";
  const char *reason = room;
  change what = refusals[_i].what;
  mixture m;
  set_up(NULL, "");
  const fl_impl *impl = impl_of(OP, ID);
  begin(&m, impl, what == FLOAT32 ? float32 : bfloat16, what == FEW ? TOKENS / 2 - 1 : TOKENS, true);
  change_call(&m, what);
  ck_assert(!impl->supports_args(impl->self, &m.call, &reason));
  ck_contains(reason, refusals[_i].reason);
  ck_assert(!impl->supports_args(impl->self, &m.call, NULL));
  ck_assert_uint_eq(impl->workspace_size(impl->self, &m.call), 0);
  assert_status(impl->fn(impl->self, &m.call), FL_ENOTSUP);
  ck_contains(words, reason);
  m.tensors[W2_BIAS]->tensor.dtype = bfloat16;
  end(&m);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- with the host */

static fl_host *host_with(const char *settings, mixture *m) {
  size_t size = 0;
  fl_host *host = gpu_host(cuda);
  stand_in_set(settings);
  make_mixture(m, bfloat16, TOKENS, true);
  ck_ok(fl_workspace_size(fl_find_op(host, OP), &m->call, &size));
  make_workspace(m, size);
  stand_in_clear();
  return host;
}

START_TEST(S2_cublaslt_goes_before_our_kernels) {
  mixture m;
  fl_host *host = host_with("", &m);
  ck_ok(fl_invoke(fl_find_op(host, OP), &m.call));
  ck_assert(has_results(&m));
  ck_assert_int_eq(stand_in_lines("batch "), 2);
  ck_assert_int_eq(stand_in_lines("launch multiply"), 0);
  end(&m);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_what_cublaslt_has_no_algorithm_for_is_computed_by_our_kernels_also_under_strict) {
  mixture m;
  fl_scope scope;
  fl_host *host = host_with("math_none=2", &m);
  ck_ok(fl_invoke(fl_find_op(host, OP), &m.call)); /* the device is in use from now on */
  ck_assert(has_results(&m));
  set(&m.tensors[OUT]->tensor, 0, -1);
  ck_ok(fl_scope_strict(host, &scope));
  ck_ok(fl_invoke(fl_find_op(host, OP), &m.call));
  fl_scope_leave(&scope);
  ck_assert(has_results(&m));
  ck_assert_int_eq(stand_in_lines("batch "), 0);
  ck_assert_int_eq(stand_in_lines("launch multiply_many_bf16 "), 4);
  fl_failed_impls *failed = NULL;
  ck_ok(fl_get_failed_impls(host, OP, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  end(&m);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F2_what_cublaslt_fails_at_is_computed_by_our_kernels_and_logged) {
  mixture m;
  fl_host *host = host_with("math_run=14", &m);
  ck_ok(fl_invoke(fl_find_op(host, OP), &m.call));
  ck_assert(has_results(&m));
  ck_assert_int_eq(stand_in_lines("launch multiply_many_bf16 "), 2);
  ck_contains(test_log.text,
              "WARNING Implementation '" ID "' failed for op '" OP "': " OP ": cuBLASLt: a matrix product: "
              "CUBLAS_STATUS_INTERNAL_ERROR (14)");
  end(&m);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_call_is_two_batches_between_its_kernels_and_nothing_else, 0, 2);
  tcase_add_loop_test(tests, experts_may_have_any_share_of_the_tokens, 0, N_SHARES);
  tcase_add_loop_test(tests, ids_that_there_cannot_be_count_as_none, 0, 2);
  tcase_add_loop_test(tests, an_expert_map_says_whose_the_ids_are, 0, 2);
  tcase_add_test(tests, no_tokens_ask_the_library_for_nothing);
  tcase_add_test(tests, addresses_are_read_when_the_stream_gets_there);
  tcase_add_test(tests, the_librarys_workspace_comes_last_and_may_be_less);
  tcase_add_test(tests, a_captured_stream_gets_batches_of_a_handle_that_was_made_before);
  tcase_add_test(tests, a_captured_stream_finds_no_handle_that_was_not_made_before);
  tcase_add_loop_test(tests, a_library_that_is_missing_or_too_old_is_told_and_our_kernels_do_without, 0, N_MISSING);
  tcase_add_loop_test(tests, a_failure_says_where_and_leaves_the_result_alone, 0, N_FAILURES);
  tcase_add_loop_test(tests, what_the_library_is_not_asked_for_is_refused_with_a_reason, 0, N_REFUSALS);
  tcase_add_test(tests, S2_cublaslt_goes_before_our_kernels);
  tcase_add_test(tests, S3_what_cublaslt_has_no_algorithm_for_is_computed_by_our_kernels_also_under_strict);
  tcase_add_test(tests, F2_what_cublaslt_fails_at_is_computed_by_our_kernels_and_logged);
}

int main(void) {
  return run_suite("gpu_batches", add_tests, 60);
}
