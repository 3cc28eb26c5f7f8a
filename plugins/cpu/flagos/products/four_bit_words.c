/* Weights of AWQ and GPTQ, words of 8 values, times a few rows (four_bit_rows.h). A value is a float by a nibble of the
 * mantissa's bits with an exponent that makes these its units: that, and a power of two, which goes with the zero
 * point. */
#include "plugins/cpu/flagos/products/four_bit_rows.h"
#include "plugins/cpu/support/pages.h"
#include "plugins/cpu/support/scratch.h"

/*
 * A block is NIBBLES vectors of columns: of AWQ a vector of words, of GPTQ so many. A chunk is some rows of it that are
 * of one group. Blocks are computed a stripe at a time, chunk by chunk, while the chunks of the next rows are fetched:
 * a few lines at a time, evenly, since what is asked for while others are on their way may be forgotten.
 */
enum { MOST_CHUNK_ROWS = 128 };
typedef struct shape {
  int64_t chunk_rows, stripe;
} shape;

/* With digits reading is what takes time: rows of a wide stripe lie together in memory. */
static shape shape_of(const few_rows *few) {
  return few->has_digits ? (shape){64, 32} : (shape){MOST_CHUNK_ROWS, 8};
}

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

/* Digits are [QUAD rows of the weight, rows of x, QUAD bytes of each digit]; the last are of no digit. GPTQ's take even
 * rows of a word before odd ones. */
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
enum { DIGIT_SUMS = SUMS * MOST_DIGITS };
#define LOW_NIBBLES 0x0f0f0f0fu

/* Sums are of values less 8. */
SPECIALISED void begin_digits(int n_digits, int n_rows, int n_vectors, const chunk *c, __m512i *sums) {
  UNROLL for (int v = 0; v < n_vectors; v++) UNROLL for (int r = 0; r < n_rows; r++)
      UNROLL for (int d = 0; d < n_digits; d++) sums[(v * n_rows + r) * n_digits + d] =
          _mm512_set1_epi32(c->x_group[r].sums[d]);
}

/* `values` are bytes, four rows of the weight in each word. */
SPECIALISED void add_digits(int n_digits, int n_rows, int n_vectors, const int32_t *x, const vector_words *values,
                            __m512i *sums) {
  UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int d = 0; d < n_digits; d++) {
    const __m512i quad = _mm512_set1_epi32(x[r * QUAD + d]);
    UNROLL for (int v = 0; v < n_vectors; v++) {
      __m512i *to = &sums[(v * n_rows + r) * n_digits + d];
      *to = _mm512_dpbusd_epi32(*to, (__m512i)values[v], quad);
    }
  }
}

/* (value - 8) * x, less (zero - 8) times the sum of x. */
SPECIALISED void add_digit_totals(int n_digits, int n_rows, const chunk *c, int place, const __m512i *sums) {
  vector scale = *(const vector *)(c->scales + place * LANES), zero = *(const vector *)(c->zeros + place * LANES);
  UNROLL for (int r = 0; r < n_rows; r++) {
    vector *total = (vector *)(c->totals + (place * n_rows + r) * LANES);
    const chunk_of_x *x = &c->x_group[r];
    *total += scale * (join_sums(n_digits, sums + r * n_digits) * x->unit - zero * x->sum);
  }
}

/* Of each 128 bits the word `word` of four rows: their bytes, four rows of one in a word of the result. */
SPECIALISED vector_words gather_bytes(const char *row, int64_t stride, int word) {
  __m512i rows[QUAD], pairs[2];
  UNROLL for (int i = 0; i < QUAD; i++) rows[i] = _mm512_loadu_si512(row + i * stride);
  UNROLL for (int i = 0; i < 2; i++) pairs[i] = word < 2 ? _mm512_unpacklo_epi8(rows[2 * i], rows[2 * i + 1])
                                                         : _mm512_unpackhi_epi8(rows[2 * i], rows[2 * i + 1]);
  return (vector_words)(word % 2 ? _mm512_unpackhi_epi16(pairs[0], pairs[1])
                                 : _mm512_unpacklo_epi16(pairs[0], pairs[1]));
}

