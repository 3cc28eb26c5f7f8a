/*
 * Experts of a mixture: the pairs of a token and one of its experts are sorted by expert into tiles; products are taken
 * tile by tile, each with its expert's weight; what a token's experts gave is weighted and added. How many tokens an
 * expert has is known on the device alone, so the grid is as large as it may have to be, and blocks without a tile end.
 * Sums are float32, and of one order whatever the order of the pairs.
 */
#include "plugins/gpu/kernels/arguments/moe_experts.h"
#include "plugins/gpu/kernels/tile.h"

enum { THREADS = GPU_TILE_THREADS, COLUMNS = GPU_EXPERTS_COLUMNS, DEPTH = GPU_TILE_DEPTH };
enum { NOT_HERE = -1, NO_TILE = -2, NO_PAIR = -1 };

/* -1: none that is here. So is an id that there cannot be. */
GPU_DEVICE int expert_of(const gpu_experts_routing &r, uint32_t pair) {
  int64_t id = gpu_load_index(r.wide_ids, r.ids, int64_t(pair / r.topk) * r.ids_stride + pair % r.topk);
  if (r.map)
    id = id >= 0 && id < r.map_size ? gpu_load_index(r.wide_map, r.map, id) : -1;
  return id >= 0 && id < int64_t(r.experts) ? int(id) : NOT_HERE;
}

/* ---------------------------------------------------------------------------------------------------------- sorting */

/* One block. In shared memory, for each expert and for none: how many pairs, then where the next one goes. */
GPU_KERNEL(gpu_experts_sort_arguments, sort_experts, THREADS) {
  GPU_DYNAMIC_SHARED;
  const gpu_experts_routing &r = a.routing;
  const gpu_experts_tiles &t = a.tiles;
  uint32_t *count = reinterpret_cast<uint32_t *>(gpu_dynamic_shared), *next = count + r.experts + 1;
  for (uint32_t e = threadIdx.x; e <= r.experts; e += blockDim.x)
    count[e] = 0;
  gpu_barrier();
  for (uint32_t pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
    int expert = expert_of(r, pair);
    gpu_atomic_add(&count[expert < 0 ? r.experts : uint32_t(expert)], 1u);
  }
  gpu_barrier();
  uint32_t used = 0; /* tiles of all experts, in the thread that has none */
  for (uint32_t e = threadIdx.x; e <= r.experts; e += blockDim.x) {
    uint32_t tile = 0, mine = (count[e] + t.rows - 1) / t.rows;
    for (uint32_t before = 0; before < e; before++)
      tile += (count[before] + t.rows - 1) / t.rows;
    next[e] = tile * t.rows;
    for (uint32_t i = 0; i < mine; i++)
      t.expert[tile + i] = e < r.experts ? int(e) : NOT_HERE;
    for (uint32_t i = count[e]; i < mine * t.rows; i++)
      t.pair[tile * t.rows + i] = NO_PAIR;
    used = tile + mine;
    if (e == r.experts)
      for (uint32_t i = used; i < t.n; i++)
        t.expert[i] = NO_TILE;
  }
  gpu_barrier();
  for (uint32_t pair = threadIdx.x; pair < r.pairs; pair += blockDim.x) {
    int expert = expert_of(r, pair);
    t.pair[gpu_atomic_add(&next[expert < 0 ? r.experts : uint32_t(expert)], 1u)] = int(pair);
  }
}

/* --------------------------------------------------------------------------------------------------------- products */

typedef gpu_experts_product_arguments product;

template <typename T> GPU_DEVICE float load_as(int dtype, const void *from, int64_t i) {
  return dtype == T::dtype ? gpu_load<T>(from, i) : gpu_load<gpu_f32>(from, i);
}

/* LINES lines of DEPTH columns, from column `first` on; zeros outside of them. `line` says where each begins, -1 for
 * none, and `scale` what becomes of its values. */
template <typename Tile, typename T, int LINES, int N, typename Line, typename Scale>
GPU_DEVICE void load_lines(const void *from, int64_t first, int64_t columns, Line line, Scale scale,
                           typename Tile::stored *tile) {
  const int OF_LINE = DEPTH / N;
  for (int i = int(threadIdx.x); i < LINES * OF_LINE; i += THREADS) {
    int l = i / OF_LINE, column = i % OF_LINE * N;
    int64_t begin = line(l);
    float v[N];
    if (begin >= 0 && first + column < columns)
      gpu_load_floats<T, N>(from, begin + first + column, v);
    else
      for (int k = 0; k < N; k++)
        v[k] = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++)
      Tile::template put<LINES>(tile, l, column + k, scale(l, v[k]));
  }
}

