/*
 * Weights of 4 bits times a few rows: see four_bit_linear.h. Decoding takes the time to read the weight, so each word
 * of it is read once for all rows, and its 8 values become floats in registers: a nibble of the mantissa's bits with an
 * exponent that makes these its units is that value and a power of two, which goes with the zero point. Or they become
 * pairs of bfloat16 (four_bit_pairs.h). Rows are computed as 1, 2, 4 or 8, with as many vectors of columns that there
 * are SUMS sums; rows that lack are zeros.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/four_bit_linear.h"
#include "plugins/cpu/flagos/four_bit_pairs.h"
#include "plugins/cpu/flagos/lanes.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/scratch.h"
#include "plugins/integers.h"

enum { MOST_ROWS = 8, SUMS = 8, NIBBLES = 8, GRAIN_BYTES = 256 << 10 };

static int64_t rows_of_tile(int64_t m) {
  return m > 4 ? 8 : m > 2 ? 4 : m;
}

/* Columns `first` to first + n - 1 of a row of the result, n <= CPU_BLOCK. */
static void end_columns(const cpu_four_bit_linear *linear, int64_t row, int64_t first, int64_t n, float *sums) {
  float bias[CPU_BLOCK];
  if (linear->bias) {
    cpu_block_types[linear->bias_dtype].load(bias, linear->bias, first, n);
    for (int64_t i = 0; i < n; i++)
      sums[i] += bias[i];
  }
  cpu_block_types[linear->out.dtype].store(cpu_matrix_row(linear->out, row), first, sums, n);
}

/* ------------------------------------------------------------------------------------------ words of AWQ and GPTQ */

/*
 * A block is NIBBLES vectors of columns: of AWQ a vector of words, of GPTQ so many. A chunk is some rows of it that are
 * of one group. Blocks are computed a stripe at a time, chunk by chunk, while the chunks of the next rows are fetched.
 */
enum { BLOCK = NIBBLES * LANES, CHUNK_ROWS = 128, STRIPE = 8 };
_Static_assert((int)BLOCK <= (int)CPU_BLOCK, "a block's columns end together");

/* What is to be fetched of rows of words. */
typedef struct ahead {
  const char *row;
  int64_t at, width, stride; /* bytes */
} ahead;

SPECIALISED void fetch_rows(ahead *next, int n_vectors) {
  fetch(next->row + next->at, n_vectors * LANES * 4);
  next->at += n_vectors * LANES * 4;
  if (next->at >= next->width) {
    next->at = 0;
    next->row += next->stride;
  }
}

typedef struct chunk {
  const char *words;
  int64_t stride, n;     /* rows of words */
  ahead *next;           /* as much of it is fetched as the chunk has */
  const float *x;        /* [rows of the weight, rows of x]; */
  const uint32_t *pairs; /* or [pairs of rows of the weight, rows of x, parts], and then */
  const float *x_sums;   /* [rows of x], of this chunk; zeros are less 8 */
  const float *zeros, *scales;
  float *totals; /* [NIBBLES, rows of x, LANES] */
} chunk;

/* Nibble `i` of words of which the upper half, for the last four, was moved down: plus power_of_nibble. */
SPECIALISED vector nibble(vector_words words, int i) {
  return (vector)((words & 15u << 4 * (i % 4)) | (uint32_t)(150 - 4 * (i % 4)) << 23);
}

static float power_of_nibble(int i) {
  return (float)(1 << (23 - 4 * (i % 4)));
}

SPECIALISED void add_totals(int n_rows, const chunk *c, int place, const vector *sums) {
  vector scale = *(const vector *)(c->scales + place * LANES);
  UNROLL for (int r = 0; r < n_rows; r++) {
    vector *total = (vector *)(c->totals + (place * n_rows + r) * LANES);
    *total += scale * sums[r];
  }
}

/* A word has 8 columns, those at one place in the words of a vector make a vector; `zeros` are [NIBBLES, LANES]. */
SPECIALISED void multiply_awq(int n_rows, const chunk *c) {
  const int places = SUMS / n_rows;
  UNROLL for (int first = 0; first < NIBBLES; first += places) {
    vector sum[SUMS] = {0};
    const char *row = c->words;
    const float *x = c->x;
    ahead next = *c->next;
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += n_rows) {
      vector_words words = *(const vector_words *)(const void *)row, upper = words >> 16;
      if (!first)
        fetch_rows(&next, 1);
      UNROLL for (int p = 0; p < places; p++) {
        vector value =
            nibble(first + p < 4 ? words : upper, first + p) - *(const vector *)(c->zeros + (first + p) * LANES);
        UNROLL for (int r = 0; r < n_rows; r++) sum[p * n_rows + r] += value * x[r];
      }
    }
    *c->next = next;
    UNROLL for (int p = 0; p < places; p++) add_totals(n_rows, c, first + p, sum + p * n_rows);
  }
}

