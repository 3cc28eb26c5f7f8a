/*
 * Calls that `flhost bench` times: arguments as the op's entry wants them, in compact tensors. Where these lie is the
 * business of place_tensor() alone.
 */
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "cli/trials/fill.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Elements that are generated, a larger tensor repeats them; of copies of a call's tensors. */
enum { GENERATED = 1 << 20, COPIES_MOST = 4096 };

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

/* Makes memory for a tensor of each copy, with these bytes in it. */
static fl_status place_tensor(timed_call *call, uint32_t index, size_t bytes, const void *data) {
  fl_status status = FL_OK;
  for (uint32_t copy = 0; copy < call->copies && !status; copy++) {
    size_t at = (size_t)copy * call->n_values + index;
    device_memory *memory = &call->memory[at];
    status = device_memory_create(memory, call->host, call->device, bytes);
    if (!status && bytes)
      status = device_memory_put(memory, data);
    call->tensors[at].data = memory->memory;
  }
  return status;
}

static fl_status place_result(timed_call *call, uint32_t index) {
  size_t bytes = bytes_of(spec_of(call, index));
  void *zeros = calloc(1, bytes + 1);
  fl_status status = zeros ? place_tensor(call, index, bytes, zeros) : FL_ENOMEM;
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

/* Room for the tensors of so many copies, in the place of one, of which there is none yet. */
static bool allocate_copies(timed_call *call, uint32_t copies) {
  size_t n = (size_t)call->n_values * copies + 1;
  call->copies = copies;
  free(call->tensors);
  free(call->values);
  free(call->memory);
  call->tensors = calloc(n, sizeof *call->tensors);
  call->values = calloc(n, sizeof *call->values);
  call->memory = calloc(n, sizeof *call->memory);
  return call->tensors && call->values && call->memory;
}

/* Makes the first `end` values of a copy from what is said of them. */
static void set_values(timed_call *call, uint32_t copy, uint32_t end) {
  fl_value *values = call->values + (size_t)copy * call->n_values;
  DLTensor *tensors = call->tensors + (size_t)copy * call->n_values;
  for (uint32_t i = 0; i < end; i++) {
    fl_tensor_spec *spec = spec_of(call, i);
    values[i] = i < call->n_arguments ? call->inputs[i].value : fl_none();
    if (!spec)
      continue;
    tensors[i] = (DLTensor){.device = call->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = spec->shape};
    values[i] = fl_tensor(&tensors[i]);
  }
}

fl_status timed_call_plan(timed_call *call, fl_host *host, DLDevice device, fl_op *op, uint32_t dtype,
                          const char *sizes, uint32_t number) {
  *call = (timed_call){
      .host = host, .device = device, .op = op, .number = number, .copies = 1, .cost = {.size = sizeof call->cost}};
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

double timed_call_tensor_bytes(const timed_call *call, uint32_t index) {
  return spec_of(call, index) ? (double)bytes_of(spec_of(call, index)) : 0;
}

double timed_call_bytes(const timed_call *call) {
  double bytes = 0;
  for (uint32_t i = 0; i < call->n_values; i++)
    bytes += timed_call_tensor_bytes(call, i);
  return bytes;
}

/* Has the machine, or the device, so much memory at all, memcpy's and a peer's included? To ask for more may end other
 * processes. */
static bool has_room(const timed_call *call, uint32_t copies) {
  double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  fl_device_properties properties = {.size = sizeof properties};
  if (call->device.device_type != kDLCPU && !fl_device_get_properties(call->host, call->device, &properties))
    memory = fmin(memory, (double)(properties.memory_free ? properties.memory_free : properties.memory_total));
  double each = timed_call_bytes(call) + call->cost.bytes;
  return copies > 1 ? copies * 2.0 * each < memory : each < memory;
}

/* As many as have so many bytes together. */
static uint32_t count_copies(const timed_call *call, double bytes) {
  double copies = ceil(bytes / fmax(timed_call_bytes(call), 1));
  return copies > COPIES_MOST ? COPIES_MOST : copies > 1 ? (uint32_t)copies : 1;
}

fl_status timed_call_fill(timed_call *call, double rotated) {
  uint32_t copies = count_copies(call, rotated);
  fl_status status = has_room(call, copies) && allocate_copies(call, copies) ? FL_OK : FL_ENOMEM;
  for (uint32_t copy = 0; copy < call->copies && !status; copy++)
    set_values(call, copy, call->n_values);
  for (uint32_t i = 0; i < call->n_values && !status; i++)
    if (spec_of(call, i))
      status = i < call->n_arguments ? fill_argument(call, i) : place_result(call, i);
  return status;
}

void timed_call_free(timed_call *call) {
  for (size_t i = 0; call->memory && i < (size_t)call->n_values * call->copies; i++)
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
