/*
 * Products by tiles: see tiled_product.h. The weight's rows are the tiles' factors, the rows of a their
 * columns, so that the weight, of which most is read, needs no other order; a is packed once for all threads, and the
 * sums, [weight's rows, a's rows], are transposed at last. A thread takes strips of the weight; of many rows it
 * multiplies a piece of a strip after the other, which stays in the first-level cache, with all of a's tiles, and keeps
 * the sums of several strips in the second-level cache, that a is read less often.
 *
 * A number of float16 is the sum of two of bfloat16, its own rounded and what is missing then, exactly: tiles of both
 * are made of a and of each piece, and all four products added.
 */
#include "plugins/cpu/flagos/tiled_product.h"

#ifdef __AMX_BF16__
#include "plugins/cpu/flagos/lanes.h"
#include "plugins/cpu/flagos/tiles.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/scratch.h"
#include "plugins/integers.h"

#include <string.h>

enum {
  STRIP = 2 * TILE_EDGE, /* rows of the weight that are multiplied together */
  GROUP = 8,             /* strips whose sums are kept */
  FEW_TILES = 4,         /* of a, for which a strip is multiplied in all of its depth */
  PIECE = 8,             /* steps of TILE_DEPTH of a strip, for more; halves have half as many, and two parts */
  MOST_TILES = 32,       /* of a, that are packed at once */
  TILE_BYTES = TILE_EDGE * TILE_DEPTH * 2,
  SUMS = TILE_EDGE * TILE_EDGE
};

/* What a thread does in some ten microseconds. */
enum { GRAIN_FACTORS = 1 << 23, GRAIN_BYTES = 256 << 10 };

/* A product of no more than MOST_TILES tiles of a, which are packed: steps a piece at a time, the last perhaps less,
 * each [tiles, steps of the piece, parts, TILE_BYTES]. */
typedef struct block {
  const cpu_product *product;
  int64_t steps, tiles, piece;
  int64_t parts; /* of bfloat16 that a number is the sum of: 1 or 2 */
  char *a;
} block;

static int64_t parts_of(const cpu_product *product) {
  return product->b.dtype == CPU_FLOAT16 ? 2 : 1;
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

/* `n` numbers, at most TILE_DEPTH, of TILE_EDGE rows from `row` on; zeros for what is not there. */
SPECIALISED void load_square(cpu_matrix from, int64_t row, int64_t rows, int64_t first, int64_t n, vector *square) {
  const __mmask32 there = n < TILE_DEPTH ? (__mmask32)((1u << n) - 1) : ~(__mmask32)0;
  const char *at = (const char *)cpu_matrix_row(from, row) + first * 2;
  UNROLL for (int r = 0; r < TILE_EDGE; r++) square[r] =
      (vector)_mm512_maskz_loadu_epi16(row + r < rows ? there : 0, row + r < rows ? at + r * from.stride : at);
}

/* Of float16: each number's two parts. false: one of them is infinite or no number, which has no parts. */
static bool split_square(const vector *halves, vector *high, vector *low) {
  __mmask16 wrong = 0;
  for (int r = 0; r < TILE_EDGE; r++) {
    const __m512i row = (__m512i)halves[r];
    const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(row));
    const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(row, 1));
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    const __m512i first_bits = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(rounded));
    const __m512i second_bits = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(rounded, 1));
    const __m512 first_left = _mm512_sub_ps(first, (__m512)_mm512_slli_epi32(first_bits, 16));
    const __m512 second_left = _mm512_sub_ps(second, (__m512)_mm512_slli_epi32(second_bits, 16));
    wrong |= _mm512_cmp_ps_mask(first_left, second_left, _CMP_UNORD_Q);
    high[r] = (vector)rounded;
    low[r] = (vector)_mm512_cvtne2ps_pbh(second_left, first_left);
  }
  return !wrong;
}

