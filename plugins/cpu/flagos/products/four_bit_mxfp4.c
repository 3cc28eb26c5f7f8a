/* Weights of MXFP4 times a few rows (four_bit_rows.h). */
#include "plugins/cpu/flagos/products/four_bit_rows.h"
#include "plugins/cpu/support/pages.h"

/* A vector of words is BLOCK columns of x; each scale's are 4 words. */
enum { WORDS_SCALES = LANES / 4 };
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
  const char *next, *next_scales; /* to fetch meanwhile */
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
  __m512i digits[MOST_DIGITS][2]; /* of even columns, of odd ones */
  __m512i offsets;                /* values are OFFSET more than twice those of MXFP4 */
  vector units;                   /* half of them */
} words_of_x;
enum { OFFSET = 12 };

/* In units, of some columns, and OFFSET times the sum of x more. Columns take turns: each sum waits for its last. */
SPECIALISED void sum_digits(int n_digits, int n_columns, const words_of_x *x, const __m512i *even, const __m512i *odd,
                            __m512i *sums) {
  UNROLL for (int c = 0; c < n_columns; c++) sums[c] = _mm512_setzero_si512();
  UNROLL for (int d = n_digits - 1; d >= 0; d--) {
    UNROLL for (int c = 0; c < n_columns; c++) sums[c] =
        _mm512_dpbusd_epi32(_mm512_slli_epi32(sums[c], 8), even[c], x->digits[d][0]);
    UNROLL for (int c = 0; c < n_columns; c++) sums[c] = _mm512_dpbusd_epi32(sums[c], odd[c], x->digits[d][1]);
  }
}

SPECIALISED void sum_words_digits(int n_digits, int n_rows, const float *x, const char *const *at, vector *sum) {
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
    sum_digits(n_digits, n_columns, &rows[r], even, odd, sums);
    UNROLL for (int c = 0; c < n_columns; c++) sum[c * n_rows + r] =
        (vector)_mm512_cvtepi32_ps(_mm512_sub_epi32(sums[c], rows[r].offsets)) * rows[r].units;
  }
}
#endif

SPECIALISED void add_words(int n_digits, int n_rows, const float *x, const char *const *at,
                           const uint8_t *const *scales, vector *total) {
  const int n_columns = COLUMNS(n_rows);
  vector sum[DOTS] = {0};
#ifdef __AVX512VNNI__
  if (n_digits)
    sum_words_digits(n_digits, n_rows, x, at, sum);
  else
#endif
    sum_words(n_rows, x, at, sum);
  (void)n_digits;
  UNROLL for (int c = 0; c < n_columns; c++) {
    vector scale = scales_of(scales[c]);
    UNROLL for (int r = 0; r < n_rows; r++) total[c * n_rows + r] += scale * sum[c * n_rows + r];
  }
}

SPECIALISED void dot_columns(int n_digits, int n_rows, const few_rows *few, const columns *from,
                             float (*sums)[MOST_COLUMNS]) {
  const int64_t k = few->linear->k;
  const float *x = few->x;
  const int n_x = n_rows * BLOCK; /* of a vector of words */
  const int n_columns = COLUMNS(n_rows);
  vector total[DOTS] = {0};
  const char *at[MOST_COLUMNS];
  const uint8_t *scales[MOST_COLUMNS];
  int64_t i = 0;
  for (; i + BLOCK <= k; i += BLOCK, x += n_x) {
    UNROLL for (int c = 0; c < n_columns; c++) {
      at[c] = from->at[c] + i / 2;
      scales[c] = from->scales[c] + i / 32;
    }
    fetch(from->next + i / 2 * n_columns, n_columns * 4 * LANES);
    fetch(from->next_scales + i / 32 * n_columns, 1);
    if (n_digits && most_digits(few->chunks + i / QUAD * n_rows, n_rows) == 2)
      add_words(2, n_rows, x, at, scales, total);
    else
      add_words(n_digits, n_rows, x, at, scales, total);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][BLOCK / 2] = {0};
    uint8_t rest_scales[MOST_COLUMNS][WORDS_SCALES];
    memset(rest_scales, 127, sizeof rest_scales);
    for (int c = 0; c < n_columns; c++) {
      at[c] = memcpy(rest[c], from->at[c] + i / 2, (size_t)(k - i) / 2);
      scales[c] = memcpy(rest_scales[c], from->scales[c] + i / 32, (size_t)(k - i) / 32);
    }
    add_words(n_digits, n_rows, x, at, scales, total);
  }
  UNROLL for (int c = 0; c < n_columns; c++) UNROLL for (int r = 0; r < n_rows; r++) sums[r][c] =
      add_lanes(total[c * n_rows + r]);
}

