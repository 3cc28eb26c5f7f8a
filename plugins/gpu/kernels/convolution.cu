/*
 * conv2d and conv3d as a product that is never laid out: rows are positions of the output, columns the outputs of a
 * group, summands the taps of its channels. A block takes a tile of both, and gathers what it multiplies into shared
 * memory as it goes; taps outside of the input are zeros. Sums are float32, rounded once.
 */
#include "plugins/gpu/kernels/arguments/convolution.h"
#include "plugins/gpu/kernels/tile.h"

typedef gpu_convolution_arguments arguments;

enum { THREADS = GPU_TILE_THREADS, POSITIONS = GPU_CONVOLUTION_POSITIONS, DEPTH = GPU_TILE_DEPTH };

/* What one position of the output looks at: where its first tap would lie in x, and in each dimension of space. */
struct position {
  int64_t x, out;
  int32_t origin[GPU_SPACE];
  int32_t is_there;
};

/* One summand: how far its tap lies from the first, in x and in the weight. */
struct summand {
  int64_t x, weight;
  int32_t step[GPU_SPACE];
  int32_t is_there;
};

GPU_DEVICE position position_at(const arguments &a, uint32_t index) {
  position p = {};
  p.is_there = index < a.positions;
#pragma unroll
  for (int d = GPU_SPACE - 1; d >= 0; d--) {
    int32_t at = int32_t(index % uint32_t(a.out.space[d]));
    index /= uint32_t(a.out.space[d]);
    p.origin[d] = at * a.stride[d] - a.padding[d];
    p.x += p.origin[d] * a.x.strides[d];
    p.out += at * a.out.strides[d];
  }
  p.x += index * a.x.a_stride;
  p.out += index * a.out.a_stride;
  return p;
}

GPU_DEVICE summand summand_at(const arguments &a, int64_t index) {
  summand s = {};
  s.is_there = index < a.depth;
#pragma unroll
  for (int d = GPU_SPACE - 1; d >= 0; d--) {
    int32_t tap = int32_t(index % a.weight.space[d]);
    index /= a.weight.space[d];
    s.step[d] = tap * a.dilation[d];
    s.x += s.step[d] * a.x.strides[d];
    s.weight += tap * a.weight.strides[d];
  }
  s.x += index * a.x.b_stride; /* the channel */
  s.weight += index * a.weight.b_stride;
  return s;
}

GPU_DEVICE bool is_inside(const arguments &a, const position &p, const summand &s) {
  bool inside = p.is_there && s.is_there;
#pragma unroll
  for (int d = 0; d < GPU_SPACE; d++) {
    int32_t at = p.origin[d] + s.step[d];
    inside = inside && at >= 0 && at < a.x.space[d];
  }
  return inside;
}

/* Outputs `first` on of group `group`, at the block's positions. */
template <typename T, int OUTPUTS> GPU_DEVICE void convolve_tile(const arguments &a, int32_t group, int32_t first) {
  typedef gpu_tile<T, POSITIONS, OUTPUTS> tile;
  GPU_SHARED __attribute__((aligned(16))) typename tile::stored x[tile::A_SIZE], w[tile::B_SIZE];
  GPU_SHARED position positions[POSITIONS];
  GPU_SHARED summand summands[DEPTH];
  int64_t x_group = int64_t(group) * a.group_channels * a.x.b_stride, output = int64_t(group) * a.group_outputs + first;
  int32_t outputs = a.group_outputs - first;
  for (int i = int(threadIdx.x); i < POSITIONS; i += THREADS)
    positions[i] = position_at(a, blockIdx.x * POSITIONS + uint32_t(i));
  tile t;
  for (int64_t k = 0; k < a.depth; k += DEPTH) {
    if (threadIdx.x < DEPTH)
      summands[threadIdx.x] = summand_at(a, k + threadIdx.x);
    gpu_barrier();
    for (int i = int(threadIdx.x); i < POSITIONS * DEPTH; i += THREADS) {
      const position &p = positions[i % POSITIONS];
      const summand &s = summands[i / POSITIONS];
      float value = is_inside(a, p, s) ? gpu_load<T>(a.x.data, x_group + p.x + s.x) : 0.0f;
      tile::template put<POSITIONS>(x, i % POSITIONS, i / POSITIONS, value);
    }
    for (int i = int(threadIdx.x); i < OUTPUTS * DEPTH; i += THREADS) {
      const summand &s = summands[i % DEPTH];
      int o = i / DEPTH;
      bool is_there = s.is_there && o < outputs;
      float value = is_there ? gpu_load<T>(a.weight.data, (output + o) * a.weight.a_stride + s.weight) : 0.0f;
      tile::template put<OUTPUTS>(w, o, i % DEPTH, value);
    }
    gpu_barrier();
    t.multiply(x, w);
    gpu_barrier();
  }
  t.for_each([&](int row, int column, float sum) {
    const position &p = positions[row];
    if (!p.is_there || column >= outputs)
      return;
    float bias = a.bias ? gpu_load<T>(a.bias, output + column) : 0.0f;
    gpu_store<T>(a.out.data, (output + column) * a.out.b_stride + p.out, sum + bias);
  });
  gpu_barrier(); /* before the next tile's positions */
}

template <typename T, int OUTPUTS> GPU_DEVICE void convolve(const arguments &a) {
  for (uint32_t block = blockIdx.y; block < a.blocks; block += gridDim.y)
    convolve_tile<T, OUTPUTS>(a, int32_t(block / a.output_blocks), int32_t(block % a.output_blocks) * OUTPUTS);
}

#define KERNELS(suffix, type)                                                                                          \
  GPU_KERNEL(gpu_convolution_arguments, convolve_few_##suffix, THREADS) {                                              \
    convolve<type, GPU_CONVOLUTION_FEW>(a);                                                                            \
  }                                                                                                                    \
  GPU_KERNEL(gpu_convolution_arguments, convolve_many_##suffix, THREADS) {                                             \
    convolve<type, GPU_CONVOLUTION_MANY>(a);                                                                           \
  }
KERNELS(f32, gpu_f32)
KERNELS(f16, gpu_f16)
KERNELS(bf16, gpu_bf16)
