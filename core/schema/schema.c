/* Schemas: the parser of PyTorch-style declarations, identity and tolerances. */
#include "core/schema/schema.h"

#include "core/schema/literal.h"
#include "core/schema/parts.h"
#include "core/schema/ranks.h"
#include "core/schema/rules.h"
#include "core/support.h"

#include <math.h>
#include <stdlib.h>

static _Atomic uint64_t last_id; /* of a schema, in this process */

fl_tolerance fl_schema_tolerance(const fl_schema *schema, DLDataType dtype) {
  const fl_element_type *row = fl_element_type_of(dtype);
  if (!row || !row->bit)
    return (fl_tolerance){0};
  fl_tolerance tolerance = {row->bit, row->atol, row->rtol};
  for (const fl_tolerance *own = schema->tolerance; own && own->dtype; own++)
    if (own->dtype == tolerance.dtype)
      return *own;
  return tolerance;
}

/* ------------------------------------------------------------------------------------------------------ the parser */

static const char *const type_words[] = {"Tensor", "int", "float", "bool", "str"};
static const fl_type types[] = {FL_TENSOR, FL_INT, FL_FLOAT, FL_BOOL, FL_STRING};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* What the parser knows beyond the schema that it builds. */
typedef struct parser {
  fl_scanner scan;
  fl_schema *schema;
  fl_text canonical;
  size_t results_at;                  /* in that */
  char letters[FL_SCHEMA_MAX_VALUES]; /* of aliases; 0: none */
} parser;

static void add_canonical(parser *p, const char *text) {
  fl_text_add_bytes(&p->canonical, text, strlen(text));
}

/* "(a!)" of an argument, "(a)" of a result. */
static fl_status parse_alias(parser *p, bool is_result, fl_argument *value, char *letter) {
  char c = fl_scan_peek(&p->scan);
  if (c < 'a' || c > 'z' || fl_scan_word(&p->scan) != 1)
    return fl_scan_unexpected(&p->scan, "an alias, one lower-case letter", NULL, 0);
  *letter = c;
  p->scan.at++;
  const char *mark = p->scan.at;
  value->mutates = fl_scan_accept(&p->scan, "!");
  if (is_result && value->mutates)
    return fl_scan_fail(&p->scan, mark,
                        "found '!', expected ')': a result that may be an argument is written Tensor(%c)", c);
  if (!is_result && !value->mutates)
    return fl_scan_fail(&p->scan, mark,
                        "found no '!': an argument that may be overwritten is written Tensor(%c!), any other Tensor",
                        c);
  if (!fl_scan_accept(&p->scan, ")"))
    return fl_scan_unexpected(&p->scan, "')' after the alias", NULL, 0);
  fl_text_add(&p->canonical, "(%c%s)", c, value->mutates ? "!" : "");
  return FL_OK;
}

static fl_status parse_type(parser *p, bool is_result, fl_argument *value, char *letter) {
  int type = 0;
  while (type < N_TYPES && !fl_scan_accept(&p->scan, type_words[type]))
    type++;
  if (type == N_TYPES)
    return fl_scan_unexpected(&p->scan, "a type (Tensor, int, float, bool or str)", type_words, N_TYPES);
  value->type = types[type];
  add_canonical(p, type_words[type]);
  if (value->type == FL_TENSOR && fl_scan_accept(&p->scan, "(")) {
    fl_status status = parse_alias(p, is_result, value, letter);
    if (status)
      return status;
  }
  if (value->type == FL_INT && fl_scan_accept(&p->scan, "[")) {
    if (!fl_scan_accept(&p->scan, "]"))
      return fl_scan_unexpected(&p->scan, "']' of int[]", NULL, 0);
    value->type = FL_INT_LIST;
    add_canonical(p, "[]");
  }
  value->optional = fl_scan_accept(&p->scan, "?");
  if (value->optional)
    add_canonical(p, "?");
  return FL_OK;
}

