/* One element at a time, as float: the reference kernels read, round and write through these and nothing else. */
#ifndef FLHOST_CPU_SUPPORT_ELEMENT_H
#define FLHOST_CPU_SUPPORT_ELEMENT_H

#include "plugins/cpu/cpu.h"

#include <flhost/dtype.h>

static inline float load(cpu_dtype dtype, const void *row, int64_t i) {
  if (dtype == CPU_FLOAT32)
    return ((const float *)row)[i];
  uint16_t bits = ((const uint16_t *)row)[i];
  return dtype == CPU_FLOAT16 ? fl_f16_to_float(bits) : fl_bf16_to_float(bits);
}

static inline void store(cpu_dtype dtype, void *row, int64_t i, float value) {
  if (dtype == CPU_FLOAT32)
    ((float *)row)[i] = value;
  else
    ((uint16_t *)row)[i] = dtype == CPU_FLOAT16 ? fl_float_to_f16(value) : fl_float_to_bf16(value);
}

/* What a value becomes when PyTorch writes it into a tensor of that type and reads it again. */
static inline float round_to(cpu_dtype dtype, float value) {
  if (dtype == CPU_FLOAT32)
    return value;
  return dtype == CPU_FLOAT16 ? fl_f16_to_float(fl_float_to_f16(value)) : fl_bf16_to_float(fl_float_to_bf16(value));
}

#endif
