/*
 * Weights of 4 bits times a few rows: see four_bit_linear.h. Decoding takes the time to read the weight, so each word
 * of it is read once for all rows, and its 8 values become floats in registers: a nibble of the mantissa's bits with an
 * exponent that makes these its units is that value and a power of two, which goes with the zero point. Or they become
 * bytes, and x is digits (digits.h). Rows are computed as 1, 2, 4 or 8, with as many vectors of columns that there are
 * SUMS sums; rows that lack are zeros.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/digits.h"
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
 * of one group. Blocks are computed a stripe at a time, chunk by chunk, while the chunks of the next rows are fetched.
 */
enum { BLOCK = NIBBLES * LANES, CHUNK_ROWS = 128, STRIPE = 32 };
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

/* A row's part of what a chunk is multiplied by, where that is digits. */
typedef struct chunk_of_x {
  int32_t sums[DIGITS]; /* -8 times */
  float unit, sum;
} chunk_of_x;

/* Digits are [4 rows of the weight, rows of x, QUAD bytes of each digit]; the last are of no digit. GPTQ's take even
 * rows of a word before odd ones. */
enum { QUAD = 4 };

typedef struct chunk {
  const char *words;
  int64_t stride, n;         /* rows of words */
  ahead *next;               /* as much of it is fetched as the chunk has */
  const float *x;            /* [rows of the weight, rows of x]; or digits, and then */
  const chunk_of_x *x_group; /* [rows of x]; zeros are less 8 */
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

#ifdef __AVX512VNNI__
enum { DIGIT_SUMS = SUMS * DIGITS };
#define LOW_NIBBLES 0x0f0f0f0fu

/* Sums are of values less 8. */
SPECIALISED void begin_digits(int n_rows, int n_vectors, const chunk *c, __m512i *sums) {
  UNROLL for (int v = 0; v < n_vectors; v++) UNROLL for (int r = 0; r < n_rows; r++)
      UNROLL for (int d = 0; d < DIGITS; d++) sums[(v * n_rows + r) * DIGITS + d] =
          _mm512_set1_epi32(c->x_group[r].sums[d]);
}

/* `values` are bytes, four rows of the weight in each word. */
SPECIALISED void add_digits(int n_rows, int n_vectors, const int32_t *x, const vector_words *values, __m512i *sums) {
  UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int d = 0; d < DIGITS; d++) {
    const __m512i quad = _mm512_set1_epi32(x[r * QUAD + d]);
    UNROLL for (int v = 0; v < n_vectors; v++) {
      __m512i *to = &sums[(v * n_rows + r) * DIGITS + d];
      *to = _mm512_dpbusd_epi32(*to, (__m512i)values[v], quad);
    }
  }
}

/* (value - 8) * x, less (zero - 8) times the sum of x. */
SPECIALISED void add_digit_totals(int n_rows, const chunk *c, int place, const __m512i *sums) {
  vector scale = *(const vector *)(c->scales + place * LANES), zero = *(const vector *)(c->zeros + place * LANES);
  UNROLL for (int r = 0; r < n_rows; r++) {
    vector *total = (vector *)(c->totals + (place * n_rows + r) * LANES);
    const chunk_of_x *x = &c->x_group[r];
    *total += scale * (join_sums(sums + r * DIGITS) * x->unit - zero * x->sum);
  }
}

/* Byte `byte` of four rows' words, the first row's lowest. */
SPECIALISED vector_words gather_byte(const char *row, int64_t stride, int byte) {
  const __mmask32 upper_halves = 0xaaaaaaaau;
  const __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaau;
  __m512i rows[QUAD], pair[2];
  UNROLL for (int i = 0; i < QUAD; i++) rows[i] = _mm512_loadu_si512(row + i * stride);
  UNROLL for (int i = 0; i < 2; i++) pair[i] =
      byte < 2 ? _mm512_mask_blend_epi16(upper_halves, rows[i], _mm512_slli_epi32(rows[i + 2], 16))
               : _mm512_mask_blend_epi16(upper_halves, _mm512_srli_epi32(rows[i], 16), rows[i + 2]);
  return (vector_words)(byte % 2 ? _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi32(pair[0], 8), pair[1])
                                 : _mm512_mask_blend_epi8(odd_bytes, pair[0], _mm512_slli_epi32(pair[1], 8)));
}

