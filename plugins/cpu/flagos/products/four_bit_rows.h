/*
 * Weights of 4 bits times a few rows: see four_bit_linear.h. Decoding takes the time to read the weight, so each word
 * of it is read once for all rows, and its 8 values become floats in registers, or bytes, and x is digits (digits.h).
 * Rows are computed as 1, 2, 4 or 8, with as many vectors of columns that there are SUMS sums; rows that lack are
 * zeros.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_FOUR_BIT_ROWS_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_FOUR_BIT_ROWS_H

#include "plugins/cpu/flagos/products/digits.h"
#include "plugins/cpu/flagos/products/four_bit_linear.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/integers.h"

/* A block is so many columns of words that a vector of them, of AWQ, has. MXFP4's vectors have as many of x. */
enum { MOST_ROWS = 8, SUMS = 8, NIBBLES = 8, QUAD = 4, BLOCK = NIBBLES * LANES };
_Static_assert((int)BLOCK <= (int)CPU_BLOCK, "a block's columns end together");

/* A row's part of what a chunk of the weight is multiplied by, where that is digits. */
typedef struct chunk_of_x {
  int n_digits;
  int32_t sums[MOST_DIGITS]; /* -8 times; these are AWQ's and GPTQ's */
  float unit, sum;
} chunk_of_x;

typedef struct few_rows {
  const cpu_four_bit_linear *linear;
  int64_t n_rows;
  bool has_digits;          /* else x is floats */
  const float *x;           /* or digits, */
  const chunk_of_x *chunks; /* and [rows of the weight / QUAD, rows of x], where a chunk begins */
} few_rows;

/* Of a format: x as floats; row `r` of it as digits, false where some of its numbers may not have any; and columns of
 * MXFP4, blocks of the others, of the result. */
void cpu_four_bit_words_floats(const few_rows *few, float *to);
void cpu_four_bit_mxfp4_floats(const few_rows *few, float *to);
bool cpu_four_bit_words_digits(const few_rows *few, const float *row, int64_t r, void *to, chunk_of_x *chunks);
bool cpu_four_bit_mxfp4_digits(const few_rows *few, const float *row, int64_t r, void *to, chunk_of_x *chunks);
fl_status cpu_four_bit_words_range(void *few, int64_t begin, int64_t end);
fl_status cpu_four_bit_mxfp4_range(void *few, int64_t first, int64_t end);

/* Columns `first` to first + n - 1 of a row of the result, n <= CPU_BLOCK. */
SPECIALISED void end_columns(const cpu_four_bit_linear *linear, int64_t row, int64_t first, int64_t n, float *sums) {
  float bias[CPU_BLOCK];
  if (linear->bias) {
    cpu_block_types[linear->bias_dtype].load(bias, linear->bias, first, n);
    for (int64_t i = 0; i < n; i++)
      sums[i] += bias[i];
  }
  cpu_block_types[linear->out.dtype].store(cpu_matrix_row(linear->out, row), first, sums, n);
}

/* do(format, digits of x, rows of x) for each number of rows, and, where x may have digits, of those. */
#define FOR_ROWS(do, format, n_digits)                                                                                 \
  do                                                                                                                   \
  (format, n_digits, 1) do(format, n_digits, 2) do(format, n_digits, 4) do(format, n_digits, 8)
#ifdef __AVX512VNNI__
enum { HAS_DIGITS = 1 };
#define FOR_DIGITS(do, format, n_digits) FOR_ROWS(do, format, n_digits)
#else
enum { HAS_DIGITS = 0 };
#define FOR_DIGITS(do, format, n_digits)
#endif

/* What all rows of a chunk need. */
SPECIALISED int most_digits(const chunk_of_x *chunks, int64_t n_rows) {
  int most = 0;
  for (int64_t r = 0; r < n_rows; r++)
    most = chunks[r].n_digits > most ? chunks[r].n_digits : most;
  return most;
}

#define NAME(format, n_digits, n_rows) [n_digits][n_rows] = format##_##n_digits##_##n_rows,
#define NAMES(format)                                                                                                  \
  { FOR_ROWS(NAME, format, 0) FOR_DIGITS(NAME, format, 2) FOR_DIGITS(NAME, format, 3) }

#endif