/* What the rows of a tile of x are, kept in shared memory. */
struct x_rows {
  const int64_t *begin;
  GPU_METHOD int64_t operator()(int r) const {
    return begin[r];
  }
};

struct weight_rows {
  int64_t begin, stride, first, n;
  GPU_METHOD int64_t operator()(int r) const {
    return first + r < n ? begin + (first + r) * stride : -1;
  }
};

template <typename T> struct scaled {
  const float *by; /* NULL: by nothing */
  GPU_METHOD float operator()(int r, float v) const {
    return by ? gpu_round<T>(v * by[r]) : v;
  }
};

struct unscaled {
  GPU_METHOD float operator()(int, float v) const {
    return v;
  }
};

template <typename T, int ROWS, int N> GPU_DEVICE void multiply_tile(const product &a, int expert) {
  typedef gpu_tile<T, ROWS, COLUMNS> tile;
  GPU_SHARED __attribute__((aligned(16))) typename tile::stored x[tile::A_SIZE], w[tile::B_SIZE];
  GPU_SHARED float scales[ROWS];
  GPU_SHARED int64_t begins[ROWS];
  GPU_SHARED int pairs[ROWS];
  for (int r = int(threadIdx.x); r < ROWS; r += THREADS) {
    int pair = a.tiles.pair[int64_t(blockIdx.y) * ROWS + r];
    int64_t token = pair < 0 ? 0 : uint32_t(pair) / a.topk, j = pair < 0 ? 0 : uint32_t(pair) % a.topk;
    pairs[r] = pair;
    begins[r] = pair < 0 ? -1 : int64_t(uint32_t(pair) / a.share) * a.x_stride;
    scales[r] = pair < 0 || !a.scale.data
                    ? 0.0f
                    : gpu_round<T>(load_as<T>(a.scale.dtype, a.scale.data, token * a.scale.stride + j));
  }
  gpu_barrier();
  tile t;
  int64_t first = int64_t(blockIdx.x) * COLUMNS;
  if (expert >= 0)
    for (int64_t k = 0; k < a.k; k += DEPTH) {
      load_lines<tile, T, ROWS, N>(a.x, k, a.k, x_rows{begins}, scaled<T>{a.scale.data ? scales : nullptr}, x);
      load_lines<tile, T, COLUMNS, N>(
          a.weight, k, a.k, weight_rows{expert * a.weight_expert, a.weight_stride, first, a.n}, unscaled(), w);
      gpu_barrier();
      t.multiply(x, w);
      gpu_barrier();
    }
  t.for_each([&](int row, int column, float sum) {
    int pair = pairs[row];
    if (pair < 0 || first + column >= a.n)
      return;
    if (a.bias && expert >= 0)
      sum += load_as<T>(a.bias_dtype, a.bias, expert * a.bias_expert + first + column);
    gpu_store<T>(a.out, pair * a.out_stride + first + column, sum);
  });
}

/* Rows of an expert that is not here are zeros: nobody reads what memory held before. */
template <typename T, int ROWS> GPU_DEVICE void multiply(const product &a) {
  int expert = a.tiles.expert[blockIdx.y];
  if (expert == NO_TILE)
    return;
  if (a.vectorised)
    multiply_tile<T, ROWS, T::vector>(a, expert);
  else
    multiply_tile<T, ROWS, 1>(a, expert);
}

/* ---------------------------------------------------------------------------------------------------------- batches */

/* A batch that no expert has rows in is a product, too, of its own rows and any weight. */
GPU_DEVICE void point_to(const gpu_experts_matrices &m, uint32_t batch, int expert) {
  m.weights[batch] = static_cast<const char *>(m.weight) + (expert < 0 ? 0 : expert) * m.weight_step;
  m.xs[batch] = static_cast<const char *>(m.x) + batch * m.x_step;
  m.outs[batch] = static_cast<char *>(m.out) + batch * m.out_step;
}

/* A thread for each row. */
GPU_KERNEL(gpu_experts_batch_arguments, place_batches, THREADS) {
  uint64_t row = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= uint64_t(a.n) * a.rows)
    return;
  uint32_t pair = uint32_t(a.pair[row]), batch = uint32_t(row / a.rows);
  if (pair < a.pairs)
    a.place[pair] = int32_t(row);
  if (row % a.rows)
    return;
  point_to(a.up, batch, a.expert[batch]);
  point_to(a.down, batch, a.expert[batch]);
}

