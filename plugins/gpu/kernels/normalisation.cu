/*
 * RMS norms over a row, or over each group of a row, with the roundings of vLLM's forward_native, and the norm of mean
 * and variance. A block takes a group: it keeps what it has read in registers, adds up the squares, and writes. Each
 * thread writes where it alone has read, so that results may take their arguments' place.
 */
#include "plugins/gpu/kernels/arguments/normalisation.h"
#include "plugins/gpu/kernels/codes.h"

typedef gpu_norm_arguments arguments;

/* Where the block's group begins in each tensor. */
struct place {
  int64_t x, second, out, residual_out, weight;
};

/* N parameters of the weight's type from element `i` on; `none` where there are none. */
template <typename T, int N>
GPU_DEVICE void load_parameters(const arguments &a, const void *from, int64_t i, float none, float (&w)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++)
    w[k] = none;
  if (from && a.weight_dtype == T::dtype)
    gpu_load_floats<T, N>(from, i, w);
  else if (from)
    gpu_load_floats<gpu_f32, N>(from, i, w);
}

/* x, plus the residual, not rounded; times the weight in the weight's own type, as `x.to(weight.dtype) * weight`. */
struct plain_norm {
  template <typename T, int N>
  static GPU_METHOD void load(const arguments &a, const place &at, int64_t i, float (&v)[N]) {
    gpu_load_floats<T, N>(a.x, at.x + i, v);
    if (a.second) {
      float residual[N];
      gpu_load_floats<T, N>(a.second, at.second + i, residual);
#pragma unroll
      for (int k = 0; k < N; k++)
        v[k] += residual[k];
    }
  }
  /* The sum goes to residual_out. */
  template <typename T, int N>
  static GPU_METHOD void keep_sum(const arguments &a, const place &at, int64_t i, const float (&v)[N]) {
    if (a.residual_out)
      gpu_store_floats<T, N>(a.residual_out, at.residual_out + i, v);
  }
  /* What the sum becomes, not rounded yet. */
  template <typename T, int N>
  static GPU_METHOD void make(const arguments &a, const place &at, int64_t i, float (&v)[N], float scale) {
    float w[N];
    bool narrow = a.weight_dtype == T::dtype && !a.from_one;
    load_parameters<T, N>(a, a.weight, at.weight + i, 1.0f, w);
#pragma unroll
    for (int k = 0; k < N; k++) {
      float normed = v[k] * scale;
      normed = narrow ? gpu_round<T>(normed) : normed;
      v[k] = normed * (a.from_one ? w[k] + 1.0f : w[k]);
    }
  }
  template <typename T, int N>
  static GPU_METHOD void store(const arguments &a, const place &at, int64_t i, float (&v)[N], float scale) {
    keep_sum<T, N>(a, at, i, v);
    make<T, N>(a, at, i, v, scale);
    gpu_store_floats<T, N>(a.out, at.out + i, v);
  }
};

/* The same, rounded and then multiplied by the reciprocal of a given scale: codes of e4m3fn. */
struct quantised_norm {
  template <typename T, int N>
  static GPU_METHOD void load(const arguments &a, const place &at, int64_t i, float (&v)[N]) {
    plain_norm::load<T, N>(a, at, i, v);
  }
  template <typename T, int N>
  static GPU_METHOD void store(const arguments &a, const place &at, int64_t i, float (&v)[N], float scale) {
    float reciprocal = 1.0f / *a.scale;
    plain_norm::keep_sum<T, N>(a, at, i, v);
    plain_norm::make<T, N>(a, at, i, v, scale);
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = gpu_round<T>(v[k]) * reciprocal;
    gpu_store_float8<gpu_e4m3fn>(static_cast<uint8_t *>(a.out) + at.out + i, v);
  }
};

