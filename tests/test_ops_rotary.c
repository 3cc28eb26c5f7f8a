/* Rotary embeddings beside rotary_embedding: their checks, and both CPU kernels against the formulas. */
#include "tests/op_case.h"

#include <flhost/dtype.h>
#include <math.h>

/* What a tensor of that type makes of a value. */
static float rounded(DLDataType dtype, float value) {
  return dtype.bits == 32          ? value
         : dtype.code == kDLBfloat ? fl_bf16_to_float(fl_float_to_bf16(value))
                                   : fl_f16_to_float(fl_float_to_f16(value));
}

/* Element i of a head of `size` of which the first 2 * pairs are rotated, by the rounding steps of PyTorch. */
static float rotated(DLDataType rounding, bool neox, int64_t pairs, const float *head, const float *cos,
                     const float *sin, int64_t i) {
  int64_t pair = neox ? i % pairs : i / 2;
  bool second = neox ? i >= pairs : i % 2;
  if (i >= 2 * pairs)
    return head[i];
  float x1 = head[neox ? pair : 2 * pair], x2 = head[neox ? pair + pairs : 2 * pair + 1];
  float c = rounded(rounding, cos[pair]), s = rounded(rounding, sin[pair]);
  return second ? rounded(rounding, x2 * c) + rounded(rounding, x1 * s)
                : rounded(rounding, x1 * c) - rounded(rounding, x2 * s);
}

/* The row of floats from element `first` on. */
static void read_row(const owned *tensor, int64_t first, int64_t n, float *row) {
  for (int64_t i = 0; i < n; i++)
    row[i] = (float)element(tensor, first + i);
}

/* ------------------------------------------------------------------------------------------------ apply_rotary_emb */

enum { PLACES = 3, HEADS = 2 };

static void run_apply(const char *id, owned *x, owned *cos, owned *sin, bool neox, bool fp32, owned *out) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&cos->tensor), fl_tensor(&sin->tensor),
                       fl_bool(neox),         fl_bool(fp32),           fl_tensor(&out->tensor)};
  check_call("apply_rotary_emb", id, values, 6);
}

/* Tensors of one call: x [leading…, PLACES, HEADS, 2 * pairs]. */
static void check_apply(const char *id, DLDataType dtype, DLDataType table, int n_leading, int64_t pairs, bool neox,
                        bool fp32) {
  const int64_t all[] = {2, 2, PLACES, HEADS, 2 * pairs}, angles[] = {PLACES, pairs}, *shape = all + 2 - n_leading;
  owned *x = make(dtype, 3 + n_leading, shape, 4), *out = make(dtype, 3 + n_leading, shape, 2);
  owned *cos = make(table, 2, angles, 3), *sin = make(table, 2, angles, 1);
  float *rows = malloc(sizeof(float) * (size_t)(4 * pairs)), *c = rows + 2 * pairs, *s = c + pairs;
  fill(&x->tensor, 1);
  fill(&cos->tensor, 2);
  fill(&sin->tensor, 3);
  run_apply(id, x, cos, sin, neox, fp32, out);
  for (int64_t i = 0; i < count(&x->tensor); i++) {
    int64_t row = i / (2 * pairs), place = row / HEADS % PLACES;
    if (i % (2 * pairs) == 0) {
      read_row(x, i, 2 * pairs, rows);
      read_row(cos, place * pairs, pairs, c);
      read_row(sin, place * pairs, pairs, s);
    }
    float expected = rounded(dtype, rotated(fp32 ? float32 : dtype, neox, pairs, rows, c, s, i % (2 * pairs)));
    ck_each((float)element(out, i) == expected, "element %d is %g, expected %g", (int)i, element(out, i),
            (double)expected);
  }
  free(rows);
  UNMAKE(x, out, cos, sin);
}

START_TEST(O2_O4_apply_rotary_emb_rounds_each_step_or_once_for_any_rank_and_stride) {
  DLDataType dtype = floats[_i % 3];
  for (int mode = 0; mode < 8; mode++)
    for (int n_leading = 0; n_leading < 3; n_leading++)
      check_apply(both[_i / 3], dtype, mode & 4 ? dtype : float32, n_leading, 5, mode & 1, mode & 2);
}
END_TEST

