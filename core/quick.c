/*
 * The quick look: see quick.h. It repeats the full check's conditions in their simplest cases, and must never pass a
 * call that the full check refuses (tests/test_quick.c compares the two on random calls).
 */
#include "core/quick.h"

#include "core/rules.h"

#include <stdlib.h>
#include <string.h>

/* Of one tensor: beyond that the full check looks at what overflows. */
#define MOST_ELEMENTS INT32_MAX

enum { MAX_VALUES = 24, MAX_TENSORS = 14, MAX_DIMENSIONS = 40, MAX_NAMES = 16, MAX_CODES = 4, NONE = FL_RULES_NONE };

/* A dimension: factor * name, or a number. */
typedef struct quick_dimension {
  uint8_t name; /* NONE: just the factor */
  int64_t factor;
} quick_dimension;

/* What a tensor must be. */
typedef struct quick_tensor {
  uint8_t value;
  bool optional;
  bool result;  /* follows from the arguments: binds nothing */
  bool written; /* by the call */
  uint8_t
      like; /* result: the argument whose shape and dtype it has, and without which it is none; NONE: the rules say */
  uint8_t alias;    /* result: the argument that it may be; NONE: none */
  uint8_t variable; /* of its dtype; NONE: only named ones */
  bool any;         /* the rules say nothing of it */
  bool shaped, leading;
  uint8_t n_dimensions, first_dimension;
  uint8_t n_codes;
  uint32_t codes[MAX_CODES]; /* dtypes that are named */
} quick_tensor;

struct fl_quick {
  uint32_t n_values, n_arguments, n_tensors;
  uint8_t types[MAX_VALUES]; /* fl_type of values that are no tensors; FL_TENSOR for those that are */
  bool optional[MAX_VALUES];
  struct {
    bool limited;
    uint8_t n;
    uint32_t codes[MAX_CODES];
  } variables[FL_RULES_MAX_VARIABLES];
  uint8_t n_int_names;
  struct {
    uint8_t name, argument;
  } int_names[MAX_NAMES];
  quick_tensor tensors[MAX_TENSORS]; /* arguments in the order of the rules, then results */
  quick_dimension dimensions[MAX_DIMENSIONS];
};

/* A dtype in one word. */
static inline uint32_t code_of(DLDataType dtype) {
  uint32_t code;
  _Static_assert(sizeof code == sizeof dtype, "a dtype is four bytes");
  memcpy(&code, &dtype, sizeof code);
  return code;
}

/* -------------------------------------------------------------------------------------------------------- compiling */

static bool add_codes(uint32_t dtypes, uint32_t *codes, uint8_t *n) {
  for (unsigned bit = 0; bit < FL_DTYPE_COUNT; bit++) {
    if (!(dtypes & UINT32_C(1) << bit))
      continue;
    if (*n == MAX_CODES)
      return false;
    codes[(*n)++] = code_of(fl_dtypes[bit].dtype);
  }
  return true;
}

static bool compile_dimension(const fl_rules *rules, unsigned root, quick_dimension *dimension) {
  const fl_rule_node *node = &rules->nodes[root];
  *dimension = (quick_dimension){NONE, 1};
  if (node->operation == FL_NUMBER) {
    dimension->factor = node->number;
    return true;
  }
  if (node->operation == FL_MULTIPLY) {
    const fl_rule_node *left = &rules->nodes[node->left], *right = &rules->nodes[node->right];
    if (left->operation != FL_NUMBER || right->operation != FL_NAME || left->number < 1)
      return false;
    dimension->factor = left->number;
    node = right;
  }
  if (node->operation != FL_NAME || node->left >= MAX_NAMES)
    return false;
  dimension->name = (uint8_t)node->left;
  return true;
}

static bool compile_alternative(fl_quick *quick, const fl_rules *rules, const fl_rule_alternative *alternative,
                                quick_tensor *tensor, uint32_t *n_dimensions) {
  tensor->variable = alternative->variable;
  tensor->shaped = alternative->shaped;
  tensor->leading = alternative->leading;
  tensor->n_dimensions = alternative->n_dimensions;
  tensor->first_dimension = (uint8_t)*n_dimensions;
  if (*n_dimensions + alternative->n_dimensions > MAX_DIMENSIONS ||
      !add_codes(alternative->dtypes, tensor->codes, &tensor->n_codes))
    return false;
  for (unsigned i = 0; i < alternative->n_dimensions; i++)
    if (!compile_dimension(rules, rules->dimensions[alternative->first_dimension + i].root,
                           &quick->dimensions[(*n_dimensions)++]))
      return false;
  return true;
}

