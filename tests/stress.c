/*
 * Everything at once: threads call ops, in scopes and outside, while others load and withdraw plugins, register and
 * withdraw implementations of the engine's own, change the policy, let implementations fail and recover, look at all of
 * it, and fork. `make check-stress` runs it under the thread sanitizer.
 *
 *     stress [--seconds N] [--seed N] [--no-membarrier]
 *
 * Odd seeds check arguments, even ones do not; every other two count calls. --no-membarrier: as where the kernel has no
 * membarrier(2), so that threads fence by themselves.
 *
 * Each call is held against what was true while it ran. An implementation leaves its id in the result; who changes
 * something publishes a number before and after, and a call between two numbers may have seen whatever lies between
 * them. Prints how often each thing was done; exits 1 with what went wrong, or when an invariant was never looked at.
 */
#include "tests/plugins/stress.h"

#include <dlfcn.h>
#include <errno.h>
#include <flhost/flhost.h>
#include <getopt.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifndef WITH_TSAN
#define WITH_TSAN 0
#endif
#if WITH_TSAN || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* The thread sanitizer cannot start a thread in the child of a process that had several. And where another thread held
 * a lock of the sanitizer's own allocator, a child waits for it for ever. */
enum { CHILD_STARTS_THREADS = !WITH_TSAN, CHILD_SECONDS = SANITIZED ? 5 : 60 };

/* The numbers that this program keeps must not order what the host does: that would hide races from the sanitizer. */
enum { LOOK = WITH_TSAN ? memory_order_relaxed : memory_order_acquire };

static void add(_Atomic long *n, long more) {
  atomic_fetch_add_explicit(n, more, memory_order_relaxed);
}

static long get(const _Atomic long *n) {
  return atomic_load_explicit(n, LOOK);
}

/* Seconds of a clock that only goes forward. */
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------------------------------- the report */

typedef enum invariant { ALLOWED, LIVE, LEFT, SUPPORTED, ANSWERED, AGAIN, LISTED, CHILD, N_INVARIANTS } invariant;

static struct {
  const char *text;
  _Atomic long looked;
  _Atomic bool violated;
} invariants[N_INVARIANTS] = {
    [ALLOWED] = {.text = "what ran was allowed by a policy in force"},
    [LIVE] = {.text = "what ran belonged to a plugin that was not withdrawn"},
    [LEFT] = {.text = "no call is inside a plugin when it has been withdrawn"},
    [SUPPORTED] = {.text = "what ran supports the arguments, and answered this call"},
    [ANSWERED] = {.text = "a call fails only where a policy in force lets it"},
    [AGAIN] = {.text = "what failed is tried again after its back-off"},
    [LISTED] = {.text = "lists are whole: what is unavailable has a reason"},
    [CHILD] = {.text = "ops can be called in the child of a fork"},
};

typedef enum kind {
  CALLS,
  TOLD_APART,
  IN_SCOPES,
  THREADS,
  POLICIES,
  RESETS,
  EPOCHS,
  LOADED,
  WITHDRAWN,
  FAILURES,
  CLEARED,
  FORKS,
  HELD_UP,
  N_KINDS
} kind;
static struct {
  const char *text;
  _Atomic long n;
} counts[N_KINDS] = {
    [CALLS] = {.text = "calls"},
    [TOLD_APART] = {.text = "of these, some implementation was not allowed"},
    [IN_SCOPES] = {.text = "calls in scopes"},
    [THREADS] = {.text = "threads that called and ended"},
    [POLICIES] = {.text = "global policies set"},
    [RESETS] = {.text = "global policies reset"},
    [EPOCHS] = {.text = "epochs bumped"},
    [LOADED] = {.text = "plugins loaded, engine's implementations registered"},
    [WITHDRAWN] = {.text = "plugins and the engine's implementations withdrawn"},
    [FAILURES] = {.text = "failures logged"},
    [CLEARED] = {.text = "failures cleared"},
    [FORKS] = {.text = "forks"},
    [HELD_UP] = {.text = "of these, held up by the sanitizer's allocator"},
};

static _Atomic bool stop;

