/* The parser of parts: see parts.h. It refuses what would read a value before it is made, or after it may be gone. */
#include "core/schema/parts.h"

#include "core/schema/expression.h"
#include "core/schema/literal.h"

#include <stdlib.h>

enum { NONE_FOUND = FL_PARTS_LITERAL };

/* What is known while the text is read. */
typedef struct reader {
  fl_scanner scan;
  fl_schema *schema;
  fl_parts *parts;
  fl_rule_source between[FL_PARTS_BETWEEN_MAX];
  bool made[FL_SCHEMA_MAX_VALUES]; /* results, by parts before */
  bool gone[FL_SCHEMA_MAX_VALUES]; /* arguments that a result may have taken the place of */
} reader;

static bool is_result(const fl_schema *schema, uint32_t value) {
  return value >= schema->n_arguments && value < schema->n_arguments + schema->n_results;
}

/* A value of the op, or a tensor between, that has this name; NONE_FOUND. */
static uint16_t find(const reader *r, const char *name, size_t length) {
  uint32_t value = fl_schema_find(r->schema, name, length);
  if (value < r->schema->n_arguments + r->schema->n_results)
    return (uint16_t)value;
  for (uint32_t i = 0; i < r->parts->n_between; i++)
    if (r->between[i].length == length && !memcmp(r->between[i].text, name, length))
      return (uint16_t)(FL_PARTS_BETWEEN + i);
  return NONE_FOUND;
}

