/* What both kernels of quant_fp8 and of scaled_int8_quant need: the arguments as numbers, and where the scale of an
 * element lies. */
#ifndef FLHOST_CPU_QUANTISATION_H
#define FLHOST_CPU_QUANTISATION_H

#include "plugins/cpu/support/rows.h"

#include <flhost/dtype.h>
#include <math.h>

/* A type of codes. The largest magnitude is vLLM's: of e4m3fnuz 224, though the type reaches 240. */
typedef struct cpu_fp8 {
  uint8_t code; /* of the DLDataType */
  float largest, least_scale;
  uint8_t (*narrow)(float value); /* clamps; NaN stays NaN */
} cpu_fp8;

static inline uint8_t cpu_float_to_e4m3fnuz(float value) {
  return fl_float_to_e4m3fnuz(value < -224 ? -224 : value > 224 ? 224 : value);
}

typedef enum cpu_quant_mode { CPU_QUANT_STATIC, CPU_QUANT_TENSOR, CPU_QUANT_TOKEN, CPU_QUANT_GROUP } cpu_quant_mode;

typedef struct cpu_quant {
  DLTensor *x, *q, *scale_out;
  const cpu_fp8 *type;
  cpu_dtype dtype;
  cpu_quant_mode mode; /* static, or what a computed scale is for */
  int64_t hidden;      /* elements in a row of x */
  int64_t columns;     /* elements of a row that share a scale */
  bool power_of_two;
  float upper_bound; /* of the largest magnitude */
  /* Given scales: that of row m and column n is scales[m / rows * row_step + n / columns * column_step]. */
  const float *scales;
  int64_t rows, row_step, column_step;
  float tensor_scale; /* where it is computed */
} cpu_quant;

typedef struct cpu_quant_parts {
  float (*scale_of_tensor)(const cpu_quant *quant);
  cpu_row_fn quantise_row; /* of x and q, and of scale_out where a row's scales are computed; takes the cpu_quant */
} cpu_quant_parts;

/* The op; `self` of its rows is a cpu_quant_parts. */
fl_status cpu_quant_fp8(void *self, fl_call *call);

static inline float cpu_quant_given_scale(const cpu_quant *quant, int64_t row, int64_t column) {
  return quant->scales[row / quant->rows * quant->row_step + column / quant->columns * quant->column_step];
}

typedef struct cpu_int8_quant {
  cpu_dtype dtype;
  int64_t hidden, n_rows;
  bool is_static; /* scale and azp are given */
  float scale;
  int32_t azp;
  float *scale_out; /* of row 0, where they are computed; no azp_out: symmetric */
  int32_t *azp_out;
  int64_t scale_step, azp_step;
} cpu_int8_quant;

/* The op; `self` of its rows is the address of a cpu_row_fn of x and q, which takes the cpu_int8_quant. */
fl_status cpu_scaled_int8_quant(void *self, fl_call *call);

#endif
