/*
 * Latent attention over a paged cache: rows written by concat_and_cache_mla, and mla_paged_attention held against
 * mla_prefill, which has each sequence's rows in one piece.
 */
#include "tests/op_case.h"

#include <math.h>

enum { HEADS = 3, NOPE = 8, ROPE = 4, V = 6, RANK = 16, ROW = RANK + ROPE, QUERY = NOPE + ROPE };
enum { BLOCKS = 12, SIZE = 4, TABLE = 4, SEQUENCES = 4, TOKENS = 11 };

/* Sequences of one token, of several, of none, and of a whole prompt; two tokens of padding behind them. */
static const int64_t starts[] = {0, 1, 4, 4, 9}, lens[] = {13, 7, 5, 5};

/* In no order; what no row needs is nowhere. */
static const int64_t blocks[][TABLE] = {{5, 0, 11, 3}, {7, 2, -1, -1}, {1, 9, -1, -1}, {4, 8, -1, -1}};

static const char *text = "mla_paged_attention query=f11x3x12 kv_cache=f12x4x20 kv_b_proj=f42x16 block_table=i4x4%12 "
                          "query_start_loc=i5 seq_lens=i4 kv_lora_rank=16 v_head_dim=6 scale=0.4";

static op_case *make_case(DLDataType dtype, int64_t padding) {
  op_case *c = op_case_make(text, dtype, padding);
  for (int i = 0; i <= SEQUENCES; i++)
    op_case_set(c, "query_start_loc", i, (double)starts[i]);
  for (int i = 0; i < SEQUENCES; i++) {
    op_case_set(c, "seq_lens", i, (double)lens[i]);
    for (int64_t j = 0; j < TABLE; j++)
      op_case_set(c, "block_table", i * TABLE + j, (double)blocks[i][j]);
  }
  return c;
}

/* Element [row, column] of a sequence in the cache. */
static double cached(op_case *c, int64_t sequence, int64_t row, int64_t column) {
  int64_t block = (int64_t)op_case_get(c, "block_table", sequence * TABLE + row / SIZE);
  return op_case_get(c, "kv_cache", (block * SIZE + row % SIZE) * ROW + column);
}

/* The same sequence alone, by the reference of mla_prefill. */
static owned *alone(op_case *c, int64_t sequence, DLDataType dtype) {
  int64_t n = starts[sequence + 1] - starts[sequence], keys = lens[sequence];
  owned *query = make(dtype, SHAPE(n, HEADS, QUERY), 0), *kv_c = make(dtype, SHAPE(keys, RANK), 0);
  owned *k_pe = make(dtype, SHAPE(keys, ROPE), 0), *out = make(dtype, SHAPE(n, HEADS * V), 0);
  for (int64_t i = 0; i < n * HEADS * QUERY; i++)
    set(&query->tensor, i, op_case_get(c, "query", starts[sequence] * HEADS * QUERY + i));
  for (int64_t row = 0; row < keys; row++)
    for (int64_t i = 0; i < ROW; i++)
      set(i < RANK ? &kv_c->tensor : &k_pe->tensor, i < RANK ? row * RANK + i : row * ROPE + i - RANK,
          cached(c, sequence, row, i));
  fl_value values[] = {fl_tensor(&query->tensor),
                       fl_tensor(&kv_c->tensor),
                       fl_tensor(&k_pe->tensor),
                       *op_case_value(c, "kv_b_proj"),
                       fl_int(V),
                       fl_float(0.4),
                       fl_int(keys - n),
                       fl_tensor(&out->tensor)};
  check_call("mla_prefill", "reference.c", values, 8);
  UNMAKE(query, kv_c, k_pe);
  return out;
}

START_TEST(each_sequence_is_as_if_it_were_alone_and_its_rows_in_one_piece) {
  DLDataType dtype = floats[_i / 2];
  double tolerance =
      dtype.bits == 32 ? 1e-5 : 2e-2; /* one token is computed in the latent space, which rounds elsewhere */
  op_case *c = make_case(dtype, 3);
  op_case_run(c, both[_i % 2]);
  for (int64_t sequence = 0; sequence < SEQUENCES; sequence++) {
    owned *expected = alone(c, sequence, dtype);
    for (int64_t i = starts[sequence] * HEADS * V; i < starts[sequence + 1] * HEADS * V; i++)
      ck_assert_double_eq_tol(op_case_get(c, "out", i), get(&expected->tensor, i - starts[sequence] * HEADS * V),
                              tolerance);
    unmake(expected);
  }
  op_case_free(c);
}
END_TEST