/* Gated before the norm or after it; in float. */
struct gated_norm {
  template <typename T, int N>
  static GPU_METHOD void gate(const arguments &a, const place &at, int64_t i, float (&v)[N]) {
    float g[N];
    gpu_load_floats<T, N>(a.second, at.second + i, g);
#pragma unroll
    for (int k = 0; k < N; k++) {
      float divisor = 1.0f + gpu_exp<T>(-g[k]);
      v[k] *= gpu_divide<T>(a.sigmoid ? 1.0f : g[k], divisor);
    }
  }
  template <typename T, int N>
  static GPU_METHOD void load(const arguments &a, const place &at, int64_t i, float (&v)[N]) {
    gpu_load_floats<T, N>(a.x, at.x + i, v);
    if (a.second && !a.gate_after)
      gate<T, N>(a, at, i, v);
  }
  template <typename T, int N>
  static GPU_METHOD void store(const arguments &a, const place &at, int64_t i, float (&v)[N], float scale) {
    float w[N];
    load_parameters<T, N>(a, a.weight, at.weight + i, 1.0f, w);
#pragma unroll
    for (int k = 0; k < N; k++) {
      v[k] *= a.normalise ? scale : 1.0f;
      v[k] = a.round_norm ? gpu_round<T>(v[k]) : v[k];
      v[k] *= w[k];
    }
    if (a.second && a.gate_after)
      gate<T, N>(a, at, i, v);
    if (a.out_dtype == T::dtype)
      gpu_store_floats<T, N>(a.out, at.out + i, v);
    else
      gpu_store_floats<gpu_f32, N>(a.out, at.out + i, v);
  }
};

/* The squares of those that count. */
template <int N> GPU_DEVICE float squares(const arguments &a, int64_t i, const float (&v)[N]) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++)
    sum += i + k < a.counted ? v[k] * v[k] : 0.0f;
  return sum;
}

template <typename T, int N, typename Norm> GPU_DEVICE void normalise_group(const arguments &a, const place &at) {
  const int KEPT = 4; /* times N elements stay in a thread's registers; longer groups are read twice */
  float kept[KEPT][N], sum = 0;
  int64_t first = int64_t(threadIdx.x) * N, step = int64_t(blockDim.x) * N;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
      Norm::template load<T, N>(a, at, first + k * step, kept[k]);
      sum += squares<N>(a, first + k * step, kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    Norm::template load<T, N>(a, at, i, v);
    sum += squares<N>(a, i, v);
  }
  sum = gpu_block_reduce<gpu_sum>(sum, 0.0f);
  float scale = 1.0f / sqrtf(sum / float(a.counted) + a.epsilon);
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns)
      Norm::template store<T, N>(a, at, first + k * step, kept[k], scale);
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    Norm::template load<T, N>(a, at, i, v);
    Norm::template store<T, N>(a, at, i, v, scale);
  }
}

template <typename T, typename Norm> GPU_DEVICE void normalise(const arguments &a) {
  for (uint32_t group = blockIdx.y; group < a.groups; group += gridDim.y) {
    int64_t begin = group * a.columns;
    place at = {gpu_row_begin(a.rows, 0, blockIdx.x) + begin, gpu_row_begin(a.rows, 1, blockIdx.x) + begin,
                gpu_row_begin(a.rows, 2, blockIdx.x) + begin, gpu_row_begin(a.rows, 3, blockIdx.x) + begin, begin};
    if (a.vectorised)
      normalise_group<T, T::vector, Norm>(a, at);
    else
      normalise_group<T, 1, Norm>(a, at);
  }
}

#define NORM(name, norm)                                                                                               \
  GPU_KERNEL(gpu_norm_arguments, name##_f32, GPU_NORM_THREADS) {                                                       \
    normalise<gpu_f32, norm>(a);                                                                                       \
  }                                                                                                                    \
  GPU_KERNEL(gpu_norm_arguments, name##_f16, GPU_NORM_THREADS) {                                                       \
    normalise<gpu_f16, norm>(a);                                                                                       \
  }                                                                                                                    \
  GPU_KERNEL(gpu_norm_arguments, name##_bf16, GPU_NORM_THREADS) {                                                      \
    normalise<gpu_bf16, norm>(a);                                                                                      \
  }

NORM(rms_norm, plain_norm)
NORM(gated_rms_norm, gated_norm)
NORM(rms_norm_float8, quantised_norm)

/* ------------------------------------------------------------------------------ norm with a scale for each token */

