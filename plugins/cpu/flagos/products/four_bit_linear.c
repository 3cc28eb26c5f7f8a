/*
 * Linear layers with weights of 4 bits. The weight stays as it is in memory: a few rows are multiplied by it as it is
 * read (four_bit_rows.c), for more a tile of its columns is unpacked into scratch memory once for all rows, and
 * multiplied as other weights are (matmul.h).
 */
#include "plugins/cpu/flagos/products/four_bit_linear.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

#include <flhost/dtype.h>
#include <math.h>
#include <string.h>

/* Columns at a time: unpacked, they are to stay in a cache. Rows of x at a time, where it is converted. */
enum { TILE_BYTES = 1 << 20, LEAST_COLUMNS = 32, MOST_ROWS = 512 };

/* Tiles are of x's type, but instead of float16 of float32: of that MXFP4 has values which float16 has not, and
 * products of float32 are faster. x is converted then. */
static cpu_dtype type_of_tiles(const cpu_four_bit_linear *linear) {
  return linear->x.dtype == CPU_FLOAT16 ? CPU_FLOAT32 : linear->x.dtype;
}

typedef struct tiles {
  const cpu_four_bit_linear *linear;
  cpu_matrix x, out;
  int64_t rows, columns;
} tiles;

/* ------------------------------------------------------------------------------------------------------- unpacking */

static uint32_t word_at(const char *row, int64_t i) {
  return ((const uint32_t *)(const void *)row)[i];
}

/* Values (q - zero) * scale of columns, rounded to x's type, as a row of a tile. */
static void end_row(const cpu_four_bit_linear *linear, void *to, float *values, const float *zeros, const float *scales,
                    int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = (values[i] - zeros[i]) * scales[i];
  if (linear->x.dtype == CPU_FLOAT16)
    cpu_block_types[CPU_FLOAT16].round(values, n);
  cpu_block_types[type_of_tiles(linear)].store(to, 0, values, n);
}

typedef uint32_t eight_words __attribute__((vector_size(32)));
typedef int32_t eight_integers __attribute__((vector_size(32)));
typedef float eight_floats __attribute__((vector_size(32), aligned(4), may_alias));

/* Columns first to first + n - 1 (multiples of 8) of AWQ's words. */
static void unpack_awq(const char *row, int64_t first, int64_t n, float *to) {
  const eight_words shifts = {0, 16, 4, 20, 8, 24, 12, 28};
  for (int64_t i = 0; i < n; i += 8) {
    eight_words word = (eight_words){0} + word_at(row, (first + i) / 8);
    *(eight_floats *)(to + i) = __builtin_convertvector((eight_integers)(word >> shifts & 15), eight_floats);
  }
}

/* Rows that lie in pages of their own, of which little is read at a time, no processor fetches by itself. */
enum { AHEAD_AWQ = 32 };

static void fetch_awq(const char *row, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; i += 128)
    __builtin_prefetch(row + (first + i) / 2);
}

/* Zero points and scales of a group. */
static void unpack_group(const cpu_four_bit_linear *linear, int64_t group, int64_t first, int64_t n, float *zeros,
                         float *scales) {
  const char *words = linear->zeros ? linear->zeros + group * linear->zeros_stride : NULL;
  cpu_block_types[linear->scales.dtype].load(scales, cpu_matrix_row(linear->scales, group), first, n);
  if (words && linear->format == CPU_AWQ)
    unpack_awq(words, first, n, zeros);
  else
    for (int64_t i = 0; i < n; i++)
      zeros[i] =
          words
              ? (float)(int32_t)((word_at(words, (first + i) / 8) >> 4 * (i % 8) & 15) + (uint32_t)linear->zero_offset)
              : 8;
}

/* Columns first to first + n - 1 as a tile [k, n], n <= CPU_BLOCK. */
static void unpack_columns(const cpu_four_bit_linear *linear, int64_t first, int64_t n, cpu_matrix to) {
  float values[CPU_BLOCK], zeros[CPU_BLOCK], scales[CPU_BLOCK];
  for (int64_t row = 0, group = -1; row < linear->k; row++) {
    int64_t own = cpu_group_of(linear, row);
    if (own != group)
      unpack_group(linear, group = own, first, n, zeros, scales);
    if (linear->format == CPU_AWQ) {
      const char *words = linear->weight + row * linear->weight_stride;
      fetch_awq(words + AHEAD_AWQ * linear->weight_stride, first, n);
      unpack_awq(words, first, n, values);
    } else {
      const uint32_t *words =
          (const uint32_t *)(const void *)(linear->weight + row / 8 * linear->weight_stride) + first;
      for (int64_t i = 0; i < n; i++)
        values[i] = (float)(int32_t)(words[i] >> 4 * (row % 8) & 15);
    }
    end_row(linear, cpu_matrix_row(to, row), values, zeros, scales, n);
  }
}

static float scale_of_byte(uint8_t byte) {
  return byte == 255 ? NAN : fl_float_from_bits(byte ? (uint32_t)byte << 23 : 0x00400000u);
}

enum { SCALED = 32 }; /* values that share a scale */

/* Twice a magnitude of MXFP4, which is 0, 1, 2, 3, 4, 6, 8 or 12, from its code: what is above 4 counts twice, and what
 * is above 6 twice again. */
static void unpack_scaled(const uint8_t *bytes, float scale, float *to) {
  const eight_words shifts = {0, 4, 8, 12, 16, 20, 24, 28};
  for (int64_t i = 0; i < SCALED; i += 8) {
    uint32_t word;
    memcpy(&word, bytes + i / 2, sizeof word); /* bytes may lie anywhere */
    eight_words codes = ((eight_words){0} + word) >> shifts;
    eight_integers twice = (eight_integers)(codes & 7), above4 = twice - 4, above6 = twice - 6;
    twice += (above4 & (above4 > 0)) + 2 * (above6 & (above6 > 0));
    eight_floats values = __builtin_convertvector(twice, eight_floats) * (0.5f * scale);
    *(eight_floats *)(to + i) = (eight_floats)((eight_words)values ^ (codes & 8) << 28);
  }
}

