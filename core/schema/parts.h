/*
 * A fused op's parts, parsed: calls of other ops, one after the other, over the op's own values and over tensors
 * between them. Only the form and the op's own names are looked at: which ops there are, and what they take, is known
 * when they are called. Immutable once parsed. The language, described for authors at fl_op_def.parts:
 *
 *   parts      = assignment (";" assignment)*
 *   assignment = result ("," result)* "=" op "(" operand ("," operand)* ")"
 *   result     = a result of the op | the name of a tensor between | "_", which nobody reads
 *   operand    = [argument "="] (name [slice] | literal)
 *   slice      = "[" "..." "," [expression] ":" [expression] "]"      of the last dimension; over the rules' names
 */
#ifndef FLHOST_CORE_SCHEMA_PARTS_H
#define FLHOST_CORE_SCHEMA_PARTS_H

#include "core/schema/match.h"

/* Tensors between parts, and slices in one part. */
enum { FL_PARTS_BETWEEN_MAX = 16, FL_PARTS_SLICES_MAX = 8 };

/* What an operand or a result of a part is: a value of the op, by its index; a tensor between, counted from this on; or
 * a literal. */
enum { FL_PARTS_BETWEEN = FL_SCHEMA_MAX_VALUES, FL_PARTS_LITERAL = FL_PARTS_BETWEEN + FL_PARTS_BETWEEN_MAX };

typedef struct fl_part_operand {
  const char *argument; /* whose it is; NULL: the next */
  uint16_t value;
  bool sliced;
  fl_rule_source low, high; /* of the slice; of length 0: the beginning, the end */
  fl_value literal;
} fl_part_operand;

typedef struct fl_part {
  const char *op;
  uint16_t first_operand, n_operands, first_result, n_results;
} fl_part;

typedef struct fl_parts {
  fl_part *parts;
  fl_part_operand *operands;
  uint16_t *results;
  uint32_t n, n_operands, n_results, n_between;
} fl_parts;

/* Parses schema->parts, whose rules are compiled; *parts is NULL where there are none. FL_EINVAL with the place in the
 * text, what was found and what is expected. */
fl_status fl_parts_parse(fl_schema *schema, fl_parts **parts);
void fl_parts_free(fl_parts *parts);

/* The op of the first part from *at on in such a text, and behind it: of one that need not have been parsed. false:
 * there is none left. */
bool fl_parts_next_op(const char **at, const char **name, size_t *length);

/* The bound of a slice in a call, which fl_schema_bind has looked at. FL_EINVAL: it has no value there. */
fl_status fl_parts_bound(const fl_schema *schema, const fl_bindings *bindings, fl_rule_source source, int64_t *value);

#endif
