/* Products of a few rows with a weight of 8 bits: see scaled_mm.h. Decoding takes the time to read the weight, so each
 * byte of it is read once for all rows. */
#include "plugins/cpu/flagos/products/integer_tile.h"
#include "plugins/cpu/flagos/products/scaled_mm.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/support/pages.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>

/* Rows are computed as 1, 2, 4 or 8, rows that lack as zeros, with as many columns at once as there are registers for:
 * the more, the less often x is read. */
enum { MOST_ROWS = 8, MOST_COLUMNS = 8, SUMS = REGISTERS / 2, GRAIN_BYTES = 256 << 10 };
#define COLUMNS(n_rows) (SUMS / (n_rows) < MOST_COLUMNS ? SUMS / (n_rows) : MOST_COLUMNS)

static int64_t rows_of_tile(int64_t m) {
  return m > 4 ? 8 : m > 2 ? 4 : m;
}

/* Where the columns of a step begin; the last column stands for those behind it. */
typedef struct columns {
  const uint8_t *at[MOST_COLUMNS];
  const char *next; /* those of the step after this, to fetch meanwhile */
} columns;

static columns columns_at(const cpu_scaled_mm *mm, int64_t first, int64_t end, int64_t n) {
  columns c = {.next = (const char *)mm->weight + (first + n) * mm->weight_stride};
  for (int64_t i = 0; i < MOST_COLUMNS; i++)
    c.at[i] = (const uint8_t *)mm->weight + least(first + i, end - 1) * mm->weight_stride;
  cpu_touch_pages(c.next, n * mm->k);
  return c;
}

/* ---------------------------------------------------------------------------------- float8, and x that is floats */

#if defined(__F16C__)
typedef float results[MOST_COLUMNS];

/* x as floats [pairs, rows, PAIR], zeros behind its end. */
static void convert_rows(const cpu_scaled_mm *mm, int64_t n_rows, float *to) {
  float pair[PAIR];
  for (int64_t i = 0; i < mm->k; i += PAIR)
    for (int64_t r = 0; r < n_rows; r++, to += PAIR) {
      memset(pair, 0, sizeof pair);
      if (r < mm->m)
        cpu_scaled_mm_widen(mm, pair, r, i, least(PAIR, mm->k - i));
      memcpy(to, pair, sizeof pair);
    }
}

/* PAIR codes as floats; those of float8 of 2^-8 of their values: as float16 they differ in the exponent's bias. Those
 * of NaN are finite, and marked in what is returned. */
#if defined(__AVX512BW__)
typedef uint32_t nans;
SPECIALISED nans widen_pair(bool is_float8, const uint8_t *codes, vector *low, vector *high) {
  const __m256i bytes = _mm256_loadu_si256((const __m256i *)codes);
  if (!is_float8) {
    *low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
    *high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
    return 0;
  }
  const __m512i halves =
      _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7), _mm512_set1_epi16((short)0xbfff));
  *low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
  return _mm256_cmpeq_epi8_mask(_mm256_or_si256(bytes, _mm256_set1_epi8((char)0x80)), _mm256_set1_epi8(-1));
}
#else
typedef int nans;
SPECIALISED nans widen_pair(bool is_float8, const uint8_t *codes, vector *low, vector *high) {
  const __m128i bytes = _mm_loadu_si128((const __m128i *)codes);
  if (!is_float8) {
    *low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    *high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
    return 0;
  }
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), _mm256_set1_epi16((short)0xbfff));
  *low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  *high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(bytes, _mm_set1_epi8((char)0x80)), _mm_set1_epi8(-1)));
}
#endif

/* sum[c * n_rows + r] += a pair of row r of x * one of column c */
SPECIALISED void add_pair(bool is_float8, int n_rows, const float *x, const uint8_t *const *at, int64_t i, vector *sum,
                          nans *nan) {
  const int n_columns = COLUMNS(n_rows);
  UNROLL for (int c = 0; c < n_columns; c++) {
    vector low, high;
    nan[c] |= widen_pair(is_float8, at[c] + i, &low, &high);
    UNROLL for (int r = 0; r < n_rows; r++) {
      sum[c * n_rows + r] += low * *(const vector *)(x + r * PAIR);
      sum[c * n_rows + r] += high * *(const vector *)(x + r * PAIR + LANES);
    }
  }
}

