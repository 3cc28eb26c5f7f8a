/*
 * Attention of sequences whose keys and values lie in the blocks of a cache. A block of threads makes rows of one
 * sequence: its queries, for each token the heads that share a key's head. Keys and values come in tiles through shared
 * memory, and each row keeps the greatest score so far, the sum of its weights and the sum of values so weighted, all
 * in float. Keys are made in parts where there is memory for what these leave; a second kernel joins them.
 *
 * Of starts, lengths and block tables any number may come: starts are taken as tokens of the call and lengths as what
 * the table has room for, and keys of a block that is not there count as not seen.
 */
#include "plugins/gpu/kernels/arguments/paged_attention.h"
#include "plugins/gpu/kernels/attention.h"
#include "plugins/gpu/kernels/float8.h"
#include "plugins/gpu/kernels/fragment.h"

/* ------------------------------------------------------------------------------------------------------------- rows */

GPU_DEVICE int64_t start_of(const gpu_paged_arguments &a, int64_t sequence) {
  return gpu_clamp(gpu_load_index(a.wide_starts, a.starts, sequence), 0, a.tokens);
}

/* The last sequence, or a.sequences, of those whose first `place(sequence, start)` is not above `most`; else 0. */
template <typename F> GPU_DEVICE int64_t last_sequence(const gpu_paged_arguments &a, int64_t most, F place) {
  int64_t low = 0, high = a.sequences;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (place(middle, start_of(a, middle)) <= most)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* What is known of one sequence. Tokens behind the last one, which are padding, are one more that has no keys. */
struct sequence_of {
  int64_t index, first, queries, length;

  GPU_METHOD sequence_of(const gpu_paged_arguments &a, int64_t sequence) : index(sequence), first(start_of(a, index)) {
    bool padding = index == a.sequences;
    int64_t end = padding ? a.tokens : start_of(a, index + 1);
    queries = end > first ? end - first : 0;
    length = padding ? 0 : gpu_clamp(gpu_load_index(a.wide_lengths, a.lengths, index), 0, a.most_keys);
  }

  GPU_METHOD int64_t position(int64_t query) const {
    return length - queries + query;
  }

  GPU_METHOD segment sees(const gpu_paged_arguments &a, int64_t query) const {
    int64_t at = position(query);
    return {uint32_t(gpu_clamp(at - a.left, 0, length)), uint32_t(gpu_clamp(at + a.right + 1, 0, length))};
  }
};

struct query_row {
  bool there;
  int64_t token;
  uint32_t head;
  int32_t position;
  segment keys;
};

/* The rows of a block. M of them are a tile, and sequence i begins with tile starts[i] * group / M + i: so there are
 * always enough for the rows before the next sequence's, and the shapes alone say how many there are of all. */
struct query_rows {
  sequence_of sequence;
  int64_t first, count; /* of the block's rows; of all the sequence's */
  uint32_t kv_head;
  segment keys = {0, 0}; /* that any of the rows sees, and that are in the block's part */
  bool whole;            /* there is one part */

  static GPU_METHOD int64_t find(const gpu_paged_arguments &a, int rows) {
    return last_sequence(a, blockIdx.x / a.kv_heads,
                         [&](int64_t i, int64_t start) { return start * a.group / rows + i; });
  }

  GPU_METHOD query_rows(const gpu_paged_arguments &a, int rows) : sequence(a, find(a, rows)) {
    first = (int64_t(blockIdx.x / a.kv_heads) - sequence.first * a.group / rows - sequence.index) * rows;
    count = sequence.queries * a.group;
    kv_head = blockIdx.x % a.kv_heads;
    whole = a.parts == 1;
    if (!any())
      return;
    int64_t last = (first + rows < count ? first + rows : count) - 1;
    keys =
        part_of({sequence.sees(a, first / a.group).begin, sequence.sees(a, last / a.group).end}, a.parts, blockIdx.y);
  }

  GPU_METHOD bool any() const {
    return first >= 0 && first < count;
  }

  GPU_METHOD bool has_keys() const {
    return keys.begin < keys.end;
  }

  /* What is not there has no keys. */
  GPU_METHOD query_row at(const gpu_paged_arguments &a, int row) const {
    uint32_t at = uint32_t(first) + uint32_t(row), query = at / a.group;
    if (at >= count)
      return {false, 0, 0, 0, {0, 0}};
    return {true, sequence.first + query, kv_head * a.group + at % a.group, int32_t(sequence.position(query)),
            sequence.sees(a, query)};
  }

  /* Does the block's part have the head's sink? */
  GPU_METHOD bool has_sink(const gpu_paged_arguments &a, const query_row &row) const {
    return a.sinks && blockIdx.y == 0 && row.keys.begin < row.keys.end;
  }
};

/* A head's sink is a score without a value. */
struct sink_weight {
  float most = -INFINITY, sum = 0;
  GPU_METHOD sink_weight(const gpu_paged_arguments &a, const query_rows &rows, const query_row &row) {
    if (!rows.has_sink(a, row))
      return;
    most = gpu_load_as(a.sinks_dtype, a.sinks, row.head);
    sum = expf(most - finite_or_zero(most));
  }
};

GPU_DEVICE int64_t part_at(const gpu_paged_arguments &a, const query_row &row, uint32_t part) {
  return (row.token * a.heads + row.head) * a.parts + part;
}

GPU_DEVICE void store_weight(const gpu_paged_arguments &a, const query_row &row, float most, float sum) {
  float *weight = a.parts_weight + part_at(a, row, blockIdx.y) * 2;
  weight[0] = most;
  weight[1] = sum;
}

/* For each of the block's rows, of a part that no row has keys in. */
GPU_DEVICE void store_no_keys(const gpu_paged_arguments &a, const query_rows &rows, int n) {
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) {
    query_row row = rows.at(a, i);
    if (row.there)
      store_weight(a, row, -INFINITY, -1.0f);
  }
}

