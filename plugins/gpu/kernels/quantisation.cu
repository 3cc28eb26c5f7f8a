/*
 * quant_fp8, with the roundings of vLLM's QuantFP8.forward_native, and scaled_int8_quant and
 * silu_and_mul_per_block_quant with those of its kernels.
 * Scales that are given, or that one pass over the tensor before has found, are applied element by element; where a
 * token or a group has its own, the threads that share it keep what they have read in registers until the scale is
 * known, so that x is read once.
 */
#include "plugins/gpu/kernels/arguments/quantisation.h"
#include "plugins/gpu/kernels/codes.h"
#include "plugins/gpu/kernels/functions.h"

typedef gpu_quant_arguments arguments;

enum { THREADS = GPU_QUANT_THREADS };

/* ----------------------------------------------------------------------------------------------------------- codes */

/* N codes to byte `i` of q on, a multiple of N. What e4m3fn narrows to stops at the largest by itself; vLLM's largest
 * of e4m3fnuz is less than the type's. NaN stays. */
template <int N> GPU_DEVICE void store_codes(const arguments &a, int64_t i, const float (&values)[N]) {
  uint8_t *to = static_cast<uint8_t *>(a.q) + i;
  if (!a.fnuz) {
    gpu_store_float8<gpu_e4m3fn>(to, values);
    return;
  }
  float clamped[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    clamped[k] = values[k] < -a.largest ? -a.largest : values[k] > a.largest ? a.largest : values[k];
  gpu_store_float8<gpu_e4m3fnuz>(to, clamped);
}

/* ---------------------------------------------------------------------------------------------------------- scales */

/* The larger one; NaN if there is one. */
template <int N> GPU_DEVICE float largest_of(float largest, const float (&values)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++)
    largest = gpu_max::of(largest, fabsf(values[k]));
  return largest;
}

/* exp2(ceil(log2(scale))), where log2 rounds to float: a scale that is hardly above a power of two becomes that one.
 * The exponent is split off, so that no more than log2 of 1 to 2 has to be exact. */
GPU_DEVICE float power_of_two_above(float scale) {
  const int bias = 127;
  uint32_t bits = gpu_bits(scale);
  float mantissa = gpu_float((bits & 0x007fffffu) | uint32_t(bias) << 23);
  float exponent = ceilf(float(int(bits >> 23) - bias) + log2f(mantissa));
  return exponent > float(bias) ? INFINITY : gpu_float(uint32_t(int(exponent) + bias) << 23);
}

/* Of the largest magnitude. NaN stays. */
GPU_DEVICE float scale_of(const arguments &a, float largest) {
  float bound = a.bound ? *a.bound : INFINITY, least = a.least_scale;
  float scale = (largest > bound ? bound : largest) / a.largest;
  if (a.power_of_two && scale >= least / 2 && scale < INFINITY)
    scale = power_of_two_above(scale);
  return scale < least ? least : scale;
}

/* ------------------------------------------------------------------------------- scales of tokens and of groups */

/* The threads that share a scale: the block's, or some neighbours in a warp. KEPT vectors stay in a thread's registers;
 * longer segments are read twice. */
struct block_team {
  enum { KEPT = 4 };
  GPU_METHOD uint32_t lane() const {
    return threadIdx.x;
  }
  GPU_METHOD uint32_t lanes() const {
    return blockDim.x;
  }
  GPU_METHOD float largest(float value) const {
    return gpu_block_reduce<gpu_max>(value, 0.0f);
  }
};

struct warp_team {
  enum { KEPT = 1 };
  uint32_t n; /* a power of two */
  GPU_METHOD uint32_t lane() const {
    return threadIdx.x % n;
  }
  GPU_METHOD uint32_t lanes() const {
    return n;
  }
  GPU_METHOD float largest(float value) const {
    for (uint32_t mask = n / 2; mask > 0; mask /= 2)
      value = gpu_max::of(value, gpu_shuffle_xor(value, int(mask)));
    return value;
  }
};

