/* Which weights of 4 bits are multiplied as four_bit_rows.h says, and by which form of x. */
#include "plugins/cpu/flagos/products/four_bit_rows.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"

enum { GRAIN_BYTES = 256 << 10 };

static int64_t rows_of_tile(int64_t m) {
  return m > 4 ? 8 : m > 2 ? 4 : m;
}

/* A chunk of AWQ's wants quads of rows. */
static bool wants_digits(const cpu_four_bit_linear *linear) {
  return HAS_DIGITS && (linear->format != CPU_AWQ || (linear->group % QUAD == 0 && linear->k % QUAD == 0));
}

#ifdef __AVX512VNNI__
/* `row` is for one of x. */
static bool load_digits(const few_rows *few, void *to, chunk_of_x *chunks, float *row) {
  const cpu_four_bit_linear *linear = few->linear;
  bool done = true;
  memset(row, 0, (size_t)round_up(linear->k, BLOCK) * sizeof *row);
  for (int64_t r = 0; r < few->n_rows && done; r++) {
    if (r < linear->m)
      cpu_block_types[linear->x.dtype].load(row, cpu_matrix_row(linear->x, r), 0, linear->k);
    else
      memset(row, 0, (size_t)linear->k * sizeof *row);
    done =
        (linear->format == CPU_MXFP4 ? cpu_four_bit_mxfp4_digits : cpu_four_bit_words_digits)(few, row, r, to, chunks);
  }
  return done;
}
#else
static bool load_digits(const few_rows *few, void *to, chunk_of_x *chunks, float *row) {
  (void)few, (void)to, (void)chunks, (void)row;
  return false;
}
#endif

/* Words of GPTQ are of one group each. Machines of the other byte order have other nibbles in a word of MXFP4. */
bool cpu_four_bit_rows_take(const cpu_four_bit_linear *linear) {
  if (linear->m > MOST_ROWS || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
    return false;
  return linear->format != CPU_GPTQ || (!linear->g_idx && linear->group % NIBBLES == 0);
}

fl_status cpu_four_bit_rows(const cpu_four_bit_linear *linear) {
  few_rows few = {.linear = linear, .n_rows = rows_of_tile(linear->m), .has_digits = wants_digits(linear)};
  bool is_mxfp4 = linear->format == CPU_MXFP4;
  int64_t k = round_up(linear->k, BLOCK), n = few.n_rows * k;
  /* Digits take as much as floats; then there are chunks and a row. */
  size_t chunks = few.has_digits ? (size_t)(n / QUAD) * sizeof(chunk_of_x) : 0;
  float *x = cpu_scratch_take_bytes((size_t)(n + (few.has_digits ? k : 0)) * sizeof *x + chunks);
  if (!x)
    return FL_ENOMEM;
  chunk_of_x *of_chunks = (chunk_of_x *)(void *)(x + n);
  few.x = x;
  few.chunks = of_chunks;
  few.has_digits = few.has_digits && load_digits(&few, x, of_chunks, (float *)(void *)(of_chunks + n / QUAD));
  if (!few.has_digits)
    (is_mxfp4 ? cpu_four_bit_mxfp4_floats : cpu_four_bit_words_floats)(&few, x);
  int64_t width = is_mxfp4 ? 1 : BLOCK, bytes = linear->k * width / 2 + 1;
  int64_t multiple = is_mxfp4 ? 64 : 4; /* a narrower stripe takes longer, idle threads longer still */
  fl_status status = cpu_parallel_for(divide_up(linear->n, width), round_up(divide_up(GRAIN_BYTES, bytes), multiple),
                                      is_mxfp4 ? cpu_four_bit_mxfp4_range : cpu_four_bit_words_range, &few);
  cpu_scratch_give(x);
  return status;
}
