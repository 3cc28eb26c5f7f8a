/* Weights by name, as files have them or rounded to 8 or 4 bits, and linear layers: see llm.h.
 * Codes have scales: one for each row, or each group of its columns, where they were rounded here; one for each block
 * of so many rows and columns, in name.weight_scale_inv, where the file has float8, as DeepSeek-V3 does. Operators take
 * codes as they are, and inputs that are not rounded. */
#include "llm.h"

static const struct format {
  const char *name, *type; /* of elements */
  int64_t group, multiple; /* columns that share a scale, 0: all; what sizes have to be multiples of */
  double least, largest;   /* codes, of which the largest stands for the largest of a group */
} formats[] = {
    {"fp8", "float8_e4m3fn", 0, 1, -448, 448}, {"int8", "int8", 0, 1, -127, 127}, {"int4", "int32", 128, 8, -8, 7}};

const struct format *format_named(const char *name) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(name, formats[i].name))
      return &formats[i];
  fail("--quantise: expected fp8, int8 or int4, not '%s'", name);
}

DLTensor *stored_weight(const model *m, const char *prefix, const char *name, const char *end, bool must) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s%s%s", prefix, name, end);
  DLTensor *t = checkpoint_find(&m->files, whole);
  if (!t && must)
    fail("the checkpoint has no '%s'", whole);
  return t;
}

/* Of the file's codes; NULL: that weight is none. */
static DLTensor *scales_of(const model *m, const DLTensor *t, const char *prefix, const char *name, const char *end) {
  static const char scales_end[] = ".weight_scale_inv";
  const int64_t *size = m->scale_block;
  if (t->dtype.bits != 8)
    return NULL;
  if (t->dtype.code != FL_DTYPE_FLOAT8_E4M3FN || t->ndim != 2)
    fail("'%s%s%s' is a code with a scale elsewhere, which is not known here", prefix, name, end);
  DLTensor *scales = stored_weight(m, prefix, name, scales_end, true);
  int64_t rows = (t->shape[0] + size[0] - 1) / size[0], columns = (t->shape[1] + size[1] - 1) / size[1];
  if (memcmp(&scales->dtype, &float32, sizeof float32) || scales->ndim != 2 || scales->shape[0] != rows ||
      scales->shape[1] != columns)
    fail("'%s%s%s': expected float32 [%lld, %lld], a scale for each %lld rows and %lld columns of the weight", prefix,
         name, scales_end, LL(rows), LL(columns), LL(size[0]), LL(size[1]));
  return scales;
}

/* In the model's element type: as it is, or made in `a`. */
static DLTensor *values(model *m, arena *a, DLTensor *t, const DLTensor *scales) {
  const fl_element_type *type = fl_element_type_of(m->dtype);
  DLTensor *made = converted(a, t, m->dtype);
  for (int64_t i = 0, k = t->shape[1]; scales && i < elements(made); i++) {
    int64_t at = i / k / m->scale_block[0] * scales->shape[1] + i % k / m->scale_block[1];
    type->put(made->data, i, type->get(made->data, i) * (double)((float *)fl_data(scales))[at]);
  }
  return made;
}

DLTensor *weight_in(model *m, arena *a, const char *prefix, const char *name, const char *end, bool must) {
  DLTensor *t = stored_weight(m, prefix, name, end, must);
  return t ? values(m, a, t, scales_of(m, t, prefix, name, end)) : NULL;
}

projection projected(model *m, arena *a, DLTensor *t, int parts, share columns) {
  const struct format *f = m->format;
  int64_t n = t->shape[0], all = t->shape[1], k = all / columns.parts, from = k * columns.part;
  if (!f)
    return (projection){.weight = converted(a, cut(a, t, ALL, columns), m->dtype), .n = n};
  arena once = {.host = m->host, .stream = m->stream};
  int64_t group = f->group && all % f->group == 0 ? f->group : all, shared = group == all ? k : group;
  bool words = f->multiple > 1,
       taken = n % f->multiple == 0 && k % shared == 0 && k % f->multiple == 0 && !(words && parts);
  arena *for_codes = taken && !m->dequantised ? a : &once, *for_plain = for_codes == a ? &once : a;
  t = copied(&once, t, m->dtype); /* scales are of all columns, whichever rank has them */
  DLTensor *plain = copied(for_plain, cut(&once, t, ALL, columns), m->dtype);
  const fl_element_type *type = fl_element_type_of(m->dtype), *code = fl_element_type_named(f->type);
  DLTensor *codes = tensor(for_codes, code->dtype, SHAPE(words ? k / 8 : n, words ? n : k));
  DLTensor *scales = tensor(for_codes, words ? m->dtype : float32, SHAPE(words ? k / shared : n, words ? n : 1));
  const fl_element_type *scale_type = fl_element_type_of(scales->dtype);
  uint32_t *word = codes->data; /* of int4, as GPTQ has it: eight columns of a row, in [k / 8, n] */
  memset(codes->data, 0, bytes(codes));
  for (int64_t i = 0; taken && i < n * (k / shared); i++) {
    int64_t row = i % n, begin = row * k + i / n * shared, at = row * all + (group == all ? 0 : from + i / n * group);
    double largest = 0;
    for (int64_t j = at; j < at + group; j++)
      largest = fmax(largest, fabs(type->get(t->data, j)));
    scale_type->put(scales->data, i, largest > 0 ? largest / f->largest : 1);
    double scale = scale_type->get(scales->data, i);
    for (int64_t j = begin; j < begin + shared; j++) {
      double value = fmin(fmax(type->get(plain->data, j) / scale, f->least), f->largest);
      value = code->dtype.code == kDLInt ? nearbyint(value) : value;
      if (words)
        word[j % k / 8 * n + row] |= (uint32_t)((int)value + 8) << 4 * (j % 8);
      else
        code->put(codes->data, j, value);
      type->put(plain->data, j, (words ? value : code->get(codes->data, j)) * scale);
    }
  }
  arena_reset(&once);
  return for_codes == a ? (projection){codes, scales, .n = n} : (projection){.weight = plain, .n = n};
}