GPU_DEVICE void store_lse(const gpu_paged_arguments &a, const query_row &row, float most, float sum) {
  a.lse[row.head * a.lse_head + row.token] = log_sum(most, sum, row.keys.begin < row.keys.end);
}

/* A score, of a product that has its scales already. */
GPU_DEVICE float bend(const gpu_paged_arguments &a, float score, float slope, int32_t distance) {
  if (a.soft_cap > 0)
    score = a.soft_cap * tanhf(score / a.soft_cap);
  if (a.slopes)
    score += slope * float(distance);
  return score;
}

/* ------------------------------------------------------------------------------------------------------------ cache */

/* Where a key and its value lie; block -1: nowhere. */
struct place {
  int32_t block, row;
};

GPU_DEVICE place find_place(const gpu_paged_arguments &a, int64_t sequence, uint32_t key, uint32_t end) {
  if (key >= end)
    return {-1, 0};
  uint32_t column = key / a.block_rows;
  int64_t block = gpu_load_index(a.wide_table, a.table, sequence * a.table_sequence + column);
  return {block < 0 || block >= a.blocks ? -1 : int32_t(block), int32_t(key - column * a.block_rows)};
}

GPU_DEVICE float scale_of(const gpu_paged_cache &cache, uint32_t head) {
  return cache.scale ? cache.scale[head * cache.scale_head] : 1.0f;
}

GPU_DEVICE int64_t element_at(const gpu_paged_cache &cache, place at, uint32_t head) {
  return at.block * cache.block + at.row * cache.row + head * cache.head;
}

/* An element as T has it: that of float8 is one of T's numbers, too. */
template <typename T> GPU_DEVICE typename T::stored cached_element(const gpu_paged_cache &cache, int64_t i) {
  if (cache.scale)
    return T::store(gpu_load<gpu_e4m3fn>(cache.data, i));
  return static_cast<const typename T::stored *>(cache.data)[i];
}

/* 16 of float8 into shared memory. */
template <typename T> GPU_DEVICE void widen_piece(typename T::stored *to, const gpu_paged_cache &cache, int64_t i) {
  float values[16];
  gpu_load_floats<gpu_e4m3fn>(cache.data, i, values);
#pragma unroll
  for (int k = 0; k < 16; k += T::vector) {
    piece made;
#pragma unroll
    for (int j = 0; j < 4; j++)
      made.words[j] = T::pack(values + k + j * T::word);
    *reinterpret_cast<piece *>(to + k) = made;
  }
}

