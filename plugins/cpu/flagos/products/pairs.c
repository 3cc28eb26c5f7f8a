/*
 * Products of pairs of bfloat16: see pairs.h. Rows of a are packed once for all threads, TILE_ROWS at a time; a thread
 * packs a strip of columns, rows of b, and multiplies all tiles of rows by that, which stays in the second-level cache
 * meanwhile. A pair stands in a float's place.
 */
#include "plugins/cpu/flagos/products/pairs.h"

#ifdef __AVX512BF16__
#include "plugins/cpu/flagos/products/tile.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

/* Rows and columns of a tile, and rows that are packed at once; pairs of a strip that are, and how many are multiplied
 * before it is looked up where to fetch on. */
enum {
  TILE_ROWS = 12,
  VECTORS = 2,
  COLUMNS = VECTORS * LANES,
  BLOCK_ROWS = 43 * TILE_ROWS,
  STRIP_PAIRS = 1024,
  STEP = 256
};

/* What a thread does in some ten microseconds. */
enum { GRAIN_FACTORS = 1 << 20, GRAIN_BYTES = 256 << 10 };

/* Pairs of a row: zeros fill up the last vector. */
static int64_t pairs_of(int64_t k) {
  return round_up(k, PAIR) / 2;
}

/* Floats between tiles of a: what is stored last reaches behind a tile. */
static int64_t tile_size(int64_t k) {
  return pairs_of(k) * TILE_ROWS + LANES;
}

/* LANES vectors of pairs, of rows that are `row_bytes` apart, as columns that are `stride` apart, of which each
 * overwrites what reaches over from the one before. */
SPECIALISED void pack_square(const char *from, int64_t row_bytes, float *to, int64_t stride) {
  vector square[LANES];
  UNROLL for (int r = 0; r < LANES; r++, from += row_bytes) square[r] =
      (vector) * (const vector_words *)(const void *)from;
  transpose(square);
  UNROLL for (int r = 0; r < LANES; r++) * (vector *)(to + r * stride) = square[r];
}

/* Pairs `first` to `end - 1`, a multiple of LANES, of LANES rows from `row` on; zeros for those behind the last, and
 * for rows that are not there. */
SPECIALISED void pack(cpu_matrix from, int64_t row, int64_t rows, int64_t k, int64_t first, int64_t end, float *to,
                      int64_t stride) {
  const char *at = (const char *)cpu_matrix_row(from, row) + first * 4;
  const int64_t there = rows < row ? 0 : least(LANES, rows - row);
  for (; first < end; first += LANES, at += sizeof(vector), to += LANES * stride) {
    const int64_t n = least(PAIR, k - 2 * first);
    if (there == LANES && n == PAIR) {
      pack_square(at, from.stride, to, stride);
      continue;
    }
    uint16_t square[LANES][PAIR] = {0};
    for (int64_t r = 0; r < there; r++)
      memcpy(square[r], at + r * from.stride, (size_t)n * sizeof **square);
    pack_square((const char *)square, sizeof *square, to, stride);
  }
}

/* ------------------------------------------------------------------------------------------------------------ rows */

typedef struct block {
  const cpu_product *product; /* no more than BLOCK_ROWS rows */
  float *a;
} block;

static fl_status pack_rows(void *user, int64_t first, int64_t end) {
  const block *b = user;
  const cpu_product *product = b->product;
  for (; first < end; first++)
    pack(product->a, first * TILE_ROWS, product->m, product->k, 0, pairs_of(product->k),
         b->a + first * tile_size(product->k), TILE_ROWS);
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- strips */

/* A thread's memory. */
typedef struct strip {
  float columns[STRIP_PAIRS * COLUMNS], sums[BLOCK_ROWS * COLUMNS];
} strip;

/* What will be packed, or multiplied, next: `bytes` at each of COLUMNS rows of b, the first at `from`. */
typedef struct upcoming {
  const char *from;
  int64_t stride, bytes;
} upcoming;

/* Functions of their own, one for each third of a tile's rows: within loops the compiler keeps sums in memory. */
typedef void (*add_tile_fn)(int64_t pairs, const float *a, const float *columns, tile_next next, float *sums);
#define ADD_TILE(height)                                                                                               \
  static void add_tile_##height(int64_t pairs, const float *a, const float *columns, tile_next next, float *sums) {    \
    multiply_tile_of(TILE_PAIRS, height, VECTORS, pairs, (tile_factors){a, 1, TILE_ROWS}, columns, COLUMNS, &next,     \
                     true, sums, COLUMNS);                                                                             \
  }
ADD_TILE(4)
ADD_TILE(8)
ADD_TILE(12)
static const add_tile_fn add_tiles[] = {add_tile_4, add_tile_8, add_tile_12};

/* sums [rows, COLUMNS] += all rows of a times `columns`, pairs `first` to `end - 1` of those from `n` on. Meanwhile
 * what is next is fetched, in the order in which it lies in memory, and where the result will be. */
