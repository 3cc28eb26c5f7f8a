/*
 * Products with a weight of 8 bits. The weight stays as it is in memory: a few rows are multiplied by it as it is read
 * (scaled_rows.c), for more a tile of it is packed into scratch memory once for all rows. Tiles of int8 are multiplied
 * by int8 as such, with exact sums; others become bfloat16, which holds all values of 8 bits, where x has no more than
 * that, and else, and those of blocks with their scales, float32.
 */
#include "plugins/cpu/flagos/products/scaled_mm.h"
#include "plugins/cpu/flagos/products/integer_tile.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

/* Columns of the result at a time: their part of the weight, unpacked, is to stay in a cache. */
enum { TILE_BYTES = 2 << 20, LEAST_COLUMNS = 32, MOST_COLUMNS = 256 };
/* Rows at a time: as many as scratch memory that is kept holds. */
enum { MOST_ROWS = 512 };

void cpu_scaled_mm_end(const cpu_scaled_mm *mm, int64_t row, int64_t first, int64_t n, float *sums) {
  float bias[CPU_BLOCK], x_scale = mm->x_scale.data[row * mm->x_scale.row];
  const float *weight_scale = mm->weight_scale.data + first * mm->weight_scale.row;
  if (!mm->has_blocks)
    for (int64_t i = 0; i < n; i++)
      sums[i] = sums[i] * x_scale * weight_scale[i * mm->weight_scale.row];
  if (mm->bias) {
    cpu_block_types[mm->bias_dtype].load(bias, mm->bias, first, n);
    for (int64_t i = 0; i < n; i++)
      sums[i] += bias[i];
  }
  cpu_block_types[mm->out.dtype].store(cpu_matrix_row(mm->out, row), first, sums, n);
}

/* ----------------------------------------------------------------------------------------------------------- tiles */

/* A product whose x is ready: row by row in `x`, `x_bytes` each. */
typedef struct tiles {
  const cpu_scaled_mm *mm;
  int64_t first, rows; /* of x */
  int64_t columns;     /* of a tile */
  char *x;
  int64_t x_bytes;
} tiles;

static int64_t columns_of_tile(int64_t bytes_of_column, int64_t n) {
  int64_t columns = TILE_BYTES / (bytes_of_column + 1) / LEAST_COLUMNS * LEAST_COLUMNS;
  columns = columns < LEAST_COLUMNS ? LEAST_COLUMNS : least(columns, MOST_COLUMNS);
  return least(columns, round_up(n, LEAST_COLUMNS));
}

/* Runs `body` for all tiles, `rows` rows at a time. */
static fl_status for_tiles(const cpu_scaled_mm *mm, int64_t x_bytes, int64_t column_bytes, fl_range_fn pack_rows,
                           fl_range_fn body) {
  int64_t most = (int64_t)CPU_SCRATCH_KEPT / (x_bytes + 1) + 1, rows = least(mm->m, least(MOST_ROWS, most));
  tiles t = {.mm = mm, .columns = columns_of_tile(column_bytes, mm->n), .x_bytes = x_bytes};
  fl_status status = FL_OK;
  t.x = cpu_scratch_take_bytes((size_t)(rows * x_bytes));
  if (!t.x)
    return FL_ENOMEM;
  for (; t.first < mm->m && !status; t.first += rows) {
    t.rows = least(rows, mm->m - t.first);
    status = cpu_parallel_for(t.rows, cpu_grain(2 * x_bytes), pack_rows, &t);
    if (!status)
      status = cpu_parallel_for(divide_up(mm->n, t.columns), 1, body, &t);
  }
  cpu_scratch_give(t.x);
  return status;
}

/* ------------------------------------------------------------------------------------------------- tiles of int8 */

static fl_status pack_int8_rows(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  for (; first < end; first++)
    cpu_integer_pack_row(t->x + first * t->x_bytes, (const int8_t *)t->mm->x + (t->first + first) * t->mm->x_stride,
                         t->mm->k);
  return FL_OK;
}