/* Terms first to end - 1, of which only those at the end of a row may be no whole pair. */
SPECIALISED void add_terms(bool is_float8, int n_rows, int64_t first, int64_t end, const float *x, const columns *from,
                           vector *sum, nans *nan) {
  const int n_columns = COLUMNS(n_rows);
  int64_t i = first;
  for (; i + PAIR <= end; i += PAIR) {
    fetch(from->next + i * n_columns, PAIR * n_columns);
    add_pair(is_float8, n_rows, x + i * n_rows, from->at, i, sum, nan);
  }
  if (i < end) {
    uint8_t rest[MOST_COLUMNS][PAIR] = {0};
    const uint8_t *rests[MOST_COLUMNS];
    for (int c = 0; c < n_columns; c++)
      rests[c] = memcpy(rest[c], from->at[c] + i, (size_t)(end - i));
    add_pair(is_float8, n_rows, x + i * n_rows, rests, 0, sum, nan);
  }
}

/* With the scales of blocks, if there are some. */
SPECIALISED void dot_floats(bool is_float8, int n_rows, const cpu_scaled_mm *mm, const float *x, int64_t column,
                            const columns *from, results *sums) {
  const int n_columns = COLUMNS(n_rows);
  vector total[SUMS] = {0};
  nans nan[MOST_COLUMNS] = {0};
  if (!mm->has_blocks)
    add_terms(is_float8, n_rows, 0, mm->k, x, from, total, nan);
  else
    for (int64_t first = 0, block = 0; first < mm->k; first += mm->block_k, block++) {
      vector sum[SUMS] = {0};
      add_terms(is_float8, n_rows, first, least(mm->k, first + mm->block_k), x, from, sum, nan);
      UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) {
        int64_t row = least(r, mm->m - 1), n = least(column + c, mm->n - 1);
        total[c * n_rows + r] +=
            sum[c * n_rows + r] *
            (mm->x_scale.data[row * mm->x_scale.row + block * mm->x_scale.column] *
             mm->weight_scale.data[n / mm->block_n * mm->weight_scale.row + block * mm->weight_scale.column]);
      }
    }
  UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
      nan[c] ? NAN : (is_float8 ? 256 : 1) * add_lanes(total[c * n_rows + r]);
}

#define DOT_FLOATS(name, is_float8, n_rows)                                                                            \
  static void name##_##n_rows(const cpu_scaled_mm *mm, const float *x, int64_t column, const columns *from,            \
                              results *sums) {                                                                         \
    dot_floats(is_float8, n_rows, mm, x, column, from, sums);                                                          \
  }
DOT_FLOATS(dot_float8, true, 1)
DOT_FLOATS(dot_float8, true, 2)
DOT_FLOATS(dot_float8, true, 4)
DOT_FLOATS(dot_float8, true, 8)
DOT_FLOATS(dot_widened, false, 1)
DOT_FLOATS(dot_widened, false, 2)
DOT_FLOATS(dot_widened, false, 4)
DOT_FLOATS(dot_widened, false, 8)
typedef void (*dot_fn)(const cpu_scaled_mm *mm, const float *x, int64_t column, const columns *from, results *sums);
static const dot_fn dots_float8[] = {[1] = dot_float8_1, [2] = dot_float8_2, [4] = dot_float8_4, [8] = dot_float8_8},
                    dots_widened[] = {
                        [1] = dot_widened_1, [2] = dot_widened_2, [4] = dot_widened_4, [8] = dot_widened_8};
enum { HAS_FLOATS = 1 };

static void float_columns(const cpu_scaled_mm *mm, const void *x, int64_t n_rows, int64_t first, int64_t n,
                          float (*to)[CPU_BLOCK]) {
  for (int64_t i = 0, step = COLUMNS(n_rows); i < n; i += step) {
    results sums[MOST_ROWS];
    const columns from = columns_at(mm, first + i, first + n, step);
    (mm->is_float8 ? dots_float8 : dots_widened)[n_rows](mm, x, first + i, &from, sums);
    for (int64_t r = 0; r < mm->m; r++)
      memcpy(&to[r][i], sums[r], (size_t)least(step, n - i) * sizeof(float));
  }
}

#else
enum { HAS_FLOATS = 0 };

static void convert_rows(const cpu_scaled_mm *mm, int64_t n_rows, float *to) {
  (void)mm, (void)n_rows, (void)to;
}

static void float_columns(const cpu_scaled_mm *mm, const void *x, int64_t n_rows, int64_t first, int64_t n,
                          float (*to)[CPU_BLOCK]) {
  (void)mm, (void)x, (void)n_rows, (void)first, (void)n, (void)to;
}
#endif

