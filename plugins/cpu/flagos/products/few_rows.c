/* Products of a few rows: see few_rows.h. Compiled with contraction to fused multiply-add, where the machine has that.
 */
#include "plugins/cpu/flagos/products/few_rows.h"
#include "plugins/cpu/flagos/products/pairs.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/cpu/support/pages.h"
#include "plugins/integers.h"

/* Up to MOST_ROWS rows of a are multiplied by so many columns, rows of b, at once that the sums, a vector of each
 * column and one of a row have registers. */
enum { MOST_ROWS = 8, MOST_COLUMNS = 8 };
#define COLUMNS(n_rows)                                                                                                \
  ((REGISTERS - 1) / ((n_rows) + 1) < MOST_COLUMNS ? (REGISTERS - 1) / ((n_rows) + 1) : MOST_COLUMNS)

/*
 * How a and b are multiplied: by b's element type, a as floats; or, where the processor adds products of pairs of
 * bfloat16 and both are of that, as they are. Rows of a are kept a tile after the other, each [pairs, rows, PAIR]: rows
 * that lie a power of two apart would displace each other from the cache. As floats a pair has the order in which
 * load_half takes that of a column apart; the last one is filled up with zeros.
 */
enum { PAIRS = CPU_N_DTYPES, N_FORMS };

static int form_of(const cpu_product *product) {
  return cpu_is_of_pairs(product) ? PAIRS : (int)product->b.dtype;
}

/* Bytes of an element of a. */
SPECIALISED int64_t size_in(int form) {
  return form == PAIRS ? 2 : 4;
}

static int64_t padded(int64_t k) {
  return round_up(k, PAIR);
}

/* A processor that has tiles of bfloat16, an Intel Xeon, reads columns for one tile of rows ahead by itself, and faster
 * than when it is told. So few columns at once as eight rows leave registers for are enough for that, if nothing has to
 * be computed with them first. */
#ifdef __AMX_BF16__
enum { READS_AHEAD = 1 };
#else
enum { READS_AHEAD = 0 };
#endif

/* Rows of a and columns that are multiplied at once. */
typedef struct tile_shape {
  int64_t rows, columns;
} tile_shape;

/* From memory an AMD EPYC with AVX-512 reads three columns for one tile of four to six rows a quarter to a third faster
 * than more columns for one or two tiles; from its second cache it does not. Of floats, which are twice as many bytes,
 * four rows are the most. */
enum { ALONE_COLUMNS = 3 };
static bool is_alone(const cpu_product *product) {
  const int64_t second_cache = 4 << 20;
  if (LANES < 16 || READS_AHEAD || product->n * product->k * cpu_dtype_size(product->b.dtype) <= second_cache)
    return false;
  const int form = form_of(product);
  return product->m >= 4 && product->m <= (form == PAIRS ? 6 : form == CPU_FLOAT32 ? 4 : 0);
}

static tile_shape shape_of(const cpu_product *product) {
  const int64_t m = product->m, most = READS_AHEAD && form_of(product) == CPU_FLOAT32 ? MOST_ROWS : MOST_ROWS / 2;
  if (is_alone(product))
    return (tile_shape){m, ALONE_COLUMNS};
  const int64_t rows = m ? divide_up(m, divide_up(m, most)) : 1;
  return (tile_shape){rows, COLUMNS(rows)};
}

typedef float tile[MOST_ROWS][MOST_COLUMNS];

/* sum[r][c] += a pair of row r of a * one of columns[c]. If `fetching`, as many bytes as that takes of the columns are
 * fetched meanwhile, from `ahead` on. */
SPECIALISED void add_pair(int form, int n_rows, int n_columns, const char *a, const char *const *columns, int64_t i,
                          bool fetching, const char *ahead, vector sum[][MOST_COLUMNS]) {
  vector factors[MOST_COLUMNS];
#ifdef __AVX512BF16__
  if (form == PAIRS && fetching) {
    /* A line for each column, and a is read anew: a loop that outruns memory is slower. */
    UNROLL for (int c = 0; c < n_columns; c++) {
      fetch(ahead + c * PAIR * 2, PAIR * 2);
      __asm__ volatile("" ::: "memory");
      UNROLL for (int r = 0; r < n_rows; r++) sum[r][c] =
          add_pairs(sum[r][c], _mm512_loadu_si512(a + r * PAIR * 2), _mm512_loadu_si512(columns[c] + i * 2));
    }
    return;
  }
  if (form == PAIRS) {
    UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) sum[r][c] =
        add_pairs(sum[r][c], _mm512_loadu_si512(a + r * PAIR * 2), _mm512_loadu_si512(columns[c] + i * 2));
    return;
  }
#endif
  const int64_t bytes = n_columns * LANES * (form == CPU_FLOAT32 ? 4 : 2);
  UNROLL for (int half = 0; half < 2; half++) {
    if (fetching)
      fetch(ahead + half * bytes, bytes);
    UNROLL for (int c = 0; c < n_columns; c++) factors[c] = load_half((cpu_dtype)form, columns[c], i, half);
    UNROLL for (int r = 0; r < n_rows; r++) {
      vector factor = *(const vector *)(a + (r * PAIR + half * LANES) * 4);
      UNROLL for (int c = 0; c < n_columns; c++) sum[r][c] += factor * factors[c];
    }
  }
}