SPECIALISED void store_square(const vector *square, char *to) {
  UNROLL for (int r = 0; r < TILE_EDGE; r++) * (vector *)(void *)(to + r * 64) = square[r];
}

static bool pack_steps(const block *b, int64_t tile, int64_t first, int64_t n) {
  const cpu_product *product = b->product;
  char *to = b->a + (first * b->tiles + tile * n) * b->parts * TILE_BYTES;
  bool done = true;
  for (int64_t step = first; step < first + n; step++, to += b->parts * TILE_BYTES) {
    vector square[TILE_EDGE];
    load_square(product->a, tile * TILE_EDGE, product->m, step * TILE_DEPTH,
                least(TILE_DEPTH, product->k - step * TILE_DEPTH), square);
    if (b->parts > 1) {
      vector low[TILE_EDGE];
      done &= split_square(square, square, low);
      transpose(low);
      store_square(low, to + TILE_BYTES);
    }
    transpose(square);
    store_square(square, to);
  }
  return done;
}

static fl_status pack_columns(void *user, int64_t tile, int64_t end) {
  const block *b = user;
  bool done = true;
  for (; tile < end; tile++)
    for (int64_t first = 0; first < b->steps; first += b->piece)
      done &= pack_steps(b, tile, first, piece_steps(b, first));
  return done ? FL_OK : FL_ENOTSUP;
}

/* Steps `first` to `end - 1` of a strip, from row `n` of the weight on, as tiles: [steps, 2, parts, TILE_BYTES]. false:
 * a number has no parts. */
