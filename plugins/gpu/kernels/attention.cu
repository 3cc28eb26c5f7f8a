/*
 * Attention without a matrix of scores: keys come in tiles through shared memory, and each query keeps the greatest
 * score so far, the sum of its weights and the sum of values so weighted, all in float; whenever the greatest grows,
 * the sums are scaled down. Products are float, not tensor cores'. Sizes of tiles are such that a block needs at most
 * the 64 KiB that every device has, and three blocks share a multiprocessor of an H100: while one waits for its keys
 * the others multiply.
 */
#include "plugins/gpu/kernels/device.h"

/* Two elements of 16 bits; 16 bytes on their way to shared memory, whatever is in them. */
typedef uint32_t __attribute__((may_alias)) word;

struct alignas(16) piece {
  word words[4];
};

struct alignas(8) two {
  float v[2];
};

struct alignas(16) four {
  float v[4];
};

/* Out of shared memory, from a multiple of 16 bytes on. */
template <int N> GPU_DEVICE void read_floats(const float *from, float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    four read = *reinterpret_cast<const four *>(from + i);
#pragma unroll
    for (int k = 0; k < 4; k++)
      values[i + k] = read.v[k];
  }
}

template <typename T, int N> GPU_DEVICE void read_row(const typename T::stored *from, float (&values)[N]) {
  piece read = *reinterpret_cast<const piece *>(from);
#pragma unroll
  for (int k = 0; k < N; k++)
    values[k] = T::unpack(read.words[k / T::word], k % T::word);
}

/* From an even element on. */
template <typename T> GPU_DEVICE void read_pair(const typename T::stored *from, float (&values)[2]) {
  if constexpr (T::word == 2) {
    uint32_t read = *reinterpret_cast<const word *>(from);
    values[0] = T::unpack(read, 0);
    values[1] = T::unpack(read, 1);
  } else {
    two read = *reinterpret_cast<const two *>(from);
    values[0] = read.v[0];
    values[1] = read.v[1];
  }
}

template <typename T> GPU_DEVICE void write_pair(typename T::stored *to, const float (&values)[2]) {
  if constexpr (T::word == 2)
    *reinterpret_cast<word *>(to) = T::pack(values);
  else
    *reinterpret_cast<two *>(to) = two{{values[0], values[1]}};
}

/* What a weight is relative to. A greatest score of -inf would make NaN of a key that merely has no weight. */
GPU_DEVICE float finite_or_zero(float most) {
  return most == -INFINITY ? 0.0f : most;
}

/* NaN loses: it reaches the result by the sum of weights. */
struct greatest {
  static GPU_METHOD float of(float a, float b) {
    return fmaxf(a, b);
  }
};

/* log(sum of exp(scores)), of no keys -inf; NaN if scores of -inf leave no weight at all, as their quotient is. */
GPU_DEVICE float log_sum(float most, float sum, bool any) {
  return any ? (sum > 0 ? most + logf(sum) : NAN) : -INFINITY;
}

/* ----------------------------------------------------------------------------------------------- merge_attn_states */

