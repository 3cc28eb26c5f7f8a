/* Prepared weights: what fl_prepare makes, what calls do with it, and what it must not be used for. */
#include "fixture.h"
#include "four_impls.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { D = 5, ROWS = 3 };

static fl_host *host;
static fl_op *op;

/* A call of weighted(x, weight); the numbers are small and whole. */
typedef struct weighted {
  float x[ROWS][D], weight[D + 1], out[ROWS][D];
  int64_t shape[2], d[1];
  DLTensor dl[3];
  fl_value values[3];
  fl_call call;
} weighted;

static void begin(weighted *w) {
  *w = (weighted){.shape = {ROWS, D}, .d = {D}};
  void *const data[] = {w->x, w->weight, w->out};
  for (int i = 0; i < ROWS * D; i++)
    w->x[i / D][i % D] = (float)(i + 1);
  for (int i = 0; i < D; i++)
    w->weight[i] = 2;
  for (int i = 0; i < 3; i++) {
    w->dl[i] = (DLTensor){.data = data[i],
                          .device = {kDLCPU, 0},
                          .ndim = i == 1 ? 1 : 2,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = i == 1 ? w->d : w->shape};
    w->values[i] = fl_tensor(&w->dl[i]);
  }
  w->call = (fl_call)FL_CALL(w->values);
}

static void set_weight(weighted *w, float to) {
  for (int i = 0; i < D; i++)
    w->weight[i] = to;
}

/* It was called, and multiplied by that. */
static void assert_product(weighted *w, float weight) {
  memset(w->out, 0, sizeof w->out);
  ck_ok(fl_invoke(op, &w->call));
  for (int64_t i = 0; i < w->shape[0] * D; i++)
    ck_each(w->out[i / D][i % D] == w->x[i / D][i % D] * weight, "element %d is %g, not %g times %g", (int)i,
            (double)w->out[i / D][i % D], (double)weight, (double)w->x[i / D][i % D]);
}

static void load(const char *const *environment, uint32_t flags) {
  char path[1024];
  host = test_host(environment, flags);
  snprintf(path, sizeof path, "%s/tests/plugins/prepares.so", build_dir());
  ck_ok(fl_load_plugin(host, path));
  op = fl_find_op(host, "weighted");
  ck_assert_ptr_nonnull(op);
}

static void set_up(void) {
  load(NULL, 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

/* That one first, from now on. */
static void choose(const char *first) {
  char token[64];
  const char *const tokens[] = {token, "flagos", "reference"};
  const fl_op_order order = {.op = "weighted", .tokens = tokens, .n_tokens = 3};
  snprintf(token, sizeof token, "impl:%s", first);
  set_policy(host, (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof order});
}

/* ------------------------------------------------------------------------------------------------------------ using */

START_TEST(a_call_uses_what_was_made_of_the_weight) {
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_assert_ptr_nonnull(w.call.prepared);
  const fl_prepared *first = w.call.prepared;
  assert_product(&w, 2);
  set_weight(&w, 3); /* nobody looks */
  assert_product(&w, 2);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared)); /* what the call brings is no reason to refuse it */
  assert_product(&w, 3);
  fl_prepared_free(first);
  assert_product(&w, 3);
  fl_prepared_free(w.call.prepared);
  w.call.prepared = NULL;
  set_weight(&w, 4);
  assert_product(&w, 4);
}
END_TEST