static bool goes_on(void) {
  return !atomic_load_explicit(&stop, memory_order_relaxed);
}

static void count(kind which) {
  add(&counts[which].n, 1);
}

static void looked(invariant which) {
  add(&invariants[which].looked, 1);
}

static void violate(invariant which, const char *format, ...) FL_PRINTF(2, 3);
static void violate(invariant which, const char *format, ...) {
  va_list arguments;
  char text[1024];
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!atomic_exchange(&invariants[which].violated, true)) /* the first of each kind tells enough */
    fprintf(stderr, "violated: %s: %s\n", invariants[which].text, text);
  stop = true;
}

/* Where each thread is: a call that does not end is told from one that is waited for in vain. Twice, to see who moves.
 */
static void show_threads(void) {
  for (int i = 0; i < 2; i++) {
    struct timespec day;
    clock_gettime(CLOCK_REALTIME, &day);
    fprintf(stderr, "at %.3f s, of the day %.3f s: thread, state, ticks of its own and of the kernel, system call\n",
            now(), (double)day.tv_sec + (double)day.tv_nsec * 1e-9);
    fflush(stderr);
    if (system(
            "cd /proc/$PPID/task && for t in *; do sed 's/.*) //' $t/stat | { read -r state _ _ _ _ _ _ _ _ _ _ user "
            "kernel _; echo \"$t $state $user $kernel $(cat $t/syscall $t/wchan)\"; }; done >&2"))
      return;
    sleep(1);
  }
}

/* Nothing here can go on without it. */
static void need(bool condition, const char *what) {
  if (condition)
    return;
  fprintf(stderr, "stress: %s: %s\n", what, fl_error_message());
  if (fl_error_status() == FL_ESTATE)
    show_threads();
  _exit(1); /* other threads are at work */
}

/* ---------------------------------------------------------------------------------------------- what is in force */

/* Implementations, each of a plugin of its own. */
typedef enum impl { ENGINE, ACME, BOLT, EVEN, REFERENCE, N_IMPLS } impl;
enum { ALL = (1 << N_IMPLS) - 1 };
#define ONLY(impl) (1u << (impl))

typedef struct source {
  const char *id, *plugin;
  /* Odd: registered, or about to be. Even: withdrawn, and fl_withdraw_plugin has returned. */
  _Atomic long state;
  stress_control *control;
} source;

static stress_control engine_control;
static source sources[N_IMPLS] = {
    [ENGINE] = {"default.engine", "engine", 0, &engine_control},
    [ACME] = {"vendor.acme", "stress_acme", 0, NULL},
    [BOLT] = {"vendor.bolt", "stress_bolt", 0, NULL},
    [EVEN] = {"vendor.even", "stress_even", 0, NULL},
    [REFERENCE] = {"reference.stress", "stress_reference", 0, NULL},
};

/* Policies, and what each lets run. The reference is never withdrawn, and never fails. */
static const struct rule {
  const char *prefer, *deny, *allow, *order[3];
  bool strict;
  unsigned allowed;
} rules[] = {
    {.prefer = "flagos", .allowed = ALL}, /* as the settings have it */
    {.prefer = "vendor", .allowed = ALL},
    {.prefer = "reference", .allowed = ONLY(REFERENCE)},
    {.prefer = "vendor", .deny = "acme", .allowed = ALL & ~ONLY(ACME)},
    {.prefer = "flagos", .allow = "bolt", .allowed = ONLY(ENGINE) | ONLY(BOLT) | ONLY(REFERENCE)},
    {.order = {"impl:vendor.acme", "reference"}, .allowed = ONLY(ACME) | ONLY(REFERENCE)},
    {.order = {"vendor:even", "vendor:bolt"}, .allowed = ONLY(EVEN) | ONLY(BOLT)},
    {.prefer = "vendor", .strict = true, .allowed = ALL},
};
enum { N_RULES = sizeof rules / sizeof rules[0], REMEMBERED = 1 << 16 };

/* May a call fail under it? Otherwise the reference takes over whatever happens. */
static bool may_fail(const struct rule *rule) {
  return rule->strict || !(rule->allowed & ONLY(REFERENCE));
}

