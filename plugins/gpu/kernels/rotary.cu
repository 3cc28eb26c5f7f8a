/*
 * Rotary embeddings, with the roundings of vLLM's forward_native. `lanes` threads share a head, and keep the cosines
 * and sines of its pairs while they go through the heads of a token; heads, then tokens, follow each other in a block.
 * Each thread writes where it alone has read, so that results may take their arguments' place.
 */
#include "plugins/gpu/kernels/arguments/rotary.h"
#include "plugins/gpu/kernels/device.h"

typedef gpu_rotary_arguments arguments;
typedef gpu_rotary_tensor tensor;
typedef gpu_rotary_table table;

enum { THREADS = GPU_ROTARY_THREADS };

GPU_DEVICE int64_t position_of(const arguments &a, uint32_t token) {
  if (!a.positions)
    return token % a.n_positions;
  return a.wide_positions ? static_cast<const int64_t *>(a.positions)[token]
                          : static_cast<const int32_t *>(a.positions)[token];
}

/* N elements of a row of a table, in the type that the rotation computes in. */
template <typename T, int N>
GPU_DEVICE void load_angles(const arguments &a, const void *from, int64_t i, float (&angles)[N]) {
  if (a.table_dtype == T::dtype) {
    gpu_load_floats<T, N>(from, i, angles);
    return;
  }
  gpu_load_floats<gpu_f32, N>(from, i, angles);
#pragma unroll
  for (int k = 0; k < N; k++)
    angles[k] = a.rounded ? gpu_round<T>(angles[k]) : angles[k];
}

template <typename T> GPU_DEVICE float product(const arguments &a, float x, float y) {
  return a.rounded ? gpu_round<T>(x * y) : x * y;
}

/* x1 becomes x1 c - x2 s, x2 becomes x2 c + x1 s. */
template <typename T> GPU_DEVICE void rotate_pair(const arguments &a, float c, float s, float &x1, float &x2) {
  float first = product<T>(a, x1, c) - product<T>(a, x2, s);
  x2 = product<T>(a, x2, c) + product<T>(a, x1, s);
  x1 = first;
}

/* N pairs of a head, from pair `i` on. */
template <typename T, int N, bool INTERLEAVED>
GPU_DEVICE void rotate(const arguments &a, const tensor &t, int64_t in, int64_t out, int64_t i, const float (&cos)[N],
                       const float (&sin)[N]) {
  if constexpr (INTERLEAVED && N > 1) {
    float x[2 * N];
    gpu_load_floats<T, 2 * N>(t.in, in + 2 * i, x);
#pragma unroll
    for (int k = 0; k < N; k++)
      rotate_pair<T>(a, cos[k], sin[k], x[2 * k], x[2 * k + 1]);
    gpu_store_floats<T, 2 * N>(t.out, out + 2 * i, x);
  } else {
    float x1[N], x2[N];
    int64_t first = INTERLEAVED ? 2 * i : i, second = INTERLEAVED ? first + 1 : first + a.pairs;
    gpu_load_floats<T, N>(t.in, in + first, x1);
    gpu_load_floats<T, N>(t.in, in + second, x2);
#pragma unroll
    for (int k = 0; k < N; k++)
      rotate_pair<T>(a, cos[k], sin[k], x1[k], x2[k]);
    gpu_store_floats<T, N>(t.out, out + first, x1);
    gpu_store_floats<T, N>(t.out, out + second, x2);
  }
}

/* Bit for bit, NaN included. */
template <typename T, int N> GPU_DEVICE void copy(const tensor &t, int64_t in, int64_t out) {
  const typename T::stored *from = static_cast<const typename T::stored *>(t.in) + in;
  typename T::stored *to = static_cast<typename T::stored *>(t.out) + out;
  if constexpr (N == 1) {
    *to = *from;
  } else {
    uint32_t words[4];
    gpu_load_words(from, words);
    gpu_store_words(to, words);
  }
}

