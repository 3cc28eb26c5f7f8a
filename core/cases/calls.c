/*
 * Calls to test an op with, and to time it with. Every choice of a clause comes once in each run of as many calls, in
 * an order of its own for each run, so that a few calls see all choices and many see them in all company.
 */
#include "core/cases/calls.h"

#include "core/cases/cases.h"
#include "core/support.h"

#include <flhost/testing.h>
#include <math.h>
#include <string.h>

enum { NONE = FL_RULES_NONE, MAX_SIZE = 1 << 30, MAX_LAYERS = 4 };
enum { FIRST_INPUT_SIZE = 128 }; /* sizeof(fl_input) of the first header */

static const uint32_t common_floats = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16;

/* A call while it is put together. */
typedef struct draft {
  const fl_schema *schema;
  const fl_cases *layers[MAX_LAYERS]; /* a part is drawn from the first that has a clause for it; ended by NULL */
  uint32_t n_ordered;                 /* of these, the first ones whose choices are taken in order */
  bool timed;                         /* a call to time: nothing is left to chance */
  uint32_t dtype;                     /* wanted; 0: any */
  uint64_t seed, number;
  fl_input *inputs;
  fl_known known;
  fl_bindings bindings; /* what the rules' expressions need */
  fl_value attributes[FL_SCHEMA_MAX_VALUES];
  int32_t n_leading;
  int64_t leading[FL_MAX_DIMS];
} draft;

/* ---------------------------------------------------------------------------------------------------------- drawing */

