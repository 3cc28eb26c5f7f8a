/*
 * One safetensors file as one call: see file.h. The format of the files is described in tests/golden/README.md.
 * Everything is found through the schema, so that ops of plugins run as well as the host's own.
 */
#include "cli/run/file.h"
#include "cli/cli.h"
#include "cli/run/ranks.h"
#include "cli/run/safetensors.h"
#include "cli/trials/clock.h"
#include "cli/trials/compare.h"
#include "cli/trials/device.h"
#include "cli/trials/placement.h"
#include "cli/trials/trial.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MOST = 1000000 };

static const char result_prefix[] = "out.", after_prefix[] = "after.";

/* Everything that belongs to one file while it is run; freed by run_free. */
typedef struct run_case {
  fl_host *host;
  fl_op *op;
  uint32_t n_arguments, n_results;
  safetensors file, results; /* results: out.* and after.*, as they are written */
  json_t *attributes;
  DLDevice device;
  void *stream;             /* of the run's own, where the device has streams */
  int32_t ranks;            /* that share the call */
  fl_value *values;         /* arguments, then results; tensors on the host */
  fl_value *passed;         /* the same as they are passed: tensors on the device */
  device_tensor *on_device; /* by value; of a call on the host, or that is placed, none */
  placement placed;         /* where the file says how its tensors lie; else nothing */
  bool *written;            /* by value: a tensor that the call writes */
  int needed;               /* calls of the process, of which one fails; 0: the file does not say */
  DLTensor **initial;       /* by argument: what a tensor that the call may overwrite is before each call; else NULL */
  int64_t **lists;          /* by argument: storage of an integer list */
  fl_explanation *explanation;
  uint64_t *calls; /* by implementation in the explanation, before the calls */
  run_report *report;
} run_case;

/* Sets status and problem; the first problem stays. */
static FL_PRINTF(3, 4) bool fail(run_case *run, run_status status, const char *format, ...) {
  va_list arguments;
  if (run->report->problem)
    return false;
  va_start(arguments, format);
  if (vasprintf(&run->report->problem, format, arguments) < 0)
    run->report->problem = NULL;
  va_end(arguments);
  run->report->status = status;
  return false;
}

static bool no_memory(run_case *run) {
  return fail(run, RUN_ERROR, "out of memory");
}

/* ------------------------------------------------------------------------------------------- the file and its op */

static bool read_attributes(run_case *run) {
  const char *text = safetensors_metadata(&run->file, "attrs");
  json_error_t error;
  run->attributes = json_loads(text ? text : "{}", JSON_REJECT_DUPLICATES, &error);
  if (!run->attributes)
    return fail(run, RUN_ERROR, "metadata 'attrs': %s at column %d", error.text, error.column);
  return json_is_object(run->attributes) || fail(run, RUN_ERROR, "metadata 'attrs' is not a JSON object");
}

static bool open_op(run_case *run) {
  const char *op = safetensors_metadata(&run->file, "op"), *source = safetensors_metadata(&run->file, "source");
  if (!op)
    return fail(run, RUN_ERROR, "its metadata names no op (key 'op')");
  run->report->op = strdup(op);
  run->report->source = source ? strdup(source) : NULL;
  if (!run->report->op || (source && !run->report->source))
    return no_memory(run);
  run->op = fl_find_op(run->host, op);
  if (!run->op)
    return fail(run, RUN_ERROR, "%s", fl_error_message());
  run->n_arguments = fl_op_argument_count(run->op);
  run->n_results = fl_op_result_count(run->op);
  uint32_t n = run->n_arguments + run->n_results;
  run->values = calloc(n + 1, sizeof *run->values);
  run->passed = calloc(n + 1, sizeof *run->passed);
  run->on_device = calloc(n + 1, sizeof *run->on_device);
  run->written = calloc(n + 1, sizeof *run->written);
  run->initial = calloc(n + 1, sizeof *run->initial);
  run->lists = calloc(n + 1, sizeof *run->lists);
  run->results.entries = calloc(n + 1, sizeof *run->results.entries);
  return (run->values && run->passed && run->on_device && run->written && run->initial && run->lists &&
          run->results.entries) ||
         no_memory(run);
}