/* ---------------------------------------------------------------------------------------------- products in registers
 * Threads are 16 by 16: one has R rows of the scores and of the sums, two keys of a tile, and of the sums pairs of
 * columns. Keys and values take turns in shared memory, of which every device has 64 KiB for a block.
 */

template <typename T, int R, int SIZE> struct paged {
  typedef typename T::stored stored;
  static constexpr int SIDE = 16, ROWS = R * SIDE, KEYS = GPU_PAGED_KEYS, LANES = GPU_PAGED_THREADS / KEYS;
  static constexpr int N = 16 / sizeof(stored), PAIRS = SIZE / (2 * SIDE);
  static constexpr int WEIGHTS = ROWS + 4; /* from key to key */

  const gpu_paged_arguments &a;
  query_rows rows;
  int padded, stride, query_stride; /* a tile's rows are an odd number of 16 bytes, to begin in different banks */
  float *query;                     /* [row][query_stride] */
  stored *tile;                     /* [key][stride] */
  float *weights;                   /* [key][WEIGHTS] */
  place *places;                    /* [key] */
  query_row mine[R];
  int x, y;

  GPU_METHOD paged(const gpu_paged_arguments &arguments, unsigned char *shared) : a(arguments), rows(a, ROWS) {
    x = int(threadIdx.x) % SIDE;
    y = int(threadIdx.x) / SIDE;
    padded = gpu_divide_up(a.size, 16) * 16;
    stride = (padded / N | 1) * N;
    query_stride = padded + 4;
    query = reinterpret_cast<float *>(shared);
    tile = reinterpret_cast<stored *>(query + ROWS * query_stride);
    weights = reinterpret_cast<float *>(tile + KEYS * stride);
    places = reinterpret_cast<place *>(weights + KEYS * WEIGHTS);
  }

  GPU_METHOD void load_queries() {
    const int of_row = GPU_PAGED_THREADS / SIDE;
#pragma unroll 1
    for (int i = int(threadIdx.x) / of_row; i < ROWS; i += SIDE) {
      query_row row = rows.at(a, i);
      int64_t from = row.token * a.query_token + row.head * a.query_head;
      for (int k = int(threadIdx.x) % of_row; k < padded; k += of_row)
        query[i * query_stride + k] = row.there && k < a.size ? gpu_load<T>(a.query, from + k) : 0.0f;
    }
  }

  /* What is not there reads as zeros. */
  GPU_METHOD void load_tile(const gpu_paged_cache &cache) {
    int key = int(threadIdx.x) / LANES, lane = int(threadIdx.x) % LANES;
    place at = places[key];
    bool there = at.block >= 0;
    int64_t from = there ? element_at(cache, at, rows.kv_head) : 0;
    stored *to = tile + key * stride;
    if (!there || !cache.vectorised)
#pragma unroll 1
      for (int i = lane; i < padded; i += LANES)
        to[i] = there && i < a.size ? cached_element<T>(cache, from + i) : stored(0);
    else if (cache.scale)
#pragma unroll 1
      for (int i = lane * 16; i < padded; i += LANES * 16)
        widen_piece<T>(to + i, cache, from + i);
    else {
      const stored *data = static_cast<const stored *>(cache.data) + from;
#pragma unroll 2
      for (int i = lane * N; i < a.size; i += LANES * N)
        *reinterpret_cast<piece *>(to + i) = *reinterpret_cast<const piece *>(data + i);
      for (int i = a.size + lane; i < padded; i += LANES)
        to[i] = stored(0);
    }
  }

  GPU_METHOD void multiply(float (&scores)[R][2]) {
#pragma unroll 1
    for (int i = 0; i < padded; i += N) {
      float keys[2][N];
      read_row<T>(tile + x * stride + i, keys[0]);
      read_row<T>(tile + (x + SIDE) * stride + i, keys[1]);
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
  GPU_METHOD void weigh(uint32_t begin, float scale, const float (&scores)[R][2], float (&most)[R], float (&sum)[R],
                        float (&sums)[R][PAIRS][2]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      float slope = a.slopes && mine[r].there ? a.slopes[mine[r].head] : 0.0f, bent[2], added = 0;
      bool seen[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        uint32_t key = begin + x + k * SIDE;
        seen[k] = mine[r].keys.sees(key) && places[x + k * SIDE].block >= 0;
        bent[k] = seen[k] ? bend(a, scores[r][k] * scale, slope, int32_t(key) - mine[r].position) : -INFINITY;
      }
      float above = fmaxf(most[r], gpu_lanes_reduce<greatest, SIDE>(fmaxf(bent[0], bent[1])));
      float base = finite_or_zero(above), shrink = gpu_exp<T>(most[r] - base);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        float weight = gpu_exp<T>(bent[k] - base);
        added += seen[k] ? weight : 0.0f;
        weights[(x + k * SIDE) * WEIGHTS + y * R + r] = seen[k] ? weight : unseen;
      }
      sum[r] = sum[r] * shrink + gpu_lanes_reduce<gpu_sum, SIDE>(added);
      most[r] = above;
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        sums[r][p][0] *= shrink;
        sums[r][p][1] *= shrink;
      }
    }
  }

  /* What a row does not see must not reach it even as 0 times infinity; what it sees does. */
  GPU_METHOD void add_values(float (&sums)[R][PAIRS][2]) {
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
        read_pair<T>(tile + k * stride + column, pair);
#pragma unroll
        for (int r = 0; r < R; r++)
          if (weight[r] != unseen) {
            sums[r][p][0] = fmaf(weight[r], pair[0], sums[r][p][0]);
            sums[r][p][1] = fmaf(weight[r], pair[1], sums[r][p][1]);
          }
      }
    }
  }

  GPU_METHOD void store(const float (&most)[R], const float (&sum)[R], const float (&sums)[R][PAIRS][2]) {
    float scale = scale_of(a.values, rows.kv_head);
#pragma unroll
    for (int r = 0; r < R; r++) {
      const query_row &row = mine[r];
      if (!row.there)
        continue;
      if (x == 0 && rows.whole)
        store_lse(a, row, most[r], sum[r]);
      else if (x == 0)
        store_weight(a, row, most[r], sum[r]);
      stored *to = static_cast<stored *>(a.out) + row.token * a.out_token + row.head * a.out_head;
      float *part = a.parts_out + part_at(a, row, blockIdx.y) * a.size;
      float whole = row.keys.begin < row.keys.end ? sum[r] : 1.0f;
#pragma unroll
      for (int p = 0; p < PAIRS; p++) {
        int column = (p * SIDE + x) * 2;
        const float scaled[2] = {sums[r][p][0] * scale, sums[r][p][1] * scale};
        const float made[2] = {scaled[0] / whole, scaled[1] / whole};
        if (rows.whole)
          store_pair<T>(to, column, a.size, a.out_vectorised, made);
        else
          store_pair<gpu_f32>(part, column, a.size, false, scaled);
      }
    }
  }

  GPU_METHOD void run() {
    float most[R], sum[R], sums[R][PAIRS][2] = {};
    if (!rows.any())
      return;
    if (blockIdx.y > 0 && !rows.has_keys()) {
      store_no_keys(a, rows, ROWS);
      return;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      mine[r] = rows.at(a, y * R + r);
      sink_weight sink(a, rows, mine[r]);
      most[r] = sink.most;
      sum[r] = sink.sum;
    }
    float scale = a.scale * scale_of(a.keys, rows.kv_head);
    load_queries();
#pragma unroll 1
    for (uint32_t begin = rows.keys.begin; begin < rows.keys.end; begin += KEYS) {
      float scores[R][2] = {};
      if (threadIdx.x < KEYS)
        places[threadIdx.x] = find_place(a, rows.sequence.index, begin + threadIdx.x, rows.keys.end);
      gpu_barrier();
      load_tile(a.keys);
      gpu_barrier();
      multiply(scores);
      weigh(begin, scale, scores, most, sum, sums);
      gpu_barrier();
      load_tile(a.values);
      gpu_barrier();
      add_values(sums);
      gpu_barrier();
    }
    store(most, sum, sums);
  }
};

