/* First resolutions, and hosts with many ops: what grows with the registry, and what must not. */
#include "bench/dispatch/dispatch.h"

#include <errno.h>
#include <features.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 32 };

typedef char op_name[NAME_SIZE];

/* The first is what a caller gets; the others stand behind it. */
static const struct {
  const char *id;
  fl_kind kind;
  const char *vendor;
} impls[] = {{"default.flagos", FL_KIND_DEFAULT, NULL}, {"reference.c", FL_KIND_REFERENCE, NULL},
             {"vendor.a", FL_KIND_VENDOR, "a"},         {"vendor.b", FL_KIND_VENDOR, "b"},
             {"vendor.c", FL_KIND_VENDOR, "c"},         {"vendor.d", FL_KIND_VENDOR, "d"},
             {"vendor.e", FL_KIND_VENDOR, "e"},         {"vendor.f", FL_KIND_VENDOR, "f"}};
enum { FEW_IMPLS = 4, MANY_IMPLS = sizeof impls / sizeof impls[0] };

static op_name *make_names(uint32_t n) {
  op_name *names = malloc(n * sizeof *names);
  for (uint32_t i = 0; names && i < n; i++)
    snprintf(names[i], sizeof names[i], "bench_op_%05u", i);
  return names;
}

static fl_status register_ops(fl_host *host, op_name *names, uint32_t n) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < n && !status; i++)
    status = bench_op(host, names[i]);
  return status;
}

static fl_status register_impls(fl_host *host, op_name *names, uint32_t n, uint32_t n_impls) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < n && !status; i++)
    for (uint32_t j = 0; j < n_impls && !status; j++) {
      fl_impl impl = bench_impl(names[i], impls[j].id, impls[j].kind, impls[j].vendor);
      status = fl_register_impl(host, &impl);
    }
  return status;
}

/* ---------------------------------------------------------------------------------------------- first resolutions */

static fl_status call_each(fl_op *const *ops, uint32_t n, fl_call *call, double *ns) {
  fl_status status = FL_OK;
  double start = bench_now();
  for (uint32_t i = 0; i < n; i++)
    status |= fl_invoke(ops[i], call);
  *ns = (bench_now() - start) / n;
  return status;
}

/* The first call of each op in a new host, and the second. */
static fl_status resolve_once(op_name *names, uint32_t n, const char *log_level, fl_op **ops, double *first,
                              double *second) {
  fl_host *host = NULL;
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  fl_status status = caller ? bench_host(FL_HOST_NO_ARGUMENT_CHECKS, log_level, &host) : FL_ENOMEM;
  if (!status)
    status = register_ops(host, names, n);
  if (!status)
    status = register_impls(host, names, n, FEW_IMPLS);
  for (uint32_t i = 0; i < n && !status; i++)
    if (!(ops[i] = fl_find_op(host, names[i])))
      status = FL_ENOENT;
  if (!status) {
    bench_caller_init(caller, host, names[0]);
    status = call_each(ops, n, &caller->call, first);
    status |= call_each(ops, n, &caller->call, second);
  }
  fl_host_destroy(host);
  free(caller);
  return status;
}

static fl_status resolve(bench *b, bench_row row, const char *log_level) {
  enum { MOST_OPS = 500, MOST_ROUNDS = 101 };
  uint32_t n = b->quick ? 20 : MOST_OPS;
  int rounds = b->effort.rounds < MOST_ROUNDS ? b->effort.rounds : MOST_ROUNDS, round = 0;
  double first[MOST_ROUNDS], second[MOST_ROUNDS], end = bench_now() + 2 * b->effort.seconds * 1e9;
  op_name *names = make_names(n);
  fl_op *ops[MOST_OPS];
  bench_pair pair;
  fl_status status = names ? FL_OK : FL_ENOMEM;
  for (; !status && round < rounds && (round < 3 || bench_now() < end); round++)
    status = resolve_once(names, n, log_level, ops, &first[round], &second[round]);
  if (!status && !bench_pair_of(first, second, round, &pair))
    status = FL_ENOMEM;
  if (!status)
    bench_set_difference(b, row, &pair, 1);
  free(names);
  return status;
}

