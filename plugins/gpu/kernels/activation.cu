/*
 * Activations, element-wise or gated by a part of the row, with the roundings of vLLM's forward_native: what a tensor
 * would hold between two steps is rounded to the tensor's type. Each thread makes the elements that 16 bytes hold, or
 * one where rows are not aligned; a block's x runs along a row, its y over rows.
 */
#include "plugins/gpu/kernels/arguments/activation.h"
#include "plugins/gpu/kernels/float8.h"
#include "plugins/gpu/kernels/functions.h"

typedef gpu_activation_arguments arguments;
typedef gpu_activation_parameters parameters;

enum { THREADS = GPU_ACTIVATION_THREADS };

/* ---------------------------------------------------------------------------------------------- scalar functions */

/* The short form is off by 1e-7 where the result is near 0, but it comes from 1 + tanh(x) here. */
template <typename T> GPU_DEVICE float tanh_for_sum(float x) {
  if constexpr (T::dtype == GPU_FLOAT32)
    return tanhf(x);
  else
    return 1.0f - gpu_divide<T>(2.0f, 1.0f + gpu_exp<T>(2.0f * x));
}

GPU_DEVICE float gelu_erf(float x) {
  const float sqrt_half = 0.70710678118654752440f;
  return x * 0.5f * (1.0f + erff(x * sqrt_half));
}

template <typename T> GPU_DEVICE float gelu_tanh(float x) {
  const float sqrt_2_over_pi = 0.79788456080286535588f;
  float inner = sqrt_2_over_pi * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1.0f + tanh_for_sum<T>(inner));
}

/* torch.clamp: NaN stays. */
GPU_DEVICE float clamp_above(float x, float limit) {
  return x > limit ? limit : x;
}

GPU_DEVICE float clamp_both(float x, float limit) {
  return x < -limit ? -limit : clamp_above(x, limit);
}

/* ------------------------------------------------------------------------------------------------- gated: formulas
 * Each makes an output, not yet rounded, of a gate and a factor.
 */

struct silu_gate {
  template <typename T> static GPU_METHOD float of(const parameters &, float g, float u) {
    return gpu_round<T>(gpu_silu<T>(g)) * u;
  }
};

struct silu_factor {
  template <typename T> static GPU_METHOD float of(const parameters &, float g, float u) {
    return g * gpu_round<T>(gpu_silu<T>(u));
  }
};

struct gelu_gate {
  template <typename T> static GPU_METHOD float of(const parameters &, float g, float u) {
    return gpu_round<T>(gelu_erf(g)) * u;
  }
};

struct gelu_tanh_gate {
  template <typename T> static GPU_METHOD float of(const parameters &, float g, float u) {
    return gpu_round<T>(gelu_tanh<T>(g)) * u;
  }
};

/* NaN is not below a threshold: it stays. */
struct fatrelu_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float g, float u) {
    return (g <= p.threshold ? 0.0f : g) * u;
  }
};

struct swigluoai_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float gate, float up) {
    float limit = gpu_round<T>(p.limit), g = clamp_above(gate, limit), u = clamp_both(up, limit);
    float gated = gpu_round<T>(g * gpu_round<T>(gpu_sigmoid<T>(gpu_round<T>(g * p.alpha))));
    return gpu_round<T>(u + 1.0f) * gated;
  }
};

struct clamped_silu_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float gate, float up) {
    float limit = gpu_round<T>(p.limit), g = clamp_above(gate, limit), u = clamp_both(up, limit);
    float gated = gpu_round<T>(g * gpu_round<T>(gpu_sigmoid<T>(gpu_round<T>(g * p.alpha))));
    return gated * gpu_round<T>(u + p.beta);
  }
};

struct swiglustep_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float g, float u) {
    float limit = gpu_round<T>(p.limit);
    return clamp_above(gpu_round<T>(gpu_silu<T>(g)), limit) * clamp_both(u, limit);
  }
};

/* All in float. */
struct situ_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float g, float u) {
    return p.beta * tanhf(g / p.beta) * gpu_sigmoid<gpu_f32>(g) * u;
  }
};

struct limited_situ_gate {
  template <typename T> static GPU_METHOD float of(const parameters &p, float g, float u) {
    return situ_gate::of<T>(p, g, p.limit * tanhf(u / p.limit));
  }
};

