/* Attention: the checks of its ops, and both CPU kernels by hand, against each other and against what must be equal. */
#include "tests/kernels.h"
#include "tests/op_case.h"

#include <math.h>

/* Values between -1 and 1. */
static owned *make_unit(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed) {
  return make_bounded(dtype, ndim, shape, padding, seed, 1);
}

static void check_near(double given, double expected, double tolerance, int64_t i) {
  ck_each(given == expected || fabs(given - expected) <= tolerance, "element %d is %g, expected %g", (int)i, given,
          expected);
}

/* -------------------------------------------------------------------------------------------------- mm_encoder_attn */

static fl_status encode(const char *id, owned *q, owned *k, owned *v, fl_value scale, owned *ends, owned *out) {
  fl_value values[] = {value_of(q), value_of(k), value_of(v), scale, value_of(ends), fl_none(), value_of(out)};
  return call_impl("mm_encoder_attn", id, values, 7);
}

/* Scores 0 and ln 3: weights 1/4 and 3/4. */
START_TEST(attention_is_the_mean_of_values_weighted_by_softmax) {
  owned *q = make(float32, SHAPE(1, 2, 1, 1), 0), *k = make(float32, SHAPE(1, 2, 1, 1), 0);
  owned *v = make(float32, SHAPE(1, 2, 1, 1), 0), *out = make(float32, SHAPE(1, 2, 1, 1), 0);
  set(&q->tensor, 0, 2);
  set(&q->tensor, 1, 0);
  set(&k->tensor, 0, 0);
  set(&k->tensor, 1, log(3));
  set(&v->tensor, 0, 8);
  set(&v->tensor, 1, 16);
  ck_assert_int_eq(encode(both[_i], q, k, v, fl_float(0.5), NULL, out), FL_OK);
  ck_assert_double_eq_tol(get(&out->tensor, 0), 14, 1e-5);
  ck_assert_double_eq_tol(get(&out->tensor, 1), 12, 1e-5);
  UNMAKE(q, k, v, out);
}
END_TEST

/* Query heads 0 and 1 share the first head of key and value, 2 and 3 the second; the default scale is 1 / sqrt(size).
 */
START_TEST(heads_of_key_and_value_are_shared_by_groups_of_query_heads) {
  enum { S = 7, D = 4 };
  owned *q = make_unit(float32, SHAPE(1, S, 4, D), 0, 1), *k = make_unit(float32, SHAPE(1, S, 2, D), 0, 2);
  owned *v = make_unit(float32, SHAPE(1, S, 2, D), 0, 3), *out = make(float32, SHAPE(1, S, 4, D), 0);
  ck_assert_int_eq(encode(both[_i], q, k, v, fl_none(), NULL, out), FL_OK);
  for (int64_t row = 0; row < S * 4; row++) {
    double weights[S], sum = 0;
    int64_t head = row % 4 / 2;
    for (int64_t key = 0; key < S; key++) {
      double score = 0;
      for (int64_t i = 0; i < D; i++)
        score += element(q, row * D + i) * element(k, (key * 2 + head) * D + i);
      weights[key] = exp(score / 2);
      sum += weights[key];
    }
    for (int64_t i = 0; i < D; i++) {
      double expected = 0;
      for (int64_t key = 0; key < S; key++)
        expected += weights[key] / sum * element(v, (key * 2 + head) * D + i);
      check_near(element(out, row * D + i), expected, 1e-6, row * D + i);
    }
  }
  UNMAKE(q, k, v, out);
}
END_TEST

/* Longer than a block of keys and than a tile of queries, strided, and with heads in the last dimension. */
START_TEST(O2_O5_encoder_attention_agrees_with_the_reference_in_every_layout) {
  static const int64_t lengths[] = {1, 63, 65, 150, 399};
  DLDataType dtype = floats[_i];
  for (int l = 0; l < 5; l++)
    for (int flat = 0; flat < 2; flat++) {
      int64_t s = lengths[l];
      owned *q = make_unit(dtype, SHAPE(2, s, 4, 20), 3, 1), *k = make_unit(dtype, SHAPE(2, s + 2, 2, 20), 1, 2);
      owned *v = flat ? make_unit(dtype, SHAPE(2, s + 2, 40), 2, 3) : make_unit(dtype, SHAPE(2, s + 2, 2, 20), 2, 3);
      owned *out[] = {make(dtype, SHAPE(2, s, 4, 20), 0), make(dtype, SHAPE(2, s, 4, 20), 6)};
      for (int which = 0; which < 2; which++)
        ck_assert_int_eq(encode(both[which], q, k, v, fl_float(0.7), NULL, out[which]), FL_OK);
      check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
      UNMAKE(q, k, v, out[0], out[1]);
    }
}
END_TEST

/* Tiles of one head are attended to together, of one thread so many that there are more. */
START_TEST(O5_queries_of_many_tiles_agree_with_the_reference) {
  DLDataType dtype = floats[_i];
  owned *q = make_unit(dtype, SHAPE(1, 1300, 2, 12), 0, 1), *k = make_unit(dtype, SHAPE(1, 140, 2, 12), 0, 2);
  owned *v = make_unit(dtype, SHAPE(1, 140, 2, 12), 0, 3);
  owned *out[] = {make(dtype, SHAPE(1, 1300, 2, 12), 0), make(dtype, SHAPE(1, 1300, 2, 12), 0)};
  for (int which = 0; which < 2; which++)
    ck_assert_int_eq(encode(both[which], q, k, v, fl_none(), NULL, out[which]), FL_OK);
  check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
  UNMAKE(q, k, v, out[0], out[1]);
}
END_TEST