/* A word has 8 rows of a column; `zeros` are [4, NIBBLES, LANES]: those of each place of a nibble. */
SPECIALISED void multiply_gptq(int n_rows, const chunk *c) {
  const int vectors = SUMS / n_rows;
  for (int first = 0; first < NIBBLES; first += vectors) {
    vector sum[SUMS] = {0};
    const char *row = c->words + first * LANES * 4;
    const float *x = c->x;
    ahead next = *c->next;
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += NIBBLES * n_rows) {
      fetch_rows(&next, vectors);
      UNROLL for (int v = 0; v < vectors; v++) {
        vector_words words = ((const vector_words *)(const void *)row)[v], upper = words >> 16;
        UNROLL for (int p = 0; p < NIBBLES; p++) {
          vector value =
              nibble(p < 4 ? words : upper, p) - *(const vector *)(c->zeros + (p % 4 * NIBBLES + first + v) * LANES);
          UNROLL for (int r = 0; r < n_rows; r++) sum[v * n_rows + r] += value * x[p * n_rows + r];
        }
      }
    }
    *c->next = next;
    UNROLL for (int v = 0; v < vectors; v++) add_totals(n_rows, c, first + v, sum + v * n_rows);
  }
}

#ifdef __AVX512BF16__
static const uint16_t values_less_8[] = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
                                         0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};

/* (value - 8) * x, less (zero - 8) times the sum of x. */
SPECIALISED void add_pair_totals(int n_rows, const chunk *c, int place, const vector *sums) {
  vector scale = *(const vector *)(c->scales + place * LANES), zero = *(const vector *)(c->zeros + place * LANES);
  UNROLL for (int r = 0; r < n_rows; r++) {
    vector *total = (vector *)(c->totals + (place * n_rows + r) * LANES);
    *total += scale * (sums[r] - zero * c->x_sums[r]);
  }
}

/* Pairs are of two rows of words. */
SPECIALISED void multiply_awq_pairs(int parts, int n_rows, const chunk *c) {
  const int places = SUMS / n_rows;
  const __m512i table = table_of(values_less_8);
  UNROLL for (int first = 0; first < NIBBLES; first += places) {
    vector sum[SUMS] = {0};
    const char *row = c->words;
    const uint32_t *x = c->pairs;
    ahead next = *c->next;
    for (int64_t i = 0; i < c->n; i += 2, row += 2 * c->stride, x += n_rows * parts) {
      vector_words a = *(const vector_words *)(const void *)row;
      vector_words b = *(const vector_words *)(const void *)(row + c->stride);
      if (!first)
        fetch_rows(&next, 2);
      UNROLL for (int p = first; p < first + places; p++) {
        __m512bh values = look_up(table, (p < 4 ? lower_halves(a, b) : upper_halves(a, b)) >> 4 * (p % 4));
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int part = 0; part < parts; part++) {
          vector *to = &sum[(p - first) * n_rows + r];
          *to = add_pairs(*to, values, _mm512_set1_epi32((int)x[r * parts + part]));
        }
      }
    }
    *c->next = next;
    UNROLL for (int p = 0; p < places; p++) add_pair_totals(n_rows, c, first + p, sum + p * n_rows);
  }
}

/* Pairs are of the rows in a word. */
SPECIALISED void multiply_gptq_pairs(int parts, int n_rows, const chunk *c) {
  const int vectors = SUMS / n_rows;
  const __m512i table = table_of(values_less_8);
  for (int first = 0; first < NIBBLES; first += vectors) {
    vector sum[SUMS] = {0};
    const char *row = c->words + first * LANES * 4;
    const uint32_t *x = c->pairs;
    ahead next = *c->next;
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += PAIRS * n_rows * parts) {
      vector_words words[SUMS];
      fetch_rows(&next, vectors);
      UNROLL for (int v = 0; v < vectors; v++) words[v] = load_once(row + v * LANES * 4);
      UNROLL for (int p = 0; p < PAIRS; p++) UNROLL for (int v = 0; v < vectors; v++) {
        __m512bh values = look_up(table, words[v] >> 4 * p);
        UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int part = 0; part < parts; part++) {
          vector *to = &sum[v * n_rows + r];
          *to = add_pairs(*to, values, _mm512_set1_epi32((int)x[(p * n_rows + r) * parts + part]));
        }
      }
    }
    *c->next = next;
    UNROLL for (int v = 0; v < vectors; v++) add_pair_totals(n_rows, c, first + v, sum + v * n_rows);
  }
}
#endif