static void add_strip(const block *b, const float *columns, float *sums, int64_t n, int64_t first, int64_t end,
                      upcoming next) {
  const cpu_matrix out = cpu_matrix_at(b->product->out, 0, n);
  const int64_t tiles = divide_up(b->product->m, TILE_ROWS),
                step = divide_up(COLUMNS * next.bytes, tiles * (end - first));
  int64_t fetched = 0;
  for (int64_t t = 0; t < tiles; t++) {
    const float *a = b->a + t * tile_size(b->product->k);
    const int64_t rows = least(TILE_ROWS, b->product->m - t * TILE_ROWS);
    for (int64_t r = 0; r < rows; r++)
      __builtin_prefetch(cpu_matrix_row(out, t * TILE_ROWS + r), 1, 2);
    const add_tile_fn add_tile = add_tiles[divide_up(rows, TILE_ROWS / 3) - 1];
    for (int64_t i = first; i < end; i += STEP, fetched += STEP * step)
      add_tile(least(STEP, end - i), a + i * TILE_ROWS, columns + (i - first) * COLUMNS,
               (tile_next){next.from + fetched / next.bytes * next.stride + fetched % next.bytes, step},
               sums + t * TILE_ROWS * COLUMNS);
  }
}

/* Pairs `first` to `end - 1` of the columns from `n` on, as add_strip takes them. */
static void pack_strip(const cpu_product *product, int64_t n, int64_t first, int64_t end, float *to) {
  for (int64_t lanes = 0; lanes < COLUMNS; lanes += LANES)
    pack(product->b, n + lanes, product->n, product->k, first, end, to + lanes, COLUMNS);
}

/* Floats of a strip that is packed as a whole. */
static int64_t strip_size(int64_t k) {
  return pairs_of(k) * COLUMNS;
}

/* What is next, pairs `first` to `end - 1` of strip `i`. */
static upcoming upcoming_of(const cpu_product *product, int64_t i, int64_t first, int64_t end) {
  const int64_t bytes = (end - first) * 4;
  if (product->packed)
    return (upcoming){(const char *)product->packed + (i * strip_size(product->k) + first * COLUMNS) * 4, bytes, bytes};
  return (upcoming){(const char *)cpu_matrix_row(product->b, i * COLUMNS) + first * 4, product->b.stride, bytes};
}

static fl_status strips_range(void *user, int64_t begin, int64_t end) {
  const block *b = user;
  const cpu_product *product = b->product;
  const int64_t pairs = pairs_of(product->k), chunks = divide_up(pairs, STRIP_PAIRS);
  const int64_t chunk = chunks ? round_up(divide_up(pairs, chunks), LANES) : 0;
  strip *s = cpu_scratch_take_bytes(sizeof *s);
  if (!s)
    return FL_ENOMEM;
  for (; begin < end; begin++) {
    const int64_t n = begin * COLUMNS, columns = least(COLUMNS, product->n - n);
    const float *packed = product->packed ? (const float *)product->packed + begin * strip_size(product->k) : NULL;
    memset(s->sums, 0, (size_t)(round_up(product->m, TILE_ROWS) * COLUMNS) * sizeof(float));
    for (int64_t first = 0; first < pairs; first += chunk) {
      const int64_t last = least(first + chunk, pairs), next = last < pairs ? last : 0;
      if (!packed)
        pack_strip(product, n, first, last, s->columns);
      add_strip(b, packed ? packed + first * COLUMNS : s->columns, s->sums, n, first, last,
                upcoming_of(product, last < pairs ? begin : begin + 1, next, least(next + chunk, pairs)));
    }
    cpu_product_end(product, s->sums, COLUMNS, 0, product->m, n, columns);
  }
  cpu_scratch_give(s);
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- packed */

size_t cpu_pairs_packed_size(const cpu_product *product) {
  return (size_t)(divide_up(product->n, COLUMNS) * strip_size(product->k)) * sizeof(float);
}

static fl_status pack_strips(void *user, int64_t first, int64_t end) {
  const cpu_product *product = user;
  float *packed = (void *)product->packed;
  for (; first < end; first++)
    pack_strip(product, first * COLUMNS, 0, pairs_of(product->k), packed + first * strip_size(product->k));
  return FL_OK;
}

fl_status cpu_pairs_pack(const cpu_product *product, void *packed) {
  cpu_product to_pack = *product;
  to_pack.packed = packed;
  return cpu_parallel_for(divide_up(product->n, COLUMNS), divide_up(GRAIN_BYTES, strip_size(product->k) * 4 + 1),
                          pack_strips, &to_pack);
}

/* ------------------------------------------------------------------------------------------------------- interface */

fl_status cpu_pairs_share(const cpu_product *product) {
  fl_status status = FL_OK;
  const int64_t rows = round_up(divide_up(product->m, divide_up(product->m, BLOCK_ROWS)), TILE_ROWS);
  const int64_t bytes = TILE_ROWS * product->k * 2 + 1, factors = rows * COLUMNS * product->k + 1;
  float *a = cpu_scratch_take((size_t)(divide_up(rows, TILE_ROWS) * tile_size(product->k)));
  if (!a)
    return FL_ENOMEM;
  for (int64_t m = 0; m < product->m && !status; m += rows) {
    cpu_product part = cpu_product_part(product, m, least(rows, product->m - m), 0, product->n);
    block b = {&part, a};
    status = cpu_parallel_for(divide_up(part.m, TILE_ROWS), divide_up(GRAIN_BYTES, bytes), pack_rows, &b);
    if (!status)
      status = cpu_parallel_for(divide_up(part.n, COLUMNS), divide_up(GRAIN_FACTORS, factors), strips_range, &b);
  }
  cpu_scratch_give(a);
  return status;
}
#else
size_t cpu_pairs_packed_size(const cpu_product *product) {
  return (void)product, 0;
}

fl_status cpu_pairs_pack(const cpu_product *product, void *packed) {
  return (void)product, (void)packed, FL_ENOTSUP;
}

fl_status cpu_pairs_share(const cpu_product *product) {
  return (void)product, FL_ENOTSUP;
}
#endif