#define PAGED(type)                                                                                                    \
  GPU_KERNEL(gpu_paged_arguments, paged_attention_##type, GPU_PAGED_THREADS) {                                         \
    GPU_DYNAMIC_SHARED;                                                                                                \
    paged<gpu_##type, GPU_PAGED_FEW_ROWS / 16, GPU_PAGED_SIZE>(a, gpu_dynamic_shared).run();                           \
  }                                                                                                                    \
  GPU_KERNEL(gpu_paged_arguments, paged_attention_many_##type, GPU_PAGED_THREADS) {                                    \
    GPU_DYNAMIC_SHARED;                                                                                                \
    paged<gpu_##type, GPU_PAGED_MANY_ROWS / 16, GPU_PAGED_MANY_SIZE>(a, gpu_dynamic_shared).run();                     \
  }
PAGED(f32)
#if !defined(__CUDACC__) /* NVIDIA's devices all have tensor cores */
PAGED(f16)
PAGED(bf16)
#endif

/* ------------------------------------------------------------------------------------------- products by tensor cores
 * A warp makes 16 rows, the lines of its fragments, and the warps of a block share the keys; where sequences have few
 * rows a block is one warp. As in mm_encoder_attn.cu a thread has rows g and g + 8, scores lie as the next product
 * wants weights, a weight is a sum of two 16-bit numbers, keys come while values are multiplied, and sums that are
 * infinite are made again with care. Queries stay in shared memory: heads of 256 elements leave no registers for them.
 */