/* do(format, parts, rows of x) for each number of rows; parts 0: floats. */
#define FOR_ROWS(do, format, parts)                                                                                    \
  do                                                                                                                   \
  (format, parts, 1) do(format, parts, 2) do(format, parts, 4) do(format, parts, 8)
#ifdef __AVX512BF16__
#define FOR_PARTS(do, format) FOR_ROWS(do, format, 1) FOR_ROWS(do, format, 2) FOR_ROWS(do, format, 3)
#else
#define FOR_PARTS(do, format)
#endif

typedef void (*chunk_fn)(const chunk *c);
#define MULTIPLY(format, parts, n_rows)                                                                                \
  static void format##_0_##n_rows(const chunk *c) {                                                                    \
    multiply_##format(n_rows, c);                                                                                      \
  }
#define MULTIPLY_PAIRS(format, parts, n_rows)                                                                          \
  static void format##_##parts##_##n_rows(const chunk *c) {                                                            \
    multiply_##format##_pairs(parts, n_rows, c);                                                                       \
  }
FOR_ROWS(MULTIPLY, awq, 0)
FOR_ROWS(MULTIPLY, gptq, 0)
FOR_PARTS(MULTIPLY_PAIRS, awq)
FOR_PARTS(MULTIPLY_PAIRS, gptq)
#define NAME(format, parts, n_rows) [parts][n_rows] = format##_##parts##_##n_rows,
#define NAMES(format)                                                                                                  \
  { FOR_ROWS(NAME, format, 0) FOR_PARTS(NAME, format) }
static const chunk_fn chunk_fns[][MOST_PARTS + 1][MOST_ROWS + 1] = {[CPU_AWQ] = NAMES(awq), [CPU_GPTQ] = NAMES(gptq)};

/* In which column of its word the nibbles of AWQ are. */
static const int awq_columns[] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Column `i` of a block in the order of its vectors. */
static int place_of(const cpu_four_bit_linear *linear, int i) {
  return linear->format == CPU_AWQ ? 8 * (i % LANES) + awq_columns[i / LANES] : i;
}

typedef struct few_rows {
  const cpu_four_bit_linear *linear;
  int64_t n_rows;
  int parts;      /* of x; 0: it is floats */
  const float *x; /* those, or pairs and behind them for words, at row / 2 * n_rows, the sums of a chunk's rows */
  const float *x_sums;
} few_rows;

/* The chunk that begins with this row. */
static int64_t rows_of_chunk(const cpu_four_bit_linear *linear, int64_t row) {
  return least(CHUNK_ROWS, linear->group - row % linear->group);
}

/* Scales and zero points of a group, as the vectors of a block have its columns; see chunk. */
typedef struct group_block {
  _Alignas(64) float scales[BLOCK], zeros[4 * BLOCK];
} group_block;

/* What is at even places of two vectors, one behind the other, or at odd ones. */
#define FOUR_PLACES(i)  i, (i) + 2, (i) + 4, (i) + 6
#define EIGHT_PLACES(i) FOUR_PLACES(i), FOUR_PLACES((i) + 8)
#if defined(__AVX512F__)
#define PLACES(i) EIGHT_PLACES(i), EIGHT_PLACES((i) + 16)
#elif defined(__AVX2__)
#define PLACES(i) EIGHT_PLACES(i)
#else
#define PLACES(i) FOUR_PLACES(i)
#endif

/* NIBBLES vectors: those at even places before those at odd ones. */
SPECIALISED void part(const vector *from, vector *to) {
  UNROLL for (int i = 0; i < NIBBLES / 2; i++) {
    to[i] = __builtin_shufflevector(from[2 * i], from[2 * i + 1], PLACES(0));
    to[i + NIBBLES / 2] = __builtin_shufflevector(from[2 * i], from[2 * i + 1], PLACES(1));
  }
}

/* Columns 8 * lane + awq_columns[place] to place * LANES + lane. */
static void order_awq(float *columns) {
  vector once[NIBBLES], twice[NIBBLES], all[NIBBLES];
  part((const vector *)columns, once);
  part(once, twice);
  part(twice, all);
  UNROLL for (int p = 0; p < NIBBLES; p++)((vector *)columns)[p] = all[awq_columns[p]];
}

