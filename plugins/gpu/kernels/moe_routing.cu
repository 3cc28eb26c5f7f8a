/*
 * Routing of tokens to experts, and the sum of what the experts gave. A warp takes a token: its scores lie in shared
 * memory, where lane l owns those of experts l, l + GPU_WARP, ..., and the best are taken one after the other. A score
 * and the number of its expert make one integer, so that what is best never depends on the order of comparisons.
 */
#include "plugins/gpu/kernels/arguments/moe_routing.h"
#include "plugins/gpu/kernels/device.h"

typedef gpu_route_arguments arguments;

enum { THREADS = GPU_ROUTE_THREADS };

/* ------------------------------------------------------------------------------------------------------------ keys */

/* Keys compare as torch.topk orders values: NaN is largest, and -0 is 0. No value has key 0: what is out of the choice.
 */
GPU_DEVICE uint32_t key_of(float value) {
  uint32_t bits = gpu_bits(value + 0.0f);
  if (value != value)
    return 0xffffffffu;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

GPU_DEVICE float value_of(uint32_t key) {
  if (key == 0xffffffffu)
    return gpu_float(0x7fc00000u);
  return gpu_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Of equal keys the one of the lower index is larger. */
GPU_DEVICE uint64_t entry_of(uint32_t key, uint32_t index) {
  return key ? uint64_t(key) << 32 | ~index : 0;
}

GPU_DEVICE uint32_t index_of(uint64_t entry) {
  return ~uint32_t(entry);
}

/* The largest entry that the lane owns. */
GPU_DEVICE uint64_t own_best(const uint32_t *keys, uint32_t n, uint32_t lane) {
  uint64_t best = 0;
  for (uint32_t i = lane; i < n; i += GPU_WARP)
    best = gpu_max::of(best, entry_of(keys[i], i));
  return best;
}

/* Takes the best out of the choice. `own` is own_best(). */
GPU_DEVICE uint32_t take_best(uint32_t *keys, uint32_t n, uint32_t lane, uint64_t &own) {
  uint32_t index = index_of(gpu_warp_reduce<gpu_max>(own));
  if (index % GPU_WARP == lane) {
    keys[index] = 0;
    own = own_best(keys, n, lane);
  }
  return index;
}

/* ---------------------------------------------------------------------------------------------------------- scores */

/* A warp's part of shared memory. */
struct scratch {
  float *scores;        /* of experts */
  uint32_t *keys;       /* of what is compared */
  uint32_t *group_keys; /* 0 of those that were chosen */
  uint32_t *chosen;     /* experts */
};

/* The larger one, NaN only if both are. */
struct larger_number {
  static GPU_METHOD float of(float a, float b) {
    return fmaxf(a, b);
  }
};

template <typename T> GPU_DEVICE float round_if(bool wanted, float value) {
  return wanted ? gpu_round<T>(value) : value;
}

/* exp(x - largest) / sum, not rounded; the sum is exact to float. */
template <typename T> GPU_DEVICE void softmax(const arguments &a, int64_t logits, float *scores, uint32_t lane) {
  float largest = -INFINITY;
  double sum = 0;
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP) {
    scores[i] = gpu_load<T>(a.logits, logits + i);
    largest = fmaxf(largest, scores[i]);
  }
  largest = gpu_warp_reduce<larger_number>(largest);
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP) {
    scores[i] = expf(scores[i] - largest);
    sum += double(scores[i]);
  }
  float divisor = float(gpu_warp_reduce<gpu_sum>(sum));
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP)
    scores[i] /= divisor;
}

template <typename T> GPU_DEVICE void sigmoid(const arguments &a, int64_t logits, float *scores, uint32_t lane) {
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP)
    scores[i] = 1.0f / (1.0f + expf(-gpu_load<T>(a.logits, logits + i)));
}

/* A bias of another type than T makes float32 of the sum. */
template <typename T> GPU_DEVICE float with_bias(const arguments &a, float score, uint32_t expert) {
  if (!a.bias)
    return score;
  bool same = a.bias_dtype == T::dtype;
  float bias = same ? gpu_load<T>(a.bias, expert) : gpu_load<gpu_f32>(a.bias, expert);
  return round_if<T>(a.rounded && same, score + bias);
}

template <typename T> GPU_DEVICE void score(const arguments &a, int64_t logits, const scratch &s, uint32_t lane) {
  if (a.sigmoid)
    sigmoid<T>(a, logits, s.scores, lane);
  else
    softmax<T>(a, logits, s.scores, lane);
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP) {
    float value = s.scores[i];
    bool finite = fabsf(value) < INFINITY;
    s.scores[i] = a.guarded && !finite ? 0.0f : round_if<T>(a.rounded, value);
    s.keys[i] = key_of(with_bias<T>(a, s.scores[i], i));
  }
}

/* ---------------------------------------------------------------------------------------------------------- groups */

/* A group is as good as its best, with a bias as the sum of its two best. As many lanes as there are for each group. */
template <typename T> GPU_DEVICE void score_groups(const arguments &a, const scratch &s, uint32_t lane) {
  uint32_t size = a.experts / a.groups, lanes = 1;
  while (2 * lanes * a.groups <= GPU_WARP)
    lanes *= 2;
  for (uint32_t first = 0; first < a.groups; first += GPU_WARP / lanes) {
    uint32_t group = first + lane / lanes, best = 0, second = 0;
    for (uint32_t i = lane % lanes; i < size && group < a.groups; i += lanes) {
      uint32_t key = s.keys[group * size + i], lower = best < key ? best : key;
      second = gpu_max::of(second, lower);
      best = gpu_max::of(best, key);
    }
    for (uint32_t mask = lanes / 2; mask > 0; mask /= 2) {
      uint32_t other = gpu_shuffle_xor(best, int(mask)), other_second = gpu_shuffle_xor(second, int(mask));
      second = gpu_max::of(gpu_max::of(second, other_second), best < other ? best : other);
      best = gpu_max::of(best, other);
    }
    bool narrow = a.rounded && a.bias_dtype == T::dtype;
    if (lane % lanes == 0 && group < a.groups)
      s.group_keys[group] = a.bias ? key_of(round_if<T>(narrow, value_of(best) + value_of(second))) : best;
  }
}

