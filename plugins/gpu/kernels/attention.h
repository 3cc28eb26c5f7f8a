/* What the kernels of attention share: accesses to shared memory, and the softmax of scores that come in tiles. */
#ifndef FLHOST_GPU_ATTENTION_H
#define FLHOST_GPU_ATTENTION_H

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

#endif
