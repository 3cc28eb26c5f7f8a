/*
 * Attention without a matrix of scores: keys come in tiles through shared memory, and each query keeps the greatest
 * score so far, the sum of its weights and the sum of values so weighted, all in float; whenever the greatest grows,
 * the sums are scaled down. A query sees the keys of its segment, which its token tells. 16-bit types go through the
 * tensor cores where there are some; the other kernels are float products in registers.
 */
#include "plugins/gpu/kernels/arguments/attention.h"
#include "plugins/gpu/kernels/attention.h"
#include "plugins/gpu/kernels/fragment.h"

/* Between two neighbours in `ends` of which one is at most the token and the other above it. */
GPU_DEVICE segment segment_of(const gpu_encoder_arguments &a, uint32_t token) {
  if (!a.ends)
    return {0, uint32_t(a.keys)};
  int64_t low = 0, high = a.n_ends;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (gpu_load_index(a.wide_ends, a.ends, middle) > int64_t(token))
      high = middle;
    else
      low = middle + 1;
  }
  if (low == 0 || low == a.n_ends)
    return {0, 0};
  return {uint32_t(gpu_clamp(gpu_load_index(a.wide_ends, a.ends, low - 1), 0, a.keys)),
          uint32_t(gpu_clamp(gpu_load_index(a.wide_ends, a.ends, low), 0, a.keys))};
}

/* ---------------------------------------------------------------------------------------------- products in registers
 * A block makes R * 16 queries of one head. Threads are 16 by 16: one has R queries of the scores and of the sums, two
 * keys of a tile, and of the sums pairs of columns. Sizes of tiles are such that a block needs at most the 64 KiB that
 * every device has, and several share a multiprocessor: while one waits for its keys the others multiply.
 */

