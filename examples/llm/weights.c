/*
 * Weights by name, and linear layers: see llm.h.
 *
 * Checkpoints of DeepSeek-V3 have matrices as codes of float8, with a scale in name.weight_scale_inv for each block of
 * so many rows and columns. Operators take them as they are; what no operator takes so is made of them by values().
 */
#include "llm.h"

#include <string.h>

DLTensor *stored_weight(const model *m, const char *prefix, const char *name) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s%s", prefix, name);
  return checkpoint_find(&m->files, whole);
}

static DLTensor *required(DLTensor *found, const char *prefix, const char *name) {
  if (!found)
    fail("the checkpoint has no '%s%s'", prefix, name);
  return found;
}

/* Of such codes; NULL: that weight is no code. */
static DLTensor *scales_of(const model *m, const DLTensor *weight, const char *prefix, const char *name) {
  char whole[256];
  const int64_t *size = m->scale_block;
  if (weight->dtype.bits != 8)
    return NULL;
  if (fl_element_type_of(weight->dtype)->bit != FL_FLOAT8_E4M3FN || weight->ndim != 2)
    fail("'%s%s' is a code with a scale elsewhere, which is not known here", prefix, name);
  snprintf(whole, sizeof whole, "%s_scale_inv", name);
  DLTensor *scales = required(stored_weight(m, prefix, whole), prefix, whole);
  int64_t rows = (weight->shape[0] + size[0] - 1) / size[0], columns = (weight->shape[1] + size[1] - 1) / size[1];
  if (memcmp(&scales->dtype, &float32, sizeof float32) != 0 || scales->ndim != 2 || scales->shape[0] != rows ||
      scales->shape[1] != columns)
    fail("'%s%s': expected float32 [%lld, %lld], a scale for each %lld rows and %lld columns of the weight", prefix,
         whole, (long long)rows, (long long)columns, (long long)size[0], (long long)size[1]);
  return scales;
}

/* In the model's element type: as it is, or made in `a`. */
static DLTensor *values(model *m, arena *a, DLTensor *weight, const DLTensor *scales) {
  const fl_element_type *type = fl_element_type_of(m->dtype);
  DLTensor *made = converted(a, weight, m->dtype);
  for (int64_t i = 0, k = weight->shape[1]; scales && i < elements(made); i++) {
    int64_t at = i / k / m->scale_block[0] * scales->shape[1] + i % k / m->scale_block[1];
    type->put(made->data, i, type->get(made->data, i) * (double)((float *)data(scales))[at]);
  }
  return made;
}

DLTensor *weight_in(model *m, arena *a, const char *prefix, const char *name) {
  DLTensor *found = required(stored_weight(m, prefix, name), prefix, name);
  return values(m, a, found, scales_of(m, found, prefix, name));
}

DLTensor *weight(model *m, const char *prefix, const char *name) {
  return weight_in(m, &m->kept, prefix, name);
}

DLTensor *optional_weight(model *m, const char *prefix, const char *name) {
  return stored_weight(m, prefix, name) ? weight(m, prefix, name) : NULL;
}

/* Codes of the file with their scales, or values in `a`. Where several weights are to be one, no block of scales may
 * lie across two. */
static projection codes_or_values(model *m, arena *a, const char *prefix, const char *name, int n_weights) {
  DLTensor *found = required(stored_weight(m, prefix, name), prefix, name);
  DLTensor *scales = scales_of(m, found, prefix, name);
  bool apart = n_weights == 1 || found->shape[0] % m->scale_block[0] == 0;
  if (scales && apart && !m->format && !m->dequantised)
    return (projection){.weight = found, .scales = scales};
  return (projection){.weight = values(m, a, found, scales)};
}

projection find_projection(model *m, const char *prefix, const char *name) {
  char whole[128];
  snprintf(whole, sizeof whole, "%s.bias", name);
  DLTensor *bias = optional_weight(m, prefix, whole);
  snprintf(whole, sizeof whole, "%s.weight", name);
  projection p = codes_or_values(m, place_to_round(m), prefix, whole, 1);
  return p.scales ? (projection){p.weight, p.scales, bias, p.weight->shape[0]} : projected(m, p.weight, bias);
}

/* Puts matrix i behind what `all` has, [experts, rows of all of an expert's, columns]; it must have the others' size.
 */
static bool stack(arena *a, DLTensor **all, const DLTensor *one, int64_t i, int64_t experts, int n_weights) {
  if (!one)
    return true;
  if (!*all)
    *all = tensor(a, one->dtype, SHAPE(experts, n_weights * one->shape[0], one->shape[1]));
  if (bytes(one) * (size_t)(experts * n_weights) != bytes(*all))
    return false;
  put(*all, i * elements(one), one);
  return true;
}

projection find_experts(model *m, const char *prefix, int n_names, const char *const *names, int64_t n) {
  projection all = {0};
  arena once = {0};
  char name[64];
  for (int64_t i = 0; i < n * n_names; i++) {
    snprintf(name, sizeof name, "%lld.%s.weight", (long long)i / n_names, names[i % n_names]);
    projection one = codes_or_values(m, &once, prefix, name, n_names);
    if (!stack(place_to_round(m), &all.weight, one.weight, i, n, n_names) ||
        !stack(&m->kept, &all.scales, one.scales, i, n, n_names))
      fail("'%s%s' is of another size than the first expert's", prefix, name);
    arena_reset(&once);
  }
  return all.scales ? all : projected(m, all.weight, NULL);
}

DLTensor *linear(model *m, DLTensor *x, const projection *p, DLTensor *out) {
  out = out ? out : tensor(&m->step, m->dtype, SHAPE(x->shape[0], p->n));
  if (!p->scales)
    ok(fl_replicated_linear(&m->ops, NULL, x, p->weight, p->bias, false, out));
  else if (p->weight->dtype.bits == 8)
    ok(fl_weight_only_linear(&m->ops, NULL, x, p->weight, p->scales, p->bias, m->scale_block, 2, out));
  else
    ok(fl_gptq_linear(&m->ops, NULL, x, p->weight, p->scales, NULL, NULL, p->bias, false, out));
  return out;
}
