/* See bad_calls.h. */
#include "tests/bad_calls.h"

#include "cli/trials/fill.h"
#include "core/registry.h"
#include "tests/suite.h"

#include <limits.h>
#include <math.h>

enum { MOST_ELEMENTS = 20000 };

/* ------------------------------------------------------------------------------------------------------ good calls */

bool is_tensor(const made_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR;
}

bool is_result(const made_call *call, uint32_t index) {
  return index >= call->n_arguments;
}

static int64_t count_elements(const fl_tensor_spec *spec) {
  int64_t n = 1;
  for (int d = 0; d < spec->ndim; d++)
    n *= spec->shape[d];
  return n;
}

bool has_elements(const made_call *call, uint32_t index) {
  return call->bytes[index] > 0;
}

/* After the struct was copied. */
static void rebase(made_call *call) {
  for (uint32_t i = 0; i < call->n_values; i++) {
    call->tensors[i].shape = call->shapes[i];
    if (call->tensors[i].strides)
      call->tensors[i].strides = call->strides[i];
    if (is_tensor(call, i))
      call->values[i].v.tensor = &call->tensors[i];
  }
}

static void set_tensor(made_call *call, uint32_t index, const fl_tensor_spec *spec) {
  call->tensors[index] = (DLTensor){.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype};
  memcpy(call->shapes[index], spec->shape, sizeof call->shapes[index]);
  call->bytes[index] = (size_t)count_elements(spec) * (spec->dtype.bits / 8u);
  call->memory[index] = malloc(call->bytes[index] + !call->bytes[index]); /* no byte more: sanitizers look */
  ck_assert_ptr_nonnull(call->memory[index]);
  memset(call->memory[index], 0, call->bytes[index]);
  call->tensors[index].data = call->memory[index];
  call->values[index] = fl_tensor(&call->tensors[index]);
}

void free_call(made_call *call) {
  for (uint32_t i = 0; i < call->n_values; i++)
    free(call->memory[i]);
  free(call);
}

static fl_status check(const made_call *call) {
  fl_call checked = {.size = sizeof checked, .count = call->n_values, .values = (fl_value *)call->values};
  return fl_check(call->op, &checked);
}

made_call *make_call(fl_op *op, uint64_t number) {
  made_call *call = calloc(1, sizeof *call);
  fl_tensor_spec results[FL_SCHEMA_MAX_RESULTS];
  ck_assert_ptr_nonnull(call);
  call->op = op;
  call->n_arguments = fl_op_argument_count(op);
  call->n_values = call->n_arguments + fl_op_result_count(op);
  bool made = !fl_generate_inputs(op, 0, 1, number, call->inputs, call->n_arguments, sizeof(fl_input));
  for (uint32_t i = 0; made && i < call->n_arguments; i++) {
    const fl_input *input = &call->inputs[i];
    made = !input->spec.present || count_elements(&input->spec) <= MOST_ELEMENTS;
    call->values[i] = input->value;
    if (made && input->spec.present) {
      set_tensor(call, i, &input->spec);
      made = fill_tensor(input, number, false, call->memory[i]);
    }
  }
  rebase(call);
  fl_call inferred = {.size = sizeof inferred, .count = call->n_arguments, .values = call->values};
  made = made && !fl_infer(op, &inferred, results, call->n_values - call->n_arguments, sizeof(fl_tensor_spec));
  for (uint32_t i = call->n_arguments; made && i < call->n_values; i++)
    if (results[i - call->n_arguments].present)
      set_tensor(call, i, &results[i - call->n_arguments]);
  rebase(call);
  if (made && !check(call))
    return call;
  free_call(call);
  return NULL;
}

/* --------------------------------------------------------------------------------------------- ways to spoil a call */

static bool other_type(made_call *call, uint32_t index, int variant) {
  static const fl_value others[] = {{FL_INT, 0, {.i = 1}},
                                    {FL_FLOAT, 0, {.f = 1}},
                                    {FL_STRING, 0, {.s = "none"}},
                                    {FL_BOOL, 0, {.b = true}},
                                    {77, 0, {.i = 1}}};
  static const int n = sizeof others / sizeof others[0];
  uint32_t type = fl_op_argument(call->op, index)->type;
  int skipped = 0;
  for (int i = 0; i < n; i++)
    if (others[i].type == type)
      skipped++;
    else if (variant == i - skipped) {
      call->values[index] = others[i];
      return true;
    }
  return false;
}

static bool tensor_for_another(made_call *call, uint32_t index, int variant) {
  if (variant || fl_op_argument(call->op, index)->type == FL_TENSOR)
    return false;
  call->values[index] = fl_tensor(&call->tensors[index]);
  return true;
}

