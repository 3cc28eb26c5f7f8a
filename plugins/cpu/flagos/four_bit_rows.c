/*
 * Weights of 4 bits times a few rows: see four_bit_linear.h. Decoding takes the time to read the weight, so each word
 * of it is read once for all rows, and its 8 values become floats in registers: a nibble of the mantissa's bits with an
 * exponent that makes these its units is that value and a power of two, which goes with the zero point. Rows are
 * computed as 1, 2, 4 or 8, with as many vectors of columns that there are SUMS sums; rows that lack are zeros.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/four_bit_linear.h"
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
 * of one group. Blocks are computed a stripe at a time, chunk by chunk, so that pages and lines are read one after the
 * other; what is next is fetched meanwhile.
 */
enum { BLOCK = NIBBLES * LANES, CHUNK_ROWS = 128, STRIPE = 8 };
_Static_assert((int)BLOCK <= (int)CPU_BLOCK, "a block's columns end together");

typedef struct chunk {
  const char *words;
  int64_t stride, n; /* rows of words */
  int64_t ahead;     /* bytes to what is read next */
  const float *x;    /* [rows of the weight, rows of x] */
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
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += n_rows) {
      vector_words words = *(const vector_words *)(const void *)row, upper = words >> 16;
      if (!first)
        __builtin_prefetch(row + c->ahead, 0, 2);
      UNROLL for (int p = 0; p < places; p++) {
        vector value =
            nibble(first + p < 4 ? words : upper, first + p) - *(const vector *)(c->zeros + (first + p) * LANES);
        UNROLL for (int r = 0; r < n_rows; r++) sum[p * n_rows + r] += value * x[r];
      }
    }
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
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += NIBBLES * n_rows)
      UNROLL for (int v = 0; v < vectors; v++) {
        vector_words words = ((const vector_words *)(const void *)row)[v], upper = words >> 16;
        __builtin_prefetch(row + v * LANES * 4 + c->ahead, 0, 2);
        UNROLL for (int p = 0; p < NIBBLES; p++) {
          vector value =
              nibble(p < 4 ? words : upper, p) - *(const vector *)(c->zeros + (p % 4 * NIBBLES + first + v) * LANES);
          UNROLL for (int r = 0; r < n_rows; r++) sum[v * n_rows + r] += value * x[p * n_rows + r];
        }
      }
    UNROLL for (int v = 0; v < vectors; v++) add_totals(n_rows, c, first + v, sum + v * n_rows);
  }
}

typedef void (*chunk_fn)(const chunk *c);
#define MULTIPLY(format, n_rows)                                                                                       \
  static void format##_##n_rows(const chunk *c) {                                                                      \
    multiply_##format(n_rows, c);                                                                                      \
  }
#define FOR_ROWS(do, format)                                                                                           \
  do                                                                                                                   \
  (format, 1) do(format, 2) do(format, 4) do(format, 8)
FOR_ROWS(MULTIPLY, awq)
FOR_ROWS(MULTIPLY, gptq)
#define NAME(format, n_rows) [n_rows] = format##_##n_rows,
static const chunk_fn chunk_fns[][MOST_ROWS + 1] = {
    [CPU_AWQ] = {FOR_ROWS(NAME, awq)}, [CPU_GPTQ] = {FOR_ROWS(NAME, gptq)}};

/* In which column of its word the nibbles of AWQ are. */
static const int awq_columns[] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Column `i` of a block in the order of its vectors. */
static int place_of(const cpu_four_bit_linear *linear, int i) {
  return linear->format == CPU_AWQ ? 8 * (i % LANES) + awq_columns[i / LANES] : i;
}

typedef struct few_rows {
  const cpu_four_bit_linear *linear;
  int64_t n_rows;
  const float *x;
} few_rows;

/* Scales and zero points of columns first to first + n - 1 in a group; 0 behind them. */
static void load_group(const cpu_four_bit_linear *linear, int64_t group, int64_t first, int64_t n, float *zeros,
                       float *scales) {
  bool is_awq = linear->format == CPU_AWQ;
  float own[BLOCK] = {0};
  uint32_t words[LANES] = {0};
  cpu_block_types[linear->scales.dtype].load(is_awq ? own : scales, cpu_matrix_row(linear->scales, group), first, n);
  memset(scales + n, 0, (size_t)(is_awq ? 0 : BLOCK - n) * sizeof *scales);
  if (linear->zeros)
    memcpy(words, linear->zeros + group * linear->zeros_stride + first / 2, (size_t)n / 2);
  if (is_awq) { /* the same nibbles as those of the weight, with the same powers */
    vector_words lower = *(const vector_words *)words, upper = lower >> 16;
    UNROLL for (int p = 0; p < NIBBLES; p++) {
      *(vector *)(zeros + p * LANES) = nibble(p < 4 ? lower : upper, p);
      for (int lane = 0; lane < LANES; lane++)
        scales[p * LANES + lane] = own[8 * lane + awq_columns[p]];
    }
    return;
  }
  for (int i = 0; i < BLOCK; i++) {
    float zero =
        linear->zeros ? (float)(int32_t)((words[i / 8] >> 4 * (i % 8) & 15) + (uint32_t)linear->zero_offset) : 8;
    for (int p = 0; p < 4; p++)
      zeros[p * BLOCK + i] = zero + power_of_nibble(p);
  }
}

