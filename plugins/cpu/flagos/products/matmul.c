/* Blocked matrix products: see matmul.h. Compiled with contraction to fused multiply-add, where the machine has that.
 */
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/products/few_rows.h"
#include "plugins/cpu/flagos/products/pairs.h"
#include "plugins/cpu/flagos/products/tile.h"
#include "plugins/cpu/flagos/products/tiled_product.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/support/onednn.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

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

/* Packed operands are rows of a and panels [k, PANEL] of columns of b. A panel stays in the first-level cache while the
 * rows of a group are multiplied by it, and these in the second. The panels of a block wait for its next group in the
 * last one, with its sums. */
enum { PANEL = VECTORS * LANES, GROUP_ROWS = 96, BLOCK_ROWS = 516, BLOCK_COLUMNS = 512, BLOCK_K = 256 };

/* Between rows, no power of two: they would displace each other from the first-level cache. */
enum { GAP = 16, A_STRIDE = BLOCK_K + GAP };

/* The result is shared in strips of so many columns of a block's rows, which are numbered along the rows; strips that
 * follow each other make a block. */
enum { STRIP_COLUMNS = 128, BLOCK_STRIPS = BLOCK_COLUMNS / STRIP_COLUMNS };
_Static_assert(GROUP_ROWS % HEIGHT == 0 && BLOCK_ROWS % HEIGHT == 0 && STRIP_COLUMNS % PANEL == 0, "tiles are whole");

/* ---------------------------------------------------------------------------------------------------------- blocks */

/* k numbers of a row from number `first` on; there may be none. */
static void fetch_row(cpu_matrix from, int64_t row, int64_t first, int64_t k) {
  fetch(cpu_matrix_at(from, row, first).data, k * cpu_dtype_size(from.dtype));
}

/* Pages that rows of a lie in are not foreseen by processors. */
enum { ROWS_AHEAD = 4 };

/* Rows of a as [rows, A_STRIDE]; zeros fill up the last tile. */
static void pack_rows(const cpu_product *product, float *to, int64_t m, int64_t rows, int64_t first, int64_t k) {
  for (int64_t r = 0; r < rows; r++) {
    fetch_row(product->a, m + r + ROWS_AHEAD, first, k);
    cpu_block_types[product->a.dtype].load(to + r * A_STRIDE, cpu_matrix_row(product->a, m + r), first, k);
  }
  for (int64_t r = rows; r < round_up(rows, HEIGHT); r++)
    memset(to + r * A_STRIDE, 0, (size_t)k * sizeof *to);
}

/* LANES numbers of LANES rows. */
SPECIALISED void pack_square(cpu_dtype dtype, const char *const *rows, int64_t first, float *to) {
  vector square[LANES];
  UNROLL for (int r = 0; r < LANES; r++) square[r] = load_lanes(dtype, rows[r], first);
  transpose(square);
  UNROLL for (int r = 0; r < LANES; r++) * (vector *)(to + r * PANEL) = square[r];
}

/* The first k numbers of LANES rows as columns of a panel, behind which there is room for what fills up the last
 * square: zeros. */
SPECIALISED void pack_lanes(cpu_dtype dtype, const char *const *rows, int64_t k, float *to) {
  const int64_t size = cpu_dtype_size(dtype), whole = k / LANES * LANES;
  char rest[LANES][LANES * sizeof(float)] = {0};
  const char *rests[LANES];
  for (int64_t i = 0; i < whole; i += LANES)
    pack_square(dtype, rows, i, to + i * PANEL);
  if (whole == k)
    return;
  for (int r = 0; r < LANES; r++)
    rests[r] = memcpy(rest[r], rows[r] + whole * size, (size_t)((k - whole) * size));
  pack_square(dtype, rests, 0, to + whole * PANEL);
}

/* Rows of b from number `first` on as a panel; zeros for those that are not there. */
static void pack_panel(cpu_matrix b, int64_t there, int64_t first, int64_t k, float *to) {
  static const char zeros[BLOCK_K * sizeof(float)];
  for (int lane = 0; lane < PANEL; lane += LANES, to += LANES) {
    const char *rows[LANES];
    for (int r = 0; r < LANES; r++)
      rows[r] = lane + r < there ? (char *)cpu_matrix_row(b, lane + r) + first * cpu_dtype_size(b.dtype) : zeros;
    if (b.dtype == CPU_FLOAT32)
      pack_lanes(CPU_FLOAT32, rows, k, to);
    else if (b.dtype == CPU_FLOAT16)
      pack_lanes(CPU_FLOAT16, rows, k, to);
    else
      pack_lanes(CPU_BFLOAT16, rows, k, to);
  }
}