/* Sums of integers as float32, less what the zero point of x makes of the weights' own sums. */
static void end_integers(const cpu_scaled_mm *mm, int64_t row, int64_t first, int64_t n, const int32_t *sums,
                         const int32_t *weight_sums) {
  float floats[CPU_INTEGER_COLUMNS];
  if (mm->azp) {
    int64_t zero = mm->azp[row * mm->azp_step];
    for (int64_t i = 0; i < n; i++)
      floats[i] = (float)(sums[i] - zero * weight_sums[i]);
  } else
    for (int64_t i = 0; i < n; i++)
      floats[i] = (float)sums[i];
  cpu_scaled_mm_end(mm, row, first, n, floats);
}

static fl_status int8_tiles(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  const cpu_scaled_mm *mm = t->mm;
  int64_t panel_bytes = cpu_integer_panel_bytes(mm->k);
  char *panels = cpu_scratch_take_bytes((size_t)(panel_bytes * divide_up(t->columns, CPU_INTEGER_COLUMNS)));
  if (!panels)
    return FL_ENOMEM;
  for (; first < end; first++) {
    int64_t begin = first * t->columns, stop = least(mm->n, begin + t->columns);
    int32_t weight_sums[MOST_COLUMNS], sums[CPU_INTEGER_ROWS * CPU_INTEGER_COLUMNS];
    for (int64_t n = begin; n < stop; n += CPU_INTEGER_COLUMNS)
      cpu_integer_pack_panel(panels + (n - begin) / CPU_INTEGER_COLUMNS * panel_bytes,
                             (const int8_t *)mm->weight + n * mm->weight_stride, mm->weight_stride,
                             least(CPU_INTEGER_COLUMNS, stop - n), mm->k, weight_sums + (n - begin));
    for (int64_t row = 0; row < t->rows; row += CPU_INTEGER_ROWS)
      for (int64_t n = begin; n < stop; n += CPU_INTEGER_COLUMNS) {
        int64_t rows = least(CPU_INTEGER_ROWS, t->rows - row);
        cpu_integer_tile(mm->k, rows, t->x + row * t->x_bytes, t->x_bytes,
                         panels + (n - begin) / CPU_INTEGER_COLUMNS * panel_bytes, weight_sums + (n - begin), sums);
        for (int64_t r = 0; r < rows; r++)
          end_integers(mm, t->first + row + r, n, least(CPU_INTEGER_COLUMNS, stop - n), sums + r * CPU_INTEGER_COLUMNS,
                       weight_sums + (n - begin));
      }
  }
  cpu_scratch_give(panels);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------ tiles of floats */

static cpu_dtype type_of_tiles(const cpu_scaled_mm *mm) {
  bool is_narrow = mm->x_dtype == CPU_OTHER || mm->x_dtype == CPU_BFLOAT16;
  return mm->has_blocks || !is_narrow ? CPU_FLOAT32 : CPU_BFLOAT16;
}

/* n elements of a row from `first` on; `scales`: of the row's groups; NULL: all are 1. */
static void store_scaled(const cpu_scaled_mm *mm, void *to, float *block, int64_t first, int64_t n, const float *scales,
                         int64_t step) {
  for (int64_t i = 0; i < n && scales; i++)
    block[i] *= scales[(first + i) / mm->block_k * step];
  cpu_block_types[type_of_tiles(mm)].store(to, first, block, n);
}

static void widen_codes(const cpu_scaled_mm *mm, float *restrict to, const uint8_t *restrict from, int64_t n) {
  if (mm->is_float8)
    cpu_widen_float8(to, from, n);
  else
    for (int64_t i = 0; i < n; i++)
      to[i] = (float)(int8_t)from[i];
}

static fl_status widen_rows(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  const cpu_scaled_mm *mm = t->mm;
  float block[CPU_BLOCK];
  for (; first < end; first++)
    for (int64_t at = 0, row = t->first + first; at < mm->k; at += CPU_BLOCK) {
      int64_t n = cpu_block_size(mm->k - at);
      if (mm->x_dtype == CPU_OTHER)
        widen_codes(mm, block, (const uint8_t *)mm->x + row * mm->x_stride + at, n);
      else
        cpu_scaled_mm_widen(mm, block, row, at, n);
      store_scaled(mm, t->x + first * t->x_bytes, block, at, n,
                   mm->has_blocks ? mm->x_scale.data + row * mm->x_scale.row : NULL, mm->x_scale.column);
    }
  return FL_OK;
}

static void widen_weight(const cpu_scaled_mm *mm, void *to, int64_t row) {
  const uint8_t *from = (const uint8_t *)mm->weight + row * mm->weight_stride;
  float block[CPU_BLOCK];
  for (int64_t at = 0; at < mm->k; at += CPU_BLOCK) {
    int64_t n = cpu_block_size(mm->k - at);
    widen_codes(mm, block, from + at, n);
    store_scaled(mm, to, block, at, n,
                 mm->has_blocks ? mm->weight_scale.data + row / mm->block_n * mm->weight_scale.row : NULL,
                 mm->weight_scale.column);
  }
}

/* Columns `begin` to `stop - 1`: `weight` is theirs. */
static fl_status multiply_floats(const tiles *t, char *weight, float *sums, int64_t begin, int64_t stop) {
  const cpu_scaled_mm *mm = t->mm;
  cpu_dtype dtype = type_of_tiles(mm);
  for (int64_t n = begin; n < stop; n++)
    widen_weight(mm, weight + (n - begin) * t->x_bytes, n);
  const cpu_product product = {.m = t->rows,
                               .n = stop - begin,
                               .k = mm->k,
                               .a = {t->x, dtype, t->x_bytes},
                               .b = {weight, dtype, t->x_bytes},
                               .out = cpu_matrix_in(sums, CPU_FLOAT32, stop - begin)};
  fl_status status = cpu_product_share(&product);
  for (int64_t row = 0; row < t->rows && !status; row++)
    cpu_scaled_mm_end(mm, t->first + row, begin, stop - begin, sums + row * (stop - begin));
  return status;
}

static fl_status float_tiles(void *user, int64_t first, int64_t end) {
  const tiles *t = user;
  fl_status status = FL_OK;
  char *weight = cpu_scratch_take_bytes((size_t)(t->columns * t->x_bytes));
  float *sums = cpu_scratch_take((size_t)(t->columns * t->rows));
  for (; first < end && weight && sums && !status; first++)
    status = multiply_floats(t, weight, sums, first * t->columns, least(t->mm->n, (first + 1) * t->columns));
  cpu_scratch_give(sums);
  cpu_scratch_give(weight);
  return weight && sums ? status : FL_ENOMEM;
}

/* -------------------------------------------------------------------------------------------------------- interface */

fl_status cpu_scaled_mm_run(const cpu_scaled_mm *mm) {
  if (cpu_scaled_rows_take(mm))
    return cpu_scaled_rows(mm);
  if (mm->x_dtype == CPU_OTHER && !mm->is_float8 && !mm->has_blocks && mm->k <= CPU_INTEGER_TERMS)
    return for_tiles(mm, cpu_integer_row_bytes(mm->k), cpu_integer_panel_bytes(mm->k) / CPU_INTEGER_COLUMNS,
                     pack_int8_rows, int8_tiles);
  int64_t bytes = mm->k * cpu_dtype_size(type_of_tiles(mm));
  return for_tiles(mm, bytes, bytes, widen_rows, float_tiles);
}

static fl_status scaled_mm(void *self, fl_call *call) {
  (void)self;
  return cpu_scaled_mm_each(call, cpu_scaled_mm_run);
}

static fl_status weight_only(void *self, fl_call *call) {
  (void)self;
  return cpu_weight_only_each(call, cpu_scaled_mm_run);
}

static const fl_impl ops[] = {
    {.op_name = "scaled_mm", CPU_FLAGOS, .fn = scaled_mm},
    {.op_name = "weight_only_linear", CPU_FLAGOS, .fn = weight_only},
};
OP_LIST(ops);
