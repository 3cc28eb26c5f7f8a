/* Generated calls: see call.h. */
#include "cli/verify/call.h"

#include "cli/cli.h"
#include "cli/trials/fill.h"
#include "cli/trials/trial.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x, uint64_t y) {
  x = (x ^ y) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

static int64_t count_elements(const fl_tensor_spec *spec) {
  int64_t n = 1;
  for (int d = 0; d < spec->ndim; d++)
    if (__builtin_mul_overflow(n, spec->shape[d], &n))
      return INT64_MAX / 256;
  return n;
}

static size_t spec_bytes(const fl_tensor_spec *spec) {
  return (size_t)count_elements(spec) * (spec->dtype.bits / 8u);
}

/* What is said of a value's tensor; NULL where there is none. */
static const fl_tensor_spec *spec_of(const test_call *call, uint32_t index) {
  const fl_tensor_spec *spec =
      index < call->n_arguments ? &call->inputs[index].spec : &call->results[index - call->n_arguments];
  return fl_op_argument(call->op, index)->type == FL_TENSOR && spec->present ? spec : NULL;
}

/* -------------------------------------------------------------------------------------------------- generated calls */

static bool allocate(test_call *call) {
  uint32_t n = call->n_values;
  call->inputs = calloc(n + 1, sizeof *call->inputs);
  call->results = calloc(n + 1, sizeof *call->results);
  call->data = calloc(n + 1, sizeof *call->data);
  return call->inputs && call->results && call->data;
}

/* Shapes of the results, and what it costs, from tensors without data. */
static fl_status infer(test_call *call) {
  fl_value *values = calloc(call->n_arguments + 1, sizeof *values);
  DLTensor *tensors = calloc(call->n_arguments + 1, sizeof *tensors);
  fl_status status = FL_ENOMEM;
  if (!values || !tensors)
    goto out;
  for (uint32_t i = 0; i < call->n_arguments; i++) {
    const fl_tensor_spec *spec = spec_of(call, i);
    values[i] = call->inputs[i].value;
    if (!spec)
      continue;
    tensors[i] = (DLTensor){
        .device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = call->inputs[i].spec.shape};
    values[i] = fl_tensor(&tensors[i]);
  }
  fl_call made = {.size = sizeof made, .count = call->n_arguments, .values = values};
  status = fl_infer(call->op, &made, call->results, call->n_values - call->n_arguments, sizeof(fl_tensor_spec));
  fl_cost cost = {.size = sizeof cost};
  if (!status && !fl_op_cost(call->op, &made, &cost) && cost.flops > 0)
    call->operations = cost.flops;
out:
  free(values);
  free(tensors);
  return status;
}

static call_outcome fill(test_call *call) {
  for (uint32_t i = 0; i < call->n_arguments; i++) {
    const fl_tensor_spec *spec = spec_of(call, i);
    if (!spec)
      continue;
    call->data[i] = malloc(spec_bytes(spec) + 1);
    if (!call->data[i])
      return CALL_NO_MEMORY;
    if (!fill_tensor(&call->inputs[i], mix(mix(call->source.seed, call->source.number), i), call->awkward,
                     call->data[i]))
      return CALL_IMPOSSIBLE;
  }
  return CALL_MADE;
}

static fl_status generate(test_call *call) {
  const call_source *from = &call->source;
  fl_status status =
      from->timed ? fl_generate_bench_inputs(call->op, from->dtype, NULL, (uint32_t)from->number, call->inputs,
                                             call->n_arguments, sizeof(fl_input), NULL)
                  : fl_generate_sized_inputs(call->op, from->dtype, *from->sizes ? from->sizes : NULL, from->seed,
                                             from->number, call->inputs, call->n_arguments, sizeof(fl_input));
  return status ? status : infer(call);
}

call_outcome test_call_create(test_call *call, fl_op *op, const call_source *source, int64_t elements,
                              double operations) {
  *call =
      (test_call){.op = op, .source = *source, .awkward = !source->timed && !*source->sizes && source->number % 5 >= 3};
  call->n_arguments = fl_op_argument_count(op);
  call->n_values = call->n_arguments + fl_op_result_count(op);
  call_outcome outcome = allocate(call) ? CALL_MADE : CALL_NO_MEMORY;
  if (outcome == CALL_MADE && generate(call))
    outcome = CALL_IMPOSSIBLE;
  for (uint32_t i = 0; outcome == CALL_MADE && i < call->n_values; i++)
    call->elements += spec_of(call, i) ? count_elements(spec_of(call, i)) : 0;
  if (outcome == CALL_MADE && (call->elements > elements || call->operations > operations))
    outcome = CALL_IMPOSSIBLE;
  if (outcome == CALL_MADE)
    outcome = fill(call);
  if (outcome != CALL_MADE)
    test_call_free(call);
  return outcome;
}