static bool none_where_required(made_call *call, uint32_t index, int variant) {
  const fl_argument *argument = fl_op_argument(call->op, index);
  bool required = is_result(call, index) ? is_tensor(call, index) : !argument->optional;
  if (variant || !required)
    return false;
  call->values[index] = fl_none();
  return true;
}

static bool given_where_none(made_call *call, uint32_t index, int variant) {
  if (variant || !is_result(call, index) || is_tensor(call, index) ||
      fl_op_argument(call->op, index)->type != FL_TENSOR)
    return false;
  call->tensors[index] = call->tensors[call->n_arguments];
  call->values[index] = fl_tensor(&call->tensors[index]);
  return true;
}

static bool null_pointer(made_call *call, uint32_t index, int variant) {
  fl_value *value = &call->values[index];
  bool is_pointer =
      value->type == FL_TENSOR || value->type == FL_STRING || (value->type == FL_INT_LIST && value->length);
  if (variant || !is_pointer)
    return false;
  memset(&value->v, 0, sizeof value->v);
  return true;
}

static bool null_data(made_call *call, uint32_t index, int variant) {
  if (variant || !is_tensor(call, index) || !has_elements(call, index))
    return false;
  call->tensors[index].data = NULL;
  return true;
}

static bool null_shape(made_call *call, uint32_t index, int variant) {
  if (variant || !is_tensor(call, index) || !call->tensors[index].ndim)
    return false;
  call->tensors[index].shape = NULL;
  return true;
}

static bool impossible_rank(made_call *call, uint32_t index, int variant) {
  static const int32_t ranks[] = {-1, INT32_MIN, FL_MAX_DIMS + 1, INT32_MAX};
  if (variant >= 4 || !is_tensor(call, index))
    return false;
  call->tensors[index].ndim = ranks[variant];
  return true;
}

static bool one_dimension_more(made_call *call, uint32_t index, int variant) {
  int32_t n = call->tensors[index].ndim;
  if (variant || !is_tensor(call, index) || n == FL_MAX_DIMS)
    return false;
  memmove(&call->shapes[index][1], &call->shapes[index][0], (size_t)n * sizeof **call->shapes);
  call->shapes[index][0] = 1;
  call->tensors[index].ndim++;
  return true;
}

static bool one_dimension_less(made_call *call, uint32_t index, int variant) {
  int32_t n = call->tensors[index].ndim;
  if (variant || !is_tensor(call, index) || !n)
    return false;
  memmove(&call->shapes[index][0], &call->shapes[index][1], (size_t)(n - 1) * sizeof **call->shapes);
  call->tensors[index].ndim--;
  return true;
}

static bool other_dtype(made_call *call, uint32_t index, int variant) {
  static const DLDataType types[] = {
      {kDLFloat, 64, 1}, {kDLComplex, 64, 1}, {kDLInt, 16, 1}, {kDLFloat, 32, 2}, {99, 1, 1}};
  if (variant >= 5 || !is_tensor(call, index))
    return false;
  DLDataType *dtype = &call->tensors[index].dtype;
  bool has_it = !memcmp(dtype, &types[variant], sizeof *dtype);
  *dtype = has_it ? (DLDataType){kDLInt, 16, 1} : types[variant];
  return true;
}

static bool one_element_more(made_call *call, uint32_t index, int variant) {
  if (!is_tensor(call, index) || variant >= call->tensors[index].ndim)
    return false;
  call->shapes[index][variant]++;
  return true;
}

static bool negative_size(made_call *call, uint32_t index, int variant) {
  if (!is_tensor(call, index) || variant >= call->tensors[index].ndim)
    return false;
  call->shapes[index][variant] = -1;
  return true;
}

static bool impossible_size(made_call *call, uint32_t index, int variant) {
  if (!is_tensor(call, index) || variant >= call->tensors[index].ndim || !has_elements(call, index))
    return false;
  call->shapes[index][variant] = INT64_MAX;
  return true;
}

/* The strides of a compact tensor, to be changed. */
static int64_t *strides_of(made_call *call, uint32_t index) {
  DLTensor *tensor = &call->tensors[index];
  for (int d = 0; d < tensor->ndim; d++)
    call->strides[index][d] = fl_stride(tensor, d);
  tensor->strides = call->strides[index];
  return tensor->strides;
}

static bool gaps_in_rows(made_call *call, uint32_t index, int variant) {
  int last = call->tensors[index].ndim - 1;
  if (variant || !is_tensor(call, index) || last < 0 || call->shapes[index][last] < 2 || !has_elements(call, index))
    return false;
  strides_of(call, index)[last] = 2;
  return true;
}