/* Zero points of AWQ are the same nibbles as those of the weight, with the same powers. */
static void load_awq_zeros(const few_rows *few, const char *words, float *zeros) {
  vector_words lower = *(const vector_words *)(const void *)words, upper = lower >> 16;
  UNROLL for (int p = 0; p < NIBBLES; p++) * (vector *)(zeros + p * LANES) =
      nibble(p < 4 ? lower : upper, p) - (few->parts ? power_of_nibble(p) + 8 : 0);
}

static void load_gptq_zeros(const few_rows *few, const char *words, float *zeros) {
  const uint8_t *bytes = (const uint8_t *)words;
  float offset = (float)(few->linear->zero_offset - (few->parts ? 8 : 0));
  uint8_t codes[BLOCK];
  for (int i = 0; i < BLOCK / 2; i++) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
  for (int p = 0; p < (few->parts ? 1 : 4); p++)
    for (int i = 0; i < BLOCK; i++)
      zeros[p * BLOCK + i] = (float)codes[i] + (few->parts ? offset : offset + power_of_nibble(p));
}

/* 0 behind the last column. */
static void load_group(const few_rows *few, int64_t group, int64_t block, group_block *to) {
  const cpu_four_bit_linear *linear = few->linear;
  bool is_awq = linear->format == CPU_AWQ;
  int64_t first = block * BLOCK, n = least(BLOCK, linear->n - first);
  const char *zeros = linear->zeros ? linear->zeros + group * linear->zeros_stride + first / 2 : NULL;
  char words[BLOCK / 2];
  if (!zeros || n < BLOCK) {
    memset(words, zeros ? 0 : 0x11 * (8 - linear->zero_offset), sizeof words);
    zeros = memcpy(words, zeros ? zeros : words, zeros ? (size_t)n / 2 : 0);
  }
  memset(to->scales + n, 0, (size_t)(BLOCK - n) * sizeof *to->scales);
  cpu_block_types[linear->scales.dtype].load(to->scales, cpu_matrix_row(linear->scales, group), first, n);
  if (is_awq)
    order_awq(to->scales);
  (is_awq ? load_awq_zeros : load_gptq_zeros)(few, zeros, to->zeros);
}

/* So many columns of a row are on their way. */
static void fetch_group(const cpu_four_bit_linear *linear, int64_t group, int64_t first, int64_t n) {
  int64_t size = cpu_dtype_size(linear->scales.dtype);
  const char *scales = (const char *)cpu_matrix_row(linear->scales, group) + first * size;
  for (int64_t i = 0; i < n * size; i += 64)
    __builtin_prefetch(scales + i, 0, 2);
  for (int64_t i = 0; i < n / 2 && linear->zeros; i += 64)
    __builtin_prefetch(linear->zeros + group * linear->zeros_stride + first / 2 + i, 0, 2);
}

/* Rows `row` to row + rows - 1 of a block, which are of one group. The last block may lack columns. */
static void multiply_chunk(const few_rows *few, int64_t block, int64_t row, int64_t rows, const group_block *group,
                           ahead *next, float *totals) {
  const cpu_four_bit_linear *linear = few->linear;
  bool is_awq = linear->format == CPU_AWQ;
  int64_t n = least(BLOCK, linear->n - block * BLOCK);
  int64_t bytes = is_awq ? n / 2 : 4 * n, whole = is_awq ? BLOCK / 2 : 4 * BLOCK;
  char rest[CHUNK_ROWS * BLOCK / 2];
  chunk c = {.words = linear->weight + (is_awq ? row : row / 8) * linear->weight_stride + block * whole,
             .stride = linear->weight_stride,
             .n = is_awq ? rows : rows / 8,
             .next = next,
             .x = few->x + row * few->n_rows,
             .pairs = (const uint32_t *)few->x + row / 2 * few->n_rows * few->parts,
             .x_sums = few->x_sums + row / 2 * few->n_rows,
             .zeros = group->zeros,
             .scales = group->scales,
             .totals = totals};
  if (n < BLOCK) {
    for (int64_t i = 0; i < c.n; i++) {
      memcpy(rest + i * whole, c.words + i * c.stride, (size_t)bytes);
      memset(rest + i * whole + bytes, 0, (size_t)(whole - bytes));
    }
    c.words = rest;
    c.stride = whole;
  }
  chunk_fns[linear->format][few->parts][few->n_rows](&c);
}

