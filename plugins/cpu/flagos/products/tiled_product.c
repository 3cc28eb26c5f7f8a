/*
 * Products by tiles: see tiled_product.h. The weight's rows are the tiles' factors, the rows of a their
 * columns, so that the weight, of which most is read, needs no other order; a is packed once for all threads, and the
 * sums, [weight's rows, a's rows], are transposed at last. A thread takes strips of the weight; of many rows it
 * multiplies a piece of a strip after the other, which stays in the first-level cache, with all of a's tiles, and keeps
 * the sums of several strips in the second-level cache, that a is read less often.
 *
 * A number of float16 is the sum of two of bfloat16, exactly: its first digits and what is missing then. Tiles of both
 * are made of a and of each piece, and all four products added. Of few rows both parts lie in one tile, beside each
 * other.
 */
#include "plugins/cpu/flagos/products/tiled_product.h"

#ifdef __AMX_BF16__
#include "plugins/cpu/flagos/products/tiles.h"
#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

#include <string.h>

enum {
  STRIP = 2 * TILE_EDGE, /* rows of the weight that are multiplied together */
  GROUP = 8,             /* strips whose sums are kept */
  FEW_TILES = 4,         /* of a, for which a strip is multiplied in all of its depth */
  PIECE = 8,             /* steps of TILE_DEPTH of a strip, for more; halves have half as many, and two parts */
  MOST_TILES = 32,       /* of a, that are packed at once */
  TILE_BYTES = TILE_EDGE * TILE_DEPTH * 2,
  AHEAD = 4 * TILE_DEPTH * 2, /* bytes */
  SUMS = TILE_EDGE * TILE_EDGE
};

/* What a thread does in some ten microseconds. */
enum { GRAIN_FACTORS = 1 << 23, GRAIN_BYTES = 256 << 10 };

/* A product of no more than MOST_TILES tiles of a, which are packed: steps a piece at a time, the last perhaps less,
 * each [tiles, steps of the piece, a_parts, TILE_BYTES]. */
typedef struct block {
  const cpu_product *product;
  int64_t steps, tiles, piece;
  int64_t parts;   /* of bfloat16 that a number of the weight is the sum of: 1 or 2 */
  int64_t a_parts; /* tiles of these for one of a; 1 where both parts are in it */
  char *a;
} block;

static int64_t parts_of(const cpu_product *product) {
  return product->b.dtype == CPU_FLOAT16 ? 2 : 1;
}

/* Rows of a of which both parts are in one tile: these many are one half of its columns. */
enum { BESIDE = TILE_EDGE / 2 };

static int64_t a_parts_of(const cpu_product *product) {
  return product->m > BESIDE ? parts_of(product) : 1;
}

/* Steps of a piece that begins with step `first`. */
static int64_t piece_steps(const block *b, int64_t first) {
  return least(b->piece, b->steps - first);
}

/* A thread's memory. */
typedef struct strips {
  float sums[GROUP][MOST_TILES][2][SUMS]; /* of both halves of each strip, each [row of the weight, row of a] */
  float rows[TILE_EDGE][GROUP * STRIP];   /* of the result */
  char piece[2 * PIECE * TILE_BYTES];     /* of a strip, or half of it, in two parts */
} strips;

/* ------------------------------------------------------------------------------------------------------------ pack */

/* Which of `n` numbers, at most TILE_DEPTH, there are; none of a row that is none. */
SPECIALISED __mmask32 first_of(int64_t n, bool is_row) {
  return !is_row ? 0 : n < TILE_DEPTH ? (__mmask32)((1u << n) - 1) : ~(__mmask32)0;
}

/* `n` numbers of TILE_EDGE rows from `row` on; zeros for what is not there. */
SPECIALISED void load_square(cpu_matrix from, int64_t row, int64_t rows, int64_t first, int64_t n, vector *square) {
  const char *at = (const char *)cpu_matrix_row(from, row) + first * 2;
  UNROLL for (int r = 0; r < TILE_EDGE; r++) square[r] =
      (vector)_mm512_maskz_loadu_epi16(first_of(n, row + r < rows), row + r < rows ? at + r * from.stride : at);
}

/* The numbers as float16 has them, in two parts: the upper halves of two floats, one of the first half of the row and
 * one of the second by turns. Of what is infinite or no number the second part is none, and so is every sum with it. */