typedef void (*dot_fn)(const few_rows *few, const columns *from, float (*sums)[MOST_COLUMNS]);
#define DOT(format, n_digits, n_rows)                                                                                  \
  static void format##_##n_digits##_##n_rows(const few_rows *few, const columns *from, float(*sums)[MOST_COLUMNS]) {   \
    dot_columns(n_digits, n_rows, few, from, sums);                                                                    \
  }
FOR_ROWS(DOT, mxfp4, 0)
FOR_DIGITS(DOT, mxfp4, 3)
static const dot_fn dots[MOST_DIGITS + 1][MOST_ROWS + 1] = {FOR_ROWS(NAME, mxfp4, 0) FOR_DIGITS(NAME, mxfp4, 3)};

fl_status cpu_four_bit_mxfp4_range(void *user, int64_t first, int64_t end) {
  const few_rows *few = user;
  const cpu_four_bit_linear *linear = few->linear;
  int64_t step = COLUMNS(few->n_rows);
  for (; first < end; first += CPU_BLOCK) {
    float results[MOST_ROWS][CPU_BLOCK], sums[MOST_ROWS][MOST_COLUMNS];
    int64_t n = cpu_block_size(end - first);
    for (int64_t i = 0; i < n; i += step) {
      columns from = {.next = linear->weight + (first + i + step) * linear->weight_stride,
                      .next_scales = cpu_matrix_row(linear->scales, first + i + step)};
      cpu_touch_pages(from.next, step * linear->k / 2);
      for (int64_t c = 0; c < MOST_COLUMNS; c++) { /* the last one stands for those behind it */
        int64_t column = first + least(i + c, n - 1);
        from.at[c] = linear->weight + column * linear->weight_stride;
        from.scales[c] = cpu_matrix_row(linear->scales, column);
      }
      dots[few->has_digits ? MOST_DIGITS : 0][few->n_rows](few, &from, sums);
      for (int64_t row = 0; row < linear->m; row++)
        memcpy(&results[row][i], sums[row], (size_t)least(step, n - i) * sizeof(float));
    }
    for (int64_t row = 0; row < linear->m; row++)
      end_columns(linear, row, first, n, results[row]);
  }
  return FL_OK;
}

void cpu_four_bit_mxfp4_floats(const few_rows *few, float *to) {
  const cpu_four_bit_linear *linear = few->linear;
  int64_t n_rows = few->n_rows;
  for (int64_t first = 0; first < linear->k; first += BLOCK, to += BLOCK * n_rows)
    for (int64_t row = 0; row < n_rows; row++) {
      float block[BLOCK] = {0};
      if (row < linear->m)
        cpu_block_types[linear->x.dtype].load(block, cpu_matrix_row(linear->x, row), first,
                                              least(BLOCK, linear->k - first));
      for (int p = 0; p < NIBBLES; p++)
        for (int lane = 0; lane < LANES; lane++)
          to[(p * n_rows + row) * LANES + lane] = block[8 * lane + p];
    }
}

#ifdef __AVX512VNNI__
/* Each scale's columns have a unit. */
bool cpu_four_bit_mxfp4_digits(const few_rows *few, const float *row, int64_t r, void *x, chunk_of_x *chunks) {
  enum { OF_SCALE = BLOCK / WORDS_SCALES };
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1)), offset = _mm512_set1_epi8(OFFSET);
  const int least_digits = few->linear->x.dtype == CPU_BFLOAT16 ? 2 : MOST_DIGITS;
  words_of_x *to = (words_of_x *)x + r;
  for (int64_t first = 0; first < few->linear->k; first += BLOCK, to += few->n_rows) {
    int n_digits = least_digits;
    uint32_t exponents[WORDS_SCALES];
    for (int scale = 0; scale < WORDS_SCALES; scale++) {
      const float *group = row + first + scale * OF_SCALE;
      exponents[scale] = exponent_above(group, OF_SCALE);
      if (!exponents[scale])
        return false;
      if (n_digits == 2)
        n_digits = digits_for(group, OF_SCALE, exponents[scale]);
    }
    for (int scale = 0; scale < WORDS_SCALES; scale++) {
      const float *group = row + first + scale * OF_SCALE;
      const __m512i low = digits_of(n_digits, group, LANES, exponents[scale]);
      const __m512i high = digits_of(n_digits, group + LANES, LANES, exponents[scale]);
      for (int d = 0; d < MOST_DIGITS; d++)
        for (int is_odd = 0; is_odd < 2; is_odd++)
          _mm_store_si128((__m128i *)&to->digits[d][is_odd] + scale,
                          one_digit(_mm512_permutex2var_epi32(low, is_odd ? odd : even, high), d));
      for (int lane = 0; lane < QUAD; lane++)
        to->units[scale * QUAD + lane] = unit_of(n_digits, exponents[scale]) / 2;
    }
    sum_digits(MOST_DIGITS, 1, to, &offset, &offset, &to->offsets);
    chunks[first / QUAD * few->n_rows + r].n_digits = n_digits;
  }
  return true;
}
#endif