static void end_block(const few_rows *few, int64_t block, const float *totals) {
  const cpu_four_bit_linear *linear = few->linear;
  float sums[BLOCK];
  for (int64_t row = 0; row < linear->m; row++) {
    for (int i = 0; i < BLOCK; i++)
      sums[place_of(linear, i)] = totals[(i / LANES * few->n_rows + row) * LANES + i % LANES];
    end_columns(linear, row, block * BLOCK, least(BLOCK, linear->n - block * BLOCK), sums);
  }
}

static void multiply_stripe(const few_rows *few, int64_t first, int64_t blocks, float (*totals)[BLOCK * MOST_ROWS]) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t whole = linear->format == CPU_AWQ ? BLOCK / 2 : 4 * BLOCK, rows_of_word = linear->format == CPU_AWQ ? 1 : 8;
  group_block group[STRIPE];
  for (int64_t row = 0, end; row < linear->k; row = end) {
    end = row + rows_of_chunk(linear, row);
    ahead next = {.row = linear->weight + first * whole + end / rows_of_word * linear->weight_stride,
                  .width = blocks * whole,
                  .stride = linear->weight_stride};
    if (end >= linear->k)
      next.row = linear->weight + (first + blocks) * whole;
    else if (end % linear->group == 0)
      fetch_group(linear, end / linear->group, first * BLOCK, blocks * BLOCK);
    for (int64_t b = 0; b < blocks; b++) {
      if (row % linear->group == 0)
        load_group(few, row / linear->group, first + b, &group[b]);
      multiply_chunk(few, first + b, row, end - row, &group[b], &next, totals[b]);
    }
  }
}

static fl_status words_range(void *user, int64_t begin, int64_t end) {
  const few_rows *few = user;
  _Alignas(64) float totals[STRIPE][BLOCK * MOST_ROWS];
  for (int64_t first = begin; first < end; first += STRIPE) {
    int64_t blocks = least(STRIPE, end - first);
    memset(totals, 0, sizeof totals);
    multiply_stripe(few, first, blocks, totals);
    for (int64_t b = 0; b < blocks; b++)
      end_block(few, first + b, totals[b]);
  }
  return FL_OK;
}

static void load_words_rows(const cpu_four_bit_linear *linear, int64_t n_rows, float *to) {
  float block[CPU_BLOCK];
  for (int64_t row = 0; row < n_rows; row++)
    for (int64_t first = 0; first < linear->k; first += CPU_BLOCK) {
      int64_t n = cpu_block_size(linear->k - first);
      memset(block, 0, sizeof block);
      if (row < linear->m)
        cpu_block_types[linear->x.dtype].load(block, cpu_matrix_row(linear->x, row), first, n);
      for (int64_t i = 0; i < n; i++)
        to[(first + i) * n_rows + row] = block[i];
    }
}

/* ----------------------------------------------------------------------------------------------------------- MXFP4 */

/* A vector of words is so many columns of x; each scale's are 4 words. */
enum { WORDS_COLUMNS = 8 * LANES, WORDS_SCALES = LANES / 4 };
/* Of the weight at once: the more, the less often x is read. */
enum { MOST_COLUMNS = 8, DOTS = REGISTERS / 2 };
#define COLUMNS(n_rows) (DOTS / (n_rows) < MOST_COLUMNS ? DOTS / (n_rows) : MOST_COLUMNS)

/* Values of codes, of which the low 4 bits count. */
SPECIALISED vector values_of(vector_words codes) {
#if defined(__AVX512F__)
  return (vector)_mm512_permutexvar_ps(
      (__m512i)codes, _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6));
#elif defined(__AVX2__)
  vector magnitude = (vector)_mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), (__m256i)codes);
  return (vector)((vector_words)magnitude | (codes & 8u) << 28);
#else
  /* The float of these bits is 2^-126 of the value. */
  return (vector)((codes & 8u) << 28 | (codes & 7u) << 22) * 0x1p126f;
#endif
}