START_TEST(other_implementations_use_the_weight_itself) {
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  set_weight(&w, 3);
  choose("reference.c");
  assert_product(&w, 3);
  choose("vendor.declines"); /* the same functions, another `self` */
  assert_product(&w, 3);
  choose("default.flagos");
  assert_product(&w, 2);
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(a_fallback_uses_the_weight_itself) {
  weighted w;
  begin(&w);
  choose("vendor.few");
  w.shape[0] = 1;
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  set_weight(&w, 3);
  assert_product(&w, 2);
  w.shape[0] = 3; /* it does not take them */
  assert_product(&w, 3);
  w.shape[0] = 2; /* it fails */
  assert_product(&w, 3);
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(the_first_that_takes_the_call_prepares) {
  weighted w;
  fl_counters few = {.size = sizeof few}, flagos_ = few;
  begin(&w);
  choose("vendor.few");
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared)); /* of three rows */
  ck_ok(fl_get_counters(host, "weighted", "vendor.few", &few));
  ck_ok(fl_get_counters(host, "weighted", "default.flagos", &flagos_));
  ck_assert_uint_eq(few.prepared, 0);
  ck_assert_uint_eq(flagos_.prepared, 1);
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(what_is_no_weight_may_be_another_in_each_call) {
  weighted w, other;
  begin(&w);
  begin(&other);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  for (int i = 0; i < 4; i++) {
    w.values[0] = fl_tensor(i % 2 ? &other.dl[0] : &w.dl[0]);
    w.shape[0] = other.shape[0] = 1 + i % 3;
    assert_product(&w, 2);
  }
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(a_call_in_a_scope_uses_it) {
  weighted w;
  fl_scope scope;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  set_weight(&w, 3);
  ck_ok(fl_scope_strict(host, &scope));
  assert_product(&w, 2);
  w.dl[1].data = w.x; /* and is judged */
  ck_assert_int_eq(fl_invoke(op, &w.call), FL_EINVAL);
  ck_ok(fl_scope_leave(&scope));
  fl_prepared_free(w.call.prepared);
}
END_TEST

/* An engine that was built before there was such a field. */
START_TEST(a_shorter_call_has_none) {
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  set_weight(&w, 3);
  w.call.size = offsetof(fl_call, prepared);
  const fl_prepared *made = w.call.prepared, *of_shorter = NULL;
  w.call.prepared = (const fl_prepared *)&w; /* is not looked at */
  assert_product(&w, 3);
  ck_ok(fl_prepare(op, &w.call, &of_shorter));
  ck_assert_ptr_nonnull(of_shorter);
  fl_prepared_free(made);
  fl_prepared_free(of_shorter);
}
END_TEST

/* Where it is compared with the reference, a weight that was changed since is found. */
START_TEST(canary_mode_finds_a_weight_that_was_not_prepared_again) {
  weighted w;
  tear_down();
  load((const char *const[]){"VLLM_FL_CANARY=2", "VLLM_FL_EVIDENCE=", NULL}, 0);
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  assert_product(&w, 2);
  set_weight(&w, 3);
  assert_product(&w, 3); /* the reference's */
  ck_contains(test_log.text, "default.flagos");
  fl_prepared_free(w.call.prepared);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- nothing */

START_TEST(where_nothing_is_prepared_there_is_none) {
  static const char *const who[] = {"reference.c", "vendor.declines"};
  weighted w;
  for (int i = 0; i < 2; i++) {
    begin(&w);
    choose(who[i]);
    w.call.prepared = (const fl_prepared *)&w;
    ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
    ck_assert_ptr_null(w.call.prepared);
    assert_product(&w, 2);
  }
  choose("default.flagos"); /* it wants none for a weight that is not there */
  w.values[1] = fl_none();
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_assert_ptr_null(w.call.prepared);
  ck_assert_uint_eq(fl_prepared_bytes(host), 0);
  fl_prepared_free(NULL);
}
END_TEST

static const struct {
  const char *who;
  fl_status status;
  const char *words;
} bad[] = {
    {"vendor.fails", FL_EDEVICE, "weighted: vendor.fails cannot prepare weights: the packer is out of order"},
    {"vendor.says_nothing", FL_EINTERNAL, "weighted: vendor.says_nothing cannot prepare weights: FL_EINTERNAL"},
    {"vendor.writes_behind", FL_EINTERNAL,
     "weighted: vendor.writes_behind prepared more than the 20 bytes that it had asked for: byte 20 was written"},
    {"vendor.writes_far_behind", FL_EINTERNAL,
     "weighted: vendor.writes_far_behind prepared more than the 20 bytes that it had asked for: byte 220 was written"},
    {"vendor.odd_status", FL_EINTERNAL,
     "weighted: preparing weights, vendor.odd_status returned 77, which is no status of an implementation"},
    {"vendor.greedy", FL_ENOMEM, "weighted: vendor.greedy wants 18446744073709551516 bytes for prepared weights"},
};

START_TEST(who_fails_at_preparing_is_called_without) {
  weighted w;
  begin(&w);
  choose(bad[_i].who);
  ck_assert_int_eq(fl_prepare(op, &w.call, &w.call.prepared), bad[_i].status);
  ck_assert_str_eq(fl_error_message(), bad[_i].words);
  ck_assert_ptr_null(w.call.prepared);
  ck_assert_uint_eq(fl_prepared_bytes(host), 0);
  assert_product(&w, 2);
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "weighted", bad[_i].who, &counters));
  ck_assert_uint_eq(counters.failures, 0);
}
END_TEST

START_TEST(the_callers_call_stays_as_it_was) {
  weighted w;
  begin(&w);
  choose("vendor.changes_call");
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_assert_ptr_eq(w.call.values, w.values);
  assert_product(&w, 2);
  fl_prepared_free(w.call.prepared);
}
END_TEST

/* It says that it reads arguments which there are not. */
START_TEST(arguments_that_there_are_not_are_left_out) {
  weighted w, other;
  begin(&w);
  begin(&other);
  choose("vendor.beyond");
  w.values[2] = fl_tensor(&other.dl[2]); /* a result is none */
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  w.values[2] = fl_tensor(&w.dl[2]);
  assert_product(&w, 2);
  w.dl[0].data = w.weight; /* x was one of them */
  ck_assert_int_eq(fl_invoke(op, &w.call), FL_EINVAL);
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(a_bad_call_prepares_nothing) {
  weighted w;
  const fl_prepared *prepared = (const fl_prepared *)&w;
  begin(&w);
  ck_assert_int_eq(fl_prepare(NULL, &w.call, &prepared), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "fl_prepare: the op is NULL");
  ck_assert_ptr_null(prepared);
  ck_assert_int_eq(fl_prepare(op, NULL, &prepared), FL_EINVAL);
  w.d[0] = D - 1;
  ck_assert_int_eq(fl_prepare(op, &w.call, &prepared), FL_EINVAL);
  ck_contains(fl_error_message(), "'weight'");
  w.d[0] = D;
  set_policy(host, (fl_policy_fields){.per_op = &(fl_op_order){.op = "weighted",
                                                               .tokens = (const char *const[]){"impl:none.such"},
                                                               .n_tokens = 1},
                                      .n_per_op = 1,
                                      .per_op_size = sizeof(fl_op_order)});
  ck_assert_int_eq(fl_prepare(op, &w.call, &prepared), FL_ENOIMPL);
  ck_assert_ptr_null(prepared);
}
END_TEST

START_TEST(R1_who_prepares_has_both_functions) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "weighted",
                  .impl_id = "default.half",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = (fl_kernel_fn)(void (*)(void))abort,
                  .prepares = 2};
  ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
  ck_contains(fl_error_message(), "prepares is 0x2, but prepared_size is NULL");
  impl.prepared_size = (size_t(*)(void *, const fl_call *))(void (*)(void))abort;
  ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
  ck_contains(fl_error_message(), "prepares is 0x2, but prepare is NULL");
  impl.size = offsetof(fl_impl, prepares); /* an older plugin's, behind which anything may lie */
  ck_ok(fl_register_impl(host, &impl));
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- misuse */

static void assert_refused(weighted *w, const char *words) {
  ck_assert_int_eq(fl_invoke(op, &w->call), FL_EINVAL);
  ck_contains(fl_error_message(), words);
  ck_assert_int_eq(fl_call_op(host, "weighted", &w->call), FL_EINVAL);
}

START_TEST(another_tensor_is_refused) {
  int64_t wide[] = {1, D}, shape[] = {ROWS, D};
  double doubles[D] = {0};
  weighted w, other;
  begin(&w);
  begin(&other);
  assert_product(&w, 2); /* the form is known */
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  const DLTensor right = w.dl[1];
  w.values[1] = fl_tensor(&other.dl[1]);
  assert_refused(
      &w, "weighted: argument 'weight' is not the tensor that was prepared: it lies elsewhere; prepare this one, "
          "or call without prepared weights");
  w.values[1] = fl_none();
  assert_refused(&w, "'weight' is not the tensor that was prepared: it is none;");
  w.values[1] = fl_tensor(&w.dl[1]);
  w.dl[1].ndim = 2;
  w.dl[1].shape = wide;
  assert_refused(&w, "its shape is [1, 5], not [5];");
  w.dl[1] = right;
  w.dl[1].dtype.bits = 64;
  w.dl[1].data = doubles;
  assert_refused(&w, "its element type is another;");
  w.dl[1] = right;
  w.d[0] = shape[1] = 1;
  w.dl[0].shape = w.dl[2].shape = shape;
  assert_refused(&w, "its shape is [1], not [5];");
  w.d[0] = shape[1] = D;
  w.dl[1] = right;
  w.dl[1].byte_offset = 4;
  assert_refused(&w, "it lies elsewhere;");
  w.dl[1].data = (char *)w.weight - 4; /* at the same place */
  assert_product(&w, 2);
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(other_strides_are_refused) {
  int64_t wide[] = {1, D}, strides[] = {D, 1};
  weighted w;
  begin(&w);
  w.dl[1].ndim = 2;
  w.dl[1].shape = wide;
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  w.dl[1].strides = strides; /* as they are without */
  assert_product(&w, 2);
  strides[0] = D + 1;
  assert_refused(&w, "its strides are others;");
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(another_op_or_host_refuses_it) {
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  fl_op *too = fl_find_op(host, "weighted_too");
  ck_assert_int_eq(fl_invoke(too, &w.call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "weighted_too: the call's prepared weights were made for op 'weighted', expected "
                   "what fl_prepare made for 'weighted_too' here");
  fl_host *first = host;
  load(NULL, 0);
  ck_assert_int_eq(fl_invoke(op, &w.call), FL_EINVAL);
  ck_contains(fl_error_message(), "were made for op 'weighted' of another host, expected");
  fl_prepared_free(w.call.prepared);
  fl_host_destroy(first);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- counting */

START_TEST(what_there_is_is_counted) {
  weighted w;
  const fl_prepared *made[3];
  fl_counters counters = {.size = sizeof counters};
  begin(&w);
  for (int i = 0; i < 3; i++) {
    ck_ok(fl_prepare(op, &w.call, &made[i]));
    ck_assert_uint_eq(made[i]->bytes, D * sizeof(float));
    ck_assert_uint_eq(fl_prepared_bytes(host), (uint64_t)(i + 1) * D * sizeof(float));
  }
  fl_prepared_free(made[1]); /* in the midst of the others */
  ck_ok(fl_get_counters(host, "weighted", "default.flagos", &counters));
  ck_assert_uint_eq(counters.prepared, 2);
  ck_assert_uint_eq(counters.prepared_bytes, 2 * D * sizeof(float));
  ck_ok(fl_get_counters(host, "weighted", "reference.c", &counters));
  ck_assert_uint_eq(counters.prepared, 0);
  ck_assert_uint_eq(counters.prepared_bytes, 0);
  fl_prepared_free(made[2]);
  fl_prepared_free(made[0]);
  ck_assert_uint_eq(fl_prepared_bytes(host), 0);
  ck_ok(fl_prepare(op, &w.call, &made[0])); /* left to the host: valgrind and the address sanitizer see that it ends */
}
END_TEST

START_TEST(it_says_whose_it_is_and_of_which_arguments) {
  weighted w;
  fl_prepared_info info = {.size = sizeof info};
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_ok(fl_get_prepared_info(w.call.prepared, &info));
  ck_assert_str_eq(info.impl_id, "default.flagos");
  ck_assert_uint_eq(info.bytes, D * sizeof(float));
  ck_assert_uint_eq(info.arguments, 2);
  fl_prepared_free(w.call.prepared);
  choose("vendor.beyond");
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_ok(fl_get_prepared_info(w.call.prepared, &info));
  ck_assert_str_eq(info.impl_id, "vendor.beyond");
  ck_assert_uint_eq(info.arguments, 3);
  info.size--;
  ck_assert_int_eq(fl_get_prepared_info(w.call.prepared, &info), FL_EINVAL);
  ck_contains(fl_error_message(), "set .size = sizeof(fl_prepared_info)");
  fl_prepared_free(w.call.prepared);
  ck_assert_int_eq(fl_get_prepared_info(w.call.prepared, NULL), FL_EINVAL);
  info.size++;
  ck_assert_int_eq(fl_get_prepared_info(NULL, &info), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_get_prepared_info: prepared is NULL, expected what fl_prepare made");
}
END_TEST

START_TEST(who_prepares_is_shown) {
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "weighted", kDLCPU, &explanation));
  int n = 0;
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    bool prepares = strcmp(impl->impl_id, "reference.c") != 0;
    ck_each(impl->prepares == prepares, "%s: %d", impl->impl_id, impl->prepares);
    n += prepares;
  }
  ck_assert_int_gt(n, 5);
  fl_explanation_free(explanation);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      const fl_impl_info *info = fl_snapshot_impl(snapshot, i, j);
      if (!strcmp(info->impl_id, "default.flagos"))
        ck_assert_uint_eq(info->prepares, 2);
      if (!strcmp(info->impl_id, "reference.c"))
        ck_assert_uint_eq(info->prepares, 0);
    }
  fl_snapshot_release(snapshot);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- lifetime */

START_TEST(it_outlives_its_plugin) {
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  ck_ok(fl_withdraw_plugin(host, "prepares"));
  ck_assert_int_eq(fl_invoke(op, &w.call), FL_ENOIMPL);
  ck_assert_uint_eq(fl_prepared_bytes(host), D * sizeof(float));
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/plugins/prepares.so", build_dir());
  ck_ok(fl_load_plugin(host, path));
  set_weight(&w, 3);
  assert_product(&w, 2); /* the same functions */
  fl_prepared_free(w.call.prepared);
}
END_TEST

START_TEST(a_forked_child_uses_it) {
  weighted w;
  int status = 0;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  set_weight(&w, 3);
  pid_t child = fork();
  if (!child) {
    const fl_prepared *own = NULL;
    bool good = !fl_invoke(op, &w.call) && w.out[0][0] == 2 && !fl_prepare(op, &w.call, &own) && own &&
                fl_prepared_bytes(host) == 2 * D * sizeof(float);
    fl_prepared_free(own);
    fl_prepared_free(w.call.prepared);
    _exit(good && !fl_prepared_bytes(host) ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
  assert_product(&w, 2);
  fl_prepared_free(w.call.prepared);
}
END_TEST

/* Calls with the one, and prepares others meanwhile. */
static void *call_often(void *user) {
  const weighted *shared = user;
  weighted w;
  begin(&w);
  w.values[1] = shared->values[1];
  for (int i = 0; i < rounds(2000); i++) {
    w.call.prepared = shared->call.prepared;
    assert_product(&w, 2);
    if (i % 10 == 0) {
      ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
      fl_prepared_free(w.call.prepared);
      ck_assert_uint_ge(fl_prepared_bytes(host), D * sizeof(float));
    }
  }
  return NULL;
}

START_TEST(threads_share_it) {
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  weighted w;
  begin(&w);
  ck_ok(fl_prepare(op, &w.call, &w.call.prepared));
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, &w), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  ck_assert_uint_eq(fl_prepared_bytes(host), D * sizeof(float));
  fl_prepared_free(w.call.prepared);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_call_uses_what_was_made_of_the_weight);
  tcase_add_test(tests, other_implementations_use_the_weight_itself);
  tcase_add_test(tests, a_fallback_uses_the_weight_itself);
  tcase_add_test(tests, the_first_that_takes_the_call_prepares);
  tcase_add_test(tests, what_is_no_weight_may_be_another_in_each_call);
  tcase_add_test(tests, a_call_in_a_scope_uses_it);
  tcase_add_test(tests, a_shorter_call_has_none);
  tcase_add_test(tests, canary_mode_finds_a_weight_that_was_not_prepared_again);
  tcase_add_test(tests, where_nothing_is_prepared_there_is_none);
  tcase_add_loop_test(tests, who_fails_at_preparing_is_called_without, 0, sizeof bad / sizeof *bad);
  tcase_add_test(tests, the_callers_call_stays_as_it_was);
  tcase_add_test(tests, arguments_that_there_are_not_are_left_out);
  tcase_add_test(tests, a_bad_call_prepares_nothing);
  tcase_add_test(tests, R1_who_prepares_has_both_functions);
  tcase_add_test(tests, another_tensor_is_refused);
  tcase_add_test(tests, other_strides_are_refused);
  tcase_add_test(tests, another_op_or_host_refuses_it);
  tcase_add_test(tests, what_there_is_is_counted);
  tcase_add_test(tests, it_says_whose_it_is_and_of_which_arguments);
  tcase_add_test(tests, who_prepares_is_shown);
  tcase_add_test(tests, it_outlives_its_plugin);
  tcase_add_test(tests, a_forked_child_uses_it);
  tcase_add_test(tests, threads_share_it);
}

int main(void) {
  return run_suite("prepared", add_tests, 60);
}