static bool negative_stride(made_call *call, uint32_t index, int variant) {
  int last = call->tensors[index].ndim - 1;
  if (!is_tensor(call, index) || variant >= last || !has_elements(call, index))
    return false;
  int64_t *strides = strides_of(call, index);
  strides[variant] = -strides[variant];
  if (call->shapes[index][variant] < 2) /* the stride is never taken */
    strides[variant] = fl_stride(&call->tensors[index], variant),
    strides[last] = call->shapes[index][last] < 2 ? 1 : -1;
  return call->shapes[index][variant] >= 2 || call->shapes[index][last] >= 2;
}

static bool other_device(made_call *call, uint32_t index, int variant) {
  static const DLDevice devices[] = {{kDLCUDA, 0}, {kDLCPU, 1}};
  uint32_t n = 0;
  for (uint32_t i = 0; i < call->n_values; i++)
    n += is_tensor(call, i);
  if (variant >= 2 || !is_tensor(call, index) || n < 2)
    return false;
  call->tensors[index].device = devices[variant];
  return true;
}

/* A result that begins one element behind the beginning of another tensor. */
static bool overlap(made_call *call, uint32_t index, int variant) {
  size_t item = call->tensors[index].dtype.bits / 8u;
  if (!is_result(call, index) || !is_tensor(call, index) || !has_elements(call, index))
    return false;
  for (uint32_t other = 0; other < call->n_values; other++)
    if (other != index && is_tensor(call, other) && call->bytes[other] > item && !variant--) {
      call->tensors[index].data = (char *)call->memory[other] + item;
      return true;
    }
  return false;
}

static bool elements_over_each_other(made_call *call, uint32_t index, int variant) {
  int last = call->tensors[index].ndim - 1;
  if (!is_result(call, index) || !is_tensor(call, index) || !has_elements(call, index))
    return false;
  for (int d = 0; d < last; d++)
    if (call->shapes[index][d] > 1 && !variant--) {
      strides_of(call, index)[d] = 0;
      return true;
    }
  return false;
}

static bool impossible_int(made_call *call, uint32_t index, int variant) {
  static const int64_t numbers[] = {INT64_MIN, INT64_MAX};
  if (variant >= 2 || is_result(call, index) || call->values[index].type != FL_INT)
    return false;
  call->values[index].v.i = numbers[variant];
  return true;
}

static bool impossible_float(made_call *call, uint32_t index, int variant) {
  static const double numbers[] = {NAN, INFINITY, -INFINITY};
  if (variant >= 3 || call->values[index].type != FL_FLOAT)
    return false;
  call->values[index].v.f = numbers[variant];
  return true;
}

static bool unknown_word(made_call *call, uint32_t index, int variant) {
  static const char *const words[] = {"", "no such word"};
  if (variant >= 2 || is_result(call, index) || call->values[index].type != FL_STRING)
    return false;
  call->values[index].v.s = words[variant];
  return true;
}

static bool impossible_list(made_call *call, uint32_t index, int variant) {
  static const int64_t numbers[3][9] = {{-7, -7, -7}, {INT64_MIN, INT64_MIN, INT64_MIN}, {1, 1, 1, 1, 1, 1, 1, 1, 1}};
  if (variant >= 4 || call->values[index].type != FL_INT_LIST)
    return false;
  if (variant == 3)
    call->values[index].length = 0;
  else
    call->values[index] = fl_ints(numbers[variant], variant == 2 ? 9 : call->values[index].length);
  return true;
}