fl_status bench_resolving(bench *b) {
  fl_status status = resolve(b, ROW_RESOLVE, "WARNING");
  return status ? status : resolve(b, ROW_RESOLVE_LOGGED, "INFO");
}

/* -------------------------------------------------------------------------------------------------------- many ops */

/* Bytes that the program has allocated; 0 where the allocator does not say (a sanitizer's, another library's). */
static size_t allocated(void) {
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 33)
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

/* What was registered, in ms and bytes. */
typedef struct growth {
  double ms;
  size_t op_bytes, impl_bytes;
} growth;

/* A host with `n` ops of MANY_IMPLS implementations, each called once by name. */
static fl_status fill(op_name *names, uint32_t n, fl_host **host, growth *grown) {
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  fl_status status = caller ? bench_host(FL_HOST_NO_ARGUMENT_CHECKS, "WARNING", host) : FL_ENOMEM;
  if (!status) {
    size_t empty = allocated();
    double start = bench_now();
    status = register_ops(*host, names, n);
    size_t with_ops = allocated();
    if (!status)
      status = register_impls(*host, names, n, MANY_IMPLS);
    bench_caller_init(caller, *host, names[0]);
    for (uint32_t i = 0; i < n && !status; i++)
      status = fl_call_op(*host, names[i], &caller->call);
    *grown = (growth){(bench_now() - start) / 1e6, with_ops - empty, allocated() - with_ops};
  }
  free(caller);
  return status;
}

/* The same by one plugin, loaded and resolved. */
static fl_status fill_by_plugin(const bench *b, const char *plugin, op_name *names, uint32_t n, double *ms) {
  fl_host *host = NULL;
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  fl_status status = caller ? bench_host_at(b->home, FL_HOST_NO_ARGUMENT_CHECKS, "WARNING", &host) : FL_ENOMEM;
  double start = bench_now();
  if (!status)
    status = fl_load_plugin(host, plugin);
  if (!status)
    bench_caller_init(caller, host, names[0]);
  for (uint32_t i = 0; i < n && !status; i++)
    status = fl_call_op(host, names[i], &caller->call);
  *ms = (bench_now() - start) / 1e6;
  fl_host_destroy(host);
  free(caller);
  return status;
}

/* Once before it is timed, since a plugin that is new is tried in another process first (bench/README.md). */
static fl_status many_by_plugin(bench *b, op_name *names, uint32_t n) {
  enum { ROUNDS = 9 };
  double ms[ROUNDS], first, end = bench_now() + 5 * b->effort.seconds * 1e9;
  char file[PATH_MAX], plugin[PATH_MAX], count[16];
  int round = 0;
  snprintf(file, sizeof file, "%s/bench/plugins/many.so", b->build);
  snprintf(count, sizeof count, "%u", n);
  if (!realpath(file, plugin) || setenv("FLHOST_BENCH_OPS", count, 1)) {
    bench_note(b, ROW_MANY_PLUGIN, "%s: %s", file, strerror(errno));
    return FL_OK;
  }
  fl_status status = fill_by_plugin(b, plugin, names, n, &first);
  for (; !status && round < ROUNDS && (round < 1 || bench_now() < end); round++)
    status = fill_by_plugin(b, plugin, names, n, &ms[round]);
  if (!status)
    bench_set_absolute(b, ROW_MANY_PLUGIN, bench_spread_of(ms, round));
  return status;
}

/* Calls by name, over a list of names in turn. */
typedef struct turns {
  fl_host *host;
  const char *const *names;
  uint32_t n, next;
  bench_caller *caller;
} turns;

static __attribute__((aligned(64))) fl_status run_turns(void *context, long n) {
  turns *t = context;
  uint32_t next = t->next;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    status |= fl_call_op(t->host, t->names[next], &t->caller->call);
    next = next + 1 < t->n ? next + 1 : 0;
  }
  t->next = next;
  return status;
}

/* The names in an order that no prefetcher follows, the same in every run. */
static void shuffle(const char **names, uint32_t n) {
  uint32_t state = 12345;
  for (uint32_t i = n - 1; i > 0; i--) {
    state = state * 1664525 + 1013904223;
    uint32_t j = (uint32_t)((uint64_t)state * (i + 1) >> 32);
    const char *name = names[i];
    names[i] = names[j];
    names[j] = name;
  }
}