void test_call_free(test_call *call) {
  for (uint32_t i = 0; call->data && i < call->n_values; i++)
    free(call->data[i]);
  free(call->inputs);
  free(call->results);
  free(call->data);
  memset(call, 0, sizeof *call);
}

/* ------------------------------------------------------------------------------------------------ reference results */

static size_t rounded(size_t size) {
  return (size + 63) / 64 * 64;
}

/* May the reference write it: a result, or a state? */
static bool may_be_written(const test_call *call, uint32_t index) {
  return spec_of(call, index) && (index >= call->n_arguments || fl_op_argument(call->op, index)->mutates);
}

size_t kept_call_bytes(const test_call *call) {
  size_t size = rounded(sizeof(kept_call) + call->n_values * sizeof(kept_value));
  for (uint32_t i = 0; i < call->n_values; i++)
    if (may_be_written(call, i))
      size += rounded(spec_bytes(spec_of(call, i)) + 1);
  return size;
}

kept_call *kept_call_place(const test_call *call, void *memory) {
  kept_call *kept = memory;
  char *at = (char *)memory + rounded(sizeof(kept_call) + call->n_values * sizeof(kept_value));
  for (uint32_t i = 0; i < call->n_values; i++)
    if (may_be_written(call, i)) {
      kept->values[i].data = at;
      at += rounded(spec_bytes(spec_of(call, i)) + 1);
    }
  return kept;
}

static void keep_value(kept_value *kept, const fl_value *value) {
  kept->value = *value;
  if (value->type == FL_STRING) {
    snprintf(kept->text, sizeof kept->text, "%s", value->v.s ? value->v.s : "");
    kept->value = fl_string(kept->text);
  } else if (value->type == FL_INT_LIST) {
    uint32_t n = value->length < FL_MAX_DIMS ? value->length : FL_MAX_DIMS;
    for (uint32_t i = 0; i < n; i++)
      kept->ints[i] = value->v.ints[i];
    kept->value = fl_ints(kept->ints, n);
  }
}

void attempt_keep(const attempt *made) {
  const test_call *call = made->call;
  kept_call *kept = call->kept;
  kept->status = made->status;
  snprintf(kept->message, sizeof kept->message, "%s", made->message ? made->message : "");
  for (uint32_t i = 0; i < call->n_values; i++) {
    if (attempt_writes(made, i) && kept->values[i].data) {
      guarded_read(&made->tensors[made->source[i]], kept->values[i].data);
      kept->values[i].written = true;
    } else if (i >= call->n_arguments && made->values[i].type != FL_TENSOR) {
      keep_value(&kept->values[i], &made->values[i]);
    }
  }
}

/* --------------------------------------------------------------------------------------------------------- attempts */

/* Each fourth call is all compact, all padded, all with needless strides, or mixed. */
static layout layout_for(const test_call *call, uint32_t index) {
  static const layout layouts[] = {LAYOUT_COMPACT, LAYOUT_PADDED, LAYOUT_STRIDES};
  uint64_t turn = call->source.number % 4;
  return turn < 3 ? layouts[turn] : (layout)(mix(call->source.number, index) % 4);
}

/* Of twelve calls four have all results in place, four none, four some. */
static bool wants_in_place(const test_call *call, uint32_t index) {
  uint64_t turn = call->source.number / 4 % 3;
  return turn == 1 || (turn == 2 && mix(call->source.number + 1, index) % 2);
}