/* ------------------------------------------------------------------------------------------------------------ int8 */

#if defined(__AVX512VNNI__)
enum { STEP = 64 };

/* x with 128 more, [steps, rows, STEP]; behind its end the weight is 0. */
static void offset_rows(const cpu_scaled_mm *mm, int64_t n_rows, uint8_t *to) {
  for (int64_t i = 0; i < mm->k; i += STEP)
    for (int64_t r = 0; r < n_rows; r++, to += STEP) {
      const uint8_t *row = (const uint8_t *)mm->x + least(r, mm->m - 1) * mm->x_stride + i;
      for (int64_t b = 0; b < STEP; b++)
        to[b] = i + b < mm->k ? row[b] ^ 0x80 : 0;
    }
}

SPECIALISED void add_step(int n_rows, const uint8_t *x, const uint8_t *const *at, int64_t i, __m512i *sum,
                          __m512i *own) {
  const int n_columns = COLUMNS(n_rows);
  UNROLL for (int c = 0; c < n_columns; c++) {
    const __m512i weight = _mm512_loadu_si512(at[c] + i);
    own[c] = _mm512_dpbusd_epi32(own[c], _mm512_set1_epi8(1), weight);
    UNROLL for (int r = 0; r < n_rows; r++) sum[c * n_rows + r] =
        _mm512_dpbusd_epi32(sum[c * n_rows + r], _mm512_loadu_si512(x + r * STEP), weight);
  }
}

/* Sums of x * weight, and of the weight alone. */
SPECIALISED void dot_int8(int n_rows, int64_t k, const uint8_t *x, const columns *from, int32_t (*sums)[MOST_COLUMNS],
                          int32_t *weight_sums) {
  const int n_columns = COLUMNS(n_rows);
  __m512i sum[SUMS], own[MOST_COLUMNS];
  UNROLL for (int c = 0; c < n_columns; c++) {
    own[c] = _mm512_setzero_si512();
    UNROLL for (int r = 0; r < n_rows; r++) sum[c * n_rows + r] = _mm512_setzero_si512();
  }
  int64_t i = 0;
  for (; i + STEP <= k; i += STEP) {
    fetch(from->next + i * n_columns, STEP * n_columns);
    add_step(n_rows, x + i * n_rows, from->at, i, sum, own);
  }
  if (i < k) {
    uint8_t rest[MOST_COLUMNS][STEP] = {0};
    const uint8_t *rests[MOST_COLUMNS];
    for (int c = 0; c < n_columns; c++)
      rests[c] = memcpy(rest[c], from->at[c] + i, (size_t)(k - i));
    add_step(n_rows, x + i * n_rows, rests, 0, sum, own);
  }
  UNROLL for (int c = 0; c < n_columns; c++) {
    weight_sums[c] = _mm512_reduce_add_epi32(own[c]);
    UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
        _mm512_reduce_add_epi32(sum[c * n_rows + r]) - 128 * weight_sums[c];
  }
}

#else
enum { STEP = 1 };

static void offset_rows(const cpu_scaled_mm *mm, int64_t n_rows, uint8_t *to) {
  for (int64_t r = 0; r < n_rows; r++)
    memcpy(to + r * mm->k, (const uint8_t *)mm->x + least(r, mm->m - 1) * mm->x_stride, (size_t)mm->k);
}

/* The columns of a step stay in the first-level cache for all rows. */
SPECIALISED void dot_int8(int n_rows, int64_t k, const uint8_t *x, const columns *from, int32_t (*sums)[MOST_COLUMNS],
                          int32_t *weight_sums) {
  for (int c = 0; c < COLUMNS(n_rows); c++) {
    const int8_t *weight = (const int8_t *)from->at[c];
    int32_t own = 0;
    for (int64_t i = 0; i < k; i++)
      own += weight[i];
    weight_sums[c] = own;
    for (int r = 0; r < n_rows; r++) {
      const int8_t *row = (const int8_t *)x + r * k;
      int32_t sum = 0;
      for (int64_t i = 0; i < k; i++)
        sum += (int16_t)row[i] * (int16_t)weight[i];
      sums[r][c] = sum;
    }
  }
}
#endif

#define DOT_INT8(n_rows)                                                                                               \
  static void dot_int8_##n_rows(int64_t k, const uint8_t *x, const columns *from, int32_t(*sums)[MOST_COLUMNS],        \
                                int32_t *weight_sums) {                                                                \
    dot_int8(n_rows, k, x, from, sums, weight_sums);                                                                   \
  }