/* Of large ones most weights are 0, or smaller than normal numbers; of the largest all but one. */
START_TEST(O5_encoder_attention_agrees_with_the_reference_whatever_the_scale) {
  static const double scales[] = {-0.7, 0, 20, -20, 1e-30, 0x1p70, -0x1p90};
  DLDataType dtype = floats[_i];
  owned *q = make_unit(dtype, SHAPE(1, 70, 2, 36), 0, 1), *k = make_unit(dtype, SHAPE(1, 300, 2, 36), 0, 2);
  owned *v = make_unit(dtype, SHAPE(1, 300, 2, 36), 0, 3);
  owned *out[] = {make(dtype, SHAPE(1, 70, 2, 36), 0), make(dtype, SHAPE(1, 70, 2, 36), 0)};
  for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
    for (int which = 0; which < 2; which++)
      ck_assert_int_eq(encode(both[which], q, k, v, fl_float(scales[i]), NULL, out[which]), FL_OK);
    check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
  }
  UNMAKE(q, k, v, out[0], out[1]);
}
END_TEST

/* Segments are as calls of their own, one may be empty. */
START_TEST(a_segment_sees_itself_only) {
  const int64_t ends[] = {0, 2, 2, 5};
  owned *q = make_unit(float32, SHAPE(2, 5, 2, 8), 0, 1), *k = make_unit(float32, SHAPE(2, 5, 2, 8), 0, 2);
  owned *v = make_unit(float32, SHAPE(2, 5, 2, 8), 0, 3), *out = make(float32, SHAPE(2, 5, 2, 8), 0);
  owned *parts = make(float32, SHAPE(2, 5, 2, 8), 0);
  for (int wide = 0; wide < 2; wide++) {
    owned *cu = make_indices(wide ? int64 : int32, SHAPE(4), ends);
    ck_assert_int_eq(encode(both[_i], q, k, v, fl_none(), cu, out), FL_OK);
    for (int segment = 0; segment < 3; segment++) {
      owned *all[] = {q, k, v, parts};
      for (int i = 0; i < 4; i++) {
        all[i]->tensor.strides = all[i]->strides;
        all[i]->shape[1] = ends[segment + 1] - ends[segment];
        all[i]->tensor.byte_offset = (uint64_t)ends[segment] * 16 * sizeof(float);
      }
      ck_assert_int_eq(encode(both[_i], q, k, v, fl_none(), NULL, parts), FL_OK);
      for (int i = 0; i < 4; i++) {
        all[i]->shape[1] = 5;
        all[i]->tensor.byte_offset = 0;
      }
    }
    ck_assert_mem_eq(out->tensor.data, parts->tensor.data, out->bytes);
    UNMAKE(cu);
  }
  UNMAKE(q, k, v, out, parts);
}
END_TEST

START_TEST(attention_to_no_key_is_zero_and_nan_stays_in_its_row) {
  owned *q = make_unit(float32, SHAPE(1, 3, 1, 4), 0, 1), *k = make(float32, SHAPE(1, 0, 1, 4), 0);
  owned *keys = make_unit(float32, SHAPE(1, 3, 1, 4), 0, 2), *out = make(float32, SHAPE(1, 3, 1, 4), 0);
  ck_assert_int_eq(encode(both[_i], q, k, k, fl_none(), NULL, out), FL_OK);
  for (int i = 0; i < 12; i++)
    ck_assert_double_eq(get(&out->tensor, i), 0);
  set(&q->tensor, 4, NAN);
  ck_assert_int_eq(encode(both[_i], q, keys, keys, fl_none(), NULL, out), FL_OK);
  for (int i = 0; i < 12; i++)
    ck_assert(isnan(get(&out->tensor, i)) == (i / 4 == 1));
  UNMAKE(q, k, keys, out);
}
END_TEST