/* ------------------------------------------------------------------------------------------- element-wise: formulas */

struct gelu_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    return gelu_erf(x);
  }
};

struct gelu_tanh_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    return gelu_tanh<T>(x);
  }
};

/* PyTorch's pow(x, 3) rounds once in float16, but after each product in bfloat16. */
template <typename T> GPU_DEVICE float cube(float x) {
  return gpu_round<T>(x * x * x);
}

template <> GPU_DEVICE float cube<gpu_bf16>(float x) {
  return gpu_round<gpu_bf16>(gpu_round<gpu_bf16>(x * x) * x);
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
struct gelu_new_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    const float sqrt_2_over_pi = 0.79788456080286535588f;
    float cubic = gpu_round<T>(0.044715f * cube<T>(x));
    float inner = gpu_round<T>(sqrt_2_over_pi * gpu_round<T>(x + cubic));
    return gpu_round<T>(0.5f * x) * gpu_round<T>(1.0f + gpu_round<T>(tanh_for_sum<T>(inner)));
  }
};

/* 0.5 x (1 + tanh(0.7978845608 x (1 + 0.044715 x x))) */
struct gelu_fast_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    float square = gpu_round<T>(gpu_round<T>(0.044715f * x) * x);
    float inner = gpu_round<T>(gpu_round<T>(x * 0.7978845608f) * gpu_round<T>(1.0f + square));
    return gpu_round<T>(0.5f * x) * gpu_round<T>(1.0f + gpu_round<T>(tanh_for_sum<T>(inner)));
  }
};

struct quick_gelu_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    return x * gpu_round<T>(gpu_sigmoid<T>(gpu_round<T>(1.702f * x)));
  }
};

/* NaN stays. */
struct relu2_element {
  template <typename T> static GPU_METHOD float of(const parameters &, float x) {
    float above = x < 0 ? 0 : x;
    return above * above;
  }
};

template <typename T> GPU_DEVICE float round_if(bool wanted, float value) {
  return wanted ? gpu_round<T>(value) : value;
}

/* x > 0: ap x x + beta x, else (expm1(min(x, eps)) - x) an + beta x. */
struct xielu_element {
  template <typename T> static GPU_METHOD float of(const parameters &p, float x) {
    float linear = gpu_round<T>(p.beta * x);
    if (x > 0)
      return round_if<T>(p.positive_rounded, round_if<T>(p.positive_rounded, p.positive_alpha * x) * x) + linear;
    float bent = gpu_round<T>(gpu_round<T>(expm1f(clamp_above(x, p.eps))) - x);
    return round_if<T>(p.negative_rounded, bent * p.negative_alpha) + linear;
  }
};

/* ------------------------------------------------------------------------------------------------------- layouts
 * Each makes N outputs from column `i` on, of the row of x that begins at `x`.
 */

/* The gates of a row come first, then its factors. */
struct halves {
  template <typename T, int N, typename F>
  static GPU_METHOD void make(const arguments &a, const parameters &p, int64_t x, int64_t i, float (&made)[N]) {
    float gates[N], factors[N];
    gpu_load_floats<T, N>(a.x, x + i, gates);
    gpu_load_floats<T, N>(a.x, x + a.columns + i, factors);
#pragma unroll
    for (int k = 0; k < N; k++)
      made[k] = F::template of<T>(p, gates[k], factors[k]);
  }
};

/* Gate and factor alternate. */
struct pairs {
  template <typename T, int N, typename F>
  static GPU_METHOD void make(const arguments &a, const parameters &p, int64_t x, int64_t i, float (&made)[N]) {
    float both[2 * N];
    if constexpr (N == 1) {
      both[0] = gpu_load<T>(a.x, x + 2 * i);
      both[1] = gpu_load<T>(a.x, x + 2 * i + 1);
    } else {
      gpu_load_floats<T, 2 * N>(a.x, x + 2 * i, both);
    }
#pragma unroll
    for (int k = 0; k < N; k++)
      made[k] = F::template of<T>(p, both[2 * k], both[2 * k + 1]);
  }
};

/* Each element of x makes one of out. */
struct elements {
  template <typename T, int N, typename F>
  static GPU_METHOD void make(const arguments &a, const parameters &p, int64_t x, int64_t i, float (&made)[N]) {
    float in[N];
    gpu_load_floats<T, N>(a.x, x + i, in);
#pragma unroll
    for (int k = 0; k < N; k++)
      made[k] = F::template of<T>(p, in[k]);
  }
};