/* Global policies are numbered; `set` is the last that was in force for certain, `next` the last that may have been. */
static _Atomic unsigned char rule_of[REMEMBERED];
static _Atomic long set, next;

static const char *const op_names[STRESS_OPS] = {"stress_0", "stress_1", "stress_2"};

/* One that was never there before: a vendor of a new name is denied, too. */
static fl_policy *make_policy(const struct rule *rule, long n) {
  char fresh[32];
  const char *const deny[] = {fresh, rule->deny}, *const allow[] = {rule->allow};
  fl_op_order orders[STRESS_OPS];
  fl_policy *policy = NULL;
  fl_policy_fields fields = {.size = sizeof fields,
                             .prefer = rule->prefer,
                             .strict = rule->strict,
                             .deny_vendors = deny,
                             .n_deny_vendors = rule->deny ? 2 : 1,
                             .allow_vendors = rule->allow ? allow : NULL,
                             .n_allow_vendors = rule->allow ? 1 : 0,
                             .per_op = orders,
                             .n_per_op = rule->order[0] ? STRESS_OPS : 0,
                             .per_op_size = sizeof(fl_op_order)};
  snprintf(fresh, sizeof fresh, "vendor_%ld", n);
  for (int i = 0; i < STRESS_OPS; i++)
    orders[i] = (fl_op_order){op_names[i], rule->order, rule->order[1] ? 2 : 1};
  need(!fl_policy_create(&fields, &policy), "fl_policy_create");
  return policy;
}

static fl_host *host;
static fl_op *ops[STRESS_OPS];
static unsigned seed = 1;

/* A thread's own random numbers. */
typedef struct dice {
  uint64_t state;
} dice;

