/*
 * Latent attention of one query a sequence. Rows come in tiles through shared memory and serve as keys, and with their
 * first columns as values. A sequence is made in parts, each with the greatest score, the sum of weights and the sum of
 * rows so weighted, all in float; a second kernel joins them.
 */
#include "plugins/gpu/kernels/arguments/attention.h"
#include "plugins/gpu/kernels/attention.h"
#include "plugins/gpu/kernels/fragment.h"

/* A row's first element in the cache; -1: behind the end, or in no block of the cache. */
GPU_DEVICE int64_t find_row(const gpu_decode_arguments &a, uint32_t sequence, uint32_t row, uint32_t end) {
  if (row >= end)
    return -1;
  uint32_t column = row / a.block_rows;
  int64_t block = gpu_load_index(a.wide_table, a.table, sequence * a.table_sequence + column);
  if (block < 0 || block >= a.blocks)
    return -1;
  return block * a.cache_block + (row - column * a.block_rows) * a.cache_row;
}

struct part_rows {
  uint32_t length, begin, end;
  GPU_METHOD part_rows(const gpu_decode_arguments &a, uint32_t sequence, uint32_t part) {
    length = uint32_t(gpu_clamp(gpu_load_index(a.wide_lengths, a.lengths, sequence), 0, a.rows));
    segment rows = part_of({0, length}, a.parts, part);
    begin = rows.begin;
    end = rows.end;
  }
};

/* ---------------------------------------------------------------------------------------------- products in registers
 * A block makes GPU_DECODE_HEADS heads of one part of a sequence, whose rows they share. For the scores, a thread has
 * one row of a tile and one slice of its columns, so that what it reads of the row serves all heads; for the sums it
 * has a few columns of all heads.
 */