SPECIALISED void split_row(__m512 first, __m512 second, vector *high, vector *low) {
  enum { A_OR_B_AND_C = 0xf8 };
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
  const __m512 first_high = (__m512)_mm512_and_si512((__m512i)first, upper);
  const __m512 second_high = (__m512)_mm512_and_si512((__m512i)second, upper);
  const __m512i first_low = (__m512i)_mm512_sub_ps(first, first_high);
  const __m512i second_low = (__m512i)_mm512_sub_ps(second, second_high);
  *high = (vector)_mm512_or_si512(_mm512_srli_epi32((__m512i)first_high, 16), (__m512i)second_high);
  *low = (vector)_mm512_ternarylogic_epi32(_mm512_srli_epi32(first_low, 16), second_low, upper, A_OR_B_AND_C);
}

/* Of float16 as load_square. The processor does not look so far ahead by itself: it is told what is next of the row. */
SPECIALISED void split_square(cpu_matrix from, int64_t row, int64_t rows, int64_t first, int64_t n, vector *high,
                              vector *low) {
  const char *at = (const char *)cpu_matrix_row(from, row) + first * 2;
  if (row + TILE_EDGE <= rows && n == TILE_DEPTH) {
    UNROLL for (int r = 0; r < TILE_EDGE; r++, at += from.stride) {
      __builtin_prefetch(at + AHEAD);
      split_row(_mm512_cvtph_ps(_mm256_loadu_si256((const void *)at)),
                _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(at + 32))), &high[r], &low[r]);
    }
    return;
  }
  load_square(from, row, rows, first, n, high);
  UNROLL for (int r = 0; r < TILE_EDGE; r++)
      split_row(_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)high[r])),
                _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)high[r], 1)), &high[r], &low[r]);
}

SPECIALISED void store_square(const vector *square, char *to) {
  UNROLL for (int r = 0; r < TILE_EDGE; r++) * (vector *)(void *)(to + r * 64) = square[r];
}

/* Both parts of TILE_EDGE rows of a, or of BESIDE of them in one tile. */
static void pack_parts(const block *b, int64_t row, int64_t first, int64_t n, char *to) {
  vector high[TILE_EDGE], low[TILE_EDGE];
  split_square(b->product->a, row, b->product->m, first, n, high, low);
  if (b->a_parts == 1) {
    UNROLL for (int r = 0; r < BESIDE; r++) high[BESIDE + r] = low[r];
  } else {
    transpose(low);
    store_square(low, to + TILE_BYTES);
  }
  transpose(high);
  store_square(high, to);
}

static void pack_steps(const block *b, int64_t tile, int64_t first, int64_t n) {
  const cpu_product *product = b->product;
  char *to = b->a + (first * b->tiles + tile * n) * b->a_parts * TILE_BYTES;
  for (int64_t step = first; step < first + n; step++, to += b->a_parts * TILE_BYTES) {
    const int64_t row = tile * TILE_EDGE, number = step * TILE_DEPTH, size = least(TILE_DEPTH, product->k - number);
    if (b->parts > 1) {
      pack_parts(b, row, number, size, to);
      continue;
    }
    vector square[TILE_EDGE];
    load_square(product->a, row, product->m, number, size, square);
    transpose(square);
    store_square(square, to);
  }
}

static fl_status pack_columns(void *user, int64_t tile, int64_t end) {
  const block *b = user;
  for (; tile < end; tile++)
    for (int64_t first = 0; first < b->steps; first += b->piece)
      pack_steps(b, tile, first, piece_steps(b, first));
  return FL_OK;
}

/* Steps `first` to `end - 1` of a strip, from row `n` of the weight on, as tiles: [steps, 2, parts, TILE_BYTES]. */
static void copy_piece(const block *b, int64_t n, int64_t first, int64_t end, char *to) {
  const cpu_product *product = b->product;
  const int64_t apart = b->parts * TILE_BYTES;
  for (int64_t half = 0; half < 2; half++, n += TILE_EDGE, to += apart)
    for (int64_t step = first; step < end; step++) {
      vector square[TILE_EDGE], low[TILE_EDGE];
      char *tile = to + (step - first) * 2 * apart;
      const int64_t size = least(TILE_DEPTH, product->k - step * TILE_DEPTH);
      if (b->parts > 1) {
        split_square(product->b, n, product->n, step * TILE_DEPTH, size, square, low);
        store_square(low, tile + TILE_BYTES);
      } else
        load_square(product->b, n, product->n, step * TILE_DEPTH, size, square);
      store_square(square, tile);
    }
}

/* -------------------------------------------------------------------------------------------------------- multiply */

/* Tiles of a strip: bytes between rows, between the halves and between steps. */
typedef struct factors {
  const char *data;
  int64_t row, half, step;
} factors;

/* Memory that is needed next, in rows that are `stride` bytes apart: a line of so many of them is fetched at each step.
 */
typedef struct upcoming {
  const char *data;
  int64_t rows, stride;
} upcoming;

