/*
 * The rules of an op, compiled: what they say about the shapes and dtypes of its tensors, in arrays that match.c walks.
 * Immutable once compiled. The language, described for authors at fl_op_def.rules:
 *
 *   rules       = rule (";" rule)*
 *   rule        = tensor ":" alternative ("or" alternative)*     of an argument or result
 *               | variable "=" dtype ("|" dtype)* ["by" argument]   what a dtype variable may be, and the str that
 * names it alternative = (type ("|" type)* ["[" dimensions "]"] | "like" tensor) ["when" condition] type: a dtype, or
 * one capital letter, at most one dimensions  = ["..."] expression, ...                        + - * / // ( ) over
 * numbers, names, and NAME[number], given(NAME), numel(...), min(a, b), max(a, b), ranks; / is exact, // rounds down
 * condition = expression [("<" | "<=" | "==" | "!=" | ">=" | ">") expression] ("and" ...)*
 *
 * Arguments are matched in the order of the text, each with its first alternative that fits; an expression binds its
 * one unknown name, unless it stands in //, min or max. Beside named dtypes a variable is only compared ("T|float32").
 * A result takes its first alternative whose condition holds and in which all is known; a result without rule that may
 * be an argument is as that argument.
 */
#ifndef FLHOST_CORE_SCHEMA_RULES_H
#define FLHOST_CORE_SCHEMA_RULES_H

#include "core/schema/schema.h"

enum { FL_RULES_MAX_NAMES = 32, FL_RULES_MAX_VARIABLES = 8, FL_RULES_NONE = 0xff, FL_RULES_NO_NODE = 0xffff };

typedef enum fl_operation {
  FL_NUMBER,
  FL_NAME,    /* `left` is the name */
  FL_RANKS,   /* how many ranks the call has */
  FL_LEADING, /* the number of elements that the leading dimensions make */
  FL_GIVEN,   /* is argument `left` given? */
  FL_FLAG,    /* the bool argument `left` */
  FL_ELEMENT, /* element `number` of the int list `left` */
  FL_ADD,     /* from here on `left` and `right` are nodes */
  FL_SUBTRACT,
  FL_MULTIPLY,
  FL_DIVIDE,
  FL_FLOOR_DIVIDE, /* from here on an unknown operand cannot be told from the result */
  FL_MINIMUM,
  FL_MAXIMUM,
  FL_LESS,
  FL_LESS_EQUAL,
  FL_EQUAL,
  FL_NOT_EQUAL,
  FL_GREATER_EQUAL,
  FL_GREATER,
  FL_AND
} fl_operation;

/* A node of an expression; its operands have lower indices. */
typedef struct fl_rule_node {
  uint16_t operation, left, right;
  int64_t number;
} fl_rule_node;

/* A piece of schema->rules, for messages. */
typedef struct fl_rule_source {
  const char *text;
  uint32_t length;
} fl_rule_source;

typedef struct fl_rule_dimension {
  fl_rule_source source;
  uint16_t root; /* node */
} fl_rule_dimension;

typedef struct fl_rule_name {
  fl_rule_source source;
  uint8_t argument; /* the int argument of that name, else FL_RULES_NONE */
} fl_rule_name;

typedef struct fl_rule_variable {
  fl_rule_source source;
  bool limited;
  uint32_t limit;   /* dtypes that it may be, if limited */
  uint8_t argument; /* the str argument that names it, else FL_RULES_NONE */
} fl_rule_variable;

/* "T|float32[..., 2*d]" */
typedef struct fl_rule_alternative {
  fl_rule_source source;
  uint32_t dtypes;  /* those that are named */
  uint8_t variable; /* or FL_RULES_NONE. Alone it is bound to the tensor's dtype, beside named dtypes only compared */
  bool shaped, leading;
  uint8_t n_dimensions;
  uint8_t like; /* of a result: the argument that it is as, and nothing else is said; else FL_RULES_NONE */
  uint16_t first_dimension;
  uint16_t condition; /* of a result: a node that must not be 0; or FL_RULES_NO_NODE */
} fl_rule_alternative;

typedef struct fl_rule_clause {
  uint8_t value, n_alternatives;
  uint16_t first_alternative;
} fl_rule_clause;

typedef struct fl_rules {
  fl_rule_clause *clauses; /* of arguments, then of results */
  fl_rule_alternative *alternatives;
  fl_rule_dimension *dimensions;
  fl_rule_node *nodes;
  uint32_t n_argument_clauses, n_clauses, n_alternatives, n_dimensions, n_nodes, n_names, n_variables;
  fl_rule_name names[FL_RULES_MAX_NAMES];
  fl_rule_variable variables[FL_RULES_MAX_VARIABLES];
  uint8_t result_clause[FL_SCHEMA_MAX_RESULTS]; /* or FL_RULES_NONE */
  uint8_t result_like[FL_SCHEMA_MAX_RESULTS];   /* without clause: the argument that it is like, or FL_RULES_NONE */
} fl_rules;

/* Compiles schema->rules. FL_EINVAL with the place in the text, what was found and what is expected. */
fl_status fl_rules_compile(const fl_schema *schema, fl_rules **rules);
/* The dimension of that name; n_names if there is none. */
uint32_t fl_rules_find(const fl_rules *rules, const char *name, size_t length);
/* What is said of an argument; NULL: nothing. */
const fl_rule_clause *fl_rules_of_argument(const fl_rules *rules, uint32_t argument);
void fl_rules_free(fl_rules *rules);

/* Index of the element type that a str argument names, which the variable admits; FL_DTYPE_COUNT if there is none. */
uint32_t fl_rules_named_dtype(const fl_rule_variable *variable, const char *name);

/* Element types that the rules admit for the argument whose device selects; 0 = any. */
uint32_t fl_schema_dtypes(const fl_schema *schema);

#endif
