/*
 * An op's schema: its arguments and results, the rules for their shapes and dtypes, and what follows from them:
 * argument checks, shape inference, identity. Immutable once created.
 */
#ifndef FLHOST_CORE_SCHEMA_SCHEMA_H
#define FLHOST_CORE_SCHEMA_SCHEMA_H

#include "core/support.h"

#include <stdatomic.h>

/* sizeof(fl_tensor_spec) and sizeof(fl_tolerance) of the first header. */
enum { FL_FIRST_SPEC_SIZE = 88, FL_FIRST_TOLERANCE_SIZE = 24 };
/* The most that one of a later header may have: room for them is on the stack. */
enum { FL_SPEC_SIZE_MAX = 512 };

/* Most arguments and results of one op together, and results alone. */
enum { FL_SCHEMA_MAX_VALUES = 64, FL_SCHEMA_MAX_RESULTS = 16 };

enum { FL_SCHEMA_CASES, FL_SCHEMA_BENCH, FL_SCHEMA_LINKED, FL_SCHEMA_DERIVED }; /* fl_schema.derived */

/* What a room above makes of a schema's texts once and leaves with the schema. */
typedef struct fl_derived {
  void (*release)(struct fl_derived *derived);
} fl_derived;

typedef struct fl_schema {
  fl_arena owned; /* all strings, lists and the tolerance */
  const char *op_name;
  const char *text;                     /* canonical: one space after commas, defaults as given */
  const char *rules;                    /* "" if none */
  const char *category, *doc, *formula; /* "" if none */
  const char *cases, *bench;            /* "" if none */
  const char *bytes, *flops;            /* "" if none */
  const char *parts;                    /* "" if none */
  const char *ranks;                    /* "" if none */
  uint32_t n_arguments, n_results;
  fl_argument *values;           /* arguments, then results */
  const fl_tolerance *tolerance; /* ended by dtype 0; NULL if none */
  fl_status (*infer)(fl_call *call, fl_tensor_spec *results);
  uint32_t flags;     /* FL_OP_* */
  uint32_t spec_size; /* of what that fills */
  fl_status (*check)(fl_call *call);
  int32_t device_argument;   /* the value whose device selects: the first required tensor, else the first tensor, of the
                                arguments and, after them, the results; -1: the op has no tensor */
  struct fl_rules *compiled; /* parsed rules; NULL if none */
  struct fl_parts *parsed;   /* parts; NULL if none */
  const struct fl_ranks_plan *over_ranks;           /* ranks; NULL if none */
  _Atomic(fl_derived *) derived[FL_SCHEMA_DERIVED]; /* set once, NULL before */
  uint64_t id;                                      /* no other schema of the process has or had it; not 0 */
} fl_schema;

/* Parses `def`, but for its cases and costs (fl_cases_check). FL_EINVAL with the place in the text, what was found and
 * what is expected. */
fl_status fl_schema_create(const fl_op_def *def, fl_schema **schema);
void fl_schema_free(fl_schema *schema);

/* The argument or result of that name; n_arguments + n_results if there is none. */
uint32_t fl_schema_find(const fl_schema *schema, const char *name, size_t length);

/* Is it an argument that the call writes and that no result stands for? */
bool fl_schema_is_state(const fl_schema *schema, uint32_t index);

/* Same names, types, defaults, aliases (what makes two declarations of an op one and the same)? */
bool fl_schema_same(const fl_schema *a, const fl_schema *b);

/* The tolerance for an element type: the entry's, else vLLM IR's default table. */
fl_tolerance fl_schema_tolerance(const fl_schema *schema, DLDataType dtype);

#endif
