/*
 * An op's cases (fl_op_def.cases), parsed: for each part of a call the choices that calls.c draws from. Immutable once
 * compiled. What the text may say is described for authors at the field.
 */
#ifndef FLHOST_CORE_CASES_CASES_H
#define FLHOST_CORE_CASES_CASES_H

#include "core/schema.h"

#include <flhost/testing.h>

/* The parts of a call: the names of the rules, the arguments, the leading dimensions. */
enum { FL_PARTS_MAX = FL_RULES_MAX_NAMES + FL_SCHEMA_MAX_VALUES + 1, FL_CHOICES_MAX = 64 };

static inline uint32_t fl_part_of_argument(const fl_schema *schema, uint32_t argument) {
  return schema->compiled->n_names + argument;
}

static inline uint32_t fl_part_leading(const fl_schema *schema) {
  return schema->compiled->n_names + schema->n_arguments;
}

typedef struct fl_choice {
  bool none;
  fl_contents contents;     /* of a tensor */
  fl_rule_source low, high; /* expressions: a tensor's range; a dimension or int (low) */
  fl_value value;           /* anything else */
  uint8_t alternative;      /* of a tensor: of those of its rule; FL_RULES_NONE: any */
  uint32_t dtype;           /* of a tensor: an FL_FLOAT32…; 0: one of the alternative's */
  int32_t n_shape;          /* of a tensor: sizes that are given here; -1: none are */
  fl_rule_source shape[FL_MAX_DIMS];
} fl_choice;

/* "d: 1 64 1365" */
typedef struct fl_case_clause {
  uint32_t part, first_choice, n_choices;
  uint32_t drawn_as; /* the part whose draws say which choice is taken: its own, or another's with as many choices */
  uint8_t condition; /* of a tensor: none unless this argument is there, or (without) is none; else FL_RULES_NONE */
  bool without;
} fl_case_clause;

typedef struct fl_cases {
  fl_derived derived; /* first: of a schema */
  fl_arena owned;     /* strings and lists of the choices */
  const char *what, *text;
  fl_case_clause *clauses; /* in the order of the text */
  fl_choice *choices;
  uint32_t n_clauses, n_choices;
  uint8_t clause_of[FL_PARTS_MAX]; /* by part; FL_RULES_NONE: it has none */
} fl_cases;

/* Parses a text, after the rules: schema->cases, or one in that form. It must stay; `what` begins the messages about
 * it, and is a static string. FL_EINVAL with the place in the text, what was found and what is expected. */
fl_status fl_cases_compile(const fl_schema *schema, const char *what, const char *text, fl_cases **cases);
void fl_cases_free(fl_cases *cases);

/* The parsed cases and calls to time, which belong to the schema. Any thread may ask. */
fl_status fl_schema_cases(const fl_schema *schema, const fl_cases **cases);
fl_status fl_schema_bench(const fl_schema *schema, const fl_cases **bench);

/* fl_schema_create, and its cases and costs can be read, too: of built-in ops the build has seen that. */
fl_status fl_schema_create_checked(const fl_op_def *def, fl_schema **schema);

/* What the names in an expression stand for, by part. */
typedef struct fl_known {
  bool known[FL_PARTS_MAX];
  int64_t values[FL_PARTS_MAX];
} fl_known;

/* Value of an expression that stands in `cases`. FL_EINVAL: a name is not known (an argument that is none), or a
 * division is not exact. */
fl_status fl_cases_evaluate(const fl_schema *schema, const fl_cases *cases, const fl_known *known,
                            fl_rule_source source, double *value);

#endif
