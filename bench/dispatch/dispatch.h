/*
 * The rows of the benchmark and what measures them. A group of measurements fills its rows; which rows there are,
 * beside what each is measured and what it has to reach is the table in report.c.
 */
#ifndef FLHOST_BENCH_DISPATCH_H
#define FLHOST_BENCH_DISPATCH_H

#include "bench/dispatch/measure.h"

#include <jansson.h>
#include <limits.h>

typedef enum bench_row {
  ROW_HANDLE,
  ROW_LIBRARY,
  ROW_HANDLE_LIBRARY,
  ROW_HANDLE_ARCHIVE,
  ROW_TYPED,
  ROW_SUPPORTS,
  ROW_NAME,
  ROW_SCOPE,
  ROW_THREADS,
  ROW_CHECKS,
  ROW_CHECKS_RESIDUAL,
  ROW_RESOLVE,
  ROW_RESOLVE_LOGGED,
  ROW_MANY_CALL,
  ROW_MANY_CALL_ALL,
  ROW_MANY_TIME,
  ROW_MANY_PLUGIN,
  ROW_MANY_MEMORY,
  ROW_MANY_OP_MEMORY,
  ROW_OFF,
  ROW_STATISTICS,
  ROW_STATISTICS_THREADS,
  ROW_START,
  ROW_START_CALLED,
  ROW_START_EMPTY,
  ROW_START_MANY,
  ROW_START_TRIED,
  BENCH_ROWS
} bench_row;

typedef enum bench_cost {
  COST_POINTER,
  COST_LIBRARY,
  COST_HANDLE,
  COST_COUNTED,
  COST_NAME,
  COST_CHECKED,
  COST_REFCOUNT,
  COST_MUTEX,
  COST_RWLOCK,
  COST_OPENSSL,
  BENCH_COSTS
} bench_cost;

typedef struct bench_result {
  bool measured;
  bench_spread subject, baseline; /* in the row's unit; baseline NAN where there is none */
  bench_spread value;             /* what is held against the target */
  int verdict;                    /* 1, -1: met or not, whatever the figure; 0: by the target */
  char note[400];                 /* why it is not measured, or what else to know */
} bench_result;

/* What one call costs, on one thread and, for each of them, on two at once. */
typedef struct bench_cost_result {
  bool measured, has_two;
  bench_spread one, two; /* ns */
  char note[200];
} bench_cost_result;

typedef struct bench {
  bench_effort effort;
  bool quick;
  int n_processors;
  const char *build;       /* the directory of what was built */
  char home[PATH_MAX / 2]; /* home.c */
  bench_result rows[BENCH_ROWS];
  bench_cost_result costs[BENCH_COSTS];
} bench;

/* Fills a row from a pair, as difference or as ratio; `unit` is the row's unit in ns. */
void bench_set_difference(bench *b, bench_row row, const bench_pair *pair, double unit);
void bench_set_ratio(bench *b, bench_row row, const bench_pair *pair, double unit);
void bench_set_absolute(bench *b, bench_row row, bench_spread value);

/* Measures two ways and fills the row with their difference. */
fl_status bench_row_compare(bench *b, bench_row row, const bench_way *subject, const bench_way *baseline);

/* Measures a way on one thread and on two, for the row (BENCH_ROWS: none) and the cost (BENCH_COSTS: none). */
fl_status bench_row_scaling(bench *b, bench_row row, bench_cost cost, const bench_way *way);

/* Why a row or cost has no figure, or what else to know of it. */
void bench_note(bench *b, bench_row row, const char *format, ...) FL_PRINTF(3, 4);
void bench_note_cost(bench *b, bench_cost cost, const char *format, ...) FL_PRINTF(3, 4);

/* All results as JSON, and that as tables on standard output (report.c). */
json_t *bench_report(const bench *b); /* a new reference */
void bench_print(const json_t *report);

/* Groups; an error has its message in fl_error_message() or was printed. */
fl_status bench_calls(bench *b);     /* calls.c */
fl_status bench_archive(bench *b);   /* calls.c */
fl_status bench_checks(bench *b);    /* calls.c */
fl_status bench_path(bench *b);      /* path.c */
fl_status bench_resolving(bench *b); /* many.c */
fl_status bench_many(bench *b);      /* many.c */
fl_status bench_start(bench *b);     /* start.c */
fl_status bench_peers(bench *b);     /* peers.c */

/* home.c: an empty directory for HOME, in b->home; and its end. */
bool bench_make_home(bench *b);
void bench_remove_home(const bench *b);

/* calls.c: a call by handle beside the pointer, in this program. */
fl_status bench_handle(const bench_effort *effort, bench_pair *pair);

/* start.c: a child's part, chosen by `dispatch --child KIND DIRECTORY…`; the exit status. */
int bench_start_child(int argc, char **argv);

/* child.c: runs a program with these words, ended by NULL; takes the `n` numbers that it prints. */
bool bench_run_child(const char *program, const char *const *words, double *numbers, int n);

/* peers.c: what bench/peers.py prints, a list of {name, ns, note}; a new reference. */
json_t *bench_python_peers(const bench *b);

/* --------------------------------------------------------------------------------------------------- callers.c */

/* A host that says nothing, reads no environment and loads no plugin; or one that keeps its verdicts at home. */
fl_status bench_host(uint32_t flags, const char *log_level, fl_host **host);
fl_status bench_host_at(const char *home, uint32_t flags, const char *log_level, fl_host **host);

/* An op of that name, bench_…(Tensor x) -> Tensor out. */
fl_status bench_op(fl_host *host, const char *name);

/* Does nothing, as the kernel of every row does, and a predicate that takes every call. */
fl_status bench_nothing(void *self, fl_call *call);
bool bench_takes_all(void *self, const fl_call *call, const char **reason);

/* An implementation for CPU tensors whose kernel does nothing. */
fl_impl bench_impl(const char *op, const char *id, fl_kind kind, const char *vendor);

/* A thread's own call, with tensors of its own. Not to be copied: it points into itself. */
typedef struct bench_caller {
  fl_host *host;
  fl_op *op;
  const char *name;
  fl_call call;
  fl_value values[8];
  DLTensor x, residual, weight, out, residual_out;
  int64_t shape[2], weight_shape[1];
  float data[5][2 * 64];
  fl_policy *policy;
  fl_scope scope;
} __attribute__((aligned(128))) bench_caller;

/* Of bench_op's schema, or of rms_norm's with or without residual. */
void bench_caller_init(bench_caller *caller, fl_host *host, const char *op);
void bench_caller_init_rms_norm(bench_caller *caller, fl_host *host, bool residual);

/* Loops for bench_way.run; the context is a bench_caller. */
fl_status bench_run_pointer(void *context, long n);
fl_status bench_run_library(void *context, long n); /* through a function of another library */
fl_status bench_run_handle(void *context, long n);
fl_status bench_run_name(void *context, long n);

#endif