/* Elements that share a scale, and where the two go. */
struct segment {
  int64_t x, q, length;
  float *scale; /* NULL: no segment, but the team waits for its threads */
};

/* x itself, in a token: multiplied by the reciprocal of the scale. */
struct token {
  template <typename T, int N> static GPU_METHOD void load(const arguments &a, int64_t x, float (&v)[N]) {
    gpu_load_floats<T, N>(a.x, x, v);
  }
  static GPU_METHOD float scale(const arguments &a, float largest) {
    return scale_of(a, largest);
  }
  template <int N> static GPU_METHOD void store(const arguments &a, int64_t q, float (&v)[N], float scale) {
    float reciprocal = 1.0f / scale;
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] *= reciprocal;
    store_codes<N>(a, q, v);
  }
};

/* x itself, in a group: divided by the scale. */
struct group : token {
  template <int N> static GPU_METHOD void store(const arguments &a, int64_t q, float (&v)[N], float scale) {
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] /= scale;
    store_codes<N>(a, q, v);
  }
};

/* silu of x times what lies a row of q behind it, not rounded; the scale itself is what is bounded, and codes may be
 * int8. */
struct gated_group {
  template <typename T, int N> static GPU_METHOD void load(const arguments &a, int64_t x, float (&v)[N]) {
    float up[N];
    gpu_load_floats<T, N>(a.x, x, v);
    gpu_load_floats<T, N>(a.x, x + a.columns, up);
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = gpu_silu<gpu_f32>(v[k]) * up[k];
  }
  static GPU_METHOD float scale(const arguments &a, float largest) {
    float bound = a.bound ? *a.bound : INFINITY, wanted = largest / a.largest;
    float scale = wanted > bound ? bound : wanted;
    return scale < a.least_scale ? a.least_scale : scale;
  }
  template <int N> static GPU_METHOD void store(const arguments &a, int64_t q, float (&v)[N], float scale) {
    if (!a.is_int8) {
      group::store<N>(a, q, v, scale);
      return;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] /= scale;
    gpu_store_int8<N>(a.q, q, v);
  }
};

template <typename T, int N, typename Source, typename Team>
GPU_DEVICE void quantise_segment(const arguments &a, const Team &team, const segment &s) {
  const int KEPT = Team::KEPT;
  float kept[KEPT][N] = {}, largest = 0;
  int64_t first = int64_t(team.lane()) * N, step = int64_t(team.lanes()) * N;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < s.length) {
      Source::template load<T, N>(a, s.x + first + k * step, kept[k]);
      largest = largest_of<N>(largest, kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < s.length; i += step) {
    float v[N];
    Source::template load<T, N>(a, s.x + i, v);
    largest = largest_of<N>(largest, v);
  }
  float scale = Source::scale(a, team.largest(largest));
  if (s.scale && team.lane() == 0)
    *s.scale = scale;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < s.length)
      Source::template store<N>(a, s.q + first + k * step, kept[k], scale);
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < s.length; i += step) {
    float v[N];
    Source::template load<T, N>(a, s.x + i, v);
    Source::template store<N>(a, s.q + i, v, scale);
  }
}

/* A row of q behind x's. */
template <int N> GPU_DEVICE void clear_row(const arguments &a, uint32_t row, uint32_t first, uint32_t step) {
  const float zeros[N] = {};
  for (int64_t i = int64_t(first) * N; i < a.columns; i += int64_t(step) * N)
    store_codes<N>(a, row * a.q_stride + i, zeros);
}

/* A block for each row. */
template <typename T, int N> GPU_DEVICE void quantise_token(const arguments &a) {
  uint32_t row = blockIdx.x;
  if (row >= a.rows.count) {
    clear_row<N>(a, row, threadIdx.x, blockDim.x);
    return;
  }
  segment s = {gpu_row_begin(a.rows, 0, row), gpu_row_begin(a.rows, 1, row), a.columns,
               a.scale_out + gpu_row_begin(a.rows, 2, row)};
  quantise_segment<T, N, token>(a, block_team(), s);
}