/* 2^(byte - 127), of which the least is no normal number, and 255 is NaN: for the words of each. */
SPECIALISED vector scales_of(const uint8_t *bytes) {
  /* A byte comes to where a float has its exponent. */
  uint32_t all = 0;
  memcpy(&all, bytes, WORDS_SCALES);
#ifdef __AVX512F__
  static const uint32_t to_the_top[] = {0x00808080, 0x00808080, 0x00808080, 0x00808080, 0x01808080, 0x01808080,
                                        0x01808080, 0x01808080, 0x02808080, 0x02808080, 0x02808080, 0x02808080,
                                        0x03808080, 0x03808080, 0x03808080, 0x03808080};
  __m512i top = _mm512_shuffle_epi8(_mm512_set1_epi32((int)all), _mm512_loadu_si512(to_the_top));
  vector scale = (vector)_mm512_max_epu32(_mm512_srli_epi32(top, 1), _mm512_set1_epi32(0x00400000));
#else
  static const uint32_t turns[] = {23, 23, 23, 23, 15, 15, 15, 15};
  const vector_words turn = *(const vector_words *)turns;
  vector_words words = all - (vector_words){0};
  words = (words << turn | words >> (32 - turn)) & 0x7f800000u;
  vector scale = (vector)(words | ((vector_words)(words == 0) & 0x00400000u));
#endif
  return scale * 0 + scale; /* of infinity NaN */
}

typedef struct columns {
  const char *at[MOST_COLUMNS];
  const uint8_t *scales[MOST_COLUMNS];
  const char *next; /* to fetch meanwhile */
} columns;

/* Sums of a vector of words, [columns, rows]; `x` is [NIBBLES, rows, LANES]. */
SPECIALISED void sum_words(int n_rows, const float *x, const char *const *at, vector *sum) {
  const int n_columns = COLUMNS(n_rows); /* gcc wants to see that it stays */
  UNROLL for (int p = 0; p < NIBBLES; p++) UNROLL for (int c = 0; c < n_columns; c++) {
    vector value = values_of(*(const vector_words *)(const void *)at[c] >> 4 * p);
    UNROLL for (int r = 0; r < n_rows; r++) sum[c * n_rows + r] +=
        value * *(const vector *)(x + (p * n_rows + r) * LANES);
  }
}

/* `x` is [PAIRS, rows, parts, LANES]. */
SPECIALISED void sum_word_pairs(int parts, int n_rows, const float *x, const char *const *at, vector *sum) {
#ifdef __AVX512BF16__
  static const uint16_t mxfp4[] = {0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                                   0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
  const int n_columns = COLUMNS(n_rows);
  const __m512i table = table_of(mxfp4);
  vector_words words[MOST_COLUMNS];
  UNROLL for (int c = 0; c < n_columns; c++) words[c] = load_once(at[c]);
  UNROLL for (int p = 0; p < PAIRS; p++) UNROLL for (int c = 0; c < n_columns; c++) {
    __m512bh values = look_up(table, words[c] >> 4 * p);
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int part = 0; part < parts; part++) {
      const float *pairs = x + ((p * n_rows + r) * parts + part) * LANES;
      sum[c * n_rows + r] = add_pairs(sum[c * n_rows + r], values, _mm512_loadu_si512(pairs));
    }
  }
#else
  (void)parts, (void)n_rows, (void)x, (void)at, (void)sum;
#endif
}

SPECIALISED void add_words(int parts, int n_rows, const float *x, const char *const *at, const uint8_t *const *scales,
                           vector *total) {
  const int n_columns = COLUMNS(n_rows);
  vector sum[DOTS] = {0};
  if (parts)
    sum_word_pairs(parts, n_rows, x, at, sum);
  else
    sum_words(n_rows, x, at, sum);
  UNROLL for (int c = 0; c < n_columns; c++) {
    vector scale = scales_of(scales[c]);
    UNROLL for (int r = 0; r < n_rows; r++) total[c * n_rows + r] += scale * sum[c * n_rows + r];
  }
}

SPECIALISED void dot_mxfp4(int parts, int n_rows, int64_t k, const float *x, const columns *from,
                           float (*sums)[MOST_COLUMNS]) {
  const int n_x = n_rows * (parts ? PAIRS * parts : NIBBLES) * LANES; /* of a vector of words */
  const int n_columns = COLUMNS(n_rows);
  vector total[DOTS] = {0};
  const char *at[MOST_COLUMNS];
  const uint8_t *scales[MOST_COLUMNS];
  int64_t i = 0;
  for (; i + WORDS_COLUMNS <= k; i += WORDS_COLUMNS, x += n_x) {
    UNROLL for (int c = 0; c < n_columns; c++) {
      at[c] = from->at[c] + i / 2;
      scales[c] = from->scales[c] + i / 32;
    }
    fetch(from->next + i / 2 * n_columns, n_columns * 4 * LANES);
    add_words(parts, n_rows, x, at, scales, total);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][WORDS_COLUMNS / 2] = {0};
    uint8_t rest_scales[MOST_COLUMNS][WORDS_SCALES];
    memset(rest_scales, 127, sizeof rest_scales);
    for (int c = 0; c < n_columns; c++) {
      at[c] = memcpy(rest[c], from->at[c] + i / 2, (size_t)(k - i) / 2);
      scales[c] = memcpy(rest_scales[c], from->scales[c] + i / 32, (size_t)(k - i) / 32);
    }
    add_words(parts, n_rows, x, at, scales, total);
  }
  UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
      add_lanes(total[c * n_rows + r]);
}