static const bad_way ways[] = {
    {"another type", other_type},
    {"a tensor for another type", tensor_for_another},
    {"none where required", none_where_required},
    {"given where there is none", given_where_none},
    {"a null pointer", null_pointer},
    {"null data", null_data},
    {"no shape", null_shape},
    {"an impossible rank", impossible_rank},
    {"one dimension more", one_dimension_more},
    {"one dimension less", one_dimension_less},
    {"another dtype", other_dtype},
    {"one element more", one_element_more},
    {"a negative size", negative_size},
    {"an impossible size", impossible_size},
    {"gaps in rows", gaps_in_rows},
    {"a negative stride", negative_stride},
    {"another device", other_device},
    {"overlap", overlap},
    {"elements over each other", elements_over_each_other},
    {"an impossible int", impossible_int},
    {"an impossible float", impossible_float},
    {"an unknown word", unknown_word},
    {"an impossible list", impossible_list},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

/* ---------------------------------------------------------------------------------------------------- what is right */

/* Does a name stand in an expression? */
static bool has_name(const fl_rules *rules, unsigned root, unsigned name) {
  const fl_rule_node *node = &rules->nodes[root];
  if (node->operation < FL_ADD)
    return node->operation == FL_NAME && node->left == name;
  return has_name(rules, node->left, name) || has_name(rules, node->right, name);
}

static bool alternative_has_name(const fl_rules *rules, const fl_rule_alternative *alternative, unsigned name) {
  for (unsigned i = 0; i < alternative->n_dimensions; i++)
    if (has_name(rules, rules->dimensions[alternative->first_dimension + i].root, name))
      return true;
  return false;
}

static const fl_rule_clause *clause_of(const fl_rules *rules, uint32_t value) {
  for (uint32_t i = 0; i < rules->n_clauses; i++)
    if (rules->clauses[i].value == value)
      return &rules->clauses[i];
  return NULL;
}

static bool clause_has_name(const fl_rules *rules, const fl_rule_clause *clause, unsigned name) {
  for (unsigned i = 0; clause && i < clause->n_alternatives; i++)
    if (alternative_has_name(rules, &rules->alternatives[clause->first_alternative + i], name))
      return true;
  return false;
}

/* Do the rules tie a size of the tensor to an int argument, or to a size of another tensor of the call? */
static bool is_tied(const made_call *call, uint32_t index, int dimension) {
  const fl_rules *rules = call->op->schema->compiled;
  const fl_rule_clause *own = clause_of(rules, index);
  for (unsigned i = 0; own && i < own->n_alternatives; i++) {
    const fl_rule_alternative *alternative = &rules->alternatives[own->first_alternative + i];
    int at = dimension - (call->tensors[index].ndim - alternative->n_dimensions);
    for (unsigned name = 0; name < rules->n_names && at >= 0 && at < alternative->n_dimensions; name++) {
      if (!has_name(rules, rules->dimensions[alternative->first_dimension + at].root, name))
        continue;
      if (rules->names[name].argument != FL_RULES_NONE)
        return true;
      for (uint32_t other = 0; other < call->n_values; other++)
        if (other != index && is_tensor(call, other) && clause_has_name(rules, clause_of(rules, other), name))
          return true;
    }
  }
  return !own;
}

/* What is not wrong though it looks so. */
static const struct {
  const char *op, *value, *way;
} allowed[] = {
    {"mm_encoder_attn", "max_seqlen", "an impossible int"}, /* a hint */
    {"mla_prefill", "query_offset", "an impossible int"},   /* behind all rows: each query sees all */
    {"mamba_chunk_scan", "dt_max", "an impossible float"},  /* infinity: no limit */
    {"fused_moe", "num_expert_group", "an impossible int"}, /* without use_grouped_topk they say nothing */
    {"fused_moe", "topk_group", "an impossible int"},
    {"logits_processor", "weight", "one element more"},       /* with org_vocab_size */
    {"moe_align_block_size", "topk_ids", "one element more"}, /* of no tokens */
    {"paged_attention", "window_left", "an impossible int"},  /* wider than any sequence */
    {"paged_attention", "window_right", "an impossible int"},
    {"paged_attention", "k_scale", "one element more"}, /* one for the tensor, or for each head */
    {"paged_attention", "v_scale", "one element more"},
    {"reshape_and_cache", "k_scale", "one element more"},
    {"reshape_and_cache", "v_scale", "one element more"},
    {"conv2d", "x", "one element more"}, /* that the strides leave out */
    {"conv3d", "x", "one element more"},
    {"conv2d", "weight", "one element more"},
    {"conv3d", "weight", "one element more"},
};

bool may_be_right(const made_call *good, uint32_t index, const bad_way *way, int variant) {
  const fl_rule_clause *clause = clause_of(good->op->schema->compiled, index);
  for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
    if (!strcmp(allowed[i].op, fl_op_name(good->op)) &&
        !strcmp(allowed[i].value, fl_op_argument(good->op, index)->name) && !strcmp(allowed[i].way, way->name))
      return true;
  if (way->spoil == one_element_more)
    return !is_result(good, index) && !is_tied(good, index, variant);
  if (way->spoil == one_dimension_more || way->spoil == one_dimension_less)
    return clause && clause->n_alternatives > 1; /* it may be the other one */
  return false;
}

/* ----------------------------------------------------------------------------------------------------- spoilt calls */

/* The call spoilt so; NULL: there is no such variant. */
static made_call *spoil(const made_call *good, uint32_t index, const bad_way *way, int variant) {
  made_call *spoilt = malloc(sizeof *spoilt);
  ck_assert_ptr_nonnull(spoilt);
  *spoilt = *good;
  rebase(spoilt);
  if (way->spoil(spoilt, index, variant))
    return spoilt;
  free(spoilt);
  return NULL;
}

void spoil_everything(const made_call *good, bad_call_visitor visit) {
  for (uint32_t index = 0; index < good->n_values; index++)
    for (int w = 0; w < N_WAYS; w++) {
      made_call *spoilt;
      for (int variant = 0; (spoilt = spoil(good, index, &ways[w], variant)); variant++) {
        visit(good, spoilt, index, &ways[w], variant);
        free(spoilt);
      }
    }
}