SPECIALISED void multiply_awq_digits(int n_rows, const chunk *c) {
  const int places = SUMS / n_rows;
  UNROLL for (int first = 0; first < NIBBLES; first += places) {
    __m512i sums[DIGIT_SUMS];
    const char *row = c->words;
    const int32_t *x = (const int32_t *)(const void *)c->x;
    ahead next = *c->next;
    begin_digits(n_rows, places, c, sums);
    for (int64_t i = 0; i < c->n; i += QUAD, row += QUAD * c->stride, x += QUAD * n_rows) {
      if (!first)
        fetch_rows(&next, QUAD);
      UNROLL for (int p = first; p < first + places; p++) {
        vector_words values = gather_byte(row, c->stride, p / 2) >> (p % 2 ? 4 : 0) & LOW_NIBBLES;
        add_digits(n_rows, 1, x, &values, sums + (p - first) * n_rows * DIGITS);
      }
    }
    *c->next = next;
    UNROLL for (int p = 0; p < places; p++) add_digit_totals(n_rows, c, first + p, sums + p * n_rows * DIGITS);
  }
}

SPECIALISED void multiply_gptq_digits(int n_rows, const chunk *c) {
  const int vectors = n_rows == 1 ? SUMS / 2 : SUMS / n_rows; /* more are more than there are registers for */
  for (int first = 0; first < NIBBLES; first += vectors) {
    __m512i sums[DIGIT_SUMS];
    const char *row = c->words + first * LANES * 4;
    const int32_t *x = (const int32_t *)(const void *)c->x;
    ahead next = *c->next;
    begin_digits(n_rows, vectors, c, sums);
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += 2 * QUAD * n_rows) {
      vector_words even[SUMS], odd[SUMS];
      fetch_rows(&next, vectors);
      UNROLL for (int v = 0; v < vectors; v++) {
        vector_words words = ((const vector_words *)(const void *)row)[v];
        even[v] = words & LOW_NIBBLES;
        odd[v] = words >> 4 & LOW_NIBBLES;
      }
      add_digits(n_rows, vectors, x, even, sums);
      add_digits(n_rows, vectors, x + QUAD * n_rows, odd, sums);
    }
    *c->next = next;
    UNROLL for (int v = 0; v < vectors; v++) add_digit_totals(n_rows, c, first + v, sums + v * n_rows * DIGITS);
  }
}
#endif

/* do(format, rows of x) for each number of rows. */
#define FOR_ROWS(do, format)                                                                                           \
  do                                                                                                                   \
  (format, 1) do(format, 2) do(format, 4) do(format, 8)
#ifdef __AVX512VNNI__
enum { HAS_DIGITS = 1 };
#define FOR_DIGITS(do, format) FOR_ROWS(do, format##_digits)
#else
enum { HAS_DIGITS = 0 };
#define FOR_DIGITS(do, format)
#endif

typedef void (*chunk_fn)(const chunk *c);
#define MULTIPLY(format, n_rows)                                                                                       \
  static void format##_##n_rows(const chunk *c) {                                                                      \
    multiply_##format(n_rows, c);                                                                                      \
  }
FOR_ROWS(MULTIPLY, awq)
FOR_ROWS(MULTIPLY, gptq)
FOR_DIGITS(MULTIPLY, awq)
FOR_DIGITS(MULTIPLY, gptq)
#define NAME(format, n_rows) [n_rows] = format##_##n_rows,
#define NAMES(format)                                                                                                  \
  {                                                                                                                    \
    {FOR_ROWS(NAME, format)}, {                                                                                        \
      FOR_DIGITS(NAME, format)                                                                                         \
    }                                                                                                                  \
  }