START_TEST(O6_segments_out_of_order_are_bad_arguments_and_nothing_is_written) {
  static const struct {
    int64_t ends[3];
    const char *message;
  } cases[] = {
      {{1, 2, 4}, "argument 'cu_seqlens'[0] is 1, expected 0 to 0 (the start)"},
      {{0, 5, 4}, "argument 'cu_seqlens'[1] is 5, expected 0 to 4 (the one before and the tokens of 'query')"},
      {{0, -1, 4}, "argument 'cu_seqlens'[1] is -1, expected 0 to 4 (the one before and the tokens of 'query')"},
      {{0, 2, 3}, "argument 'cu_seqlens'[2] is 3, expected 4 to 4 (the tokens of 'query')"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    owned *q = make_unit(float32, SHAPE(1, 4, 1, 2), 0, 1), *out = make(float32, SHAPE(1, 4, 1, 2), 0);
    owned *untouched = make(float32, SHAPE(1, 4, 1, 2), 0), *ends = make_indices(int32, SHAPE(3), cases[i].ends);
    ck_assert_int_eq(encode(both[_i], q, q, q, fl_none(), ends, out), FL_EINVAL);
    ck_assert_str_eq(message, cases[i].message);
    ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
    UNMAKE(q, out, untouched, ends);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------- latent attention */

/* Sizes of a small latent attention. */
enum { HEADS = 3, NOPE = 8, ROPE = 4, V = 6, RANK = 16, ROW = RANK + ROPE };

/* A matrix of `rows` of `columns`, that are the columns from `first` on of a matrix of more. */
static DLTensor columns_of(owned *matrix, int64_t first, int64_t *shape) {
  DLTensor view = matrix->tensor;
  view.shape = shape;
  view.strides = matrix->strides;
  view.byte_offset = (uint64_t)first * view.dtype.bits / 8;
  return view;
}

static void prefill(const char *id, owned *query, owned *rows, int64_t keys, owned *weight, int64_t offset,
                    owned *out) {
  int64_t latent_shape[] = {keys, RANK}, rope_shape[] = {keys, ROPE};
  DLTensor kv_c = columns_of(rows, 0, latent_shape), k_pe = columns_of(rows, RANK, rope_shape);
  fl_value values[] = {value_of(query), fl_tensor(&kv_c), fl_tensor(&k_pe), value_of(weight),
                       fl_int(V),       fl_float(0.4),    fl_int(offset),   value_of(out)};
  check_call("mla_prefill", id, values, 8);
}

START_TEST(O5_prefill_agrees_with_the_reference) {
  static const int64_t sizes[][3] = {{1, 1, 0},        {5, 9, 4},     {70, 70, 0}, {70, 100, 30},
                                     {400, 420, 20},   {3, 40, 0},    {2, 5, 100}, {0, 4, 4},
                                     {40, 1300, 1260}, {2, 1200, 600}}; /* keys in parts, of which one is not seen */
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    DLDataType dtype = floats[_i];
    owned *query = make_unit(dtype, SHAPE(sizes[i][0], HEADS, NOPE + ROPE), 2, 1);
    owned *rows = make_unit(dtype, SHAPE(sizes[i][1], ROW), 1, 2);
    owned *weight = make_unit(dtype, SHAPE(HEADS * (NOPE + V), RANK), 3, 3);
    owned *out[] = {make(dtype, SHAPE(sizes[i][0], HEADS * V), 0), make(dtype, SHAPE(sizes[i][0], HEADS * V), 5)};
    for (int which = 0; which < 2; which++)
      prefill(both[which], query, rows, sizes[i][1], weight, sizes[i][2], out[which]);
    check_close("mla_prefill", &out[1]->tensor, &out[0]->tensor);
    UNMAKE(query, rows, weight, out[0], out[1]);
  }
}
END_TEST

/* What is not seen does not count, even if it is not finite and others in the block of queries see it. */
START_TEST(nan_in_a_token_spreads_to_later_queries_only) {
  owned *query = make_unit(float32, SHAPE(6, HEADS, NOPE + ROPE), 0, 1);
  owned *rows = make_unit(float32, SHAPE(6, ROW), 0, 2), *out = make(float32, SHAPE(6, HEADS * V), 0);
  owned *weight = make_unit(float32, SHAPE(HEADS * (NOPE + V), RANK), 0, 3);
  const double bad[] = {NAN, INFINITY};
  for (int i = 0; i < 2; i++) {
    set(&rows->tensor, 3 * ROW, bad[i]);
    prefill(both[_i], query, rows, 6, weight, 0, out);
    for (int64_t j = 0; j < 6 * HEADS * V; j++)
      ck_assert(isfinite(element(out, j)) == (j < 3 * HEADS * V));
  }
  UNMAKE(query, rows, weight, out);
}
END_TEST

/* Only then: beside a score that is more, they have no weight, however late it comes. */
START_TEST(scores_of_minus_infinity_count_where_there_are_no_others) {
  enum { KEYS = 200 };
  owned *q = make(float32, SHAPE(1, 2, 1, 1), 0), *k = make(float32, SHAPE(1, KEYS, 1, 1), 0);
  owned *v = make(float32, SHAPE(1, KEYS, 1, 1), 0), *out = make(float32, SHAPE(1, 2, 1, 1), 0);
  for (int i = 0; i < KEYS; i++) {
    set(&k->tensor, i, -INFINITY);
    set(&v->tensor, i, 5);
  }
  set(&q->tensor, 0, 1);
  set(&q->tensor, 1, 1);
  ck_assert_int_eq(encode(both[_i], q, k, v, fl_float(1), NULL, out), FL_OK);
  ck_assert(isnan(get(&out->tensor, 0)) && isnan(get(&out->tensor, 1)));
  set(&k->tensor, KEYS - 3, -70);
  set(&v->tensor, KEYS - 3, 2);
  ck_assert_int_eq(encode(both[_i], q, k, v, fl_float(1), NULL, out), FL_OK);
  ck_assert_double_eq(get(&out->tensor, 0), 2);
  ck_assert_double_eq(get(&out->tensor, 1), 2);
  UNMAKE(q, k, v, out);
}
END_TEST

/* Also where a product of smaller numbers than normal ones counts as 0, in the block of keys of the infinite one and in
 * those that have none. */
START_TEST(the_smallest_number_times_infinity_is_infinite) {
  enum { QUERIES = 40, KEYS = 300, SIZE = 21, NUMBER = 5 };
  owned *q = make_unit(bfloat16, SHAPE(1, QUERIES, 1, SIZE), 0, 1),
        *k = make_unit(bfloat16, SHAPE(1, KEYS, 1, SIZE), 0, 2);
  owned *v = make_unit(bfloat16, SHAPE(1, KEYS, 1, SIZE), 0, 3);
  owned *out[] = {make(bfloat16, SHAPE(1, QUERIES, 1, SIZE), 0), make(bfloat16, SHAPE(1, QUERIES, 1, SIZE), 0)};
  for (int query = 0; query < QUERIES; query++)
    set(&q->tensor, query * SIZE + NUMBER, ldexp(1, -133));
  set(&k->tensor, KEYS / 2 * SIZE + NUMBER, -INFINITY);
  for (int which = 0; which < 2; which++)
    ck_assert_int_eq(encode(both[which], q, k, v, fl_none(), NULL, out[which]), FL_OK);
  for (int i = 0; i < QUERIES * SIZE; i++)
    ck_each(isfinite(element(out[1], i)), "element %d is not finite", i);
  check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
  UNMAKE(q, k, v, out[0], out[1]);
}
END_TEST

/* Instruction sets that compute with bfloat16 in different ways. */
static const char *const variants_of_bfloat16[] = {"avx512", "avx512_bf16", "amx"};

static bool use_variant(const char *test, const char *variant) {
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variant, 1), 0);
  if (!try_plugin())
    return true;
  printf("skip: %s: no %s here\n", test, variant);
  return false;
}

START_TEST(O5_sizes_that_fill_no_tile_agree_with_the_reference) {
  static const int64_t sizes[] = {1, 21, 40, 72, 80, 96, 192};
  static const int64_t tokens[][2] = {{1, 1}, {17, 31}, {33, 257}, {400, 300}};
  if (!use_variant("O5_sizes_that_fill_no_tile_agree_with_the_reference", variants_of_bfloat16[_i]))
    return;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (size_t j = 0; j < sizeof tokens / sizeof tokens[0]; j++) {
      const int64_t *n = tokens[j];
      owned *q = make_unit(bfloat16, SHAPE(1, n[0], 2, sizes[i]), 1, 1);
      owned *k = make_unit(bfloat16, SHAPE(1, n[1], 2, sizes[i]), 2, 2),
            *v = make_unit(bfloat16, SHAPE(1, n[1], 2, sizes[i]), 3, 3);
      owned *out[] = {make(bfloat16, SHAPE(1, n[0], 2, sizes[i]), 0), make(bfloat16, SHAPE(1, n[0], 2, sizes[i]), 1)};
      for (int which = 0; which < 2; which++)
        ck_assert_int_eq(encode(both[which], q, k, v, fl_none(), NULL, out[which]), FL_OK);
      check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
      UNMAKE(q, k, v, out[0], out[1]);
    }
}
END_TEST