/* Vector 2 * word + half are the lower or upper nibbles of the bytes of that word of each 128 bits. */
SPECIALISED void multiply_awq_digits(int n_digits, int n_rows, const chunk *c) {
  const int vectors = SUMS / n_rows;
  UNROLL for (int first = 0; first < NIBBLES; first += vectors) {
    __m512i sums[DIGIT_SUMS];
    const char *row = c->words;
    const int32_t *x = (const int32_t *)(const void *)c->x;
    ahead next = *c->next;
    begin_digits(n_digits, n_rows, vectors, c, sums);
    for (int64_t i = 0; i < c->n; i += QUAD, row += QUAD * c->stride, x += QUAD * n_rows) {
      UNROLL for (int v = first; v < first + vectors; v++) {
        if (v % 2 == 0) /* of NIBBLES vectors of QUAD rows */
          fetch_rows(&next, 1);
        vector_words values = gather_bytes(row, c->stride, v / 2) >> (v % 2 ? 4 : 0) & LOW_NIBBLES;
        add_digits(n_digits, n_rows, 1, x, &values, sums + (v - first) * n_rows * n_digits);
      }
    }
    *c->next = next;
    UNROLL for (int v = 0; v < vectors; v++)
        add_digit_totals(n_digits, n_rows, c, first + v, sums + v * n_rows * n_digits);
  }
}

SPECIALISED void multiply_gptq_digits(int n_digits, int n_rows, const chunk *c) {
  const int vectors = n_rows == 1 ? SUMS / 2 : SUMS / n_rows; /* more are no faster */
  for (int first = 0; first < NIBBLES; first += vectors) {
    __m512i sums[DIGIT_SUMS];
    const char *row = c->words + first * LANES * 4;
    const int32_t *x = (const int32_t *)(const void *)c->x;
    ahead next = *c->next;
    begin_digits(n_digits, n_rows, vectors, c, sums);
    for (int64_t i = 0; i < c->n; i++, row += c->stride, x += 2 * QUAD * n_rows) {
      vector_words even[SUMS], odd[SUMS];
      UNROLL for (int v = 0; v < vectors; v++) {
        vector_words words = ((const vector_words *)(const void *)row)[v];
        even[v] = words & LOW_NIBBLES;
        odd[v] = words >> 4 & LOW_NIBBLES;
      }
      UNROLL for (int v = 0; v < vectors; v++) {
        __m512i *to = sums + v * n_rows * n_digits;
        fetch_rows(&next, 1);
        add_digits(n_digits, n_rows, 1, x, even + v, to);
        add_digits(n_digits, n_rows, 1, x + QUAD * n_rows, odd + v, to);
      }
    }
    *c->next = next;
    UNROLL for (int v = 0; v < vectors; v++)
        add_digit_totals(n_digits, n_rows, c, first + v, sums + v * n_rows * n_digits);
  }
}
#endif

typedef void (*chunk_fn)(const chunk *c);
#define MULTIPLY_FLOATS(format, n_digits, n_rows)                                                                      \
  static void format##_##n_digits##_##n_rows(const chunk *c) {                                                         \
    multiply_##format(n_rows, c);                                                                                      \
  }
#define MULTIPLY_DIGITS(format, n_digits, n_rows)                                                                      \
  static void format##_##n_digits##_##n_rows(const chunk *c) {                                                         \
    multiply_##format##_digits(n_digits, n_rows, c);                                                                   \
  }
FOR_ROWS(MULTIPLY_FLOATS, awq, 0)
FOR_ROWS(MULTIPLY_FLOATS, gptq, 0)
FOR_DIGITS(MULTIPLY_DIGITS, awq, 2)
FOR_DIGITS(MULTIPLY_DIGITS, awq, 3)
FOR_DIGITS(MULTIPLY_DIGITS, gptq, 2)
FOR_DIGITS(MULTIPLY_DIGITS, gptq, 3)
static const chunk_fn chunk_fns[][MOST_DIGITS + 1][MOST_ROWS + 1] = {[CPU_AWQ] = NAMES(awq), [CPU_GPTQ] = NAMES(gptq)};