static const chunk_fn chunk_fns[][2][MOST_ROWS + 1] = {[CPU_AWQ] = NAMES(awq), [CPU_GPTQ] = NAMES(gptq)};

/* In which column of its word the nibbles of AWQ are. */
static const int awq_columns[] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Column `i` of a block in the order of its vectors. */
static int place_of(const cpu_four_bit_linear *linear, int i) {
  return linear->format == CPU_AWQ ? 8 * (i % LANES) + awq_columns[i / LANES] : i;
}

typedef struct few_rows {
  const cpu_four_bit_linear *linear;
  int64_t n_rows;
  bool has_digits;
  const float *x;             /* or digits, and behind them, of words, */
  const chunk_of_x *x_groups; /* [rows of the weight / QUAD, rows of x], where a chunk begins */
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
      nibble(p < 4 ? lower : upper, p) - (few->has_digits ? power_of_nibble(p) + 8 : 0);
}

static void load_gptq_zeros(const few_rows *few, const char *words, float *zeros) {
  const uint8_t *bytes = (const uint8_t *)words;
  float offset = (float)(few->linear->zero_offset - (few->has_digits ? 8 : 0));
  uint8_t codes[BLOCK];
  for (int i = 0; i < BLOCK / 2; i++) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
  for (int p = 0; p < (few->has_digits ? 1 : 4); p++)
    for (int i = 0; i < BLOCK; i++)
      zeros[p * BLOCK + i] = (float)codes[i] + (few->has_digits ? offset : offset + power_of_nibble(p));
}

/* 0 behind the last column. */
static void load_group(const few_rows *few, int64_t group, int64_t block, group_block *to) {
  const cpu_four_bit_linear *linear = few->linear;
  bool is_awq = linear->format == CPU_AWQ;
  int64_t first = block * BLOCK, n = least(BLOCK, linear->n - first);
  const char *zeros = linear->zeros ? linear->zeros + group * linear->zeros_stride + first / 2 : NULL;
  char words[BLOCK / 2];
  if (!zeros)
    zeros = memset(words, 0x11 * (8 - linear->zero_offset), sizeof words);
  else if (n < BLOCK) {
    memset(words + n / 2, 0, sizeof words - (size_t)n / 2);
    zeros = memcpy(words, zeros, (size_t)n / 2);
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
  fetch((const char *)cpu_matrix_row(linear->scales, group) + first * size, n * size);
  if (linear->zeros)
    fetch(linear->zeros + group * linear->zeros_stride + first / 2, n / 2);
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
             .x_group = few->x_groups + row / QUAD * few->n_rows,
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
  chunk_fns[linear->format][few->has_digits][few->n_rows](&c);
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

/* What a stripe's blocks have: sums and the scales of their group. */
typedef struct stripe {
  group_block groups[STRIPE];
  float totals[]; /* [STRIPE, BLOCK * rows of x] */
} stripe;

static float *totals_of(const few_rows *few, stripe *s, int64_t block) {
  return s->totals + block * BLOCK * few->n_rows;
}

static void multiply_stripe(const few_rows *few, int64_t first, int64_t blocks, stripe *s) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t whole = linear->format == CPU_AWQ ? BLOCK / 2 : 4 * BLOCK, rows_of_word = linear->format == CPU_AWQ ? 1 : 8;
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
        load_group(few, row / linear->group, first + b, &s->groups[b]);
      multiply_chunk(few, first + b, row, end - row, &s->groups[b], &next, totals_of(few, s, b));
    }
  }
}