template <typename T> struct decoder {
  typedef typename T::stored stored;
  static constexpr int HEADS = GPU_DECODE_HEADS, COLUMNS = GPU_DECODE_COLUMNS;
  static constexpr int ROWS = GPU_DECODE_ROW_BYTES / sizeof(stored), SLICES = GPU_DECODE_THREADS / ROWS;
  static constexpr int N = 16 / sizeof(stored);

  const gpu_decode_arguments &a;
  uint32_t sequence, first_head;
  int padded, stride; /* of a row in shared memory: an odd number of 16 bytes, so that rows begin in different banks */
  stored *rows;       /* [row][stride] */
  float *query;       /* [head][padded] */
  float *partial;     /* [slice][head][row], scores by slices; then [row][head], weights */
  float *scales;      /* [head], for the sums so far; in the end what divides them */
  int *present;       /* [row] */

  GPU_METHOD decoder(const gpu_decode_arguments &arguments, unsigned char *shared) : a(arguments) {
    sequence = blockIdx.x / a.head_groups;
    first_head = blockIdx.x % a.head_groups * HEADS;
    padded = gpu_divide_up(a.size, N) * N;
    stride = (padded / N | 1) * N;
    rows = reinterpret_cast<stored *>(shared);
    query = reinterpret_cast<float *>(rows + ROWS * stride);
    partial = query + HEADS * padded;
    scales = partial + GPU_DECODE_THREADS * HEADS;
    present = reinterpret_cast<int *>(scales + HEADS);
  }

  GPU_METHOD void load_query() {
#pragma unroll 1
    for (int head = 0; head < HEADS; head++) {
      int64_t from = sequence * a.query_sequence + (first_head + head) * a.query_head;
      for (int i = int(threadIdx.x); i < padded; i += GPU_DECODE_THREADS)
        query[head * padded + i] = first_head + head < a.heads && i < a.size ? gpu_load<T>(a.query, from + i) : 0.0f;
    }
  }

  /* SLICES lanes load a row, 16 bytes each. What is not there reads as zeros. */
  GPU_METHOD void load_rows(uint32_t begin, uint32_t end) {
    int mine = int(threadIdx.x) / SLICES, lane = int(threadIdx.x) % SLICES;
    int64_t first = find_row(a, sequence, begin + mine, end);
    const stored *from = static_cast<const stored *>(a.cache) + first;
    stored *to = rows + mine * stride;
    if (lane == 0)
      present[mine] = first >= 0;
    if (first >= 0 && a.vectorised)
#pragma unroll 4
      for (int i = lane * N; i < padded; i += SLICES * N)
        *reinterpret_cast<piece *>(to + i) = *reinterpret_cast<const piece *>(from + i);
    else
#pragma unroll 1
      for (int i = lane; i < padded; i += SLICES)
        to[i] = first >= 0 && i < a.size ? from[i] : stored(0);
  }

  GPU_METHOD void multiply() {
    int mine = int(threadIdx.x) % ROWS, slice = int(threadIdx.x) / ROWS;
    float sums[HEADS] = {};
#pragma unroll 1
    for (int i = slice * N; i < padded; i += SLICES * N) {
      float key[N];
      read_row<T>(rows + mine * stride + i, key);
#pragma unroll
      for (int head = 0; head < HEADS; head++) {
        float factor[N];
        read_floats(query + head * padded + i, factor);
#pragma unroll
        for (int k = 0; k < N; k++)
          sums[head] = fmaf(factor[k], key[k], sums[head]);
      }
    }
#pragma unroll
    for (int head = 0; head < HEADS; head++)
      partial[(slice * HEADS + head) * ROWS + mine] = sums[head];
  }

  /* By threads in the order [head][row]: the others come along for the shuffles. */
  GPU_METHOD void weigh(float &most, float &sum) {
    int mine = int(threadIdx.x) % ROWS, head = int(threadIdx.x) / ROWS;
    float score = -INFINITY;
    if (head < HEADS && present[mine]) {
      score = 0;
#pragma unroll
      for (int slice = 0; slice < SLICES; slice++)
        score += partial[(slice * HEADS + head) * ROWS + mine];
      score *= a.scale;
    }
    float above = fmaxf(most, gpu_lanes_reduce<greatest, ROWS>(score)), base = finite_or_zero(above);
    float weight = head < HEADS && present[mine] ? expf(score - base) : 0.0f, scale = expf(most - base);
    sum = sum * scale + gpu_lanes_reduce<gpu_sum, ROWS>(weight);
    most = above;
    gpu_barrier(); /* all have read their scores */
    if (head < HEADS)
      partial[mine * HEADS + head] = weight;
    if (head < HEADS && mine == 0)
      scales[head] = scale;
  }

  GPU_METHOD void add_values(float (&sums)[HEADS][COLUMNS]) {
    int column = int(threadIdx.x) * COLUMNS;
    if (column >= a.rank)
      return;
#pragma unroll
    for (int head = 0; head < HEADS; head++)
#pragma unroll
      for (int k = 0; k < COLUMNS; k++)
        sums[head][k] *= scales[head];
#pragma unroll 4
    for (int row = 0; row < ROWS; row++) {
      float weights[HEADS], value[COLUMNS];
      read_floats(partial + row * HEADS, weights);
      read_pair<T>(rows + row * stride + column, value);
#pragma unroll
      for (int head = 0; head < HEADS; head++)
#pragma unroll
        for (int k = 0; k < COLUMNS; k++)
          sums[head][k] = fmaf(weights[head], value[k], sums[head][k]);
    }
  }

  /* The only part: the result. */
  GPU_METHOD void store_result(const float (&sums)[HEADS][COLUMNS]) {
#pragma unroll
    for (int head = 0; head < HEADS; head++)
#pragma unroll
      for (int k = 0; k < COLUMNS; k++) {
        int column = int(threadIdx.x) * COLUMNS + k;
        if (first_head + head < a.heads && column < a.rank)
          gpu_store<T>(a.out, sequence * a.out_sequence + (first_head + head) * a.out_head + column,
                       sums[head][k] / scales[head]);
      }
  }

  GPU_METHOD void store_part(const float (&sums)[HEADS][COLUMNS], uint32_t part) {
#pragma unroll
    for (int head = 0; head < HEADS; head++)
#pragma unroll
      for (int k = 0; k < COLUMNS; k++) {
        int column = int(threadIdx.x) * COLUMNS + k;
        int64_t at = (int64_t(sequence) * a.heads + first_head + head) * a.parts + part;
        if (first_head + head < a.heads && column < a.rank)
          a.parts_out[at * a.rank + column] = sums[head][k];
      }
  }

  GPU_METHOD void run(uint32_t part) {
    part_rows range(a, sequence, part);
    float most = -INFINITY, sum = 0, sums[HEADS][COLUMNS] = {};
    uint32_t head = first_head + threadIdx.x / ROWS;
    bool tells = head < first_head + HEADS && head < a.heads && threadIdx.x % ROWS == 0;
    if (a.parts > 1 && range.begin == range.end)
      return;
    load_query();
#pragma unroll 1
    for (uint32_t row = range.begin; row < range.end; row += ROWS) {
      load_rows(row, range.end);
      gpu_barrier();
      multiply();
      gpu_barrier();
      weigh(most, sum);
      gpu_barrier();
      add_values(sums);
      gpu_barrier();
    }
    if (a.parts > 1) {
      if (tells) {
        float *weight = a.parts_weight + ((int64_t(sequence) * a.heads + head) * a.parts + part) * 2;
        weight[0] = most;
        weight[1] = sum;
      }
      store_part(sums, part);
      return;
    }
    if (head < first_head + HEADS && threadIdx.x % ROWS == 0)
      scales[head - first_head] = range.length ? sum : 1.0f;
    if (tells)
      a.lse[sequence * a.lse_sequence + head] = log_sum(most, sum, range.length != 0);
    gpu_barrier();
    store_result(sums);
  }
};

