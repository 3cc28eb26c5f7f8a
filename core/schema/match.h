/*
 * Matching tensors with an op's compiled rules. Arguments bind names, dtype variables and leading dimensions; results
 * follow from these.
 */
#ifndef FLHOST_CORE_SCHEMA_MATCH_H
#define FLHOST_CORE_SCHEMA_MATCH_H

#include "core/schema/rules.h"
#include "core/support.h"

/* What the arguments of one call say. Only what is marked known is initialised. */
typedef struct fl_bindings {
  const fl_value *values;                /* the arguments, for what rules say by these alone; NULL: not known */
  uint32_t names_known, variables_known; /* bits */
  bool leading_known;
  bool open;     /* something depends on what another tensor says, and must be looked at again */
  int32_t ranks; /* of the call */
  int32_t n_leading;
  const int64_t *leading; /* the dimensions that `...` stands for */
  int64_t names[FL_RULES_MAX_NAMES];
  DLDataType variables[FL_RULES_MAX_VARIABLES];
  /* The values that said it. */
  uint8_t names_from[FL_RULES_MAX_NAMES], variables_from[FL_RULES_MAX_VARIABLES], leading_from;
  uint8_t chosen[FL_SCHEMA_MAX_VALUES]; /* each tensor's alternative */
} fl_bindings;

/* Matches the arguments, whose types and tensors are known to be good; bindings->ranks is set before. FL_EINVAL names
 * argument, given and expected. */
fl_status fl_match_arguments(const fl_schema *schema, const fl_value *values, fl_bindings *bindings);

/* Value of an expression whose names are known; false if it has none. */
bool fl_match_evaluate(const fl_rules *rules, const fl_bindings *bindings, unsigned node, int64_t *value);

/* Sets presence, dtype and shape of a result (0 is the first) as the rules have it. FL_EINVAL: the arguments that were
 * given do not say it. Leaves a spec alone that the rules do not speak of. */
fl_status fl_match_result(const fl_schema *schema, const fl_value *values, const fl_bindings *bindings, uint32_t result,
                          fl_tensor_spec *spec);

/* The error for a result that is not as `spec`. */
fl_status fl_match_result_error(const fl_schema *schema, const fl_bindings *bindings, uint32_t result,
                                const DLTensor *given, const fl_tensor_spec *spec);

/* "[2, 3]" and "float16". */
void fl_text_add_shape(fl_text *text, const int64_t *shape, int32_t ndim);
void fl_text_add_dtype(fl_text *text, DLDataType dtype);

#endif