template <typename T, int QUERY_BYTES> struct encoder {
  typedef typename T::stored stored;
  static constexpr int SIDE = 16, QUERIES = QUERY_BYTES / sizeof(stored), R = QUERIES / SIDE;
  static constexpr int KEYS = GPU_ENCODER_KEYS, LANES = GPU_ENCODER_THREADS / KEYS;
  static constexpr int N = 16 / sizeof(stored), PAIRS = GPU_ENCODER_SIZE / (2 * SIDE);
  static constexpr int WEIGHTS = QUERIES + 4; /* from key to key: 16 bytes more than banks are wide */

  const gpu_encoder_arguments &a;
  int padded, stride, query_stride;
  float *query;    /* [query][query_stride] */
  stored *key;     /* [key][stride], as decoder's rows */
  stored *value;   /* the same */
  float *weights;  /* [key][WEIGHTS] */
  uint32_t *begin; /* [query]: the segment's first token */
  uint32_t *end;
  int64_t batch;
  uint32_t head, first; /* query */
  int x, y;

  GPU_METHOD encoder(const gpu_encoder_arguments &arguments, unsigned char *shared) : a(arguments) {
    uint32_t block = blockIdx.x / a.tiles;
    first = blockIdx.x % a.tiles * QUERIES;
    head = block % a.heads;
    batch = block / a.heads;
    x = int(threadIdx.x) % SIDE;
    y = int(threadIdx.x) / SIDE;
    padded = gpu_divide_up(a.size, N) * N;
    stride = (padded / N | 1) * N;
    query_stride = padded + 4;
    query = reinterpret_cast<float *>(shared);
    key = reinterpret_cast<stored *>(query + QUERIES * query_stride);
    value = key + KEYS * stride;
    weights = reinterpret_cast<float *>(value + KEYS * stride);
    begin = reinterpret_cast<uint32_t *>(weights + KEYS * WEIGHTS);
    end = begin + QUERIES;
  }

  GPU_METHOD void find_segments() {
    if (threadIdx.x >= QUERIES)
      return;
    uint32_t token = first + threadIdx.x;
    segment mine = segment_of(a, token < a.queries ? token : uint32_t(a.queries) - 1);
    begin[threadIdx.x] = mine.begin;
    end[threadIdx.x] = mine.end;
  }

  GPU_METHOD void load_queries() {
    const stored *data = static_cast<const stored *>(a.query.data) + batch * a.query.batch + head * a.query.head;
#pragma unroll 1
    for (int mine = int(threadIdx.x) / LANES; mine < QUERIES; mine += KEYS) {
      bool there = first + mine < a.queries;
      const stored *from = data + (there ? (first + mine) * a.query.token : 0);
      for (int i = int(threadIdx.x) % LANES; i < padded; i += LANES)
        query[mine * query_stride + i] = there && i < a.size ? T::load(from[i]) : 0.0f;
    }
  }

  /* What is not there reads as zeros. */
  GPU_METHOD void load_tile(const gpu_heads &tensor, stored *to, uint32_t tile, uint32_t limit) {
    int mine = int(threadIdx.x) / LANES, lane = int(threadIdx.x) % LANES;
    bool there = tile + mine < limit;
    const stored *from = static_cast<const stored *>(tensor.data) + batch * tensor.batch +
                         head / a.heads_per_key * tensor.head + (there ? (tile + mine) * tensor.token : 0);
    to += mine * stride;
    if (there && a.vectorised)
#pragma unroll 2
      for (int i = lane * N; i < padded; i += LANES * N)
        *reinterpret_cast<piece *>(to + i) = *reinterpret_cast<const piece *>(from + i);
    else
#pragma unroll 1
      for (int i = lane; i < padded; i += LANES)
        to[i] = there && i < a.size ? from[i] : stored(0);
  }

  GPU_METHOD void multiply(float (&scores)[R][2]) {
#pragma unroll 1
    for (int i = 0; i < padded; i += N) {
      float keys[2][N];
      read_row<T>(key + x * stride + i, keys[0]);
      read_row<T>(key + (x + SIDE) * stride + i, keys[1]);
#pragma unroll
      for (int r = 0; r < R; r++) {
        float factor[N];
        read_floats(query + (y * R + r) * query_stride + i, factor);
#pragma unroll
        for (int k = 0; k < N; k++) {
          scores[r][0] = fmaf(factor[k], keys[0][k], scores[r][0]);
          scores[r][1] = fmaf(factor[k], keys[1][k], scores[r][1]);
        }
      }
    }
  }

  /* Leaves the weights of the tile, and scales the sums. */
  GPU_METHOD void weigh(uint32_t tile, float (&scores)[R][2], float (&most)[R], float (&sum)[R],
                        float (&sums)[R][PAIRS][2]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      int mine = y * R + r;
      bool seen[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t token = tile + x + k * SIDE;
        seen[k] = token >= begin[mine] && token < end[mine];
        scores[r][k] = seen[k] ? scores[r][k] * a.scale : -INFINITY;
      }
      float above = fmaxf(most[r], gpu_lanes_reduce<greatest, SIDE>(fmaxf(scores[r][0], scores[r][1])));
      float base = finite_or_zero(above), scale = gpu_exp<T>(most[r] - base), added = 0;
#pragma unroll
      for (int k = 0; k < 2; k++) {
        float weight = gpu_exp<T>(scores[r][k] - base);
        added += seen[k] ? weight : 0.0f;
        weights[(x + k * SIDE) * WEIGHTS + mine] = seen[k] ? weight : unseen;
      }
      sum[r] = sum[r] * scale + gpu_lanes_reduce<gpu_sum, SIDE>(added);
      most[r] = above;
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        sums[r][p][0] *= scale;
        sums[r][p][1] *= scale;
      }
    }
  }

  /* MIXED: not all queries see all keys. What one does not see must not reach it even as 0 times infinity; what it sees
   * does. */
  template <bool MIXED> GPU_METHOD void add_values(float (&sums)[R][PAIRS][2]) {
#pragma unroll 2
    for (int k = 0; k < KEYS; k++) {
      float weight[R];
#pragma unroll
      for (int r = 0; r < R; r++)
        weight[r] = weights[k * WEIGHTS + y * R + r];
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        int column = (p * SIDE + x) * 2;
        if (column >= a.size)
          continue;
        float pair[2];
        read_pair<T>(value + k * stride + column, pair);
#pragma unroll
        for (int r = 0; r < R; r++)
          if (!MIXED || weight[r] != unseen) {
            sums[r][p][0] = fmaf(weight[r], pair[0], sums[r][p][0]);
            sums[r][p][1] = fmaf(weight[r], pair[1], sums[r][p][1]);
          }
      }
    }
  }

  GPU_METHOD void store(const float (&sum)[R], const float (&sums)[R][PAIRS][2]) {
    stored *out = static_cast<stored *>(a.out.data) + batch * a.out.batch + head * a.out.head;
#pragma unroll
    for (int r = 0; r < R; r++) {
      int mine = y * R + r;
      if (first + mine >= a.queries)
        continue;
      stored *to = out + (first + mine) * a.out.token;
      float whole = begin[mine] < end[mine] ? sum[r] : 1.0f;
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        int column = (p * SIDE + x) * 2;
        const float made[2] = {sums[r][p][0] / whole, sums[r][p][1] / whole};
        store_pair<T>(to, column, a.size, a.vectorised, made);
      }
    }
  }

  GPU_METHOD void run() {
    float most[R], sum[R] = {}, sums[R][PAIRS][2] = {};
#pragma unroll
    for (int r = 0; r < R; r++)
      most[r] = -INFINITY;
    find_segments();
    load_queries();
    gpu_barrier();
    /* What any of the queries sees, and what all of them see. */
    uint32_t any_begin = begin[0], any_end = end[0], all_begin = begin[0], all_end = end[0];
    for (int i = 1; a.ends && i < QUERIES; i++) {
      any_begin = begin[i] < any_begin ? begin[i] : any_begin;
      all_begin = begin[i] > all_begin ? begin[i] : all_begin;
      any_end = end[i] > any_end ? end[i] : any_end;
      all_end = end[i] < all_end ? end[i] : all_end;
    }
#pragma unroll 1
    for (uint32_t tile = any_begin; tile < any_end; tile += KEYS) {
      float scores[R][2] = {};
      load_tile(a.key, key, tile, any_end);
      load_tile(a.value, value, tile, any_end);
      gpu_barrier();
      multiply(scores);
      weigh(tile, scores, most, sum, sums);
      gpu_barrier();
      if (tile >= all_begin && (any_end < tile + KEYS ? any_end : tile + KEYS) <= all_end)
        add_values<false>(sums);
      else
        add_values<true>(sums);
      gpu_barrier();
    }
    store(sum, sums);
  }
};