/* Tokens from 150 on see the bad one; others of their block of keys, and of their tile of queries, do not. */
START_TEST(what_is_not_finite_in_bfloat16_spreads_to_those_who_see_it_only) {
  enum { TOKENS = 300, BAD = 150 };
  const double bad[] = {NAN, INFINITY, -INFINITY};
  if (!use_variant("what_is_not_finite_in_bfloat16_spreads_to_those_who_see_it_only", variants_of_bfloat16[_i]))
    return;
  owned *query = make_unit(bfloat16, SHAPE(TOKENS, HEADS, NOPE + ROPE), 0, 1);
  owned *weight = make_unit(bfloat16, SHAPE(HEADS * (NOPE + V), RANK), 0, 3);
  for (int i = 0; i < 3; i++) {
    owned *rows = make_unit(bfloat16, SHAPE(TOKENS, ROW), 0, 2), *out = make(bfloat16, SHAPE(TOKENS, HEADS * V), 0);
    set(&rows->tensor, BAD * ROW, bad[i]);
    prefill(both[1], query, rows, TOKENS, weight, 0, out);
    for (int j = 0; j < TOKENS * HEADS * V; j++)
      ck_each(isfinite(element(out, j)) == (j < BAD * HEADS * V), "element %d is %g", j, element(out, j));
    UNMAKE(rows, out);
  }
  owned *out = make(bfloat16, SHAPE(TOKENS, HEADS * V), 0), *rows = make_unit(bfloat16, SHAPE(TOKENS, ROW), 0, 2);
  set(&query->tensor, BAD * HEADS * (NOPE + ROPE), NAN);
  prefill(both[1], query, rows, TOKENS, weight, 0, out);
  for (int j = 0; j < TOKENS * HEADS * V; j++)
    ck_each(isfinite(element(out, j)) == (j / V != BAD * HEADS), "element %d is %g", j, element(out, j));
  UNMAKE(query, weight, rows, out);
}
END_TEST

START_TEST(an_infinite_value_is_infinite_in_its_own_number_only) {
  enum { QUERIES = 40, KEYS = 300, SIZE = 40, NUMBER = 5 };
  if (!use_variant("an_infinite_value_is_infinite_in_its_own_number_only", variants_of_bfloat16[_i]))
    return;
  owned *q = make_unit(bfloat16, SHAPE(1, QUERIES, 1, SIZE), 0, 1),
        *k = make_unit(bfloat16, SHAPE(1, KEYS, 1, SIZE), 0, 2);
  owned *v = make_unit(bfloat16, SHAPE(1, KEYS, 1, SIZE), 0, 3), *out = make(bfloat16, SHAPE(1, QUERIES, 1, SIZE), 0);
  set(&v->tensor, KEYS / 2 * SIZE + NUMBER, INFINITY);
  ck_assert_int_eq(encode(both[1], q, k, v, fl_none(), NULL, out), FL_OK);
  for (int i = 0; i < QUERIES * SIZE; i++)
    ck_each(i % SIZE == NUMBER ? isinf(element(out, i)) : isfinite(element(out, i)), "element %d is %g", i,
            element(out, i));
  UNMAKE(q, k, v, out);
}
END_TEST

/* A query sees tokens up to its own: what lies behind changes nothing. */
START_TEST(prefill_is_causal_from_the_offset_on) {
  owned *query = make_unit(float32, SHAPE(2, HEADS, NOPE + ROPE), 0, 1);
  owned *rows = make_unit(float32, SHAPE(6, ROW), 0, 2), *out[2];
  owned *weight = make_unit(float32, SHAPE(HEADS * (NOPE + V), RANK), 0, 3);
  for (int pass = 0; pass < 2; pass++) {
    out[pass] = make(float32, SHAPE(2, HEADS * V), 0);
    prefill(both[_i], query, rows, 6, weight, 3, out[pass]);
    set(&rows->tensor, 4 * ROW, 7);
    set(&rows->tensor, 5 * ROW, NAN);
  }
  for (int64_t i = 0; i < HEADS * V; i++)
    ck_assert_double_eq(element(out[1], i), element(out[0], i));
  ck_assert_double_ne(element(out[1], HEADS * V), element(out[0], HEADS * V));
  ck_assert(isfinite(element(out[1], HEADS * V)));
  UNMAKE(query, rows, weight, out[0], out[1]);
}
END_TEST

enum { BLOCKS = 50, BLOCK = 16, SEQUENCES = 4, TABLE = 40 };
static const int64_t lengths[SEQUENCES] = {5, 0, 37, 600};

/* A cache, and tables that give each sequence blocks of its own, backwards. */
typedef struct paged {
  owned *cache, *table, *lens;
} paged;

static paged make_paged(DLDataType dtype, DLDataType index, const int64_t *lens) {
  paged p = {make_unit(dtype, SHAPE(BLOCKS, BLOCK, ROW), 2, 5), make(index, SHAPE(SEQUENCES, TABLE), 0),
             make_indices(index, SHAPE(SEQUENCES), lens)};
  int64_t block = BLOCKS;
  for (int64_t sequence = 0; sequence < SEQUENCES; sequence++)
    for (int64_t i = 0; i < TABLE; i++)
      set(&p.table->tensor, sequence * TABLE + i, i * BLOCK < lens[sequence] ? (double)--block : -77);
  return p;
}

static fl_status decode(const char *id, owned *query, const paged *p, owned *out, owned *lse) {
  fl_value values[] = {value_of(query), value_of(p->cache), value_of(p->table), value_of(p->lens),
                       fl_float(0.4),   fl_int(RANK),       value_of(out),      value_of(lse)};
  return call_impl("mla_decode", id, values, 8);
}