/* What of the columns that are next a tile of rows fetches: so many bytes a step. */
typedef struct next_columns {
  const char *from;
  int64_t bytes;
} next_columns;

SPECIALISED void fetch_next(const next_columns *next, int64_t i, int64_t whole) {
  if (next->bytes == whole) /* no other tile does */
    fetch(next->from + i / PAIR * whole, whole);
  else
    for (int64_t line = 0; line < next->bytes; line += 64)
      __builtin_prefetch(next->from + i / PAIR * next->bytes + line, 0, 2);
}

/* results[r][c] = row r of a * columns[c]. Meanwhile columns that are next are fetched. */
SPECIALISED void dot(int form, int n_rows, bool alone, int64_t k, const char *a, const char *const *columns,
                     next_columns next, tile results) {
  const int n_columns = alone ? ALONE_COLUMNS : COLUMNS(n_rows);
  const int64_t size = form == CPU_FLOAT32 ? 4 : 2, step = PAIR * size * n_columns;
  vector sum[MOST_ROWS][MOST_COLUMNS] = {0};
  int64_t i = 0;
  for (; i + PAIR <= k; i += PAIR) {
    if (!alone)
      fetch_next(&next, i, step);
    add_pair(form, n_rows, n_columns, a + i * n_rows * size_in(form), columns, i, alone, next.from + i / PAIR * step,
             sum);
  }
  if (i < k) {
    char rest[MOST_COLUMNS][PAIR * sizeof(float)] = {0};
    const char *rests[MOST_COLUMNS];
    for (int c = 0; c < n_columns; c++)
      rests[c] = memcpy(rest[c], columns[c] + i * size, (size_t)((k - i) * size));
    add_pair(form, n_rows, n_columns, a + i * n_rows * size_in(form), rests, 0, false, NULL, sum);
  }
  UNROLL for (int r = 0; r < n_rows; r++) UNROLL for (int c = 0; c < n_columns; c++) results[r][c] =
      add_lanes(sum[r][c]);
}

/* One function for each form and number of rows, and for what is the only tile. */
typedef void (*dot_fn)(int64_t k, const char *a, const char *const *columns, next_columns next, tile results);
#define DOT_AS(name, form, n_rows, alone)                                                                              \
  static void name##_##form##_##n_rows(int64_t k, const char *a, const char *const *columns, next_columns next,        \
                                       tile results) {                                                                 \
    dot(form, n_rows, alone, k, a, columns, next, results);                                                            \
  }
#define DOT(form, n_rows)   DOT_AS(dot, form, n_rows, false)
#define ALONE(form, n_rows) DOT_AS(alone, form, n_rows, true)
#define FOR_EACH(do, form)                                                                                             \
  do                                                                                                                   \
  (form, 1) do(form, 2) do(form, 3) do(form, 4)
#define FOR_MORE(do, form)                                                                                             \
  do                                                                                                                   \
  (form, 5) do(form, 6) do(form, 7) do(form, 8)
#ifdef __AMX_BF16__
#define FOR_EACH_OF_FLOAT32(do) FOR_EACH(do, CPU_FLOAT32) FOR_MORE(do, CPU_FLOAT32)
#else
#define FOR_EACH_OF_FLOAT32(do) FOR_EACH(do, CPU_FLOAT32)
#endif
FOR_EACH_OF_FLOAT32(DOT)
FOR_EACH(DOT, CPU_FLOAT16)
FOR_EACH(DOT, CPU_BFLOAT16)
ALONE(CPU_FLOAT32, 4)
#ifdef __AVX512BF16__
FOR_EACH(DOT, PAIRS)
ALONE(PAIRS, 4)
ALONE(PAIRS, 5)
ALONE(PAIRS, 6)
#endif
#define DOT_NAME(form, n_rows)   dot_##form##_##n_rows,
#define ALONE_NAME(form, n_rows) [n_rows - 1] = alone_##form##_##n_rows,
static const dot_fn dots[N_FORMS][MOST_ROWS] = {
    [CPU_FLOAT32] = {FOR_EACH_OF_FLOAT32(DOT_NAME)},
    [CPU_FLOAT16] = {FOR_EACH(DOT_NAME, CPU_FLOAT16)},
    [CPU_BFLOAT16] = {FOR_EACH(DOT_NAME, CPU_BFLOAT16)},
#ifdef __AVX512BF16__
    [PAIRS] = {FOR_EACH(DOT_NAME, PAIRS)},
#endif
};
static const dot_fn alone_dots[N_FORMS][MOST_ROWS] = {
    [CPU_FLOAT32] = {ALONE_NAME(CPU_FLOAT32, 4)},
#ifdef __AVX512BF16__
    [PAIRS] = {ALONE_NAME(PAIRS, 4) ALONE_NAME(PAIRS, 5) ALONE_NAME(PAIRS, 6)},
#endif
};