DOT_INT8(1)
DOT_INT8(2)
DOT_INT8(4)
DOT_INT8(8)
static void (*const dots_int8[])(int64_t k, const uint8_t *x, const columns *from, int32_t (*sums)[MOST_COLUMNS],
                                 int32_t *weight_sums) = {
    [1] = dot_int8_1, [2] = dot_int8_2, [4] = dot_int8_4, [8] = dot_int8_8};

static void int8_columns(const cpu_scaled_mm *mm, const void *x, int64_t n_rows, int64_t first, int64_t n,
                         float (*to)[CPU_BLOCK]) {
  for (int64_t i = 0, step = COLUMNS(n_rows); i < n; i += step) {
    int32_t sums[MOST_ROWS][MOST_COLUMNS], weight_sums[MOST_COLUMNS];
    const columns from = columns_at(mm, first + i, first + n, step);
    dots_int8[n_rows](mm->k, x, &from, sums, weight_sums);
    for (int64_t r = 0; r < mm->m; r++) {
      int64_t zero = mm->azp ? mm->azp[r * mm->azp_step] : 0;
      for (int64_t c = 0; c < least(step, n - i); c++)
        to[r][i + c] = (float)(sums[r][c] - zero * weight_sums[c]);
    }
  }
}

/* --------------------------------------------------------------------------------------------------------- threads */

static bool multiplies_floats(const cpu_scaled_mm *mm) {
  return mm->is_float8 || mm->x_dtype != CPU_OTHER;
}

typedef struct few_rows {
  const cpu_scaled_mm *mm;
  const void *x;
  int64_t n_rows;
} few_rows;

static fl_status range(void *user, int64_t first, int64_t end) {
  const few_rows *rows = user;
  const cpu_scaled_mm *mm = rows->mm;
  float sums[MOST_ROWS][CPU_BLOCK];
  for (; first < end; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(end - first);
    (multiplies_floats(mm) ? float_columns : int8_columns)(mm, rows->x, rows->n_rows, first, n, sums);
    for (int64_t row = 0; row < mm->m; row++)
      cpu_scaled_mm_end(mm, row, first, n, sums[row]);
  }
  return FL_OK;
}

bool cpu_scaled_rows_take(const cpu_scaled_mm *mm) {
  if (mm->m > MOST_ROWS)
    return false;
  if (multiplies_floats(mm))
    return HAS_FLOATS && (!mm->has_blocks || mm->block_k % PAIR == 0);
  return !mm->has_blocks && mm->k <= CPU_INTEGER_TERMS;
}

fl_status cpu_scaled_rows(const cpu_scaled_mm *mm) {
  few_rows rows = {.mm = mm, .n_rows = rows_of_tile(mm->m)};
  int64_t padded = multiplies_floats(mm) ? round_up(mm->k, PAIR) * (int64_t)sizeof(float) : round_up(mm->k, STEP);
  void *x = cpu_scratch_take_bytes((size_t)(rows.n_rows * padded));
  if (!x)
    return FL_ENOMEM;
  if (multiplies_floats(mm))
    convert_rows(mm, rows.n_rows, x);
  else
    offset_rows(mm, rows.n_rows, x);
  rows.x = x;
  fl_status status = cpu_parallel_for(mm->n, round_up(divide_up(GRAIN_BYTES, mm->k + 1), 64), range, &rows);
  cpu_scratch_give(x);
  return status;
}

/* ------------------------------------------------------------------------------------------------------ conversion */

/* As a float of 2^-120 of the value the code's bits are moved alone; a float's least exponents are those of e4m3fn. */
void cpu_widen_float8(float *restrict to, const uint8_t *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t code = from[i], magnitude = code & 0x7f;
    float value = fl_float_from_bits(magnitude << 20) * 0x1p120f;
    value = magnitude == 0x7f ? fl_float_from_bits(0x7fc00000u) : value;
    to[i] = fl_float_from_bits(fl_float_bits(value) | (code & 0x80) << 24);
  }
}

void cpu_scaled_mm_widen(const cpu_scaled_mm *mm, float *restrict to, int64_t row, int64_t first, int64_t n) {
  const char *from = (const char *)mm->x + row * mm->x_stride;
  if (mm->x_dtype != CPU_OTHER)
    cpu_block_types[mm->x_dtype].load(to, from, first, n);
  else
    cpu_widen_float8(to, (const uint8_t *)from + first, n);
}