/* A number without order for each number (splitmix64). */
static uint64_t scramble(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* What is drawn for one part of a call, or one of its traits. */
typedef enum trait { CHOICE, PRESENCE, ALTERNATIVE, DTYPE } trait;

/* 0 to n - 1: in each run of n calls each of them once, in a timed one always 0. n is at most FL_CHOICES_MAX. */
static uint32_t draw(const draft *d, uint32_t part, trait what, uint32_t n) {
  uint8_t order[FL_CHOICES_MAX];
  if (d->timed)
    return 0;
  uint64_t state = scramble(scramble(d->seed) + scramble((uint64_t)part * 8 + what) + d->number / n);
  for (uint32_t i = 0; i < n; i++)
    order[i] = (uint8_t)i;
  for (uint32_t i = n - 1; i; i--) {
    state = scramble(state);
    uint32_t other = (uint32_t)(state % (i + 1));
    uint8_t moved = order[i];
    order[i] = order[other];
    order[other] = moved;
  }
  return order[d->number % n];
}

/* The clause that a part is drawn from, and where it stands. */
typedef struct found_clause {
  const fl_case_clause *clause; /* NULL: it has none */
  const fl_cases *cases;
  uint32_t layer;
} found_clause;

static found_clause clause_of(const draft *d, uint32_t part) {
  found_clause found = {0};
  for (; d->layers[found.layer]; found.layer++) {
    found.cases = d->layers[found.layer];
    if (found.cases->clause_of[part] == NONE)
      continue;
    found.clause = &found.cases->clauses[found.cases->clause_of[part]];
    break;
  }
  return found;
}

static const fl_choice *draw_choice(const draft *d, const found_clause *found) {
  const fl_case_clause *clause = found->clause;
  uint64_t last = clause->n_choices - 1;
  uint32_t drawn = found->layer < d->n_ordered ? (uint32_t)(d->number < last ? d->number : last)
                                               : draw(d, clause->drawn_as, CHOICE, clause->n_choices);
  return &found->cases->choices[clause->first_choice + drawn];
}

/* One bit of a set that is not empty. */
static uint32_t draw_bit(const draft *d, uint32_t part, trait what, uint32_t set) {
  uint32_t skip = draw(d, part, what, (uint32_t)__builtin_popcount(set));
  while (skip--)
    set &= set - 1;
  return set & -set;
}

/* ------------------------------------------------------------------------------------------------ names, attributes */

/* A dimension or int is known; the argument of that name has its value. */
static void set_int(draft *d, uint32_t part, int64_t value) {
  const fl_rules *rules = d->schema->compiled;
  uint32_t argument = part < rules->n_names ? rules->names[part].argument : part - rules->n_names;
  d->known.known[part] = true;
  d->known.values[part] = value;
  if (part < rules->n_names) {
    d->bindings.names_known |= UINT32_C(1) << part;
    d->bindings.names[part] = value;
  }
  if (argument < d->schema->n_arguments)
    d->inputs[argument].value = fl_int(value);
}

static fl_status choose_int(draft *d, const fl_cases *cases, uint32_t part, const fl_choice *choice) {
  double value;
  if (choice->none)
    return FL_OK;
  fl_status status = fl_cases_evaluate(d->schema, cases, &d->known, choice->low, &value);
  if (status)
    return status;
  if (value != trunc(value) || fabs(value) >= 0x1p53)
    return fl_error(FL_EINVAL, "%s: '%.*s' is %g, expected an integer", d->schema->op_name, (int)choice->low.length,
                    choice->low.text, value);
  set_int(d, part, (int64_t)value);
  return FL_OK;
}

static void set_leading(draft *d, const int64_t *sizes, uint32_t n) {
  d->n_leading = (int32_t)n;
  for (uint32_t i = 0; i < n; i++)
    d->leading[i] = sizes[i];
}

/* Is it an int argument whose value a dimension of the rules is, or would be? */
static bool is_name(const fl_rules *rules, uint32_t argument) {
  for (uint32_t i = 0; i < rules->n_names; i++)
    if (rules->names[i].argument == argument)
      return true;
  return false;
}

/* The default, or what usually makes sense. A required string cannot be guessed. */
static fl_status choose_default(draft *d, uint32_t index) {
  const fl_argument *argument = &d->schema->values[index];
  uint32_t part = fl_part_of_argument(d->schema, index);
  if (argument->type == FL_BOOL && !argument->optional && !(d->timed && argument->has_default)) {
    d->inputs[index].value = fl_bool(draw(d, part, CHOICE, 2));
    return FL_OK;
  }
  d->inputs[index].value = argument->default_value;
  if (argument->has_default && argument->default_value.type == FL_INT)
    set_int(d, part, argument->default_value.v.i);
  if (argument->has_default || argument->optional)
    return FL_OK;
  if (argument->type == FL_INT)
    set_int(d, part, 1 + draw(d, part, CHOICE, 4));
  else if (argument->type == FL_FLOAT)
    d->inputs[index].value = fl_float(draw(d, part, CHOICE, 2) ? 0.5 : 1.0);
  else
    return fl_error(FL_EINVAL, "%s: nothing says what argument '%s' may be: expected a clause in the op's cases",
                    d->schema->op_name, argument->name);
  return FL_OK;
}

/* What has no clause, and so depends on nothing. */
static fl_status choose_unspecified(draft *d) {
  static const int64_t sizes[] = {1, 2, 7, 16, 33, 64};
  static const struct {
    uint32_t n;
    int64_t sizes[3];
  } leading[] = {{1, {1}}, {1, {7}}, {0, {0}}, {1, {83}}, {1, {0}}, {2, {2, 3}}, {3, {1, 1, 5}}, {1, {2048}}};
  const fl_schema *schema = d->schema;
  const fl_rules *rules = schema->compiled;
  for (uint32_t i = 0; i < rules->n_names; i++) {
    uint8_t argument = rules->names[i].argument;
    if (clause_of(d, i).clause)
      continue;
    if (argument != NONE && schema->values[argument].has_default) {
      if (schema->values[argument].default_value.type == FL_INT)
        set_int(d, i, schema->values[argument].default_value.v.i);
    } else if (argument == NONE || !schema->values[argument].optional) {
      set_int(d, i, sizes[draw(d, i, CHOICE, sizeof sizes / sizeof sizes[0])]);
    }
  }
  uint32_t drawn = draw(d, fl_part_leading(schema), CHOICE, sizeof leading / sizeof leading[0]);
  set_leading(d, leading[drawn].sizes, leading[drawn].n);
  for (uint32_t i = 0; i < schema->n_arguments; i++) {
    if (schema->values[i].type == FL_TENSOR || is_name(rules, i) || clause_of(d, fl_part_of_argument(schema, i)).clause)
      continue;
    fl_status status = choose_default(d, i);
    if (status)
      return status;
  }
  return FL_OK;
}

/* One part that has a clause; a tensor comes later. */
static fl_status choose_part(draft *d, const found_clause *found) {
  const fl_schema *schema = d->schema;
  uint32_t part = found->clause->part, n_names = schema->compiled->n_names;
  const fl_choice *choice = draw_choice(d, found);
  if (part == fl_part_leading(schema))
    set_leading(d, choice->value.v.ints, choice->value.length);
  else if (part < n_names || schema->values[part - n_names].type == FL_INT)
    return choose_int(d, found->cases, part, choice);
  else if (schema->values[part - n_names].type != FL_TENSOR)
    d->inputs[part - n_names].value = choice->value;
  return FL_OK;
}

/* What has a clause, in the order of the text. */
static fl_status choose_specified(draft *d) {
  for (uint32_t layer = 0; d->layers[layer]; layer++)
    for (uint32_t i = 0; i < d->layers[layer]->n_clauses; i++) {
      found_clause found = clause_of(d, d->layers[layer]->clauses[i].part);
      fl_status status = found.layer == layer ? choose_part(d, &found) : FL_OK;
      if (status)
        return status;
    }
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

static fl_status no_such_dtype(const draft *d) {
  return fl_error(FL_ENOENT, "%s does not take %s", d->schema->op_name, fl_element_types[__builtin_ctz(d->dtype)].name);
}

/* What the variables stand for. The wanted dtype is that of the first. */
static fl_status choose_variables(draft *d) {
  const fl_rules *rules = d->schema->compiled;
  for (uint32_t i = 0; i < rules->n_variables; i++) {
    const fl_rule_variable *variable = &rules->variables[i];
    uint32_t admitted = variable->limited ? variable->limit : common_floats;
    if (variable->argument != NONE) {
      const fl_value *named = &d->inputs[variable->argument].value;
      uint32_t which = named->type == FL_STRING ? fl_rules_named_dtype(variable, named->v.s) : FL_DTYPE_COUNT;
      admitted = which < FL_DTYPE_COUNT ? UINT32_C(1) << which : 0;
    }
    if (!i && d->dtype)
      admitted &= d->dtype;
    if (!admitted)
      return no_such_dtype(d);
    /* Variables have no part of their own; arguments draw their dtype from a set, these by another trait. */
    uint32_t bit = draw_bit(d, i, DTYPE, admitted);
    d->bindings.variables_known |= UINT32_C(1) << i;
    d->bindings.variables[i] = fl_element_types[__builtin_ctz(bit)].dtype;
  }
  return FL_OK;
}

static fl_status choose_dtype(draft *d, uint32_t index, const fl_rule_alternative *alternative) {
  const fl_rules *rules = d->schema->compiled;
  bool varies = alternative && alternative->variable != NONE;
  uint32_t admitted = alternative ? alternative->dtypes : common_floats;
  uint32_t bound = varies ? fl_dtype_bit(d->bindings.variables[alternative->variable]) : 0;
  admitted = varies && d->timed ? bound : admitted | bound; /* a weight is usually of the activations' type */
  if (d->dtype && !rules->n_variables && (int32_t)index == d->schema->device_argument)
    admitted &= d->dtype;
  if (!admitted)
    return no_such_dtype(d);
  uint32_t part = fl_part_of_argument(d->schema, index);
  d->inputs[index].spec.dtype = fl_element_types[__builtin_ctz(draw_bit(d, part, DTYPE, admitted))].dtype;
  return FL_OK;
}

static fl_status choose_shape(draft *d, uint32_t index, const fl_rule_alternative *alternative) {
  fl_tensor_spec *spec = &d->inputs[index].spec;
  bool shaped = alternative && alternative->shaped;
  int32_t n = 0;
  for (; (!shaped || alternative->leading) && n < d->n_leading; n++)
    spec->shape[n] = d->leading[n];
  for (unsigned i = 0; shaped && i < alternative->n_dimensions; i++, n++) {
    const fl_rule_dimension *dimension = &d->schema->compiled->dimensions[alternative->first_dimension + i];
    int64_t size;
    if (n == FL_MAX_DIMS || !fl_match_evaluate(d->schema->compiled, &d->bindings, dimension->root, &size) || size < 0 ||
        size > MAX_SIZE)
      return fl_error(FL_EINVAL, "%s: argument '%s': these choices give no size for '%.*s'", d->schema->op_name,
                      d->schema->values[index].name, (int)dimension->source.length, dimension->source.text);
    spec->shape[n] = size;
  }
  spec->ndim = n;
  return FL_OK;
}

/* The shape that the clause gives, in place of that of the rules. */
static fl_status choose_given_shape(draft *d, const fl_cases *cases, uint32_t index, const fl_choice *choice) {
  fl_tensor_spec *spec = &d->inputs[index].spec;
  for (int32_t i = 0; i < choice->n_shape; i++) {
    double size;
    fl_status status = fl_cases_evaluate(d->schema, cases, &d->known, choice->shape[i], &size);
    if (status)
      return status;
    if (size != trunc(size) || size < 0 || size > MAX_SIZE)
      return fl_error(FL_EINVAL, "%s: '%.*s' is %g, expected a size", d->schema->op_name, (int)choice->shape[i].length,
                      choice->shape[i].text, size);
    spec->shape[i] = (int64_t)size;
  }
  spec->ndim = choice->n_shape;
  return FL_OK;
}

static fl_status choose_contents(draft *d, const fl_cases *cases, uint32_t index, const fl_choice *choice) {
  fl_input *input = &d->inputs[index];
  bool is_float = fl_dtype_bit(input->spec.dtype) & (common_floats | FL_FLOAT64 | FL_FLOAT8_E4M3FN);
  if (!choice || choice->contents == FL_CONTENTS_NORMAL || choice->contents == FL_CONTENTS_MODERATE) {
    input->contents = !is_float ? FL_CONTENTS_RANGE : choice ? choice->contents : FL_CONTENTS_NORMAL;
    input->low = 0;
    input->high = fl_dtype_bit(input->spec.dtype) == FL_BOOLEAN ? 1 : 3;
    return FL_OK;
  }
  input->contents = choice->contents;
  fl_status status = fl_cases_evaluate(d->schema, cases, &d->known, choice->low, &input->low);
  return status ? status : fl_cases_evaluate(d->schema, cases, &d->known, choice->high, &input->high);
}

static fl_status choose_tensor(draft *d, uint32_t index) {
  const fl_argument *argument = &d->schema->values[index];
  uint32_t part = fl_part_of_argument(d->schema, index);
  const found_clause found = clause_of(d, part);
  const fl_case_clause *clause = found.clause;
  const fl_choice *choice = clause ? draw_choice(d, &found) : NULL;
  const fl_rule_clause *rule = fl_rules_of_argument(d->schema->compiled, index);
  const fl_rule_alternative *alternative = NULL;
  if (clause && clause->condition != NONE && d->inputs[clause->condition].spec.present == clause->without)
    return FL_OK;
  if (choice ? choice->none : argument->optional && (d->timed || draw(d, part, PRESENCE, 2)))
    return FL_OK;
  if (rule)
    alternative =
        &d->schema->compiled
             ->alternatives[rule->first_alternative + (choice && choice->alternative != FL_RULES_NONE
                                                           ? choice->alternative
                                                           : draw(d, part, ALTERNATIVE, rule->n_alternatives))];
  d->inputs[index].spec.present = true;
  d->inputs[index].spec.device = (DLDevice){kDLCPU, 0};
  fl_status status = FL_OK;
  if (choice && choice->dtype)
    d->inputs[index].spec.dtype = fl_element_types[__builtin_ctz(choice->dtype)].dtype;
  else
    status = choose_dtype(d, index, alternative);
  if (!status)
    status = choice && choice->n_shape >= 0 ? choose_given_shape(d, found.cases, index, choice)
                                            : choose_shape(d, index, alternative);
  return status ? status : choose_contents(d, found.cases, index, choice);
}

/* Sizes may depend on what is no tensor. A call to test is of one rank. */
static void bind_attributes(draft *d) {
  for (uint32_t i = 0; i < d->schema->n_arguments; i++)
    d->attributes[i] = d->inputs[i].value;
  d->bindings.values = d->attributes;
  d->bindings.ranks = 1;
}

/* The whole call, into the caller's inputs. */
static fl_status generate(draft *d, fl_input *given, uint32_t n_inputs, size_t input_size) {
  const fl_schema *schema = d->schema;
  fl_input inputs[FL_SCHEMA_MAX_VALUES];
  if (n_inputs != schema->n_arguments)
    return fl_error(FL_EINVAL, "%s: room for %u inputs, expected one for each of its %u arguments", schema->op_name,
                    (unsigned)n_inputs, (unsigned)schema->n_arguments);
  if (n_inputs && input_size < FIRST_INPUT_SIZE)
    return fl_error(FL_EINVAL, "%s: input_size is %zu, expected sizeof(fl_input), %zu", schema->op_name, input_size,
                    sizeof *inputs);
  if (d->dtype & (d->dtype - 1) || d->dtype >> FL_DTYPE_COUNT)
    return fl_error(FL_EINVAL, "%s: dtype 0x%x, expected one of FL_FLOAT32... or 0", schema->op_name,
                    (unsigned)d->dtype);
  bool has_tensor = schema->device_argument >= 0 && schema->device_argument < (int32_t)schema->n_arguments;
  if (d->dtype && !has_tensor)
    return no_such_dtype(d);
  d->inputs = inputs;
  memset(inputs, 0, n_inputs * sizeof *inputs);
  fl_status status = choose_unspecified(d);
  if (!status)
    status = choose_specified(d);
  bind_attributes(d);
  if (!status)
    status = choose_variables(d);
  for (uint32_t i = 0; i < n_inputs && !status; i++)
    if (schema->values[i].type == FL_TENSOR)
      status = choose_tensor(d, i);
  if (!status)
    fl_elements_give(given, input_size, inputs, sizeof *inputs, n_inputs);
  return status;
}

/* Strings and lists of the caller's text would not outlive it. */
static fl_status check_sizes(const fl_schema *schema, const fl_cases *sizes) {
  for (uint32_t i = 0; i < sizes->n_clauses; i++) {
    uint32_t part = sizes->clauses[i].part, n_names = schema->compiled->n_names;
    if (part >= n_names && part != fl_part_leading(schema) && schema->values[part - n_names].type != FL_INT)
      return fl_error(FL_EINVAL, "sizes '%s': '%s' is neither a dimension nor an int", sizes->text,
                      schema->values[part - n_names].name);
  }
  return FL_OK;
}

/* Sizes that go before the op's own are the first layer; the rest of the layers are the caller's to add. They are to be
 * freed. */
static fl_status add_given(draft *d, const char *sizes, fl_cases **given) {
  if (!sizes)
    return FL_OK;
  fl_status status = fl_cases_compile(d->schema, "sizes", sizes, given);
  if (!status)
    status = check_sizes(d->schema, *given);
  if (!status)
    d->layers[d->n_ordered++] = *given;
  return status;
}

fl_status fl_schema_generate_inputs(const fl_schema *schema, uint32_t dtype, const char *sizes, uint64_t seed,
                                    uint64_t number, fl_input *inputs, uint32_t n_inputs, size_t input_size) {
  fl_cases *given = NULL;
  draft d = {.schema = schema, .dtype = dtype, .seed = seed, .number = number};
  fl_status status = add_given(&d, sizes, &given);
  if (!status)
    status = fl_schema_cases(schema, &d.layers[d.n_ordered]);
  if (!status)
    status = generate(&d, inputs, n_inputs, input_size);
  fl_cases_free(given);
  return status;
}

/* ------------------------------------------------------------------------------------------------- free dimensions */

/* A choice that is a plain number; -1: it is an expression. */
static int64_t plain_size(const fl_choice *choice) {
  int64_t size = 0;
  for (uint32_t i = 0; i < choice->low.length; i++) {
    if (choice->low.text[i] < '0' || choice->low.text[i] > '9' || size > MAX_SIZE)
      return -1;
    size = size * 10 + choice->low.text[i] - '0';
  }
  return choice->none || !choice->low.length ? -1 : size;
}

/* What all sizes in a dimension's clause are multiples of; 1 without clause; 0: they depend on other sizes. */
static int64_t step_of(const fl_cases *cases, uint32_t part) {
  int64_t step = 0;
  if (cases->clause_of[part] == NONE)
    return 1;
  const fl_case_clause *clause = &cases->clauses[cases->clause_of[part]];
  for (uint32_t i = 0; i < clause->n_choices; i++) {
    int64_t size = plain_size(&cases->choices[clause->first_choice + i]);
    if (size < 0)
      return 0;
    for (int64_t rest; size; step = size, size = rest)
      rest = step % size;
  }
  return step;
}

static bool has_leading(const fl_rules *rules) {
  for (uint32_t i = 0; i < rules->n_alternatives; i++)
    if (rules->alternatives[i].leading)
      return true;
  return false;
}

fl_status fl_schema_free_dimension(const fl_schema *schema, uint32_t index, fl_dimension *dimension) {
  const fl_rules *rules = schema->compiled;
  const fl_cases *cases;
  uint32_t found = 0;
  fl_dimension free_one = {.size = sizeof free_one};
  fl_status status = fl_schema_cases(schema, &cases);
  for (uint32_t i = 0; !status && i < rules->n_names; i++) {
    free_one.step = rules->names[i].argument == NONE ? step_of(cases, i) : 0;
    if (!free_one.step || found++ != index)
      continue;
    snprintf(free_one.name, sizeof free_one.name, "%.*s", (int)rules->names[i].source.length,
             rules->names[i].source.text);
    fl_sized_give(dimension, &free_one, sizeof free_one);
    return FL_OK;
  }
  if (status)
    return status;
  if (!has_leading(rules) || found != index)
    return fl_error(FL_ENOENT, "%s has no dimension %u whose size is free", schema->op_name, (unsigned)index);
  free_one.step = 1;
  snprintf(free_one.name, sizeof free_one.name, "...");
  fl_sized_give(dimension, &free_one, sizeof free_one);
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------- calls to time */

/* Choices of the longest clause. */
static uint32_t count_calls(const draft *d) {
  uint32_t n = 1;
  for (uint32_t layer = 0; layer < d->n_ordered; layer++)
    for (uint32_t i = 0; i < d->layers[layer]->n_clauses; i++) {
      const fl_case_clause *clause = &d->layers[layer]->clauses[i];
      if (clause->n_choices > n && clause_of(d, clause->part).clause == clause)
        n = clause->n_choices;
    }
  return n;
}

fl_status fl_schema_generate_bench_inputs(const fl_schema *schema, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls) {
  fl_cases *given = NULL;
  draft d = {.schema = schema, .timed = true, .dtype = dtype, .number = number};
  fl_status status = add_given(&d, sizes, &given);
  if (!status)
    status = fl_schema_bench(schema, &d.layers[d.n_ordered++]);
  if (!status)
    status = fl_schema_cases(schema, &d.layers[d.n_ordered]);
  if (status)
    goto out;
  uint32_t n = count_calls(&d);
  if (number >= n)
    status = fl_error(FL_EINVAL, "%s: call %u to time it with, expected 0 to %u", schema->op_name, (unsigned)number,
                      (unsigned)n - 1);
  else
    status = generate(&d, inputs, n_inputs, input_size);
  if (!status && n_calls)
    *n_calls = n;
out:
  fl_cases_free(given);
  return status;
}