static bool same_spec(const fl_tensor_spec *a, const fl_tensor_spec *b) {
  return a->ndim == b->ndim && !memcmp(&a->dtype, &b->dtype, sizeof a->dtype) &&
         !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

static bool allocate_attempt(attempt *made, place at, const test_call *call) {
  uint32_t n = call->n_values + 1;
  *made = (attempt){.call = call, .at = at};
  made->tensors = calloc(n, sizeof *made->tensors);
  made->source = calloc(n, sizeof *made->source);
  made->values = calloc(n, sizeof *made->values);
  made->layouts = calloc(n, sizeof *made->layouts);
  return made->tensors && made->source && made->values && made->layouts;
}

/* The tensor that a value is: an argument's for a result in its place, its own, or none. */
static int choose_source(const test_call *call, uint32_t index, bool varied) {
  const fl_tensor_spec *spec = spec_of(call, index);
  int32_t alias = fl_op_argument(call->op, index)->alias;
  if (!spec)
    return -1;
  if (varied && alias >= 0 && spec_of(call, (uint32_t)alias) && same_spec(spec, spec_of(call, (uint32_t)alias)) &&
      wants_in_place(call, index))
    return alias;
  return (int)index;
}

/* Points the values at the tensors. */
static void set_values(attempt *made) {
  const test_call *call = made->call;
  for (uint32_t i = 0; i < call->n_values; i++) {
    if (made->source[i] >= 0)
      made->values[i] = fl_tensor(&made->tensors[made->source[i]].tensor);
    else
      made->values[i] = i < call->n_arguments ? call->inputs[i].value : fl_none();
  }
}

bool attempt_create(attempt *made, place at, const test_call *call, arrangement as) {
  bool complete = allocate_attempt(made, at, call);
  for (uint32_t i = 0; complete && i < call->n_values; i++) {
    made->source[i] = choose_source(call, i, as.varied);
    made->layouts[i] = as.varied ? layout_for(call, i) : LAYOUT_COMPACT;
    if (made->source[i] == (int)i)
      complete = guarded_create(&made->tensors[i], at, spec_of(call, i), made->layouts[i], as.edge, call->data[i]);
  }
  if (complete)
    set_values(made);
  else
    attempt_free(made);
  return complete;
}

bool attempt_clone(attempt *clone, const attempt *made) {
  bool complete = allocate_attempt(clone, made->at, made->call);
  for (uint32_t i = 0; complete && i < made->call->n_values; i++) {
    clone->source[i] = made->source[i];
    clone->layouts[i] = made->layouts[i];
    if (made->source[i] == (int)i)
      complete = guarded_clone(&clone->tensors[i], &made->tensors[i]);
  }
  if (complete)
    set_values(clone);
  else
    attempt_free(clone);
  return complete;
}

void attempt_free(attempt *made) {
  for (uint32_t i = 0; made->tensors && i < made->call->n_values; i++)
    guarded_free(&made->tensors[i]);
  guarded_free(&made->workspace);
  free(made->tensors);
  free(made->source);
  free(made->values);
  free(made->layouts);
  free(made->message);
  memset(made, 0, sizeof *made);
}

bool attempt_is_allowed(attempt *made) {
  fl_call call = {.size = sizeof call, .count = made->call->n_values, .values = made->values};
  return !fl_check(made->call->op, &call);
}

/* Memory for what the implementation asks for, watched like a tensor's. */
static fl_status make_workspace(attempt *made, fl_call *call) {
  fl_tensor_spec bytes = {.present = true, .ndim = 1, .dtype = {kDLUInt, 8, 1}};
  size_t size = 0;
  guarded_free(&made->workspace);
  if (fl_workspace_size(made->call->op, call, &size) || !size)
    return FL_OK; /* that nothing may run is what the call says */
  bytes.shape[0] = (int64_t)size;
  if (!guarded_create(&made->workspace, made->at, &bytes, LAYOUT_COMPACT, EDGE_NONE, NULL))
    return FL_ENOMEM;
  call->workspace = fl_data(&made->workspace.tensor);
  call->workspace_size = size;
  return guarded_reset(&made->workspace);
}

/* The first error of a function over all watched memory. */
static fl_status for_each(attempt *made, fl_status (*function)(guarded *tensor)) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < made->call->n_values && !status; i++)
    if (made->tensors[i].memory)
      status = function(&made->tensors[i]);
  return status;
}

/* Under the policy; what the device says counts as the implementation's answer. */
static fl_status call_op(attempt *made) {
  fl_call call = {
      .size = sizeof call, .count = made->call->n_values, .values = made->values, .prepared = made->prepared};
  fl_status status = make_workspace(made, &call);
  if (!status)
    status = fl_invoke(made->call->op, &call);
  if (!status && made->at.device.device_type != kDLCPU)
    status = fl_device_synchronize(made->at.host, made->at.device, NULL, false);
  return status;
}

static fl_status prepare(attempt *made) {
  const fl_call call = {.size = sizeof call, .count = made->call->n_values, .values = made->values};
  fl_status status = fl_prepare(made->call->op, &call, &made->prepared);
  if (!status && made->at.device.device_type != kDLCPU)
    status = fl_device_synchronize(made->at.host, made->at.device, NULL, false);
  return status;
}

static void run_attempt(attempt *made, fl_policy *policy, bool prepares) {
  fl_scope scope;
  bool entered = false;
  trial_beat();
  free(made->message);
  made->message = NULL;
  set_values(made);
  made->status = for_each(made, guarded_reset);
  if (!made->status) {
    made->status = fl_scope_enter(made->at.host, policy, &scope);
    entered = !made->status;
  }
  if (entered && prepares)
    made->status = prepare(made);
  if (entered && !made->status && (made->prepared || !prepares))
    made->status = call_op(made);
  if (made->status)
    made->message = strdup(fl_error_message());
  if (entered)
    fl_scope_leave(&scope);
  fl_status fetched = for_each(made, guarded_fetch);
  if (!fetched && made->workspace.memory)
    fetched = guarded_fetch(&made->workspace);
  if (fetched && !made->status) {
    made->status = fetched;
    made->message = strdup(fl_error_message());
  }
}

