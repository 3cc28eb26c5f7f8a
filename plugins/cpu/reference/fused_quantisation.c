/*
 * Norms and gated activations that are quantised at once, as vLLM's native definitions of their parts have them: norm
 * and gate rounded step by step, but for the gate in blocks, which stays float32. Static codes are those of quant_fp8.
 * NaN spreads to a computed scale, and from there to float8 codes; in int8 it is 0. Needs libm only.
 */
#include "plugins/cpu/fused_quantisation.h"
#include "plugins/cpu/reference/codes.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"

/* Element `i` of what is quantised. */
typedef float (*element_fn)(const cpu_fused_quant *quant, const cpu_rows *rows, float factor, int64_t i);

/* The code of a value that is scaled. */
static uint8_t code_of(const cpu_fused_quant *quant, float value) {
  return quant->is_int8 ? (uint8_t)to_int8(value) : fl_float_to_e4m3fn(value);
}

/* The scale that a largest magnitude, divided by that of the codes, asks for; NaN stays. */
static float at_least(const cpu_fused_quant *quant, float scale) {
  float least = quant->is_int8 ? 0x1p-23f : (float)(1.0 / (448.0 * 512.0));
  return scale < least ? least : scale;
}

static float bounded(float value, float upper_bound) {
  return value > upper_bound ? upper_bound : value;
}

static float largest_code(const cpu_fused_quant *quant) {
  return quant->is_int8 ? 127.0f : 448.0f;
}

static float absolute_maximum(const cpu_fused_quant *quant, const cpu_rows *rows, element_fn element, float factor,
                              int64_t begin, int64_t end) {
  float largest = 0;
  for (int64_t i = begin; i < end; i++)
    largest = larger(largest, fabsf(element(quant, rows, factor, i)));
  return largest;
}

/* ------------------------------------------------------------------------------------------------------------ norm */

/* x, plus the residual where there is one, not rounded. */
static float input(const cpu_fused_quant *quant, const cpu_rows *rows, int64_t i) {
  float value = load(quant->dtype, rows->at[0], i);
  return rows->at[1] ? value + load(quant->dtype, rows->at[1], i) : value;
}

static float norm_factor(const cpu_fused_quant *quant, const cpu_rows *rows) {
  double sum = 0;
  for (int64_t i = 0; i < quant->size; i++) {
    float value = input(quant, rows, i);
    sum += (double)(value * value);
  }
  return 1.0f / sqrtf((float)sum / (float)quant->size + quant->epsilon);
}

static float normed(const cpu_fused_quant *quant, const cpu_rows *rows, float factor, int64_t i) {
  float value = round_to(quant->dtype, input(quant, rows, i) * factor);
  return round_to(quant->dtype, value * load(quant->dtype, quant->weight, i));
}

/* In place is fine: an element of the residual is read for the last time before it is overwritten. */
static void norm_row(const void *user, const cpu_rows *rows) {
  const cpu_fused_quant *quant = user;
  float factor = norm_factor(quant, rows), scale = quant->scale;
  if (!quant->is_static) {
    float largest = bounded(absolute_maximum(quant, rows, normed, factor, 0, quant->size), quant->upper_bound);
    *cpu_fused_scales(quant, rows) = scale = at_least(quant, largest / largest_code(quant));
  }
  float reciprocal = 1.0f / scale;
  bool multiplied = quant->is_static || quant->is_int8;
  for (int64_t i = 0; i < quant->size; i++) {
    float value = normed(quant, rows, factor, i);
    ((uint8_t *)rows->at[2])[i] = code_of(quant, multiplied ? value * reciprocal : value / scale);
    if (rows->at[3])
      store(quant->dtype, rows->at[3], i, input(quant, rows, i));
  }
}

/* ------------------------------------------------------------------------------------------------------------ gate */

static float gated(const cpu_fused_quant *quant, const cpu_rows *rows, float factor, int64_t i) {
  (void)factor;
  float gate = silu(load(quant->dtype, rows->at[0], i)), up = load(quant->dtype, rows->at[0], quant->size + i);
  return quant->is_static ? round_to(quant->dtype, round_to(quant->dtype, gate) * up) : gate * up;
}

static void gated_row(const void *user, const cpu_rows *rows) {
  const cpu_fused_quant *quant = user;
  uint8_t *q = rows->at[1];
  float reciprocal = 1.0f / quant->scale;
  for (int64_t i = 0; i < quant->size && quant->is_static; i++)
    q[i] = code_of(quant, gated(quant, rows, 0, i) * reciprocal);
  for (int64_t begin = 0; begin < quant->size && !quant->is_static; begin += quant->group) {
    int64_t end = begin + quant->group;
    float wanted = absolute_maximum(quant, rows, gated, 0, begin, end) / largest_code(quant);
    float scale = at_least(quant, bounded(wanted, quant->upper_bound));
    cpu_fused_scales(quant, rows)[begin / quant->group] = scale;
    for (int64_t i = begin; i < end; i++)
      q[i] = code_of(quant, gated(quant, rows, 0, i) / scale);
  }
}

static cpu_fused_quant_parts parts = {norm_row, gated_row};

static const fl_impl ops[] = {
    {.op_name = "rms_norm_static_fp8_quant", CPU_REFERENCE, .fn = cpu_rms_norm_static_fp8_quant, .self = &parts},
    {.op_name = "fused_add_rms_norm_static_fp8_quant",
     CPU_REFERENCE,
     .fn = cpu_fused_add_rms_norm_static_fp8_quant,
     .self = &parts},
    {.op_name = "rms_norm_dynamic_per_token_quant",
     CPU_REFERENCE,
     .fn = cpu_rms_norm_dynamic_per_token_quant,
     .self = &parts},
    {.op_name = "silu_and_mul_quant", CPU_REFERENCE, .fn = cpu_silu_and_mul_quant, .self = &parts},
    {.op_name = "silu_and_mul_per_block_quant", CPU_REFERENCE, .fn = cpu_silu_and_mul_per_block_quant, .self = &parts},
};
OP_LIST(ops);
