/* The parser of cases, and the evaluation of the expressions in them. */
#include "core/cases/cases.h"

#include "core/cases/cost.h"
#include "core/schema.h"

#include <stdlib.h>

enum { NONE = FL_RULES_NONE };

/* ------------------------------------------------------------------------------------------------------ expressions */

/* The part that a word names: a dimension before an argument, FL_PARTS_MAX if none. */
static uint32_t find_part(const fl_schema *schema, const char *text, size_t length) {
  uint32_t name = fl_rules_find(schema->compiled, text, length), value = fl_schema_find(schema, text, length);
  if (name < schema->compiled->n_names)
    return name;
  return value < schema->n_arguments ? fl_part_of_argument(schema, value) : (uint32_t)FL_PARTS_MAX;
}

static bool is_int_part(const fl_schema *schema, uint32_t part) {
  uint32_t n_names = schema->compiled->n_names;
  return part < n_names || (part < fl_part_leading(schema) && schema->values[part - n_names].type == FL_INT);
}

/* What the words of an expression are looked up in. `values` NULL: only names and form are looked at. */
typedef struct meaning {
  const fl_schema *schema;
  const bool *known;
  const int64_t *values;
} meaning;

static fl_status evaluate_word(fl_expression *e, fl_operand *operand) {
  const meaning *m = e->context;
  size_t length = fl_scan_word(&e->scan);
  const char *begin = e->scan.at;
  uint32_t part = find_part(m->schema, begin, length);
  if (part == FL_PARTS_MAX || !is_int_part(m->schema, part))
    return fl_scan_fail(&e->scan, begin, "'%.*s' is neither a dimension of the rules nor an int", (int)length, begin);
  if (!m->known[part])
    return fl_scan_fail(&e->scan, begin, m->values ? "'%.*s' is none here" : "'%.*s' has its own clause further on",
                        (int)length, begin);
  operand->value = m->values ? (double)m->values[part] : 1;
  e->scan.at += length;
  return FL_OK;
}

static fl_status evaluate(const fl_cases *cases, const meaning *m, fl_rule_source source, double *value) {
  fl_expression e = {.scan = {cases->what, cases->text, source.text},
                     .end = source.text + source.length,
                     .word = evaluate_word,
                     .context = m,
                     .form = !m->values,
                     .exact = true};
  return fl_expression_evaluate(&e, value);
}

fl_status fl_cases_evaluate(const fl_schema *schema, const fl_cases *cases, const fl_known *known,
                            fl_rule_source source, double *value) {
  const meaning m = {schema, known->known, known->values};
  return evaluate(cases, &m, source, value);
}

/* ---------------------------------------------------------------------------------------------------------- choices */

typedef struct compiler {
  fl_scanner scan;
  const fl_schema *schema;
  fl_cases *cases;
  bool known[FL_PARTS_MAX]; /* the names that an expression may use here */
} compiler;

/* Length of the choice at the cursor: up to white space or the clause's end. */
static size_t word_length(const compiler *c) {
  return strcspn(c->scan.at, " \t\r\n;");
}

static fl_status check_expression(const compiler *c, fl_rule_source source) {
  const meaning m = {c->schema, c->known, NULL};
  double value;
  return evaluate(c->cases, &m, source, &value);
}

static fl_status parse_expression(compiler *c, fl_choice *choice) {
  choice->low = (fl_rule_source){c->scan.at, (uint32_t)word_length(c)};
  c->scan.at += choice->low.length;
  return check_expression(c, choice->low);
}

/* "0..p-1" */
static fl_status parse_range(compiler *c, fl_choice *choice) {
  fl_scan_peek(&c->scan);
  size_t length = word_length(c), low = 0;
  const char *text = c->scan.at;
  while (low + 1 < length && !(text[low] == '.' && text[low + 1] == '.'))
    low++;
  if (low + 1 >= length)
    return fl_scan_unexpected(&c->scan, "what is in the tensor: normal, moderate, or LOW..HIGH without spaces", NULL,
                              0);
  choice->low = (fl_rule_source){text, (uint32_t)low};
  choice->high = (fl_rule_source){text + low + 2, (uint32_t)(length - low - 2)};
  c->scan.at += length;
  fl_status status = check_expression(c, choice->low);
  return status ? status : check_expression(c, choice->high);
}

