/* `flhost verify` in parts: rows of the report, testing one op, testing one implementation with one call, printing. */
#ifndef FLHOST_CLI_VERIFY_VERIFY_H
#define FLHOST_CLI_VERIFY_VERIFY_H

#include "cli/trials/trial.h"
#include "cli/verify/call.h"
#include <jansson.h>

/* The call that failed first, and what it takes. */
typedef struct failed_call {
  uint32_t call;    /* its number among those of the plan + 1; 0: none */
  memory_edge edge; /* with tensors there */
  uint32_t calls;   /* called so many times in a row; 0: once */
  bool threads;     /* by two threads, with another call */
} failed_call;

/* What became of one implementation with one element type. Strings but `dtype` are malloc'ed. */
typedef struct verify_row {
  char *op, *impl_id;
  const char *dtype; /* "" for an op without tensors, or where nothing could be called */
  char device[32];   /* "cpu", "cuda:0"; "" where nothing could be called */
  uint32_t calls;    /* calls that it was tested with */
  uint32_t failures; /* those with a difference or a broken contract */
  uint32_t skipped;  /* calls that it does not take */
  trial_end end;     /* it did not come back from a call: `problem` says from which */
  char *problem;     /* the first failure */
  char *reason;      /* of the first call that it does not take, or why it was not tested at all */
  char *saved;       /* a file with the first failing call, or NULL */
  bool compared;     /* some elements were: the numbers below are meaningful */
  double max_abs_err, max_rel_err;
  double share;       /* the worst error as a share of what is allowed; infinite where nothing is */
  char *worst;        /* where it is: "out[3, 17] in call 5: …"; NULL: all are equal */
  double got, wanted; /* the values there */
  double atol, rtol;  /* what is allowed there */
  double seconds;
} verify_row;

typedef enum verify_status { VERIFY_OK, VERIFY_FAILED, VERIFY_SKIPPED } verify_status;
verify_status verify_row_status(const verify_row *row);

/* Zero-initialise. */
typedef struct verify_rows {
  verify_row *items;
  size_t n, capacity;
} verify_rows;

/* A new row; NULL when out of memory. Earlier rows may move. */
verify_row *verify_rows_add(verify_rows *rows, const char *op, const char *impl_id, const char *dtype);
void verify_rows_free(verify_rows *rows);

/* What the command line asks for. */
typedef struct verify_request {
  const char *impl; /* --impl, or NULL */
  uint32_t dtype;   /* --dtype, or 0 */
  bool has_device;  /* --device */
  DLDevice device;
  uint64_t seed, seeds; /* the first, and how many */
  bool quick;           /* the op's cases alone */
  double seconds;       /* for what is repeated: an implementation, an element type */
  trial_limits limits;  /* of the child that calls an implementation */
  const char *save;     /* a directory for failing calls, or NULL */
  const char *junit;
  bool json;
} verify_request;

/* Tests one op's implementations, and adds their rows. false: out of memory. */
bool verify_op(fl_host *host, const verify_request *asked, const fl_snapshot *snapshot, uint32_t index,
               verify_rows *rows);

/* An implementation under test. */
typedef struct verify_impl {
  const fl_impl_info *info;
  fl_policy *policy; /* this one and no other */
  place at;          /* of its tensors */
} verify_impl;

/* Prints; the exit status of printing. */
int verify_print_table(const verify_rows *rows);
int verify_print_json(const verify_rows *rows, uint64_t seed);
/* Can a JUnit report be written there? Makes the file; exit status. */
int verify_check_junit(const char *path);
/* Writes it. */
int verify_write_junit(const verify_rows *rows, const char *path);

#endif
