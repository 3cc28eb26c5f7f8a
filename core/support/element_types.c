/*
 * Element types: the one table of them. A new one is its bit in plugin.h, its conversions in dtype.h if C has none, and
 * a row here, behind the last that has a bit.
 */
#include "core/support/element_types.h"

#include <flhost/dtype.h>

/* Values are converted as C does where it has the type, else by dtype.h. */
#define CONVERSIONS(name, type, widen, narrow)                                                                         \
  static double get_##name(const void *data, int64_t i) {                                                              \
    return (double)widen(((const type *)data)[i]);                                                                     \
  }                                                                                                                    \
  static void put_##name(void *data, int64_t i, double value) {                                                        \
    ((type *)data)[i] = narrow;                                                                                        \
  }
CONVERSIONS(float32, float, , (float)value)
CONVERSIONS(float16, uint16_t, fl_f16_to_float, fl_float_to_f16((float)value))
CONVERSIONS(bfloat16, uint16_t, fl_bf16_to_float, fl_float_to_bf16((float)value))
CONVERSIONS(float8_e4m3fn, uint8_t, fl_e4m3fn_to_float, fl_float_to_e4m3fn((float)value))
CONVERSIONS(float64, double, , value)
CONVERSIONS(int32, int32_t, , (int32_t)value)
CONVERSIONS(int64, int64_t, , (int64_t)value)
CONVERSIONS(int8, int8_t, , (int8_t)(int64_t)value)
CONVERSIONS(uint8, uint8_t, , (uint8_t)(int64_t)value)
CONVERSIONS(bool, uint8_t, !!, value != 0)

static double get_float8_e5m2(const void *data, int64_t i) {
  return fl_e5m2_to_float(((const uint8_t *)data)[i]);
}

#define SIZE       sizeof(fl_element_type)
#define NAMES(...) ((const char *const[]){__VA_ARGS__ NULL})

const fl_element_type fl_element_types[] = {
    {SIZE,
     FL_FLOAT32,
     "float32",
     NAMES("float", "fp32", ),
     "F32",
     {kDLFloat, 32, 1},
     1e-5,
     1.3e-6,
     0x1.fffffep127,
     0x1.8p-130,
     get_float32,
     put_float32},
    {SIZE,
     FL_FLOAT16,
     "float16",
     NAMES("half", "fp16", ),
     "F16",
     {kDLFloat, 16, 1},
     1e-3,
     1e-3,
     65504,
     0x1.8p-18,
     get_float16,
     put_float16},
    {SIZE,
     FL_BFLOAT16,
     "bfloat16",
     NAMES("bf16", ),
     "BF16",
     {kDLBfloat, 16, 1},
     1e-3,
     1.6e-2,
     0x1.fep127,
     0x1.8p-130,
     get_bfloat16,
     put_bfloat16},
    {SIZE,
     FL_FLOAT8_E4M3FN,
     "float8_e4m3fn",
     NAMES(),
     "F8_E4M3",
     {FL_DTYPE_FLOAT8_E4M3FN, 8, 1},
     0.1,
     0.1,
     448,
     0x1.8p-8,
     get_float8_e4m3fn,
     put_float8_e4m3fn},
    {SIZE,
     FL_FLOAT64,
     "float64",
     NAMES("double", "fp64", ),
     "F64",
     {kDLFloat, 64, 1},
     1e-8,
     1e-8,
     0x1.fffffffffffffp1023,
     0x1.8p-1030,
     get_float64,
     put_float64},
    {SIZE, FL_INT32, "int32", NAMES(), "I32", {kDLInt, 32, 1}, 0, 0, 0, 0, get_int32, put_int32},
    {SIZE, FL_INT64, "int64", NAMES(), "I64", {kDLInt, 64, 1}, 0, 0, 0, 0, get_int64, put_int64},
    {SIZE, FL_UINT8, "uint8", NAMES(), "U8", {kDLUInt, 8, 1}, 0, 0, 0, 0, get_uint8, put_uint8},
    {SIZE, FL_INT8, "int8", NAMES(), "I8", {kDLInt, 8, 1}, 1, 0, 0, 0, get_int8, put_int8},
    {SIZE, FL_BOOLEAN, "bool", NAMES(), "BOOL", {FL_DTYPE_BOOL, 8, 1}, 0, 0, 0, 0, get_bool, put_bool},
    {SIZE,
     0,
     "float8_e5m2",
     NAMES(),
     "F8_E5M2",
     {FL_DTYPE_FLOAT8_E5M2, 8, 1},
     0,
     0,
     57344,
     0x1.8p-16,
     get_float8_e5m2,
     NULL},
};
enum { N_ROWS = sizeof fl_element_types / sizeof *fl_element_types };

const fl_element_type *fl_element_type_at(uint32_t index) {
  return index < N_ROWS ? &fl_element_types[index] : NULL;
}

const fl_element_type *fl_element_type_of(DLDataType dtype) {
  for (uint32_t i = 0; i < N_ROWS; i++)
    if (!memcmp(&fl_element_types[i].dtype, &dtype, sizeof dtype))
      return &fl_element_types[i];
  return NULL;
}

const fl_element_type *fl_element_type_of_bit(uint32_t bit) {
  for (uint32_t i = 0; i < FL_DTYPE_COUNT; i++)
    if (fl_element_types[i].bit == bit)
      return &fl_element_types[i];
  return NULL;
}

static bool is_named(const fl_element_type *row, const char *name) {
  bool found = !strcmp(row->name, name);
  for (const char *const *alias = row->aliases; *alias && !found; alias++)
    found = !strcmp(*alias, name);
  return found;
}

const fl_element_type *fl_element_type_named(const char *name) {
  for (uint32_t i = 0; i < N_ROWS; i++)
    if (is_named(&fl_element_types[i], name))
      return &fl_element_types[i];
  return NULL;
}

uint32_t fl_dtype_bit(DLDataType dtype) {
  const fl_element_type *row = fl_element_type_of(dtype);
  return row ? row->bit : 0;
}

const char *fl_dtype_name(DLDataType dtype) {
  const fl_element_type *row = fl_element_type_of(dtype);
  return row ? row->name : "?";
}