static int64_t table_at(const paged *p, int64_t sequence, int64_t i) {
  int64_t at = sequence * TABLE + i;
  return p->table->tensor.dtype.bits == 64 ? ((int64_t *)p->table->tensor.data)[at]
                                           : ((int32_t *)p->table->tensor.data)[at];
}

/* One head's results by the formula; gives back their log-sum-exp. */
static double decoded(const paged *p, owned *query, int64_t sequence, int64_t head, double results[RANK]) {
  double sum = 0;
  memset(results, 0, RANK * sizeof *results);
  for (int64_t row = 0; row < lengths[sequence]; row++) {
    int64_t at = (table_at(p, sequence, row / BLOCK) * BLOCK + row % BLOCK) * ROW;
    double score = 0;
    for (int64_t i = 0; i < ROW; i++)
      score += element(query, (sequence * HEADS + head) * ROW + i) * element(p->cache, at + i);
    sum += exp(0.4 * score);
    for (int64_t i = 0; i < RANK; i++)
      results[i] += exp(0.4 * score) * element(p->cache, at + i);
  }
  for (int64_t i = 0; i < RANK && sum > 0; i++)
    results[i] /= sum;
  return sum > 0 ? log(sum) : -INFINITY;
}

START_TEST(decode_attends_to_the_rows_of_a_sequence_wherever_its_blocks_are) {
  const char *id = both[_i % 2];
  DLDataType dtype = floats[_i / 2];
  double tolerance = dtype.bits == 32 ? 1e-5 : dtype.code == kDLBfloat ? 1e-2 : 1e-3, expected[RANK];
  for (int wide = 0; wide < 2; wide++) {
    paged p = make_paged(dtype, wide ? int64 : int32, lengths);
    owned *query = make_unit(dtype, SHAPE(SEQUENCES, HEADS, ROW), 3, 1);
    owned *out = make(dtype, SHAPE(SEQUENCES, HEADS, RANK), 2), *sums = make(float32, SHAPE(SEQUENCES, HEADS), 1);
    ck_assert_msg(decode(id, query, &p, out, sums) == FL_OK, "%s", message);
    for (int64_t row = 0; row < SEQUENCES * HEADS; row++) {
      double lse = decoded(&p, query, row / HEADS, row % HEADS, expected);
      check_near(element(sums, row), lengths[row / HEADS] ? lse : -INFINITY, 1e-5, row);
      for (int64_t i = 0; i < RANK; i++)
        check_near(element(out, row * RANK + i), expected[i], tolerance, row * RANK + i);
    }
    UNMAKE(p.cache, p.table, p.lens, query, out, sums);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------- few tasks over many keys */

/* Of sequences whose keys are cut into two parts: in both, in the first and one row of the second, in the first alone,
 * in neither. */
static op_case *make_long_decode(DLDataType dtype, int64_t padding) {
  const double tokens[] = {1200, 641, 3, 0};
  op_case *made = op_case_make("mla_decode query=f4x5x40 kv_cache=f75x16x40 block_table=i4x75%75 seq_lens=i4 scale=0.3 "
                               "kv_lora_rank=32",
                               dtype, padding);
  op_case_set_all(made, "seq_lens", tokens);
  return made;
}

static void check_results(const char *op, op_case *given, op_case *expected, const char *name) {
  check_close(op, op_case_tensor(given, name), op_case_tensor(expected, name));
}

/* Hidden: scores of all keys of the second part are -inf. */
START_TEST(O5_decode_joins_the_parts_of_long_sequences) {
  for (int hidden = 0; hidden < 2; hidden++) {
    op_case *calls[2];
    for (int which = 0; which < 2; which++) {
      op_case *c = calls[which] = make_long_decode(floats[_i], 3 * which);
      for (int64_t row = 640; row < 1200 && hidden; row++)
        op_case_set(c, "kv_cache", row * 40 + 35, -INFINITY);
      for (int64_t head = 0; head < 20 && hidden; head++)
        op_case_set(c, "query", head * 40 + 35, 1);
      op_case_run(c, both[which]);
    }
    check_results("mla_decode", calls[1], calls[0], "out");
    check_results("mla_decode", calls[1], calls[0], "lse");
    op_case_free(calls[0]);
    op_case_free(calls[1]);
  }
}
END_TEST

START_TEST(nan_in_a_later_part_stays_with_who_sees_it) {
  op_case *c = make_long_decode(floats[_i], 0);
  op_case_set(c, "kv_cache", 900 * 40 + 7, NAN);
  op_case_run(c, both[1]);
  for (int64_t i = 0; i < 4 * 5 * 32; i++)
    ck_each(isnan(op_case_get(c, "out", i)) == (i < 5 * 32), "element %d is %g", (int)i, op_case_get(c, "out", i));
  op_case_free(c);
}
END_TEST

START_TEST(O5_few_queries_over_many_keys_agree_with_the_reference) {
  static const int64_t sizes[][3] = {
      {1, 1200, 2}, {70, 1100, 1}, {33, 5000, 1}, {256, 256, 1}}; /* queries, keys, heads */
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    DLDataType dtype = floats[_i];
    owned *q = make_unit(dtype, SHAPE(1, sizes[i][0], sizes[i][2], 24), 1, 1);
    owned *k = make_unit(dtype, SHAPE(1, sizes[i][1], sizes[i][2], 24), 0, 2);
    owned *v = make_unit(dtype, SHAPE(1, sizes[i][1], sizes[i][2], 24), 2, 3);
    owned *out[] = {make(dtype, SHAPE(1, sizes[i][0], sizes[i][2], 24), 0),
                    make(dtype, SHAPE(1, sizes[i][0], sizes[i][2], 24), 1)};
    for (int which = 0; which < 2; which++)
      ck_assert_int_eq(encode(both[which], q, k, v, fl_none(), NULL, out[which]), FL_OK);
    check_close("mm_encoder_attn", &out[1]->tensor, &out[0]->tensor);
    UNMAKE(q, k, v, out[0], out[1]);
  }
}
END_TEST

/* Whatever the grain. */
static fl_status one_by_one(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  fl_status status = FL_OK;
  (void)grain;
  for (int64_t i = 0; i < n && !status; i++)
    status = body(user, i, i + 1);
  return status;
}

/* Tiles of one head go together in a thread, but for those of which one has a query that is not finite: of 250 queries
 * the last. */
START_TEST(a_split_over_threads_does_not_change_a_bit) {
  static const fl_parallel_for_fn ways[] = {NULL, one_by_one};
  static const char *const texts[] = {
      "mm_encoder_attn query=f1x250x1x40 key=f1x300x1x40 value=f1x300x1x40",
      "mm_encoder_attn query=f1x9x2x40 key=f1x1200x2x40 value=f1x1200x2x40",
      "mla_prefill query=f250x2x24 kv_c=f250x16 k_pe=f250x8 kv_b_proj=f44x16 v_head_dim=6 scale=0.3",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    for (int bad = 0; bad < 2; bad++) {
      op_case *calls[2];
      for (int way = 0; way < 2; way++) {
        registry_parallel_for = ways[way];
        load_plugin();
        op_case *c = calls[way] = op_case_make(texts[i], floats[_i], 0);
        if (bad) {
          const DLTensor *query = op_case_tensor(c, "query");
          op_case_set(c, "query", count(query) - 1, INFINITY);
        }
        op_case_run(c, both[1]);
      }
      const DLTensor *a = op_case_tensor(calls[0], "out"), *b = op_case_tensor(calls[1], "out");
      ck_assert_mem_eq(fl_data(a), fl_data(b), (size_t)count(a) * a->dtype.bits / 8);
      op_case_free(calls[0]);
      op_case_free(calls[1]);
    }
}
END_TEST

START_TEST(O6_blocks_and_lengths_out_of_range_are_bad_arguments_and_nothing_is_written) {
  static const struct {
    int64_t at, block, length; /* of sequence 2 */
    const char *message;
  } cases[] = {
      {2, BLOCKS, 37, "argument 'block_table'[2, 2] is 50, expected 0 to 49 (blocks of 'kv_cache')"},
      {0, -1, 37, "argument 'block_table'[2, 0] is -1, expected 0 to 49 (blocks of 'kv_cache')"},
      {0, 0, 641, "argument 'seq_lens'[2] is 641, expected 0 to 640 (rows in blocks of 'block_table')"},
      {0, 0, -1, "argument 'seq_lens'[2] is -1, expected 0 to 640 (rows in blocks of 'block_table')"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    paged p = make_paged(float32, int32, lengths);
    owned *query = make_unit(float32, SHAPE(SEQUENCES, HEADS, ROW), 0, 1);
    owned *out = make(float32, SHAPE(SEQUENCES, HEADS, RANK), 0), *lse = make(float32, SHAPE(SEQUENCES, HEADS), 0);
    owned *untouched = make(float32, SHAPE(SEQUENCES, HEADS, RANK), 0);
    set(&p.table->tensor, 2 * TABLE + cases[i].at, (double)cases[i].block);
    set(&p.lens->tensor, 2, (double)cases[i].length);
    ck_assert_int_eq(decode(both[_i], query, &p, out, lse), FL_EINVAL);
    ck_assert_str_eq(message, cases[i].message);
    ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
    ck_assert_mem_eq(lse->tensor.data, untouched->tensor.data, lse->bytes);
    UNMAKE(p.cache, p.table, p.lens, query, out, lse, untouched);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- merge */

static void merge(const char *id, owned *const *parts, owned *const *sums, owned *out, owned *lse) {
  fl_value values[] = {value_of(parts[0]), value_of(sums[0]), value_of(parts[1]),
                       value_of(sums[1]),  value_of(out),     value_of(lse)};
  check_call("merge_attn_states", id, values, 6);
}

/* Weights 1/4 and 3/4; one part alone; +inf is no part; neither: the prefix, whatever it is. */
START_TEST(merged_states_are_weighted_by_their_sums) {
  const double p[] = {0, 1, -INFINITY, INFINITY, -INFINITY}, s[] = {log(3), -INFINITY, 2, 0.5, INFINITY};
  const double expected[] = {14, 8, 16, 16, 8}, lse[] = {log(4), 1, 2, 0.5, -INFINITY};
  enum { N = 5, D = 300 };
  for (int t = 0; t < 3; t++) {
    owned *parts[] = {make(floats[t], SHAPE(N, 1, D), 3), make(floats[t], SHAPE(N, 1, D), 0)};
    owned *sums[] = {make(float32, SHAPE(1, N), 0), make(float32, SHAPE(1, N), 0)};
    owned *out = make(floats[t], SHAPE(N, 1, D), 2), *merged = make(float32, SHAPE(1, N), 0);
    for (int64_t i = 0; i < N * D; i++)
      for (int which = 0; which < 2; which++)
        set(&parts[which]->tensor, element_offset(&parts[which]->tensor, i), which ? 16 : 8);
    set(&parts[1]->tensor, 4 * D, NAN); /* of the token that has neither */
    for (int64_t i = 0; i < N; i++) {
      set(&sums[0]->tensor, i, p[i]);
      set(&sums[1]->tensor, i, s[i]);
    }
    merge(both[_i], parts, sums, out, merged);
    for (int64_t i = 0; i < N * D; i++)
      check_near(element(out, i), expected[i / D], 1e-4, i);
    for (int64_t i = 0; i < N; i++)
      check_near(get(&merged->tensor, i), lse[i], 1e-6, i);
    UNMAKE(parts[0], parts[1], sums[0], sums[1], out, merged);
  }
}
END_TEST

/* Attention over a context in two parts, merged, is attention over the context. */
START_TEST(merged_parts_of_a_context_are_attention_to_the_whole) {
  static const int64_t whole[SEQUENCES] = {40, 40, 40, 40}, first[SEQUENCES] = {16, 32, 16, 32};
  const char *id = both[_i];
  paged p = make_paged(float32, int32, whole);
  owned *query = make_unit(float32, SHAPE(SEQUENCES, HEADS, ROW), 0, 1), *out[3], *lse[3], *sums[3];
  for (int part = 0; part < 3; part++) {
    out[part] = make(float32, SHAPE(SEQUENCES, HEADS, RANK), 0);
    lse[part] = make(float32, SHAPE(SEQUENCES, HEADS), 0);
    sums[part] = make(float32, SHAPE(HEADS, SEQUENCES), 0);
    for (int64_t i = 0; i < SEQUENCES; i++) {
      set(&p.lens->tensor, i, (double)(part == 0 ? 40 : part == 1 ? first[i] : 40 - first[i]));
      for (int64_t j = 0; part == 2 && j < 3 - first[i] / BLOCK; j++)
        set(&p.table->tensor, i * TABLE + j, (double)table_at(&p, i, j + first[i] / BLOCK));
    }
    ck_assert_int_eq(decode(id, query, &p, out[part], lse[part]), FL_OK);
    for (int64_t i = 0; i < SEQUENCES * HEADS; i++)
      set(&sums[part]->tensor, i % HEADS * SEQUENCES + i / HEADS, get(&lse[part]->tensor, i));
  }
  owned *merged = make(float32, SHAPE(SEQUENCES, HEADS, RANK), 0), *sum = make(float32, SHAPE(HEADS, SEQUENCES), 0);
  merge(id, out + 1, sums + 1, merged, sum);
  for (int64_t i = 0; i < SEQUENCES * HEADS * RANK; i++)
    check_near(get(&merged->tensor, i), get(&out[0]->tensor, i), 1e-6, i);
  for (int64_t i = 0; i < SEQUENCES * HEADS; i++)
    check_near(get(&sum->tensor, i), get(&sums[0]->tensor, i), 1e-6, i);
  for (int part = 0; part < 3; part++)
    UNMAKE(out[part], lse[part], sums[part]);
  UNMAKE(p.cache, p.table, p.lens, query, merged, sum);
}
END_TEST

/* What is left of two large values that nearly cancel is their rounding. */
START_TEST(parts_that_cancel_leave_what_the_reference_leaves) {
  static const char *const variants[] = {"baseline", "avx2", "avx512"};
  enum { N = 7, D = 300 };
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variants[_i], 1), 0);
  if (try_plugin()) {
    printf("skip: parts_that_cancel_leave_what_the_reference_leaves: no %s here\n", variants[_i]);
    return;
  }
  owned *parts[] = {make_filled(float32, SHAPE(N, 1, D), 0, 1), make(float32, SHAPE(N, 1, D), 0)};
  owned *sums[] = {make_filled(float32, SHAPE(1, N), 0, 2), make_filled(float32, SHAPE(1, N), 0, 3)};
  owned *out[2], *merged[2];
  for (int64_t i = 0; i < N * D; i++) {
    double odds = exp(get(&sums[0]->tensor, i / D) - get(&sums[1]->tensor, i / D));
    set(&parts[0]->tensor, i, get(&parts[0]->tensor, i) * 1e30);
    set(&parts[1]->tensor, i, -odds * get(&parts[0]->tensor, i));
  }
  for (int which = 0; which < 2; which++) {
    out[which] = make(float32, SHAPE(N, 1, D), 0);
    merged[which] = make(float32, SHAPE(1, N), 0);
    merge(both[which], parts, sums, out[which], merged[which]);
  }
  ck_assert_mem_eq(out[0]->tensor.data, out[1]->tensor.data, out[0]->bytes);
  UNMAKE(parts[0], parts[1], sums[0], sums[1], out[0], out[1], merged[0], merged[1]);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_bad_arguments_are_refused_with_a_reason) {
  owned *q = make(float32, SHAPE(1, 4, 6, 8), 0), *k = make(float32, SHAPE(1, 4, 3, 8), 0);
  owned *four = make(float32, SHAPE(1, 4, 4, 8), 0), *flat = make(float32, SHAPE(1, 4, 48), 0);
  owned *longer = make(float32, SHAPE(1, 5, 3, 8), 0), *ends = make(int32, SHAPE(2), 0),
        *no_ends = make(int32, SHAPE(0), 0);
  owned *out = make(float32, SHAPE(1, 4, 6, 8), 0), *x = make(float32, SHAPE(5, HEADS, ROW), 0);
  owned *cache = make(float32, SHAPE(4, 2, ROW), 0), *table = make(int32, SHAPE(5, 3), 0),
        *lens = make(int64, SHAPE(5), 0);
  owned *latent = make(float32, SHAPE(5, HEADS, RANK), 0), *lse = make(float32, SHAPE(5, HEADS), 0);
  owned *sums = make(float32, SHAPE(HEADS, 5), 0), *merged = make(float32, SHAPE(HEADS, 5), 0);
  owned *out2 = make(float32, SHAPE(5, HEADS, ROW), 0);
  owned *other = make(float32, SHAPE(5, HEADS, ROW), 0);
  fl_value none = fl_none(), Q = value_of(q), K = value_of(k), OUT = value_of(out), X = value_of(x),
           O2 = value_of(out2);
  fl_value CACHE = value_of(cache), TABLE_ = value_of(table), LENS = value_of(lens), half_one = fl_float(0.5);
  fl_value LATENT = value_of(latent), LSE = value_of(lse), SUMS = value_of(sums), OTHER = value_of(other);
  const struct {
    const char *op, *message;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"mm_encoder_attn",
       "argument 'key': 4 heads, expected a divisor of the 6 heads of 'query'",
       7,
       {Q, value_of(four), value_of(four), none, none, none, OUT}},
      {"mm_encoder_attn",
       "argument 'query': 3 dimensions, expected 4 (of it, 'key' or 'value': else nothing says the size of a head)",
       7,
       {value_of(flat), value_of(flat), value_of(flat), none, none, none, OUT}},
      {"mm_encoder_attn",
       "argument 'key': 5 tokens, expected the 4 of 'query' while 'cu_seqlens' is given",
       7,
       {Q, value_of(longer), value_of(longer), none, value_of(ends), none, OUT}},
      {"mm_encoder_attn",
       "argument 'cu_seqlens': shape [0], expected [segments + 1]",
       7,
       {Q, K, K, none, value_of(no_ends), none, OUT}},
      {"mm_encoder_attn", "argument 'max_seqlen': -1, expected 0 or more", 7, {Q, K, K, none, none, fl_int(-1), OUT}},
      {"mm_encoder_attn",
       "result 'out': shape [1, 4, 48], expected [1, 4, 6, 8] (that of 'query')",
       7,
       {Q, K, K, none, none, none, value_of(flat)}},
      {"mla_decode",
       "argument 'kv_lora_rank': 0, expected 1 to 20 (the last dimension of 'query')",
       8,
       {X, CACHE, TABLE_, LENS, half_one, fl_int(0), LATENT, LSE}},
      {"mla_decode",
       "argument 'kv_lora_rank': 21, expected 1 to 20 (the last dimension of 'query')",
       8,
       {X, CACHE, TABLE_, LENS, half_one, fl_int(21), LATENT, LSE}},
      {"mla_decode",
       "argument 'kv_cache': shape [5, 3, 16], expected [blocks, size, 20] (c of 'query')",
       8,
       {X, LATENT, TABLE_, LENS, half_one, fl_int(RANK), LATENT, LSE}},
      {"merge_attn_states",
       "argument 'prefix_lse': shape [5, 3], expected [3, 5] (h of 'prefix_output')",
       6,
       {X, LSE, OTHER, SUMS, O2, value_of(merged)}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", cases[i].op, cases[i].message);
    check_refused(cases[i].op, expected, cases[i].values, cases[i].n);
  }
  UNMAKE(q, k, four, flat, longer, ends, no_ends, out, x, cache, table, lens, latent, lse, sums, merged, out2, other);
}
END_TEST

START_TEST(O6_bad_arguments_of_prefill_are_refused_with_a_reason) {
  owned *query = make(float32, SHAPE(2, HEADS, NOPE + ROPE), 0), *kv_c = make(float32, SHAPE(4, RANK), 0);
  owned *k_pe = make(float32, SHAPE(4, ROPE), 0), *weight = make(float32, SHAPE(HEADS * (NOPE + V), RANK), 0);
  owned *out = make(float32, SHAPE(2, HEADS * V), 0), *pe = make(float32, SHAPE(3, 1, ROPE), 0);
  const struct {
    const char *message;
    owned *k_pe;
    int64_t v;
    int64_t offset;
  } cases[] = {
      {"mla_prefill: argument 'k_pe': shape [3, 1, 4], expected [4, r] or [4, 1, r] (t of 'kv_c')", pe, V, 0},
      {"mla_prefill: argument 'query_offset': -1, expected 0 or more", k_pe, V, -1},
      {"mla_prefill: argument 'query': shape [2, 3, 12], expected [2, 3, 13] (p+r, p = 9 of 'kv_b_proj', r = 4 of "
       "'k_pe')",
       k_pe, V - 1, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fl_value values[] = {value_of(query),    value_of(kv_c), value_of(cases[i].k_pe), value_of(weight),
                         fl_int(cases[i].v), fl_float(1),    fl_int(cases[i].offset), value_of(out)};
    check_refused("mla_prefill", cases[i].message, values, 8);
  }
  UNMAKE(query, kv_c, k_pe, weight, out, pe);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, attention_is_the_mean_of_values_weighted_by_softmax, 0, 2);
  tcase_add_loop_test(tests, heads_of_key_and_value_are_shared_by_groups_of_query_heads, 0, 2);
  tcase_add_loop_test(tests, O2_O5_encoder_attention_agrees_with_the_reference_in_every_layout, 0, 3);
  tcase_add_loop_test(tests, O5_queries_of_many_tiles_agree_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, O5_encoder_attention_agrees_with_the_reference_whatever_the_scale, 0, 3);
  tcase_add_loop_test(tests, a_segment_sees_itself_only, 0, 2);
  tcase_add_loop_test(tests, attention_to_no_key_is_zero_and_nan_stays_in_its_row, 0, 2);
  tcase_add_loop_test(tests, O6_segments_out_of_order_are_bad_arguments_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O5_prefill_agrees_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, nan_in_a_token_spreads_to_later_queries_only, 0, 2);
  tcase_add_loop_test(tests, scores_of_minus_infinity_count_where_there_are_no_others, 0, 2);
  tcase_add_test(tests, the_smallest_number_times_infinity_is_infinite);
  tcase_add_loop_test(tests, O5_sizes_that_fill_no_tile_agree_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, what_is_not_finite_in_bfloat16_spreads_to_those_who_see_it_only, 0, 3);
  tcase_add_loop_test(tests, an_infinite_value_is_infinite_in_its_own_number_only, 0, 3);
  tcase_add_loop_test(tests, prefill_is_causal_from_the_offset_on, 0, 2);
  tcase_add_loop_test(tests, decode_attends_to_the_rows_of_a_sequence_wherever_its_blocks_are, 0, 6);
  tcase_add_loop_test(tests, O5_decode_joins_the_parts_of_long_sequences, 0, 3);
  tcase_add_loop_test(tests, nan_in_a_later_part_stays_with_who_sees_it, 0, 3);
  tcase_add_loop_test(tests, O5_few_queries_over_many_keys_agree_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, a_split_over_threads_does_not_change_a_bit, 0, 3);
  tcase_add_loop_test(tests, O6_blocks_and_lengths_out_of_range_are_bad_arguments_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, merged_states_are_weighted_by_their_sums, 0, 2);
  tcase_add_loop_test(tests, merged_parts_of_a_context_are_attention_to_the_whole, 0, 2);
  tcase_add_loop_test(tests, parts_that_cancel_leave_what_the_reference_leaves, 0, 3);
  tcase_add_test(tests, O6_bad_arguments_are_refused_with_a_reason);
  tcase_add_test(tests, O6_bad_arguments_of_prefill_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_attention", add_tests, 20);
}