/* A block for each head: the parts of a sequence become one result. */
template <typename T> GPU_DEVICE void join_parts(const gpu_decode_arguments &a) {
  uint32_t sequence = blockIdx.x / a.heads, head = blockIdx.x % a.heads, n = 0;
  const float *weights = a.parts_weight + int64_t(blockIdx.x) * a.parts * 2;
  const float *sums = a.parts_out + int64_t(blockIdx.x) * a.parts * a.rank;
  uint32_t length = part_rows(a, sequence, 0).length;
  while (n < a.parts && part_rows(a, sequence, n).begin < length)
    n++;
  parts_of_head parts(weights, n);
  if (threadIdx.x == 0)
    a.lse[sequence * a.lse_sequence + head] = log_sum(parts.most, parts.total, n != 0);
  for (int column = int(threadIdx.x); column < a.rank; column += GPU_DECODE_JOIN_THREADS)
    gpu_store<T>(a.out, sequence * a.out_sequence + head * a.out_head + column,
                 n ? parts.add(sums + column, a.rank) / parts.total : 0.0f);
}

#define DECODE(type)                                                                                                   \
  GPU_KERNEL(gpu_decode_arguments, mla_decode_##type, GPU_DECODE_THREADS) {                                            \
    GPU_DYNAMIC_SHARED;                                                                                                \
    decoder<gpu_##type>(a, gpu_dynamic_shared).run(blockIdx.y);                                                        \
  }
#define JOIN(type)                                                                                                     \
  GPU_KERNEL(gpu_decode_arguments, mla_decode_join_##type, GPU_DECODE_JOIN_THREADS) {                                  \
    join_parts<gpu_##type>(a);                                                                                         \
  }
DECODE(f32)
JOIN(f32)
JOIN(f16)
JOIN(bf16)
#if !defined(__CUDACC__) /* NVIDIA's devices all have tensor cores */
DECODE(f16)
DECODE(bf16)
#endif