/* Few queries a block where there are few of them: more blocks. */
#define ENCODER(type)                                                                                                  \
  GPU_KERNEL(gpu_encoder_arguments, mm_encoder_attn_##type, GPU_ENCODER_THREADS) {                                     \
    GPU_DYNAMIC_SHARED;                                                                                                \
    encoder<gpu_##type, GPU_ENCODER_QUERY_BYTES>(a, gpu_dynamic_shared).run();                                         \
  }                                                                                                                    \
  GPU_KERNEL(gpu_encoder_arguments, mm_encoder_attn_few_##type, GPU_ENCODER_THREADS) {                                 \
    GPU_DYNAMIC_SHARED;                                                                                                \
    encoder<gpu_##type, GPU_ENCODER_FEW_QUERY_BYTES>(a, gpu_dynamic_shared).run();                                     \
  }
ENCODER(f32)
#if !defined(__CUDACC__) /* NVIDIA's devices all have tensor cores */
ENCODER(f16)
ENCODER(bf16)
#endif

/* ------------------------------------------------------------------------------------------- products by tensor cores
 * A warp makes 16 queries of one head, the lines of its fragments, and the warps of a block share the keys. With g =
 * lane / 4, t = lane % 4, a thread has queries g and g + 8: their elements, the scores of two keys in eight and the
 * sums of two columns in eight. Scores lie as the next product wants weights, so that these never leave the registers.
 *
 * Rounded is the result alone, as the definition says: a weight is a sum of two 16-bit numbers (gpu_split), since one
 * would be off by 2^-9 in bfloat16, more than the result may be where values cancel out. That costs half as many
 * products again.
 *
 * Heads of up to SIZE elements, zeros behind the last. What limits how many blocks share a multiprocessor is registers:
 * a thread has SIZE of them for queries and sums, KEYS / 2 for scores. Three blocks spill nothing in the loop up to
 * SIZE 80, two at 128; shared memory (35 KiB at 128) would do for more. While keys are multiplied the values come, and
 * while those are multiplied the next keys.
 */
#if GPU_HAS_TENSOR_CORES

struct least {
  static GPU_METHOD uint32_t of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
  }
};