/* Does the schema have a tensor (or something else than one) of that name, among values first to first + n - 1? */
static bool has_value(const run_case *run, uint32_t first, uint32_t n, bool tensor, const char *name) {
  for (uint32_t i = first; i < first + n; i++) {
    const fl_argument *value = fl_op_argument(run->op, i);
    if ((value->type == FL_TENSOR) == tensor && !strcmp(value->name, name))
      return true;
  }
  return false;
}

static bool is_state(const run_case *run, const char *name) {
  for (uint32_t i = 0; i < run->n_arguments; i++)
    if (fl_op_argument(run->op, i)->mutates && !strcmp(fl_op_argument(run->op, i)->name, name))
      return true;
  return false;
}

static bool has_prefix(const char *name, const char *prefix) {
  return !strncmp(name, prefix, strlen(prefix));
}

static bool is_tensor_of_op(const run_case *run, const char *name) {
  if (has_prefix(name, result_prefix))
    return has_value(run, run->n_arguments, run->n_results, true, name + strlen(result_prefix));
  if (has_prefix(name, after_prefix))
    return is_state(run, name + strlen(after_prefix));
  return has_value(run, 0, run->n_arguments, true, name);
}

/* The message for a name that the op does not have, with the one that was probably meant. */
static bool unknown_name(run_case *run, const char *what, bool tensor, const char *name) {
  const char **names = calloc(run->n_arguments + 1, sizeof *names);
  uint32_t n = 0;
  if (!names)
    return no_memory(run);
  for (uint32_t i = 0; i < run->n_arguments; i++)
    if ((fl_op_argument(run->op, i)->type == FL_TENSOR) == tensor)
      names[n++] = fl_op_argument(run->op, i)->name;
  const char *nearest = cli_nearest(name, names);
  fail(run, RUN_ERROR, "%s '%s' is none of %s%s", what, name, fl_op_schema(run->op), cli_suggest("", nearest).text);
  free(names);
  return false;
}

