/*
 * Weights rounded to 4 bits when a model is opened: see llm.h. Each group of a row's columns has a scale; the operator
 * takes the weight as it is then, and inputs as they are.
 */
#include "llm.h"

#include <math.h>
#include <string.h>

/* Columns that share a scale; what the largest of them becomes; what is added to codes; codes in a word. */
enum { GROUP = 128, LARGEST = 7, ZERO = 8, WORD = 8 };

static bool is_rounded(const model *m, int64_t n, int64_t k) {
  return m->rounding && n % WORD == 0 && k % WORD == 0;
}

arena *place_before_rounding(model *m, int64_t n, int64_t k) {
  return is_rounded(m, n, k) ? &m->step : &m->kept;
}

/* GPTQ's order: int32[k / 8, n], eight columns of a row in a word; scales [groups, n]. */
projection projected(model *m, DLTensor *weight, DLTensor *bias) {
  int64_t n = weight->shape[0], k = weight->shape[1], group = k % GROUP ? k : GROUP;
  if (!is_rounded(m, n, k))
    return (projection){weight, NULL, bias, n};
  const fl_element_type *type = fl_element_type_of(m->dtype);
  bool back = m->rounding == ROUND_AND_BACK; /* the codes are not kept */
  DLTensor *codes = tensor(back ? &m->step : &m->kept, int32, SHAPE(k / WORD, n));
  DLTensor *scales = tensor(back ? &m->step : &m->kept, m->dtype, SHAPE(k / group, n));
  DLTensor *rounded = back ? tensor(&m->kept, m->dtype, SHAPE(n, k)) : NULL;
  memset(codes->data, 0, bytes(codes));
  for (int64_t i = 0; i < n * (k / group); i++) {
    int64_t row = i / (k / group), which = i % (k / group), begin = row * k + which * group;
    double largest = 0;
    for (int64_t at = begin; at < begin + group; at++)
      largest = fmax(largest, fabs(type->get(data(weight), at)));
    type->put(scales->data, which * n + row, largest > 0 ? largest / LARGEST : 1);
    double scale = type->get(scales->data, which * n + row);
    for (int64_t at = begin; at < begin + group; at++) {
      int64_t column = at - row * k;
      double code = fmin(fmax(nearbyint(type->get(data(weight), at) / scale), -ZERO), LARGEST);
      ((uint32_t *)codes->data)[column / WORD * n + row] |= (uint32_t)((int)code + ZERO) << 4 * (column % WORD);
      if (back)
        type->put(rounded->data, at, code * scale);
    }
  }
  checkpoint_release(&m->files, weight);
  arena_reset(&m->step);
  return back ? (projection){rounded, NULL, bias, n} : (projection){codes, scales, bias, n};
}

void linear_into(model *m, DLTensor *x, const projection *p, DLTensor *out) {
  if (p->scales)
    ok(fl_gptq_linear(&m->ops, NULL, x, p->weight, p->scales, NULL, NULL, p->bias, false, out));
  else
    ok(fl_replicated_linear(&m->ops, NULL, x, p->weight, p->bias, false, out));
}