typedef void (*dot_fn)(int64_t k, const float *x, const columns *from, float (*sums)[MOST_COLUMNS]);
#define DOT(format, parts, n_rows)                                                                                     \
  static void format##_##parts##_##n_rows(int64_t k, const float *x, const columns *from,                              \
                                          float(*sums)[MOST_COLUMNS]) {                                                \
    dot_##format(parts, n_rows, k, x, from, sums);                                                                     \
  }
FOR_ROWS(DOT, mxfp4, 0)
FOR_PARTS(DOT, mxfp4)
static const dot_fn dots[MOST_PARTS + 1][MOST_ROWS + 1] = NAMES(mxfp4);

static fl_status mxfp4_range(void *user, int64_t first, int64_t end) {
  const few_rows *few = user;
  const cpu_four_bit_linear *linear = few->linear;
  int64_t step = COLUMNS(few->n_rows);
  for (; first < end; first += CPU_BLOCK) {
    float results[MOST_ROWS][CPU_BLOCK], sums[MOST_ROWS][MOST_COLUMNS];
    int64_t n = cpu_block_size(end - first);
    for (int64_t i = 0; i < n; i += step) {
      columns from = {.next = linear->weight + (first + i + step) * linear->weight_stride};
      for (int64_t c = 0; c < MOST_COLUMNS; c++) { /* the last one stands for those behind it */
        int64_t column = first + least(i + c, n - 1);
        from.at[c] = linear->weight + column * linear->weight_stride;
        from.scales[c] = cpu_matrix_row(linear->scales, column);
      }
      dots[few->parts][few->n_rows](linear->k, few->x, &from, sums);
      for (int64_t row = 0; row < linear->m; row++)
        memcpy(&results[row][i], sums[row], (size_t)least(step, n - i) * sizeof(float));
    }
    for (int64_t row = 0; row < linear->m; row++)
      end_columns(linear, row, first, n, results[row]);
  }
  return FL_OK;
}

static void load_mxfp4_rows(const cpu_four_bit_linear *linear, int64_t n_rows, float *to) {
  for (int64_t first = 0; first < linear->k; first += WORDS_COLUMNS, to += WORDS_COLUMNS * n_rows)
    for (int64_t row = 0; row < n_rows; row++) {
      float block[WORDS_COLUMNS] = {0};
      if (row < linear->m)
        cpu_block_types[linear->x.dtype].load(block, cpu_matrix_row(linear->x, row), first,
                                              least(WORDS_COLUMNS, linear->k - first));
      for (int p = 0; p < NIBBLES; p++)
        for (int lane = 0; lane < LANES; lane++)
          to[(p * n_rows + row) * LANES + lane] = block[8 * lane + p];
    }
}

/* ----------------------------------------------------------------------------------------------------- pairs of x */

/* How many bfloat16 numbers make one of x; 0: floats are to be multiplied. A chunk of AWQ's wants pairs of rows. */
static int parts_of(const cpu_four_bit_linear *linear) {
#ifdef __AVX512BF16__
  if (linear->format == CPU_AWQ && (linear->group % 2 || linear->k % 2))
    return 0;
  return linear->x.dtype == CPU_BFLOAT16 ? 1 : linear->x.dtype == CPU_FLOAT16 ? 2 : 3;
#else
  (void)linear;
  return 0;
#endif
}

/* The parts have the bits of a number from the first on: nothing is lost but the bits of what is no normal number. */
SPECIALISED void put_pair(int parts, uint32_t *to, int64_t step, float low, float high) {
  UNROLL for (int part = 0; part < parts; part++) {
    uint32_t low_bits = fl_float_bits(low) & 0xffff0000u, high_bits = fl_float_bits(high) & 0xffff0000u;
    to[part * step] = low_bits >> 16 | high_bits;
    low -= fl_float_from_bits(low_bits);
    high -= fl_float_from_bits(high_bits);
  }
}