void attempt_run(attempt *made, fl_policy *policy) {
  run_attempt(made, policy, false);
}

void attempt_run_prepared(attempt *made, fl_policy *policy, bool *prepared) {
  run_attempt(made, policy, true);
  *prepared = made->prepared != NULL;
  fl_prepared_free(made->prepared);
  made->prepared = NULL;
}

bool attempt_writes(const attempt *made, uint32_t index) {
  const test_call *call = made->call;
  bool has_result = false;
  if (made->source[index] < 0)
    return false;
  if (index >= call->n_arguments)
    return true;
  for (uint32_t i = call->n_arguments; i < call->n_values; i++) {
    if (fl_op_argument(call->op, i)->alias != (int32_t)index)
      continue;
    if (made->source[i] == (int)index)
      return true;
    has_result = true;
  }
  return fl_op_argument(call->op, index)->mutates && !has_result;
}

fl_tolerance attempt_tolerance(const attempt *made, uint32_t index) {
  const test_call *call = made->call;
  fl_tolerance allowed = cli_tolerance(call->op, made->tensors[made->source[index]].tensor.dtype);
  fl_tolerance activations = cli_tolerance(call->op, cli_dtype_of_bit(call->source.dtype));
  if (allowed.atol > 0 && activations.atol > allowed.atol)
    allowed.atol = activations.atol;
  if (allowed.rtol > 0 && activations.rtol > allowed.rtol)
    allowed.rtol = activations.rtol;
  if (call->source.slack > 1) {
    allowed.atol *= call->source.slack;
    allowed.rtol *= call->source.slack;
  }
  return allowed;
}

/* ------------------------------------------------------------------------------------------------------------ words */

static void describe_tensor(FILE *text, const attempt *made, uint32_t index) {
  static const char *const words[] = {"", " strided", " padded", " permuted"};
  const fl_tensor_spec *spec = spec_of(made->call, index);
  fprintf(text, " %s[", cli_dtype_name(spec->dtype));
  for (int d = 0; d < spec->ndim; d++)
    fprintf(text, "%s%" PRId64, d ? ", " : "", spec->shape[d]);
  fprintf(text, "]%s", words[made->layouts[index]]);
}

static void describe_value(FILE *text, const fl_value *value) {
  switch (value->type) {
  case FL_INT:
    fprintf(text, "=%" PRId64, value->v.i);
    break;
  case FL_FLOAT:
    fprintf(text, "=%g", value->v.f);
    break;
  case FL_BOOL:
    fputs(value->v.b ? "=true" : "=false", text);
    break;
  case FL_STRING:
    fprintf(text, "=\"%s\"", value->v.s);
    break;
  case FL_INT_LIST:
    for (uint32_t i = 0; i < value->length; i++)
      fprintf(text, "%s%" PRId64, i ? ", " : "=[", value->v.ints[i]);
    fputs(value->length ? "]" : "=[]", text);
    break;
  default:
    fputs("=none", text);
  }
}

char *attempt_number(const attempt *made) {
  const call_source *from = &made->call->source;
  char seed[32] = "", *words = NULL;
  if (from->other_seed)
    snprintf(seed, sizeof seed, " of seed %" PRIu64, from->seed);
  int length = asprintf(&words, "%scall %" PRIu64 "%s%s%s%s%s", from->timed ? "timed " : "", from->number, seed,
                        made->call->awkward ? " (with awkward values)" : "", *from->sizes ? " (" : "", from->sizes,
                        *from->sizes ? ")" : "");
  return length < 0 ? NULL : words;
}

char *attempt_describe(const attempt *made) {
  const test_call *call = made->call;
  char *words = NULL;
  size_t size;
  FILE *text = open_memstream(&words, &size);
  if (!text)
    return NULL;
  for (uint32_t i = 0; i < call->n_values; i++) {
    const fl_argument *value = fl_op_argument(call->op, i);
    if (i >= call->n_arguments && made->source[i] < 0)
      continue;
    fprintf(text, "%s%s", i ? ", " : "", value->name);
    if (made->source[i] == (int)i)
      describe_tensor(text, made, i);
    else if (made->source[i] >= 0)
      fputs(" in place", text);
    else
      describe_value(text, &made->values[i]);
  }
  if (fclose(text)) {
    free(words);
    return NULL;
  }
  return words;
}