/* A mutable argument for which no result stands is written by the call, as every result is. */
static bool is_written(const fl_schema *schema, uint32_t value) {
  for (uint32_t r = 0; r < schema->n_results; r++)
    if (schema->values[schema->n_arguments + r].alias == (int32_t)value)
      return false;
  return value >= schema->n_arguments || schema->values[value].mutates;
}

static quick_tensor *add_tensor(fl_quick *quick, const fl_schema *schema, uint32_t value) {
  if (quick->n_tensors == MAX_TENSORS)
    return NULL;
  quick_tensor *tensor = &quick->tensors[quick->n_tensors++];
  *tensor = (quick_tensor){
      .value = (uint8_t)value,
      .optional = schema->values[value].optional,
      .result = value >= schema->n_arguments,
      .written = is_written(schema, value),
      .like = NONE,
      .alias = schema->values[value].alias < 0 ? NONE : (uint8_t)schema->values[value].alias,
      .variable = NONE,
  };
  return tensor;
}

/* Arguments: those with rules in the order of the rules, since one binds what the next is compared with; then the rest.
 */
static bool compile_arguments(fl_quick *quick, const fl_schema *schema, uint32_t *n_dimensions) {
  const fl_rules *rules = schema->compiled;
  bool ruled[MAX_VALUES] = {false};
  for (uint32_t i = 0; i < rules->n_argument_clauses; i++) {
    const fl_rule_clause *clause = &rules->clauses[i];
    quick_tensor *tensor = add_tensor(quick, schema, clause->value);
    if (!tensor ||
        !compile_alternative(quick, rules, &rules->alternatives[clause->first_alternative], tensor, n_dimensions))
      return false;
    ruled[clause->value] = true;
  }
  for (uint32_t i = 0; i < schema->n_arguments; i++) {
    if (schema->values[i].type != FL_TENSOR || ruled[i])
      continue;
    quick_tensor *tensor = add_tensor(quick, schema, i);
    if (!tensor)
      return false;
    tensor->any = true;
  }
  return true;
}

static bool compile_results(fl_quick *quick, const fl_schema *schema, uint32_t *n_dimensions) {
  const fl_rules *rules = schema->compiled;
  for (uint32_t r = 0; r < schema->n_results; r++) {
    uint32_t value = schema->n_arguments + r;
    if (schema->values[value].type != FL_TENSOR)
      continue;
    quick_tensor *tensor = add_tensor(quick, schema, value);
    if (!tensor)
      return false;
    if (rules->result_clause[r] != NONE) {
      const fl_rule_clause *clause = &rules->clauses[rules->result_clause[r]];
      /* A choice between alternatives, or one that is there only sometimes, is the full check's business. */
      if (clause->n_alternatives != 1 || (tensor->optional && tensor->alias == NONE) ||
          !compile_alternative(quick, rules, &rules->alternatives[clause->first_alternative], tensor, n_dimensions))
        return false;
      if (!tensor->shaped || (tensor->variable == NONE && tensor->n_codes != 1))
        return false;
      if (tensor->variable != NONE)
        tensor->n_codes = 0;
    } else if (rules->result_like[r] != NONE && !(tensor->optional && tensor->alias == NONE)) {
      tensor->like = rules->result_like[r];
    } else {
      return false;
    }
  }
  return true;
}

static bool compile(fl_quick *quick, const fl_schema *schema) {
  const fl_rules *rules = schema->compiled;
  uint32_t n = schema->n_arguments + schema->n_results, n_dimensions = 0;
  if (schema->infer || n > MAX_VALUES || rules->n_names > MAX_NAMES)
    return false;
  quick->n_values = n;
  quick->n_arguments = schema->n_arguments;
  for (uint32_t i = 0; i < n; i++) {
    quick->types[i] = (uint8_t)schema->values[i].type;
    quick->optional[i] = schema->values[i].optional;
  }
  for (uint32_t i = 0; i < rules->n_variables; i++) {
    quick->variables[i].limited = rules->variables[i].limited;
    if (!add_codes(rules->variables[i].limit, quick->variables[i].codes, &quick->variables[i].n))
      return false;
  }
  for (uint32_t i = 0; i < rules->n_names; i++)
    if (rules->names[i].argument != NONE) {
      quick->int_names[quick->n_int_names].name = (uint8_t)i;
      quick->int_names[quick->n_int_names++].argument = rules->names[i].argument;
    }
  return compile_arguments(quick, schema, &n_dimensions) && compile_results(quick, schema, &n_dimensions);
}