static fl_status compare_turns(bench *b, bench_row row, turns *subject, turns *baseline) {
  const bench_way many = {.run = run_turns, .context = subject}, few = {.run = run_turns, .context = baseline};
  bench_pair pair;
  fl_status status = bench_compare(&b->effort, &many, &few, &pair);
  if (!status)
    bench_set_ratio(b, row, &pair, 1);
  return status;
}

/* The same ten names in both hosts, and every name of the large one. */
static fl_status call_by_name(bench *b, fl_host *large, op_name *names, uint32_t n) {
  enum { FEW = 10 };
  fl_host *small = NULL;
  op_name few[FEW];
  const char *few_names[FEW], **all_names = malloc(n * sizeof *all_names);
  bench_caller *callers = aligned_alloc(_Alignof(bench_caller), 2 * sizeof *callers);
  growth ignored;
  fl_status status = all_names && callers ? FL_OK : FL_ENOMEM;
  for (uint32_t i = 0; i < FEW; i++) {
    memcpy(few[i], names[i * (n / FEW)], sizeof few[i]);
    few_names[i] = few[i];
  }
  if (!status)
    status = fill(few, FEW, &small, &ignored);
  if (!status) {
    for (uint32_t i = 0; i < n; i++)
      all_names[i] = names[i];
    shuffle(all_names, n);
    bench_caller_init(&callers[0], small, few[0]);
    bench_caller_init(&callers[1], large, few[0]);
    turns in_small = {small, few_names, FEW, 0, &callers[0]}, in_large = {large, few_names, FEW, 0, &callers[1]};
    turns all = {large, all_names, n, 0, &callers[1]};
    status = compare_turns(b, ROW_MANY_CALL, &in_large, &in_small);
    if (!status)
      status = compare_turns(b, ROW_MANY_CALL_ALL, &all, &in_small);
  }
  fl_host_destroy(small);
  free(all_names);
  free(callers);
  return status;
}

/* Bytes of an implementation's strings, of which a host must keep a copy. */
static double string_bytes(op_name *names, uint32_t n) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < MANY_IMPLS; j++)
      bytes += strlen(names[i]) + strlen(impls[j].id) + 2 + (impls[j].vendor ? strlen(impls[j].vendor) + 1 : 0);
  return (double)bytes / (n * MANY_IMPLS);
}

static void set_memory(bench *b, const growth *grown, op_name *names, uint32_t n) {
  double strings = string_bytes(names, n), an_impl = (double)grown->impl_bytes / (n * MANY_IMPLS);
  double an_op = (double)grown->op_bytes / n;
  if (!allocated()) {
    bench_note(b, ROW_MANY_MEMORY, "this allocator does not say how much it gave out");
    bench_note(b, ROW_MANY_OP_MEMORY, "this allocator does not say how much it gave out");
    return;
  }
  bench_set_absolute(b, ROW_MANY_MEMORY, (bench_spread){an_impl - strings, an_impl - strings});
  bench_set_absolute(b, ROW_MANY_OP_MEMORY, (bench_spread){an_op, an_op});
  bench_note(b, ROW_MANY_MEMORY, "with what resolving keeps; its strings are %.0f bytes more", strings);
}

fl_status bench_many(bench *b) {
  enum { ROUNDS = 9 };
  uint32_t n = b->quick ? 100 : 10000;
  double ms[ROUNDS], end = bench_now() + 5 * b->effort.seconds * 1e9;
  fl_host *host = NULL;
  growth grown;
  int round = 0;
  op_name *names = make_names(n);
  fl_status status = names ? FL_OK : FL_ENOMEM;
  for (; !status && round < ROUNDS && (round < 2 || bench_now() < end); round++) {
    fl_host_destroy(host);
    host = NULL;
    status = fill(names, n, &host, &grown);
    ms[round] = grown.ms;
  }
  if (!status) {
    bench_set_absolute(b, ROW_MANY_TIME, bench_spread_of(ms, round));
    set_memory(b, &grown, names, n);
    status = call_by_name(b, host, names, n);
    if (!status)
      status = many_by_plugin(b, names, n);
  }
  fl_host_destroy(host);
  free(names);
  return status;
}