/* Rows `row` to row + rows - 1 of a block, which are of one group. The last block may lack columns. */
static void multiply_chunk(const few_rows *few, int64_t block, int64_t row, int64_t rows, int64_t ahead,
                           float *totals) {
  const cpu_four_bit_linear *linear = few->linear;
  bool is_awq = linear->format == CPU_AWQ;
  int64_t first = block * BLOCK, n = least(BLOCK, linear->n - first);
  int64_t bytes = is_awq ? n / 2 : 4 * n, whole = is_awq ? BLOCK / 2 : 4 * BLOCK;
  float zeros[4 * BLOCK], scales[BLOCK];
  char rest[CHUNK_ROWS * BLOCK / 2];
  chunk c = {.words = linear->weight + (is_awq ? row : row / 8) * linear->weight_stride + first / BLOCK * whole,
             .stride = linear->weight_stride,
             .n = is_awq ? rows : rows / 8,
             .ahead = ahead,
             .x = few->x + row * few->n_rows,
             .zeros = zeros,
             .scales = scales,
             .totals = totals};
  load_group(linear, row / linear->group, first, n, zeros, scales);
  if (n < BLOCK) {
    for (int64_t i = 0; i < c.n; i++) {
      memcpy(rest + i * whole, c.words + i * c.stride, (size_t)bytes);
      memset(rest + i * whole + bytes, 0, (size_t)(whole - bytes));
    }
    c.words = rest;
    c.stride = whole;
  }
  chunk_fns[linear->format][few->n_rows](&c);
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

static fl_status words_range(void *user, int64_t begin, int64_t end) {
  const few_rows *few = user;
  const cpu_four_bit_linear *linear = few->linear;
  _Alignas(64) float totals[STRIPE][BLOCK * MOST_ROWS];
  int64_t whole = linear->format == CPU_AWQ ? BLOCK / 2 : 4 * BLOCK;
  int64_t rows_of_word = linear->format == CPU_AWQ ? 1 : 8;
  for (int64_t first = begin; first < end; first += STRIPE) {
    int64_t blocks = least(STRIPE, end - first);
    memset(totals, 0, sizeof totals);
    for (int64_t row = 0, rows; row < linear->k; row += rows) {
      rows = least(CHUNK_ROWS, linear->group - row % linear->group);
      for (int64_t b = 0; b < blocks; b++)
        multiply_chunk(few, first + b, row, rows,
                       b + 1 < blocks ? whole : rows / rows_of_word * linear->weight_stride - (blocks - 1) * whole,
                       totals[b]);
    }
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

/* 2^(byte - 127), 255 is NaN, for the words of each. */
SPECIALISED vector scales_of(const uint8_t *bytes) {
  static const uint32_t shifts[16] = {0, 0, 0, 0, 8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24};
  uint32_t all = 0;
  memcpy(&all, bytes, WORDS_SCALES);
  vector_words words = (all - (vector_words){0}) >> *(const vector_words *)shifts & 255;
  vector_words is_end = (vector_words)((words == 0) | (words == 255)); /* 2^-127 is no normal number */
  return (vector)(words << 23 | (is_end & 0x00400000u));
}

typedef struct columns {
  const char *at[MOST_COLUMNS];
  const uint8_t *scales[MOST_COLUMNS];
  int64_t ahead;
} columns;

SPECIALISED void add_words(int n_rows, const float *x, const char *const *at, const uint8_t *const *scales,
                           vector *total) {
  const int n_columns = COLUMNS(n_rows); /* gcc wants to see that it stays */
  vector sum[DOTS] = {0};
  UNROLL for (int p = 0; p < NIBBLES; p++) UNROLL for (int c = 0; c < n_columns; c++) {
    vector value = values_of(*(const vector_words *)(const void *)at[c] >> 4 * p);
    UNROLL for (int r = 0; r < n_rows; r++) sum[c * n_rows + r] +=
        value * *(const vector *)(x + (p * n_rows + r) * LANES);
  }
  UNROLL for (int c = 0; c < n_columns; c++) {
    vector scale = scales_of(scales[c]);
    UNROLL for (int r = 0; r < n_rows; r++) total[c * n_rows + r] += scale * sum[c * n_rows + r];
  }
}

/* x is [vectors of words, NIBBLES, rows, LANES]. */
SPECIALISED void dot_mxfp4(int n_rows, int64_t k, const float *x, const columns *from, float (*sums)[MOST_COLUMNS]) {
  const int n_columns = COLUMNS(n_rows);
  vector total[DOTS] = {0};
  const char *at[MOST_COLUMNS];
  const uint8_t *scales[MOST_COLUMNS];
  int64_t i = 0;
  for (; i + WORDS_COLUMNS <= k; i += WORDS_COLUMNS) {
    UNROLL for (int c = 0; c < n_columns; c++) {
      at[c] = from->at[c] + i / 2;
      scales[c] = from->scales[c] + i / 32;
      __builtin_prefetch(at[c] + from->ahead, 0, 2);
    }
    add_words(n_rows, x + i * n_rows, at, scales, total);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][WORDS_COLUMNS / 2] = {0};
    uint8_t rest_scales[MOST_COLUMNS][WORDS_SCALES];
    memset(rest_scales, 127, sizeof rest_scales);
    for (int c = 0; c < n_columns; c++) {
      at[c] = memcpy(rest[c], from->at[c] + i / 2, (size_t)(k - i) / 2);
      scales[c] = memcpy(rest_scales[c], from->scales[c] + i / 32, (size_t)(k - i) / 32);
    }
    add_words(n_rows, x + i * n_rows, at, scales, total);
  }
  UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
      add_lanes(total[c * n_rows + r]);
}

typedef void (*dot_fn)(int64_t k, const float *x, const columns *from, float (*sums)[MOST_COLUMNS]);
#define DOT(format, n_rows)                                                                                            \
  static void dot_##format##_##n_rows(int64_t k, const float *x, const columns *from, float(*sums)[MOST_COLUMNS]) {    \
    dot_##format(n_rows, k, x, from, sums);                                                                            \
  }
#define DOT_NAME(format, n_rows) [n_rows] = dot_##format##_##n_rows,
FOR_ROWS(DOT, mxfp4)
static const dot_fn dots[] = {FOR_ROWS(DOT_NAME, mxfp4)};

static fl_status mxfp4_range(void *user, int64_t first, int64_t end) {
  const few_rows *few = user;
  const cpu_four_bit_linear *linear = few->linear;
  int64_t step = COLUMNS(few->n_rows);
  for (; first < end; first += CPU_BLOCK) {
    float results[MOST_ROWS][CPU_BLOCK], sums[MOST_ROWS][MOST_COLUMNS];
    int64_t n = cpu_block_size(end - first);
    for (int64_t i = 0; i < n; i += step) {
      columns from = {.ahead = step * linear->weight_stride};
      for (int64_t c = 0; c < MOST_COLUMNS; c++) { /* the last one stands for those behind it */
        int64_t column = first + least(i + c, n - 1);
        from.at[c] = linear->weight + column * linear->weight_stride;
        from.scales[c] = cpu_matrix_row(linear->scales, column);
      }
      dots[few->n_rows](linear->k, few->x, &from, sums);
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

/* -------------------------------------------------------------------------------------------------------- interface */

/* Words of GPTQ are of one group each. Machines of the other byte order have other nibbles in a word of MXFP4. */
bool cpu_four_bit_rows_take(const cpu_four_bit_linear *linear) {
  if (linear->m > MOST_ROWS || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
    return false;
  return linear->format != CPU_GPTQ || (!linear->g_idx && linear->group % 8 == 0);
}

fl_status cpu_four_bit_rows(const cpu_four_bit_linear *linear) {
  few_rows few = {.linear = linear, .n_rows = rows_of_tile(linear->m)};
  bool is_mxfp4 = linear->format == CPU_MXFP4;
  float *x = cpu_scratch_take((size_t)(few.n_rows * round_up(linear->k, WORDS_COLUMNS)));
  if (!x)
    return FL_ENOMEM;
  (is_mxfp4 ? load_mxfp4_rows : load_words_rows)(linear, few.n_rows, x);
  few.x = x;
  int64_t width = is_mxfp4 ? 1 : BLOCK, bytes = linear->k * width / 2 + 1, multiple = is_mxfp4 ? 64 : STRIPE;
  fl_status status = cpu_parallel_for(divide_up(linear->n, width), round_up(divide_up(GRAIN_BYTES, bytes), multiple),
                                      is_mxfp4 ? mxfp4_range : words_range, &few);
  cpu_scratch_give(x);
  return status;
}
