/*
 * Two ways to multiply, both with partial sums that the vectoriser keeps in registers: few rows of x (decoding) go
 * along the rows of the weight as they lie; many rows share a panel of the weight, PANEL of its rows side by side.
 */
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/block.h"

#include <stdlib.h>

enum { PANEL = 16, LANES = 16, FEW = 4 };

static const void *weight_row(const cpu_matrix *weight, int64_t row) {
  return (const char *)weight->data + row * weight->stride;
}

static float bias_at(cpu_dtype dtype, const void *bias, int64_t i) {
  float value = 0;
  if (bias)
    cpu_block_types[dtype].load(&value, bias, i, 1);
  return value;
}

static float dot(const float *restrict a, const float *restrict b, int64_t n) {
  float sums[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; i++)
    sums[0] += a[i] * b[i];
  for (int lane = 0; lane < LANES; lane++)
    sum += sums[lane];
  return sum;
}

/* Each row of the weight is converted once. */
static void multiply_few(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_stride, const cpu_matrix *weight,
                         cpu_dtype bias_dtype, const void *bias, float *out, int64_t out_stride) {
  float block[CPU_BLOCK], sums[FEW];
  for (int64_t column = 0; column < n; column++) {
    const void *row = weight_row(weight, column);
    for (int64_t i = 0; i < m; i++)
      sums[i] = bias_at(bias_dtype, bias, column);
    for (int64_t first = 0; first < k; first += CPU_BLOCK) {
      int64_t size = cpu_block_size(k - first);
      cpu_block_types[weight->dtype].load(block, row, first, size);
      for (int64_t i = 0; i < m; i++)
        sums[i] += dot(x + i * x_stride + first, block, size);
    }
    for (int64_t i = 0; i < m; i++)
      out[i * out_stride + column] = sums[i];
  }
}

/* Elements `first` to first + size - 1 of `columns` rows of the weight, side by side; the rest of the panel is 0. */
static void pack(const cpu_matrix *weight, int64_t column, int64_t columns, int64_t first, int64_t size,
                 float (*restrict panel)[PANEL]) {
  float block[CPU_BLOCK];
  for (int64_t j = 0; j < PANEL; j++) {
    if (j < columns)
      cpu_block_types[weight->dtype].load(block, weight_row(weight, column + j), first, size);
    for (int64_t i = 0; i < size; i++)
      panel[i][j] = j < columns ? block[i] : 0;
  }
}

/* Adds x [size] panel to a row of sums; two rows share what is loaded of the panel. */
static void add_two(const float *restrict x0, const float *restrict x1, const float (*restrict panel)[PANEL],
                    int64_t size, float *restrict out0, float *restrict out1) {
  float sums0[PANEL], sums1[PANEL];
  for (int j = 0; j < PANEL; j++) {
    sums0[j] = 0;
    sums1[j] = 0;
  }
  for (int64_t i = 0; i < size; i++)
    for (int j = 0; j < PANEL; j++) {
      sums0[j] += x0[i] * panel[i][j];
      sums1[j] += x1[i] * panel[i][j];
    }
  for (int j = 0; j < PANEL; j++) {
    out0[j] += sums0[j];
    out1[j] += sums1[j];
  }
}

/* An odd last row is its own neighbour: what that gives twice is used once. */
static void multiply_panel(int64_t m, int64_t columns, int64_t size, const float *x, int64_t x_stride,
                           const float (*panel)[PANEL], float *out, int64_t out_stride) {
  for (int64_t row = 0; row < m; row += 2) {
    float sums[2][PANEL] = {{0}};
    int64_t rows = row + 1 < m ? 2 : 1;
    const float *x0 = x + row * x_stride;
    add_two(x0, rows == 2 ? x0 + x_stride : x0, panel, size, sums[0], sums[1]);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < columns; j++)
        out[(row + r) * out_stride + j] += sums[r][j];
  }
}

static void multiply_many(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_stride, const cpu_matrix *weight,
                          cpu_dtype bias_dtype, const void *bias, float *out, int64_t out_stride) {
  float panel[CPU_BLOCK][PANEL];
  for (int64_t column = 0; column < n; column += PANEL) {
    int64_t columns = n - column < PANEL ? n - column : PANEL;
    for (int64_t j = 0; j < columns; j++) {
      float start = bias_at(bias_dtype, bias, column + j);
      for (int64_t row = 0; row < m; row++)
        out[row * out_stride + column + j] = start;
    }
    for (int64_t first = 0; first < k; first += CPU_BLOCK) {
      int64_t size = cpu_block_size(k - first);
      pack(weight, column, columns, first, size, panel);
      multiply_panel(m, columns, size, x + first, x_stride, (const float(*)[PANEL])panel, out + column, out_stride);
    }
  }
}

/* Floats of a matrix: its own, or a copy that is to be freed. */
static float *floats_of(int64_t rows, int64_t n, const cpu_matrix *matrix, bool filled) {
  float *floats = matrix->dtype == CPU_FLOAT32 ? matrix->data : malloc((size_t)(rows * n) * sizeof *floats + 1);
  for (int64_t row = 0; floats && floats != matrix->data && filled && row < rows; row++)
    cpu_block_types[matrix->dtype].load(floats + row * n, weight_row(matrix, row), 0, n);
  return floats;
}

fl_status cpu_flagos_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                            const void *bias, cpu_matrix out) {
  float *from = floats_of(m, k, &x, true), *to = floats_of(m, n, &out, false);
  int64_t from_stride = from == x.data ? x.stride / (int64_t)sizeof *from : k;
  int64_t to_stride = to == out.data ? out.stride / (int64_t)sizeof *to : n;
  fl_status status = from && to ? FL_OK : FL_ENOMEM;
  if (!status && m <= FEW)
    multiply_few(m, n, k, from, from_stride, &weight, bias_dtype, bias, to, to_stride);
  else if (!status)
    multiply_many(m, n, k, from, from_stride, &weight, bias_dtype, bias, to, to_stride);
  for (int64_t row = 0; !status && to != out.data && row < m; row++)
    cpu_block_types[out.dtype].store((char *)out.data + row * out.stride, 0, to + row * n, n);
  if (from != x.data)
    free(from);
  if (to != out.data)
    free(to);
  return status;
}
