/* What the kernels of attention share: accesses to shared memory, and the softmax of scores that come in tiles. */
#ifndef FLHOST_GPU_ATTENTION_H
#define FLHOST_GPU_ATTENTION_H

#include "plugins/gpu/kernels/arguments/attention.h"
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

/* Keys from `begin` to before `end`; none where that is not behind. */
struct segment {
  uint32_t begin, end;
  GPU_METHOD bool sees(uint32_t key) const {
    return key >= begin && key < end;
  }
};

/* Keys are made in parts, each long enough to be worth a block; the last ones may be empty. */
GPU_DEVICE segment part_of(segment all, uint32_t parts, uint32_t part) {
  const uint32_t least = GPU_DECODE_PART_ROWS, step = 64;
  uint32_t count = all.begin < all.end ? all.end - all.begin : 0;
  uint32_t each = gpu_divide_up(gpu_divide_up(count, parts), step) * step;
  each = each < least ? least : each;
  return {all.begin + uint32_t(gpu_clamp(int64_t(part) * each, 0, count)),
          all.begin + uint32_t(gpu_clamp(int64_t(part) * each + each, 0, count))};
}

/* Stands for the weight of a key that a query does not see; others are 0 or more, or NaN. */
constexpr float unseen = -1.0f;

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

/* Elements `column` and the next of a row of `size`, an even number where rows are written in pieces. */
template <typename T>
GPU_DEVICE void store_pair(typename T::stored *row, int column, int size, bool in_pieces, const float (&values)[2]) {
  if (in_pieces && column < size)
    write_pair<T>(row + column, values);
  else
    for (int k = 0; k < 2; k++)
      if (column + k < size)
        row[column + k] = T::store(values[k]);
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

/* What parts left of one head: the greatest score and the sum of weights of each, and sums of values that are relative
 * to that score. A part that had no keys has a sum of weights below 0 and no sums. */
struct parts_of_head {
  const float *weights; /* [part, 2] */
  uint32_t n;
  float most = -INFINITY, base, total = 0;

  GPU_METHOD parts_of_head(const float *of_parts, uint32_t parts) : weights(of_parts), n(parts) {
    for (uint32_t part = 0; part < n; part++)
      most = fmaxf(most, weights[2 * part]);
    base = finite_or_zero(most);
    for (uint32_t part = 0; part < n; part++)
      total += expf(weights[2 * part] - base) * weights[2 * part + 1];
  }

  /* Of a column, `size` apart from part to part: not yet divided. */
  GPU_METHOD float add(const float *sums, int64_t size) const {
    float sum = 0;
    for (uint32_t part = 0; part < n; part++)
      if (!(weights[2 * part + 1] < 0))
        sum = fmaf(expf(weights[2 * part] - base), sums[part * size], sum);
    return sum;
  }
};

#endif