/* "1", "None": as it is written, but for a list. */
static fl_status parse_default(parser *p, fl_argument *value) {
  static const char *const words[] = {"False", "True"};
  value->has_default = true;
  add_canonical(p, "=");
  fl_scan_peek(&p->scan);
  const char *begin = p->scan.at;
  fl_status status = FL_OK;
  if (fl_scan_accept(&p->scan, "None")) {
    if (!value->optional)
      return fl_scan_fail(&p->scan, begin, "'%s' cannot be None: its type has no '?'", value->name);
  } else if (value->type == FL_TENSOR) {
    return fl_scan_unexpected(&p->scan, "None", NULL, 0);
  } else {
    status = fl_literal_read(&p->scan, value->type, words, &p->schema->owned, &value->default_value);
  }
  if (status || value->default_value.type != FL_INT_LIST) {
    fl_text_add_bytes(&p->canonical, begin, (size_t)(p->scan.at - begin));
    return status;
  }
  for (uint32_t i = 0; i < value->default_value.length; i++)
    fl_text_add(&p->canonical, "%s%lld", i ? ", " : "[", (long long)value->default_value.v.ints[i]);
  add_canonical(p, value->default_value.length ? "]" : "[]");
  return FL_OK;
}

static fl_status add_value(parser *p, bool is_result, fl_argument **value) {
  fl_schema *schema = p->schema;
  uint32_t n = schema->n_arguments + schema->n_results;
  if (n == FL_SCHEMA_MAX_VALUES || (is_result && schema->n_results == FL_SCHEMA_MAX_RESULTS))
    return fl_scan_fail(&p->scan, p->scan.at, "more than %d %s",
                        is_result ? (int)FL_SCHEMA_MAX_RESULTS : (int)FL_SCHEMA_MAX_VALUES,
                        is_result ? "results" : "arguments and results");
  if (!fl_array_grow(&schema->values, n, sizeof *schema->values))
    return fl_error_no_memory();
  *value = &schema->values[n];
  **value = (fl_argument){.size = sizeof **value, .alias = -1};
  *(is_result ? &schema->n_results : &schema->n_arguments) += 1;
  return FL_OK;
}

uint32_t fl_schema_find(const fl_schema *schema, const char *name, size_t length) {
  uint32_t n = schema->n_arguments + schema->n_results, i = 0;
  for (; i < n; i++) {
    const char *known = schema->values[i].name; /* NULL: it has none yet */
    if (known && !strncmp(known, name, length) && !known[length])
      break;
  }
  return i;
}

bool fl_schema_is_state(const fl_schema *schema, uint32_t index) {
  for (uint32_t i = 0; i < schema->n_results; i++)
    if (schema->values[schema->n_arguments + i].alias == (int32_t)index)
      return false;
  return index < schema->n_arguments && schema->values[index].mutates;
}

/* A copy that is the schema's; "" where there is no memory, of which the arena tells in the end. */
static const char *keep(fl_schema *schema, const char *text, size_t length) {
  char *kept = fl_arena_allocate(&schema->owned, length + 1);
  return kept ? memcpy(kept, text, length) : "";
}

static fl_status set_name(parser *p, fl_argument *value, const char *name, size_t length) {
  fl_schema *schema = p->schema;
  if (fl_schema_find(schema, name, length) < schema->n_arguments + schema->n_results)
    return fl_scan_fail(&p->scan, p->scan.at, "there are two values named '%.*s'", (int)length, name);
  value->name = keep(schema, name, length);
  return FL_OK;
}

/* The name at the cursor. */
static fl_status parse_name(parser *p, fl_argument *value, size_t length) {
  fl_status status = set_name(p, value, p->scan.at, length);
  if (status)
    return status;
  p->scan.at += length;
  add_canonical(p, " ");
  add_canonical(p, value->name);
  return FL_OK;
}

/* The first of values[0..n) with that alias letter, n if there is none. */
static uint32_t find_letter(const parser *p, uint32_t n, char letter) {
  uint32_t i = 0;
  while (i < n && p->letters[i] != letter)
    i++;
  return i;
}