/* ------------------------------------------------------------------------------------------- products by tensor cores
 * A block makes HEADS heads, 16 to a fragment and zeros behind the last, of one part of a sequence, whose rows they
 * share. For the scores a warp has 16 rows of a tile and a slice of their columns, for the sums some columns of all
 * heads; weights go from one to the other through shared memory, as sums of two 16-bit numbers: rounded is the result
 * alone, as the definition says.
 *
 * Few heads cost what 16 do, which is still less than their products would take in registers. With 32 heads rows are
 * read half as often. Shared memory limits how many blocks share a multiprocessor: with rows of 576 elements it is 98
 * KiB for 32 heads and 67 KiB for 16, two and three blocks on an H100. One waits for its rows while another multiplies.
 */
#if GPU_HAS_TENSOR_CORES

template <typename T, int HEADS> struct fragment_decoder {
  static constexpr int ROWS = GPU_DECODE_FRAGMENT_ROWS, SLICES = GPU_DECODE_FRAGMENT_SLICES, M = HEADS / 16;
  static constexpr int WARPS = GPU_DECODE_THREADS / GPU_WARP, LINE = ROWS + GPU_FRAGMENT_PADDING;
  static constexpr int PAIRS = GPU_DECODE_THREADS * GPU_DECODE_COLUMNS / (16 * WARPS); /* fragments of a warp */
  static constexpr int LANES = GPU_DECODE_THREADS / HEADS, EACH = ROWS / LANES;        /* of a head's weights */
  static_assert(WARPS == ROWS / 16 * SLICES, "a warp for each product of the scores");

  const gpu_decode_arguments &a;
  uint32_t sequence, first_head;
  int padded, stride;   /* of a row in shared memory */
  uint16_t *rows;       /* [ROWS][stride] */
  uint16_t *query;      /* [HEADS][stride] */
  float *partial;       /* [SLICES][HEADS][LINE]: scores */
  uint16_t *high, *low; /* [HEADS][LINE]: weights */
  float *scales;        /* [HEADS], for the sums so far; in the end what divides them */
  int *present;         /* [ROWS] */
  int warp, g, t;

  GPU_METHOD fragment_decoder(const gpu_decode_arguments &arguments, unsigned char *shared) : a(arguments) {
    sequence = blockIdx.x / a.head_groups;
    first_head = blockIdx.x % a.head_groups * HEADS;
    padded = (a.size + 15) / 16 * 16;
    stride = padded + GPU_FRAGMENT_PADDING;
    rows = reinterpret_cast<uint16_t *>(shared);
    query = rows + ROWS * stride;
    high = query + HEADS * stride;
    low = high + HEADS * LINE;
    partial = reinterpret_cast<float *>(low + HEADS * LINE);
    scales = partial + SLICES * HEADS * LINE;
    present = reinterpret_cast<int *>(scales + HEADS);
    warp = int(threadIdx.x) / GPU_WARP;
    g = int(threadIdx.x) % GPU_WARP / 4;
    t = int(threadIdx.x) % 4;
  }

  /* A row by `lanes` threads; what is not there reads as zeros. Where rows are aligned the rest is on its way until
   * gpu_copies_wait. */
  GPU_METHOD void load_row(const uint16_t *from, bool there, bool vectorised, uint16_t *to, int lane, int lanes) const {
    if (vectorised)
#pragma unroll 2
      for (int i = lane * 8; i < padded; i += lanes * 8)
        if (there && i < a.size)
          gpu_copy_begin(to + i, from + i);
        else
          *reinterpret_cast<piece *>(to + i) = piece{};
    else
#pragma unroll 1
      for (int i = lane; i < padded; i += lanes)
        to[i] = there && i < a.size ? from[i] : uint16_t(0);
  }

  GPU_METHOD void load_query() const {
    uint32_t mine = threadIdx.x / LANES, head = first_head + mine;
    bool there = head < a.heads;
    const uint16_t *from =
        static_cast<const uint16_t *>(a.query) + (there ? sequence * a.query_sequence + head * a.query_head : 0);
    load_row(from, there, a.query_vectorised, query + mine * stride, int(threadIdx.x) % LANES, LANES);
  }

  GPU_METHOD void load_rows(uint32_t begin, uint32_t end) const {
    const int OF_ROW = GPU_DECODE_THREADS / ROWS;
    int mine = int(threadIdx.x) / OF_ROW, lane = int(threadIdx.x) % OF_ROW;
    int64_t first = find_row(a, sequence, begin + mine, end);
    bool there = first >= 0;
    if (lane == 0)
      present[mine] = there;
    load_row(static_cast<const uint16_t *>(a.cache) + (there ? first : 0), there, a.vectorised, rows + mine * stride,
             lane, OF_ROW);
  }

  GPU_METHOD void multiply() const {
    int row = warp % (ROWS / 16) * 16, slice = warp / (ROWS / 16);
    float sums[M][2][4] = {};
#pragma unroll 2
    for (int i = slice * 16; i < padded; i += SLICES * 16) {
      uint32_t keys[4], heads[4];
      gpu_load_b(rows + row * stride + i, stride, keys);
#pragma unroll
      for (int m = 0; m < M; m++) {
        gpu_load_a(query + 16 * m * stride + i, stride, heads);
        gpu_multiply_fragments<T>(sums[m][0], sums[m][1], heads, keys);
      }
    }
#pragma unroll
    for (int i = 0; i < M * 4; i++) {
      int m = i / 4, n = i / 2 % 2, half = i % 2;
      float *to = partial + (slice * HEADS + 16 * m + g + 8 * half) * LINE + row + 8 * n + 2 * t;
      *reinterpret_cast<two *>(to) = two{{sums[m][n][2 * half], sums[m][n][2 * half + 1]}};
    }
  }

  /* LANES threads of a head, with EACH rows each. */
  GPU_METHOD void weigh(float &most, float &sum) const {
    int head = int(threadIdx.x) / LANES, row = int(threadIdx.x) % LANES * EACH;
    float scores[EACH], above = most, added = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      scores[k] = 0;
#pragma unroll
      for (int slice = 0; slice < SLICES; slice++)
        scores[k] += partial[(slice * HEADS + head) * LINE + row + k];
      scores[k] = present[row + k] ? scores[k] * a.scale : -INFINITY;
      above = fmaxf(above, scores[k]);
    }
    above = gpu_lanes_reduce<greatest, LANES>(above);
    float base = finite_or_zero(above), scale = expf(most - base);
#pragma unroll
    for (int k = 0; k < EACH; k += 2) {
      float weights[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        weights[i] = present[row + k + i] ? expf(scores[k + i] - base) : 0.0f;
        added += weights[i];
      }
      uint32_t upper, lower;
      gpu_split<T, false>(weights, upper, lower);
      *reinterpret_cast<word *>(high + head * LINE + row + k) = upper;
      *reinterpret_cast<word *>(low + head * LINE + row + k) = lower;
    }
    sum = sum * scale + gpu_lanes_reduce<gpu_sum, LANES>(added);
    most = above;
    if (row == 0)
      scales[head] = scale;
  }

  /* A warp's fragment of columns. */
  GPU_METHOD int column_of(int pair) const {
    return (pair * WARPS + warp) * 16;
  }

  /* An infinity among the values was one in the score: its weight is 0 or NaN, and both parts are. */
  GPU_METHOD void add_values(float (&sums)[M][PAIRS][2][4]) const {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float scale = scales[16 * m + g + 8 * half];
#pragma unroll
        for (int i = 0; i < PAIRS * 4; i++)
          sums[m][i / 4][i / 2 % 2][2 * half + i % 2] *= scale;
      }