/* `lanes` threads for each group; groups of a row follow each other, and a block takes as many rows as it has room for.
 * All threads go through all rounds, since warps exchange values in each. */
template <typename T, int N, typename Source> GPU_DEVICE void quantise_groups_of(const arguments &a) {
  uint32_t team = threadIdx.x / a.lanes, teams = blockDim.x / a.lanes, rows_at_once = teams / a.groups_at_once;
  int64_t number = int64_t(blockIdx.x) * a.groups_at_once + team % a.groups_at_once, begin = number * a.group_columns;
  for (uint64_t first = uint64_t(blockIdx.y) * rows_at_once; first < a.rows.count; first += gridDim.y * rows_at_once) {
    uint64_t row = first + team / a.groups_at_once;
    segment s = {0, 0, 0, nullptr};
    if (row < a.rows.count && begin < a.columns) {
      int64_t rest = a.columns - begin;
      s = {gpu_row_begin(a.rows, 0, uint32_t(row)) + begin, gpu_row_begin(a.rows, 1, uint32_t(row)) + begin,
           rest < a.group_columns ? rest : a.group_columns,
           a.scale_out + gpu_row_begin(a.rows, 2, uint32_t(row)) + number};
    }
    quantise_segment<T, N, Source>(a, warp_team{a.lanes}, s);
  }
}

template <typename T, int N> GPU_DEVICE void quantise_groups(const arguments &a) {
  quantise_groups_of<T, N, group>(a);
}

template <typename T, int N> GPU_DEVICE void quantise_gated_groups(const arguments &a) {
  quantise_groups_of<T, N, gated_group>(a);
}

/* ------------------------------------------------------------------- scales that are given, and that of the tensor */

/* The largest magnitude of what a block has seen, into its own of the parts: nothing depends on the blocks' order. */
template <typename T, int N> GPU_DEVICE void find_part(const arguments &a) {
  float largest = 0;
  for (uint32_t row = blockIdx.y; row < a.rows.count; row += gridDim.y) {
    int64_t x = gpu_row_begin(a.rows, 0, row), step = int64_t(gridDim.x) * blockDim.x * N;
#pragma unroll 4
    for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < a.columns; i += step) {
      float v[N];
      gpu_load_floats<T, N>(a.x, x + i, v);
      largest = largest_of<N>(largest, v);
    }
  }
  largest = gpu_block_reduce<gpu_max>(largest, 0.0f);
  if (threadIdx.x == 0)
    a.parts[blockIdx.y * gridDim.x + blockIdx.x] = largest;
}

/* Every block for itself, from the parts. */
GPU_DEVICE float find_scale(const arguments &a) {
  float largest = 0;
  for (uint32_t i = threadIdx.x; i < a.n_parts; i += blockDim.x)
    largest = gpu_max::of(largest, a.parts[i]);
  return scale_of(a, gpu_block_reduce<gpu_max>(largest, 0.0f));
}

GPU_DEVICE void copy_scales(const arguments &a) {
  uint64_t block = uint64_t(blockIdx.y) * gridDim.x + blockIdx.x, blocks = uint64_t(gridDim.x) * gridDim.y;
  for (uint64_t i = block * blockDim.x + threadIdx.x; i < a.n_scales; i += blocks * blockDim.x) {
    uint64_t row = i / a.scale_columns, column = i % a.scale_columns;
    a.scale_out[int64_t(row) * a.scale_out_stride + int64_t(column)] =
        a.scale[int64_t(row) * a.scale_stride + int64_t(column)];
  }
}

GPU_DEVICE float given_scale(const arguments &a, uint32_t row, uint32_t column) {
  return a.scale[row / uint32_t(a.group_rows) * a.row_step + column / uint32_t(a.group_columns) * a.column_step];
}

