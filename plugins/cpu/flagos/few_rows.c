/* Products of a few rows: see few_rows.h. Compiled with contraction to fused multiply-add, where the machine has that.
 */
#include "plugins/cpu/flagos/few_rows.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/lanes.h"
#include "plugins/integers.h"

/* Up to MOST_ROWS rows of a are multiplied by so many columns, rows of b, at once that the sums, a vector of each
 * column and one of a row have registers. */
enum { MOST_ROWS = 4, MOST_COLUMNS = 8 };
#define COLUMNS(n_rows)                                                                                                \
  ((REGISTERS - 1) / ((n_rows) + 1) < MOST_COLUMNS ? (REGISTERS - 1) / ((n_rows) + 1) : MOST_COLUMNS)

/*
 * Rows of a are kept as floats, a tile after the other, each [pairs, rows, PAIR]: rows that lie a power of two apart
 * would displace each other from the cache. A pair has the order in which load_half takes that of a column apart; the
 * last one is filled up with zeros.
 */
static int64_t padded(int64_t k) {
  return round_up(k, PAIR);
}

static int64_t rows_of_tile(int64_t m) {
  return m ? divide_up(m, divide_up(m, MOST_ROWS)) : 1;
}

typedef float tile[MOST_ROWS][MOST_COLUMNS];

/* sum[r][c] += a pair of row r of a * one of columns[c] */
SPECIALISED void add_pair(cpu_dtype dtype, int n_rows, const float *a, const char *const *columns, int64_t i,
                          vector sum[][MOST_COLUMNS]) {
  const int n_columns = COLUMNS(n_rows);
  vector factors[MOST_COLUMNS];
  UNROLL for (int half = 0; half < 2; half++) {
    UNROLL for (int c = 0; c < n_columns; c++) factors[c] = load_half(dtype, columns[c], i, half);
    UNROLL for (int r = 0; r < n_rows; r++) {
      vector factor = *(const vector *)(a + r * PAIR + half * LANES);
      UNROLL for (int c = 0; c < n_columns; c++) sum[r][c] += factor * factors[c];
    }
  }
}

/* results[r][c] = row r of a * columns[c]. Meanwhile the columns that are next are fetched. */
SPECIALISED void dot(cpu_dtype dtype, int n_rows, int64_t k, const float *a, const char *const *columns,
                     const char *next, tile results) {
  const int n_columns = COLUMNS(n_rows);
  const int64_t size = cpu_dtype_size(dtype);
  vector sum[MOST_ROWS][MOST_COLUMNS] = {0};
  int64_t i = 0;
  for (; i + PAIR <= k; i += PAIR) {
    fetch(next + i * size * n_columns, PAIR * size * n_columns);
    add_pair(dtype, n_rows, a + i * n_rows, columns, i, sum);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][PAIR * sizeof(float)] = {0};
    const char *rests[MOST_COLUMNS];
    for (int c = 0; c < n_columns; c++)
      rests[c] = memcpy(rest[c], columns[c] + i * size, (size_t)((k - i) * size));
    add_pair(dtype, n_rows, a + i * n_rows, rests, 0, sum);
  }
  UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) results[r][c] =
      add_lanes(sum[r][c]);
}

/* One function for each element type and number of rows. */
typedef void (*dot_fn)(int64_t k, const float *a, const char *const *columns, const char *next, tile results);
#define DOT(dtype, n_rows)                                                                                             \
  static void dot_##dtype##_##n_rows(int64_t k, const float *a, const char *const *columns, const char *next,          \
                                     tile results) {                                                                   \
    dot(dtype, n_rows, k, a, columns, next, results);                                                                  \
  }
#define FOR_EACH(do, dtype)                                                                                            \
  do                                                                                                                   \
  (dtype, 1) do(dtype, 2) do(dtype, 3) do(dtype, 4)
