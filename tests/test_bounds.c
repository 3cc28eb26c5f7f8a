/*
 * Memory stays bounded, however often policies, scopes, implementations and threads come and go while others call: a
 * million times each. Each call is also held against the policies that were in force while it ran.
 *
 * What waits to be freed is looked at in the host itself, so that the bound shows under every tool. The process's
 * resident memory is looked at where the allocator is the C library's.
 */
#include "fixture.h"

#include "core/call/scope.h"
#include "core/registry.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { MILLION = 1000000, IMPLS = 16, CALLERS = 2 };

/* As thread.c and scope.c have it: thousands that wait, and a batch that a change adds before it looks. */
enum { WAITING_MOST = 4096 + 2 * 64, VIEWS_MOST = 32 };

static void sleep_ms(long ms) {
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ------------------------------------------------------------------------------------------------ what is in force */

/*
 * Policy number n lets implementation n % IMPLS run and no other. Numbers from `last_set`, read before a call, to
 * `next`, read after it, were in force while it ran.
 */
typedef struct state {
  fl_host *host;
  fl_op *op;
  char ids[IMPLS][32];
  _Atomic long last_set, next;
  _Atomic bool stop;
  _Atomic long calls, told_apart, wrong, errors;
  _Atomic bool entered, released; /* of the kernel that waits */
} state;

static fl_status run(void *self, fl_call *call) {
  call->values[1] = fl_string(self);
  return FL_OK;
}

static void register_one(state *s, const char *id, int32_t priority, fl_kernel_fn fn, void *self) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "op",
                  .impl_id = id,
                  .kind = FL_KIND_DEFAULT,
                  .priority = priority,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = fn,
                  .self = self};
  ck_ok(fl_register_impl(s->host, &impl));
}

static fl_policy *policy_number(long n) {
  char token[40], vendor[40];
  const char *tokens[] = {token}, *const vendors[] = {vendor};
  fl_policy *policy = NULL;
  fl_policy_fields fields = {
      .size = sizeof fields,
      .per_op = &(fl_op_order){"op", tokens, 1},
      .n_per_op = 1,
      .per_op_size = sizeof(fl_op_order),
      .deny_vendors = vendors, /* a name that was never there before */
      .n_deny_vendors = 1,
  };
  snprintf(token, sizeof token, "impl:default.%ld", n % IMPLS);
  snprintf(vendor, sizeof vendor, "vendor_%ld", n);
  if (fl_policy_create(&fields, &policy))
    ck_abort_msg("%s", fl_error_message());
  return policy;
}

static void set_number(state *s, long n) {
  fl_policy *policy = policy_number(n);
  s->next = n;
  ck_each(fl_set_global_policy(s->host, policy) == FL_OK, "%s", fl_error_message());
  s->last_set = n;
  fl_policy_release(policy);
}

/* op(Tensor x) -> str out */
static void find_op(state *s) {
  fl_op_def op = {.size = sizeof op, .schema = "op(Tensor x) -> str out"};
  ck_ok(fl_register_op(s->host, &op));
  s->op = fl_find_op(s->host, "op");
}

/* What ran; NULL: the call failed. */
static const char *ran(const state *s) {
  int64_t shape[] = {1};
  float data[] = {0};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  fl_value values[] = {fl_tensor(&x), fl_none()};
  fl_call call = FL_CALL(values);
  return fl_invoke(s->op, &call) ? NULL : values[1].v.s;
}

static void *caller(void *argument) {
  state *s = argument;
  while (!s->stop) {
    long first = s->last_set;
    const char *id = ran(s);
    long last = s->next;
    s->calls++;
    s->told_apart += last - first < IMPLS - 1;
    if (!id) {
      s->errors++;
      continue;
    }
    bool allowed = last - first >= IMPLS - 1;
    for (long n = first; n <= last && !allowed; n++)
      allowed = id == s->ids[n % IMPLS];
    s->wrong += !allowed;
  }
  return NULL;
}

static state *start(pthread_t threads[CALLERS]) {
  state *s = calloc(1, sizeof *s);
  s->host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, FL_HOST_STATISTICS);
  find_op(s);
  for (int i = 0; i < IMPLS; i++) {
    snprintf(s->ids[i], sizeof s->ids[i], "default.%d", i);
    register_one(s, s->ids[i], 0, run, s->ids[i]);
  }
  set_number(s, 0);
  for (int i = 0; i < CALLERS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, caller, s), 0);
  return s;
}

