/*
 * What a call of an op means where ranks share it, parsed: what becomes of arguments before the kernel runs, and of
 * results behind it. Immutable once parsed. The language, described for authors at fl_op_def.ranks:
 *
 *   ranks     = group ["," group]* ":" [step (";" step)*]
 *   step      = value "=" action ["if" ["not"] argument]
 *   action    = "none" | word "(" value ["," dimension] ")"       the words: table in ranks.c
 */
#ifndef FLHOST_CORE_SCHEMA_RANKS_H
#define FLHOST_CORE_SCHEMA_RANKS_H

#include "core/schema/schema.h"

enum { FL_RANKS_GROUPS_MAX = 4, FL_RANKS_STEPS_MAX = 16, FL_RANKS_ALWAYS = 0xff };

typedef enum fl_ranks_action {
  FL_RANKS_NONE,
  FL_RANKS_FIRST,
  FL_RANKS_PART,
  FL_RANKS_GATHER_ROWS,
  FL_RANKS_REDUCE, /* from here on of results */
  FL_RANKS_GATHER_COLUMNS,
  FL_RANKS_SCATTER_ROWS
} fl_ranks_action;

typedef struct fl_ranks_step {
  uint8_t action, value;
  uint8_t condition; /* the argument that says whether; FL_RANKS_ALWAYS */
  bool negated;
} fl_ranks_step;

typedef struct fl_ranks_plan {
  uint64_t groups[FL_RANKS_GROUPS_MAX]; /* fl_ranks_group_of their names, the preferred one first */
  uint32_t n_groups;                    /* 0: any */
  uint32_t n_steps;
  fl_ranks_step steps[FL_RANKS_STEPS_MAX];
} fl_ranks_plan;

/* Parses schema->ranks; *plan is NULL where there is nothing. FL_EINVAL with the place in the text, what was found and
 * what is expected. The plan is the schema's. */
fl_status fl_ranks_parse(fl_schema *schema, const fl_ranks_plan **plan);

/* A number that stands for a group's name, to be compared in calls. */
uint64_t fl_ranks_group_of(const char *name);

/* Is the step to be made in this call? */
static inline bool fl_ranks_step_holds(const fl_ranks_step *step, const fl_value *values) {
  if (step->condition == FL_RANKS_ALWAYS)
    return true;
  const fl_value *value = &values[step->condition];
  bool holds = value->type == FL_BOOL ? value->v.b : value->type != FL_NONE;
  return holds != step->negated;
}

/* Does the step change a result? */
static inline bool fl_ranks_step_is_behind(const fl_ranks_step *step) {
  return step->action >= FL_RANKS_REDUCE;
}

#endif