START_TEST(tokens_behind_the_last_sequence_are_padding_and_rows_behind_a_sequence_are_not_read) {
  op_case *c = make_case(float32, 0), *poisoned = make_case(float32, 0);
  for (int64_t i = 13 % SIZE * ROW; i < SIZE * ROW; i++) /* the last block of sequence 0, behind its rows */
    op_case_set(poisoned, "kv_cache", (int64_t)op_case_get(poisoned, "block_table", 3) * SIZE * ROW + i, NAN);
  for (int64_t i = 9 * HEADS * QUERY; i < TOKENS * HEADS * QUERY; i++)
    op_case_set(poisoned, "query", i, NAN);
  op_case_run(c, both[_i]);
  op_case_run(poisoned, both[_i]);
  for (int64_t i = 0; i < 9 * HEADS * V; i++)
    ck_assert_double_eq(op_case_get(c, "out", i), op_case_get(poisoned, "out", i));
  for (int64_t i = 9 * HEADS * V; i < TOKENS * HEADS * V; i++)
    ck_assert_double_eq(op_case_get(poisoned, "out", i), 0);
  op_case_free(c);
  op_case_free(poisoned);
}
END_TEST

static const struct {
  const char *argument;
  int64_t at;
  double value;
  const char *words;
} wrong[] = {
    {"seq_lens", 1, 2, "argument 'seq_lens'[1] is 2, expected 3 or more (tokens of the sequence)"},
    {"seq_lens", 0, 17, "argument 'seq_lens'[0] is 17, expected 0 to 16 (rows in blocks of 'block_table')"},
    {"block_table", 4, 12, "argument 'block_table'[1, 0] is 12, expected 0 to 11 (blocks of 'kv_cache')"},
    {"block_table", 5, -1, "argument 'block_table'[1, 1] is -1, expected 0 to 11 (blocks of 'kv_cache')"},
    {"query_start_loc", 2, 12,
     "argument 'query_start_loc'[2] is 12, expected 1 to 11 (from the one before to the number of tokens)"},
    {"query_start_loc", 0, 1, "argument 'query_start_loc'[0] is 1, expected 0 to 0 (the first sequence begins at 0)"},
};
enum { N_WRONG = sizeof wrong / sizeof wrong[0] };

START_TEST(an_index_that_leads_nowhere_is_refused_with_its_sequence) {
  op_case *c = make_case(float32, 0);
  op_case_set(c, wrong[_i / 2].argument, wrong[_i / 2].at, wrong[_i / 2].value);
  op_case_refused_by(c, both[_i % 2], wrong[_i / 2].words);
  op_case_free(c);
}
END_TEST

static const char *const refused[][2] = {
    {"mla_paged_attention query=f2x3x12 kv_cache=f3x4x20 kv_b_proj=f42x16 block_table=i1x1 query_start_loc=i2 "
     "seq_lens=i1 kv_lora_rank=0 v_head_dim=6 scale=0.4",
     "mla_paged_attention: argument 'kv_b_proj': shape [42, 16], expected [-6, 0] (h*(q - c + kv_lora_rank + "
     "v_head_dim), h = 3 of 'query', q = 12 of 'query', c = 20 of 'kv_cache', kv_lora_rank = 0 of 'kv_lora_rank', "
     "v_head_dim = 6 of 'v_head_dim')"},
    {"mla_paged_attention query=f2x0x12 kv_cache=f3x4x20 kv_b_proj=f0x21 block_table=i1x1 query_start_loc=i2 "
     "seq_lens=i1 kv_lora_rank=21 v_head_dim=6 scale=0.4",
     "mla_paged_attention: argument \'kv_lora_rank': 21, expected 1 to 20 (a row of 'kv_cache')"},
    {"mla_paged_attention query=f2x0x12 kv_cache=f3x4x20 kv_b_proj=f0x16 block_table=i1x1 query_start_loc=i2 "
     "seq_lens=i1 kv_lora_rank=16 v_head_dim=0 scale=0.4",
     "mla_paged_attention: argument \'v_head_dim': 0, expected 1 or more"},
    {"mla_paged_attention query=f2x0x3 kv_cache=f3x4x20 kv_b_proj=f0x16 block_table=i1x1 query_start_loc=i2 "
     "seq_lens=i1 kv_lora_rank=16 v_head_dim=6 scale=0.4",
     "mla_paged_attention: argument \'query': heads of 3, expected 4 or more (what a row of 'kv_cache' has behind the "
     "latent)"},
    {"mla_paged_attention query=f2x3x12 kv_cache=f3x4x20 kv_b_proj=f42x16 block_table=i1x1 query_start_loc=i2 "
     "seq_lens=i1 kv_lora_rank=16 v_head_dim=6 scale=nan",
     "mla_paged_attention: argument \'scale': nan, expected a finite number"},
    {"concat_and_cache_mla kv_c=f2x16 k_pe=f2x4 kv_cache=f3x4x20 slot_mapping=i3",
     "concat_and_cache_mla: argument \'slot_mapping': 3 slots, expected at most 2 (tokens of 'kv_c')"},
    {"concat_and_cache_mla kv_c=f2x16 k_pe=f2x4 kv_cache=f3x4x21 slot_mapping=i2",
     "concat_and_cache_mla: argument \'kv_cache': shape [3, 4, 21], expected [blocks, size, 20] (l + r, l = 16 of "
     "'kv_c', r = 4 of 'k_pe')"},
};
enum { N_REFUSED = sizeof refused / sizeof refused[0] };