/* "[n, 1]" before what is in the tensor. */
static fl_status parse_shape(compiler *c, fl_choice *choice) {
  if (!fl_scan_accept(&c->scan, "["))
    return FL_OK;
  choice->n_shape = 0;
  while (!fl_scan_accept(&c->scan, "]")) {
    if (choice->n_shape && !fl_scan_accept(&c->scan, ","))
      return fl_scan_unexpected(&c->scan, "',' or ']' in the shape", NULL, 0);
    if (choice->n_shape == FL_MAX_DIMS)
      return fl_scan_fail(&c->scan, c->scan.at, "more than %d dimensions", FL_MAX_DIMS);
    fl_scan_peek(&c->scan);
    fl_rule_source size = {c->scan.at, (uint32_t)strcspn(c->scan.at, " \t\r\n,];")};
    fl_status status = check_expression(c, size);
    if (status)
      return status;
    c->scan.at += size.length;
    choice->shape[choice->n_shape++] = size;
  }
  return FL_OK;
}

/* "float8_e4m3fn -100..100", "T -1..1": the alternative of the tensor's rule that has this type. */
static fl_status parse_dtype(compiler *c, uint32_t argument, fl_choice *choice) {
  const fl_rules *rules = c->schema->compiled;
  const fl_rule_clause *rule = fl_rules_of_argument(rules, argument);
  size_t length = fl_scan_word(&c->scan);
  uint32_t variable = 0, type = 0;
  if (!length)
    return FL_OK;
  while (variable < rules->n_variables && (rules->variables[variable].source.length != length ||
                                           memcmp(rules->variables[variable].source.text, c->scan.at, length) != 0))
    variable++;
  while (type < FL_DTYPE_COUNT && (strlen(fl_element_types[type].name) != length ||
                                   memcmp(fl_element_types[type].name, c->scan.at, length) != 0))
    type++;
  if (variable == rules->n_variables && type == FL_DTYPE_COUNT)
    return FL_OK;
  choice->dtype = type < FL_DTYPE_COUNT ? UINT32_C(1) << type : 0;
  for (uint8_t i = 0; rule && i < rule->n_alternatives; i++) {
    const fl_rule_alternative *alternative = &rules->alternatives[rule->first_alternative + i];
    if (choice->dtype ? !(alternative->dtypes & choice->dtype) : alternative->variable != variable)
      continue;
    choice->alternative = i;
    c->scan.at += length;
    return FL_OK;
  }
  return fl_scan_fail(&c->scan, c->scan.at, "the rules do not let '%s' be '%.*s'", c->schema->values[argument].name,
                      (int)length, c->scan.at);
}

static fl_status parse_contents(compiler *c, uint32_t argument, fl_choice *choice) {
  fl_status status = parse_dtype(c, argument, choice);
  if (!status)
    status = parse_shape(c, choice);
  if (status)
    return status;
  choice->contents = fl_scan_accept(&c->scan, "normal")     ? FL_CONTENTS_NORMAL
                     : fl_scan_accept(&c->scan, "moderate") ? FL_CONTENTS_MODERATE
                                                            : (fl_contents)0;
  if (choice->contents)
    return FL_OK;
  choice->contents = fl_scan_accept(&c->scan, "distinct")    ? FL_CONTENTS_DISTINCT
                     : fl_scan_accept(&c->scan, "ascending") ? FL_CONTENTS_ASCENDING
                                                             : FL_CONTENTS_RANGE;
  return parse_range(c, choice);
}

static fl_status parse_literal(compiler *c, fl_type type, fl_choice *choice) {
  static const char *const words[] = {"false", "true"};
  const char *begin = c->scan.at;
  fl_arena *arena = &c->cases->owned;
  fl_status status = FL_OK;
  if (type == FL_STRING && *begin != '"') {
    choice->value = fl_string(fl_arena_bytes(arena, begin, word_length(c)));
    c->scan.at += word_length(c);
  } else {
    status = fl_literal_read(&c->scan, type, words, arena, &choice->value);
  }
  if (!status && word_length(c))
    return fl_scan_unexpected(&c->scan, "white space or the end behind the choice", NULL, 0);
  return arena->failed ? fl_error_no_memory() : status;
}

/* Leading dimensions are sizes. */
static fl_status parse_leading(compiler *c, fl_choice *choice) {
  const char *begin = c->scan.at;
  fl_status status = parse_literal(c, FL_INT_LIST, choice);
  if (!status && choice->value.length > FL_MAX_DIMS)
    return fl_scan_fail(&c->scan, begin, "more than %d sizes", FL_MAX_DIMS);
  for (uint32_t i = 0; !status && i < choice->value.length; i++)
    if (choice->value.v.ints[i] < 0)
      status = fl_scan_fail(&c->scan, begin, "a size is negative");
  return status;
}