START_TEST(apply_rotary_emb_takes_heads_longer_than_a_block) {
  for (int neox = 0; neox < 2; neox++)
    check_apply(both[_i], bfloat16, float32, 1, 300, neox, false);
}
END_TEST

/* ------------------------------------------------------------------------------------ dual_chunk_rotary_embedding */

enum { TOKENS = 7, QUERY_HEADS = 3, KEY_HEADS = 2, SIZE = 10, LENGTH = 4, LOCAL = 2, POSITIONS = 16, CACHES = 5 };
enum { Q, QC, K, QC_NO_CLAMP, Q_INTER }; /* the order of the arguments */

typedef struct dual {
  owned *ids, *query, *key, *caches[CACHES], *query_out, *key_out;
  fl_value values[15];
} dual;

static dual make_dual(DLDataType dtype, DLDataType index, int64_t rotary_dim, bool neox, int64_t padding) {
  const int64_t tokens[] = {TOKENS}, query[] = {TOKENS, QUERY_HEADS * SIZE}, key[] = {TOKENS, KEY_HEADS * SIZE};
  const int64_t five[] = {TOKENS, 5 * QUERY_HEADS * SIZE}, cache[] = {LENGTH, rotary_dim};
  const int64_t positions[] = {POSITIONS, rotary_dim};
  static const int at[TOKENS] = {0, 3, 4, 5, 11, 15, 8};
  dual d = {.ids = make(index, 1, tokens, 0),
            .query = make(dtype, 2, query, padding),
            .key = make(dtype, 2, key, padding),
            .query_out = make(dtype, 2, five, padding),
            .key_out = make(dtype, 2, key, padding)};
  fill(&d.query->tensor, 1);
  fill(&d.key->tensor, 2);
  for (int i = 0; i < TOKENS; i++)
    set(&d.ids->tensor, i, at[i]);
  for (uint32_t i = 0; i < CACHES; i++) {
    d.caches[i] = make(dtype, 2, i == K ? positions : cache, padding);
    fill(&d.caches[i]->tensor, 3 + i);
    d.values[3 + i] = fl_tensor(&d.caches[i]->tensor);
  }
  d.values[0] = fl_tensor(&d.ids->tensor);
  d.values[1] = fl_tensor(&d.query->tensor);
  d.values[2] = fl_tensor(&d.key->tensor);
  d.values[8] = fl_int(SIZE);
  d.values[9] = fl_int(rotary_dim);
  d.values[10] = fl_int(LENGTH + LOCAL);
  d.values[11] = fl_int(LOCAL);
  d.values[12] = fl_bool(neox);
  d.values[13] = fl_tensor(&d.query_out->tensor);
  d.values[14] = fl_tensor(&d.key_out->tensor);
  return d;
}

static void unmake_dual(dual *d) {
  UNMAKE(d->ids, d->query, d->key, d->query_out, d->key_out);
  unmake_all(d->caches, CACHES);
}

/* One head of `in` from element `first` on, rotated by that row of a cache, is what stands in `out`. */
static void check_head(const owned *in, int64_t first, const owned *cache, int64_t row, bool neox, const owned *out,
                       int64_t first_out) {
  int64_t pairs = cache->shape[1] / 2;
  float head[SIZE], cos[SIZE], sin[SIZE];
  DLDataType dtype = in->tensor.dtype;
  read_row(in, first, SIZE, head);
  read_row(cache, row * 2 * pairs, pairs, cos);
  read_row(cache, row * 2 * pairs + pairs, pairs, sin);
  for (int64_t i = 0; i < SIZE; i++) {
    float given = (float)element(out, first_out + i);
    float expected = rounded(dtype, rotated(dtype, neox, pairs, head, cos, sin, i));
    ck_each(given == expected, "element %d is %g, expected %g", (int)(first_out + i), (double)given, (double)expected);
  }
}

