/* Blocked matrix products: see matmul.h. Compiled with contraction to fused multiply-add, where the machine has that.
 */
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/few_rows.h"
#include "plugins/cpu/flagos/pairs.h"
#include "plugins/cpu/flagos/tile.h"
#include "plugins/cpu/flagos/tiled_product.h"
#include "plugins/cpu/onednn.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/scratch.h"
#include "plugins/integers.h"

/* Packed operands are rows of a, TILE_ROWS at a time, and panels [k, TILE_COLUMNS] of columns of b. A block of a and
 * one of b and the sums of both together stay in the second-level cache. */
enum { TILE_ROWS = 12, TILE_COLUMNS = 32, BLOCK_ROWS = 43 * TILE_ROWS, BLOCK_COLUMNS = 256, BLOCK_K = 256 };
enum { A_STRIDE = BLOCK_K + 16 }; /* no power of two: rows would displace each other from the first-level cache */

/* --------------------------------------------------------------------------------------------------------- kernels */

/* How many vectors in how many rows of sums fit into the registers; where an instruction does not take a factor from
 * memory, beside a factor of each row. */
#if defined(__AVX512F__)
enum { HEIGHT = 12, VECTORS = 2 };
#elif defined(__AVX2__)
enum { HEIGHT = 6, VECTORS = 2 };
#elif defined(__aarch64__)
enum { HEIGHT = 4, VECTORS = 4 };
#else
enum { HEIGHT = 3, VECTORS = 4 };
#endif

/* sums [TILE_ROWS, TILE_COLUMNS] += rows of a times panel of b; only the first `rows` count. */
static void add_tile(int64_t k, int64_t rows, const float *a, const float *b, float *sums) {
  for (int64_t first = 0; first < rows; first += HEIGHT)
    for (int64_t column = 0; column < TILE_COLUMNS; column += LANES * VECTORS)
      multiply_tile(HEIGHT, VECTORS, k, (tile_factors){a + first * A_STRIDE, A_STRIDE, 1}, b + column, TILE_COLUMNS,
                    true, sums + first * BLOCK_COLUMNS + column, BLOCK_COLUMNS);
}

/* ---------------------------------------------------------------------------------------------------------- blocks */

/* Rows of a as [rows, A_STRIDE]; zeros fill up the last tile. */
static void pack_rows(const cpu_product *product, float *to, int64_t m, int64_t rows, int64_t first, int64_t k) {
  for (int64_t r = 0; r < rows; r++)
    cpu_block_types[product->a.dtype].load(to + r * A_STRIDE, cpu_matrix_row(product->a, m + r), first, k);
  for (int64_t r = rows; r < round_up(rows, TILE_ROWS); r++)
    memset(to + r * A_STRIDE, 0, (size_t)k * sizeof *to);
}

/* LANES columns of b, its rows, as columns of a panel [k, TILE_COLUMNS]; what is missing is zero. */
static void pack_lanes(const cpu_product *product, float *to, int64_t n, int64_t columns, int64_t first, int64_t k) {
  float rows[LANES][BLOCK_K + LANES];
  for (int64_t r = 0; r < LANES; r++)
    if (r < columns)
      cpu_block_types[product->b.dtype].load(rows[r], cpu_matrix_row(product->b, n + r), first, k);
    else
      memset(rows[r], 0, (size_t)k * sizeof(float));
  for (int64_t i = 0; i < k; i += LANES) {
    vector square[LANES];
    UNROLL for (int r = 0; r < LANES; r++) square[r] = *(const vector *)(rows[r] + i);
    transpose(square);
    if (i + LANES <= k) {
      UNROLL for (int r = 0; r < LANES; r++) * (vector *)(to + (i + r) * TILE_COLUMNS) = square[r];
    } else
      for (int64_t r = 0; r < k - i; r++)
        *(vector *)(to + (i + r) * TILE_COLUMNS) = square[r];
  }
}