static dice new_dice(void) {
  static _Atomic uint64_t made;
  uint64_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
  return (dice){(seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + number * UINT64_C(0xbf58476d1ce4e5b9)};
}

static unsigned roll(dice *d, unsigned sides) {
  d->state ^= d->state << 13;
  d->state ^= d->state >> 7;
  d->state ^= d->state << 17;
  return (unsigned)(d->state >> 32) % sides;
}

static void rest(dice *d, unsigned most_us) {
  nanosleep(&(struct timespec){.tv_nsec = roll(d, most_us) * 1000L}, NULL);
}

/* --------------------------------------------------------------------------------------------------------- one call */

/* What was true before a call. */
typedef struct before {
  long set, states[N_IMPLS];
} before;

static before look(void) {
  before b;
  b.set = get(&set);
  for (int i = 0; i < N_IMPLS; i++)
    b.states[i] = get(&sources[i].state);
  return b;
}

/* All that policies let run that were in force since; and may the call fail? */
static unsigned allowed_since(const before *b, bool *fails) {
  long last = get(&next);
  unsigned allowed = 0;
  *fails = last - b->set >= REMEMBERED / 2; /* so many that none can be told */
  if (*fails)
    return ALL;
  for (long n = b->set; n <= last; n++) {
    const struct rule *rule = &rules[atomic_load_explicit(&rule_of[n % REMEMBERED], memory_order_relaxed)];
    allowed |= rule->allowed;
    *fails = *fails || may_fail(rule);
  }
  return allowed;
}

static impl impl_of(const char *id) {
  int i = 0;
  while (i < N_IMPLS && strcmp(sources[i].id, id))
    i++;
  return (impl)i;
}

/* Calls an op under a scope's rule, or (NULL) the global policy's, and looks at the answer. */
static void call_one(dice *d, const struct rule *scope, unsigned scope_denies) {
  bool fails;
  int64_t tag = roll(d, 1000);
  int64_t shape[] = {1};
  float data[] = {0};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  fl_value values[STRESS_VALUES] = {fl_tensor(&x), fl_int(tag), fl_none(), fl_none()};
  fl_call call = FL_CALL(values);
  before b = look();
  fl_status status = fl_invoke(ops[roll(d, STRESS_OPS)], &call);
  unsigned allowed = allowed_since(&b, &fails);
  if (scope) {
    allowed = scope->allowed & ~scope_denies;
    fails = may_fail(scope);
    count(IN_SCOPES);
  }
  count(CALLS);
  if (allowed != ALL)
    count(TOLD_APART);
  looked(ANSWERED);
  if (status) {
    if (!fails)
      violate(ANSWERED, "%s: %s", fl_status_name(status), fl_error_message());
    return;
  }
  impl ran = values[STRESS_RAN].type == FL_STRING ? impl_of(values[STRESS_RAN].v.s) : N_IMPLS;
  looked(SUPPORTED);
  if (ran == N_IMPLS || values[STRESS_ECHO].v.i != tag || (ran == EVEN && tag % 2)) {
    violate(SUPPORTED, "%s answered %lld for %lld", ran == N_IMPLS ? "nobody" : sources[ran].id,
            (long long)values[STRESS_ECHO].v.i, (long long)tag);
    return;
  }
  looked(ALLOWED);
  if (!(allowed & ONLY(ran)))
    violate(ALLOWED, "%s ran%s; allowed was 0x%x", sources[ran].id, scope ? " in a scope" : "", allowed);
  looked(LIVE);
  if (b.states[ran] % 2 == 0 && b.states[ran] == get(&sources[ran].state))
    violate(LIVE, "%s ran", sources[ran].id);
}

/* ---------------------------------------------------------------------------------------------------------- threads */

static void *caller(void *argument) {
  dice d = new_dice();
  while (goes_on())
    call_one(&d, NULL, 0);
  return argument;
}

/* Calls in a scope, sometimes in one within that. */
static void call_in_scope(dice *d) {
  static const char *const acme[] = {"acme"};
  static _Atomic long made;
  const struct rule *rule = &rules[roll(d, N_RULES)];
  fl_policy *policy = make_policy(rule, -1 - atomic_fetch_add_explicit(&made, 1, memory_order_relaxed));
  fl_scope outer, inner;
  need(!fl_scope_enter(host, policy, &outer), "fl_scope_enter");
  fl_policy_release(policy);
  for (unsigned i = roll(d, 20); i-- && goes_on();)
    call_one(d, rule, 0);
  if (roll(d, 2)) {
    need(!fl_scope_deny_vendors(host, acme, 1, &inner), "fl_scope_deny_vendors");
    for (unsigned i = roll(d, 20); i-- && goes_on();)
      call_one(d, rule, ONLY(ACME));
    need(!fl_scope_leave(&inner), "fl_scope_leave");
  }
  need(!fl_scope_leave(&outer), "fl_scope_leave");
}

static void *call_and_end(void *argument) {
  dice d = new_dice();
  for (unsigned i = roll(&d, 50); i-- && goes_on();)
    call_in_scope(&d);
  for (unsigned i = roll(&d, 50); i-- && goes_on();)
    call_one(&d, NULL, 0);
  return argument;
}

static void *scoped_caller(void *argument) {
  dice d = new_dice();
  while (goes_on()) {
    pthread_t thread;
    need(!pthread_create(&thread, NULL, call_and_end, NULL), "pthread_create");
    for (unsigned i = roll(&d, 100); i-- && goes_on();)
      call_in_scope(&d);
    pthread_join(thread, NULL);
    count(THREADS);
  }
  return argument;
}

static void set_policy(unsigned rule) {
  long n = set + 1;
  rule_of[n % REMEMBERED] = (unsigned char)rule;
  next = n;
  if (rule) {
    fl_policy *policy = make_policy(&rules[rule], n);
    need(!fl_set_global_policy(host, policy), "fl_set_global_policy");
    fl_policy_release(policy);
  } else {
    need(!fl_reset_global_policy(host), "fl_reset_global_policy");
  }
  set = n;
  count(rule ? POLICIES : RESETS);
}

static void bump_epoch(void) {
  fl_bump_policy_epoch(host);
  count(EPOCHS);
}

static void *policy_changer(void *argument) {
  dice d = new_dice();
  while (goes_on()) {
    unsigned what = roll(&d, 2 * N_RULES);
    if (what < N_RULES)
      set_policy(what);
    else if (what == N_RULES)
      bump_epoch();
    else
      rest(&d, 300);
  }
  return argument;
}

static fl_status run_of_engine(void *self, fl_call *call) {
  source *s = *(source **)self; /* freed as soon as it is withdrawn */
  return stress_run(s->control, s->id, call);
}

static const char *plugin_path(const char *plugin) {
  static _Thread_local char path[512];
  const char *build = getenv("FLHOST_BUILD");
  snprintf(path, sizeof path, "%s/tests/plugins/%s.so", build ? build : "build", plugin);
  return path;
}

static source **engine_self;

static fl_status bring(impl which) {
  fl_status status = FL_OK;
  if (which != ENGINE)
    return fl_load_plugin(host, plugin_path(sources[which].plugin));
  engine_self = malloc(sizeof *engine_self);
  need(engine_self != NULL, "malloc");
  *engine_self = &sources[ENGINE];
  for (int i = 0; i < STRESS_OPS && !status; i++) {
    fl_impl record = {.size = sizeof record,
                      .op_name = op_names[i],
                      .impl_id = sources[ENGINE].id,
                      .kind = FL_KIND_DEFAULT,
                      .devices = FL_DEVICE_ANY,
                      .fn = run_of_engine,
                      .self = engine_self};
    status = fl_register_impl(host, &record);
  }
  return status;
}

/* Brings what is not there and takes away what is. Each implementation is one thread's. */
static void turn(impl which) {
  source *s = &sources[which];
  if (s->state % 2 == 0) {
    s->state++;
    need(!bring(which), "loading");
    count(LOADED);
    return;
  }
  need(!fl_withdraw_plugin(host, s->plugin), "fl_withdraw_plugin");
  s->state++;
  count(WITHDRAWN);
  looked(LEFT);
  long inside = s->control->inside;
  if (inside)
    violate(LEFT, "%ld in %s", inside, s->plugin);
  if (which == ENGINE) {
    *engine_self = NULL;
    free(engine_self);
    engine_self = NULL;
  }
}

static void *registrar(void *argument) {
  dice d = new_dice();
  const impl *own = argument;
  while (goes_on()) {
    turn(own[roll(&d, 2)]);
    rest(&d, 500);
  }
  return argument;
}

/* Lets one fail, or be absent, for a while. */
static void *failer(void *argument) {
  dice d = new_dice();
  while (goes_on()) {
    stress_control *control = sources[roll(&d, REFERENCE)].control;
    _Atomic int *fails = &control->fails;
    if (roll(&d, 4)) {
      *fails = 1 + (int)roll(&d, 20);
    } else {
      control->absent = true;
      bump_epoch();
    }
    rest(&d, 20000);
    *fails = 0;
    control->absent = false;
    if (roll(&d, 2))
      rest(&d, 50000); /* longer than the back-off */
    fl_clear_failed_impls(host, roll(&d, 2) ? op_names[roll(&d, STRESS_OPS)] : NULL);
    count(CLEARED);
  }
  return argument;
}

static void look_at_snapshot(void) {
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  need(snapshot != NULL, "fl_registry_snapshot");
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      const fl_impl_info *info = fl_snapshot_impl(snapshot, i, j);
      if (!info->available == !info->reason)
        violate(LISTED, "%s of %s is %savailable, with reason '%s'", info->impl_id, info->op_name,
                info->available ? "" : "not ", info->reason ? info->reason : "none");
    }
  fl_snapshot_release(snapshot);
}