/* Columns first to first + n - 1 as a tile [n, k]. Many values are unpacked before they are stored as vectors: what was
 * just written one by one, these would wait for. */
static void unpack_mxfp4(const cpu_four_bit_linear *linear, int64_t first, int64_t n, cpu_matrix to) {
  float values[CPU_BLOCK];
  for (int64_t column = 0; column < n; column++) {
    const uint8_t *bytes = (const uint8_t *)linear->weight + (first + column) * linear->weight_stride;
    const uint8_t *scales = cpu_matrix_row(linear->scales, first + column);
    for (int64_t begin = 0; begin < linear->k; begin += CPU_BLOCK) {
      const int64_t size = cpu_block_size(linear->k - begin);
      for (int64_t i = 0; i < size; i += SCALED)
        unpack_scaled(bytes + (begin + i) / 2, scale_of_byte(scales[(begin + i) / SCALED]), values + i);
      cpu_block_types[to.dtype].store(cpu_matrix_row(to, column), begin, values, size);
    }
  }
}

/* ----------------------------------------------------------------------------------------------------------- tiles */

static fl_status multiply_tile_columns(const tiles *t, void *weight, int64_t first, int64_t n) {
  const cpu_four_bit_linear *linear = t->linear;
  bool is_k_by_n = linear->format != CPU_MXFP4;
  cpu_product product = {.m = t->rows,
                         .n = n,
                         .k = linear->k,
                         .a = t->x,
                         .b = cpu_matrix_in(weight, type_of_tiles(linear), is_k_by_n ? n : linear->k),
                         .b_is_k_by_n = is_k_by_n,
                         .bias_dtype = linear->bias_dtype,
                         .out = cpu_matrix_at(t->out, 0, first)};
  if (linear->bias)
    product.bias = (const char *)linear->bias + first * cpu_dtype_size(linear->bias_dtype);
  (is_k_by_n ? unpack_columns : unpack_mxfp4)(linear, first, n, product.b);
  return cpu_product_share(&product);
}

static fl_status tile_range(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  const cpu_four_bit_linear *linear = t->linear;
  fl_status status = FL_OK;
  void *weight = cpu_scratch_take_bytes((size_t)(t->columns * linear->k * cpu_dtype_size(type_of_tiles(linear))));
  if (!weight)
    return FL_ENOMEM;
  for (; first < end && !status; first++)
    status = multiply_tile_columns(t, weight, first * t->columns, least(t->columns, linear->n - first * t->columns));
  cpu_scratch_give(weight);
  return status;
}

static fl_status run_tiles(tiles *t) {
  const cpu_four_bit_linear *linear = t->linear;
  int64_t columns =
      TILE_BYTES / (linear->k * cpu_dtype_size(type_of_tiles(linear)) + 1) / LEAST_COLUMNS * LEAST_COLUMNS;
  t->columns = columns < LEAST_COLUMNS ? LEAST_COLUMNS : least(columns, CPU_BLOCK);
  return cpu_parallel_for(divide_up(linear->n, t->columns), 1, tile_range, t);
}

static fl_status convert_rows(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  const cpu_four_bit_linear *linear = t->linear;
  for (; first < end; first++) /* t->out is at the first row of x, too */
    cpu_block_types[linear->x.dtype].load(cpu_matrix_row(t->x, first), cpu_matrix_row(linear->x, first), 0, linear->k);
  return FL_OK;
}

/* So many rows at a time as scratch memory that is kept holds. */
static fl_status run_converted(const cpu_four_bit_linear *linear) {
  int64_t most = (int64_t)CPU_SCRATCH_KEPT / (4 * linear->k + 1) + 1, rows = least(linear->m, least(MOST_ROWS, most));
  float *x = cpu_scratch_take((size_t)(rows * linear->k));
  fl_status status = x ? FL_OK : FL_ENOMEM;
  for (int64_t first = 0; first < linear->m && !status; first += rows) {
    cpu_four_bit_linear part = *linear;
    part.x = cpu_matrix_at(linear->x, first, 0);
    tiles t = {.linear = &part,
               .x = cpu_matrix_in(x, CPU_FLOAT32, linear->k),
               .out = cpu_matrix_at(linear->out, first, 0),
               .rows = least(rows, linear->m - first)};
    status = cpu_parallel_for(t.rows, cpu_grain(6 * linear->k), convert_rows, &t);
    if (!status)
      status = run_tiles(&t);
  }
  cpu_scratch_give(x);
  return status;
}

fl_status cpu_four_bit_run(const cpu_four_bit_linear *linear) {
  if (cpu_four_bit_rows_take(linear))
    return cpu_four_bit_rows(linear);
  if (type_of_tiles(linear) != linear->x.dtype)
    return run_converted(linear);
  return run_tiles(&(tiles){.linear = linear, .x = linear->x, .out = linear->out, .rows = linear->m});
}

static fl_status awq(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_AWQ, cpu_four_bit_run);
}

static fl_status gptq(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_GPTQ, cpu_four_bit_run);
}

static fl_status mxfp4(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_MXFP4, cpu_four_bit_run);
}

static const fl_impl ops[] = {
    {.op_name = "awq_linear", CPU_FLAGOS, .fn = awq},
    {.op_name = "gptq_linear", CPU_FLAGOS, .fn = gptq},
    {.op_name = "mxfp4_linear", CPU_FLAGOS, .fn = mxfp4},
};
OP_LIST(ops);