/* The plain norm of a row, rounded. */
template <typename T, int N>
GPU_DEVICE void make_rounded(const arguments &a, const place &at, int64_t i, float (&v)[N], float factor) {
  plain_norm::make<T, N>(a, at, i, v, factor);
#pragma unroll
  for (int k = 0; k < N; k++)
    v[k] = gpu_round<T>(v[k]);
}

template <int N> GPU_DEVICE float largest_of(float largest, const float (&v)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++)
    largest = gpu_max::of(largest, fabsf(v[k]));
  return largest;
}

/* Of a row's largest magnitude. NaN stays. */
GPU_DEVICE float token_scale(const arguments &a, float largest) {
  const float least_int8 = 1.0f / 8388608.0f, least_float8 = float(1.0 / (448.0 * 512.0));
  float bound = a.bound ? *a.bound : INFINITY, least = a.is_int8 ? least_int8 : least_float8;
  float scale = (largest > bound ? bound : largest) / (a.is_int8 ? 127.0f : 448.0f);
  return scale < least ? least : scale;
}

/* int8 is multiplied by the reciprocal of the scale, float8 divided by it. */
template <int N> GPU_DEVICE void store_codes(const arguments &a, int64_t q, float (&v)[N], float scale) {
  float reciprocal = 1.0f / scale;
#pragma unroll
  for (int k = 0; k < N; k++)
    v[k] = a.is_int8 ? v[k] * reciprocal : v[k] / scale;
  if (a.is_int8)
    gpu_store_int8<N>(a.out, q, v);
  else
    gpu_store_float8<gpu_e4m3fn>(static_cast<uint8_t *>(a.out) + q, v);
}

/* A block for each row. The residual, which becomes the sum, is overwritten when it is not read again. */
template <typename T, int N> GPU_DEVICE void normalise_token(const arguments &a, const place &at) {
  const int KEPT = 4; /* times N elements stay in a thread's registers; longer rows are read three times */
  int64_t first = int64_t(threadIdx.x) * N, step = int64_t(blockDim.x) * N;
  float kept[KEPT][N], sum = 0, largest = 0;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
      plain_norm::load<T, N>(a, at, first + k * step, kept[k]);
      sum += squares<N>(a, first + k * step, kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    plain_norm::load<T, N>(a, at, i, v);
    sum += squares<N>(a, i, v);
  }
  sum = gpu_block_reduce<gpu_sum>(sum, 0.0f);
  float factor = 1.0f / sqrtf(sum / float(a.columns) + a.epsilon);
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
      plain_norm::keep_sum<T, N>(a, at, first + k * step, kept[k]);
      make_rounded<T, N>(a, at, first + k * step, kept[k], factor);
      largest = largest_of<N>(largest, kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    plain_norm::load<T, N>(a, at, i, v);
    make_rounded<T, N>(a, at, i, v, factor);
    largest = largest_of<N>(largest, v);
  }
  float scale = token_scale(a, gpu_block_reduce<gpu_max>(largest, 0.0f));
  if (threadIdx.x == 0)
    a.scale_out[blockIdx.x * a.scale_step] = scale;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns)
      store_codes<N>(a, at.out + first + k * step, kept[k], scale);
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    plain_norm::load<T, N>(a, at, i, v);
    plain_norm::keep_sum<T, N>(a, at, i, v);
    make_rounded<T, N>(a, at, i, v, factor);
    store_codes<N>(a, at.out + i, v, scale);
  }
}

template <typename T> GPU_DEVICE void rms_norm_tokens(const arguments &a) {
  place at = {gpu_row_begin(a.rows, 0, blockIdx.x), gpu_row_begin(a.rows, 1, blockIdx.x),
              gpu_row_begin(a.rows, 2, blockIdx.x), gpu_row_begin(a.rows, 3, blockIdx.x), 0};
  if (a.vectorised)
    normalise_token<T, T::vector>(a, at);
  else
    normalise_token<T, 1>(a, at);
}

