/*
 * What the files of the CPU backend share: how they name their kernels, and how those read a call.
 *
 * The host has checked a call against the op's schema before a kernel sees it (number, types and shapes of the values).
 * Kernels still answer for what the schema leaves open: element types of secondary tensors, and indices in data.
 */
#ifndef FLHOST_CPU_H
#define FLHOST_CPU_H

#include "plugins/op_lists.h"

#include <flhost/plugin.h>

/* Element types that the kernels compute with, as an index into their tables. */
typedef enum cpu_dtype { CPU_FLOAT32, CPU_FLOAT16, CPU_BFLOAT16, CPU_N_DTYPES, CPU_OTHER = CPU_N_DTYPES } cpu_dtype;

static inline cpu_dtype cpu_dtype_of(const DLTensor *tensor) {
  DLDataType type = tensor->dtype;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32)
    return CPU_FLOAT32;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16)
    return CPU_FLOAT16;
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16)
    return CPU_BFLOAT16;
  return CPU_OTHER;
}

static inline int64_t cpu_dtype_size(cpu_dtype dtype) {
  return dtype == CPU_FLOAT32 ? 4 : 2;
}

/* What is said of CPU_OTHER where the argument `name` has it. */
static inline fl_status cpu_wrong_type(fl_call *call, const char *name) {
  return fl_fail(call, FL_ENOTSUP, "element type of '%s': float32, float16 or bfloat16 expected", name);
}

/* The tensor at `index` of a call; NULL if there is none. */
static inline DLTensor *cpu_tensor(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

/* Calls the kernel of an op on values of its own, as a part of a call; what it has to say is that call's message. */
static inline fl_status cpu_call_part(const fl_call *call, fl_kernel_fn kernel, void *self, fl_value *values,
                                      uint32_t n) {
  fl_call part = {.size = sizeof part,
                  .count = n,
                  .values = values,
                  .stream = call->stream,
                  .message = call->message,
                  .message_size = call->message_size};
  return kernel(self, &part);
}

/* A kernel file ends with the rows of its ops, which are all that registers them:
 *
 *     static const fl_impl ops[] = {{.op_name = "relu2", CPU_REFERENCE, .fn = relu2}};
 *     OP_LIST(ops);
 */
#define CPU_REFERENCE .impl_id = "reference.c", .kind = FL_KIND_REFERENCE
#define CPU_FLAGOS    .impl_id = "default.flagos", .kind = FL_KIND_DEFAULT

#endif