/* A word at the cursor, kept; moves past it. */
static fl_status read_word(reader *r, const char *expected, const char **word) {
  size_t length = fl_scan_word(&r->scan);
  if (!length)
    return fl_scan_unexpected(&r->scan, expected, NULL, 0);
  *word = fl_arena_bytes(&r->schema->owned, r->scan.at, length);
  r->scan.at += length;
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- slices */

/* What a slice's names mean; bindings NULL: only the form is looked at. */
typedef struct meaning {
  const fl_schema *schema;
  const fl_bindings *bindings;
} meaning;

static fl_status evaluate_name(fl_expression *e, fl_operand *operand) {
  const meaning *m = e->context;
  const fl_rules *rules = m->schema->compiled;
  size_t length = fl_scan_word(&e->scan);
  uint32_t i = fl_rules_find(rules, e->scan.at, length);
  if (i == rules->n_names)
    return fl_scan_unexpected(&e->scan, "a dimension's name of the rules", NULL, 0);
  if (m->bindings && !(m->bindings->names_known & UINT32_C(1) << i))
    return fl_scan_fail(&e->scan, e->scan.at, "'%.*s' is not known in this call", (int)length, e->scan.at);
  operand->value = m->bindings ? (double)m->bindings->names[i] : 1;
  e->scan.at += length;
  return FL_OK;
}

static fl_expression expression_of(const meaning *m, fl_scanner scan, const char *end) {
  return (fl_expression){
      .scan = scan, .end = end, .word = evaluate_name, .context = m, .form = !m->bindings, .exact = true};
}

fl_status fl_parts_bound(const fl_schema *schema, const fl_bindings *bindings, fl_rule_source source, int64_t *value) {
  const meaning m = {schema, bindings};
  fl_expression e = expression_of(&m, (fl_scanner){"parts", schema->parts, source.text}, source.text + source.length);
  double number;
  fl_status status = fl_expression_evaluate(&e, &number);
  if (!status)
    *value = (int64_t)number;
  return status;
}

/* An expression up to `end`; none is of length 0. */
static fl_status read_bound(reader *r, char end, fl_rule_source *source) {
  const meaning m = {r->schema, NULL};
  fl_scan_peek(&r->scan);
  size_t length = 0;
  while (r->scan.at[length] && !strchr(":];", r->scan.at[length]))
    length++;
  *source = (fl_rule_source){r->scan.at, (uint32_t)length};
  double unused;
  fl_expression e = expression_of(&m, r->scan, r->scan.at + length);
  fl_status status = length ? fl_expression_evaluate(&e, &unused) : FL_OK;
  if (status)
    return status;
  r->scan.at += length;
  const char *expected = end == ':' ? "':' of a slice, as in x[..., :d]" : "']' at the end of the slice";
  return fl_scan_accept(&r->scan, (char[]){end, 0}) ? FL_OK : fl_scan_unexpected(&r->scan, expected, NULL, 0);
}

/* Behind the '['. */
static fl_status read_slice(reader *r, fl_part_operand *operand) {
  if (!fl_scan_accept(&r->scan, "...") || !fl_scan_accept(&r->scan, ","))
    return fl_scan_unexpected(&r->scan, "a slice of the last dimension, as in x[..., :d]", NULL, 0);
  operand->sliced = true;
  fl_status status = read_bound(r, ':', &operand->low);
  return status ? status : read_bound(r, ']', &operand->high);
}

/* -------------------------------------------------------------------------------------------------------- operands */

static fl_status check_readable(const reader *r, const char *at, uint16_t value) {
  const fl_schema *schema = r->schema;
  if (value >= FL_PARTS_BETWEEN)
    return FL_OK;
  const char *name = schema->values[value].name;
  if (is_result(schema, value) && !r->made[value])
    return fl_scan_fail(&r->scan, at, "result '%s' is not made yet", name);
  if (r->gone[value])
    return fl_scan_fail(&r->scan, at, "argument '%s' may be overwritten by then: a result before may be in its place",
                        name);
  return FL_OK;
}

static fl_status read_named(reader *r, size_t length, fl_part_operand *operand) {
  const fl_schema *schema = r->schema;
  const char *at = r->scan.at, *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n = schema->n_arguments + schema->n_results;
  operand->value = find(r, at, length);
  for (uint32_t i = 0; i < n; i++)
    names[i] = schema->values[i].name;
  if (operand->value == NONE_FOUND)
    return fl_scan_unexpected(&r->scan, "a value of the op, or a tensor that a part before makes", names, n);
  fl_status status = check_readable(r, at, operand->value);
  if (status)
    return status;
  r->scan.at += length;
  if (!fl_scan_accept(&r->scan, "["))
    return FL_OK;
  if (operand->value < FL_PARTS_BETWEEN && schema->values[operand->value].type != FL_TENSOR)
    return fl_scan_fail(&r->scan, at, "'%.*s' is not a tensor", (int)length, at);
  return read_slice(r, operand);
}

static bool has_point(const char *number) {
  number += *number == '-' || *number == '+';
  while (fl_scan_is_digit(*number))
    number++;
  return *number == '.' || *number == 'e' || *number == 'E';
}

static fl_status read_literal(reader *r, fl_part_operand *operand) {
  static const char *const words[] = {"False", "True"};
  char first = fl_scan_peek(&r->scan);
  fl_type type = first == '"'            ? FL_STRING
                 : first == '['          ? FL_INT_LIST
                 : first == 'T'          ? FL_BOOL
                 : first == 'F'          ? FL_BOOL
                 : has_point(r->scan.at) ? FL_FLOAT
                                         : FL_INT;
  operand->value = FL_PARTS_LITERAL;
  operand->literal = fl_none();
  if (fl_scan_accept(&r->scan, "None"))
    return FL_OK;
  return fl_literal_read(&r->scan, type, words, &r->schema->owned, &operand->literal);
}

/* Does a word stand here that is a literal? */
static bool is_literal_word(const reader *r) {
  fl_scanner ahead = r->scan;
  return fl_scan_accept(&ahead, "None") || fl_scan_accept(&ahead, "True") || fl_scan_accept(&ahead, "False");
}

static fl_status read_operand(reader *r) {
  fl_parts *parts = r->parts;
  fl_part_operand operand = {0};
  size_t length = fl_scan_word(&r->scan);
  fl_scanner behind = r->scan;
  behind.at += length;
  if (length && fl_scan_accept(&behind, "=")) {
    operand.argument = fl_arena_bytes(&r->schema->owned, r->scan.at, length);
    r->scan = behind;
    length = fl_scan_word(&r->scan);
  } else if (parts->n_operands > parts->parts[parts->n].first_operand &&
             parts->operands[parts->n_operands - 1].argument) {
    return fl_scan_unexpected(&r->scan, "an operand with its argument's name, as the one before it", NULL, 0);
  }
  fl_status status = length && !is_literal_word(r) ? read_named(r, length, &operand) : read_literal(r, &operand);
  if (status)
    return status;
  if (!fl_array_grow(&parts->operands, parts->n_operands, sizeof operand))
    return fl_error_no_memory();
  parts->operands[parts->n_operands++] = operand;
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- parts */

static bool is_among(const reader *r, uint32_t first, uint16_t value) {
  for (uint32_t i = first; i < r->parts->n_results; i++)
    if (r->parts->results[i] == value)
      return true;
  return false;
}

/* A result of the part, at the cursor: it is not made before the part is over. */
static fl_status read_result(reader *r) {
  fl_parts *parts = r->parts;
  fl_schema *schema = r->schema;
  size_t length = fl_scan_word(&r->scan);
  const char *at = r->scan.at;
  if (!length)
    return fl_scan_unexpected(&r->scan, "a result of the op, or a name for what is between its parts", NULL, 0);
  bool unused = length == 1 && *at == '_';
  uint16_t value = unused ? (uint16_t)NONE_FOUND : find(r, at, length);
  if (value < schema->n_arguments)
    return fl_scan_fail(&r->scan, at, "'%s' is an argument, expected a result of the op or a new name",
                        schema->values[value].name);
  if (value < FL_PARTS_BETWEEN && schema->values[value].type != FL_TENSOR)
    return fl_scan_fail(&r->scan, at, "result '%s' is not a tensor", schema->values[value].name);
  bool again = value < NONE_FOUND && is_among(r, 0, value);
  if (again)
    return fl_scan_fail(&r->scan, at, "'%.*s' is made twice", (int)length, at);
  if (value == NONE_FOUND && parts->n_between == FL_PARTS_BETWEEN_MAX)
    return fl_scan_fail(&r->scan, at, "more than %d tensors between parts", FL_PARTS_BETWEEN_MAX);
  if (value == NONE_FOUND) {
    value = (uint16_t)(FL_PARTS_BETWEEN + parts->n_between);
    r->between[parts->n_between++] = (fl_rule_source){at, unused ? 0 : (uint32_t)length};
  }
  if (!fl_array_grow(&parts->results, parts->n_results, sizeof value))
    return fl_error_no_memory();
  parts->results[parts->n_results++] = value;
  r->scan.at += length;
  return FL_OK;
}

static void note_made(reader *r, const fl_part *part) {
  for (uint32_t i = 0; i < part->n_results; i++) {
    uint16_t value = r->parts->results[part->first_result + i];
    if (value >= FL_PARTS_BETWEEN)
      continue;
    r->made[value] = true;
    if (r->schema->values[value].alias >= 0)
      r->gone[r->schema->values[value].alias] = true;
  }
}

/* Items divided by commas, at least one, up to what stands behind them. */
static fl_status read_items(reader *r, fl_status (*read)(reader *), const char *end, const char *expected) {
  do {
    fl_status status = read(r);
    if (status)
      return status;
  } while (fl_scan_accept(&r->scan, ","));
  return fl_scan_accept(&r->scan, end) ? FL_OK : fl_scan_unexpected(&r->scan, expected, NULL, 0);
}

static fl_status check_slices(const reader *r, const char *at, const fl_part *part) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < part->n_operands; i++)
    n += r->parts->operands[part->first_operand + i].sliced;
  return n <= FL_PARTS_SLICES_MAX ? FL_OK
                                  : fl_scan_fail(&r->scan, at, "more than %d slices in one part", FL_PARTS_SLICES_MAX);
}