template <typename T, int SIZE> struct fragment_encoder {
  static constexpr int QUERIES = 16, KEYS = GPU_ENCODER_FRAGMENT_KEYS, WARPS = GPU_ENCODER_FRAGMENT_THREADS / GPU_WARP;
  static constexpr int STRIDE = SIZE + GPU_FRAGMENT_PADDING, PIECES = SIZE / 8; /* of a row in shared memory */

  const gpu_encoder_arguments &a;
  uint16_t *key, *value; /* [KEYS][STRIDE] */
  segment *ranges;       /* [WARPS]: any */
  int64_t batch;
  uint32_t head, first; /* query of the warp */
  int g, t;
  segment mine[2];   /* what queries g and g + 8 see */
  segment any, all;  /* what any of the warp's queries sees, and what all of them see */
  segment block_any; /* what any of the block's sees */

  GPU_METHOD fragment_encoder(const gpu_encoder_arguments &arguments, uint16_t *keys, uint16_t *values,
                              segment *shared_ranges)
      : a(arguments), key(keys), value(values), ranges(shared_ranges) {
    uint32_t block = blockIdx.x / a.tiles, warp = threadIdx.x / GPU_WARP;
    first = (blockIdx.x % a.tiles * (blockDim.x / GPU_WARP) + warp) * QUERIES;
    head = block % a.heads;
    batch = block / a.heads;
    g = int(threadIdx.x) % GPU_WARP / 4;
    t = int(threadIdx.x) % 4;
  }

  /* A warp without queries sees nothing; a query that is not there sees what the last one does. */
  GPU_METHOD void find_segments() {
    uint32_t token = first + threadIdx.x % QUERIES, warp = threadIdx.x / GPU_WARP;
    segment seen = {0, 0};
    if (first < a.queries)
      seen = segment_of(a, token < a.queries ? token : uint32_t(a.queries) - 1);
    for (int half = 0; half < 2; half++)
      mine[half] = {gpu_shuffle(seen.begin, g + 8 * half), gpu_shuffle(seen.end, g + 8 * half)};
    bool none = seen.begin >= seen.end;
    any = {gpu_lanes_reduce<least, QUERIES>(none ? UINT32_MAX : seen.begin),
           gpu_lanes_reduce<gpu_max, QUERIES>(none ? 0u : seen.end)};
    all = {gpu_lanes_reduce<gpu_max, QUERIES>(seen.begin), gpu_lanes_reduce<least, QUERIES>(none ? 0u : seen.end)};
    ranges[warp] = any;
    gpu_barrier();
    block_any = ranges[0];
    for (uint32_t w = 1; w < blockDim.x / GPU_WARP; w++)
      block_any = {least::of(block_any.begin, ranges[w].begin), gpu_max::of(block_any.end, ranges[w].end)};
  }

  /* Two elements of a row from an even column on; zeros where there are none. */
  GPU_METHOD uint32_t load_pair(const uint16_t *row, int column, bool there) const {
    if (there && a.vectorised)
      return column < a.size ? *reinterpret_cast<const word *>(row + column) : 0;
    uint32_t pair = there && column < a.size ? row[column] : 0;
    return there && column + 1 < a.size ? pair | uint32_t(row[column + 1]) << 16 : pair;
  }

  GPU_METHOD void load_queries(uint32_t (&query)[SIZE / 16][4]) const {
    const uint16_t *data = static_cast<const uint16_t *>(a.query.data) + batch * a.query.batch + head * a.query.head;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t token = first + g + i % 2 * 8;
      bool there = token < a.queries;
      const uint16_t *row = data + (there ? token * a.query.token : 0);
#pragma unroll
      for (int d = 0; d < SIZE / 16; d++)
        query[d][i] = load_pair(row, 16 * d + 2 * t + i / 2 * 8, there);
    }
  }

  /* What is not there reads as zeros. Where rows are aligned the rest is on its way until gpu_copies_wait. */
  GPU_METHOD void load_tile(const gpu_heads &tensor, uint16_t *tile, uint32_t begin) const {
    const uint16_t *data =
        static_cast<const uint16_t *>(tensor.data) + batch * tensor.batch + head / a.heads_per_key * tensor.head;
    if (a.vectorised)
#pragma unroll 4
      for (int i = int(threadIdx.x); i < KEYS * PIECES; i += int(blockDim.x)) {
        uint32_t row = begin + i / PIECES;
        int column = i % PIECES * 8;
        uint16_t *to = tile + i / PIECES * STRIDE + column;
        if (row < block_any.end && column < a.size)
          gpu_copy_begin(to, data + row * tensor.token + column);
        else
          *reinterpret_cast<piece *>(to) = piece{};
      }
    else
#pragma unroll 1
      for (int i = int(threadIdx.x); i < KEYS * SIZE; i += int(blockDim.x)) {
        uint32_t row = begin + i / SIZE;
        int column = i % SIZE;
        bool there = row < block_any.end && column < a.size;
        tile[i / SIZE * STRIDE + column] = there ? data[row * tensor.token + column] : uint16_t(0);
      }
  }

  GPU_METHOD void multiply(const uint32_t (&query)[SIZE / 16][4], float (&scores)[KEYS / 8][4]) const {
#pragma unroll
    for (int k = 0; k < KEYS; k += 16)
#pragma unroll
      for (int d = 0; d < SIZE / 16; d++) {
        uint32_t keys[4];
        gpu_load_b(key + k * STRIDE + 16 * d, STRIDE, keys);
        gpu_multiply_fragments<T>(scores[k / 8], scores[k / 8 + 1], query[d], keys);
      }
  }

  /* Scores become weights, of keys that a query does not see 0, and the sums are scaled. MIXED: not all queries see all
   * keys of the tile. Each thread adds up the weights that it has. */
  template <bool MIXED>
  GPU_METHOD void weigh(uint32_t tile, float (&scores)[KEYS / 8][4], float (&most)[2], float (&sum)[2],
                        float (&sums)[SIZE / 8][4]) const {
    const float log2_of_e = 1.44269504f, scale = a.scale * log2_of_e;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float above = most[half];
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        float &score = scores[i / 2][2 * half + i % 2];
        score = !MIXED || mine[half].sees(tile + i / 2 * 8 + 2 * t + i % 2) ? score * scale : -INFINITY;
        above = fmaxf(above, score);
      }
      above = gpu_lanes_reduce<greatest, 4>(above);
      float base = finite_or_zero(above), shrink = gpu_exp2_approximately(most[half] - base);
      most[half] = above;
      sum[half] *= shrink;
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        float &score = scores[i / 2][2 * half + i % 2];
        score = gpu_exp2_approximately(score - base);
        sum[half] += score;
      }
