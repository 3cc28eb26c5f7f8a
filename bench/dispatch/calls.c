/* What calls cost beside each other: the rows of the call path. */
#include "bench/dispatch/dispatch.h"

#include <flhost/ops.h>
#include <limits.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------------------------ the loops */

typedef struct rms_norm_caller {
  bench_caller caller; /* first */
  fl_ops ops;
  DLTensor *x, *weight, *out;
  double epsilon;
} rms_norm_caller;

static __attribute__((aligned(64))) fl_status run_typed(void *context, long n) {
  rms_norm_caller *c = context;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++)
    status |= fl_rms_norm(&c->ops, NULL, c->x, NULL, c->weight, c->epsilon, NULL, c->out, NULL);
  return status;
}

/* By handle with the arguments stored anew, as the typed call does; the struct around them is made once. */
static __attribute__((aligned(64))) fl_status run_stored(void *context, long n) {
  rms_norm_caller *c = context;
  fl_value *values = c->caller.values;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    values[0] = fl_required_tensor(c->x);
    values[1] = fl_none();
    values[2] = fl_tensor(c->weight);
    values[3] = fl_float(c->epsilon);
    values[4] = fl_none();
    values[5] = fl_required_tensor(c->out);
    values[6] = fl_none();
    status |= fl_invoke(c->caller.op, &c->caller.call);
  }
  return status;
}

typedef bool (*predicate)(void *self, const fl_call *call, const char **reason);
static predicate volatile direct_predicate = bench_takes_all;

/* The predicate's own time, and then a call of the op that has none. */
static __attribute__((aligned(64))) fl_status run_predicate_and_handle(void *context, long n) {
  bench_caller *caller = context;
  fl_op *op = caller->op;
  const char *reason = NULL;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    if (!direct_predicate(NULL, &caller->call, &reason))
      return FL_EINTERNAL;
    status |= fl_invoke(op, &caller->call);
  }
  return status;
}

static fl_status enter_scope(void *context) {
  bench_caller *caller = context;
  return fl_scope_enter(caller->host, caller->policy, &caller->scope);
}

static fl_status leave_scope(void *context) {
  bench_caller *caller = context;
  return fl_scope_leave(&caller->scope);
}

/* ------------------------------------------------------------------------------------------------------- the rows */

/* The op "bench_plain", and "bench_guarded" whose implementation has supports_args. */
static fl_status add_ops(fl_host *host) {
  fl_impl plain = bench_impl("bench_plain", "default.flagos", FL_KIND_DEFAULT, NULL);
  fl_impl guarded = bench_impl("bench_guarded", "default.flagos", FL_KIND_DEFAULT, NULL);
  guarded.supports_args = bench_takes_all;
  fl_status status = bench_op(host, plain.op_name);
  if (!status)
    status = bench_op(host, guarded.op_name);
  if (!status)
    status = fl_register_impl(host, &plain);
  return status ? status : fl_register_impl(host, &guarded);
}

static fl_status add_rms_norm(fl_host *host) {
  fl_impl impl = bench_impl("rms_norm", "default.flagos", FL_KIND_DEFAULT, NULL);
  return fl_register_impl(host, &impl);
}

fl_status bench_calls(bench *b) {
  const fl_policy_fields other = {.size = sizeof other, .prefer = "reference"};
  fl_host *host = NULL, *counting = NULL;
  fl_policy *policy = NULL;
  bench_caller *c = aligned_alloc(_Alignof(bench_caller), 8 * sizeof *c);
  fl_status status = c ? FL_OK : FL_ENOMEM;
  if (!status)
    status = bench_host(FL_HOST_NO_ARGUMENT_CHECKS, "ERROR", &host);
  if (!status)
    status = bench_host(FL_HOST_NO_ARGUMENT_CHECKS | FL_HOST_STATISTICS, "ERROR", &counting);
  if (!status)
    status = add_ops(host);
  if (!status)
    status = add_ops(counting);
  if (!status)
    status = fl_policy_create(&other, &policy);
  if (status)
    goto out;
  bench_caller *plain = &c[0], *plain2 = &c[1], *guarded = &c[2], *counted = &c[3], *counted2 = &c[4];
  bench_caller_init(plain, host, "bench_plain");
  bench_caller_init(plain2, host, "bench_plain");
  bench_caller_init(guarded, host, "bench_guarded");
  bench_caller_init(counted, counting, "bench_plain");
  bench_caller_init(counted2, counting, "bench_plain");
  plain->policy = policy;

  const bench_way pointer = {.run = bench_run_pointer, .context = plain, .second_context = plain2};
  const bench_way library = {.run = bench_run_library, .context = plain, .second_context = plain2};
  const bench_way handle = {.run = bench_run_handle, .context = plain, .second_context = plain2};
  const bench_way name = {.run = bench_run_name, .context = plain, .second_context = plain2};
  const bench_way scoped = {.run = bench_run_handle, .context = plain, .enter = enter_scope, .leave = leave_scope};
  const bench_way asking = {.run = run_predicate_and_handle, .context = plain};
  const bench_way guard = {.run = bench_run_handle, .context = guarded};
  const bench_way count = {.run = bench_run_handle, .context = counted, .second_context = counted2};
  status = bench_row_compare(b, ROW_HANDLE, &handle, &pointer);
  if (!status)
    status = bench_row_compare(b, ROW_LIBRARY, &library, &pointer);
  if (!status)
    status = bench_row_compare(b, ROW_HANDLE_LIBRARY, &handle, &library);
  if (!status)
    status = bench_row_compare(b, ROW_SUPPORTS, &guard, &asking);
  if (!status)
    status = bench_row_compare(b, ROW_NAME, &name, &handle);
  if (!status)
    status = bench_row_compare(b, ROW_SCOPE, &scoped, &handle);
  if (!status)
    status = bench_row_compare(b, ROW_STATISTICS, &count, &handle);
  if (!status)
    status = bench_row_scaling(b, BENCH_ROWS, COST_POINTER, &pointer);
  if (!status)
    status = bench_row_scaling(b, BENCH_ROWS, COST_LIBRARY, &library);
  if (!status)
    status = bench_row_scaling(b, ROW_THREADS, COST_HANDLE, &handle);
  if (!status)
    status = bench_row_scaling(b, ROW_STATISTICS_THREADS, COST_COUNTED, &count);
  if (!status)
    status = bench_row_scaling(b, BENCH_ROWS, COST_NAME, &name);
  if (!status && b->costs[COST_POINTER].has_two)
    bench_note(b, ROW_THREADS, "the pointer alone: %.2f x",
               2 * b->costs[COST_POINTER].one.median / b->costs[COST_POINTER].two.median);
out:
  fl_policy_release(policy);
  fl_host_destroy(counting);
  fl_host_destroy(host);
  free(c);
  return status;
}