/* In which column of its word the nibbles of AWQ are. */
static const int awq_columns[] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Column `i` of a block in the order of its vectors. */
static int place_of(const few_rows *few, int i) {
  int place = i / LANES, lane = i % LANES;
  if (few->linear->format != CPU_AWQ)
    return i;
  return few->has_digits ? 8 * (lane / 4 * 4 + place / 2) + awq_columns[lane % 4 * 2 + place % 2]
                         : 8 * lane + awq_columns[place];
}

/* The chunk that begins with this row. */
static int64_t rows_of_chunk(const few_rows *few, int64_t row) {
  return least(shape_of(few).chunk_rows, few->linear->group - row % few->linear->group);
}

/* NIBBLES vectors: those at even places before those at odd ones. */
SPECIALISED void part(const vector *from, vector *to) {
  UNROLL for (int i = 0; i < NIBBLES / 2; i++) {
    to[i] = take_even(from[2 * i], from[2 * i + 1]);
    to[i + NIBBLES / 2] = take_odd(from[2 * i], from[2 * i + 1]);
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

#ifdef __AVX512VNNI__
/* As multiply_awq_digits has them. */
static void order_awq_digits(float *columns) {
  const __m512i halves = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  __m512 all[NIBBLES];
  for (int v = 0; v < NIBBLES; v++)
    all[v] = _mm512_permutexvar_ps(halves, _mm512_loadu_ps(columns + v * LANES));
  for (int v = 0; v < 2; v++) { /* of each word 128 bits belong to a vector, and so they do of that */
    const __m512 *from = all + v;
    __m512 low[2] = {_mm512_shuffle_f32x4(from[0], from[2], 0x44), _mm512_shuffle_f32x4(from[4], from[6], 0x44)};
    __m512 high[2] = {_mm512_shuffle_f32x4(from[0], from[2], 0xee), _mm512_shuffle_f32x4(from[4], from[6], 0xee)};
    float *to = columns + 4 * v * LANES;
    _mm512_storeu_ps(to, _mm512_shuffle_f32x4(low[0], low[1], 0x88));
    _mm512_storeu_ps(to + LANES, _mm512_shuffle_f32x4(low[0], low[1], 0xdd));
    _mm512_storeu_ps(to + 2 * LANES, _mm512_shuffle_f32x4(high[0], high[1], 0x88));
    _mm512_storeu_ps(to + 3 * LANES, _mm512_shuffle_f32x4(high[0], high[1], 0xdd));
  }
}

static void load_awq_digits_zeros(const char *words, float *zeros) {
  const __m512i all = _mm512_loadu_si512(words), bytes = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 8, 16, 24));
  const __m512i of_word[] = {_mm512_shuffle_epi32(all, _MM_PERM_AAAA), _mm512_shuffle_epi32(all, _MM_PERM_BBBB),
                             _mm512_shuffle_epi32(all, _MM_PERM_CCCC), _mm512_shuffle_epi32(all, _MM_PERM_DDDD)};
  for (int v = 0; v < NIBBLES; v++) {
    __m512i byte = _mm512_srlv_epi32(of_word[v / 2], bytes);
    __m512i code = _mm512_and_si512(v % 2 ? _mm512_srli_epi32(byte, 4) : byte, _mm512_set1_epi32(15));
    *(vector *)(zeros + v * LANES) = (vector)_mm512_cvtepi32_ps(code) - 8;
  }
}
#endif