/* Leaves the experts of the best groups in the choice. */
template <typename T> GPU_DEVICE void choose_groups(const arguments &a, const scratch &s, uint32_t lane) {
  uint32_t size = a.experts / a.groups;
  gpu_warp_barrier();
  score_groups<T>(a, s, lane);
  gpu_warp_barrier();
  uint64_t own = own_best(s.group_keys, a.groups, lane);
  for (uint32_t i = 0; i < a.topk_group; i++)
    take_best(s.group_keys, a.groups, lane, own);
  gpu_warp_barrier();
  for (uint32_t i = lane; i < a.experts; i += GPU_WARP)
    if (s.group_keys[i / size])
      s.keys[i] = 0;
}

/* --------------------------------------------------------------------------------------------------------- choice */

/* The weights are summed in the order of the choice. */
template <typename T>
GPU_DEVICE void choose_experts(const arguments &a, const scratch &s, uint32_t lane, bool stored, uint32_t token) {
  int64_t weights = gpu_row_begin(a.rows, 1, token), ids = gpu_row_begin(a.rows, 2, token);
  uint64_t own = own_best(s.keys, a.experts, lane);
  float sum = 0;
  gpu_warp_barrier();
  for (uint32_t i = 0; i < a.topk; i++) {
    uint32_t expert = take_best(s.keys, a.experts, lane, own);
    sum += s.scores[expert];
    if (lane == i % GPU_WARP)
      s.chosen[i] = expert;
  }
  sum = round_if<T>(a.rounded, sum);
  if (a.guarded && !(sum > 0))
    sum = 1.0f;
  for (uint32_t i = lane; i < a.topk && stored; i += GPU_WARP) {
    float weight = s.scores[s.chosen[i]];
    if (a.renormalize)
      weight = round_if<T>(a.rounded, weight / sum);
    if (a.scaling != 1.0f)
      weight = round_if<T>(a.rounded, weight * a.scaling);
    a.weights[weights + i] = weight;
    a.ids[ids + i] = int32_t(s.chosen[i]);
  }
}

/* A warp without a token works on the first one, for nothing. */
template <typename T> GPU_DEVICE void route(const arguments &a) {
  GPU_DYNAMIC_SHARED;
  uint32_t warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
  uint32_t token = blockIdx.x * (blockDim.x / GPU_WARP) + warp, size = 2 * a.experts + a.groups + a.topk;
  uint32_t *memory = reinterpret_cast<uint32_t *>(gpu_dynamic_shared) + warp * size;
  scratch s = {reinterpret_cast<float *>(memory), memory + a.experts, memory + 2 * a.experts,
               memory + 2 * a.experts + a.groups};
  bool stored = token < a.rows.count;
  token = stored ? token : 0;
  score<T>(a, gpu_row_begin(a.rows, 0, token), s, lane);
  if (a.groups > 1)
    choose_groups<T>(a, s, lane);
  choose_experts<T>(a, s, lane, stored, token);
}

GPU_KERNEL(gpu_route_arguments, route_f32, THREADS) {
  route<gpu_f32>(a);
}
GPU_KERNEL(gpu_route_arguments, route_f16, THREADS) {
  route<gpu_f16>(a);
}
GPU_KERNEL(gpu_route_arguments, route_bf16, THREADS) {
  route<gpu_bf16>(a);
}

/* -------------------------------------------------------------------------------------------------------- moe_sum */

/* In float and in order. A block's x runs along a row, its y over rows. */
template <typename T, int N> GPU_DEVICE void sum_experts(const gpu_moe_sum_arguments &a) {
  int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  uint64_t row = uint64_t(blockIdx.y) * blockDim.y + threadIdx.y;
  for (; i < a.columns && row < a.rows.count; row += gridDim.y * blockDim.y) {
    int64_t x = gpu_row_begin(a.rows, 1, uint32_t(row)) + i;
    float sums[N] = {};
#pragma unroll 4
    for (int64_t expert = 0; expert < a.experts; expert++) {
      float values[N];
      gpu_load_floats<T, N>(a.x, x + expert * a.step, values);
#pragma unroll
      for (int k = 0; k < N; k++)
        sums[k] += values[k];
    }
    gpu_store_floats<T, N>(a.out, gpu_row_begin(a.rows, 0, uint32_t(row)) + i, sums);
  }
}

enum { SUM_THREADS = GPU_MOE_SUM_THREADS };

GPU_KERNEL(gpu_moe_sum_arguments, moe_sum_f32, SUM_THREADS) {
  a.vectorised ? sum_experts<gpu_f32, gpu_f32::vector>(a) : sum_experts<gpu_f32, 1>(a);
}
GPU_KERNEL(gpu_moe_sum_arguments, moe_sum_f16, SUM_THREADS) {
  a.vectorised ? sum_experts<gpu_f16, gpu_f16::vector>(a) : sum_experts<gpu_f16, 1>(a);
}
GPU_KERNEL(gpu_moe_sum_arguments, moe_sum_bf16, SUM_THREADS) {
  a.vectorised ? sum_experts<gpu_bf16, gpu_bf16::vector>(a) : sum_experts<gpu_bf16, 1>(a);
}