#pragma unroll
      for (int i = 0; i < SIZE / 4; i++)
        sums[i / 2][2 * half + i % 2] *= shrink;
    }
  }

  /* gpu_multiply_weights where a value is an infinity or NaN. A query that does not see it must not get it even times
   * 0: segment by segment of the warp's queries, of which the others are left out. Nor must one that sees it get it
   * times a part of the weight that is 0 when the weight is not. */
  GPU_METHOD void add_values_by_segments(uint32_t tile, const float (&weights)[KEYS / 8][4],
                                         float (&sums)[SIZE / 8][4]) const {
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) {
      uint32_t high[4], low[4];
      segment done = {0, 0};
      gpu_split_sums<T, true>(weights, k, high, low);
#pragma unroll 1
      for (int query = 0; query < QUERIES; query++) {
        segment seen = segment_of_query(query);
        if (seen.begin < seen.end && (seen.begin != done.begin || seen.end != done.end))
          add_values_of(seen, tile, k, high, low, sums);
        done = seen;
      }
    }
  }

  GPU_METHOD segment segment_of_query(int query) const {
    int lane = query % 8 * 4;
    segment lower = {gpu_shuffle(mine[0].begin, lane), gpu_shuffle(mine[0].end, lane)};
    segment upper = {gpu_shuffle(mine[1].begin, lane), gpu_shuffle(mine[1].end, lane)};
    return query < 8 ? lower : upper;
  }

  /* Of two neighbouring keys what is not seen becomes 0. */
  static GPU_METHOD uint32_t seen_only(uint32_t pair, segment seen, uint32_t first_key) {
    return (seen.sees(first_key) ? pair & 0xffffu : 0) | (seen.sees(first_key + 1) ? pair & 0xffff0000u : 0);
  }

  GPU_METHOD void add_values_of(segment seen, uint32_t tile, int k, const uint32_t (&high)[4], const uint32_t (&low)[4],
                                float (&sums)[SIZE / 8][4]) const {
#pragma unroll
    for (int c = 0; c < SIZE; c += 16) {
      uint32_t values[4], finite[4];
      float added[2][4] = {};
      gpu_load_b_transposed(value + k * STRIDE + c, STRIDE, values);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        values[i] = seen_only(values[i], seen, tile + k + 2 * t + i % 2 * 8);
        finite[i] = gpu_finite_only<T>(values[i]);
      }
      gpu_multiply_fragments<T>(added[0], added[1], high, values);
      gpu_multiply_fragments<T>(added[0], added[1], low, finite);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        segment own = mine[i % 4 / 2];
        if (own.begin == seen.begin && own.end == seen.end)
          sums[c / 8 + i / 4][i % 4] += added[i / 4][i % 4];
      }
    }
  }

  GPU_METHOD void store(const float (&sum)[2], const float (&sums)[SIZE / 8][4]) const {
    uint16_t *out = static_cast<uint16_t *>(a.out.data) + batch * a.out.batch + head * a.out.head;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t token = first + g + 8 * half;
      float whole = gpu_lanes_reduce<gpu_sum, 4>(sum[half]);
      float factor = mine[half].begin < mine[half].end ? 1.0f / whole : 1.0f;
      if (token >= a.queries)
        continue;
      uint16_t *to = out + token * a.out.token;
#pragma unroll
      for (int n = 0; n < SIZE / 8; n++) {
        int column = 8 * n + 2 * t;
        const float made[2] = {sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor};
        store_pair<T>(to, column, a.size, a.vectorised, made);
      }
    }
  }

  /* All tiles; `careful`: values may be infinities or NaN. */
  GPU_METHOD void attend(const uint32_t (&query)[SIZE / 16][4], bool careful, float (&sum)[2],
                         float (&sums)[SIZE / 8][4]) const {
    float most[2] = {-INFINITY, -INFINITY};
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++)
      sums[i / 4][i % 4] = 0;
    if (block_any.begin < block_any.end)
      load_tile(a.key, key, block_any.begin);