/* Zero points of AWQ are the same nibbles as those of the weight, with the same powers. */
static void load_awq_zeros(const char *words, float *zeros) {
  vector_words lower = *(const vector_words *)(const void *)words, upper = lower >> 16;
  UNROLL for (int p = 0; p < NIBBLES; p++) * (vector *)(zeros + p * LANES) = nibble(p < 4 ? lower : upper, p);
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
static void load_group(const few_rows *few, int64_t group, int64_t block, float *to) {
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
  memset(to + n, 0, (size_t)(BLOCK - n) * sizeof *to);
  cpu_block_types[linear->scales.dtype].load(to, cpu_matrix_row(linear->scales, group), first, n);
  if (!is_awq)
    load_gptq_zeros(few, zeros, to + BLOCK);
#ifdef __AVX512VNNI__
  else if (few->has_digits) {
    order_awq_digits(to);
    load_awq_digits_zeros(zeros, to + BLOCK);
  }
#endif
  else {
    order_awq(to);
    load_awq_zeros(zeros, to + BLOCK);
  }
}

/* Each row lies in pages of its own. */
static void touch_rows(const ahead *next, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    cpu_touch_pages(next->row + i * next->stride, next->width);
}

/* So many columns of a row are on their way. */
static void fetch_group(const cpu_four_bit_linear *linear, int64_t group, int64_t first, int64_t n) {
  int64_t size = cpu_dtype_size(linear->scales.dtype);
  fetch((const char *)cpu_matrix_row(linear->scales, group) + first * size, n * size);
  if (linear->zeros)
    fetch(linear->zeros + group * linear->zeros_stride + first / 2, n / 2);
}

/* Rows `row` to row + rows - 1 of a block, which are of one group. The last block may lack columns. */
static void multiply_chunk(const few_rows *few, int64_t block, int64_t row, int64_t rows, const float *group,
                           ahead *next, float *totals) {
  const cpu_four_bit_linear *linear = few->linear;
  bool is_awq = linear->format == CPU_AWQ;
  int64_t n = least(BLOCK, linear->n - block * BLOCK);
  int64_t bytes = is_awq ? n / 2 : 4 * n, whole = is_awq ? BLOCK / 2 : 4 * BLOCK;
  char rest[MOST_CHUNK_ROWS * BLOCK / 2];
  chunk c = {.words = linear->weight + (is_awq ? row : row / 8) * linear->weight_stride + block * whole,
             .stride = linear->weight_stride,
             .n = is_awq ? rows : rows / 8,
             .next = next,
             .x = few->x + row * few->n_rows,
             .x_group = few->chunks + row / QUAD * few->n_rows,
             .zeros = group + BLOCK,
             .scales = group,
             .totals = totals};
  if (n < BLOCK) {
    for (int64_t i = 0; i < c.n; i++) {
      memcpy(rest + i * whole, c.words + i * c.stride, (size_t)bytes);
      memset(rest + i * whole + bytes, 0, (size_t)(whole - bytes));
    }
    c.words = rest;
    c.stride = whole;
  }
  int n_digits = few->has_digits ? most_digits(c.x_group, few->n_rows) : 0;
  chunk_fns[linear->format][n_digits][few->n_rows](&c);
}

static void end_block(const few_rows *few, int64_t block, const float *totals) {
  const cpu_four_bit_linear *linear = few->linear;
  float sums[BLOCK];
  for (int64_t row = 0; row < linear->m; row++) {
    for (int i = 0; i < BLOCK; i++)
      sums[place_of(few, i)] = totals[(i / LANES * few->n_rows + row) * LANES + i % LANES];
    end_columns(linear, row, block * BLOCK, least(BLOCK, linear->n - block * BLOCK), sums);
  }
}

/* What a block of a stripe has: sums; scales and zero points of their group. */
typedef struct stripe {
  int64_t n_totals, n_group; /* floats */
  float *totals, *groups;
} stripe;

static void multiply_stripe(const few_rows *few, int64_t first, int64_t blocks, const stripe *s) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t whole = linear->format == CPU_AWQ ? BLOCK / 2 : 4 * BLOCK, rows_of_word = linear->format == CPU_AWQ ? 1 : 8;
  for (int64_t row = 0, end; row < linear->k; row = end) {
    end = row + rows_of_chunk(few, row);
    ahead next = {.row = linear->weight + first * whole + end / rows_of_word * linear->weight_stride,
                  .width = blocks * whole,
                  .stride = linear->weight_stride};
    if (end >= linear->k)
      next.row = linear->weight + (first + blocks) * whole;
    touch_rows(&next, (end - row) / rows_of_word);
    for (int64_t b = 0; b < blocks; b++) {
      if (end < linear->k && end % linear->group == 0)
        fetch_group(linear, end / linear->group, (first + b) * BLOCK, BLOCK);
      if (row % linear->group == 0)
        load_group(few, row / linear->group, first + b, s->groups + b * s->n_group);
      multiply_chunk(few, first + b, row, end - row, s->groups + b * s->n_group, &next, s->totals + b * s->n_totals);
    }
  }
}