static fl_status words_range(void *user, int64_t begin, int64_t end) {
  const few_rows *few = user;
  size_t totals = (size_t)(STRIPE * BLOCK * few->n_rows) * sizeof(float);
  stripe *s = cpu_scratch_take_bytes(sizeof *s + totals);
  if (!s)
    return FL_ENOMEM;
  for (int64_t first = begin; first < end; first += STRIPE) {
    int64_t blocks = least(STRIPE, end - first);
    memset(s->totals, 0, totals);
    multiply_stripe(few, first, blocks, s);
    for (int64_t b = 0; b < blocks; b++)
      end_block(few, first + b, totals_of(few, s, b));
  }
  cpu_scratch_give(s);
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

#ifdef __AVX512VNNI__
/* Of one row of x and 128 of its columns. */
typedef struct words_of_x {
  __m512i digits[DIGITS][2]; /* of even columns, of odd ones */
  __m512i offsets;           /* values are OFFSET more than twice those of MXFP4 */
  vector units;              /* half of them */
} words_of_x;
enum { OFFSET = 12 };

/* In units, of some columns, and OFFSET times the sum of x more. Columns take turns: each sum waits for its last. */
SPECIALISED void sum_digits(int n_columns, const words_of_x *x, const __m512i *even, const __m512i *odd,
                            __m512i *sums) {
  UNROLL for (int c = 0; c < n_columns; c++) sums[c] = _mm512_setzero_si512();
  UNROLL for (int d = DIGITS - 1; d >= 0; d--) {
    UNROLL for (int c = 0; c < n_columns; c++) sums[c] =
        _mm512_dpbusd_epi32(_mm512_slli_epi32(sums[c], 8), even[c], x->digits[d][0]);
    UNROLL for (int c = 0; c < n_columns; c++) sums[c] = _mm512_dpbusd_epi32(sums[c], odd[c], x->digits[d][1]);
  }
}

SPECIALISED void sum_words_digits(int n_rows, const float *x, const char *const *at, vector *sum) {
  const int n_columns = COLUMNS(n_rows);
  const words_of_x *rows = (const words_of_x *)(const void *)x;
  const __m512i values = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)); /* twice and OFFSET more */
  const __m512i low = _mm512_set1_epi8(15);
  __m512i even[MOST_COLUMNS], odd[MOST_COLUMNS], sums[MOST_COLUMNS];
  UNROLL for (int c = 0; c < n_columns; c++) {
    const __m512i words = _mm512_loadu_si512(at[c]);
    even[c] = _mm512_shuffle_epi8(values, _mm512_and_si512(words, low));
    odd[c] = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srli_epi32(words, 4), low));
  }
  UNROLL for (int r = 0; r < n_rows; r++) {
    sum_digits(n_columns, &rows[r], even, odd, sums);
    UNROLL for (int c = 0; c < n_columns; c++) sum[c * n_rows + r] =
        (vector)_mm512_cvtepi32_ps(_mm512_sub_epi32(sums[c], rows[r].offsets)) * rows[r].units;
  }
}
#endif

typedef void (*sum_words_fn)(int n_rows, const float *x, const char *const *at, vector *sum);

SPECIALISED void add_words(sum_words_fn sum_of, int n_rows, const float *x, const char *const *at,
                           const uint8_t *const *scales, vector *total) {
  const int n_columns = COLUMNS(n_rows);
  vector sum[DOTS] = {0};
  sum_of(n_rows, x, at, sum);
  UNROLL for (int c = 0; c < n_columns; c++) {
    vector scale = scales_of(scales[c]);
    UNROLL for (int r = 0; r < n_rows; r++) total[c * n_rows + r] += scale * sum[c * n_rows + r];
  }
}

SPECIALISED void dot_columns(sum_words_fn sum_of, int n_rows, int64_t k, const float *x, const columns *from,
                             float (*sums)[MOST_COLUMNS]) {
  const int n_x = n_rows * WORDS_COLUMNS; /* of a vector of words */
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
    add_words(sum_of, n_rows, x, at, scales, total);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][WORDS_COLUMNS / 2] = {0};
    uint8_t rest_scales[MOST_COLUMNS][WORDS_SCALES];
    memset(rest_scales, 127, sizeof rest_scales);
    for (int c = 0; c < n_columns; c++) {
      at[c] = memcpy(rest[c], from->at[c] + i / 2, (size_t)(k - i) / 2);
      scales[c] = memcpy(rest_scales[c], from->scales[c] + i / 32, (size_t)(k - i) / 32);
    }
    add_words(sum_of, n_rows, x, at, scales, total);
  }
  UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
      add_lanes(total[c * n_rows + r]);
}