static void look_at_explanation(const char *op) {
  fl_explanation *why;
  need(!fl_explain(host, op, kDLCPU, &why), "fl_explain");
  bool has_reference = false;
  for (uint32_t i = 0; i < why->n_impls; i++) {
    has_reference = has_reference || !strcmp(fl_explained_at(why, i)->impl_id, sources[REFERENCE].id);
    if (!*fl_explained_at(why, i)->reason || strstr(fl_explained_at(why, i)->reason, "was not asked"))
      violate(LISTED, "%s: '%s'", fl_explained_at(why, i)->impl_id, fl_explained_at(why, i)->reason);
  }
  if (!has_reference || !why->selected == !why->error)
    violate(LISTED, "explanation of %s: %u implementations, selected '%s', error '%s'", op, why->n_impls,
            why->selected ? why->selected : "none", why->error ? why->error : "none");
  fl_explanation_free(why);
}

static void *onlooker(void *argument) {
  dice d = new_dice();
  while (goes_on()) {
    const char *op = op_names[roll(&d, STRESS_OPS)];
    fl_failed_impls *failed;
    fl_plugins *plugins;
    fl_counters counters = {.size = sizeof counters};
    look_at_snapshot();
    look_at_explanation(op);
    need(!fl_get_failed_impls(host, NULL, &failed), "fl_get_failed_impls");
    fl_failed_impls_free(failed);
    need(!fl_get_discovered_plugins(host, &plugins), "fl_get_discovered_plugins");
    fl_plugins_free(plugins);
    need(!fl_get_counters(host, op, sources[REFERENCE].id, &counters), "fl_get_counters");
    looked(LISTED);
    rest(&d, 2000);
  }
  return argument;
}