static fl_status parse_argument(parser *p) {
  fl_argument *value = NULL;
  fl_scan_peek(&p->scan);
  const char *begin = p->scan.at;
  fl_status status = add_value(p, false, &value);
  if (status)
    return status;
  uint32_t index = p->schema->n_arguments - 1;
  char *letter = &p->letters[index];
  status = parse_type(p, false, value, letter);
  if (status)
    return status;
  if (*letter && find_letter(p, index, *letter) < index)
    return fl_scan_fail(&p->scan, begin, "there are two arguments of alias '%c'", *letter);
  size_t length = fl_scan_word(&p->scan);
  if (!length)
    return fl_scan_unexpected(&p->scan, "the argument's name", NULL, 0);
  status = parse_name(p, value, length);
  if (status)
    return status;
  if (fl_scan_accept(&p->scan, "="))
    return parse_default(p, value);
  if (index && value[-1].has_default)
    return fl_scan_fail(&p->scan, begin, "'%s' has no default but comes after '%s', which has one", value->name,
                        value[-1].name);
  return FL_OK;
}

/* Finds the argument that a result may be. */
static fl_status link_alias(parser *p, fl_argument *value, char letter, const char *begin) {
  fl_schema *schema = p->schema;
  uint32_t argument = find_letter(p, schema->n_arguments, letter);
  if (argument == schema->n_arguments)
    return fl_scan_fail(&p->scan, begin, "no argument is written Tensor(%c!)", letter);
  for (fl_argument *other = schema->values + schema->n_arguments; other < value; other++)
    if (other->alias == (int32_t)argument)
      return fl_scan_fail(&p->scan, begin, "two results may be argument '%s'", schema->values[argument].name);
  if (schema->values[argument].optional && !value->optional)
    return fl_scan_fail(&p->scan, begin, "argument '%s' may be none, so this result is written Tensor(%c)?",
                        schema->values[argument].name, letter);
  value->alias = (int32_t)argument;
  return FL_OK;
}

static fl_status parse_result(parser *p) {
  fl_argument *value = NULL;
  fl_scan_peek(&p->scan);
  const char *begin = p->scan.at;
  char letter = 0;
  fl_status status = add_value(p, true, &value);
  if (!status)
    status = parse_type(p, true, value, &letter);
  if (!status && letter)
    status = link_alias(p, value, letter, begin);
  if (status)
    return status;
  size_t length = fl_scan_word(&p->scan);
  return length ? parse_name(p, value, length) : FL_OK;
}

/* Unnamed results are called out, or out0, out1… */
static fl_status name_results(parser *p) {
  fl_schema *schema = p->schema;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    char name[16];
    fl_argument *value = &schema->values[schema->n_arguments + i];
    if (schema->n_results == 1)
      snprintf(name, sizeof name, "out");
    else
      snprintf(name, sizeof name, "out%u", (unsigned)i);
    fl_status status = value->name ? FL_OK : set_name(p, value, name, strlen(name));
    if (status)
      return status;
  }
  return FL_OK;
}

/* Values up to ')'. */
static fl_status parse_list(parser *p, fl_status (*parse)(parser *)) {
  for (uint32_t n = 0; !fl_scan_accept(&p->scan, ")"); n++) {
    if (n && !fl_scan_accept(&p->scan, ","))
      return fl_scan_unexpected(&p->scan, "',' or ')'", NULL, 0);
    if (n)
      add_canonical(p, ", ");
    fl_status status = parse(p);
    if (status)
      return status;
  }
  return FL_OK;
}

static fl_status parse_op_name(parser *p) {
  size_t length = fl_scan_word(&p->scan);
  if (!length)
    return fl_scan_unexpected(&p->scan, "the op's name", NULL, 0);
  if (length > FL_NAME_MAX)
    return fl_scan_fail(&p->scan, p->scan.at, "the op's name is longer than %d bytes", FL_NAME_MAX);
  p->schema->op_name = keep(p->schema, p->scan.at, length);
  p->scan.at += length;
  return FL_OK;
}