typedef void (*dot_fn)(int64_t k, const float *x, const columns *from, float (*sums)[MOST_COLUMNS]);
#define DOT(format, sum_of, n_rows)                                                                                    \
  static void format##_##n_rows(int64_t k, const float *x, const columns *from, float(*sums)[MOST_COLUMNS]) {          \
    dot_columns(sum_of, n_rows, k, x, from, sums);                                                                     \
  }
#define DOT_FLOATS(format, n_rows) DOT(format, sum_words, n_rows)
#define DOT_DIGITS(format, n_rows) DOT(format, sum_words_digits, n_rows)
FOR_ROWS(DOT_FLOATS, mxfp4)
FOR_DIGITS(DOT_DIGITS, mxfp4)
static const dot_fn dots[2][MOST_ROWS + 1] = NAMES(mxfp4);

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
      dots[few->has_digits][few->n_rows](linear->k, few->x, &from, sums);
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

/* ---------------------------------------------------------------------------------------------------- digits of x */

#ifdef __AVX512VNNI__
/* False: some numbers may not have digits. */
static bool load_words_digits(const few_rows *few, const float *row, int64_t r, char *to, chunk_of_x *groups) {
  const cpu_four_bit_linear *linear = few->linear;
  const __m512i order = linear->format == CPU_AWQ
                            ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                            : _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m512i by_digit = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (int64_t first = 0, n; first < linear->k; first += n) {
    chunk_of_x *group = &groups[first / QUAD * few->n_rows + r];
    __m512i sums = _mm512_setzero_si512();
    int32_t eights[LANES];
    n = least(rows_of_chunk(linear, first), linear->k - first);
    uint32_t exponent = exponent_above(row + first, n);
    if (!exponent)
      return false;
    for (int64_t i = first; i < first + n; i += LANES) {
      const __m512i digits = _mm512_permutexvar_epi32(order, digits_of(row + i, first + n - i, exponent));
      _Alignas(64) char quads[LANES * QUAD];
      _mm512_store_si512(quads, _mm512_shuffle_epi8(digits, by_digit));
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(8), _mm512_load_si512(quads));
      for (int64_t quad = 0; quad < LANES / QUAD && i + quad * QUAD < first + n; quad++)
        memcpy(to + ((i / QUAD + quad) * few->n_rows + r) * QUAD * QUAD, quads + quad * QUAD * QUAD, QUAD * QUAD);
    }
    _mm512_storeu_si512(eights, sums);
    for (int d = 0; d < DIGITS; d++)
      group->sums[d] = -(eights[d] + eights[QUAD + d] + eights[2 * QUAD + d] + eights[3 * QUAD + d]);
    group->unit = unit_of(exponent);
    group->sum = (65536.f * (float)group->sums[2] + (float)(256 * group->sums[1] + group->sums[0])) / -8 * group->unit;
  }
  return true;
}

/* Each scale's columns have a unit. */
static bool load_mxfp4_digits(const few_rows *few, const float *row, int64_t r, words_of_x *to) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1)), offset = _mm512_set1_epi8(OFFSET);
  enum { OF_SCALE = WORDS_COLUMNS / WORDS_SCALES };
  to += r;
  for (int64_t first = 0; first < few->linear->k; first += WORDS_COLUMNS, to += few->n_rows) {
    for (int64_t scale = 0; scale < WORDS_SCALES; scale++, row += OF_SCALE) {
      uint32_t exponent = exponent_above(row, OF_SCALE);
      if (!exponent)
        return false;
      const __m512i low = digits_of(row, LANES, exponent), high = digits_of(row + LANES, LANES, exponent);
      for (int d = 0; d < DIGITS; d++)
        for (int is_odd = 0; is_odd < 2; is_odd++)
          _mm_store_si128((__m128i *)&to->digits[d][is_odd] + scale,
                          one_digit(_mm512_permutex2var_epi32(low, is_odd ? odd : even, high), d));
      for (int lane = 0; lane < QUAD; lane++)
        to->units[scale * QUAD + lane] = unit_of(exponent) / 2;
    }
    sum_digits(1, to, &offset, &offset, &to->offsets);
  }
  return true;
}