START_TEST(sizes_that_do_not_go_together_are_refused) {
  op_case_refused(refused[_i][0], refused[_i][1]);
}
END_TEST

/* Nothing else of the cache changes; of equal slots the last token counts; behind the last slot no token is read. */
START_TEST(rows_go_to_their_slots) {
  DLDataType dtype = floats[_i / 2];
  op_case *c = op_case_make("concat_and_cache_mla kv_c=f5x16 k_pe=f5x4 kv_cache=f3x4x20 slot_mapping=i4", dtype, 3);
  const double slots[] = {7, -1, 0, 7};
  double before[3 * 4 * 20];
  op_case_set_all(c, "slot_mapping", slots);
  for (int i = 0; i < 3 * 4 * 20; i++)
    before[i] = op_case_get(c, "kv_cache", i);
  for (int i = 0; i < 16; i++)
    op_case_set(c, "kv_c", 4 * 16 + i, NAN);
  op_case_run(c, both[_i % 2]);
  for (int slot = 0; slot < 12; slot++)
    for (int i = 0; i < ROW; i++) {
      int token = slot == 7 ? 3 : slot == 0 ? 2 : -1;
      double expected = token < 0  ? before[slot * ROW + i]
                        : i < RANK ? op_case_get(c, "kv_c", token * RANK + i)
                                   : op_case_get(c, "k_pe", token * ROPE + i - RANK);
      ck_assert_double_eq(op_case_get(c, "kv_cache", slot * ROW + i), expected);
    }
  op_case_free(c);
}
END_TEST

START_TEST(a_slot_behind_the_cache_is_refused_and_nothing_is_written) {
  op_case *c = op_case_make("concat_and_cache_mla kv_c=f2x16 k_pe=f2x4 kv_cache=f3x4x20 slot_mapping=i2", float32, 0);
  double before = op_case_get(c, "kv_cache", 0);
  op_case_set_all(c, "slot_mapping", (double[]){0, 12});
  op_case_refused_by(c, both[_i],
                     "argument 'slot_mapping'[1] is 12, expected -9223372036854775808 to 11 (rows of "
                     "'kv_cache'; below 0: skipped)");
  ck_assert_double_eq(op_case_get(c, "kv_cache", 0), before);
  op_case_free(c);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, each_sequence_is_as_if_it_were_alone_and_its_rows_in_one_piece, 0, 6);
  tcase_add_loop_test(tests, tokens_behind_the_last_sequence_are_padding_and_rows_behind_a_sequence_are_not_read, 0, 2);
  tcase_add_loop_test(tests, an_index_that_leads_nowhere_is_refused_with_its_sequence, 0, 2 * N_WRONG);
  tcase_add_loop_test(tests, sizes_that_do_not_go_together_are_refused, 0, N_REFUSED);
  tcase_add_loop_test(tests, rows_go_to_their_slots, 0, 6);
  tcase_add_loop_test(tests, a_slot_behind_the_cache_is_refused_and_nothing_is_written, 0, 2);
}

int main(void) {
  return run_suite("ops_latent_attention", add_tests, 20);
}