fl_status cpu_four_bit_words_range(void *user, int64_t begin, int64_t end) {
  const few_rows *few = user;
  const int64_t most = shape_of(few).stripe;
  stripe s = {.n_totals = BLOCK * few->n_rows, .n_group = (few->has_digits ? 2 : 5) * BLOCK};
  s.totals = cpu_scratch_take((size_t)(most * (s.n_totals + s.n_group)));
  if (!s.totals)
    return FL_ENOMEM;
  s.groups = s.totals + most * s.n_totals;
  for (int64_t first = begin; first < end; first += most) {
    int64_t blocks = least(most, end - first);
    memset(s.totals, 0, (size_t)(blocks * s.n_totals) * sizeof(float));
    multiply_stripe(few, first, blocks, &s);
    for (int64_t b = 0; b < blocks; b++)
      end_block(few, first + b, s.totals + b * s.n_totals);
  }
  cpu_scratch_give(s.totals);
  return FL_OK;
}

void cpu_four_bit_words_floats(const few_rows *few, float *to) {
  const cpu_four_bit_linear *linear = few->linear;
  float block[CPU_BLOCK];
  for (int64_t row = 0; row < few->n_rows; row++)
    for (int64_t first = 0; first < linear->k; first += CPU_BLOCK) {
      int64_t n = cpu_block_size(linear->k - first);
      memset(block, 0, sizeof block);
      if (row < linear->m)
        cpu_block_types[linear->x.dtype].load(block, cpu_matrix_row(linear->x, row), first, n);
      for (int64_t i = 0; i < n; i++)
        to[(first + i) * few->n_rows + row] = block[i];
    }
}

#ifdef __AVX512VNNI__
bool cpu_four_bit_words_digits(const few_rows *few, const float *row, int64_t r, void *to, chunk_of_x *chunks) {
  const cpu_four_bit_linear *linear = few->linear;
  const __m512i order = linear->format == CPU_AWQ
                            ? _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                            : _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m512i by_digit = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (int64_t first = 0, n; first < linear->k; first += n) {
    chunk_of_x *of_chunk = &chunks[first / QUAD * few->n_rows + r];
    __m512i sums = _mm512_setzero_si512();
    int32_t eights[LANES];
    n = least(rows_of_chunk(few, first), linear->k - first);
    uint32_t exponent = exponent_above(row + first, n);
    if (!exponent)
      return false;
    int n_digits = linear->x.dtype == CPU_BFLOAT16 ? digits_for(row + first, n, exponent) : MOST_DIGITS;
    of_chunk->n_digits = n_digits;
    for (int64_t i = first; i < first + n; i += LANES) {
      const __m512i digits = _mm512_permutexvar_epi32(order, digits_of(n_digits, row + i, first + n - i, exponent));
      _Alignas(64) char quads[LANES * QUAD];
      _mm512_store_si512(quads, _mm512_shuffle_epi8(digits, by_digit));
      sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(8), _mm512_load_si512(quads));
      for (int64_t quad = 0; quad < LANES / QUAD && i + quad * QUAD < first + n; quad++)
        memcpy((char *)to + ((i / QUAD + quad) * few->n_rows + r) * QUAD * QUAD, quads + quad * QUAD * QUAD,
               QUAD * QUAD);
    }
    _mm512_storeu_si512(eights, sums);
    for (int d = 0; d < MOST_DIGITS; d++)
      of_chunk->sums[d] = -(eights[d] + eights[QUAD + d] + eights[2 * QUAD + d] + eights[3 * QUAD + d]);
    of_chunk->unit = unit_of(n_digits, exponent);
    of_chunk->sum = (65536.f * (float)of_chunk->sums[2] + (float)(256 * of_chunk->sums[1] + of_chunk->sums[0])) / -8 *
                    of_chunk->unit;
  }
  return true;
}
#endif