static fl_status read_part(reader *r) {
  fl_parts *parts = r->parts;
  uint32_t n_between = parts->n_between;
  if (!fl_array_grow(&parts->parts, parts->n, sizeof *parts->parts))
    return fl_error_no_memory();
  fl_part *part = &parts->parts[parts->n];
  *part = (fl_part){.op = "", .first_operand = (uint16_t)parts->n_operands, .first_result = (uint16_t)parts->n_results};
  fl_scan_peek(&r->scan);
  const char *begin = r->scan.at;
  fl_status status = read_items(r, read_result, "=", "',' or '=' and an op with its operands");
  if (status)
    return status;
  uint32_t made = parts->n_between;
  parts->n_between = n_between; /* a part does not read what it makes */
  fl_scan_peek(&r->scan);
  const char *at = r->scan.at;
  if ((status = read_word(r, "an op", &part->op)))
    return status;
  if (!strcmp(part->op, r->schema->op_name))
    return fl_scan_fail(&r->scan, at, "'%s' is the op itself", part->op);
  if (!fl_scan_accept(&r->scan, "("))
    return fl_scan_unexpected(&r->scan, "'(' and the operands", NULL, 0);
  if ((status = read_items(r, read_operand, ")", "',' or ')'")))
    return status;
  part->n_operands = (uint16_t)(parts->n_operands - part->first_operand);
  part->n_results = (uint16_t)(parts->n_results - part->first_result);
  parts->n_between = made;
  note_made(r, part);
  parts->n++;
  return check_slices(r, begin, part);
}