static void check_token(const dual *d, int64_t token, int64_t position, bool neox) {
  const struct {
    int cache;
    int64_t row;
  } parts[] = {{Q, position % LENGTH},
               {QC, position % LENGTH},
               {QC, LENGTH - 1},
               {QC_NO_CLAMP, position % LENGTH},
               {Q_INTER, position % LENGTH}};
  for (int64_t part = 0; part < 5; part++)
    for (int64_t head = 0; head < QUERY_HEADS; head++)
      check_head(d->query, (token * QUERY_HEADS + head) * SIZE, d->caches[parts[part].cache], parts[part].row, neox,
                 d->query_out, ((token * 5 + part) * QUERY_HEADS + head) * SIZE);
  for (int64_t head = 0; head < KEY_HEADS; head++)
    check_head(d->key, (token * KEY_HEADS + head) * SIZE, d->caches[K], position, neox, d->key_out,
               (token * KEY_HEADS + head) * SIZE);
}

START_TEST(O2_O4_dual_chunk_rotates_the_query_five_times_and_the_key_once) {
  DLDataType dtype = floats[_i % 3];
  for (int mode = 0; mode < 8; mode++) {
    bool neox = mode & 1;
    dual d = make_dual(dtype, mode & 2 ? int32 : int64, mode & 4 ? SIZE : 6, neox, mode & 2 ? 5 : 0);
    check_call("dual_chunk_rotary_embedding", both[_i / 3], d.values, 15);
    for (int64_t token = 0; token < TOKENS; token++) {
      const void *ids = d.ids->tensor.data;
      check_token(&d, token, mode & 2 ? ((const int32_t *)ids)[token] : ((const int64_t *)ids)[token], neox);
    }
    unmake_dual(&d);
  }
}
END_TEST

START_TEST(O6_a_dual_chunk_position_out_of_range_is_a_bad_argument_and_nothing_is_written) {
  static const int bad[] = {POSITIONS, -1};
  for (int i = 0; i < 2; i++) {
    char expected[128];
    dual d = make_dual(float32, int64, 6, true, 0);
    owned *untouched = make(float32, 2, d.query_out->shape, 0);
    set(&d.ids->tensor, TOKENS - 1, bad[i]);
    ck_assert_int_eq(call_impl("dual_chunk_rotary_embedding", both[_i], d.values, 15), FL_EINVAL);
    snprintf(expected, sizeof expected, "argument 'position_ids'[6] is %d, expected 0 to 15 (rows of 'k_cache')",
             bad[i]);
    ck_assert_str_eq(message, expected);
    ck_assert_mem_eq(d.query_out->tensor.data, untouched->tensor.data, untouched->bytes);
    ck_assert_mem_eq(d.key_out->tensor.data, untouched->tensor.data, d.key_out->bytes);
    unmake(untouched);
    unmake_dual(&d);
  }
}
END_TEST