static fl_status parse_results(parser *p) {
  fl_status status = FL_OK;
  if (!fl_scan_accept(&p->scan, "->"))
    return fl_scan_unexpected(&p->scan, "'->' and the results, '-> ()' for none", NULL, 0);
  if (!fl_scan_accept(&p->scan, "("))
    status = parse_result(p);
  else
    status = parse_list(p, parse_result);
  if (status)
    return status;
  if (fl_scan_peek(&p->scan))
    return fl_scan_unexpected(&p->scan, "the end of the schema", NULL, 0);
  return name_results(p);
}

static fl_status parse_all(parser *p) {
  fl_status status = parse_op_name(p);
  if (status)
    return status;
  if (!fl_scan_accept(&p->scan, "("))
    return fl_scan_unexpected(&p->scan, "'(' and the arguments", NULL, 0);
  fl_text_add(&p->canonical, "%s(", p->schema->op_name);
  status = parse_list(p, parse_argument);
  add_canonical(p, ") -> ");
  p->results_at = p->canonical.length;
  return status ? status : parse_results(p);
}

static fl_status parse_schema(fl_schema *schema, const char *text) {
  parser p = {.scan = {"schema", text, text}, .schema = schema};
  fl_status status = parse_all(&p);
  const char *canonical = fl_text_get(&p.canonical);
  schema->owned.failed |= p.canonical.failed;
  if (!status && schema->n_results == 1)
    schema->text = fl_arena_string(&schema->owned, canonical);
  else if (!status)
    schema->text = fl_arena_format(&schema->owned, "%.*s(%s)", (int)p.results_at, canonical, canonical + p.results_at);
  fl_text_free(&p.canonical);
  return status;
}

/* --------------------------------------------------------------------------------------------- the rest of an entry */

static const char *keep_string(fl_schema *schema, const char *string) {
  return fl_arena_string(&schema->owned, string ? string : "");
}

/* Sizes of array elements: 0 is that of the first header. */
static fl_status take_element_size(uint32_t *size, uint32_t first, uint32_t most, const char *op, const char *field) {
  *size = *size ? *size : first;
  return *size < first || *size > most ? fl_error(FL_EINVAL, "%s: %s is %u, expected %u to %u, or 0 for %u", op, field,
                                                  (unsigned)*size, (unsigned)first, (unsigned)most, (unsigned)first)
                                       : FL_OK;
}

static fl_status copy_tolerance(fl_schema *schema, const fl_tolerance *tolerance, uint32_t size) {
  uint32_t n = 0;
  for (; tolerance && FL_AT(tolerance, size, n)->dtype; n++) {
    const fl_tolerance *row = FL_AT(tolerance, size, n);
    if (row->dtype & (row->dtype - 1) || row->dtype >> FL_DTYPE_COUNT)
      return fl_error(FL_EINVAL, "%s: tolerance %u is for dtype 0x%x, expected one of FL_FLOAT32...", schema->op_name,
                      (unsigned)n, (unsigned)row->dtype);
    if (!(row->atol >= 0 && row->rtol >= 0))
      return fl_error(FL_EINVAL, "%s: tolerance %u is negative or not a number", schema->op_name, (unsigned)n);
  }
  if (!n)
    return FL_OK;
  fl_tolerance *rows = fl_arena_array(&schema->owned, n + 1, sizeof *rows);
  if (rows)
    fl_elements_take(rows, sizeof *rows, tolerance, size, n);
  schema->tolerance = rows;
  return FL_OK;
}

static int32_t find_device_argument(const fl_schema *schema) {
  int32_t first = -1;
  for (uint32_t i = 0; i < schema->n_arguments + schema->n_results; i++) {
    if (schema->values[i].type != FL_TENSOR)
      continue;
    if (!schema->values[i].optional)
      return (int32_t)i;
    if (first < 0)
      first = (int32_t)i;
  }
  return first;
}