#if GPU_HAS_TENSOR_CORES

template <typename T, int SIZE> struct fragment_paged {
  static constexpr int ROWS = 16, KEYS = GPU_PAGED_FRAGMENT_KEYS / (SIZE > GPU_PAGED_MANY_SIZE ? 2 : 1);
  static constexpr int STRIDE = SIZE + GPU_FRAGMENT_PADDING, PIECES = SIZE / 8;

  const gpu_paged_arguments &a;
  int warps, warp, g, t;
  query_rows rows;
  uint16_t *key, *value; /* [KEYS][STRIDE] */
  uint16_t *query;       /* [warp][ROWS][STRIDE] */
  place *places;         /* [2][KEYS]: of the tile and of the next */
  int *absent;           /* one key so far was nowhere */
  query_row mine[2];
  segment seen[2];  /* what they see of the part */
  segment any, all; /* what any of the warp's rows sees, and what all of them see */
  float slope[2], scale;

  GPU_METHOD fragment_paged(const gpu_paged_arguments &arguments, unsigned char *shared)
      : a(arguments), warps(int(blockDim.x) / GPU_WARP), rows(a, warps * ROWS) {
    warp = int(threadIdx.x) / GPU_WARP;
    g = int(threadIdx.x) % GPU_WARP / 4;
    t = int(threadIdx.x) % 4;
    key = reinterpret_cast<uint16_t *>(shared);
    value = key + KEYS * STRIDE;
    query = value + KEYS * STRIDE;
    places = reinterpret_cast<place *>(query + warps * ROWS * STRIDE);
    absent = reinterpret_cast<int *>(places + 2 * KEYS);
  }

  GPU_METHOD segment in_part(segment keys) const {
    return {keys.begin > rows.keys.begin ? keys.begin : rows.keys.begin,
            keys.end < rows.keys.end ? keys.end : rows.keys.end};
  }

  /* Rows see the more to the right the further behind they are. */
  GPU_METHOD void find_rows() {
    int64_t begin = rows.first + warp * ROWS, last = rows.count - rows.first - 1;
    query_row first = rows.at(a, warp * ROWS);
    query_row end = rows.at(a, begin + ROWS > rows.count ? int(last) : warp * ROWS + ROWS - 1);
    any = all = {0, 0};
    if (first.there) {
      any = in_part({first.keys.begin, end.keys.end});
      all = in_part({end.keys.begin, first.keys.end});
    }
    scale = a.scale * scale_of(a.keys, rows.kv_head);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      mine[half] = rows.at(a, warp * ROWS + g + 8 * half);
      seen[half] = in_part(mine[half].keys);
      slope[half] = a.slopes && mine[half].there ? a.slopes[mine[half].head] : 0.0f;
    }
  }

  GPU_METHOD void load_queries() const {
    const uint16_t *data = static_cast<const uint16_t *>(a.query);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < warps * ROWS * PIECES; i += int(blockDim.x)) {
      query_row row = rows.at(a, i / PIECES);
      int column = i % PIECES * 8;
      const uint16_t *from = data + row.token * a.query_token + row.head * a.query_head + column;
      uint16_t *to = query + i / PIECES * STRIDE + column;
      if (row.there && column < a.size && a.query_vectorised)
        gpu_copy_begin(to, from);
      else
        for (int k = 0; k < 8; k++)
          to[k] = row.there && column + k < a.size ? from[k] : uint16_t(0);
    }
  }

  GPU_METHOD void find_places(int turn, uint32_t tile) const {
    for (int i = int(threadIdx.x); i < KEYS; i += int(blockDim.x)) {
      place at = find_place(a, rows.sequence.index, tile + i, rows.keys.end);
      places[turn * KEYS + i] = at;
      if (at.block < 0)
        *absent = 1;
    }
  }

  /* What is not there reads as zeros. Where rows are aligned the rest is on its way until gpu_copies_wait. */
  GPU_METHOD void load_tile(const gpu_paged_cache &cache, uint16_t *tile, int turn) const {
    const place *of_tile = places + turn * KEYS;
    if (cache.vectorised && cache.scale)
#pragma unroll 1
      for (int i = int(threadIdx.x); i < KEYS * PIECES / 2; i += int(blockDim.x)) {
        place at = of_tile[i / (PIECES / 2)];
        int column = i % (PIECES / 2) * 16;
        uint16_t *to = tile + i / (PIECES / 2) * STRIDE + column;
        if (at.block >= 0 && column < a.size)
          widen_piece<T>(to, cache, element_at(cache, at, rows.kv_head) + column);
        else
          for (int k = 0; k < 16; k += 8)
            *reinterpret_cast<piece *>(to + k) = piece{};
      }
    else if (cache.vectorised)
#pragma unroll 4
      for (int i = int(threadIdx.x); i < KEYS * PIECES; i += int(blockDim.x)) {
        place at = of_tile[i / PIECES];
        int column = i % PIECES * 8;
        uint16_t *to = tile + i / PIECES * STRIDE + column;
        if (at.block >= 0 && column < a.size)
          gpu_copy_begin(to, static_cast<const uint16_t *>(cache.data) + element_at(cache, at, rows.kv_head) + column);
        else
          *reinterpret_cast<piece *>(to) = piece{};
      }
    else
#pragma unroll 1
      for (int i = int(threadIdx.x); i < KEYS * SIZE; i += int(blockDim.x)) {
        place at = of_tile[i / SIZE];
        int column = i % SIZE;
        bool there = at.block >= 0 && column < a.size;
        tile[i / SIZE * STRIDE + column] =
            there ? cached_element<T>(cache, element_at(cache, at, rows.kv_head) + column) : uint16_t(0);
      }
  }

  GPU_METHOD void multiply(float (&scores)[KEYS / 8][4]) const {
#pragma unroll 2
    for (int d = 0; d < SIZE; d += 16) {
      uint32_t queries[4], keys[4];
      gpu_load_a(query + warp * ROWS * STRIDE + d, STRIDE, queries);
#pragma unroll
      for (int k = 0; k < KEYS; k += 16) {
        gpu_load_b(key + k * STRIDE + d, STRIDE, keys);
        gpu_multiply_fragments<T>(scores[k / 8], scores[k / 8 + 1], queries, keys);
      }
    }
  }

  /* Scores become weights, of keys that a row does not see 0, and the sums are scaled. MIXED: not all rows see all keys
   * of the tile. Each thread adds up the weights that it has. */
  template <bool MIXED>
  GPU_METHOD void weigh(uint32_t tile, const place *of_tile, float (&scores)[KEYS / 8][4], float (&most)[2],
                        float (&sum)[2], float (&sums)[SIZE / 8][4]) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float above = most[half];
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        float &score = scores[i / 2][2 * half + i % 2];
        int of_key = i / 2 * 8 + 2 * t + i % 2;
        bool there = !MIXED || (seen[half].sees(tile + of_key) && of_tile[of_key].block >= 0);
        score = there ? bend(a, score * scale, slope[half], int32_t(tile + of_key) - mine[half].position) : -INFINITY;
        above = fmaxf(above, score);
      }
      above = gpu_lanes_reduce<greatest, 4>(above);
      float base = finite_or_zero(above), shrink = gpu_exp_approximately(most[half] - base);
      most[half] = above;
      sum[half] *= shrink;