GPU_KERNEL(gpu_norm_arguments, rms_norm_tokens_f32, GPU_NORM_THREADS) {
  rms_norm_tokens<gpu_f32>(a);
}
GPU_KERNEL(gpu_norm_arguments, rms_norm_tokens_f16, GPU_NORM_THREADS) {
  rms_norm_tokens<gpu_f16>(a);
}
GPU_KERNEL(gpu_norm_arguments, rms_norm_tokens_bf16, GPU_NORM_THREADS) {
  rms_norm_tokens<gpu_bf16>(a);
}

/* ------------------------------------------------------------------------------------------------- layer norm */

/* N elements less the row's mean. */
template <typename T, int N> GPU_DEVICE void load_centred(const arguments &a, int64_t at, float mean, float (&v)[N]) {
  gpu_load_floats<T, N>(a.x, at, v);
#pragma unroll
  for (int k = 0; k < N; k++)
    v[k] -= mean;
}

template <int N> GPU_DEVICE double sum_of(const float (&v)[N]) {
  double sum = 0;
#pragma unroll
  for (int k = 0; k < N; k++)
    sum += double(v[k]);
  return sum;
}

template <typename T, int N>
GPU_DEVICE void store_scaled(const arguments &a, int64_t out, int64_t i, float (&v)[N], float scale) {
  float w[N], b[N];
  load_parameters<T, N>(a, a.weight, i, 1.0f, w);
  load_parameters<T, N>(a, a.bias, i, -0.0f, b); /* what changes nothing, not even the sign of a zero */
#pragma unroll
  for (int k = 0; k < N; k++)
    v[k] = v[k] * scale * w[k] + b[k];
  gpu_store_floats<T, N>(a.out, out + i, v);
}

/* The mean comes first, of a sum in double: rows far from 0 lose nothing by it. A block for each row. */
template <typename T, int N> GPU_DEVICE void normalise_mean_and_variance(const arguments &a) {
  const int KEPT = 4; /* times N elements stay in a thread's registers; longer rows are read three times */
  int64_t x = gpu_row_begin(a.rows, 0, blockIdx.x), out = gpu_row_begin(a.rows, 2, blockIdx.x);
  int64_t first = int64_t(threadIdx.x) * N, step = int64_t(blockDim.x) * N;
  float kept[KEPT][N], squared = 0;
  double sum = 0;
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
      gpu_load_floats<T, N>(a.x, x + first + k * step, kept[k]);
      sum += sum_of<N>(kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    gpu_load_floats<T, N>(a.x, x + i, v);
    sum += sum_of<N>(v);
  }
  float mean = float(gpu_block_reduce<gpu_sum>(sum, 0.0) / double(a.columns));
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns) {
#pragma unroll
      for (int j = 0; j < N; j++)
        kept[k][j] -= mean;
      squared += squares<N>(a, first + k * step, kept[k]);
    }
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    load_centred<T, N>(a, x + i, mean, v);
    squared += squares<N>(a, i, v);
  }
  squared = gpu_block_reduce<gpu_sum>(squared, 0.0f);
  float scale = 1.0f / sqrtf(squared / float(a.columns) + a.epsilon);
#pragma unroll
  for (int k = 0; k < KEPT; k++)
    if (first + k * step < a.columns)
      store_scaled<T, N>(a, out, first + k * step, kept[k], scale);
#pragma unroll 1
  for (int64_t i = first + KEPT * step; i < a.columns; i += step) {
    float v[N];
    load_centred<T, N>(a, x + i, mean, v);
    store_scaled<T, N>(a, out, i, v, scale);
  }
}

template <typename T> GPU_DEVICE void layer_norm(const arguments &a) {
  if (a.vectorised)
    normalise_mean_and_variance<T, T::vector>(a);
  else
    normalise_mean_and_variance<T, 1>(a);
}

GPU_KERNEL(gpu_norm_arguments, layer_norm_f32, GPU_NORM_THREADS) {
  layer_norm<gpu_f32>(a);
}
GPU_KERNEL(gpu_norm_arguments, layer_norm_f16, GPU_NORM_THREADS) {
  layer_norm<gpu_f16>(a);
}
GPU_KERNEL(gpu_norm_arguments, layer_norm_bf16, GPU_NORM_THREADS) {
  layer_norm<gpu_bf16>(a);
}