size_t cpu_few_rows_size(int64_t m, int64_t k) {
  return (size_t)(m * padded(k));
}

/* What is converted anew for each tile of rows has to be cheap to convert. */
int64_t cpu_few_rows_of(cpu_dtype dtype) {
  const int64_t rows[CPU_N_DTYPES] = {[CPU_FLOAT32] = LANES > 4 ? 32 : 8,
                                      [CPU_FLOAT16] = LANES > 4 ? 4 * LANES : 8,
                                      [CPU_BFLOAT16] = cpu_has_pairs() ? CPU_FEW_ROWS
                                                       : LANES == 8    ? 16
                                                                       : 8};
  return rows[dtype];
}

/* A row of a tile of `n_rows`, as floats. */
static void convert_row(const cpu_product *product, int64_t row, int64_t n_rows, char *memory) {
  bool is_split = product->b.dtype == CPU_BFLOAT16;
  float block[CPU_BLOCK], *to = (float *)(void *)memory;
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

/* As it is. */
static void copy_row(const cpu_product *product, int64_t row, int64_t n_rows, char *to) {
  const char *from = cpu_matrix_row(product->a, row);
  const int64_t pair = PAIR * 2;
  int64_t left = product->k * 2;
  for (; left >= pair; left -= pair, from += pair, to += n_rows * pair)
    memcpy(to, from, (size_t)pair);
  if (left) {
    memcpy(to, from, (size_t)left);
    memset(to + left, 0, (size_t)(pair - left));
  }
}

void cpu_few_rows_convert(const cpu_product *product, void *rows) {
  const int form = form_of(product);
  int64_t m = product->m, tile_rows = shape_of(product).rows;
  char *a = rows;
  for (int64_t row = 0; row < m; row += tile_rows, a += tile_rows * padded(product->k) * size_in(form))
    for (int64_t r = 0; r < least(tile_rows, m - row); r++)
      (form == PAIRS ? copy_row : convert_row)(product, row + r, least(tile_rows, m - row),
                                               a + r * PAIR * size_in(form));
}

/* results [m, width] = all rows of a * `n` columns of b from `first` on. */
static void multiply_columns(const cpu_product *product, const char *a, int64_t first, int64_t n, int64_t width,
                             float *results) {
  const int form = form_of(product);
  const dot_fn *const multiply = (is_alone(product) ? alone_dots : dots)[form];
  const tile_shape shape = shape_of(product);
  int64_t tile_rows = shape.rows, tile_columns = shape.columns, tiles = divide_up(product->m, tile_rows);
  int64_t stride = tile_rows * padded(product->k) * size_in(form);
  int64_t step = PAIR * tile_columns * cpu_dtype_size(product->b.dtype);
  next_columns next = {.bytes = READS_AHEAD && tiles == 1 ? 0 : divide_up(step, tiles)};
  for (int64_t i = 0; i < n; i += tile_columns) {
    const char *columns[MOST_COLUMNS]; /* there may be less: the last one stands for those */
    int64_t n_columns = least(tile_columns, n - i);
    for (int64_t c = 0; c < MOST_COLUMNS; c++)
      columns[c] = cpu_matrix_row(product->b, first + i + least(c, n_columns - 1));
    next.from = cpu_matrix_row(product->b, first + i + tile_columns);
    if (next.bytes)
      cpu_touch_pages(next.from, tile_columns * product->k * cpu_dtype_size(product->b.dtype));
    for (int64_t t = 0; t < tiles; t++, next.from += product->k / PAIR * next.bytes) {
      int64_t row = t * tile_rows, n_rows = least(tile_rows, product->m - row);
      tile sums;
      multiply[n_rows - 1](product->k, a + t * stride, columns, next, sums);
      for (int64_t r = 0; r < n_rows; r++)
        memcpy(results + (row + r) * width + i, sums[r], (size_t)n_columns * sizeof(float));
    }
  }
}

void cpu_few_rows(const cpu_product *product, const void *a, int64_t first, int64_t end) {
  const cpu_block_type *out_type = &cpu_block_types[product->out.dtype];
  const cpu_block_type *bias_type = &cpu_block_types[product->bias_dtype];
  enum { RESULTS = 16 * CPU_BLOCK };
  float all[RESULTS], bias[CPU_BLOCK];
  const int64_t width = least(CPU_BLOCK, RESULTS / product->m);
  for (; first < end; first += width) {
    int64_t n = least(width, end - first);
    multiply_columns(product, a, first, n, width, all);
    if (product->bias && !product->bias_by_row)
      bias_type->load(bias, product->bias, first, n);
    for (int64_t row = 0; row < product->m; row++) {
      float *out = (float *)cpu_matrix_row(product->out, row) + first, *results = all + row * width;
      if (product->bias && product->bias_by_row)
        bias_type->load(bias, product->bias, row, 1);
      for (int64_t i = 0; i < n && product->bias; i++)
        results[i] += bias[product->bias_by_row ? 0 : i];
      for (int64_t i = 0; i < n && product->accumulate; i++)
        results[i] += out[i];
      out_type->store(cpu_matrix_row(product->out, row), first, results, n);
    }
  }
}