/* A thread's place: its lane of a head, and the first of its heads of a token, the elements of which begin there. */
struct place {
  uint32_t lane, head;
  int64_t in, out;
};

/* What is not rotated of the heads: before the pairs, and behind them. */
template <typename T, int N> GPU_DEVICE void pass_through(const arguments &a, const tensor &t, const place &at) {
  int64_t rotated = 2 * a.pairs, rest = a.size - rotated;
  for (int64_t i = int64_t(at.lane) * N; i < rest; i += int64_t(a.lanes) * N) {
    int64_t element = i < a.offset ? i : i + rotated;
    for (uint32_t head = at.head; head < t.heads; head += t.heads_at_once)
      copy<T, N>(t, at.in + head * t.in_head + element, at.out + head * t.out_head + element);
  }
}

template <typename T, int N, bool INTERLEAVED>
GPU_DEVICE void rotate_heads(const arguments &a, const tensor &t, const table &angles, int64_t row, const place &at) {
  for (int64_t i = int64_t(at.lane) * N; i < a.pairs; i += int64_t(a.lanes) * N) {
    float cos[N], sin[N];
    load_angles<T, N>(a, angles.cos, row * angles.cos_stride + i, cos);
    load_angles<T, N>(a, angles.sin, row * angles.sin_stride + i, sin);
#pragma unroll
    for (int k = 0; k < N; k++)
      sin[k] = a.inverse ? -sin[k] : sin[k];
    for (uint32_t head = at.head; head < t.heads; head += t.heads_at_once)
      rotate<T, N, INTERLEAVED>(a, t, at.in + head * t.in_head + a.offset, at.out + head * t.out_head + a.offset, i,
                                cos, sin);
  }
}

GPU_DEVICE int64_t row_of(const arguments &a, const table &angles, int64_t position) {
  if (angles.row == GPU_ROTARY_AT_POSITION)
    return position;
  return angles.row == GPU_ROTARY_IN_CHUNK ? position % a.chunk : a.chunk - 1;
}

/* A token whose position the tables do not have is left out. */
template <typename T, int N, bool INTERLEAVED> GPU_DEVICE void embed(const arguments &a) {
  int which = blockIdx.x >= a.tensors[0].blocks;
  const tensor &t = a.tensors[which];
  uint32_t block = blockIdx.x - (which ? a.tensors[0].blocks : 0), slot = threadIdx.x / a.lanes;
  uint32_t token = block * (blockDim.x / (a.lanes * t.heads_at_once)) + slot / t.heads_at_once;
  if (token >= a.tokens.count)
    return;
  int64_t position = position_of(a, token);
  if (position < 0 || position >= a.n_positions)
    return;
  place at = {threadIdx.x % a.lanes, slot % t.heads_at_once, gpu_row_begin(a.tokens, 2 * which, token),
              gpu_row_begin(a.tokens, 2 * which + 1, token)};
#pragma unroll 1
  for (uint32_t i = 0; i < t.n_tables; i++, at.out += t.out_table) {
    rotate_heads<T, N, INTERLEAVED>(a, t, t.tables[i], row_of(a, t.tables[i], position), at);
    if (t.in != t.out)
      pass_through<T, N>(a, t, at);
  }
}

template <typename T> GPU_DEVICE void embed_by_layout(const arguments &a) {
  if (a.vectorised && a.interleaved)
    embed<T, T::vector, true>(a);
  else if (a.vectorised)
    embed<T, T::vector, false>(a);
  else if (a.interleaved)
    embed<T, 1, true>(a);
  else
    embed<T, 1, false>(a);
}

GPU_KERNEL(gpu_rotary_arguments, rotary_f32, THREADS) {
  embed_by_layout<gpu_f32>(a);
}
GPU_KERNEL(gpu_rotary_arguments, rotary_f16, THREADS) {
  embed_by_layout<gpu_f16>(a);
}
GPU_KERNEL(gpu_rotary_arguments, rotary_bf16, THREADS) {
  embed_by_layout<gpu_bf16>(a);
}