fl_status bench_handle(const bench_effort *effort, bench_pair *pair) {
  fl_host *host = NULL;
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  fl_status status = caller ? bench_host(FL_HOST_NO_ARGUMENT_CHECKS, "ERROR", &host) : FL_ENOMEM;
  if (!status)
    status = add_ops(host);
  if (!status) {
    bench_caller_init(caller, host, "bench_plain");
    const bench_way pointer = {.run = bench_run_pointer, .context = caller};
    const bench_way handle = {.run = bench_run_handle, .context = caller};
    status = bench_compare(effort, &handle, &pointer, pair);
  }
  fl_host_destroy(host);
  free(caller);
  return status;
}

/* The same in the program that is linked with libflhost.a. */
fl_status bench_archive(bench *b) {
  char program[PATH_MAX];
  double ns[6];
  const char *const words[] = {"--handle", b->quick ? "--quick" : NULL, NULL};
  snprintf(program, sizeof program, "%s/bench/dispatch-archive", b->build);
  if (bench_run_child(program, words, ns, 6)) {
    const bench_pair pair = {.subject = {ns[0], ns[1]}, .baseline = {ns[2], ns[3]}, .difference = {ns[4], ns[5]}};
    bench_set_difference(b, ROW_HANDLE_ARCHIVE, &pair, 1);
  } else {
    bench_note(b, ROW_HANDLE_ARCHIVE, "%s failed, or is not there", program);
  }
  return FL_OK;
}

/* rms_norm, whose typed call every user of the op makes. */
fl_status bench_checks(bench *b) {
  fl_host *trusting = NULL, *checking = NULL;
  rms_norm_caller *typed = aligned_alloc(_Alignof(rms_norm_caller), sizeof *typed);
  bench_caller *c = aligned_alloc(_Alignof(bench_caller), 5 * sizeof *c);
  fl_status status = typed && c ? FL_OK : FL_ENOMEM;
  if (!status)
    status = bench_host(FL_HOST_NO_ARGUMENT_CHECKS, "ERROR", &trusting);
  if (!status)
    status = bench_host(0, "ERROR", &checking);
  if (!status)
    status = add_rms_norm(trusting);
  if (!status)
    status = add_rms_norm(checking);
  if (status)
    goto out;
  bench_caller_init_rms_norm(&typed->caller, trusting, false);
  typed->x = &typed->caller.x;
  typed->weight = &typed->caller.weight;
  typed->out = &typed->caller.out;
  typed->epsilon = 1e-6;
  status = fl_ops_init(&typed->ops, trusting);
  const bench_way inline_call = {.run = run_typed, .context = typed}, stored = {.run = run_stored, .context = typed};
  if (!status)
    status = bench_row_compare(b, ROW_TYPED, &inline_call, &stored);

  for (int i = 0; i < 5; i++)
    bench_caller_init_rms_norm(&c[i], i < 2 ? trusting : checking, i == 1 || i == 3);
  const bench_way trusted = {.run = bench_run_handle, .context = &c[0]};
  const bench_way trusted_residual = {.run = bench_run_handle, .context = &c[1]};
  const bench_way checked = {.run = bench_run_handle, .context = &c[2], .second_context = &c[4]};
  const bench_way checked_residual = {.run = bench_run_handle, .context = &c[3]};
  if (!status)
    status = bench_row_compare(b, ROW_CHECKS, &checked, &trusted);
  if (!status)
    status = bench_row_compare(b, ROW_CHECKS_RESIDUAL, &checked_residual, &trusted_residual);
  if (!status)
    status = bench_row_scaling(b, BENCH_ROWS, COST_CHECKED, &checked);
out:
  fl_host_destroy(checking);
  fl_host_destroy(trusting);
  free(typed);
  free(c);
  return status;
}