FOR_EACH(DOT, CPU_FLOAT32)
FOR_EACH(DOT, CPU_FLOAT16)
FOR_EACH(DOT, CPU_BFLOAT16)
#define DOT_NAME(dtype, n_rows) dot_##dtype##_##n_rows,
static const dot_fn dots[CPU_N_DTYPES][MOST_ROWS] = {[CPU_FLOAT32] = {FOR_EACH(DOT_NAME, CPU_FLOAT32)},
                                                     [CPU_FLOAT16] = {FOR_EACH(DOT_NAME, CPU_FLOAT16)},
                                                     [CPU_BFLOAT16] = {FOR_EACH(DOT_NAME, CPU_BFLOAT16)}};

size_t cpu_few_rows_size(int64_t m, int64_t k) {
  return (size_t)(m * padded(k));
}

/* A row of a tile of `n_rows`. */
static void convert_row(const cpu_product *product, int64_t row, int64_t n_rows, float *to) {
  bool is_split = product->b.dtype == CPU_BFLOAT16;
  float block[CPU_BLOCK];
  for (int64_t first = 0; first < product->k; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(product->k - first);
    cpu_block_types[product->a.dtype].load(block, cpu_matrix_row(product->a, row), first, n);
    memset(block + n, 0, (size_t)(padded(n) - n) * sizeof *block);
    for (const float *pair = block; pair < block + n; pair += PAIR, to += n_rows * PAIR)
      for (int lane = 0; lane < LANES; lane++) {
        to[lane] = pair[is_split ? 2 * lane : lane];
        to[LANES + lane] = pair[is_split ? 2 * lane + 1 : LANES + lane];
      }
  }
}

void cpu_few_rows_convert(const cpu_product *product, float *a) {
  int64_t m = product->m, tile_rows = rows_of_tile(m);
  for (int64_t row = 0; row < m; row += tile_rows, a += tile_rows * padded(product->k))
    for (int64_t r = 0; r < least(tile_rows, m - row); r++)
      convert_row(product, row + r, least(tile_rows, m - row), a + r * PAIR);
}

/* results = all rows of a * `n` columns of b from `first` on. */
static void multiply_columns(const cpu_product *product, const float *a, int64_t first, int64_t n,
                             float (*results)[CPU_BLOCK]) {
  int64_t stride = padded(product->k), tile_rows = rows_of_tile(product->m);
  int64_t tile_columns = COLUMNS(tile_rows);
  for (int64_t i = 0; i < n; i += tile_columns) {
    const char *columns[MOST_COLUMNS]; /* there may be less: the last one stands for those */
    const char *next = cpu_matrix_row(product->b, first + i + tile_columns);
    int64_t n_columns = least(tile_columns, n - i);
    for (int64_t c = 0; c < MOST_COLUMNS; c++)
      columns[c] = cpu_matrix_row(product->b, first + i + least(c, n_columns - 1));
    for (int64_t row = 0; row < product->m; row += tile_rows) {
      int64_t n_rows = least(tile_rows, product->m - row);
      tile sums;
      dots[product->b.dtype][n_rows - 1](product->k, a + row * stride, columns, next, sums);
      for (int64_t r = 0; r < n_rows; r++)
        memcpy(&results[row + r][i], sums[r], (size_t)n_columns * sizeof(float));
    }
  }
}

void cpu_few_rows(const cpu_product *product, const float *a, int64_t first, int64_t end) {
  const cpu_block_type *out_type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  float results[CPU_FEW_ROWS][CPU_BLOCK], bias[CPU_BLOCK];
  for (; first < end; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(end - first);
    multiply_columns(product, a, first, n, results);
    if (product->bias && !product->bias_by_row)
      bias_type->load(bias, product->bias, first, n);
    for (int64_t row = 0; row < product->m; row++) {
      float *out = (float *)cpu_matrix_row(product->out, row) + first;
      if (product->bias && product->bias_by_row)
        bias_type->load(bias, product->bias, row, 1);
      for (int64_t i = 0; i < n && product->bias; i++)
        results[row][i] += bias[product->bias_by_row ? 0 : i];
      for (int64_t i = 0; i < n && product->accumulate; i++)
        results[row][i] += out[i];
      out_type->store(cpu_matrix_row(product->out, row), first, results[row], n);
    }
  }
}