#pragma unroll
      for (int i = 0; i < KEYS / 4; i++) {
        float &score = scores[i / 2][2 * half + i % 2];
        score = gpu_exp_approximately(score - base);
        sum[half] += score;
      }
#pragma unroll
      for (int i = 0; i < SIZE / 4; i++)
        sums[i / 2][2 * half + i % 2] *= shrink;
    }
  }

  /* gpu_multiply_weights where a value is an infinity or NaN, which must not reach a row that does not see it even
   * times 0: product by product. */
  GPU_METHOD void add_with_care(uint32_t tile, const float (&weights)[KEYS / 8][4], float (&sums)[SIZE / 8][4]) const {
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
#pragma unroll 1
      for (int lane = 0; lane < 4; lane++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
          int of_key = 8 * i + 2 * lane + k;
          const float both[2] = {gpu_shuffle(weights[i][k], 4 * g + lane),
                                 gpu_shuffle(weights[i][2 + k], 4 * g + lane)};
#pragma unroll
          for (int n = 0; n < SIZE / 8; n++) {
            float pair[2];
            read_pair<T>(value + of_key * STRIDE + 8 * n + 2 * t, pair);
#pragma unroll
            for (int half = 0; half < 2; half++)
              if (seen[half].sees(tile + of_key)) {
                sums[n][2 * half] = fmaf(both[half], pair[0], sums[n][2 * half]);
                sums[n][2 * half + 1] = fmaf(both[half], pair[1], sums[n][2 * half + 1]);
              }
          }
        }
  }

  /* All tiles; `careful`: values may be infinities or NaN. */
  GPU_METHOD void attend(bool careful, float (&most)[2], float (&sum)[2], float (&sums)[SIZE / 8][4]) const {
    int turn = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      sink_weight sink(a, rows, mine[half]);
      most[half] = sink.most;
      sum[half] = t == 0 ? sink.sum : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++)
      sums[i / 4][i % 4] = 0;
    if (rows.has_keys()) {
      find_places(turn, rows.keys.begin);
      gpu_barrier();
      load_tile(a.keys, key, turn);
    }