#pragma unroll 1
    for (uint32_t tile = block_any.begin; tile < block_any.end; tile += KEYS) {
      float scores[KEYS / 8][4] = {};
      uint32_t end = tile + KEYS;
      bool sees = any.begin < end && any.end > tile;
      gpu_copies_wait();
      gpu_barrier(); /* the keys are there, and nobody reads the values before any more */
      load_tile(a.value, value, tile);
      if (sees)
        multiply(query, scores);
      gpu_copies_wait();
      gpu_barrier();
      if (end < block_any.end)
        load_tile(a.key, key, end);
      if (!sees)
        continue;
      if (tile >= all.begin && end <= all.end)
        weigh<false>(tile, scores, most, sum, sums);
      else
        weigh<true>(tile, scores, most, sum, sums);
      if (careful)
        add_values_by_segments(tile, scores, sums);
      else
        gpu_multiply_weights<T, STRIDE>(scores, value, sums);
    }
  }

  /* An infinity or NaN among the values leaves one in the sums: then they are made again with care. */
  GPU_METHOD void run() {
    float sum[2], sums[SIZE / 8][4], zero = 0;
    uint32_t query[SIZE / 16][4];
    find_segments();
    load_queries(query);
#pragma unroll 1
    for (int careful = 0;; careful++) {
      attend(query, careful != 0, sum, sums);
#pragma unroll
      for (int i = 0; i < SIZE / 2; i++)
        zero = fmaf(sums[i / 4][i % 4], 0.0f, zero);
      if (careful || !gpu_block_reduce<gpu_max>(int(zero != 0), 0))
        break;
    }
    store(sum, sums);
  }
};

#define FRAGMENT_ENCODER(type, size, blocks)                                                                           \
  GPU_KERNEL_SHARING(gpu_encoder_arguments, mm_encoder_attn_##size##_##type, GPU_ENCODER_FRAGMENT_THREADS, blocks) {   \
    typedef fragment_encoder<gpu_##type, size> of;                                                                     \
    GPU_SHARED __attribute__((aligned(16))) uint16_t keys[of::KEYS * of::STRIDE], values[of::KEYS * of::STRIDE];       \
    GPU_SHARED segment ranges[of::WARPS];                                                                              \
    of(a, keys, values, ranges).run();                                                                                 \
  }
FRAGMENT_ENCODER(f16, 64, 3)
FRAGMENT_ENCODER(f16, 80, 3)
FRAGMENT_ENCODER(f16, 128, 2)
FRAGMENT_ENCODER(bf16, 64, 3)
FRAGMENT_ENCODER(bf16, 80, 3)
FRAGMENT_ENCODER(bf16, 128, 2)

#endif