/* `row` is for one of x. */
static bool load_digits(const few_rows *few, void *to, chunk_of_x *groups, float *row) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t k = round_up(linear->k, WORDS_COLUMNS);
  bool done = true;
  for (int64_t r = 0; r < few->n_rows && done; r++) {
    memset(row, 0, (size_t)k * sizeof *row);
    for (int64_t first = 0; first < linear->k && r < linear->m; first += CPU_BLOCK)
      cpu_block_types[linear->x.dtype].load(row + first, cpu_matrix_row(linear->x, r), first,
                                            cpu_block_size(linear->k - first));
    done =
        linear->format == CPU_MXFP4 ? load_mxfp4_digits(few, row, r, to) : load_words_digits(few, row, r, to, groups);
  }
  return done;
}
#else
static bool load_digits(const few_rows *few, void *to, chunk_of_x *groups, float *row) {
  (void)few, (void)to, (void)groups, (void)row;
  return false;
}
#endif

/* -------------------------------------------------------------------------------------------------------- interface */

/* Words of GPTQ are of one group each. Machines of the other byte order have other nibbles in a word of MXFP4. */
bool cpu_four_bit_rows_take(const cpu_four_bit_linear *linear) {
  if (linear->m > MOST_ROWS || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
    return false;
  return linear->format != CPU_GPTQ || (!linear->g_idx && linear->group % 8 == 0);
}

/* A chunk of AWQ's wants quads of rows. */
static bool wants_digits(const cpu_four_bit_linear *linear) {
  return HAS_DIGITS && (linear->format != CPU_AWQ || (linear->group % QUAD == 0 && linear->k % QUAD == 0));
}

fl_status cpu_four_bit_rows(const cpu_four_bit_linear *linear) {
  few_rows few = {.linear = linear, .n_rows = rows_of_tile(linear->m)};
  bool is_mxfp4 = linear->format == CPU_MXFP4;
  int64_t k = round_up(linear->k, WORDS_COLUMNS), n = few.n_rows * k;
  /* Digits take as much as floats; then there are their groups and a row. */
  int64_t groups = wants_digits(linear) ? n / QUAD * (int64_t)sizeof(chunk_of_x) : 0;
  int64_t row = wants_digits(linear) ? k * (int64_t)sizeof(float) : 0;
  char *scratch = cpu_scratch_take_bytes((size_t)(n * (int64_t)sizeof(float) + groups + row));
  float *x = (float *)(void *)scratch;
  if (!x)
    return FL_ENOMEM;
  few.x = x;
  few.x_groups = (const chunk_of_x *)(const void *)(x + n);
  few.has_digits = wants_digits(linear) &&
                   load_digits(&few, x, (chunk_of_x *)(void *)(x + n), (float *)(void *)(scratch + n * 4 + groups));
  if (!few.has_digits)
    (is_mxfp4 ? load_mxfp4_rows : load_words_rows)(linear, few.n_rows, x);
  int64_t width = is_mxfp4 ? 1 : BLOCK, bytes = linear->k * width / 2 + 1;
  int64_t multiple = is_mxfp4 ? 64 : 4; /* a narrower stripe takes longer, idle threads longer still */
  fl_status status = cpu_parallel_for(divide_up(linear->n, width), round_up(divide_up(GRAIN_BYTES, bytes), multiple),
                                      is_mxfp4 ? mxfp4_range : words_range, &few);
  cpu_scratch_give(x);
  return status;
}