static fl_status parse_choice(compiler *c, uint32_t part, fl_choice *choice) {
  const fl_rules *rules = c->schema->compiled;
  uint32_t index = part < rules->n_names ? rules->names[part].argument : part - rules->n_names;
  const fl_argument *argument = index < c->schema->n_arguments ? &c->schema->values[index] : NULL;
  const char *begin = c->scan.at;
  if (part == fl_part_leading(c->schema))
    return parse_leading(c, choice);
  choice->none = fl_scan_accept(&c->scan, "none");
  if (choice->none && argument && argument->optional)
    return FL_OK;
  if (choice->none && !(argument && argument->type == FL_STRING)) /* "none" is a word like others, too */
    return fl_scan_fail(&c->scan, begin, "this cannot be none");
  choice->none = false;
  c->scan.at = begin;
  if (!argument || argument->type == FL_INT)
    return parse_expression(c, choice);
  return argument->type == FL_TENSOR ? parse_contents(c, index, choice) : parse_literal(c, argument->type, choice);
}

/* ---------------------------------------------------------------------------------------------------------- clauses */

static fl_status add_choice(compiler *c, fl_case_clause *clause) {
  fl_cases *cases = c->cases;
  if (clause->n_choices == FL_CHOICES_MAX)
    return fl_scan_fail(&c->scan, c->scan.at, "more than %d choices", FL_CHOICES_MAX);
  if (!fl_array_grow(&cases->choices, cases->n_choices, sizeof *cases->choices))
    return fl_error_no_memory();
  fl_choice *choice = &cases->choices[cases->n_choices++];
  *choice = (fl_choice){.value = fl_none(), .n_shape = -1, .alternative = NONE};
  clause->n_choices++;
  return parse_choice(c, clause->part, choice);
}

static fl_status unknown_part(compiler *c, size_t length) {
  const fl_schema *schema = c->schema;
  const char *names[FL_SCHEMA_MAX_VALUES];
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    names[i] = schema->values[i].name;
  if (length)
    return fl_scan_unexpected(&c->scan, "a dimension of the rules, an argument or '...'", names, schema->n_arguments);
  return fl_scan_unexpected(&c->scan, "the name of a dimension or argument, or '...'", NULL, 0);
}

/* "as weight", before the choices: the choice of the same number as that of the other clause. */
static fl_status parse_companion(compiler *c, fl_case_clause *clause, const fl_case_clause **other) {
  const char *begin = c->scan.at;
  *other = NULL;
  if (!fl_scan_accept(&c->scan, "as"))
    return FL_OK;
  size_t length = fl_scan_word(&c->scan);
  uint32_t part = find_part(c->schema, c->scan.at, length);
  if (part == FL_PARTS_MAX || c->cases->clause_of[part] == NONE)
    return fl_scan_fail(&c->scan, begin, "'as' and the name of what has a clause before this one expected");
  *other = &c->cases->clauses[c->cases->clause_of[part]];
  clause->drawn_as = (*other)->drawn_as;
  c->scan.at += length;
  return FL_OK;
}

/* "with conv_state", before the choices: a tensor that comes with another one, or instead of it. */
static fl_status parse_condition(compiler *c, fl_case_clause *clause) {
  const fl_schema *schema = c->schema;
  uint32_t n_names = schema->compiled->n_names, own = clause->part - n_names;
  const char *names[FL_SCHEMA_MAX_VALUES];
  clause->condition = NONE;
  if (clause->part < n_names || own >= schema->n_arguments || schema->values[own].type != FL_TENSOR)
    return FL_OK;
  clause->without = fl_scan_accept(&c->scan, "without");
  if (!clause->without && !fl_scan_accept(&c->scan, "with"))
    return FL_OK;
  size_t length = fl_scan_word(&c->scan);
  uint32_t other = fl_schema_find(schema, c->scan.at, length);
  for (uint32_t i = 0; i < own; i++)
    names[i] = schema->values[i].name;
  if (other >= own || schema->values[other].type != FL_TENSOR)
    return fl_scan_unexpected(&c->scan, "the name of a tensor argument before this one", names, own);
  if (!schema->values[own].optional)
    return fl_scan_fail(&c->scan, c->scan.at, "'%s' cannot be none", schema->values[own].name);
  clause->condition = (uint8_t)other;
  c->scan.at += length;
  return FL_OK;
}

