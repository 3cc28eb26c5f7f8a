/* Elements of the library's types: see world.h. */
#include "tests/drivers/nccl/world.h"

#include <flhost/dtype.h>
#include <string.h>

size_t type_size(ncclDataType_t type) {
  static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

static float load(ncclDataType_t type, const void *buffer, size_t i) {
  if (type == ncclFloat32)
    return ((const float *)buffer)[i];
  uint16_t bits = ((const uint16_t *)buffer)[i];
  return type == ncclFloat16 ? fl_f16_to_float(bits) : fl_bf16_to_float(bits);
}

static void store(ncclDataType_t type, void *buffer, size_t i, float value) {
  if (type == ncclFloat32)
    ((float *)buffer)[i] = value;
  else
    ((uint16_t *)buffer)[i] = type == ncclFloat16 ? fl_float_to_f16(value) : fl_float_to_bf16(value);
}

#define COMBINED(op, a, b)                                                                                             \
  ((op) == ncclProd  ? (a) * (b)                                                                                       \
   : (op) == ncclMax ? ((a) > (b) ? (a) : (b))                                                                         \
   : (op) == ncclMin ? ((a) < (b) ? (a) : (b))                                                                         \
                     : (a) + (b))

#define REDUCE(T)                                                                                                      \
  for (size_t i = 0; i < count; i++)                                                                                   \
  ((T *)all)[i] = (T)COMBINED(op, ((const T *)all)[i], ((const T *)more)[i])
#define DIVIDE(T)                                                                                                      \
  for (size_t i = 0; i < count; i++)                                                                                   \
  ((T *)all)[i] = (T)(((const T *)all)[i] / ranks)

void reduce_into(ncclDataType_t type, ncclRedOp_t op, void *all, const void *more, size_t count) {
  switch (type) {
  case ncclInt8:
    REDUCE(int8_t);
    break;
  case ncclUint8:
    REDUCE(uint8_t);
    break;
  case ncclInt32:
    REDUCE(int32_t);
    break;
  case ncclInt64:
    REDUCE(int64_t);
    break;
  case ncclFloat64:
    REDUCE(double);
    break;
  default:
    for (size_t i = 0; i < count; i++)
      store(type, all, i, COMBINED(op, load(type, all, i), load(type, more, i)));
  }
}

void divide_by(ncclDataType_t type, void *all, size_t count, int ranks) {
  switch (type) {
  case ncclInt8:
    DIVIDE(int8_t);
    break;
  case ncclUint8:
    DIVIDE(uint8_t);
    break;
  case ncclInt32:
    DIVIDE(int32_t);
    break;
  case ncclInt64:
    DIVIDE(int64_t);
    break;
  case ncclFloat64:
    DIVIDE(double);
    break;
  default:
    for (size_t i = 0; i < count; i++)
      store(type, all, i, load(type, all, i) / (float)ranks);
  }
}
