/*
 * Calls that `flhost bench` times: arguments as the op's entry wants them, in compact tensors. Where these lie is the
 * business of place_tensor() alone.
 */
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/fill.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Elements that are generated; a larger tensor repeats them. */
enum { GENERATED = 1 << 20 };

/* As far as 64 bits hold it. */
static int64_t count_elements(const fl_tensor_spec *spec) {
  int64_t n = 1;
  for (int d = 0; d < spec->ndim; d++)
    if (__builtin_mul_overflow(n, spec->shape[d], &n))
      return INT64_MAX / 64;
  return n;
}

static size_t bytes_of(const fl_tensor_spec *spec) {
  return (size_t)count_elements(spec) * (spec->dtype.bits / 8u);
}

/* What is said of a value's tensor; NULL where there is none. */
static fl_tensor_spec *spec_of(const timed_call *call, uint32_t index) {
  fl_tensor_spec *spec =
      index < call->n_arguments ? &call->inputs[index].spec : &call->results[index - call->n_arguments];
  return fl_op_argument(call->op, index)->type == FL_TENSOR && spec->present ? spec : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- memory */

/* Makes memory for a tensor with these bytes, or zeros (NULL), in it. */
static fl_status place_tensor(timed_call *call, uint32_t index, size_t bytes, const void *data) {
  device_memory *memory = &call->memory[index];
  void *zeros = data ? NULL : calloc(1, bytes + 1);
  if (!data && !zeros)
    return FL_ENOMEM;
  fl_status status = device_memory_create(memory, call->host, call->device, bytes);
  if (!status && bytes)
    status = device_memory_put(memory, data ? data : zeros);
  call->tensors[index].data = memory->memory;
  free(zeros);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ data */

/* Repeats the first `filled` bytes until there are `bytes`. */
static void repeat(char *data, size_t bytes, size_t filled) {
  while (filled < bytes) {
    size_t next = bytes - filled < filled ? bytes - filled : filled;
    memcpy(data + filled, data, next);
    filled += next;
  }
}

/* The elements of an argument. Indices and the like are all generated: their rows belong together. */
static fl_status generate(const fl_input *input, uint64_t seed, void *data) {
  fl_input part = *input;
  bool repeats = (input->spec.dtype.code == kDLFloat || input->spec.dtype.code == kDLBfloat) &&
                 count_elements(&input->spec) > GENERATED;
  if (repeats) {
    part.spec.ndim = 1;
    part.spec.shape[0] = GENERATED;
  }
  if (!fill_tensor(&part, seed, false, data))
    return FL_EINVAL;
  if (repeats)
    repeat(data, bytes_of(&input->spec), bytes_of(&part.spec));
  return FL_OK;
}

static fl_status fill_argument(timed_call *call, uint32_t index) {
  const fl_input *input = &call->inputs[index];
  size_t bytes = bytes_of(&input->spec);
  void *data = malloc(bytes + 1);
  fl_status status = data ? generate(input, index, data) : FL_ENOMEM;
  if (!status)
    status = place_tensor(call, index, bytes, data);
  free(data);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- calls */

static bool allocate(timed_call *call) {
  uint32_t n = call->n_values + 1;
  call->inputs = calloc(n, sizeof *call->inputs);
  call->results = calloc(n, sizeof *call->results);
  call->tensors = calloc(n, sizeof *call->tensors);
  call->values = calloc(n, sizeof *call->values);
  call->memory = calloc(n, sizeof *call->memory);
  return call->inputs && call->results && call->tensors && call->values && call->memory;
}

/* Makes the values of a range from what is said of them. */
static void set_values(timed_call *call, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i++) {
    fl_tensor_spec *spec = spec_of(call, i);
    call->values[i] = i < call->n_arguments ? call->inputs[i].value : fl_none();
    if (!spec)
      continue;
    call->tensors[i] =
        (DLTensor){.device = call->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
    call->values[i] = fl_tensor(&call->tensors[i]);
  }
}

fl_status timed_call_plan(timed_call *call, fl_host *host, DLDevice device, fl_op *op, uint32_t dtype,
                          const char *sizes, uint32_t number) {
  *call = (timed_call){.host = host, .device = device, .op = op, .number = number, .cost = {.size = sizeof call->cost}};
  call->n_arguments = fl_op_argument_count(op);
  call->n_values = call->n_arguments + fl_op_result_count(op);
  fl_status status = allocate(call) ? FL_OK : FL_ENOMEM;
  if (!status)
    status = fl_generate_bench_inputs(op, dtype, sizes, number, call->inputs, call->n_arguments, sizeof(fl_input),
                                      &call->n_calls);
  if (!status) {
    set_values(call, 0, call->n_arguments);
    fl_call planned = {.size = sizeof planned, .count = call->n_arguments, .values = call->values};
    status = fl_infer(op, &planned, call->results, call->n_values - call->n_arguments, sizeof(fl_tensor_spec));
    if (!status)
      status = fl_op_cost(op, &planned, &call->cost);
  }
  if (status)
    timed_call_free(call);
  return status;
}

double timed_call_bytes(const timed_call *call) {
  double bytes = 0;
  for (uint32_t i = 0; i < call->n_values; i++)
    bytes += spec_of(call, i) ? (double)bytes_of(spec_of(call, i)) : 0;
  return bytes;
}

/* Has the machine, or the device, so much memory at all, memcpy's included? To ask for more may end other processes. */
static bool has_room(const timed_call *call) {
  double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  fl_device_properties properties = {.size = sizeof properties};
  if (call->device.device_type != kDLCPU && !fl_device_get_properties(call->host, call->device, &properties))
    memory = fmin(memory, (double)(properties.memory_free ? properties.memory_free : properties.memory_total));
  return timed_call_bytes(call) + call->cost.bytes < memory;
}

fl_status timed_call_fill(timed_call *call) {
  fl_status status = has_room(call) ? FL_OK : FL_ENOMEM;
  set_values(call, call->n_arguments, call->n_values);
  for (uint32_t i = 0; i < call->n_values && !status; i++)
    if (spec_of(call, i))
      status = i < call->n_arguments ? fill_argument(call, i) : place_tensor(call, i, bytes_of(spec_of(call, i)), NULL);
  return status;
}

void timed_call_free(timed_call *call) {
  for (uint32_t i = 0; call->memory && i < call->n_values; i++)
    device_memory_free(&call->memory[i]);
  free(call->memory);
  free(call->inputs);
  free(call->results);
  free(call->tensors);
  free(call->values);
  memset(call, 0, sizeof *call);
}

/* ----------------------------------------------------------------------------------------------------------- words */

const char *timed_call_dtype(const timed_call *call, uint32_t asked) {
  for (uint32_t i = 0; !asked && i < call->n_arguments; i++)
    if (spec_of(call, i))
      return cli_dtype_name(spec_of(call, i)->dtype);
  return asked ? cli_dtype_bit_name(asked) : "";
}

char *timed_call_shapes(const timed_call *call) {
  char *words = NULL;
  size_t size;
  FILE *text = open_memstream(&words, &size);
  if (!text)
    return NULL;
  const char *separator = "";
  for (uint32_t i = 0; i < call->n_arguments; i++) {
    const fl_tensor_spec *spec = spec_of(call, i);
    if (!spec)
      continue;
    fprintf(text, "%s%s[", separator, fl_op_argument(call->op, i)->name);
    for (int d = 0; d < spec->ndim; d++)
      fprintf(text, "%s%" PRId64, d ? ", " : "", spec->shape[d]);
    fputs("]", text);
    separator = " ";
  }
  if (fclose(text)) {
    free(words);
    return NULL;
  }
  return words;
}