/* Row `r` of x as pairs, which are of neighbours in AWQ, else of a word's lower and upper half. */
SPECIALISED void put_row(int parts, const few_rows *few, const float *row, int64_t r, int64_t n_words, uint32_t *to) {
  bool is_awq = few->linear->format == CPU_AWQ, is_mxfp4 = few->linear->format == CPU_MXFP4;
  int64_t lanes = is_mxfp4 ? LANES : 1, next = few->n_rows * parts * lanes;
  to += r * parts * lanes;
  for (int64_t word = 0; word < n_words; word += lanes, to += PAIRS * next)
    for (int64_t lane = 0; lane < lanes; lane++, row += 8)
      UNROLL for (int p = 0; p < PAIRS; p++)
          put_pair(parts, to + p * next + lane, lanes, row[is_awq ? 2 * p : p], row[is_awq ? 2 * p + 1 : p + 4]);
}

/* Of the magnitudes' bits; those of infinity are 0x7f800000. */
static uint32_t largest_bits(const float *row, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = fl_float_bits(row[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

static float sum_of(const float *row, int64_t n) {
  vector sums = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    sums += *(const vector *)(row + i);
  float sum = add_lanes(sums);
  for (; i < n; i++)
    sum += row[i];
  return sum;
}

/* False: something in x is not finite, of which the parts would make NaN. `row` is for one of x. */
static bool load_pairs(const few_rows *few, uint32_t *to, float *sums, float *row) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t k = round_up(linear->k, WORDS_COLUMNS);
  bool finite = true;
  for (int64_t r = 0; r < few->n_rows && finite; r++) {
    memset(row, 0, (size_t)k * sizeof *row);
    for (int64_t first = 0; first < linear->k && r < linear->m; first += CPU_BLOCK)
      cpu_block_types[linear->x.dtype].load(row + first, cpu_matrix_row(linear->x, r), first,
                                            cpu_block_size(linear->k - first));
    finite = largest_bits(row, k) < 0x7f800000u;
    if (few->parts == 1)
      put_row(1, few, row, r, k / 8, to);
    else if (few->parts == 2)
      put_row(2, few, row, r, k / 8, to);
    else
      put_row(3, few, row, r, k / 8, to);
    for (int64_t first = 0, n; first < linear->k && linear->format != CPU_MXFP4; first += n) {
      n = least(rows_of_chunk(linear, first), linear->k - first);
      sums[first / 2 * few->n_rows + r] = sum_of(row + first, n);
    }
  }
  return finite;
}

/* -------------------------------------------------------------------------------------------------------- interface */

/* Words of GPTQ are of one group each. Machines of the other byte order have other nibbles in a word of MXFP4. */
bool cpu_four_bit_rows_take(const cpu_four_bit_linear *linear) {
  if (linear->m > MOST_ROWS || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
    return false;
  return linear->format != CPU_GPTQ || (!linear->g_idx && linear->group % 8 == 0);
}

fl_status cpu_four_bit_rows(const cpu_four_bit_linear *linear) {
  few_rows few = {.linear = linear, .n_rows = rows_of_tile(linear->m), .parts = parts_of(linear)};
  bool is_mxfp4 = linear->format == CPU_MXFP4;
  int64_t k = round_up(linear->k, WORDS_COLUMNS), n = few.n_rows * k;
  /* Floats; or pairs, sums and a row. */
  float *x = cpu_scratch_take((size_t)(few.parts ? n * few.parts / 2 + n / 2 + k : n));
  if (!x)
    return FL_ENOMEM;
  few.x = x;
  few.x_sums = x + n * few.parts / 2;
  if (few.parts && !load_pairs(&few, (uint32_t *)x, x + n * few.parts / 2, x + n * few.parts / 2 + n / 2))
    few.parts = 0;
  if (!few.parts)
    (is_mxfp4 ? load_mxfp4_rows : load_words_rows)(linear, few.n_rows, x);
  int64_t width = is_mxfp4 ? 1 : BLOCK, bytes = linear->k * width / 2 + 1;
  int64_t multiple = is_mxfp4 ? 64 : STRIPE / 2; /* a narrower stripe takes longer, idle threads longer still */
  fl_status status = cpu_parallel_for(divide_up(linear->n, width), round_up(divide_up(GRAIN_BYTES, bytes), multiple),
                                      is_mxfp4 ? mxfp4_range : words_range, &few);
  cpu_scratch_give(x);
  return status;
}