/* ------------------------------------------------------------------------------------------------------------ forks */

static int any_violated(void) {
  for (int i = 0; i < N_INVARIANTS; i++)
    if (invariants[i].violated)
      return 1;
  return 0;
}

/* What the parent's threads were doing at that moment stays as it was; nobody else is here. */
static int child(dice *d) {
  fl_failed_impls *failed;
  pthread_t threads[2];
  if (fl_get_failed_impls(host, NULL, &failed))
    return 10;
  if (failed->n)
    return 11;
  fl_failed_impls_free(failed);
  for (int i = 0; i < 50; i++)
    call_one(d, NULL, 0);
  for (int i = 0; i < 5; i++)
    call_in_scope(d);
  if (CHILD_STARTS_THREADS) {
    for (int i = 0; i < 2; i++)
      if (pthread_create(&threads[i], NULL, call_and_end, NULL))
        return 12;
    for (int i = 0; i < 2; i++)
      pthread_join(threads[i], NULL);
  }
  set_policy(2);
  for (int i = 0; i < 20; i++)
    call_one(d, NULL, 0);
  if (sources[ENGINE].state % 2 && fl_withdraw_plugin(host, "engine") && fl_error_status() != FL_ENOENT)
    return 13;
  call_one(d, NULL, 0);
  return any_violated();
}

/* Waits for a child, and ends it where it does not end: it may hang before fork() has returned there, where no alarm of
 * its own is set yet. Did it hang? */
static bool hangs(pid_t pid, int *status) {
  double end = now() + CHILD_SECONDS;
  pid_t ended = 0;
  while (!(ended = waitpid(pid, status, WNOHANG)) && now() < end)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (ended) {
    need(ended == pid, "waitpid");
    return false;
  }
  need(!kill(pid, SIGKILL) && waitpid(pid, status, 0) == pid, "kill");
  return true;
}

static void *forker(void *argument) {
  dice d = new_dice();
  while (goes_on()) {
    int status = 0;
    pid_t pid = fork();
    if (!pid)
      _exit(child(&d));
    need(pid > 0, "fork");
    bool hung = hangs(pid, &status);
    count(FORKS);
    if (hung && SANITIZED) {
      count(HELD_UP);
      continue;
    }
    looked(CHILD);
    if (hung)
      violate(CHILD, "it hangs");
    else if (WIFSIGNALED(status))
      violate(CHILD, "%s", strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
      violate(CHILD, "exit status %d", WEXITSTATUS(status));
    rest(&d, 30000);
  }
  return argument;
}

/* ------------------------------------------------------------------------------------------------------------- main */

static void take_line(void *user, int level, const char *line) {
  (void)user;
  (void)level;
  if (strstr(line, "failed for op"))
    count(FAILURES);
  if (strstr(line, "works again"))
    looked(AGAIN);
}

/* From now on the kernel knows no membarrier. */
static void deny_membarrier(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
       "--no-membarrier: the kernel allows no filter of system calls");
  need(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == ENOSYS, "--no-membarrier has no effect");
}

static char settings_file[] = "/tmp/flhost-stress-XXXXXX.yaml";