template <typename T> GPU_DEVICE void merge(const gpu_merge_arguments &a) {
  const int N = T::vector;
  uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= a.rows.count)
    return;
  int64_t head = row % a.heads, token = row / a.heads;
  int64_t p = gpu_row_begin(a.rows, 0, row), s = gpu_row_begin(a.rows, 1, row), out = gpu_row_begin(a.rows, 2, row);
  float of_prefix = a.prefix_lse[head * a.prefix_lse_head + token];
  float of_suffix = a.suffix_lse[head * a.suffix_lse_head + token];
  of_prefix = of_prefix == INFINITY ? -INFINITY : of_prefix;
  of_suffix = of_suffix == INFINITY ? -INFINITY : of_suffix;
  float most = fmaxf(of_prefix, of_suffix);
  bool empty = most == -INFINITY;
  of_prefix = expf(of_prefix - most);
  of_suffix = expf(of_suffix - most);
  float sum = of_prefix + of_suffix;
  of_prefix = of_prefix / sum;
  of_suffix = of_suffix / sum;
  if (threadIdx.x == 0)
    a.lse[head * a.lse_head + token] = empty ? most : logf(sum) + most;
  if (a.vectorised) {
    for (int64_t i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
      float prefix[N], suffix[N];
      gpu_load_floats<T>(a.prefix, p + i, prefix);
      gpu_load_floats<T>(a.suffix, s + i, suffix);
#pragma unroll
      for (int k = 0; k < N; k++)
        prefix[k] = empty ? prefix[k] : prefix[k] * of_prefix + suffix[k] * of_suffix;
      gpu_store_floats<T>(a.out, out + i, prefix);
    }
    return;
  }
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float prefix = gpu_load<T>(a.prefix, p + i);
    gpu_store<T>(a.out, out + i, empty ? prefix : prefix * of_prefix + gpu_load<T>(a.suffix, s + i) * of_suffix);
  }
}

#define MERGE(type)                                                                                                    \
  GPU_KERNEL(gpu_merge_arguments, merge_attn_states_##type, GPU_MERGE_THREADS) {                                       \
    merge<gpu_##type>(a);                                                                                              \
  }
MERGE(f32)
MERGE(f16)
MERGE(bf16)

/* ------------------------------------------------------------------------------------------------------ mla_decode
 * A block makes GPU_DECODE_HEADS heads of one part of a sequence, whose rows they share. For the scores, a thread has
 * one row of a tile and one slice of its columns, so that what it reads of the row serves all heads; for the sums it
 * has a few columns of all heads.
 */