/* By name: codes of the file, unless what they stand for is asked for, or a block of scales would lie across the parts
 * that an expert's matrix has, or across ranks; else what projected() makes. In `a`. */
static projection found(model *m, arena *a, const char *prefix, const char *name, int parts, share rows, share cols) {
  DLTensor *t = stored_weight(m, prefix, name, ".weight", true), *scales = scales_of(m, t, prefix, name, ".weight");
  int64_t down = parts > 1 || rows.parts > 1 ? m->scale_block[0] * rows.parts : 1,
          across = cols.parts > 1 ? m->scale_block[1] * cols.parts : 1;
  projection p;
  if (scales && !m->format && !m->dequantised && t->shape[0] % down == 0 && t->shape[1] % across == 0)
    p = (projection){cut(a, t, rows, cols), cut(a, scales, rows, cols), .n = t->shape[0] / rows.parts};
  else
    p = projected(m, a, cut(a, scales ? values(m, a, t, scales) : t, rows, ALL), parts, cols);
  p.summed = cols.parts > 1; /* a sum has its bias once */
  p.bias = p.summed && m->own.part ? NULL : cut(&m->kept, weight(m, prefix, name, ".bias", false), rows, ALL);
  return p;
}

projection find_projection(model *m, const char *prefix, const char *name, share rows, share columns) {
  return found(m, &m->kept, prefix, name, 0, rows, columns);
}

projection find_experts(model *m, const char *prefix, int parts, const char *const *names, int64_t n) {
  projection all = {.bias = cut(&m->kept, weight(m, prefix, names[0], "_bias", false), m->own, ALL)};
  DLTensor *codes = cut(&m->kept, stored_weight(m, prefix, names[0], "_blocks", false), m->own, ALL);
  DLTensor *turned = stored_weight(m, prefix, names[0], "", false);
  int64_t in = turned ? turned->shape[1] : 0, out = turned ? turned->shape[2] : 0;
  arena once = {.host = m->host, .stream = m->stream};
  char expert[128];
  if (turned && (turned->ndim != 3 || turned->dtype.bits == 8))
    fail("'%s%s': expected values for each expert, input and output", prefix, names[0]);
  if (codes && (codes->ndim != 4 || codes->shape[3] != 16))
    fail("'%s%s_blocks': expected blocks of 16 bytes", prefix, names[0]);
  if (codes) {
    all.weight = view(&m->kept, codes, 0, NULL, SHAPE(codes->shape[0], codes->shape[1], 16 * codes->shape[2]));
    all.scales = cut(&m->kept, stored_weight(m, prefix, names[0], "_scales", true), m->own, ALL);
    return all;
  }
  for (int64_t at = 0, i = m->own.part * n * parts; at < n * parts; at++, i++, arena_reset(&once)) {
    snprintf(expert, sizeof expert, "%s%lld.", prefix, LL(i / parts));
    DLTensor *t = turned ? view(&once, turned, i * in * out, SIZES(1, out), SHAPE(out, in)) : NULL;
    projection one = t ? projected(m, &once, t, 1, ALL) : found(m, &once, expert, names[i % parts], parts, ALL, ALL);
    DLTensor *ones[] = {one.weight, one.scales}, **stacks[] = {&all.weight, &all.scales};
    for (int s = 0; s < 2 && ones[s]; s++) {
      if (!at)
        *stacks[s] = tensor(&m->kept, ones[s]->dtype, SHAPE(n, parts * ones[s]->shape[0], ones[s]->shape[1]));
      if (!*stacks[s] || bytes(ones[s]) * (size_t)(n * parts) != bytes(*stacks[s]))
        fail("'%s%s' is of another size or type than the first expert's", expert, names[i % parts]);
      put(*stacks[s], at * elements(ones[s]), ones[s]);
    }
  }
  return all;
}

DLTensor *linear(model *m, DLTensor *x, const projection *p, DLTensor *out) {
  out = out ? out : MADE(x->shape[0], p->n);
  if (!p->scales && p->summed)
    ok(fl_row_parallel_linear(OPS, x, p->weight, p->bias, true, true, false, out));
  else if (!p->scales)
    ok(fl_column_parallel_linear(OPS, x, p->weight, p->bias, false, false, out));
  else if (p->weight->dtype.bits == 8)
    ok(fl_weight_only_linear(OPS, x, p->weight, p->scales, p->bias, m->scale_block, 2, out));
  else
    ok(fl_gptq_linear(OPS, x, p->weight, p->scales, NULL, NULL, p->bias, false, out));
  if (p->scales && p->summed)
    ok(fl_all_reduce(m->group, fl_data(out), fl_data(out), elements(out), m->dtype, FL_REDUCE_SUM, m->stream));
  return out;
}