/* A block takes columns of rows, N at a time; `make` says what they become. */
template <typename T, int N, typename Make>
GPU_DEVICE void make_rows(void *out, uint32_t rows, int64_t columns, Make make) {
  for (uint32_t row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y)
    for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < columns;
         i += int64_t(gridDim.x) * blockDim.x * N) {
      float v[N];
      make(row, i, v);
      gpu_store_floats<T, N>(out, row * columns + i, v);
    }
}

template <int N> GPU_DEVICE void clear(float (&v)[N]) {
  for (int k = 0; k < N; k++)
    v[k] = 0.0f;
}

template <typename T, int N> GPU_DEVICE void gather_columns(const gpu_experts_gather_arguments &a) {
  make_rows<T, N>(a.out, a.rows, a.columns, [&](uint32_t row, int64_t i, float(&v)[N]) {
    uint32_t pair = uint32_t(a.pair[row]), token = pair / a.topk;
    if (pair >= a.pairs)
      return clear(v);
    gpu_load_floats<T, N>(a.x, token * a.x_stride + i, v);
    if (!a.scale.data)
      return;
    float by = gpu_round<T>(load_as<T>(a.scale.dtype, a.scale.data, token * a.scale.stride + int64_t(pair % a.topk)));
    for (int k = 0; k < N; k++)
      v[k] *= by;
  });
}

template <typename T, int N> GPU_DEVICE void fill_columns(const gpu_experts_fill_arguments &a) {
  make_rows<T, N>(a.out, a.rows, a.columns, [&](uint32_t row, int64_t i, float(&v)[N]) {
    int expert = a.expert[row / a.of_expert];
    if (expert < 0)
      return clear(v);
    gpu_load_floats<T, N>(a.bias, expert * a.bias_stride + i, v);
  });
}

template <typename T> GPU_DEVICE void gather_rows(const gpu_experts_gather_arguments &a) {
  if (a.vectorised)
    gather_columns<T, T::vector>(a);
  else
    gather_columns<T, 1>(a);
}

template <typename T> GPU_DEVICE void fill_rows(const gpu_experts_fill_arguments &a) {
  if (a.vectorised)
    fill_columns<T, T::vector>(a);
  else
    fill_columns<T, 1>(a);
}

#define BATCH_KERNELS(suffix, type)                                                                                    \
  GPU_KERNEL(gpu_experts_gather_arguments, gather_rows_##suffix, THREADS) {                                            \
    gather_rows<type>(a);                                                                                              \
  }                                                                                                                    \
  GPU_KERNEL(gpu_experts_fill_arguments, fill_rows_##suffix, THREADS) {                                                \
    fill_rows<type>(a);                                                                                                \
  }
BATCH_KERNELS(f16, gpu_f16)
BATCH_KERNELS(bf16, gpu_bf16)

/* ------------------------------------------------------------------------------------------------------------- sums */

/* A block takes columns of a token. */
template <typename T> GPU_DEVICE void add_experts(const gpu_experts_sum_arguments &a) {
  const gpu_experts_routing &r = a.routing;
  uint32_t token = blockIdx.y * blockDim.y + threadIdx.y;
  for (; token < a.tokens; token += gridDim.y * blockDim.y)
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.columns;
         i += int64_t(gridDim.x) * blockDim.x) {
      float sum = 0;
      for (uint32_t j = 0; j < r.topk; j++) {
        uint32_t pair = token * r.topk + j;
        if (expert_of(r, pair) < 0)
          continue;
        float weight =
            a.weights.data ? load_as<T>(a.weights.dtype, a.weights.data, token * a.weights.stride + j) : 1.0f;
        int64_t row = a.place ? int64_t(a.place[pair]) : int64_t(pair);
        sum += weight * gpu_load<T>(a.x, row * a.x_stride + i);
      }
      gpu_store<T>(a.out, token * a.out_stride + i, sum);
    }
}

#define KERNELS(suffix, type)                                                                                          \
  GPU_KERNEL(gpu_experts_product_arguments, multiply_few_##suffix, THREADS) {                                          \
    multiply<type, GPU_EXPERTS_FEW>(a);                                                                                \
  }                                                                                                                    \
  GPU_KERNEL(gpu_experts_product_arguments, multiply_many_##suffix, THREADS) {                                         \
    multiply<type, GPU_EXPERTS_MANY>(a);                                                                               \
  }                                                                                                                    \
  GPU_KERNEL(gpu_experts_sum_arguments, add_experts_##suffix, THREADS) {                                               \
    add_experts<type>(a);                                                                                              \
  }
KERNELS(f32, gpu_f32)
KERNELS(f16, gpu_f16)
KERNELS(bf16, gpu_bf16)