/* Each part of a sequence is long enough to be worth a block; the last ones may be empty. */
struct part_rows {
  uint32_t length, begin, end;
  GPU_METHOD part_rows(const gpu_decode_arguments &a, uint32_t sequence, uint32_t part) {
    const uint32_t least = GPU_DECODE_PART_ROWS, step = 32;
    length = uint32_t(gpu_clamp(gpu_load_index(a.wide_lengths, a.lengths, sequence), 0, a.rows));
    uint32_t each = ((length + a.parts - 1) / a.parts + step - 1) / step * step;
    each = each < least ? least : each;
    begin = uint32_t(gpu_clamp(int64_t(part) * each, 0, length));
    end = a.parts == 1 ? length : uint32_t(gpu_clamp(int64_t(begin) + each, 0, length));
  }
};

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
    padded = (a.size + N - 1) / N * N;
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

  /* A row's first element in the cache; -1: behind the end, or in no block of the cache. */
  GPU_METHOD int64_t find(uint32_t row, uint32_t end) const {
    if (row >= end)
      return -1;
    uint32_t column = row / a.block_rows;
    int64_t block = gpu_load_index(a.wide_table, a.table, sequence * a.table_sequence + column);
    if (block < 0 || block >= a.blocks)
      return -1;
    return block * a.cache_block + (row - column * a.block_rows) * a.cache_row;
  }

  /* SLICES lanes load a row, 16 bytes each. What is not there reads as zeros. */
  GPU_METHOD void load_rows(uint32_t begin, uint32_t end) {
    int mine = int(threadIdx.x) / SLICES, lane = int(threadIdx.x) % SLICES;
    int64_t first = find(begin + mine, end);
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

#define DECODE(type)                                                                                                   \
  GPU_KERNEL(gpu_decode_arguments, mla_decode_##type, GPU_DECODE_THREADS) {                                            \
    GPU_DYNAMIC_SHARED;                                                                                                \
    decoder<gpu_##type>(a, gpu_dynamic_shared).run(blockIdx.y);                                                        \
  }                                                                                                                    \
  GPU_KERNEL(gpu_decode_arguments, mla_decode_join_##type, GPU_DECODE_JOIN_THREADS) {                                  \
    join_parts<gpu_##type>(a);                                                                                         \
  }

/* A block for each head: the parts of a sequence become one result. */
template <typename T> GPU_DEVICE void join_parts(const gpu_decode_arguments &a) {
  uint32_t sequence = blockIdx.x / a.heads, head = blockIdx.x % a.heads, n = 0;
  const float *weights = a.parts_weight + int64_t(blockIdx.x) * a.parts * 2;
  const float *sums = a.parts_out + int64_t(blockIdx.x) * a.parts * a.rank;
  float most = -INFINITY, total = 0;
  uint32_t length = part_rows(a, sequence, 0).length;
  for (; n < a.parts && part_rows(a, sequence, n).begin < length; n++)
    most = fmaxf(most, weights[2 * n]);
  float base = finite_or_zero(most);
  for (uint32_t part = 0; part < n; part++)
    total += expf(weights[2 * part] - base) * weights[2 * part + 1];
  if (threadIdx.x == 0)
    a.lse[sequence * a.lse_sequence + head] = log_sum(most, total, n != 0);
  for (int column = int(threadIdx.x); column < a.rank; column += GPU_DECODE_JOIN_THREADS) {
    float sum = 0;
    for (uint32_t part = 0; part < n; part++)
      sum = fmaf(expf(weights[2 * part] - base), sums[int64_t(part) * a.rank + column], sum);
    gpu_store<T>(a.out, sequence * a.out_sequence + head * a.out_head + column, n ? sum / total : 0.0f);
  }
}

DECODE(f32)
DECODE(f16)
DECODE(bf16)

/* -------------------------------------------------------------------------------------------------- mm_encoder_attn
 * A block makes R * 16 queries of one head. Threads are 16 by 16: one has R queries of the scores and of the sums, two
 * keys of a tile, and of the sums pairs of columns. A query sees the keys of its segment, which its token tells.
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
    padded = (a.size + N - 1) / N * N;
    stride = (padded / N | 1) * N;
    query_stride = padded + 4;
    query = reinterpret_cast<float *>(shared);
    key = reinterpret_cast<stored *>(query + QUERIES * query_stride);
    value = key + KEYS * stride;
    weights = reinterpret_cast<float *>(value + KEYS * stride);
    begin = reinterpret_cast<uint32_t *>(weights + KEYS * WEIGHTS);
    end = begin + QUERIES;
  }

  /* Between two neighbours in `ends` of which one is at most the token and the other above it. */
  GPU_METHOD void find_segment(uint32_t token, uint32_t &from, uint32_t &to) const {
    int64_t low = 0, high = a.n_ends;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (gpu_load_index(a.wide_ends, a.ends, middle) > int64_t(token))
        high = middle;
      else
        low = middle + 1;
    }
    from = to = 0;
    if (low == 0 || low == a.n_ends)
      return;
    from = uint32_t(gpu_clamp(gpu_load_index(a.wide_ends, a.ends, low - 1), 0, a.keys));
    to = uint32_t(gpu_clamp(gpu_load_index(a.wide_ends, a.ends, low), 0, a.keys));
  }

  GPU_METHOD void find_segments() {
    if (threadIdx.x >= QUERIES)
      return;
    uint32_t token = first + threadIdx.x, from = 0, to = uint32_t(a.keys);
    if (a.ends)
      find_segment(token < a.queries ? token : uint32_t(a.queries) - 1, from, to);
    begin[threadIdx.x] = from;
    end[threadIdx.x] = to;
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
        float weight = seen[k] ? gpu_exp<T>(scores[r][k] - base) : 0.0f;
        added += weight;
        weights[(x + k * SIDE) * WEIGHTS + mine] = weight;
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

  /* MIXED: not all queries see all keys. What one does not see must not reach it even as 0 times infinity. */
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
          if (!MIXED || weight[r] != 0) {
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
        if (a.vectorised && column < a.size)
          write_pair<T>(to + column, made);
        else
          for (int k = 0; k < 2; k++)
            if (column + k < a.size)
              to[column + k] = T::store(made[k]);
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
ENCODER(f16)
ENCODER(bf16)