/* N elements of a row. `whole` is the tensor's scale. */
template <typename T, int N>
GPU_DEVICE void quantise_some(const arguments &a, uint32_t row, uint32_t column, float whole) {
  float v[N], reciprocal = 0;
  gpu_load_floats<T, N>(a.x, gpu_row_begin(a.rows, 0, row) + column, v);
#pragma unroll
  for (int k = 0; k < N; k++) {
    if (k == 0 || !a.shared_by_vector)
      reciprocal = 1.0f / (a.scale ? given_scale(a, row, column + k) : whole);
    v[k] *= reciprocal;
  }
  store_codes<N>(a, gpu_row_begin(a.rows, 1, row) + column, v);
}

/* `lanes` threads along a row, the others of a block on the rows behind. */
template <typename T, int N> GPU_DEVICE void quantise_scaled(const arguments &a) {
  float whole = 0;
  if (a.scale) {
    copy_scales(a);
  } else {
    whole = find_scale(a);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
      *a.scale_out = whole;
  }
  uint32_t per_block = blockDim.x / a.lanes, lane = blockIdx.x * a.lanes + threadIdx.x % a.lanes;
  uint64_t row = uint64_t(blockIdx.y) * per_block + threadIdx.x / a.lanes;
  for (; row < a.q_rows; row += gridDim.y * per_block)
    if (row >= a.rows.count)
      clear_row<N>(a, uint32_t(row), lane, gridDim.x * a.lanes);
    else
      for (int64_t i = int64_t(lane) * N; i < a.columns; i += int64_t(gridDim.x) * a.lanes * N)
        quantise_some<T, N>(a, uint32_t(row), uint32_t(i), whole);
}

#define QUANTISATION(type, name, function)                                                                             \
  GPU_KERNEL(type, name##_f32, THREADS) {                                                                              \
    a.vectorised ? function<gpu_f32, gpu_f32::vector>(a) : function<gpu_f32, 1>(a);                                    \
  }                                                                                                                    \
  GPU_KERNEL(type, name##_f16, THREADS) {                                                                              \
    a.vectorised ? function<gpu_f16, gpu_f16::vector>(a) : function<gpu_f16, 1>(a);                                    \
  }                                                                                                                    \
  GPU_KERNEL(type, name##_bf16, THREADS) {                                                                             \
    a.vectorised ? function<gpu_bf16, gpu_bf16::vector>(a) : function<gpu_bf16, 1>(a);                                 \
  }

QUANTISATION(gpu_quant_arguments, quant_fp8_tokens, quantise_token)
QUANTISATION(gpu_quant_arguments, quant_fp8_groups, quantise_groups)
QUANTISATION(gpu_quant_arguments, silu_and_mul_groups, quantise_gated_groups)
QUANTISATION(gpu_quant_arguments, quant_fp8_parts, find_part)
QUANTISATION(gpu_quant_arguments, quant_fp8_scaled, quantise_scaled)

/* ------------------------------------------------------------------------------------------------------------ int8 */

typedef gpu_int8_arguments int8_arguments;

/* N elements with a scale and a zero point, from column `i` of a row on. */
template <int N>
GPU_DEVICE void store_shifted(const int8_arguments &a, int64_t q, const float (&v)[N], float scale, int32_t azp) {
  int codes[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    codes[k] = gpu_shifted_int8(v[k] / scale, azp);
  gpu_store_bytes<N>(a.q, q, codes);
}

/* `lanes` threads along a row, the others of a block on the rows behind. */
template <typename T, int N> GPU_DEVICE void shift_given(const int8_arguments &a) {
  float scale = *a.scale;
  int32_t azp = a.azp ? *a.azp : 0;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    *a.scale_out = scale;
    if (a.azp_out)
      *a.azp_out = azp;
  }
  uint32_t per_block = blockDim.x / a.lanes, lane = blockIdx.x * a.lanes + threadIdx.x % a.lanes;
  uint64_t row = uint64_t(blockIdx.y) * per_block + threadIdx.x / a.lanes;
  for (; row < a.rows.count; row += gridDim.y * per_block) {
    int64_t x = gpu_row_begin(a.rows, 0, uint32_t(row)), q = gpu_row_begin(a.rows, 1, uint32_t(row));
    for (int64_t i = int64_t(lane) * N; i < a.columns; i += int64_t(gridDim.x) * a.lanes * N) {
      float v[N];
      gpu_load_floats<T, N>(a.x, x + i, v);
      store_shifted<N>(a, q + i, v, scale, azp);
    }
  }
}

