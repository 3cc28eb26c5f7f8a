/* The parser of what ranks do with an op: see ranks.h. */
#include "core/schema/ranks.h"

#include <string.h>

/* Dimensions are as the words have them, so that a text says which. */
static const struct {
  const char *word;
  const char *dimension; /* behind the value's name; NULL: none stands there */
  bool of_result;
  fl_ranks_action action;
} actions[] = {
    {"first", NULL, false, FL_RANKS_FIRST},
    {"part", NULL, false, FL_RANKS_PART},
    {"all_gather", "0", false, FL_RANKS_GATHER_ROWS},
    {"all_reduce", NULL, true, FL_RANKS_REDUCE},
    {"all_gather", "-1", true, FL_RANKS_GATHER_COLUMNS},
    {"reduce_scatter", "0", true, FL_RANKS_SCATTER_ROWS},
};
enum { N_ACTIONS = sizeof actions / sizeof actions[0] };

typedef struct reader {
  fl_scanner scan;
  const fl_schema *schema;
  fl_ranks_plan *plan;
} reader;

uint64_t fl_ranks_group_of(const char *name) {
  return fl_hash_name(name, strlen(name));
}

static fl_status read_group(reader *r) {
  size_t length = fl_scan_word(&r->scan);
  if (!length)
    return fl_scan_unexpected(&r->scan, "the name of a group, as in 'tp: …'", NULL, 0);
  if (r->plan->n_groups == FL_RANKS_GROUPS_MAX)
    return fl_scan_fail(&r->scan, r->scan.at, "more than %d groups", FL_RANKS_GROUPS_MAX);
  r->plan->groups[r->plan->n_groups++] = fl_hash_name(r->scan.at, length);
  r->scan.at += length;
  return FL_OK;
}

static fl_status read_groups(reader *r) {
  fl_status status = FL_OK;
  if (!fl_scan_accept(&r->scan, "any"))
    do
      status = read_group(r);
    while (!status && fl_scan_accept(&r->scan, ","));
  if (status || fl_scan_accept(&r->scan, ":"))
    return status;
  return fl_scan_unexpected(&r->scan, "',' or ':' behind the groups", NULL, 0);
}

/* The value whose name is at the cursor; moves past it. */
static fl_status read_value(reader *r, const char *expected, uint8_t *value) {
  const fl_schema *schema = r->schema;
  const char *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n = schema->n_arguments + schema->n_results;
  size_t length = fl_scan_word(&r->scan);
  uint32_t found = length ? fl_schema_find(schema, r->scan.at, length) : n;
  for (uint32_t i = 0; i < n; i++)
    names[i] = schema->values[i].name;
  if (found == n)
    return fl_scan_unexpected(&r->scan, expected, names, n);
  r->scan.at += length;
  *value = (uint8_t)found;
  return FL_OK;
}

/* "(x, 0)" behind the word, which the action must fit. */
static fl_status read_operand(reader *r, const char *at, size_t length, fl_ranks_step *step) {
  uint8_t operand;
  const char *words[N_ACTIONS];
  bool of_result = step->value >= r->schema->n_arguments;
  uint32_t i = 0, n = 0;
  for (uint32_t j = 0; j < N_ACTIONS; j++)
    if (actions[j].of_result == of_result)
      words[n++] = actions[j].word;
  while (i < N_ACTIONS && (actions[i].of_result != of_result || strlen(actions[i].word) != length ||
                           memcmp(actions[i].word, at, length) != 0))
    i++;
  if (i == N_ACTIONS)
    return fl_scan_unexpected(&r->scan, of_result ? "what becomes of a result" : "what becomes of an argument", words,
                              n);
  r->scan.at += length;
  if (!fl_scan_accept(&r->scan, "("))
    return fl_scan_unexpected(&r->scan, "'('", NULL, 0);
  const char *named = r->scan.at;
  fl_status status = read_value(r, "the value's own name", &operand);
  if (!status && operand != step->value)
    return fl_scan_fail(&r->scan, named, "expected '%s', the value itself", r->schema->values[step->value].name);
  if (!status && actions[i].dimension &&
      (!fl_scan_accept(&r->scan, ",") || !fl_scan_accept(&r->scan, actions[i].dimension)))
    return fl_scan_unexpected(&r->scan, of_result ? "', -1' or ', 0', the dimension" : "', 0', the dimension", NULL, 0);
  if (!status && !fl_scan_accept(&r->scan, ")"))
    return fl_scan_unexpected(&r->scan, "')'", NULL, 0);
  step->action = (uint8_t)actions[i].action;
  return status;
}