/* With back-offs that end soon. */
static void make_host(void) {
  static const char settings[] = "retry_first_s: 0.005\nretry_max_s: 0.02\n";
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=INFO", NULL};
  int fd = mkstemps(settings_file, (int)strlen(".yaml"));
  need(fd >= 0 && write(fd, settings, sizeof settings - 1) == (ssize_t)sizeof settings - 1 && !close(fd),
       settings_file);
  const uint32_t by_seed = seed % 2 ? 0 : FL_HOST_NO_ARGUMENT_CHECKS; /* another way of fl_invoke */
  fl_host_options options = {.size = sizeof options,
                             .flags = FL_HOST_NO_PLUGINS | (seed % 4 < 2 ? FL_HOST_STATISTICS : 0) | by_seed,
                             .environment = environment,
                             .config_file = settings_file,
                             .log = take_line};
  need(!fl_host_create(&options, &host), "fl_host_create");
  for (int i = ACME; i < N_IMPLS; i++) {
    const char *path = plugin_path(sources[i].plugin);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    sources[i].control = library ? dlsym(library, "stress_controls") : NULL;
    need(sources[i].control != NULL, path);
  }
  sources[REFERENCE].state = 1;
  need(!bring(REFERENCE), "loading the reference");
  for (int i = 0; i < STRESS_OPS; i++) {
    ops[i] = fl_find_op(host, op_names[i]);
    need(ops[i] != NULL, op_names[i]);
  }
}

/* Waits for the end, and for nothing if no call comes back any more. */
static void wait_for_end(double seconds) {
  enum { PATIENCE = 60 };
  double end = now() + seconds, moved = now();
  for (long calls = 0; goes_on() && now() < end;) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    if (get(&counts[CALLS].n) != calls) {
      calls = get(&counts[CALLS].n);
      moved = now();
    }
    if (now() > moved + PATIENCE) {
      fprintf(stderr, "stress: no call came back for %d s: its threads wait for each other\n", PATIENCE);
      abort();
    }
  }
  stop = true;
}

static int report(void) {
  int passed = 0, failed = 0;
  for (int i = 0; i < N_KINDS; i++)
    printf("%12ld  %s\n", get(&counts[i].n), counts[i].text);
  for (int i = 0; i < N_INVARIANTS; i++) {
    bool good = !invariants[i].violated && get(&invariants[i].looked);
    printf("%s %12ld times: %s\n",
           good                     ? "holds   "
           : invariants[i].violated ? "VIOLATED"
                                    : "NOT SEEN",
           get(&invariants[i].looked), invariants[i].text);
    passed += good;
    failed += !good;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  static const impl first[] = {ENGINE, ACME}, second[] = {BOLT, EVEN};
  static const struct {
    void *(*run)(void *);
    const impl *argument;
  } jobs[] = {{caller, NULL},     {caller, NULL},      {scoped_caller, NULL},  {scoped_caller, NULL},
              {registrar, first}, {registrar, second}, {policy_changer, NULL}, {failer, NULL},
              {onlooker, NULL},   {forker, NULL}};
  enum { JOBS = sizeof jobs / sizeof jobs[0] };
  static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
                                          {"seed", required_argument, NULL, 'r'},
                                          {"no-membarrier", no_argument, NULL, 'm'},
                                          {0}};
  pthread_t threads[JOBS];
  double seconds = 60;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (option) {
    case 's':
      seconds = atof(optarg);
      break;
    case 'r':
      seed = (unsigned)strtoul(optarg, NULL, 10);
      break;
    case 'm':
      deny_membarrier();
      break;
    default:
      fprintf(stderr, "usage: stress [--seconds N] [--seed N] [--no-membarrier]\n");
      return 2;
    }
  }
  printf("%g seconds, --seed %u\n", seconds, seed);
  fflush(stdout); /* children have a copy of what is not */
  make_host();
  for (int i = 0; i < JOBS; i++)
    need(!pthread_create(&threads[i], NULL, jobs[i].run, (void *)jobs[i].argument), "pthread_create");
  wait_for_end(seconds);
  for (int i = 0; i < JOBS; i++)
    pthread_join(threads[i], NULL);
  fl_host_destroy(host);
  free(engine_self); /* if it was not withdrawn */
  unlink(settings_file);
  return report();
}