#pragma unroll 1
    for (int row = 0; row < ROWS; row += 16) {
      uint32_t upper[M][4], lower[M][4];
#pragma unroll
      for (int m = 0; m < M; m++) {
        gpu_load_a(high + 16 * m * LINE + row, LINE, upper[m]);
        gpu_load_a(low + 16 * m * LINE + row, LINE, lower[m]);
      }
#pragma unroll
      for (int pair = 0; pair < PAIRS; pair++) {
        if (column_of(pair) >= a.rank)
          break;
        uint32_t values[4];
        gpu_load_b_transposed(rows + row * stride + column_of(pair), stride, values);
#pragma unroll
        for (int m = 0; m < M; m++)
          gpu_multiply_fragments<T>(sums[m][pair][0], sums[m][pair][1], upper[m], values);
#pragma unroll
        for (int m = 0; m < M; m++)
          gpu_multiply_fragments<T>(sums[m][pair][0], sums[m][pair][1], lower[m], values);
      }
    }
  }

  /* What the thread has of the sums: function(head of the block, column, sum). */
  template <typename F> GPU_METHOD void for_each(const float (&sums)[M][PAIRS][2][4], F function) const {
#pragma unroll
    for (int i = 0; i < M * PAIRS * 8; i++) {
      int m = i / (PAIRS * 8), pair = i / 8 % PAIRS, n = i / 4 % 2, k = i % 4;
      int head = 16 * m + g + k / 2 * 8, column = column_of(pair) + 8 * n + 2 * t + k % 2;
      if (first_head + head < a.heads && column < a.rank)
        function(head, column, sums[m][pair][n][k]);
    }
  }

  GPU_METHOD void run(uint32_t part) const {
    part_rows range(a, sequence, part);
    float most = -INFINITY, sum = 0, sums[M][PAIRS][2][4] = {};
    if (a.parts > 1 && range.begin == range.end)
      return;
    if (range.begin < range.end)
      load_query();
#pragma unroll 1
    for (uint32_t row = range.begin; row < range.end; row += ROWS) {
      load_rows(row, range.end);
      gpu_copies_wait();
      gpu_barrier();
      multiply();
      gpu_barrier();
      weigh(most, sum);
      gpu_barrier();
      add_values(sums);
      gpu_barrier();
    }
    uint32_t mine = threadIdx.x / LANES, head = first_head + mine;
    int64_t place = int64_t(sequence) * a.heads;
    bool tells = head < a.heads && threadIdx.x % LANES == 0;
    if (a.parts > 1) {
      if (tells) {
        float *weight = a.parts_weight + ((place + head) * a.parts + part) * 2;
        weight[0] = most;
        weight[1] = sum;
      }
      for_each(sums, [&](int of_block, int column, float value) {
        a.parts_out[((place + first_head + of_block) * a.parts + part) * a.rank + column] = value;
      });
      return;
    }
    if (threadIdx.x % LANES == 0)
      scales[mine] = range.length ? 1.0f / sum : 1.0f;
    if (tells)
      a.lse[sequence * a.lse_sequence + head] = log_sum(most, sum, range.length != 0);
    gpu_barrier();
    for_each(sums, [&](int of_block, int column, float value) {
      gpu_store<T>(a.out, sequence * a.out_sequence + (first_head + of_block) * a.out_head + column,
                   value * scales[of_block]);
    });
  }
};

#define FRAGMENT_DECODE(type, heads, blocks)                                                                           \
  GPU_KERNEL_SHARING(gpu_decode_arguments, mla_decode_##heads##_##type, GPU_DECODE_THREADS, blocks) {                  \
    GPU_DYNAMIC_SHARED;                                                                                                \
    fragment_decoder<gpu_##type, heads>(a, gpu_dynamic_shared).run(blockIdx.y);                                        \
  }
FRAGMENT_DECODE(f16, 16, 3)
FRAGMENT_DECODE(f16, 32, 2)
FRAGMENT_DECODE(bf16, 16, 3)
FRAGMENT_DECODE(bf16, 32, 2)

#endif