static inline void fetch_lines(const upcoming *next, int64_t step) {
  for (int64_t row = 0; row < next->rows; row++)
    __builtin_prefetch(next->data + row * next->stride + step * 64, 0, 2);
}

/* The sums of a strip and one or two tiles of a, `apart` bytes: [tiles of a, 2, SUMS] += the products, or =. Of numbers
 * of two parts the products of the small ones are added first. */
SPECIALISED void add_tiles(int64_t steps, factors strip, const char *a, int64_t apart, int64_t parts, int64_t a_parts,
                           bool two, const upcoming *next, bool begins, float *sums) {
  if (begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + SUMS, 64);
  }
  if (!begins && two) {
    _tile_loadd(2, sums + 2 * SUMS, 64);
    _tile_loadd(3, sums + 3 * SUMS, 64);
  }
  for (int64_t step = 0; step < steps; step++, strip.data += strip.step, a += a_parts * TILE_BYTES) {
    fetch_lines(next, step);
    UNROLL for (int64_t part = parts - 1; part >= 0; part--) {
      _tile_loadd(4, strip.data + part * TILE_BYTES, strip.row);
      _tile_loadd(5, strip.data + strip.half + part * TILE_BYTES, strip.row);
      UNROLL for (int64_t of_a = a_parts - 1; of_a >= 0; of_a--) {
        _tile_loadd(6, a + of_a * TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        if (!two)
          continue;
        _tile_loadd(7, a + apart + of_a * TILE_BYTES, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + SUMS, 64);
  if (two) {
    _tile_stored(2, sums + 2 * SUMS, 64);
    _tile_stored(3, sums + 3 * SUMS, 64);
  }
}

/* The sums of a strip and all tiles of a, or what steps from `first` on add to them, all of one piece. */
SPECIALISED void add_all_tiles(const block *b, int64_t parts, int64_t a_parts, int64_t first, int64_t steps,
                               factors strip, upcoming next, float (*sums)[2][SUMS]) {
  const int64_t begin = first / b->piece * b->piece, step_bytes = a_parts * TILE_BYTES;
  const int64_t apart = piece_steps(b, begin) * step_bytes;
  const char *a = b->a + (begin * b->tiles + first - begin) * step_bytes;
  int64_t t = 0;
  for (; t + 1 < b->tiles; t += 2, next.data += next.rows * next.stride)
    add_tiles(steps, strip, a + t * apart, apart, parts, a_parts, true, &next, !first, &sums[t][0][0]);
  if (t < b->tiles)
    add_tiles(steps, strip, a + t * apart, apart, parts, a_parts, false, &next, !first, &sums[t][0][0]);
}

static void add_strip(const block *b, int64_t first, int64_t steps, factors strip, upcoming next,
                      float (*sums)[2][SUMS]) {
  SYNC_TILES;
  if (b->parts == 1)
    add_all_tiles(b, 1, 1, first, steps, strip, next, sums);
  else if (b->a_parts == 1)
    add_all_tiles(b, 2, 1, first, steps, strip, next, sums);
  else
    add_all_tiles(b, 2, 2, first, steps, strip, next, sums);
  SYNC_TILES;
}

/* Tiles of a strip that was copied. */
static factors copied(const block *b, const strips *s) {
  return (factors){s->piece, 64, b->parts * TILE_BYTES, 2 * b->parts * TILE_BYTES};
}

/* Of a few tiles: the weight is read along its rows, which the processor foresees; of bfloat16 it is multiplied where
 * it lies, as far as it is whole tiles. */
static void add_whole_strip(const block *b, strips *s, int64_t n, float (*sums)[2][SUMS]) {
  const cpu_product *product = b->product;
  const int64_t stride = product->b.stride, piece = PIECE / b->parts;
  const int64_t whole = b->parts == 1 && n + STRIP <= product->n ? product->k / TILE_DEPTH : 0;
  const factors strip = {cpu_matrix_row(product->b, n), stride, TILE_EDGE * stride, 64};
  add_strip(b, 0, whole, strip, (upcoming){0}, sums);
  for (int64_t first = whole; first < b->steps; first += piece) {
    int64_t end = least(first + piece, b->steps);
    copy_piece(b, n, first, end, s->piece);
    add_strip(b, first, end - first, copied(b, s), (upcoming){0}, sums);
  }
}

/* Of many: a piece of each strip after the other. The next one is fetched meanwhile. */
static void add_group(const block *b, strips *s, int64_t n, int64_t count) {
  const cpu_matrix weight = b->product->b;
  const int64_t rows = divide_up(STRIP, divide_up(b->tiles, 2));
  for (int64_t first = 0; first < b->steps; first += b->piece)
    for (int64_t i = 0; i < count; i++) {
      const bool is_last = i + 1 == count;
      const char *at = cpu_matrix_row(weight, is_last ? n : n + (i + 1) * STRIP);
      const int64_t steps = piece_steps(b, first);
      copy_piece(b, n + i * STRIP, first, first + steps, s->piece);
      add_strip(b, first, steps, copied(b, s),
                (upcoming){at + (is_last ? first + b->piece : first) * 64, rows, weight.stride}, s->sums[i]);
    }
}

/* The sums of `count` strips, from column `n` of the result on, are its rows. false: a number of two parts was not
 * finite, so a sum is no number. */
static bool end_group(const block *b, strips *s, int64_t n, int64_t count) {
  const cpu_product *product = b->product;
  const int64_t columns = least(count * STRIP, product->n - n);
  __mmask16 wrong = 0;
  for (int64_t t = 0; t < b->tiles; t++) {
    for (int64_t half = 0; half < 2 * count; half++) {
      vector square[TILE_EDGE];
      const vector *from = (const vector *)(const void *)s->sums[half / 2][t][half % 2];
      UNROLL for (int r = 0; r < TILE_EDGE; r++) square[r] = from[r];
      transpose(square);
      if (b->parts > b->a_parts)
        UNROLL for (int r = 0; r < BESIDE; r++) square[r] += square[BESIDE + r];
      for (int r = 0; r < TILE_EDGE && b->parts > 1; r++)
        wrong |= _mm512_cmp_ps_mask((__m512)square[r], (__m512)square[r], _CMP_UNORD_Q);
      UNROLL for (int r = 0; r < TILE_EDGE; r++) * (vector *)(void *)(s->rows[r] + half * TILE_EDGE) = square[r];
    }
    if (wrong)
      return false;
    cpu_product_end(product, s->rows[0], GROUP * STRIP, t * TILE_EDGE, least(TILE_EDGE, product->m - t * TILE_EDGE), n,
                    columns);
  }
  return true;
}

static fl_status strips_range(void *user, int64_t begin, int64_t end) {
  const block *b = user;
  strips *s = cpu_scratch_take_bytes(sizeof *s);
  bool done = true;
  if (!s)
    return FL_ENOMEM;
  for (; begin < end && done; begin += GROUP) {
    const int64_t n = begin * STRIP, count = least(GROUP, end - begin);
    begin_tiles();
    if (b->tiles <= FEW_TILES)
      for (int64_t i = 0; i < count; i++)
        add_whole_strip(b, s, n + i * STRIP, s->sums[i]);
    else
      add_group(b, s, n, count);
    end_tiles();
    done = end_group(b, s, n, count);
  }
  cpu_scratch_give(s);
  return done ? FL_OK : FL_ENOTSUP;
}

/* ------------------------------------------------------------------------------------------------------- interface */

/* Tiles of a that are packed at once: all blocks are about as large, and a thread keeps the memory for one. */
static int64_t block_tiles(const cpu_product *product, int64_t steps) {
  const int64_t kept = CPU_SCRATCH_KEPT / (steps * parts_of(product) * TILE_BYTES + 1);
  const int64_t tiles = divide_up(product->m, TILE_EDGE), most = least(MOST_TILES, kept > 2 ? kept / 2 * 2 : 2);
  return divide_up(tiles, divide_up(tiles, most));
}

fl_status cpu_tiled_product(const cpu_product *product) {
  const int64_t steps = product->k ? divide_up(product->k, TILE_DEPTH) : 1, tiles = block_tiles(product, steps);
  const int64_t multiplications = STRIP * tiles * TILE_EDGE * steps * TILE_DEPTH + 1, parts = parts_of(product);
  fl_status status = FL_OK;
  char *a = cpu_scratch_take_bytes((size_t)(tiles * steps * parts * TILE_BYTES));
  if (!a)
    return FL_ENOMEM;
  for (int64_t m = 0; m < product->m && !status; m += tiles * TILE_EDGE) {
    const cpu_product part = cpu_product_part(product, m, least(tiles * TILE_EDGE, product->m - m), 0, product->n);
    block b = {&part, steps, divide_up(part.m, TILE_EDGE), 0, parts, a_parts_of(product), a};
    b.piece = b.tiles <= FEW_TILES ? steps : PIECE / parts;
    status = cpu_parallel_for(b.tiles, divide_up(GRAIN_BYTES, steps * TILE_BYTES + 1), pack_columns, &b);
    if (!status)
      status = cpu_parallel_for(divide_up(part.n, STRIP), divide_up(GRAIN_FACTORS, multiplications), strips_range, &b);
  }
  cpu_scratch_give(a);
  return status;
}
#else
fl_status cpu_tiled_product(const cpu_product *product) {
  return (void)product, FL_ENOTSUP;
}
#endif