fl_status fl_schema_create(const fl_op_def *def, fl_schema **schema) {
  fl_op_def full;
  if (!def || def->size < offsetof(fl_op_def, schema) + sizeof def->schema || !def->schema)
    return fl_error(FL_EINVAL, "an op needs its struct's size and a schema");
  fl_sized_take(&full, sizeof full, def);
  fl_schema *created = calloc(1, sizeof *created);
  if (!created)
    return fl_error_no_memory();
  fl_status status = parse_schema(created, full.schema);
  if (!status && full.flags & ~(uint32_t)FL_OP_NOT_FINITE)
    status = fl_error(FL_EINVAL, "%s: flags 0x%x, expected 0 or FL_OP_NOT_FINITE (0x%x)", created->op_name,
                      (unsigned)full.flags, (unsigned)FL_OP_NOT_FINITE);
  if (status)
    goto out;
  status = take_element_size(&full.spec_size, FL_FIRST_SPEC_SIZE, FL_SPEC_SIZE_MAX, created->op_name, "spec_size");
  if (!status)
    status = take_element_size(&full.tolerance_size, FL_FIRST_TOLERANCE_SIZE, UINT16_MAX, created->op_name,
                               "tolerance_size");
  if (status)
    goto out;
  created->flags = full.flags;
  created->spec_size = full.spec_size;
  created->id = atomic_fetch_add(&last_id, 1) + 1;
  created->infer = full.infer;
  created->check = full.check;
  created->device_argument = find_device_argument(created);
  created->rules = keep_string(created, full.rules);
  created->category = keep_string(created, full.category);
  created->doc = keep_string(created, full.doc);
  created->formula = keep_string(created, full.formula);
  created->cases = keep_string(created, full.cases);
  created->bench = keep_string(created, full.bench);
  created->bytes = keep_string(created, full.bytes);
  created->flops = keep_string(created, full.flops);
  created->parts = keep_string(created, full.parts);
  created->ranks = keep_string(created, full.ranks);
  status = copy_tolerance(created, full.tolerance, full.tolerance_size);
  if (!status)
    status = fl_rules_compile(created, &created->compiled);
  if (!status)
    status = fl_parts_parse(created, &created->parsed);
  if (!status)
    status = fl_ranks_parse(created, &created->over_ranks);
out:
  if (created->owned.failed)
    status = fl_error_no_memory();
  if (status)
    fl_schema_free(created);
  else
    *schema = created;
  return status;
}

void fl_schema_free(fl_schema *schema) {
  if (!schema)
    return;
  free(schema->values);
  fl_arena_free(&schema->owned);
  fl_rules_free(schema->compiled);
  fl_parts_free(schema->parsed);
  for (int i = 0; i < FL_SCHEMA_DERIVED; i++) {
    fl_derived *derived = atomic_load_explicit(&schema->derived[i], memory_order_relaxed);
    if (derived)
      derived->release(derived);
  }
  free(schema);
}

/* -------------------------------------------------------------------------------------------------------- identity */

static bool same_default(const fl_value *a, const fl_value *b) {
  if (a->type != b->type || a->length != b->length)
    return false;
  switch (a->type) {
  case FL_NONE:
    return true;
  case FL_FLOAT:
    return a->v.f == b->v.f || (isnan(a->v.f) && isnan(b->v.f));
  case FL_BOOL:
    return a->v.b == b->v.b;
  case FL_STRING:
    return !strcmp(a->v.s, b->v.s);
  case FL_INT_LIST:
    return !a->length || !memcmp(a->v.ints, b->v.ints, a->length * sizeof *a->v.ints);
  default:
    return a->v.i == b->v.i;
  }
}

static bool same_argument(const fl_argument *a, const fl_argument *b) {
  return !strcmp(a->name, b->name) && a->type == b->type && a->optional == b->optional && a->mutates == b->mutates &&
         a->alias == b->alias && a->has_default == b->has_default && same_default(&a->default_value, &b->default_value);
}

bool fl_schema_same(const fl_schema *a, const fl_schema *b) {
  if (strcmp(a->op_name, b->op_name) || a->n_arguments != b->n_arguments || a->n_results != b->n_results)
    return false;
  for (uint32_t i = 0; i < a->n_arguments + a->n_results; i++)
    if (!same_argument(&a->values[i], &b->values[i]))
      return false;
  return true;
}