#pragma unroll 1
    for (uint32_t tile = rows.keys.begin; tile < rows.keys.end; tile += KEYS, turn ^= 1) {
      float scores[KEYS / 8][4] = {};
      uint32_t end = tile + KEYS;
      bool sees = any.begin < end && any.end > tile;
      gpu_copies_wait();
      gpu_barrier(); /* the keys are there, and nobody reads the values before any more */
      load_tile(a.values, value, turn);
      if (end < rows.keys.end)
        find_places(turn ^ 1, end);
      if (sees)
        multiply(scores);
      gpu_copies_wait();
      gpu_barrier();
      if (end < rows.keys.end)
        load_tile(a.keys, key, turn ^ 1);
      if (!sees)
        continue;
      if (tile >= all.begin && end <= all.end && !*absent)
        weigh<false>(tile, places + turn * KEYS, scores, most, sum, sums);
      else
        weigh<true>(tile, places + turn * KEYS, scores, most, sum, sums);
      if (careful)
        add_with_care(tile, scores, sums);
      else
        gpu_multiply_weights<T, STRIDE>(scores, value, sums);
    }
  }

  GPU_METHOD void store(const float (&most)[2], const float (&sum)[2], const float (&sums)[SIZE / 8][4]) const {
    float of_values = scale_of(a.values, rows.kv_head);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const query_row &row = mine[half];
      float whole = gpu_lanes_reduce<gpu_sum, 4>(sum[half]);
      if (!row.there)
        continue;
      if (t == 0 && rows.whole)
        store_lse(a, row, most[half], whole);
      else if (t == 0)
        store_weight(a, row, most[half], whole);
      uint16_t *to = static_cast<uint16_t *>(a.out) + row.token * a.out_token + row.head * a.out_head;
      float *part = a.parts_out + part_at(a, row, blockIdx.y) * a.size;
      float factor = rows.whole && row.keys.begin < row.keys.end ? of_values / whole : of_values;
#pragma unroll
      for (int n = 0; n < SIZE / 8; n++) {
        const float made[2] = {sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor};
        if (rows.whole)
          store_pair<T>(to, 8 * n + 2 * t, a.size, a.out_vectorised, made);
        else
          store_pair<gpu_f32>(part, 8 * n + 2 * t, a.size, false, made);
      }
    }
  }

  /* An infinity or NaN among the values leaves one in the sums: then they are made again with care. */
  GPU_METHOD void run() {
    float most[2], sum[2], sums[SIZE / 8][4], zero = 0;
    if (!rows.any())
      return;
    if (blockIdx.y > 0 && !rows.has_keys()) {
      store_no_keys(a, rows, warps * ROWS);
      return;
    }
    find_rows();
    if (threadIdx.x == 0)
      *absent = 0;
    if (rows.has_keys())
      load_queries();
    gpu_barrier();
#pragma unroll 1
    for (int careful = 0;; careful++) {
      attend(careful != 0, most, sum, sums);
#pragma unroll
      for (int i = 0; i < SIZE / 2; i++)
        zero = fmaf(sums[i / 4][i % 4], 0.0f, zero);
      if (careful || !gpu_block_reduce<gpu_max>(int(zero != 0), 0))
        break;
    }
    store(most, sum, sums);
  }
};