static void finish(state *s, pthread_t threads[CALLERS]) {
  s->stop = true;
  for (int i = 0; i < CALLERS; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(s->errors, 0);
  ck_assert_int_eq(s->wrong, 0);
  ck_assert_int_gt(s->told_apart, 0);
  fl_host_destroy(s->host);
  free(s);
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Only the C library's allocator gives memory back when it is freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OWN_ALLOCATOR = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { OWN_ALLOCATOR = 1 };
#else
enum { OWN_ALLOCATOR = 0 };
#endif
#else
enum { OWN_ALLOCATOR = 0 };
#endif

/* Rounds of that many; fewer where each takes long. */
static long repeat(int n) {
  return rounds(OWN_ALLOCATOR || is_sparse() ? n / 20 : n);
}

static long resident_bytes(void) {
  long size, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%ld %ld", &size, &resident), 2);
  fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

/* Most of what was seen while something was done often. */
typedef struct watched {
  long warm, most; /* resident */
  uint32_t waiting, views;
} watched;

/* Scopes' bindings that are kept; with the host's lock. */
static uint32_t count_views(const fl_host *host) {
  uint32_t n = 0;
  for (const fl_view *view = host->views; view; view = view->next)
    n++;
  return n;
}

/* `round` of `total`: the first twentieth warms up. */
static void watch(watched *w, fl_host *host, long round, long total) {
  pthread_mutex_lock(&host->lock);
  uint32_t waiting = host->retired.n, views = count_views(host);
  pthread_mutex_unlock(&host->lock);
  w->waiting = waiting > w->waiting ? waiting : w->waiting;
  w->views = views > w->views ? views : w->views;
  if (round % (total / 100 + 1) || round < total / 20)
    return;
  long now = resident_bytes();
  w->warm = w->warm ? w->warm : now;
  w->most = now > w->most ? now : w->most;
}

static void check_bounded(const watched *w) {
  enum { SLACK = 4 << 20 };
  ck_assert_uint_le(w->waiting, WAITING_MOST);
  ck_assert_uint_le(w->views, VIEWS_MOST);
  if (!OWN_ALLOCATOR && !is_sparse())
    ck_assert_msg(w->most <= w->warm + SLACK, "resident memory grew from %ld to %ld bytes", w->warm, w->most);
}

/* ------------------------------------------------------------------------------------------------------------ tests */

START_TEST(P6_a_million_global_policies_leave_no_memory_behind) {
  pthread_t threads[CALLERS];
  state *s = start(threads);
  watched w = {0};
  long total = repeat(MILLION);
  for (long n = 1; n <= total; n++) {
    set_number(s, n);
    if (n % 8 == 0)
      ck_each(ran(s) == s->ids[n % IMPLS], "the policy that was just set is not in force: number %ld", n);
    watch(&w, s->host, n, total);
  }
  check_bounded(&w);
  finish(s, threads);
}
END_TEST

START_TEST(P5_a_million_scopes_with_ever_new_policies_leave_no_memory_behind) {
  pthread_t threads[CALLERS];
  state *s = start(threads);
  watched w = {0};
  long total = repeat(MILLION);
  for (long n = 1; n <= total; n++) {
    fl_policy *policy = policy_number(n);
    fl_scope scope;
    ck_each(fl_scope_enter(s->host, policy, &scope) == FL_OK, "%s", fl_error_message());
    fl_policy_release(policy);
    ck_each(ran(s) == s->ids[n % IMPLS], "the scope's policy is not in force: number %ld", n);
    ck_each(fl_scope_leave(&scope) == FL_OK, "%s", fl_error_message());
    watch(&w, s->host, n, total);
  }
  check_bounded(&w);
  finish(s, threads);
}
END_TEST

START_TEST(D6_implementations_that_come_and_go_leave_no_memory_behind) {
  pthread_t threads[CALLERS];
  state *s = start(threads);
  watched w = {0};
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, FL_HOST_STATISTICS);
  state other = {.host = host};
  long total = repeat(50000);
  find_op(&other);
  for (long n = 1; n <= total; n++) {
    char id[40];
    snprintf(id, sizeof id, "default.late_%ld", n);
    register_one(&other, id, 0, run, id);
    ck_each(ran(&other) == id, "what was just registered does not run");
    ck_each(fl_withdraw_plugin(host, "engine") == FL_OK, "%s", fl_error_message());
    watch(&w, host, n, total);
  }
  check_bounded(&w);
  fl_host_destroy(host);
  finish(s, threads);
}
END_TEST

static void *call_once(void *argument) {
  return (void *)ran(argument);
}

START_TEST(threads_that_come_and_go_leave_no_memory_behind) {
  pthread_t threads[CALLERS];
  state *s = start(threads);
  watched w = {0};
  long total = repeat(10000);
  for (long n = 1; n <= total; n++) {
    pthread_t thread;
    void *id = NULL;
    ck_each(!pthread_create(&thread, NULL, call_once, s) && !pthread_join(thread, &id) && id, "no thread, or no call");
    watch(&w, s->host, n, total);
  }
  check_bounded(&w);
  finish(s, threads);
}
END_TEST

START_TEST(views_of_many_scopes_at_once_are_let_go) {
  enum { DEEP = 500 };
  static fl_scope scopes[DEEP];
  pthread_t threads[CALLERS];
  state *s = start(threads);
  for (int i = 0; i < DEEP; i++) {
    fl_policy *policy = policy_number(i);
    ck_ok(fl_scope_enter(s->host, policy, &scopes[i]));
    fl_policy_release(policy);
    ck_assert_ptr_eq(ran(s), s->ids[i % IMPLS]);
  }
  for (int i = DEEP; i-- > 0;) {
    ck_assert_ptr_eq(ran(s), s->ids[i % IMPLS]);
    ck_ok(fl_scope_leave(&scopes[i]));
  }
  pthread_mutex_lock(&s->host->lock);
  uint32_t views = count_views(s->host);
  pthread_mutex_unlock(&s->host->lock);
  ck_assert_uint_le(views, VIEWS_MOST);
  while (!s->calls) /* a busy machine: the callers have not begun */
    sleep_ms(1);
  finish(s, threads);
}
END_TEST

/* ------------------------------------------------------------------------------------------- while a call goes on */

static fl_status wait_inside(void *self, fl_call *call) {
  state *s = self;
  s->entered = true;
  while (!s->released)
    sleep_ms(1);
  call->values[1] = fl_string("default.waits");
  return FL_OK;
}

static void change_policy(state *s, long n) {
  set_number(s, n);
}

static void reset_policy(state *s, long n) {
  (void)n;
  ck_each(fl_reset_global_policy(s->host) == FL_OK, "%s", fl_error_message());
}

static void bump_epoch(state *s, long n) {
  (void)n;
  fl_bump_policy_epoch(s->host);
}

static fl_status always_fails(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EDEVICE, "as ever");
}

static void clear_failures(state *s, long n) {
  (void)n;
  fl_clear_failed_impls(s->host, NULL);
}

static const struct change {
  const char *name;
  void (*make)(state *s, long n);
} changes[] = {{"fl_set_global_policy", change_policy},
               {"fl_reset_global_policy", reset_policy},
               {"fl_bump_policy_epoch", bump_epoch},
               {"fl_clear_failed_impls", clear_failures}};
enum { N_CHANGES = sizeof changes / sizeof changes[0], CHANGES = WAITING_MOST + 1000 };

typedef struct changer {
  state *s;
  const struct change *change;
  watched w;
  _Atomic long done;
} changer;

static void *make_changes(void *argument) {
  changer *c = argument;
  for (long n = 1; n <= CHANGES; n++) {
    c->change->make(c->s, n);
    ran(c->s);
    watch(&c->w, c->s->host, n, CHANGES);
    c->done = n;
  }
  return NULL;
}

/* Whoever changes waits for the call; nobody else does. */
START_TEST(changes_wait_for_a_call_that_does_not_end_rather_than_pile_up) {
  state *s = calloc(1, sizeof *s);
  changer c = {.s = s, .change = &changes[_i]};
  pthread_t inside, changing;
  s->host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, 0);
  find_op(s);
  register_one(s, "default.waits", 1, wait_inside, s);
  ck_assert_int_eq(pthread_create(&inside, NULL, caller, s), 0);
  while (!s->entered)
    sleep_ms(1);
  s->stop = true;
  for (int i = 0; i < IMPLS; i++) {
    snprintf(s->ids[i], sizeof s->ids[i], "default.%d", i);
    register_one(s, s->ids[i], 0, run, s->ids[i]);
  }
  register_one(s, "default.fails", 200, always_fails, NULL); /* the first where no order says otherwise */
  ck_assert_int_eq(pthread_create(&changing, NULL, make_changes, &c), 0);
  /* It gets so far and no further. */
  for (long before = -1; c.done < CHANGES && c.done != before; sleep_ms(300))
    before = c.done;
  ck_assert_msg(c.done < CHANGES, "%s never waited", c.change->name);
  s->released = true;
  pthread_join(changing, NULL);
  pthread_join(inside, NULL);
  ck_assert_int_eq(c.done, CHANGES);
  ck_assert_uint_le(c.w.waiting, WAITING_MOST);
  fl_host_destroy(s->host);
  free(s);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, P6_a_million_global_policies_leave_no_memory_behind);
  tcase_add_test(tests, P5_a_million_scopes_with_ever_new_policies_leave_no_memory_behind);
  tcase_add_test(tests, D6_implementations_that_come_and_go_leave_no_memory_behind);
  tcase_add_test(tests, threads_that_come_and_go_leave_no_memory_behind);
  tcase_add_test(tests, views_of_many_scopes_at_once_are_let_go);
  tcase_add_loop_test(tests, changes_wait_for_a_call_that_does_not_end_rather_than_pile_up, 0, N_CHANGES);
}

int main(void) {
  return run_suite("bounds", add_tests, 120);
}
