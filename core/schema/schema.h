/*
 * An op's schema: its arguments and results, the rules for their shapes and dtypes, and what follows from them:
 * argument checks, shape inference, identity. Immutable once created.
 */
#ifndef FLHOST_CORE_SCHEMA_SCHEMA_H
#define FLHOST_CORE_SCHEMA_SCHEMA_H

#include <flhost/flhost.h>
#include <stdatomic.h>

/* sizeof(fl_tensor_spec) and sizeof(fl_tolerance) of the first header. */
enum { FL_FIRST_SPEC_SIZE = 88, FL_FIRST_TOLERANCE_SIZE = 24 };
/* The most that one of a later header may have: room for them is on the stack. */
enum { FL_SPEC_SIZE_MAX = 512 };

/* Most arguments and results of one op together, and results alone. */
enum { FL_SCHEMA_MAX_VALUES = 64, FL_SCHEMA_MAX_RESULTS = 16 };

typedef struct fl_schema {
  char *op_name;
  char *text;                     /* canonical: one space after commas, defaults as given */
  char *rules;                    /* "" if none */
  char *category, *doc, *formula; /* "" if none */
  char *cases, *bench;            /* "" if none */
  char *bytes, *flops;            /* "" if none */
  uint32_t n_arguments, n_results;
  fl_argument *values;     /* arguments, then results; names and default strings/lists owned */
  fl_tolerance *tolerance; /* ended by dtype 0; NULL if none */
  fl_status (*infer)(fl_call *call, fl_tensor_spec *results);
  uint32_t spec_size; /* of what that fills */
  fl_status (*check)(fl_call *call);
  int32_t device_argument;   /* the value whose device selects: the first required tensor, else the first tensor, of the
                                arguments and, after them, the results; -1: the op has no tensor */
  struct fl_rules *compiled; /* parsed rules; NULL if none */
  _Atomic(struct fl_cases *) compiled_cases; /* fl_schema_cases */
  _Atomic(struct fl_cases *) compiled_bench; /* fl_schema_bench */
  uint64_t id;                               /* no other schema of the process has or had it; not 0 */
} fl_schema;

/* Parses `def`. FL_EINVAL with the place in the text, what was found and what is expected. */
fl_status fl_schema_create(const fl_op_def *def, fl_schema **schema);
/* The same of an entry in core/ops, whose cases, bench and costs are left until somebody asks for them: the build has
 * parsed them. */
fl_status fl_schema_create_builtin(const fl_op_def *def, fl_schema **schema);
void fl_schema_free(fl_schema *schema);

/* The parsed cases and calls to time, which belong to the schema. Any thread may ask. */
fl_status fl_schema_cases(const fl_schema *schema, const struct fl_cases **cases);
fl_status fl_schema_bench(const fl_schema *schema, const struct fl_cases **bench);

/* Same names, types, defaults, aliases (what makes two declarations of an op one and the same)? */
bool fl_schema_same(const fl_schema *a, const fl_schema *b);

/*
 * Checks a call: number and types of values, none only where optional, ranks, shapes and dtypes by the rules,
 * contiguous last dimension, all tensors on one device, an output that overlaps an argument only where the schema lets
 * it be that very tensor, the entry's own check. FL_EINVAL, message: "rms_norm: argument 'weight': shape [4], expected
 * [8] (H of 'x')". Reads no tensor data.
 */
fl_status fl_schema_check(const fl_schema *schema, const fl_call *call);

/* fl_infer's work: checks the arguments (results in the call, if any, are not looked at) and fills one spec a result.
 */
fl_status fl_schema_infer(const fl_schema *schema, const fl_call *call, fl_tensor_spec *results, uint32_t n_results);

/* The tolerance for an element type: the entry's, else vLLM IR's default table. */
fl_tolerance fl_schema_tolerance(const fl_schema *schema, DLDataType dtype);

/* Element types that the rules admit for the argument whose device selects; 0 = any. */
uint32_t fl_schema_dtypes(const fl_schema *schema);

/* The element types that have a bit: row i is that of bit i. Tolerances are vLLM IR's defaults; integers are exact. */
typedef struct fl_dtype_row {
  const char *name;
  DLDataType dtype;
  double atol, rtol;
} fl_dtype_row;
enum { FL_DTYPE_COUNT = 10 };
extern const fl_dtype_row fl_dtypes[FL_DTYPE_COUNT];

/* A number in C's form, whatever the process's locale; all of the text must belong to it. */
bool fl_read_float(const char *text, size_t length, double *number);

/* The bit of FL_FLOAT32… for an element type, 0 if it has none; and its name ("float32"), "?" if none. */
uint32_t fl_dtype_bit(DLDataType dtype);
const char *fl_dtype_name(DLDataType dtype);

#endif