static bool decides(const fl_argument *argument) {
  return argument->type == FL_BOOL || argument->optional;
}

/* "if not x" */
static fl_status read_condition(reader *r, fl_ranks_step *step) {
  step->condition = FL_RANKS_ALWAYS;
  if (!fl_scan_accept(&r->scan, "if"))
    return FL_OK;
  step->negated = fl_scan_accept(&r->scan, "not");
  fl_scan_peek(&r->scan);
  const char *at = r->scan.at;
  fl_status status = read_value(r, "an argument", &step->condition);
  if (!status && (step->condition >= r->schema->n_arguments || !decides(&r->schema->values[step->condition])))
    return fl_scan_fail(&r->scan, at, "'%s' decides nothing, expected a bool argument or one that may be none",
                        r->schema->values[step->condition].name);
  return status;
}

/* Is it a value that may become this? */
static fl_status check_step(const reader *r, const char *at, const fl_ranks_step *step) {
  const fl_argument *value = &r->schema->values[step->value];
  bool may_be_none = step->action != FL_RANKS_NONE && step->action != FL_RANKS_FIRST;
  if (!may_be_none && !value->optional)
    return fl_scan_fail(&r->scan, at, "argument '%s' may not be none", value->name);
  if (step->action != FL_RANKS_NONE && value->type != FL_TENSOR)
    return fl_scan_fail(&r->scan, at, "'%s' is not a tensor", value->name);
  for (uint32_t i = 0; i < r->plan->n_steps; i++)
    if (r->plan->steps[i].value == step->value)
      return fl_scan_fail(&r->scan, at, "there are two steps for '%s'", value->name);
  return FL_OK;
}

static fl_status read_step(reader *r) {
  fl_ranks_step step = {.action = FL_RANKS_NONE};
  fl_scan_peek(&r->scan);
  const char *at = r->scan.at;
  fl_status status = read_value(r, "an argument or result", &step.value);
  if (status)
    return status;
  if (!fl_scan_accept(&r->scan, "="))
    return fl_scan_unexpected(&r->scan, "'='", NULL, 0);
  size_t length = fl_scan_word(&r->scan);
  bool is_none = step.value < r->schema->n_arguments && fl_scan_accept(&r->scan, "none");
  if (!is_none)
    status = read_operand(r, r->scan.at, length, &step);
  if (!status)
    status = read_condition(r, &step);
  if (!status)
    status = check_step(r, at, &step);
  if (!status && r->plan->n_steps == FL_RANKS_STEPS_MAX)
    return fl_scan_fail(&r->scan, at, "more than %d steps", FL_RANKS_STEPS_MAX);
  if (!status)
    r->plan->steps[r->plan->n_steps++] = step;
  return status;
}

fl_status fl_ranks_parse(fl_schema *schema, const fl_ranks_plan **plan) {
  reader r = {.scan = {"ranks", schema->ranks, schema->ranks}, .schema = schema};
  *plan = NULL;
  if (!*schema->ranks)
    return FL_OK;
  if (!(r.plan = fl_arena_array(&schema->owned, 1, sizeof *r.plan)))
    return fl_error_no_memory();
  memset(r.plan, 0, sizeof *r.plan);
  fl_status status = read_groups(&r);
  while (!status && fl_scan_peek(&r.scan)) {
    status = read_step(&r);
    if (!status && fl_scan_peek(&r.scan) && !fl_scan_accept(&r.scan, ";"))
      return fl_scan_unexpected(&r.scan, "';' or the end", NULL, 0);
  }
  *plan = r.plan;
  return status;
}
