/*
 * Weights rounded to 8 or 4 bits when a model is opened: see llm.h. Each row, or each group of its columns, has a
 * scale; the operators take the weight as it is then, and inputs as they are.
 */
#include "llm.h"

#include <math.h>
#include <string.h>

struct format {
  const char *name, *type; /* of elements */
  int64_t group, multiple; /* columns that share a scale, 0: all; what sizes have to be multiples of */
  double least, largest;   /* codes, of which the largest stands for the largest of a group */
};

enum { FP8, INT8, INT4, N_FORMATS };

static const struct format formats[N_FORMATS] = {[FP8] = {"fp8", "float8_e4m3fn", 0, 1, -448, 448},
                                                 [INT8] = {"int8", "int8", 0, 1, -127, 127},
                                                 [INT4] = {"int4", "int32", 128, 8, -8, 7}};

const struct format *format_named(const char *name) {
  for (int i = 0; i < N_FORMATS; i++)
    if (!strcmp(name, formats[i].name))
      return &formats[i];
  fail("--quantise: expected fp8, int8 or int4, not '%s'", name);
}

arena *place_to_round(model *m) {
  return m->format ? &m->step : &m->kept;
}

/* Puts the code next to a value in its row and column, and gives what the code stands for. Of int4, as GPTQ has it,
 * codes are [k / 8, n], eight columns of a row in a word. */
static double put_code(DLTensor *codes, int64_t n, int64_t k, int64_t row, int64_t column, double value) {
  const fl_element_type *type = fl_element_type_of(codes->dtype);
  value = codes->dtype.code == kDLInt ? nearbyint(value) : value;
  if (codes->dtype.bits == 32) {
    ((uint32_t *)codes->data)[column / 8 * n + row] |= (uint32_t)((int)value + 8) << 4 * (column % 8);
    return value;
  }
  type->put(codes->data, row * k + column, value);
  return type->get(codes->data, row * k + column);
}

projection projected(model *m, DLTensor *weight, DLTensor *bias) {
  const struct format *f = m->format;
  int dims = weight->ndim;
  int64_t n = elements(weight) / weight->shape[dims - 1], k = weight->shape[dims - 1];
  if (!f)
    return (projection){weight, NULL, bias, n};
  bool words = f == &formats[INT4], taken = n % f->multiple == 0 && k % f->multiple == 0 && (dims == 2 || !words);
  /* What stays in the model's element type, and is not to lie in m->step. */
  DLTensor *kept = !taken || m->dequantised ? tensor(&m->kept, m->dtype, dims, weight->shape) : NULL;
  if (!taken) {
    put(kept, 0, weight);
    return (projection){kept, NULL, bias, n};
  }
  const fl_element_type *type = fl_element_type_of(m->dtype), *code = fl_element_type_named(f->type);
  int64_t group = f->group && k % f->group == 0 ? f->group : k;
  arena *a = kept ? &m->step : &m->kept;
  DLTensor *codes = words ? tensor(a, code->dtype, SHAPE(k / 8, n)) : tensor(a, code->dtype, dims, weight->shape);
  DLTensor *scales = words ? tensor(a, m->dtype, SHAPE(k / group, n)) : tensor(a, float32, dims - 1, weight->shape);
  const fl_element_type *scale_type = fl_element_type_of(scales->dtype);
  memset(codes->data, 0, bytes(codes));
  for (int64_t i = 0; i < n * (k / group); i++) {
    int64_t row = i % n, begin = i / n * group;
    double largest = 0;
    for (int64_t c = begin; c < begin + group; c++)
      largest = fmax(largest, fabs(type->get(data(weight), row * k + c)));
    scale_type->put(scales->data, i, largest > 0 ? largest / f->largest : 1);
    double scale = scale_type->get(scales->data, i);
    for (int64_t c = begin; c < begin + group; c++) {
      double value = fmin(fmax(type->get(data(weight), row * k + c) / scale, f->least), f->largest);
      value = put_code(codes, n, k, row, c, value) * scale;
      if (kept)
        type->put(kept->data, row * k + c, value);
    }
  }
  arena_reset(&m->step);
  return kept ? (projection){kept, NULL, bias, n} : (projection){codes, scales, bias, n};
}