/* Columns of a matrix [k, columns] as panels; the last one is filled up with zeros. */
static void pack_columns(float *to, cpu_matrix from, int64_t columns, int64_t k) {
  const cpu_block_type *type = &cpu_block_types[from.dtype];
  float row[BLOCK_COLUMNS] = {0};
  for (int64_t i = 0; i < k; i++) {
    type->load(row, cpu_matrix_row(from, i), 0, columns);
    for (int64_t panel = 0; panel < columns; panel += PANEL)
      memcpy(to + panel * k + i * PANEL, row + panel, PANEL * sizeof *row);
  }
}

void cpu_product_end(const cpu_product *product, float *sums, int64_t stride, int64_t m, int64_t rows, int64_t n,
                     int64_t columns) {
  const cpu_block_type *type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  float bias[CPU_BLOCK];
  for (int64_t first = 0; first < columns; first += CPU_BLOCK) {
    int64_t width = cpu_block_size(columns - first);
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
  return round_up(divide_up(m, divide_up(m, BLOCK_ROWS)), HEIGHT);
}

/* Three areas of scratch memory, and floats from one row of sums to the next. */
typedef struct areas {
  int64_t a, b, sums; /* floats */
  int64_t stride;
} areas;

static areas needed_areas(const cpu_product *product) {
  const int64_t rows = block_rows(product->m);
  const int64_t width = round_up(least(product->n, BLOCK_COLUMNS), PANEL), stride = width + GAP;
  return (areas){least(rows, GROUP_ROWS) * A_STRIDE, width * least(product->k, BLOCK_K) + LANES * PANEL, rows * stride,
                 stride};
}

/* sums [rows, stride] += rows of a, a group of them, times a panel. Meanwhile the rows of b that the next panel will be
 * packed from are fetched; NULL: it is packed. */
static void multiply_group(const float *a, int64_t rows, const float *panel, const cpu_matrix *next, int64_t first,
                           int64_t k, float *sums, int64_t stride) {
  const int64_t tiles = divide_up(rows, HEIGHT);
  for (int64_t i = 0; i < tiles; i++, a += HEIGHT * A_STRIDE, sums += HEIGHT * stride) {
    for (int64_t row = i * PANEL / tiles; next && row < (i + 1) * PANEL / tiles; row++)
      fetch_row(*next, row, first, k);
    multiply_tile(HEIGHT, VECTORS, k, (tile_factors){a, A_STRIDE, 1}, panel, PANEL, true, sums, stride);
  }
}

/* Rows m to m + rows - 1 and columns n to n + columns - 1 of the result, no more than a block. */
static void multiply_block(const cpu_product *product, int64_t m, int64_t rows, int64_t n, int64_t columns,
                           float *scratch) {
  const areas sizes = needed_areas(product);
  float *a = scratch, *b = a + sizes.a, *sums = b + sizes.b;
  memset(sums, 0, (size_t)(round_up(rows, HEIGHT) * sizes.stride) * sizeof *sums);
  for (int64_t first = 0; first < product->k; first += BLOCK_K) {
    const int64_t k = least(BLOCK_K, product->k - first);
    if (product->b_is_k_by_n)
      pack_columns(b, cpu_matrix_at(product->b, first, n), columns, k);
    for (int64_t top = 0; top < rows; top += GROUP_ROWS) {
      const bool packs = top == 0 && !product->b_is_k_by_n;
      const int64_t height = least(GROUP_ROWS, rows - top);
      pack_rows(product, a, m + top, height, first, k);
      for (int64_t column = 0; column < columns; column += PANEL) {
        const cpu_matrix next = cpu_matrix_at(product->b, n + column + PANEL, 0);
        if (packs)
          pack_panel(cpu_matrix_at(product->b, n + column, 0), columns - column, first, k, b + column * k);
        multiply_group(a, height, b + column * k, packs ? &next : NULL, first, k, sums + top * sizes.stride + column,
                       sizes.stride);
      }
    }
  }
  cpu_product_end(product, sums, sizes.stride, m, rows, n, columns);
}

static void multiply_strips(const cpu_product *product, float *scratch, int64_t first, int64_t end) {
  const int64_t rows = block_rows(product->m), across = divide_up(product->n, STRIP_COLUMNS);
  for (int64_t strips; first < end; first += strips) {
    const int64_t m = first / across * rows, strip = first % across, n = strip * STRIP_COLUMNS;
    strips = least(least(BLOCK_STRIPS, across - strip), end - first);
    multiply_block(product, m, least(rows, product->m - m), n, least(strips * STRIP_COLUMNS, product->n - n), scratch);
  }
}

static int64_t count_strips(const cpu_product *product) {
  return divide_up(product->m, block_rows(product->m)) * divide_up(product->n, STRIP_COLUMNS);
}

/* -------------------------------------------------------------------------------------------------- several threads */

static bool has_few_rows(const cpu_product *product) {
  const int64_t few =
      product->packed && cpu_is_of_pairs(product) ? CPU_FEW_ROWS_PACKED : cpu_few_rows_of(product->b.dtype);
  return product->m <= few && !product->b_is_k_by_n;
}

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

static fl_status strips_range(void *user, int64_t first, int64_t end) {
  const cpu_product *product = user;
  const areas sizes = needed_areas(product);
  float *scratch = cpu_scratch_take((size_t)(sizes.a + sizes.b + sizes.sums));
  if (!scratch)
    return FL_ENOMEM;
  multiply_strips(product, scratch, first, end);
  cpu_scratch_give(scratch);
  return FL_OK;
}

static fl_status share_strips(const cpu_product *product) {
  int64_t factors = block_rows(product->m) * least(STRIP_COLUMNS, product->n) * product->k + 1;
  return cpu_parallel_for(count_strips(product), divide_up(GRAIN_FACTORS, factors), strips_range, (void *)product);
}

/* --------------------------------------------------------------------------------------------------------- library */

/* oneDNN is called for one part of the result after the other: in rows and columns no more than this. */
enum { PART_ROWS = 512, PART_COLUMNS = 512 };

/* From how many multiplications on calling it pays. By AVX-512 it is as fast as ours then for any number of rows that
 * are not few, or faster; by AVX2 it is slower, and who pins the base of the architecture wants no other instructions.
 */
enum { LIBRARY_FACTORS = 1 << 21 };

static bool library_is_fast(cpu_dtype dtype) {
  return LANES == 16 && dtype != CPU_FLOAT16;
}

static bool suits_library(const cpu_product *product) {
  return library_is_fast(product->b.dtype) && product->a.dtype == product->b.dtype &&
         product->m * product->n >= LIBRARY_FACTORS / (product->k + 1) && cpu_onednn_is_there();
}

static int64_t part_rows(int64_t m) {
  return divide_up(m, divide_up(m, PART_ROWS));
}

/* What stands before b as pairs.h packs it, or before the parts that oneDNN does, each of which has PART_COLUMNS
 * columns of the result, the last perhaps less. */
typedef struct packed_weight {
  int64_t n, k;
  cpu_dtype dtype;
  int64_t part_bytes; /* of all but the last */
} packed_weight;

enum { PACKED_HEAD = 64 };
_Static_assert(sizeof(packed_weight) <= PACKED_HEAD, "it fits before them");

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

/* It is multiplied by rows of the same type. */
static cpu_product with_rows(const cpu_product *product) {
  cpu_product with = *product;
  with.a.dtype = product->b.dtype;
  return with;
}

size_t cpu_product_packed_size(const cpu_product *product) {
  const cpu_product like = with_rows(product);
  if (!library_is_fast(product->b.dtype) || cpu_is_of_tiles(&like) || product->b_is_k_by_n ||
      product->n * product->k < LIBRARY_FACTORS / PART_ROWS)
    return 0;
  if (cpu_is_of_pairs(&like))
    return PACKED_HEAD + cpu_pairs_packed_size(product);
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
  const cpu_product like = with_rows(product), first = part_to_pack(product, 0);
  packed_weight *head = packed;
  cpu_product to_pack = *product;
  *head = (packed_weight){.n = product->n, .k = product->k, .dtype = product->b.dtype};
  if (cpu_is_of_pairs(&like))
    return cpu_pairs_pack(product, (char *)packed + PACKED_HEAD);
  head->part_bytes = (int64_t)cpu_onednn_packed_size(&first);
  to_pack.packed = packed;
  return cpu_parallel_for(divide_up(product->n, PART_COLUMNS), 1, pack_parts, &to_pack);
}

/* ----------------------------------------------------------------------------------------------------------- parts */

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
      status = strips_range(&part, 0, count_strips(&part));
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
  if (!suits_packed(&product))
    product.packed = NULL;
  if (cpu_is_of_tiles(&product)) {
    fl_status status = cpu_tiled_product(&product);
    if (status != FL_ENOTSUP)
      return status;
  }
  if (has_few_rows(&product))
    return share_few_rows(&product);
  if (cpu_is_of_pairs(&product)) {
    product.packed = packed_part(&product, 0);
    return cpu_pairs_share(&product);
  }
  return suits_library(&product) ? share_parts(&product) : share_strips(&product);
}