/* "d: 1 64 1365" */
static fl_status parse_clause(compiler *c) {
  fl_cases *cases = c->cases;
  fl_case_clause clause = {.part = fl_part_leading(c->schema), .first_choice = cases->n_choices};
  fl_scan_peek(&c->scan);
  const char *begin = c->scan.at;
  if (!fl_scan_accept(&c->scan, "...")) {
    size_t length = fl_scan_word(&c->scan);
    clause.part = length ? find_part(c->schema, begin, length) : (uint32_t)FL_PARTS_MAX;
    if (clause.part == FL_PARTS_MAX)
      return unknown_part(c, length);
    c->scan.at += length;
  }
  if (cases->clause_of[clause.part] != NONE)
    return fl_scan_fail(&c->scan, begin, "there are two clauses for '%.*s'", (int)(c->scan.at - begin), begin);
  if (!fl_scan_accept(&c->scan, ":"))
    return fl_scan_unexpected(&c->scan, "':' and the choices", NULL, 0);
  const fl_case_clause *other;
  clause.drawn_as = clause.part;
  fl_status status = parse_condition(c, &clause);
  if (!status)
    status = parse_companion(c, &clause, &other);
  if (status)
    return status;
  uint32_t expected = other ? other->n_choices : 0;
  if (!fl_array_grow(&cases->clauses, cases->n_clauses, sizeof *cases->clauses))
    return fl_error_no_memory();
  c->known[clause.part] = false;
  while (fl_scan_peek(&c->scan) && *c->scan.at != ';') {
    status = add_choice(c, &clause);
    if (status)
      return status;
  }
  if (!clause.n_choices)
    return fl_scan_unexpected(&c->scan, "a choice", NULL, 0);
  if (expected && clause.n_choices != expected)
    return fl_scan_fail(&c->scan, begin, "%u choices, expected %u, as the clause has that it follows",
                        (unsigned)clause.n_choices, (unsigned)expected);
  c->known[clause.part] = true;
  cases->clause_of[clause.part] = (uint8_t)cases->n_clauses;
  cases->clauses[cases->n_clauses++] = clause;
  return FL_OK;
}

/* A name may be used before its clause is met only where it has none. */
static void find_known(compiler *c) {
  const char *at = c->cases->text;
  for (uint32_t i = 0; i < FL_PARTS_MAX; i++)
    c->known[i] = true;
  while (at && *at) {
    at += strspn(at, " \t\r\n;");
    size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    uint32_t part = length ? find_part(c->schema, at, length) : (uint32_t)FL_PARTS_MAX;
    if (part < FL_PARTS_MAX)
      c->known[part] = false;
    at = strchr(at, ';');
  }
}

fl_status fl_cases_compile(const fl_schema *schema, const char *what, const char *text, fl_cases **cases) {
  compiler c = {.scan = {what, text, text}, .schema = schema};
  fl_status status = FL_OK;
  c.cases = calloc(1, sizeof *c.cases);
  if (!c.cases)
    return fl_error_no_memory();
  c.cases->what = what;
  c.cases->text = text;
  memset(c.cases->clause_of, NONE, sizeof c.cases->clause_of);
  find_known(&c);
  while (!status && fl_scan_peek(&c.scan)) {
    status = parse_clause(&c);
    if (!status && fl_scan_peek(&c.scan) && !fl_scan_accept(&c.scan, ";"))
      status = fl_scan_unexpected(&c.scan, "';' or the end", NULL, 0);
  }
  if (status)
    fl_cases_free(c.cases);
  else
    *cases = c.cases;
  return status;
}

void fl_cases_free(fl_cases *cases) {
  if (!cases)
    return;
  fl_arena_free(&cases->owned);
  free(cases->clauses);
  free(cases->choices);
  free(cases);
}

/* -------------------------------------------------------------------------------------------- those of a schema */

static void release(fl_derived *derived) {
  fl_cases_free((fl_cases *)derived);
}

/* The place is set once: what another thread put there first stays. */
static fl_status compile_once(const fl_schema *schema, const char *what, const char *text, int which,
                              const fl_cases **cases) {
  _Atomic(fl_derived *) *place = &((fl_schema *)schema)->derived[which];
  fl_derived *before = atomic_load_explicit(place, memory_order_acquire);
  fl_cases *compiled = NULL;
  fl_status status = before ? FL_OK : fl_cases_compile(schema, what, text, &compiled);
  if (!before && !status) {
    compiled->derived.release = release;
    if (!atomic_compare_exchange_strong(place, &before, &compiled->derived))
      fl_cases_free(compiled);
  }
  if (!status)
    *cases = before ? (const fl_cases *)before : compiled;
  return status;
}

fl_status fl_schema_cases(const fl_schema *schema, const fl_cases **cases) {
  return compile_once(schema, "cases", schema->cases, FL_SCHEMA_CASES, cases);
}

fl_status fl_schema_bench(const fl_schema *schema, const fl_cases **bench) {
  return compile_once(schema, "bench", schema->bench, FL_SCHEMA_BENCH, bench);
}

fl_status fl_schema_create_checked(const fl_op_def *def, fl_schema **schema) {
  fl_schema *created = NULL;
  const fl_cases *parsed;
  fl_status status = fl_schema_create(def, &created);
  if (!status)
    status = fl_schema_cases(created, &parsed);
  if (!status)
    status = fl_schema_bench(created, &parsed);
  if (!status)
    status = fl_cost_check(created);
  if (status)
    fl_schema_free(created);
  else
    *schema = created;
  return status;
}