START_TEST(O2_rotations_of_no_tokens_succeed_and_write_nothing) {
  const int64_t x_shape[] = {2, 0, 3, 8}, angles[] = {0, 4}, none[] = {0}, rows[] = {0, 20}, five[] = {0, 100};
  owned *x = make(float32, 4, x_shape, 0), *angle = make(float32, 2, angles, 0), *ids = make(int64, 1, none, 0);
  owned *flat = make(float32, 2, rows, 0), *out = make(float32, 2, five, 0);
  dual d = make_dual(float32, int64, SIZE, true, 0);
  run_apply(both[_i], x, angle, angle, true, false, x);
  d.values[0] = fl_tensor(&ids->tensor);
  d.values[1] = d.values[2] = d.values[14] = fl_tensor(&flat->tensor);
  d.values[13] = fl_tensor(&out->tensor);
  check_call("dual_chunk_rotary_embedding", both[_i], d.values, 15);
  UNMAKE(x, angle, ids, flat, out);
  unmake_dual(&d);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- bad calls */

START_TEST(O6_bad_arguments_of_apply_rotary_emb_are_refused_with_a_reason) {
  const int64_t shape[] = {3, 2, 8}, flat[] = {3, 16}, angles[] = {3, 4}, few[] = {2, 4}, wide[] = {3, 8};
  owned *x_ = make(float16, 3, shape, 0), *out_ = make(float16, 3, shape, 0), *flat_ = make(float16, 2, flat, 0);
  owned *cos_ = make(float32, 2, angles, 0), *few_ = make(float32, 2, few, 0), *wide_ = make(float32, 2, wide, 0);
  owned *half_ = make(float16, 2, angles, 0), *brain_ = make(bfloat16, 2, angles, 0);
  const fl_value x = fl_tensor(&x_->tensor), out = fl_tensor(&out_->tensor), cos = fl_tensor(&cos_->tensor);
  const fl_value yes = fl_bool(true), no = fl_bool(false);
  const struct {
    const char *expected;
    fl_value values[6];
  } cases[] = {
      {"argument 'x': shape [3, 16], expected [..., S, H, 2*r]", {fl_tensor(&flat_->tensor), cos, cos, yes, no, out}},
      {"argument 'cos': shape [2, 4], expected [3, 4] (S of 'x')", {x, fl_tensor(&few_->tensor), cos, yes, no, out}},
      {"argument 'cos': shape [3, 8], expected [3, 4] (r of 'x')", {x, fl_tensor(&wide_->tensor), cos, yes, no, out}},
      {"argument 'cos': dtype bfloat16, expected float16 (that of 'x') or float32",
       {x, fl_tensor(&brain_->tensor), cos, yes, no, out}},
      {"argument 'sin': expected the dtype of 'cos'", {x, cos, fl_tensor(&half_->tensor), yes, no, out}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[256];
    snprintf(expected, sizeof expected, "apply_rotary_emb: %s", cases[i].expected);
    check_refused("apply_rotary_emb", expected, cases[i].values, 6);
  }
  UNMAKE(x_, out_, flat_, cos_, few_, wide_, half_, brain_);
}
END_TEST

START_TEST(O6_bad_arguments_of_dual_chunk_are_refused_with_a_reason) {
  const int64_t short_cache[] = {LENGTH - 1, 6};
  dual d = make_dual(float32, int64, 6, true, 0);
  owned *small = make(float32, 2, short_cache, 0);
  const struct {
    const char *expected;
    int at;
    fl_value value;
  } cases[] = {
      {"argument 'query': shape [7, 30], expected [7, h*head_size] (h*head_size, head_size = 7 of 'head_size')", 8,
       fl_int(7)},
      {"argument 'q_cache': shape [4, 6], expected [q, 8] (argument 'rotary_dim')", 9, fl_int(8)},
      {"argument 'q_inter_cache': 3 rows, expected at least 4 ('chunk_size' - 'local_size')", 7,
       fl_tensor(&small->tensor)},
      {"argument 'q_cache': 4 rows, expected at least 5 ('chunk_size' - 'local_size')", 10, fl_int(7)},
      {"argument 'local_size': 6, expected 0 or more and less than 6 ('chunk_size')", 11, fl_int(6)},
      {"argument 'local_size': -1, expected 0 or more and less than 6 ('chunk_size')", 11, fl_int(-1)},
      {"argument 'rotary_dim': 6, expected an even number from 2 to 5 ('head_size')", 8, fl_int(5)},
      {"result 'query_out': shape [7, 20], expected [7, 150] (5*(h*head_size), h = 3 of 'query', head_size = 10 of "
       "'head_size')",
       13, fl_tensor(&d.key_out->tensor)},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[256];
    fl_value values[15];
    memcpy(values, d.values, sizeof values);
    values[cases[i].at] = cases[i].value;
    snprintf(expected, sizeof expected, "dual_chunk_rotary_embedding: %s", cases[i].expected);
    check_refused("dual_chunk_rotary_embedding", expected, values, 15);
  }
  unmake(small);
  unmake_dual(&d);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- fused_qk_norm_rope */

/* Element i of a head of q or k, in double: normalised, the first 2 * pairs rotated. */
static double norm_roped(op_case *c, int64_t size, int64_t pairs, bool interleaved, const char *weight, int64_t first,
                         int64_t position, int64_t i) {
  double squares = 0;
  for (int64_t j = 0; j < size; j++)
    squares += pow(op_case_get(c, "qkv", first + j), 2);
  double scale = 1 / sqrt(squares / (double)size + 1e-6);
  int64_t pair = interleaved ? i / 2 : i % pairs;
  int64_t one = interleaved ? 2 * pair : pair, two = interleaved ? one + 1 : one + pairs;
  if (i >= 2 * pairs)
    return op_case_get(c, "qkv", first + i) * scale * op_case_get(c, weight, i);
  double x1 = op_case_get(c, "qkv", first + one) * scale * op_case_get(c, weight, one);
  double x2 = op_case_get(c, "qkv", first + two) * scale * op_case_get(c, weight, two);
  double cosine = op_case_get(c, "cos", position * pairs + pair), sine = op_case_get(c, "sin", position * pairs + pair);
  return i == one ? x1 * cosine - x2 * sine : x2 * cosine + x1 * sine;
}

/* 4 heads of query, 2 of key and 1 of value, 16 of 20 dimensions rotated; or one of each, of more than a block. */
static const struct {
  const char *call;
  int64_t size, pairs, heads[3], padding;
} fused_calls[] = {
    {"fused_qk_norm_rope qkv=f5x140 q_weight=f20 k_weight=f20 cos=w9x8 sin=w9x8 position_ids=i5 num_heads_q=4 "
     "num_heads_k=2 num_heads_v=1 interleaved=",
     20,
     8,
     {4, 2, 1},
     3},
    {"fused_qk_norm_rope qkv=f2x2100 q_weight=f700 k_weight=f700 cos=f9x300 sin=f9x300 position_ids=l2 num_heads_q=1 "
     "num_heads_k=1 num_heads_v=1 interleaved=",
     700,
     300,
     {1, 1, 1},
     0},
};

START_TEST(fused_qk_norm_rope_rounds_once_and_leaves_the_value) {
  DLDataType dtype = floats[_i % 3];
  double allowed = dtype.bits == 32 ? 4e-6 : dtype.code == kDLBfloat ? 5e-3 : 7e-4; /* one rounding */
  for (int mode = 0; mode < 4; mode++) {
    int64_t size = fused_calls[mode / 2].size, row = 0;
    const int64_t *n = fused_calls[mode / 2].heads;
    char text[256];
    snprintf(text, sizeof text, "%s%s", fused_calls[mode / 2].call, mode % 2 ? "true" : "false");
    op_case *c = op_case_make(text, dtype, fused_calls[mode / 2].padding);
    row = (n[0] + n[1] + n[2]) * size;
    op_case_set(c, "position_ids", 0, 8);
    op_case_set(c, "qkv", (n[0] + n[1]) * size + 1, NAN); /* in the value, which nothing is computed of */
    op_case_run(c, both[_i / 3]);
    for (int64_t i = 0; i < count(op_case_tensor(c, "qkv")); i++) {
      int64_t token = i / row, head = i % row / size, position = (int64_t)op_case_get(c, "position_ids", token);
      double got = op_case_get(c, "qkv_out", i), given = op_case_get(c, "qkv", i);
      if (head >= n[0] + n[1]) {
        ck_each(got == given || (isnan(got) && isnan(given)), "value %d is %g, expected %g", (int)i, got, given);
        continue;
      }
      double expected = norm_roped(c, size, fused_calls[mode / 2].pairs, mode % 2,
                                   head < n[0] ? "q_weight" : "k_weight", i - i % size, position, i % size);
      ck_each(fabs(got - expected) <= allowed * fmax(0.1, fabs(expected)), "element %d is %g, expected %g", (int)i, got,
              expected);
    }
    op_case_free(c);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ mrope */

static int axis_of(const int64_t *sections, bool alternating, int64_t i) {
  if (!alternating)
    return i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
  return i % 3 == 1 && i < 3 * sections[1] ? 1 : i % 3 == 2 && i < 3 * sections[2] ? 2 : 0;
}

/* Where each element of a tensor of heads of `size` is rotated to. */
static void check_mrope(op_case *c, const char *name, const char *result, int64_t size) {
  const DLTensor *cos = op_case_tensor(c, "cos");
  DLDataType dtype = op_case_tensor(c, "query")->dtype;
  int64_t pairs = cos->shape[1], tokens = op_case_tensor(c, "query")->shape[0];
  int64_t row = count(op_case_tensor(c, name)) / tokens;
  const int64_t *sections = op_case_value(c, "mrope_section")->v.ints;
  bool alternating = op_case_value(c, "mrope_interleaved")->v.b, interleaved = op_case_value(c, "interleaved")->v.b;
  float *head = malloc(sizeof(float) * (size_t)(size + 2 * pairs)), *cosines = head + size, *sines = cosines + pairs;
  for (int64_t i = 0; i < row * tokens; i++) {
    for (int64_t j = 0; i % size == 0 && j < size; j++)
      head[j] = (float)op_case_get(c, name, i + j);
    for (int64_t j = 0; i % size == 0 && j < pairs; j++) {
      int64_t position = (int64_t)op_case_get(c, "position_ids", axis_of(sections, alternating, j) * tokens + i / row);
      cosines[j] = (float)op_case_get(c, "cos", position * pairs + j);
      sines[j] = (float)op_case_get(c, "sin", position * pairs + j);
    }
    float expected = rounded(dtype, rotated(dtype, !interleaved, pairs, head, cosines, sines, i % size));
    float got = (float)op_case_get(c, result, i);
    ck_each(got == expected, "%s[%d] is %g, expected %g", result, (int)i, (double)got, (double)expected);
  }
  free(head);
}

/* Own heads, heads as long as a rotation, and more pairs than a block has. */
static const struct {
  const char *call;
  int64_t size, padding;
} mrope_calls[] = {
    {"mrope query=f5x4x14 key=f5x2x14 cos=w16x6 sin=w16x6 position_ids=i3x5%16 mrope_section=2,1,3", 14, 3},
    {"mrope query=f5x48 key=f5x24 cos=f16x6 sin=f16x6 position_ids=l3x5%16 mrope_section=0,4,2", 12, 0},
    {"mrope query=f2x1x600 cos=f16x300 sin=f16x300 position_ids=l3x2%16 mrope_section=100,120,80", 600, 0},
};

START_TEST(O2_O4_mrope_turns_each_pair_by_one_of_three_positions) {
  for (int mode = 0; mode < 12; mode++) {
    char text[192];
    snprintf(text, sizeof text, "%s mrope_interleaved=%s interleaved=%s", mrope_calls[mode / 4].call,
             mode & 1 ? "true" : "false", mode & 2 ? "true" : "false");
    op_case *c = op_case_make(text, floats[_i % 3], mrope_calls[mode / 4].padding);
    op_case_run(c, both[_i / 3]);
    check_mrope(c, "query", "query_out", mrope_calls[mode / 4].size);
    if (mode < 8)
      check_mrope(c, "key", "key_out", mrope_calls[mode / 4].size);
    op_case_free(c);
  }
}
END_TEST

/* Position p multiplies by p: which of the three it was stands in the result. */
START_TEST(mrope_by_hand) {
  static const int axes[][8] = {{0, 0, 1, 2, 2, 2, 2, 2}, {0, 1, 2, 0, 0, 2, 0, 0}};
  op_case *c = op_case_make(_i / 2 ? "mrope query=f1x1x16 cos=f4x8 sin=f4x8 position_ids=i3x1 mrope_section=2,1,5 "
                                     "mrope_interleaved=true"
                                   : "mrope query=f1x1x16 cos=f4x8 sin=f4x8 position_ids=i3x1 mrope_section=2,1,5",
                            float32, 0);
  for (int i = 0; i < 32; i++) {
    op_case_set(c, "cos", i, i / 8);
    op_case_set(c, "sin", i, 0);
  }
  for (int i = 0; i < 16; i++)
    op_case_set(c, "query", i, 1);
  for (int i = 0; i < 3; i++)
    op_case_set(c, "position_ids", i, i + 1);
  op_case_run(c, both[_i % 2]);
  for (int i = 0; i < 16; i++) {
    double got = op_case_get(c, "query_out", i);
    ck_each(got == axes[_i / 2][i % 8] + 1, "element %d is %g", i, got);
  }
  op_case_free(c);
}
END_TEST

#define FUSED "fused_qk_norm_rope q_weight=f20 k_weight=f20 position_ids=i5 "
#define MROPE "mrope query=f5x4x14 key=f5x2x14 position_ids=i3x5 "
static const struct {
  const char *call, *message;
} refused[] = {
    {FUSED "qkv=f5x140 cos=w9x8 sin=f9x8 num_heads_q=4 num_heads_k=2 num_heads_v=1", NULL},
    {FUSED "qkv=f5x140 cos=w9x12 sin=w9x12 num_heads_q=4 num_heads_k=2 num_heads_v=1",
     "fused_qk_norm_rope: argument 'cos': rotates 24 dimensions of a head, but heads have 20"},
    {FUSED "qkv=f5x140 cos=w9x8 sin=w9x8 num_heads_q=4 num_heads_k=-2 num_heads_v=5",
     "fused_qk_norm_rope: argument 'num_heads_k': -2, expected 0 or more"},
    {FUSED "qkv=f5x140 cos=w9x8 sin=w9x8 num_heads_q=4 num_heads_k=2 num_heads_v=1 epsilon=-1",
     "fused_qk_norm_rope: argument 'epsilon': -1, expected a finite number, 0 or more"},
    {MROPE "cos=f9x6 sin=f9x6 mrope_section=2,4",
     "mrope: argument 'mrope_section': 2 sections, expected 3 (time, height, "
     "width)"},
    {MROPE "cos=f9x6 sin=f9x6 mrope_section=1,2,2,1",
     "mrope: argument 'mrope_section': 4 sections, expected 3 (time, height, width)"},
    {MROPE "cos=f9x6 sin=f9x6 mrope_section=2,1,2",
     "mrope: argument 'mrope_section': sections make 5, expected 6 (a row of 'cos')"},
    {MROPE "cos=f9x6 sin=f9x6 mrope_section=2,5,2",
     "mrope: argument 'mrope_section': 5 (height), expected 0 to 4 (sections make 6)"},
    {MROPE "cos=f9x6 sin=f9x6 mrope_section=2,5,-1",
     "mrope: argument 'mrope_section': 5 (height), expected 0 to 4 (sections make 6)"},
    {MROPE "cos=f9x8 sin=f9x8 mrope_section=2,3,3",
     "mrope: argument 'cos': rotates 16 dimensions of a head, but heads of 'query' have 14"},
    {"mrope query=f5x4x14 key=f5x3x14 position_ids=i3x5 cos=f9x6 sin=f9x6 mrope_section=2,1,3",
     "mrope: argument 'key': 3 heads, expected a divisor of the 4 heads of 'query'"},
    {"mrope query=f5x4x14 position_ids=i2x5 cos=f9x6 sin=f9x6 mrope_section=2,1,3",
     "mrope: argument 'position_ids': shape [2, 5], expected [3, 5]"},
};

START_TEST(O6_bad_arguments_of_fused_qk_norm_rope_and_mrope_are_refused_with_a_reason) {
  if (refused[_i].message) {
    op_case_refused(refused[_i].call, refused[_i].message);
    return;
  }
  op_case *c = op_case_make(refused[_i].call, bfloat16, 0); /* sin is of the other type that the rules allow */
  ck_assert_int_eq(op_case_check(c), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fused_qk_norm_rope: argument 'sin': expected the dtype of 'cos'");
  op_case_free(c);
}
END_TEST

START_TEST(O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written) {
  op_case *fused =
      op_case_make(FUSED "qkv=f5x140 cos=w9x8 sin=w9x8 num_heads_q=4 num_heads_k=2 num_heads_v=1", float32, 0);
  op_case *three = op_case_make(MROPE "cos=f9x6 sin=f9x6 mrope_section=2,1,3", float32, 0);
  op_case_set(fused, "position_ids", 3, -1);
  op_case_refused_by(fused, both[_i], "argument 'position_ids'[3] is -1, expected 0 to 8 (rows of 'cos')");
  for (int i = 0; i < 15; i++)
    op_case_set(three, "position_ids", i, i == 12 ? 9 : 8);
  op_case_refused_by(three, both[_i], "argument 'position_ids'[2, 2] is 9, expected 0 to 8 (rows of 'cos')");
  op_case_free(fused);
  op_case_free(three);
}
END_TEST

/* -------------------------------------------------------------------------------------- results that outgrow caches */

/* Lines of the caches in whole; heads of which some passes through, with tails of chunks; second elements that begin
 * inside a line; and elements that alternate. */
static const struct {
  const char *call, *in[2], *out[2];
} large_calls[] = {
    {"apply_rotary_emb x=f2x2100x32x128 cos=f2100x64 sin=f2100x64", {"x"}, {"out"}},
    {"apply_rotary_emb x=f2x3800x32x72 cos=f3800x36 sin=f3800x36", {"x"}, {"out"}},
    {"rotary_embedding query=f3500x32x128 key=f3500x8x128 cos=f64x48 sin=f64x48 position_ids=l3500%64 "
     "rope_dim_offset=16",
     {"query", "key"},
     {"query_out", "key_out"}},
    {"mrope query=f4300x32x128 cos=f64x56 sin=f64x56 position_ids=i3x4300%64 mrope_section=16,20,20 interleaved=true",
     {"query"},
     {"query_out"}},
};

/* Of 64 MiB and more. Where they are written around the caches, which wants aligned memory, they are what they are in
 * place. */
START_TEST(a_rotation_of_much_is_that_in_place) {
  op_case *made = op_case_make(large_calls[_i].call, float32, 0);
  const char *op = made->schema->op_name, *const *in = large_calls[_i].in, *const *out = large_calls[_i].out;
  ck_assert_int_eq(op_case_check(made), FL_OK);
  for (int i = 0; i < 2 && out[i]; i++) {
    DLTensor *result = op_case_tensor(made, out[i]);
    free(result->data);
    result->data = aligned_alloc(64, (size_t)count(result) * sizeof(float));
    ck_assert_ptr_nonnull(result->data);
  }
  op_case_run(made, "default.flagos");
  op_case *in_place = op_case_make(large_calls[_i].call, float32, 0);
  ck_assert_int_eq(op_case_check(in_place), FL_OK);
  for (int i = 0; i < 2 && out[i]; i++)
    *op_case_value(in_place, out[i]) = *op_case_value(in_place, in[i]);
  check_call(op, "default.flagos", in_place->values, made->schema->n_arguments + made->schema->n_results);
  for (int i = 0; i < 2 && out[i]; i++) {
    const DLTensor *result = op_case_tensor(made, out[i]);
    ck_assert_msg(!memcmp(result->data, op_case_tensor(in_place, in[i])->data, (size_t)count(result) * sizeof(float)),
                  "%s of %s differs", out[i], op);
  }
  op_case_free(made);
  op_case_free(in_place);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O2_O4_apply_rotary_emb_rounds_each_step_or_once_for_any_rank_and_stride, 0, 6);
  tcase_add_loop_test(tests, apply_rotary_emb_takes_heads_longer_than_a_block, 0, 2);
  tcase_add_loop_test(tests, O2_O4_dual_chunk_rotates_the_query_five_times_and_the_key_once, 0, 6);
  tcase_add_loop_test(tests, O6_a_dual_chunk_position_out_of_range_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O2_rotations_of_no_tokens_succeed_and_write_nothing, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_apply_rotary_emb_are_refused_with_a_reason);
  tcase_add_test(tests, O6_bad_arguments_of_dual_chunk_are_refused_with_a_reason);
  tcase_add_loop_test(tests, fused_qk_norm_rope_rounds_once_and_leaves_the_value, 0, 6);
  tcase_add_loop_test(tests, O2_O4_mrope_turns_each_pair_by_one_of_three_positions, 0, 6);
  tcase_add_loop_test(tests, mrope_by_hand, 0, 4);
  tcase_add_loop_test(tests, O6_bad_arguments_of_fused_qk_norm_rope_and_mrope_are_refused_with_a_reason, 0,
                      sizeof refused / sizeof refused[0]);
  tcase_add_loop_test(tests, O6_a_position_out_of_range_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, a_rotation_of_much_is_that_in_place, 0,
                      loop_cases(sizeof large_calls / sizeof large_calls[0]));
}

int main(void) {
  return run_suite("ops_rotary", add_tests, 20);
}