/* Rows of b as panels [k, TILE_COLUMNS]; the last one is filled up with zeros. */
static void pack_panels(const cpu_product *product, float *to, int64_t n, int64_t columns, int64_t first, int64_t k) {
  for (int64_t panel = 0; panel < columns; panel += TILE_COLUMNS, to += TILE_COLUMNS * k)
    for (int64_t lane = 0; lane < TILE_COLUMNS; lane += LANES)
      pack_lanes(product, to + lane, n + panel + lane, columns - panel - lane, first, k);
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

void cpu_product_end(const cpu_product *product, float *sums, int64_t stride, int64_t m, int64_t rows, int64_t n,
                     int64_t columns) {
  const cpu_block_type *type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  float bias[BLOCK_COLUMNS];
  for (int64_t first = 0; first < columns; first += BLOCK_COLUMNS) {
    int64_t width = least(BLOCK_COLUMNS, columns - first);
    if (product->bias && !product->bias_by_row)
      bias_type->load(bias, product->bias, n + first, width);
    for (int64_t row = 0; row < rows; row++) {
      float *at = sums + row * stride + first, *out = (float *)cpu_matrix_row(product->out, m + row) + n + first;
      if (product->bias && product->bias_by_row) {
        bias_type->load(bias, product->bias, m + row, 1);
        for (int64_t i = 1; i < width; i++)
          bias[i] = bias[0];
      }
      for (int64_t i = 0; i < width && product->bias; i++)
        at[i] += bias[i];
      for (int64_t i = 0; i < width && product->accumulate; i++)
        at[i] += out[i];
      type->store(cpu_matrix_row(product->out, m + row), n + first, at, width);
    }
  }
}

cpu_product cpu_product_part(const cpu_product *product, int64_t m, int64_t rows, int64_t n, int64_t columns) {
  cpu_product part = *product;
  part.m = rows;
  part.n = columns;
  part.a = cpu_matrix_at(product->a, m, 0);
  part.b = product->b_is_k_by_n ? cpu_matrix_at(product->b, 0, n) : cpu_matrix_at(product->b, n, 0);
  part.out = cpu_matrix_at(product->out, m, n);
  if (product->bias)
    part.bias = (const char *)product->bias + (product->bias_by_row ? m : n) * cpu_dtype_size(product->bias_dtype);
  return part;
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
  return (areas){rows * A_STRIDE, round_up(round_up(least(n, BLOCK_COLUMNS), TILE_COLUMNS) * depth, 16),
                 rows * BLOCK_COLUMNS};
}

/* Rows m to m + rows - 1 and columns n to n + columns - 1 of the result, no more than a block. */
static void multiply_block(const cpu_product *product, int64_t m, int64_t rows, int64_t n, int64_t columns,
                           float *scratch) {
  areas sizes = needed_areas(product->m, product->n, product->k);
  float *a = scratch, *b = a + sizes.a, *sums = b + sizes.b;
  memset(sums, 0, (size_t)(rows * BLOCK_COLUMNS) * sizeof *sums);
  for (int64_t first = 0; first < product->k; first += BLOCK_K) {
    int64_t k = least(BLOCK_K, product->k - first);
    pack_rows(product, a, m, rows, first, k);
    if (product->b_is_k_by_n)
      pack_columns(b, cpu_matrix_at(product->b, first, n), columns, k);
    else
      pack_panels(product, b, n, columns, first, k);
    for (int64_t column = 0; column < columns; column += TILE_COLUMNS)
      for (int64_t row = 0; row < rows; row += TILE_ROWS)
        add_tile(k, least(TILE_ROWS, rows - row), a + row * A_STRIDE, b + column * k,
                 sums + row * BLOCK_COLUMNS + column);
  }
  cpu_product_end(product, sums, BLOCK_COLUMNS, m, rows, n, columns);
}

/* Blocks are numbered along the rows of the result. */
static void multiply_blocks(const cpu_product *product, float *scratch, int64_t first, int64_t end) {
  int64_t rows = block_rows(product->m), across = divide_up(product->n, BLOCK_COLUMNS);
  for (; first < end; first++) {
    int64_t m = first / across * rows, n = first % across * BLOCK_COLUMNS;
    multiply_block(product, m, least(rows, product->m - m), n, least(BLOCK_COLUMNS, product->n - n), scratch);
  }
}

static int64_t count_blocks(const cpu_product *product) {
  return product->m ? divide_up(product->m, block_rows(product->m)) * divide_up(product->n, BLOCK_COLUMNS) : 0;
}

/* ------------------------------------------------------------------------------------------------------ one thread */

static bool has_few_rows(const cpu_product *product) {
  return product->m <= cpu_few_rows_of(product->b.dtype) && !product->b_is_k_by_n;
}

static size_t blocks_scratch(int64_t m, int64_t n, int64_t k) {
  areas sizes = needed_areas(m, n, k);
  return (size_t)(sizes.a + sizes.b + sizes.sums);
}

size_t cpu_product_scratch(int64_t m, int64_t n, int64_t k) {
  size_t of_blocks = blocks_scratch(m, n, k);
  size_t of_few_rows = cpu_few_rows_size(least(m, CPU_FEW_ROWS), k);
  return of_blocks > of_few_rows ? of_blocks : of_few_rows;
}

void cpu_product_run(const cpu_product *product, float *scratch) {
  if (has_few_rows(product)) {
    cpu_few_rows_convert(product, scratch);
    cpu_few_rows(product, scratch, 0, product->n);
  } else
    multiply_blocks(product, scratch, 0, count_blocks(product));
}

/* -------------------------------------------------------------------------------------------------- several threads */

/* What a thread does in some ten microseconds. */
enum { GRAIN_BYTES = 256 << 10, GRAIN_FACTORS = 1 << 19 };

typedef struct few_rows_loop {
  const cpu_product *product;
  const float *a;
} few_rows_loop;

static fl_status few_rows_range(void *user, int64_t first, int64_t end) {
  const few_rows_loop *loop = user;
  cpu_few_rows(loop->product, loop->a, first, end);
  return FL_OK;
}

static fl_status share_few_rows(const cpu_product *product) {
  int64_t line = 64 / cpu_dtype_size(product->out.dtype); /* columns that no two threads write into one */
  int64_t bytes_of_column = product->k * cpu_dtype_size(product->b.dtype) + 1;
  float *a = cpu_scratch_take(cpu_few_rows_size(product->m, product->k));
  if (!a)
    return FL_ENOMEM;
  cpu_few_rows_convert(product, a);
  fl_status status = cpu_parallel_for(product->n, round_up(divide_up(GRAIN_BYTES, bytes_of_column), line),
                                      few_rows_range, &(few_rows_loop){product, a});
  cpu_scratch_give(a);
  return status;
}

static fl_status blocks_range(void *user, int64_t first, int64_t end) {
  const cpu_product *product = user;
  float *scratch = cpu_scratch_take(blocks_scratch(product->m, product->n, product->k));
  if (!scratch)
    return FL_ENOMEM;
  multiply_blocks(product, scratch, first, end);
  cpu_scratch_give(scratch);
  return FL_OK;
}

static fl_status share_blocks(const cpu_product *product) {
  int64_t factors = block_rows(product->m) * least(BLOCK_COLUMNS, product->n) * product->k + 1;
  return cpu_parallel_for(count_blocks(product), divide_up(GRAIN_FACTORS, factors), blocks_range, (void *)product);
}

/* --------------------------------------------------------------------------------------------------------- library */

/* oneDNN is called for one part of the result after the other: in rows and columns no more than this. */
enum { PART_ROWS = 512, PART_COLUMNS = 512 };

/* From how many multiplications on calling it pays. It wins then for any number of rows that are not few. */
enum { LIBRARY_FACTORS = 1 << 21 };

static bool suits_library(const cpu_product *product) {
  /* The base of the architecture is our code alone: who pins it wants no other instructions. */
  return LANES > 4 && product->m * product->n >= LIBRARY_FACTORS / (product->k + 1) &&
         product->a.dtype == product->b.dtype && product->b.dtype != CPU_FLOAT16 && cpu_onednn_is_there();
}

static int64_t part_rows(int64_t m) {
  return divide_up(m, divide_up(m, PART_ROWS));
}

/* What stands before the parts of b, each of which has PART_COLUMNS columns of the result, the last perhaps less. */
typedef struct packed_weight {
  int64_t n, k;
  cpu_dtype dtype;
  int64_t part_bytes; /* of all but the last */
} packed_weight;

enum { PACKED_HEAD = 64 };
_Static_assert(sizeof(packed_weight) <= PACKED_HEAD, "it fits before the parts");

/* Was it made of this product's b? */
static bool suits_packed(const cpu_product *product) {
  const packed_weight *packed = product->packed;
  return packed && packed->n == product->n && packed->k == product->k && packed->dtype == product->b.dtype;
}

static const void *packed_part(const cpu_product *product, int64_t column) {
  const packed_weight *packed = product->packed;
  return packed ? (const char *)packed + PACKED_HEAD + column / PART_COLUMNS * packed->part_bytes : NULL;
}

/* Its `packed` is what oneDNN packed for the part. */
static cpu_product part_of(const cpu_product *product, int64_t i) {
  int64_t rows = part_rows(product->m), across = divide_up(product->n, PART_COLUMNS);
  int64_t m = i / across * rows, n = i % across * PART_COLUMNS;
  cpu_product part = cpu_product_part(product, m, least(rows, product->m - m), n, least(PART_COLUMNS, product->n - n));
  part.packed = packed_part(product, n);
  return part;
}

/* ---------------------------------------------------------------------------------------------------------- packed */

/* A product with as many rows as any part has, for part `i` of b. */
static cpu_product part_to_pack(const cpu_product *product, int64_t i) {
  cpu_product whole = *product;
  whole.m = PART_ROWS;
  whole.a = (cpu_matrix){.dtype = product->b.dtype, .stride = product->k * cpu_dtype_size(product->b.dtype)};
  whole.packed = NULL;
  return part_of(&whole, i);
}

size_t cpu_product_packed_size(const cpu_product *product) {
  cpu_product like = *product;
  like.a.dtype = product->b.dtype;
  if (LANES <= 4 || cpu_is_of_pairs(&like) || cpu_is_of_tiles(&like) || product->b_is_k_by_n ||
      product->n * product->k < LIBRARY_FACTORS / PART_ROWS)
    return 0;
  int64_t parts = divide_up(product->n, PART_COLUMNS);
  const cpu_product first = part_to_pack(product, 0), last = part_to_pack(product, parts - 1);
  size_t of_first = cpu_onednn_packed_size(&first), of_last = cpu_onednn_packed_size(&last);
  return of_first && of_last ? PACKED_HEAD + of_first * (size_t)(parts - 1) + of_last : 0;
}

static fl_status pack_parts(void *user, int64_t first, int64_t end) {
  const cpu_product *product = user;
  bool done = true;
  for (; first < end && done; first++) {
    const cpu_product part = part_to_pack(product, first);
    done = cpu_onednn_pack(&part, (void *)packed_part(product, first * PART_COLUMNS));
  }
  return done ? FL_OK : FL_ENOTSUP;
}

fl_status cpu_product_pack(const cpu_product *product, void *packed) {
  const cpu_product first = part_to_pack(product, 0);
  cpu_product to_pack = *product;
  *(packed_weight *)packed = (packed_weight){.n = product->n,
                                             .k = product->k,
                                             .dtype = product->b.dtype,
                                             .part_bytes = (int64_t)cpu_onednn_packed_size(&first)};
  to_pack.packed = packed;
  return cpu_parallel_for(divide_up(product->n, PART_COLUMNS), 1, pack_parts, &to_pack);
}

/* ----------------------------------------------------------------------------------------------------------- parts */

static fl_status run_alone(const cpu_product *product) {
  float *scratch = cpu_scratch_take(cpu_product_scratch(product->m, product->n, product->k));
  if (!scratch)
    return FL_ENOMEM;
  cpu_product_run(product, scratch);
  cpu_scratch_give(scratch);
  return FL_OK;
}

/* Parts that have the sizes of the one before go on with what was made for it. Where oneDNN fails our code computes the
 * part. */
static fl_status parts_range(void *user, int64_t first, int64_t end) {
  const cpu_product *product = user;
  float *sums = cpu_scratch_take((size_t)(part_rows(product->m) * PART_COLUMNS));
  fl_status status = sums ? FL_OK : FL_ENOMEM;
  cpu_onednn *made = NULL;
  const void *packed = NULL; /* the part's, while it is used */
  int64_t made_m = 0, made_n = 0;
  for (; first < end && !status; first++) {
    cpu_product part = part_of(product, first);
    if (part.m != made_m || part.n != made_n) {
      cpu_onednn_end(made);
      made = cpu_onednn_begin(&part, packed = part.packed);
      if (!made && packed)
        made = cpu_onednn_begin(&part, packed = NULL);
      made_m = part.m;
      made_n = part.n;
    }
    if (made && cpu_onednn_run(made, part.a.data, packed ? part.packed : part.b.data, sums))
      cpu_product_end(&part, sums, part.n, 0, part.m, 0, part.n);
    else
      status = run_alone(&part);
  }
  cpu_onednn_end(made);
  cpu_scratch_give(sums);
  return status;
}

static fl_status share_parts(const cpu_product *product) {
  int64_t parts = divide_up(product->m, part_rows(product->m)) * divide_up(product->n, PART_COLUMNS);
  int64_t factors = part_rows(product->m) * least(PART_COLUMNS, product->n) * product->k + 1;
  return cpu_parallel_for(parts, divide_up(GRAIN_FACTORS, factors), parts_range, (void *)product);
}

/* ------------------------------------------------------------------------------------------------------- interface */

fl_status cpu_product_share(const cpu_product *given) {
  cpu_product product = *given;
  if (!product.m || !product.n)
    return FL_OK;
  if (cpu_is_of_tiles(&product)) {
    fl_status status = cpu_tiled_product(&product);
    if (status != FL_ENOTSUP)
      return status;
  }
  if (has_few_rows(&product))
    return share_few_rows(&product);
  if (cpu_is_of_pairs(&product))
    return cpu_pairs_share(&product);
  if (!suits_packed(&product))
    product.packed = NULL;
  return suits_library(&product) ? share_parts(&product) : share_blocks(&product);
}