#define FRAGMENT_PAGED(type, size, blocks)                                                                             \
  GPU_KERNEL_SHARING(gpu_paged_arguments, paged_attention_##size##_##type, GPU_PAGED_FRAGMENT_THREADS, blocks) {       \
    GPU_DYNAMIC_SHARED;                                                                                                \
    fragment_paged<gpu_##type, size>(a, gpu_dynamic_shared).run();                                                     \
  }
FRAGMENT_PAGED(f16, 64, 4)
FRAGMENT_PAGED(f16, 128, 3)
FRAGMENT_PAGED(f16, 256, 2)
FRAGMENT_PAGED(bf16, 64, 4)
FRAGMENT_PAGED(bf16, 128, 3)
FRAGMENT_PAGED(bf16, 256, 2)

#endif

/* ------------------------------------------------------------------------------------------------------------- join */

/* A block for each head of a token: its parts become one result. */
template <typename T> GPU_DEVICE void join_parts(const gpu_paged_arguments &a) {
  query_row row = {true, blockIdx.x / a.heads, blockIdx.x % a.heads, 0, {0, 0}};
  sequence_of sequence(a, last_sequence(a, row.token, [](int64_t, int64_t start) { return start; }));
  row.keys = sequence.sees(a, row.token - sequence.first);
  parts_of_head parts(a.parts_weight + int64_t(blockIdx.x) * a.parts * 2, a.parts);
  const float *sums = a.parts_out + int64_t(blockIdx.x) * a.parts * a.size;
  bool any = row.keys.begin < row.keys.end;
  if (threadIdx.x == 0)
    store_lse(a, row, parts.most, parts.total);
  for (int column = int(threadIdx.x); column < a.size; column += GPU_PAGED_JOIN_THREADS)
    gpu_store<T>(a.out, row.token * a.out_token + row.head * a.out_head + column,
                 any ? parts.add(sums + column, a.size) / parts.total : 0.0f);
}

#define JOIN(type)                                                                                                     \
  GPU_KERNEL(gpu_paged_arguments, paged_attention_join_##type, GPU_PAGED_JOIN_THREADS) {                               \
    join_parts<gpu_##type>(a);                                                                                         \
  }
JOIN(f32)
JOIN(f16)
JOIN(bf16)