/* A slip in a name must not make a test of something else. */
static bool check_names(run_case *run) {
  const char *key;
  json_t *value;
  for (size_t i = 0; i < run->file.n; i++)
    if (!is_tensor_of_op(run, run->file.entries[i].name))
      return unknown_name(run, "tensor", true, run->file.entries[i].name);
  json_object_foreach(run->attributes, key, value) {
    if (!has_value(run, 0, run->n_arguments, false, key))
      return unknown_name(run, "attribute", false, key);
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------------ arguments */

static bool int_list(run_case *run, uint32_t index, json_t *json) {
  size_t n = json_array_size(json), i;
  json_t *item;
  run->lists[index] = calloc(n + 1, sizeof *run->lists[index]);
  if (!run->lists[index])
    return no_memory(run);
  json_array_foreach(json, i, item) {
    if (!json_is_integer(item))
      return false;
    run->lists[index][i] = json_integer_value(item);
  }
  run->values[index] = fl_ints(run->lists[index], (uint32_t)n);
  return json_is_array(json);
}

static bool set_attribute(run_case *run, uint32_t index, const fl_argument *argument, json_t *json) {
  static const char *const wanted[] = {[FL_INT] = "an integer",
                                       [FL_FLOAT] = "a number",
                                       [FL_BOOL] = "true or false",
                                       [FL_STRING] = "a string",
                                       [FL_INT_LIST] = "a list of integers"};
  fl_value *value = &run->values[index];
  bool fits = false;
  *value = fl_none();
  if (json_is_null(json)) {
    fits = argument->optional;
  } else if (argument->type == FL_INT) {
    fits = json_is_integer(json);
    *value = fl_int(json_integer_value(json));
  } else if (argument->type == FL_FLOAT) {
    fits = json_is_number(json);
    *value = fl_float(json_number_value(json));
  } else if (argument->type == FL_BOOL) {
    fits = json_is_boolean(json);
    *value = fl_bool(json_is_true(json));
  } else if (argument->type == FL_STRING) {
    fits = json_is_string(json);
    *value = fl_string(json_string_value(json));
  } else if (argument->type == FL_INT_LIST) {
    fits = int_list(run, index, json);
  }
  return fits || fail(run, RUN_ERROR, "attribute '%s': expected %s%s", argument->name, wanted[argument->type],
                      argument->optional ? " or null" : "");
}

/* A tensor that a call may overwrite is given as a copy, renewed before each call. The copy is "after.NAME" among the
 * results. */
static bool set_tensor(run_case *run, uint32_t index, const fl_argument *argument, DLTensor *tensor) {
  char *name;
  run->values[index] = fl_tensor(tensor);
  if (!argument->mutates)
    return true;
  if (asprintf(&name, "%s%s", after_prefix, argument->name) < 0)
    return no_memory(run);
  safetensors_entry *entry = &run->results.entries[run->results.n];
  bool made = safetensors_entry_create(entry, name, tensor->dtype, tensor->ndim, tensor->shape);
  free(name);
  if (!made)
    return no_memory(run);
  run->results.n++;
  run->initial[index] = tensor;
  run->values[index] = fl_tensor(&entry->tensor);
  return true;
}

static bool set_arguments(run_case *run) {
  for (uint32_t i = 0; i < run->n_arguments; i++) {
    const fl_argument *argument = fl_op_argument(run->op, i);
    json_t *json = json_object_get(run->attributes, argument->name);
    DLTensor *tensor = argument->type == FL_TENSOR ? safetensors_find(&run->file, argument->name) : NULL;
    bool ok = true;
    if (tensor)
      ok = set_tensor(run, i, argument, tensor);
    else if (json)
      ok = set_attribute(run, i, argument, json);
    else if (argument->has_default)
      run->values[i] = argument->default_value;
    else if (argument->optional)
      run->values[i] = fl_none();
    else
      ok = fail(run, RUN_ERROR, "%s '%s' is missing: %s", argument->type == FL_TENSOR ? "tensor" : "attribute",
                argument->name, fl_op_schema(run->op));
    if (!ok)
      return false;
  }
  return true;
}

/* Makes the result tensors that fl_infer asks for. */
static bool make_results(run_case *run) {
  fl_call call = {.size = sizeof call, .count = run->n_arguments, .values = run->values};
  fl_tensor_spec *specs = calloc(run->n_results + 1, sizeof *specs);
  char *name = NULL;
  bool ok = false;
  if (!specs) {
    no_memory(run);
    goto out;
  }
  if (fl_infer(run->op, &call, specs, run->n_results, sizeof(fl_tensor_spec))) {
    fail(run, RUN_ERROR, "%s", fl_error_message());
    goto out;
  }
  for (uint32_t i = 0; i < run->n_results; i++) {
    const fl_argument *result = fl_op_argument(run->op, run->n_arguments + i);
    safetensors_entry *entry = &run->results.entries[run->results.n];
    if (result->type != FL_TENSOR || !specs[i].present)
      continue;
    free(name);
    if (asprintf(&name, "%s%s", result_prefix, result->name) < 0)
      name = NULL;
    if (!name || !safetensors_entry_create(entry, name, specs[i].dtype, specs[i].ndim, specs[i].shape)) {
      no_memory(run);
      goto out;
    }
    run->results.n++;
    run->values[run->n_arguments + i] = fl_tensor(&entry->tensor);
  }
  ok = true;
out:
  free(name);
  free(specs);
  return ok;
}

/* ----------------------------------------------------------------------------------------------------- the device */

static bool device_failed(run_case *run) {
  return fail(run, RUN_ERROR, "%s", fl_error_message());
}

/* Is it a tensor that the call writes: a result, or a state that no result stands for? */
static bool is_written(const run_case *run, uint32_t index) {
  if (run->values[index].type != FL_TENSOR)
    return false;
  for (uint32_t i = run->n_arguments; index < run->n_arguments && i < run->n_arguments + run->n_results; i++)
    if (fl_op_argument(run->op, i)->alias == (int32_t)index)
      return false; /* in its place that result is written, and elsewhere not this */
  return index >= run->n_arguments || run->initial[index];
}

/* For the handler of memory faults. */
static const placement *being_called;

static bool locate(const void *address, char *words, size_t size) {
  return being_called && placement_locate(being_called, address, words, size);
}

static char *name_of(const run_case *run, uint32_t index) {
  char *name;
  return asprintf(&name, "%s%s", index < run->n_arguments ? "" : result_prefix, fl_op_argument(run->op, index)->name) <
                 0
             ? NULL
             : name;
}

/* Puts every tensor where the file says that it lay. */
static bool place_as_saved(run_case *run, const char *text) {
  const char *edge = safetensors_metadata(&run->file, "edge");
  uint32_t n = run->n_arguments + run->n_results;
  char words[PLACEMENT_WORDS] = "";
  json_error_t error;
  memory_edge at = !edge ? EDGE_NONE : !strcmp(edge, "end") ? EDGE_BEHIND : EDGE_BEFORE;
  if (at == EDGE_BEFORE && strcmp(edge, "beginning") != 0)
    return fail(run, RUN_ERROR, "metadata 'edge': '%.80s' is neither end nor beginning", edge);
  json_t *saved = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  if (!saved)
    return fail(run, RUN_ERROR, "metadata 'layout': %s at column %d", error.text, error.column);
  run->placed = (placement){.tensors = calloc(n + 1, sizeof *run->placed.tensors), .n = n};
  bool made = run->placed.tensors;
  for (uint32_t i = 0; i < n && made; i++) {
    if (run->values[i].type != FL_TENSOR)
      continue;
    run->placed.tensors[i].form = run->values[i].v.tensor;
    run->placed.tensors[i].name = name_of(run, i);
    made = run->placed.tensors[i].name;
  }
  if (!made)
    no_memory(run);
  else if (!(made = placement_create(&run->placed, (place){run->host, run->device}, saved, at, words)))
    fail(run, RUN_ERROR, "%s", words);
  json_decref(saved);
  for (uint32_t i = 0; i < n && made; i++) {
    run->written[i] = is_written(run, i);
    if (run->values[i].type == FL_TENSOR)
      run->passed[i] = fl_tensor(&run->placed.tensors[i].tensor);
  }
  return made;
}

static bool is_placed(const run_case *run) {
  return run->placed.n_memories;
}

/* Calls have a stream of their own on a device that has streams: a kernel that does not keep to the one that it is
 * given shows in its results. */
static bool open_stream(run_case *run) {
  fl_status status = FL_ENOTSUP;
  if (run->device.device_type != kDLCPU)
    status = fl_stream_create(run->host, run->device, 0, &run->stream);
  return !status || status == FL_ENOTSUP || device_failed(run);
}

/* Puts every tensor on the device. */
static bool place_tensors(run_case *run) {
  uint32_t n = run->n_arguments + run->n_results;
  const char *saved = safetensors_metadata(&run->file, "layout");
  memcpy(run->passed, run->values, n * sizeof *run->passed);
  if (saved)
    return place_as_saved(run, saved);
  for (uint32_t i = 0; run->device.device_type != kDLCPU && i < n; i++) {
    device_tensor *to = &run->on_device[i];
    if (run->values[i].type != FL_TENSOR)
      continue;
    if (device_tensor_create(to, run->host, run->device, run->values[i].v.tensor) ||
        (i < run->n_arguments && device_tensor_put(to, run->values[i].v.tensor)))
      return device_failed(run);
    run->passed[i] = fl_tensor(&to->tensor);
  }
  return true;
}

/* All as it was: what a call writes beside its results is to be found. */
static bool renew_placed(run_case *run) {
  for (uint32_t i = 0; i < run->n_arguments; i++)
    if (run->values[i].type == FL_TENSOR)
      guarded_put(&run->placed.tensors[i].view, (run->initial[i] ? run->initial[i] : run->values[i].v.tensor)->data);
  return !placement_reset(&run->placed) || device_failed(run);
}

/* Gives tensors that a call may overwrite what they are before it. */
static bool renew_tensors(run_case *run) {
  if (is_placed(run))
    return renew_placed(run);
  for (uint32_t i = 0; i < run->n_arguments; i++) {
    if (!run->initial[i])
      continue;
    memcpy(run->values[i].v.tensor->data, run->initial[i]->data, safetensors_data_size(run->initial[i]));
    if (run->on_device[i].memory.memory && device_tensor_put(&run->on_device[i], run->values[i].v.tensor))
      return device_failed(run);
  }
  return true;
}

/* What a call has written, and whether that is all. */
static bool fetch_placed(run_case *run) {
  char where[PLACEMENT_WORDS];
  if (placement_fetch(&run->placed))
    return device_failed(run);
  for (uint32_t i = 0; i < run->n_arguments + run->n_results; i++)
    if (run->passed[i].type != FL_TENSOR)
      run->values[i] = run->passed[i];
    else if (i >= run->n_arguments || run->initial[i])
      guarded_read(&run->placed.tensors[i].view, run->values[i].v.tensor->data);
  const placed *changed = placement_changed(&run->placed, run->written, where);
  if (!changed)
    return true;
  return run->written[changed - run->placed.tensors]
             ? fail(run, RUN_FAILED, "it wrote outside '%s': %s", changed->name, where)
             : fail(run, RUN_FAILED, "argument '%s' was overwritten (%s)", changed->name, where);
}

/* What a call has written, from where it was put. */
static bool fetch_results(run_case *run) {
  if (is_placed(run))
    return fetch_placed(run);
  for (uint32_t i = 0; i < run->n_arguments + run->n_results; i++) {
    bool written = i >= run->n_arguments || run->initial[i];
    if (run->passed[i].type != FL_TENSOR)
      run->values[i] = run->passed[i];
    else if (written && run->on_device[i].memory.memory &&
             device_tensor_get(&run->on_device[i], run->values[i].v.tensor))
      return device_failed(run);
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------------- the call */

static uint64_t count_calls(const run_case *run, const char *impl_id) {
  fl_counters counters = {.size = sizeof counters};
  return fl_get_counters(run->host, run->report->op, impl_id, &counters) ? 0 : counters.calls;
}

static bool remember_calls(run_case *run) {
  if (fl_explain(run->host, run->report->op, (int32_t)run->device.device_type, &run->explanation))
    return fail(run, RUN_ERROR, "%s", fl_error_message());
  run->calls = calloc(run->explanation->n_impls + 1, sizeof *run->calls);
  if (!run->calls)
    return no_memory(run);
  for (uint32_t i = 0; i < run->explanation->n_impls; i++)
    run->calls[i] = count_calls(run, fl_explained_at(run->explanation, i)->impl_id);
  return true;
}

/* The implementation that gave the results: the host tries them in the explanation's order, so it is the last of those
 * that were called. */
static const fl_explained *find_who_ran(const run_case *run) {
  const fl_explained *ran = NULL;
  for (uint32_t i = 0; i < run->explanation->n_impls; i++)
    if (count_calls(run, fl_explained_at(run->explanation, i)->impl_id) > run->calls[i])
      ran = fl_explained_at(run->explanation, i);
  return ran;
}

static bool report_who_ran(run_case *run) {
  const fl_explained *ran = find_who_ran(run);
  const char *selected = run->explanation->selected;
  if (run->report->impl_id)
    return true;
  if (!ran)
    return fail(run, RUN_ERROR, "the host does not say which implementation ran");
  run->report->impl_id = strdup(ran->impl_id);
  char over[32] = "";
  if (run->ranks > 1)
    snprintf(over, sizeof over, "over %d ranks; ", run->ranks);
  int printed = selected && strcmp(selected, ran->impl_id)
                    ? asprintf(&run->report->why, "%sfallback from '%s'; %s", over, selected, ran->reason)
                    : asprintf(&run->report->why, "%s%s", over, ran->reason);
  if (printed < 0)
    run->report->why = NULL;
  return (run->report->impl_id && run->report->why) || no_memory(run);
}

static bool call_failed(run_case *run, fl_status status, const char *words) {
  return fail(run, status == FL_ENOIMPL || status == FL_ENOTSUP ? RUN_NO_IMPL : RUN_ERROR, "%s", words);
}

/* On as many ranks as divide it: the file's tensors lie where the command put them. */
static bool call_shared(run_case *run, double *time_us) {
  char words[RUN_RANKS_WORDS] = "";
  fl_status status = run_over_ranks(run->host, run->op, run->values, run->ranks, time_us, words);
  if (status == FL_EINTERNAL)
    return fail(run, RUN_FAILED, "%s", words);
  return !status || call_failed(run, status, words);
}

static bool call_once(run_case *run, double *time_us) {
  fl_call call = {
      .size = sizeof call, .count = run->n_arguments + run->n_results, .values = run->passed, .stream = run->stream};
  if (!renew_tensors(run))
    return false;
  if (run->ranks > 1)
    return call_shared(run, time_us);
  being_called = is_placed(run) ? &run->placed : NULL;
  trial_set_locate(locate);
  double start = seconds_now();
  fl_status status = fl_invoke(run->op, &call);
  if (!status && run->device.device_type != kDLCPU)
    status = fl_device_synchronize(run->host, run->device, run->stream, false);
  *time_us = (seconds_now() - start) * 1e6;
  being_called = NULL;
  return !status || call_failed(run, status, fl_error_message());
}

/* ----------------------------------------------------------------------------------------------------- comparison */

static bool ran_reference(const run_case *run) {
  for (uint32_t i = 0; i < run->explanation->n_impls; i++)
    if (!strcmp(fl_explained_at(run->explanation, i)->impl_id, run->report->impl_id))
      return !strcmp(fl_explained_at(run->explanation, i)->kind, "reference");
  return false;
}

/* Of a list of integers a file may hold just the beginning: what lies behind is padding, which implementations fill as
 * they like (moe_align_block_size). */
static DLTensor shown_part(const DLTensor *result, const DLTensor *expected) {
  DLTensor part = *result;
  bool is_list = result->ndim == 1 && expected->ndim == 1 && result->dtype.code == kDLInt;
  if (is_list && expected->shape[0] > 0 && expected->shape[0] < result->shape[0])
    part.shape = expected->shape;
  return part;
}

static double largest_element(const DLTensor *tensor) {
  const fl_element_type *type = fl_element_type_of(tensor->dtype);
  size_t n = type ? safetensors_data_size(tensor) / (tensor->dtype.bits / 8) : 0;
  double largest = 0;
  for (size_t i = 0; i < n; i++) {
    double size = fabs(type->get(tensor->data, (int64_t)i));
    if (size > largest && isfinite(size))
      largest = size;
  }
  return largest;
}

/* What ranks add up each of them has rounded before, to 16 bits perhaps: half a unit in the last place of numbers as
 * large as the largest result, for each rank. */
static double rounded_before(const run_case *run, const DLTensor *expected) {
  const char *text = fl_op_ranks(run->op);
  bool adds_up = strstr(text, "all_reduce(") || strstr(text, "reduce_scatter(");
  bool is_half = expected->dtype.bits == 16 && expected->dtype.code != kDLInt;
  if (run->ranks < 2 || !adds_up || !is_half)
    return 0;
  return ldexp(largest_element(expected), expected->dtype.code == kDLBfloat ? -9 : -12) * run->ranks;
}

static void compare_tensor(run_case *run, const DLTensor *result, const DLTensor *expected, const char *name) {
  bool bit_exact = safetensors_says(&run->file, "bitexact", "yes") && ran_reference(run) && run->ranks < 2;
  fl_tolerance allowed = cli_tolerance(run->op, expected->dtype);
  if (bit_exact)
    allowed.atol = allowed.rtol = 0;
  allowed.atol += rounded_before(run, expected);
  DLTensor part = shown_part(result, expected);
  comparison found = compare_tensors(&part, expected, allowed.atol, allowed.rtol, bit_exact);
  run_report *report = run->report;
  report->max_abs_err = fmax(report->max_abs_err, found.max_abs_err);
  report->max_rel_err = fmax(report->max_rel_err, found.max_rel_err);
  report->share = fmax(report->share, found.max_share);
  /* Of several results: the tolerance of the first, which is the op's own element type. */
  if (!report->compared) {
    report->atol = allowed.atol;
    report->rtol = allowed.rtol;
  }
  report->compared = report->expected = true;
  if (!found.pass)
    fail(run, RUN_FAILED, "'%s': %s", name, found.problem);
}

/* A result that is no tensor, as text; false when it cannot be. */
static bool value_text(const fl_value *value, char *text, size_t size) {
  if (value->type == FL_STRING)
    snprintf(text, size, "%s", value->v.s);
  else if (value->type == FL_INT)
    snprintf(text, size, "%lld", (long long)value->v.i);
  else if (value->type == FL_FLOAT)
    snprintf(text, size, "%.17g", value->v.f);
  else if (value->type == FL_BOOL)
    snprintf(text, size, "%s", value->v.b ? "true" : "false");
  else
    return false;
  return true;
}

/* Results that are no tensors are strings in the metadata, "out.NAME", and are compared as text. */
static bool compare_text(run_case *run, const char *key, const fl_value *value) {
  const char *expected = safetensors_metadata(&run->file, key);
  char text[1024] = "none";
  if (value_text(value, text, sizeof text) && json_object_set_new(run->results.metadata, key, json_string(text)))
    return fail(run, RUN_ERROR, "'%s': \"%s\" is not UTF-8", key, text);
  if (!expected)
    return true;
  run->report->expected = true;
  return !strcmp(text, expected) || fail(run, RUN_FAILED, "'%s': \"%s\", expected \"%s\"", key, text, expected);
}

static bool compare_results(run_case *run) {
  for (size_t i = 0; i < run->results.n; i++) {
    const safetensors_entry *result = &run->results.entries[i];
    const DLTensor *expected = safetensors_find(&run->file, result->name);
    if (expected)
      compare_tensor(run, &result->tensor, expected, result->name);
  }
  for (size_t i = 0; i < run->file.n; i++) {
    const char *name = run->file.entries[i].name;
    bool expected = has_prefix(name, result_prefix) || has_prefix(name, after_prefix);
    if (expected && !safetensors_find(&run->results, name))
      fail(run, RUN_FAILED, "'%s': expected, but the call gives none", name);
  }
  for (uint32_t i = 0; i < run->n_results; i++) {
    const fl_argument *result = fl_op_argument(run->op, run->n_arguments + i);
    char *key = NULL;
    if (result->type == FL_TENSOR)
      continue;
    if (asprintf(&key, "%s%s", result_prefix, result->name) < 0)
      return no_memory(run);
    compare_text(run, key, &run->values[run->n_arguments + i]);
    free(key);
  }
  return !run->report->problem;
}

/* -------------------------------------------------------------------------------------------------------- the calls */

/* In which of them it was; the problem is there. */
static bool failed_in(run_case *run, int call) {
  char *problem = NULL;
  if (asprintf(&problem, "in call %d of %d: %s", call, run->needed, run->report->problem) < 0)
    return false;
  free(run->report->problem);
  run->report->problem = problem;
  return false;
}

/* What it says of how often it takes. */
static bool read_calls(run_case *run) {
  const char *text = safetensors_metadata(&run->file, "calls");
  char *end = NULL;
  long calls = text ? strtol(text, &end, 10) : 0;
  run->needed = (int)calls;
  return !text || (!*end && calls > 0 && calls <= CALLS_MOST) ||
         fail(run, RUN_ERROR, "metadata 'calls': '%.80s' is not a number from 1 to %d", text, CALLS_MOST);
}

static bool is_right(run_case *run) {
  bool fetched = fetch_results(run);
  return report_who_ran(run) && fetched && compare_results(run);
}

/* One call to warm up (plugins, caches), then the fastest of `repeat`, the last of which is compared; each of them
 * where it takes many to fail. */
static bool call_op(run_case *run, int repeat) {
  double time_us = 0, best = DBL_MAX;
  int n = repeat + 1 > run->needed ? repeat + 1 : run->needed;
  run->ranks = is_placed(run) ? 1 : run_ranks_of(run->op, run->values, run->ranks);
  if (!remember_calls(run))
    return false;
  for (int i = 1; i <= n; i++) {
    if (!call_once(run, &time_us))
      return run->needed ? failed_in(run, i) : false;
    if (i > 1 && time_us < best)
      best = time_us;
    if (run->needed && !is_right(run))
      return failed_in(run, i);
  }
  run->report->time_us = best;
  return run->needed || is_right(run);
}

/* Is this the copy of an argument that the call gives as a result, so that it is no state of its own? */
static bool is_aliased(const run_case *run, const char *name) {
  for (uint32_t i = run->n_arguments; i < run->n_arguments + run->n_results; i++) {
    int32_t alias = fl_op_argument(run->op, i)->alias;
    if (alias >= 0 && run->values[i].type == FL_TENSOR && has_prefix(name, after_prefix) &&
        !strcmp(fl_op_argument(run->op, (uint32_t)alias)->name, name + strlen(after_prefix)))
      return true;
  }
  return false;
}

static bool set_metadata(run_case *run) {
  json_t *metadata = run->results.metadata, *attributes = json_object_get(run->file.metadata, "attrs");
  char *source = NULL;
  if (asprintf(&source, "flhost %s %s", fl_version(), run->report->impl_id) < 0)
    return no_memory(run);
  int failed = json_object_set_new(metadata, "op", json_string(run->report->op)) ||
               json_object_set_new(metadata, "source", json_string(source)) ||
               (attributes && json_object_set(metadata, "attrs", attributes));
  free(source);
  return !failed || no_memory(run);
}

/* Failing results are written too: one looks at them to find out why. */
static void write_results(run_case *run, const char *path) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors written = {.metadata = run->results.metadata};
  written.entries = calloc(run->results.n + 1, sizeof *written.entries);
  if (!written.entries) {
    no_memory(run);
    return;
  }
  for (size_t i = 0; i < run->results.n; i++)
    if (!is_aliased(run, run->results.entries[i].name))
      written.entries[written.n++] = run->results.entries[i]; /* shown, not owned */
  if (set_metadata(run) && !safetensors_write(path, &written, error))
    fail(run, RUN_ERROR, "%s: %s", path, error);
  else if (!run->report->expected && !run->report->problem)
    run->report->status = RUN_WRITTEN;
  free(written.entries);
}

/* --------------------------------------------------------------------------------------------------------- the run */

static void run_free(run_case *run) {
  for (uint32_t i = 0; run->lists && i < run->n_arguments; i++)
    free(run->lists[i]);
  for (uint32_t i = 0; run->on_device && i < run->n_arguments + run->n_results; i++)
    device_tensor_free(&run->on_device[i]);
  if (run->stream)
    fl_stream_destroy(run->host, run->device, run->stream);
  for (uint32_t i = 0; i < run->placed.n; i++)
    free((char *)run->placed.tensors[i].name);
  placement_free(&run->placed);
  free(run->lists);
  free(run->written);
  free(run->initial);
  free(run->values);
  free(run->passed);
  free(run->on_device);
  free(run->calls);
  fl_explanation_free(run->explanation);
  json_decref(run->attributes);
  safetensors_free(&run->results);
  safetensors_free(&run->file);
}

run_report run_file(fl_host *host, DLDevice device, const char *path, const char *out_path, int repeat, int32_t ranks) {
  char error[SAFETENSORS_ERROR_MAX];
  run_report report = {.path = path, .status = RUN_OK, .time_us = -1};
  run_case run = {.host = host, .device = device, .ranks = ranks, .report = &report};
  run.results.metadata = json_object();
  if (!run.results.metadata)
    no_memory(&run);
  else if (!safetensors_read(path, &run.file, error))
    fail(&run, RUN_ERROR, "%s", error);
  else if (open_op(&run) && read_attributes(&run) && check_names(&run) && set_arguments(&run) && make_results(&run) &&
           open_stream(&run) && place_tensors(&run) && read_calls(&run)) {
    call_op(&run, repeat);
    if (out_path && (report.status == RUN_OK || report.status == RUN_FAILED))
      write_results(&run, out_path);
  }
  run_free(&run);
  return report;
}

void run_report_free(run_report *report) {
  free(report->op);
  free(report->impl_id);
  free(report->why);
  free(report->source);
  free(report->problem);
  *report = (run_report){0};
}
