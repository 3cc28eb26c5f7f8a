/* Blocked matrix products: see matmul.h. Compiled with contraction to fused multiply-add, where the machine has that.
 */
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/integers.h"

#include <stdlib.h>
#include <string.h>

/* Packed operands are panels of TILE_ROWS rows of a or TILE_COLUMNS columns of b, each [k, rows or columns]. A block of
 * a and one of b and the sums of both together stay in the second-level cache. */
enum { TILE_ROWS = 12, TILE_COLUMNS = 32, BLOCK_ROWS = 43 * TILE_ROWS, BLOCK_COLUMNS = 256, BLOCK_K = 256 };

/* How many rows the dot kernel takes at once, how many partial sums a row has, and up to how many rows it is used. */
enum { DOT_ROWS = 4, DOT_LANES = 16, FEW_ROWS = 8 };

/* --------------------------------------------------------------------------------------------------------- kernels */

/* Floats of a vector, and how many vectors in how many rows of sums fit into the registers: this file is compiled for
 * several instruction sets. */
#if defined(__AVX512F__)
enum { LANES = 16, HEIGHT = 12, VECTORS = 2 };
#elif defined(__AVX2__)
enum { LANES = 8, HEIGHT = 6, VECTORS = 2 };
#else
enum { LANES = 4, HEIGHT = 3, VECTORS = 4 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define UNROLL _Pragma("GCC unroll 16")

/* sums [TILE_ROWS, TILE_COLUMNS] += panel of a times panel of b; only the first `rows` count. */
static void add_tile(int64_t k, int64_t rows, const float *a, const float *b, float *sums, int64_t stride) {
  for (int64_t first = 0; first < rows; first += HEIGHT)
    for (int64_t column = 0; column < TILE_COLUMNS; column += LANES * VECTORS) {
      vector sum[HEIGHT][VECTORS] = {0};
      for (int64_t i = 0; i < k; i++) {
        const float *factors = a + i * TILE_ROWS + first, *at = b + i * TILE_COLUMNS + column;
        UNROLL for (int r = 0; r < HEIGHT; r++) UNROLL for (int v = 0; v < VECTORS; v++) sum[r][v] +=
            factors[r] * *(const vector *)(at + v * LANES);
      }
      for (int r = 0; r < HEIGHT; r++)
        for (int v = 0; v < VECTORS; v++)
          *(vector *)(sums + (first + r) * stride + column + v * LANES) += sum[r][v];
    }
}

/* sums[row][i % DOT_LANES] += a[row][i] * b[i] */
static void add_dot(int64_t n, const float *const *a, const float *b, float (*sums)[DOT_LANES]) {
  enum { DOT_VECTORS = DOT_LANES / LANES };
  vector sum[DOT_ROWS][DOT_VECTORS];
  int64_t i = 0;
  memcpy(sum, sums, sizeof sum);
  for (; i + DOT_LANES <= n; i += DOT_LANES)
    UNROLL for (int r = 0; r < DOT_ROWS; r++) UNROLL for (int v = 0; v < DOT_VECTORS; v++) sum[r][v] +=
        *(const vector *)(a[r] + i + v * LANES) * *(const vector *)(b + i + v * LANES);
  memcpy(sums, sum, sizeof sum);
  for (; i < n; i++)
    for (int r = 0; r < DOT_ROWS; r++)
      sums[r][i % DOT_LANES] += a[r][i] * b[i];
}

/* ------------------------------------------------------------------------------------------------------- few rows */

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static float add_up(const float *sums) {
  float quarters[DOT_LANES / 4];
  for (int i = 0; i < DOT_LANES / 4; i++)
    quarters[i] = (sums[i] + sums[i + 4]) + (sums[i + 8] + sums[i + 12]);
  return (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
}

/* Dot products of all rows of a, as floats in `a`, with one row of b. */
static void dot_rows(const cpu_product *product, const float *a, const void *b, float (*sums)[DOT_LANES]) {
  const cpu_block_type *type = &cpu_block_types[product->b.dtype];
  bool is_float = product->b.dtype == CPU_FLOAT32;
  int64_t k = product->k, step = is_float ? k : CPU_BLOCK;
  float block[CPU_BLOCK];
  memset(sums, 0, FEW_ROWS * sizeof *sums);
  for (int64_t first = 0; first < k; first += step) {
    int64_t n = k - first < step ? k - first : step;
    if (!is_float)
      type->load(block, b, first, n);
    for (int64_t row = 0; row < product->m; row += DOT_ROWS) {
      const float *rows[DOT_ROWS]; /* there may be less: the last one stands for those */
      for (int i = 0; i < DOT_ROWS; i++)
        rows[i] = a + least(row + i, product->m - 1) * k + first;
      add_dot(n, rows, is_float ? (const float *)b + first : block, sums + row);
    }
  }
}

static void multiply_few_rows(const cpu_product *product, float *scratch) {
  const cpu_block_type *a_type = &cpu_block_types[product->a.dtype], *out_type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  float sums[FEW_ROWS][DOT_LANES], results[FEW_ROWS][CPU_BLOCK], bias[CPU_BLOCK] = {0};
  for (int64_t row = 0; row < product->m; row++)
    a_type->load(scratch + row * product->k, cpu_matrix_row(product->a, row), 0, product->k);
  if (product->bias && product->bias_by_row)
    bias_type->load(bias, product->bias, 0, product->m);
  for (int64_t first = 0; first < product->n; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(product->n - first);
    if (product->bias && !product->bias_by_row)
      bias_type->load(bias, product->bias, first, n);
    for (int64_t i = 0; i < n; i++) {
      dot_rows(product, scratch, cpu_matrix_row(product->b, first + i), sums);
      for (int64_t row = 0; row < product->m; row++)
        results[row][i] = add_up(sums[row]) + bias[product->bias_by_row ? row : i];
    }
    for (int64_t row = 0; row < product->m; row++) {
      float *out = (float *)cpu_matrix_row(product->out, row) + first;
      for (int64_t i = 0; i < n && product->accumulate; i++)
        results[row][i] += out[i];
      out_type->store(cpu_matrix_row(product->out, row), first, results[row], n);
    }
  }
}

/* ---------------------------------------------------------------------------------------------------------- blocks */

/* Rows of a matrix as panels [k, width]; the last one is filled up with zeros. */
static inline void pack_rows(float *to, cpu_matrix from, int64_t rows, int64_t k, int64_t width) {
  const cpu_block_type *type = &cpu_block_types[from.dtype];
  float row[BLOCK_K];
  for (int64_t panel = 0; panel < rows; panel += width, to += width * k)
    for (int64_t r = 0; r < width; r++) {
      if (panel + r < rows)
        type->load(row, cpu_matrix_row(from, panel + r), 0, k);
      else
        memset(row, 0, sizeof row);
      for (int64_t i = 0; i < k; i++)
        to[i * width + r] = row[i];
    }
}

/* Columns of a matrix [k, columns] as panels [k, TILE_COLUMNS]. */
static void pack_columns(float *to, cpu_matrix from, int64_t columns, int64_t k) {
  const cpu_block_type *type = &cpu_block_types[from.dtype];
  float row[BLOCK_COLUMNS] = {0};
  for (int64_t i = 0; i < k; i++) {
    type->load(row, cpu_matrix_row(from, i), 0, columns);
    for (int64_t panel = 0; panel < columns; panel += TILE_COLUMNS)
      memcpy(to + panel * k + i * TILE_COLUMNS, row + panel, TILE_COLUMNS * sizeof *row);
  }
}

/* What a block of the result begins with. */
static void begin_block(const cpu_product *product, float *sums, int64_t m, int64_t rows, int64_t n, int64_t columns) {
  for (int64_t row = 0; row < rows; row++, sums += BLOCK_COLUMNS)
    if (product->accumulate)
      memcpy(sums, (const float *)cpu_matrix_row(product->out, m + row) + n, (size_t)columns * sizeof *sums);
    else
      memset(sums, 0, BLOCK_COLUMNS * sizeof *sums);
}

static void end_block(const cpu_product *product, float *sums, int64_t m, int64_t rows, int64_t n, int64_t columns) {
  const cpu_block_type *type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  float bias[BLOCK_COLUMNS];
  if (product->bias && !product->bias_by_row)
    bias_type->load(bias, product->bias, n, columns);
  for (int64_t row = 0; row < rows; row++, sums += BLOCK_COLUMNS) {
    if (product->bias && product->bias_by_row) {
      bias_type->load(bias, product->bias, m + row, 1);
      for (int64_t i = 1; i < columns; i++)
        bias[i] = bias[0];
    }
    for (int64_t i = 0; i < columns && product->bias; i++)
      sums[i] += bias[i];
    type->store(cpu_matrix_row(product->out, m + row), n, sums, columns);
  }
}

/* Rows of a block: all blocks are about as large, that none is packed for a few rows. */
static int64_t block_rows(int64_t m) {
  int64_t blocks = divide_up(m, BLOCK_ROWS);
  return blocks ? round_up(divide_up(m, blocks), TILE_ROWS) : 0;
}

/* Three areas of scratch memory. */
typedef struct areas {
  int64_t a, b, sums; /* floats */
} areas;

static areas needed_areas(int64_t m, int64_t n, int64_t k) {
  int64_t rows = round_up(least(m, BLOCK_ROWS), TILE_ROWS), depth = least(k, BLOCK_K);
  return (areas){round_up(rows * depth, 16), round_up(round_up(least(n, BLOCK_COLUMNS), TILE_COLUMNS) * depth, 16),
                 rows * BLOCK_COLUMNS};
}

static void multiply_blocks(const cpu_product *product, float *scratch) {
  areas sizes = needed_areas(product->m, product->n, product->k);
  float *a = scratch, *b = a + sizes.a, *sums = b + sizes.b;
  int64_t step = block_rows(product->m);
  for (int64_t m = 0; m < product->m; m += step)
    for (int64_t n = 0; n < product->n; n += BLOCK_COLUMNS) {
      int64_t rows = least(step, product->m - m), columns = least(BLOCK_COLUMNS, product->n - n);
      begin_block(product, sums, m, rows, n, columns);
      for (int64_t first = 0; first < product->k; first += BLOCK_K) {
        int64_t k = least(BLOCK_K, product->k - first);
        pack_rows(a, cpu_matrix_at(product->a, m, first), rows, k, TILE_ROWS);
        if (product->b_is_k_by_n)
          pack_columns(b, cpu_matrix_at(product->b, first, n), columns, k);
        else
          pack_rows(b, cpu_matrix_at(product->b, n, first), columns, k, TILE_COLUMNS);
        for (int64_t column = 0; column < columns; column += TILE_COLUMNS)
          for (int64_t row = 0; row < rows; row += TILE_ROWS)
            add_tile(k, least(TILE_ROWS, rows - row), a + row * k, b + column * k, sums + row * BLOCK_COLUMNS + column,
                     BLOCK_COLUMNS);
      }
      end_block(product, sums, m, rows, n, columns);
    }
}

/* ------------------------------------------------------------------------------------------------------- interface */

size_t cpu_product_scratch(int64_t m, int64_t n, int64_t k) {
  areas sizes = needed_areas(m, n, k);
  int64_t of_blocks = sizes.a + sizes.b + sizes.sums, of_few_rows = least(m, FEW_ROWS) * k;
  return (size_t)(of_blocks > of_few_rows ? of_blocks : of_few_rows);
}

void cpu_product_run(const cpu_product *product, float *scratch) {
  if (product->m <= FEW_ROWS && !product->b_is_k_by_n)
    multiply_few_rows(product, scratch);
  else
    multiply_blocks(product, scratch);
}

fl_status cpu_flagos_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                            const void *bias, cpu_matrix out) {
  cpu_product product = {
      .m = m, .n = n, .k = k, .a = x, .b = weight, .bias_dtype = bias_dtype, .bias = bias, .out = out};
  float *scratch = cpu_floats_alloc(cpu_product_scratch(m, n, k));
  if (!scratch)
    return FL_ENOMEM;
  cpu_product_run(&product, scratch);
  free(scratch);
  return FL_OK;
}