static bool copy_piece(const block *b, int64_t n, int64_t first, int64_t end, char *to) {
  const cpu_product *product = b->product;
  const int64_t apart = b->parts * TILE_BYTES;
  bool done = true;
  for (int64_t half = 0; half < 2; half++, n += TILE_EDGE, to += apart)
    for (int64_t step = first; step < end; step++) {
      vector square[TILE_EDGE];
      char *tile = to + (step - first) * 2 * apart;
      load_square(product->b, n, product->n, step * TILE_DEPTH, least(TILE_DEPTH, product->k - step * TILE_DEPTH),
                  square);
      if (b->parts > 1) {
        vector low[TILE_EDGE];
        done &= split_square(square, square, low);
        store_square(low, tile + TILE_BYTES);
      }
      store_square(square, tile);
    }
  return done;
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
SPECIALISED void add_tiles(int64_t steps, factors strip, const char *a, int64_t apart, int64_t parts, bool two,
                           const upcoming *next, bool begins, float *sums) {
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
  for (int64_t step = 0; step < steps; step++, strip.data += strip.step, a += parts * TILE_BYTES) {
    fetch_lines(next, step);
    UNROLL for (int64_t part = parts - 1; part >= 0; part--) {
      _tile_loadd(4, strip.data + part * TILE_BYTES, strip.row);
      _tile_loadd(5, strip.data + strip.half + part * TILE_BYTES, strip.row);
      UNROLL for (int64_t of_a = parts - 1; of_a >= 0; of_a--) {
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
SPECIALISED void add_all_tiles(const block *b, int64_t parts, int64_t first, int64_t steps, factors strip,
                               upcoming next, float (*sums)[2][SUMS]) {
  const int64_t begin = first / b->piece * b->piece, step_bytes = parts * TILE_BYTES;
  const int64_t apart = piece_steps(b, begin) * step_bytes;
  const char *a = b->a + (begin * b->tiles + first - begin) * step_bytes;
  int64_t t = 0;
  for (; t + 1 < b->tiles; t += 2, next.data += next.rows * next.stride)
    add_tiles(steps, strip, a + t * apart, apart, parts, true, &next, !first, &sums[t][0][0]);
  if (t < b->tiles)
    add_tiles(steps, strip, a + t * apart, apart, parts, false, &next, !first, &sums[t][0][0]);
}

static void add_strip(const block *b, int64_t first, int64_t steps, factors strip, upcoming next,
                      float (*sums)[2][SUMS]) {
  SYNC_TILES;
  if (b->parts == 1)
    add_all_tiles(b, 1, first, steps, strip, next, sums);
  else
    add_all_tiles(b, 2, first, steps, strip, next, sums);
  SYNC_TILES;
}

/* Tiles of a strip that was copied. */
static factors copied(const block *b, const strips *s) {
  return (factors){s->piece, 64, b->parts * TILE_BYTES, 2 * b->parts * TILE_BYTES};
}

/* Of a few tiles: the weight is read along its rows, which the processor foresees; of bfloat16 it is multiplied where
 * it lies, as far as it is whole tiles. false: a number has no parts. */
static bool add_whole_strip(const block *b, strips *s, int64_t n, float (*sums)[2][SUMS]) {
  const cpu_product *product = b->product;
  const int64_t stride = product->b.stride, piece = PIECE / b->parts;
  const int64_t whole = b->parts == 1 && n + STRIP <= product->n ? product->k / TILE_DEPTH : 0;
  const factors strip = {cpu_matrix_row(product->b, n), stride, TILE_EDGE * stride, 64};
  bool done = true;
  add_strip(b, 0, whole, strip, (upcoming){0}, sums);
  for (int64_t first = whole; first < b->steps && done; first += piece) {
    int64_t end = least(first + piece, b->steps);
    done = copy_piece(b, n, first, end, s->piece);
    add_strip(b, first, end - first, copied(b, s), (upcoming){0}, sums);
  }
  return done;
}

/* Of many: a piece of each strip after the other. The next one is fetched meanwhile. false: a number has no parts. */
static bool add_group(const block *b, strips *s, int64_t n, int64_t count) {
  const cpu_matrix weight = b->product->b;
  const int64_t rows = divide_up(STRIP, divide_up(b->tiles, 2));
  bool done = true;
  for (int64_t first = 0; first < b->steps && done; first += b->piece)
    for (int64_t i = 0; i < count; i++) {
      const bool is_last = i + 1 == count;
      const char *at = cpu_matrix_row(weight, is_last ? n : n + (i + 1) * STRIP);
      const int64_t steps = piece_steps(b, first);
      done &= copy_piece(b, n + i * STRIP, first, first + steps, s->piece);
      add_strip(b, first, steps, copied(b, s),
                (upcoming){at + (is_last ? first + b->piece : first) * 64, rows, weight.stride}, s->sums[i]);
    }
  return done;
}

/* The sums of `count` strips, from column `n` of the result on, are its rows. */
static void end_group(const block *b, strips *s, int64_t n, int64_t count) {
  const cpu_product *product = b->product;
  const int64_t columns = least(count * STRIP, product->n - n);
  for (int64_t t = 0; t < b->tiles; t++) {
    for (int64_t half = 0; half < 2 * count; half++) {
      vector square[TILE_EDGE];
      const vector *from = (const vector *)(const void *)s->sums[half / 2][t][half % 2];
      UNROLL for (int r = 0; r < TILE_EDGE; r++) square[r] = from[r];
      transpose(square);
      UNROLL for (int r = 0; r < TILE_EDGE; r++) * (vector *)(void *)(s->rows[r] + half * TILE_EDGE) = square[r];
    }
    cpu_product_end(product, s->rows[0], GROUP * STRIP, t * TILE_EDGE, least(TILE_EDGE, product->m - t * TILE_EDGE), n,
                    columns);
  }
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
      for (int64_t i = 0; i < count && done; i++)
        done = add_whole_strip(b, s, n + i * STRIP, s->sums[i]);
    else
      done = add_group(b, s, n, count);
    end_tiles();
    if (done)
      end_group(b, s, n, count);
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
    block b = {&part, steps, divide_up(part.m, TILE_EDGE), 0, parts, a};
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
