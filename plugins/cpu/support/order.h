/*
 * The order of a row's elements, as torch.topk has it but for equal ones: by value descending, NaN before all, equal
 * values (0 and -0 are) by index ascending. As integers: what comes earlier has a larger key.
 */
#ifndef FLHOST_CPU_SUPPORT_ORDER_H
#define FLHOST_CPU_SUPPORT_ORDER_H

#include <flhost/dtype.h>
#include <stdint.h>

static const uint32_t cpu_order_nan = UINT32_MAX;

/* Of the value alone. Without a condition: compilers make vector instructions of it. */
static inline uint32_t cpu_order_bits(float value) {
  const uint32_t bits = fl_float_bits(value + 0.0f); /* one zero */
  const uint32_t is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return (bits ^ ((0u - (bits >> 31)) | 0x80000000u)) | (0u - is_nan);
}

/* The value again, with one zero and one NaN. */
static inline float cpu_order_value(uint32_t bits) {
  return fl_float_from_bits(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits);
}

/* All of a row are different; none is 0 or UINT64_MAX. 0 <= index < 2^32 - 1. */
static inline uint64_t cpu_order_key(float value, int64_t index) {
  return (uint64_t)cpu_order_bits(value) << 32 | (UINT32_MAX - 1 - (uint32_t)index);
}

static inline int64_t cpu_order_index(uint64_t key) {
  return UINT32_MAX - 1 - (uint32_t)key;
}

static inline float cpu_order_value_of(uint64_t key) {
  return cpu_order_value((uint32_t)(key >> 32));
}

#endif