/* -------------------------------------------------------------------------------------------------------- results
 * What becomes of N outputs, at element `i` of out.
 */

struct as_made {
  template <typename T, int N> static GPU_METHOD void store(const arguments &a, int64_t i, float (&made)[N]) {
    gpu_store_floats<T, N>(a.out, i, made);
  }
};

/* Rounded, then codes of e4m3fn with a given scale. */
struct as_codes {
  template <typename T, int N> static GPU_METHOD void store(const arguments &a, int64_t i, float (&made)[N]) {
    float reciprocal = 1.0f / *a.scale;
#pragma unroll
    for (int k = 0; k < N; k++)
      made[k] = gpu_round<T>(made[k]) * reciprocal;
    gpu_store_float8<gpu_e4m3fn>(static_cast<uint8_t *>(a.out) + i, made);
  }
};

template <typename T, int N, typename Layout, typename F, typename Result>
GPU_DEVICE void make_columns(const arguments &a, const parameters &p, uint32_t row, int64_t i) {
  float made[N];
  Layout::template make<T, N, F>(a, p, gpu_row_begin(a.rows, 0, row), i, made);
  Result::template store<T, N>(a, gpu_row_begin(a.rows, 1, row) + i, made);
}

template <typename T, typename Layout, typename F, typename Result = as_made>
GPU_DEVICE void activate(const arguments &a, const parameters &p) {
  const int N = T::vector;
  int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, i = a.vectorised ? thread * N : thread;
  uint32_t step = gridDim.y * blockDim.y;
  if (i >= a.columns)
    return;
  for (uint32_t row = blockIdx.y * blockDim.y + threadIdx.y; row < a.rows.count; row += step) {
    if (a.vectorised && i + N <= a.columns)
      make_columns<T, N, Layout, F, Result>(a, p, row, i);
    else
#pragma unroll 1
      for (int64_t k = i; k < (a.vectorised ? a.columns : i + 1); k++)
        make_columns<T, 1, Layout, F, Result>(a, p, row, k);
  }
}

#define ACTIVATION(name, ...)                                                                                          \
  GPU_KERNEL(gpu_activation_arguments, name##_f32, THREADS) {                                                          \
    activate<gpu_f32, __VA_ARGS__>(a, a.parameters);                                                                   \
  }                                                                                                                    \
  GPU_KERNEL(gpu_activation_arguments, name##_f16, THREADS) {                                                          \
    activate<gpu_f16, __VA_ARGS__>(a, a.parameters);                                                                   \
  }                                                                                                                    \
  GPU_KERNEL(gpu_activation_arguments, name##_bf16, THREADS) {                                                         \
    activate<gpu_bf16, __VA_ARGS__>(a, a.parameters);                                                                  \
  }

ACTIVATION(silu_and_mul, halves, silu_gate)
ACTIVATION(silu_and_mul_float8, halves, silu_gate, as_codes)
ACTIVATION(mul_and_silu, halves, silu_factor)
ACTIVATION(gelu_and_mul, halves, gelu_gate)
ACTIVATION(gelu_tanh_and_mul, halves, gelu_tanh_gate)
ACTIVATION(fatrelu_and_mul, halves, fatrelu_gate)
ACTIVATION(silu_and_mul_with_clamp, halves, clamped_silu_gate)
ACTIVATION(swiglustep_and_mul, halves, swiglustep_gate)
ACTIVATION(situ_and_mul, halves, situ_gate)
ACTIVATION(limited_situ_and_mul, halves, limited_situ_gate)
ACTIVATION(swigluoai_and_mul, pairs, swigluoai_gate)
ACTIVATION(gelu, elements, gelu_element)
ACTIVATION(gelu_tanh, elements, gelu_tanh_element)
ACTIVATION(gelu_new, elements, gelu_new_element)
ACTIVATION(gelu_fast, elements, gelu_fast_element)
ACTIVATION(quick_gelu, elements, quick_gelu_element)
ACTIVATION(relu2, elements, relu2_element)

/* ---------------------------------------------------------------------------------------------------------- xielu */

