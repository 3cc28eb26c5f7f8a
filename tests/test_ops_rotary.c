/* apply_rotary_emb and dual_chunk_rotary_embedding: their checks, and both CPU kernels against the formula. */
#include "tests/kernels.h"

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

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O2_O4_apply_rotary_emb_rounds_each_step_or_once_for_any_rank_and_stride, 0, 6);
  tcase_add_loop_test(tests, apply_rotary_emb_takes_heads_longer_than_a_block, 0, 2);
  tcase_add_loop_test(tests, O2_O4_dual_chunk_rotates_the_query_five_times_and_the_key_once, 0, 6);
  tcase_add_loop_test(tests, O6_a_dual_chunk_position_out_of_range_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O2_rotations_of_no_tokens_succeed_and_write_nothing, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_apply_rotary_emb_are_refused_with_a_reason);
  tcase_add_test(tests, O6_bad_arguments_of_dual_chunk_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_rotary", add_tests, 20);
}