fl_quick *fl_quick_compile(const fl_schema *schema) {
  fl_quick *quick = calloc(1, sizeof *quick);
  if (quick && schema->compiled && compile(quick, schema))
    return quick;
  free(quick);
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- look */

/* What is known while a call is looked at. */
typedef struct look {
  const DLTensor *first;
  uint32_t names_known, variables_known;
  int32_t n_leading; /* -1: not known */
  const int64_t *leading;
  int64_t names[MAX_NAMES];
  uint32_t variables[FL_RULES_MAX_VARIABLES];
} look;

/* Memory of a tensor: [begin, end). */
typedef struct extent {
  uintptr_t begin, end;
  bool compact;
} extent;

static inline bool match_dtype(const fl_quick *quick, const quick_tensor *rule, uint32_t code, look *seen) {
  unsigned v = rule->variable;
  for (unsigned i = 0; i < rule->n_codes; i++)
    if (rule->codes[i] == code)
      return true;
  if (v == NONE)
    return false;
  if (seen->variables_known & UINT32_C(1) << v)
    return seen->variables[v] == code;
  if (rule->n_codes || rule->result) /* only compared, and there is nothing to compare with yet */
    return false;
  bool good = !quick->variables[v].limited;
  for (unsigned i = 0; i < quick->variables[v].n; i++)
    good |= quick->variables[v].codes[i] == code;
  seen->variables_known |= UINT32_C(1) << v;
  seen->variables[v] = code;
  return good;
}

static inline bool match_shape(const fl_quick *quick, const quick_tensor *rule, const DLTensor *tensor, look *seen) {
  int32_t n_leading = tensor->ndim - rule->n_dimensions;
  const int64_t *shape = tensor->shape;
  if (rule->leading) {
    if (n_leading < 0)
      return false;
    if (seen->n_leading < 0) {
      if (rule->result)
        return false;
      seen->n_leading = n_leading;
      seen->leading = shape;
    } else if (seen->n_leading != n_leading) {
      return false;
    } else {
      for (int32_t i = 0; i < n_leading; i++)
        if (seen->leading[i] != shape[i])
          return false;
    }
  } else if (n_leading) {
    return false;
  }
  shape += n_leading;
  const quick_dimension *dimension = &quick->dimensions[rule->first_dimension];
  for (unsigned i = 0; i < rule->n_dimensions; i++, dimension++) {
    if (dimension->name == NONE) {
      if (shape[i] != dimension->factor)
        return false;
      continue;
    }
    uint32_t bit = UINT32_C(1) << dimension->name;
    if (seen->names_known & bit) {
      int64_t expected;
      if (__builtin_mul_overflow(seen->names[dimension->name], dimension->factor, &expected) || expected != shape[i])
        return false;
      continue;
    }
    if (rule->result)
      return false;
    int64_t value = shape[i];
    if (dimension->factor != 1) {
      if (value % dimension->factor)
        return false;
      value /= dimension->factor;
    }
    seen->names_known |= bit;
    seen->names[dimension->name] = value;
  }
  return true;
}

/* Sizes of one or more everywhere, rows that do not reach into each other, memory that is there. */
static inline bool find_extent(const DLTensor *tensor, extent *memory) {
  int64_t elements = 1, reach = 1; /* of a compact tensor; from the first to behind the last element */
  const int64_t *shape = tensor->shape, *strides = tensor->strides;
  bool compact = true;
  if ((uint32_t)tensor->ndim > FL_MAX_DIMS || !tensor->data)
    return false;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    if (shape[i] < 1 || shape[i] > INT32_MAX)
      return false;
    if (strides && strides[i] != elements && shape[i] > 1) {
      /* Only leading dimensions may be further apart than they need be. */
      if (i == tensor->ndim - 1 || strides[i] < reach || strides[i] > INT32_MAX)
        return false;
      compact = false;
    }
    /* Sizes and strides have 31 bits, so the product has no more than 62. */
    reach += (shape[i] - 1) * (strides && shape[i] > 1 ? strides[i] : elements);
    elements *= shape[i];
    if (reach > MOST_ELEMENTS || elements > MOST_ELEMENTS)
      return false;
  }
  memory->begin = (uintptr_t)tensor->data + tensor->byte_offset;
  memory->end = memory->begin + (uintptr_t)reach * (((uintptr_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8);
  memory->compact = compact;
  return memory->end > memory->begin;
}

static inline bool same_shape(const DLTensor *a, const DLTensor *b) {
  if (a->ndim != b->ndim)
    return false;
  for (int32_t i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i])
      return false;
  return true;
}

static inline bool look_at_tensor(const fl_quick *quick, const quick_tensor *rule, const fl_value *values, look *seen,
                                  extent *memory) {
  const DLTensor *tensor = values[rule->value].v.tensor;
  uint64_t device, first_device;
  if (!tensor || (tensor->ndim && !tensor->shape) || !find_extent(tensor, memory))
    return false;
  /* Of these, `data` is no address. */
  if (tensor->device.device_type == kDLOpenCL || tensor->device.device_type == kDLVulkan ||
      tensor->device.device_type == kDLMetal)
    return false;
  if (!seen->first)
    seen->first = tensor;
  memcpy(&device, &tensor->device, sizeof device);
  memcpy(&first_device, &seen->first->device, sizeof first_device);
  if (device != first_device)
    return false;
  if (rule->like != NONE) {
    const DLTensor *like = values[rule->like].v.tensor;
    return values[rule->like].type == FL_TENSOR && code_of(like->dtype) == code_of(tensor->dtype) &&
           same_shape(like, tensor);
  }
  if (rule->any)
    return true;
  return match_dtype(quick, rule, code_of(tensor->dtype), seen) &&
         (!rule->shaped || match_shape(quick, rule, tensor, seen));
}

/* Is the tensor that is written clear of all others, or just the one that it may be? */
static inline bool is_clear(const fl_quick *quick, const fl_value *values, const extent *memory, uint32_t written) {
  const quick_tensor *rule = &quick->tensors[written];
  const extent *own = &memory[written];
  for (uint32_t i = 0; i < quick->n_tensors; i++) {
    const extent *other = &memory[i];
    if (i == written || own->end <= other->begin || other->end <= own->begin)
      continue;
    const DLTensor *a = values[rule->value].v.tensor, *b = values[quick->tensors[i].value].v.tensor;
    if (quick->tensors[i].value != rule->alias || own->begin != other->begin || !own->compact || !other->compact ||
        code_of(a->dtype) != code_of(b->dtype) || !same_shape(a, b))
      return false;
  }
  return true;
}

bool fl_quick_check(const fl_quick *quick, const fl_call *call) {
  const fl_value *values = call->values;
  extent memory[MAX_TENSORS];
  look seen;
  if (call->count != quick->n_values || !values)
    return false;
  for (uint32_t i = 0; i < quick->n_values; i++) {
    uint32_t type = values[i].type;
    if (type == quick->types[i]) {
      if (type == FL_STRING && !values[i].v.s && i < quick->n_arguments)
        return false;
      if (type == FL_INT_LIST && !values[i].v.ints)
        return false;
    } else if (type != FL_NONE || (!quick->optional[i] && (i < quick->n_arguments || quick->types[i] == FL_TENSOR))) {
      return false;
    }
  }
  seen.first = NULL;
  seen.leading = NULL;
  seen.names_known = seen.variables_known = 0;
  seen.n_leading = -1;
  for (uint32_t i = 0; i < quick->n_int_names; i++)
    if (values[quick->int_names[i].argument].type == FL_INT) {
      seen.names_known |= UINT32_C(1) << quick->int_names[i].name;
      seen.names[quick->int_names[i].name] = values[quick->int_names[i].argument].v.i;
    }
  for (uint32_t i = 0; i < quick->n_tensors; i++) {
    const quick_tensor *rule = &quick->tensors[i];
    if (values[rule->value].type == FL_NONE) {
      if (rule->alias != NONE && values[rule->alias].type != FL_NONE)
        return false;
      memory[i].begin = memory[i].end = 0; /* overlaps nothing */
      continue;
    }
    if (rule->alias != NONE && values[rule->alias].type == FL_NONE)
      return false;
    if (!look_at_tensor(quick, rule, values, &seen, &memory[i]))
      return false;
  }
  for (uint32_t i = 0; i < quick->n_tensors; i++)
    if (quick->tensors[i].written && memory[i].end && !is_clear(quick, values, memory, i))
      return false;
  return true;
}