GPU_DEVICE float load_as(int dtype, const void *from) {
  return dtype == GPU_FLOAT32   ? gpu_load<gpu_f32>(from, 0)
         : dtype == GPU_FLOAT16 ? gpu_load<gpu_f16>(from, 0)
                                : gpu_load<gpu_bf16>(from, 0);
}

GPU_DEVICE float round_as(int dtype, float value) {
  return dtype == GPU_FLOAT32 ? value : dtype == GPU_FLOAT16 ? gpu_round<gpu_f16>(value) : gpu_round<gpu_bf16>(value);
}

/* The parameters come from memory: each thread makes of them what the formula needs. Products with one of another type
 * than x's are float32. */
template <typename T> GPU_DEVICE void xielu(const arguments &a) {
  parameters p = {};
  p.beta = gpu_round<T>(a.parameters.beta);
  p.eps = gpu_round<T>(a.parameters.eps);
  p.positive_alpha = round_as(a.dtype_p, gpu_softplus(load_as(a.dtype_p, a.alpha_p)));
  p.negative_alpha = round_as(a.dtype_n, p.beta + round_as(a.dtype_n, gpu_softplus(load_as(a.dtype_n, a.alpha_n))));
  p.positive_rounded = a.dtype_p == T::dtype;
  p.negative_rounded = a.dtype_n == T::dtype;
  activate<T, elements, xielu_element>(a, p);
}

GPU_KERNEL(gpu_activation_arguments, xielu_f32, THREADS) {
  xielu<gpu_f32>(a);
}
GPU_KERNEL(gpu_activation_arguments, xielu_f16, THREADS) {
  xielu<gpu_f16>(a);
}
GPU_KERNEL(gpu_activation_arguments, xielu_bf16, THREADS) {
  xielu<gpu_bf16>(a);
}

/* -------------------------------------------------------------------------------------------- gelu_and_mul_sparse */

/* Sum over a row's gates, in double: as exact as its one rounding needs. */
template <typename T, typename F> GPU_DEVICE double sum_over(const arguments &a, int64_t x, F term) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.columns; i += blockDim.x)
    sum += term(double(gpu_load<T>(a.x, x + i)));
  return gpu_block_reduce<gpu_sum>(sum, 0.0);
}

struct itself {
  GPU_METHOD double operator()(double value) const {
    return value;
  }
};

struct squared_distance {
  double from;
  GPU_METHOD double operator()(double value) const {
    return (value - from) * (value - from);
  }
};

/* What of the gate is above a cut that follows from the row's gates. A block for each row. */
template <typename T, typename Gelu> GPU_DEVICE void activate_sparse(const arguments &a) {
  int64_t x = gpu_row_begin(a.rows, 0, blockIdx.x), out = gpu_row_begin(a.rows, 1, blockIdx.x);
  double n = double(a.columns), mean = sum_over<T>(a, x, itself()) / n;
  float deviation = gpu_round<T>(float(sqrt(sum_over<T>(a, x, squared_distance{mean}) / n)));
  float cut = gpu_round<T>(gpu_round<T>(float(mean)) + gpu_round<T>(deviation * a.quantile));
  for (int64_t i = threadIdx.x; i < a.columns; i += blockDim.x) {
    float above = gpu_round<T>(gpu_load<T>(a.x, x + i) - cut);
    float up = gpu_load<T>(a.x, x + a.columns + i);
    gpu_store<T>(a.out, out + i, Gelu::template of<T>(a.parameters, above < 0 ? 0 : above, up));
  }
}

#define SPARSE(name, formula)                                                                                          \
  GPU_KERNEL(gpu_activation_arguments, name##_f32, THREADS) {                                                          \
    activate_sparse<gpu_f32, formula>(a);                                                                              \
  }                                                                                                                    \
  GPU_KERNEL(gpu_activation_arguments, name##_f16, THREADS) {                                                          \
    activate_sparse<gpu_f16, formula>(a);                                                                              \
  }                                                                                                                    \
  GPU_KERNEL(gpu_activation_arguments, name##_bf16, THREADS) {                                                         \
    activate_sparse<gpu_bf16, formula>(a);                                                                             \
  }

SPARSE(gelu_and_mul_sparse, gelu_gate)
SPARSE(gelu_tanh_and_mul_sparse, gelu_tanh_gate)