static fl_status read_all(reader *r) {
  const fl_schema *schema = r->schema;
  while (fl_scan_peek(&r->scan)) {
    if (r->parts->n == FL_SCHEMA_MAX_VALUES)
      return fl_scan_fail(&r->scan, r->scan.at, "more than %d parts", FL_SCHEMA_MAX_VALUES);
    fl_status status = read_part(r);
    if (status)
      return status;
    if (fl_scan_peek(&r->scan) && !fl_scan_accept(&r->scan, ";"))
      return fl_scan_unexpected(&r->scan, "';' or the end", NULL, 0);
  }
  for (uint32_t i = schema->n_arguments; i < schema->n_arguments + schema->n_results; i++)
    if (!r->made[i])
      return fl_scan_fail(&r->scan, r->scan.at, "found the end, but no part makes result '%s'", schema->values[i].name);
  return FL_OK;
}

fl_status fl_parts_parse(fl_schema *schema, fl_parts **parts) {
  reader r = {.scan = {"parts", schema->parts, schema->parts}, .schema = schema};
  *parts = NULL;
  if (!*schema->parts)
    return FL_OK;
  if (!(r.parts = calloc(1, sizeof *r.parts)))
    return fl_error_no_memory();
  fl_status status = read_all(&r);
  if (status)
    fl_parts_free(r.parts);
  else
    *parts = r.parts;
  return status;
}

bool fl_parts_next_op(const char **at, const char **name, size_t *length) {
  fl_scanner scan = {"parts", *at, *at};
  int depth = 0;
  bool quoted = false;
  for (; *scan.at && (depth || quoted || *scan.at != '='); scan.at++) {
    quoted ^= *scan.at == '"';
    depth += quoted ? 0 : (*scan.at == '(') - (*scan.at == ')');
  }
  scan.at += *scan.at != 0;
  *length = fl_scan_word(&scan);
  *name = scan.at;
  *at = scan.at + *length;
  return *length;
}

void fl_parts_free(fl_parts *parts) {
  if (!parts)
    return;
  free(parts->parts);
  free(parts->operands);
  free(parts->results);
  free(parts);
}