/* -128 - least / scale to the nearest, of what int32 holds; where that is no number, or a row is constant, 0. */
GPU_DEVICE int32_t azp_of(float least, float scale) {
  const float bound = 2147483648.0f;
  float azp = gpu_nearest(-128.0f - least / scale);
  if (scale == 0 || azp != azp)
    return 0;
  return azp < -bound ? INT32_MIN : azp >= bound ? INT32_MAX : int32_t(azp);
}

/* What makes codes of a row. */
struct row_codes {
  float scale, factor; /* factor: of a symmetric row */
  int32_t azp;
  template <int N> GPU_METHOD void store(const int8_arguments &a, int64_t q, float (&v)[N]) const {
    if (a.azp_out && scale != 0) {
      store_shifted<N>(a, q, v, scale, azp);
      return;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = a.azp_out ? 0.0f : v[k] * factor;
    gpu_store_int8<N>(a.q, q, v);
  }
};

/* A row's ends: the greatest element, and the least, negated; NaN wins in either. */
struct row_ends {
  float most, negated;
  template <int N> GPU_METHOD void take(const float (&v)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      most = gpu_max::of(most, v[k]);
      negated = gpu_max::of(negated, -v[k]);
    }
  }
};

/* Of what the block's threads have seen. For a row of zeros the factor is infinite, which makes them NaN, so 0. */
GPU_DEVICE row_codes codes_of(const int8_arguments &a, row_ends ends) {
  const float none = a.columns ? -INFINITY : 0.0f;
  if (!a.azp_out) {
    float largest = fabsf(gpu_block_reduce<gpu_max>(gpu_max::of(ends.most, ends.negated), none));
    return {largest / 127.0f, 127.0f / largest, 0};
  }
  float most = gpu_block_reduce<gpu_max>(ends.most, none), negated = gpu_block_reduce<gpu_max>(ends.negated, none);
  float scale = (most + negated) / 255.0f;
  return {scale, 0, azp_of(-negated, scale)};
}

/* A block for each row. */
template <typename T, int N> GPU_DEVICE void shift_token(const int8_arguments &a) {
  const int KEPT = block_team::KEPT;
  uint32_t row = blockIdx.x;
  int64_t x = gpu_row_begin(a.rows, 0, row), q = gpu_row_begin(a.rows, 1, row);
  int64_t first = int64_t(threadIdx.x) * N, step = int64_t(blockDim.x) * N;
  float kept[KEPT][N] = {}, none = a.columns ? -INFINITY : 0.0f;
  row_ends ends = {none, none};
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
      gpu_load_floats<T, N>(a.x, x + first + k * step, kept[k]);
      ends.take<N>(kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    gpu_load_floats<T, N>(a.x, x + i, v);
    ends.take<N>(v);
  }
  row_codes codes = codes_of(a, ends);
  if (threadIdx.x == 0) {
    a.scale_out[row * a.scale_step] = codes.scale;
    if (a.azp_out)
      a.azp_out[row * a.azp_step] = codes.azp;
  }
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns)
      codes.store<N>(a, q + first + k * step, kept[k]);
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    gpu_load_floats<T, N>(a.x, x + i, v);
    codes.store<N>(a, q + i, v);
  }
}

QUANTISATION(gpu_int8_arguments, scaled_int8_given, shift_given)
QUANTISATION(gpu_int8_arguments, scaled_int8_tokens, shift_token)
