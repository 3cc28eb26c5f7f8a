/*
 * A tile of a matrix product, by a block of GPU_TILE_THREADS threads: ROWS rows of a times COLUMNS columns of b, a few
 * summands at a time, which the caller puts into shared memory. 16-bit types go through the tensor cores where there
 * are some (gpu_multiply_fragment), else it is a sum of products in registers. Sums are float32.
 *
 *     GPU_SHARED typename tile::stored a[tile::A_SIZE], b[tile::B_SIZE];
 *     tile t;
 *     for (…) { tile::put(a, row, summand, value); tile::put(b, column, summand, value); gpu_barrier();
 *       t.multiply(a, b); gpu_barrier(); }
 *     t.for_each([&](int row, int column, float sum) { … });
 */
#ifndef FLHOST_GPU_TILE_H
#define FLHOST_GPU_TILE_H

#include "plugins/gpu/kernels/arguments/tile.h"
#include "plugins/gpu/kernels/device.h"

/* Tensor cores: c [16, 8] += a [16, 16] b [16, 8], each spread over a warp of 32 lanes. With g = lane / 4, t = lane %
 * 4: a[0] has row g and columns 2t, 2t + 1, a[1] row g + 8, a[2] and a[3] the same rows 8 columns on; b[0] has column g
 * and rows 2t, 2t + 1, b[1] 8 rows on; c[0] and c[1] have row g and columns 2t, 2t + 1, c[2] and c[3] row g + 8. */
#if defined(__CUDACC__)
#define GPU_HAS_TENSOR_CORES true
template <typename T>
GPU_DEVICE void gpu_multiply_fragment(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (T::dtype == GPU_FLOAT16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#elif defined(GPU_EMULATED) && GRID_WARP == 32
#define GPU_HAS_TENSOR_CORES true
/* By the layout above: each lane tells the others of its warp what it has, and reads what it needs. */
template <typename T>
GPU_DEVICE void gpu_multiply_fragment(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static __thread float all_a[32][32][8], all_b[32][32][4]; /* [warp][lane] */
  unsigned lane = gpu_lane(), warp = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
  for (int i = 0; i < 8; i++)
    all_a[warp][lane][i] = T::unpack(a[i / 2], i % 2);
  for (int i = 0; i < 4; i++)
    all_b[warp][lane][i] = T::unpack(b[i / 2], i % 2);
  gpu_warp_barrier();
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++) {
      const float *row = all_a[warp][lane / 4 * 4 + k % 8 / 2];
      const float *column = all_b[warp][(lane % 4 * 2 + unsigned(i) % 2) * 4 + k % 8 / 2];
      c[i] += row[k / 8 * 4 + i / 2 * 2 + k % 2] * column[k / 8 * 2 + k % 2];
    }
  gpu_warp_barrier(); /* nobody tells anything else before all have read */
}
#else
#define GPU_HAS_TENSOR_CORES false
template <typename T>
GPU_DEVICE void gpu_multiply_fragment(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2]) {
}
#endif

template <typename T, int ROWS, int COLUMNS, bool TENSOR_CORES = GPU_HAS_TENSOR_CORES &&T::word == 2> struct gpu_tile;

/* Each thread has ROWS / 16 rows and COLUMNS / 16 columns, 16 apart. */
template <typename T, int ROWS, int COLUMNS> struct gpu_tile<T, ROWS, COLUMNS, false> {
  typedef float stored;
  enum { SIDE = 16, MY_ROWS = ROWS / SIDE, MY_COLUMNS = COLUMNS / SIDE };
  enum { A_SIZE = GPU_TILE_DEPTH * (ROWS + 1), B_SIZE = GPU_TILE_DEPTH * (COLUMNS + 1) };
  float sums[MY_ROWS][MY_COLUMNS] = {};

  template <int LINES> static GPU_METHOD void put(float *tile, int line, int summand, float value) {
    tile[summand * (LINES + 1) + line] = value;
  }

  GPU_METHOD void multiply(const float *a, const float *b) {
    int x = int(threadIdx.x) % SIDE, y = int(threadIdx.x) / SIDE;
#pragma unroll
    for (int d = 0; d < GPU_TILE_DEPTH; d++) {
      float u[MY_ROWS], v[MY_COLUMNS];
#pragma unroll
      for (int i = 0; i < MY_ROWS; i++)
        u[i] = a[d * (ROWS + 1) + y + i * SIDE];
#pragma unroll
      for (int j = 0; j < MY_COLUMNS; j++)
        v[j] = b[d * (COLUMNS + 1) + x + j * SIDE];
#pragma unroll
      for (int i = 0; i < MY_ROWS; i++)
#pragma unroll
        for (int j = 0; j < MY_COLUMNS; j++)
          sums[i][j] = fmaf(u[i], v[j], sums[i][j]);
    }
  }

  template <typename F> GPU_METHOD void for_each(F function) const {
#pragma unroll
    for (int i = 0; i < MY_ROWS; i++)
#pragma unroll
      for (int j = 0; j < MY_COLUMNS; j++)
        function(int(threadIdx.x) / SIDE + i * SIDE, int(threadIdx.x) % SIDE + j * SIDE, sums[i][j]);
  }
};

/* Each warp has 16 rows and some fragments of 8 columns. Lines of shared memory are padded so that the 32 words of a
 * fragment lie in 32 banks. */
template <typename T, int ROWS, int COLUMNS> struct gpu_tile<T, ROWS, COLUMNS, true> {
  typedef uint16_t stored;
  enum { WARPS = GPU_TILE_THREADS / 32, ROW_WARPS = ROWS / 16, COLUMN_WARPS = WARPS / ROW_WARPS };
  enum { FRAGMENTS = COLUMNS / 8 / COLUMN_WARPS, LINE = GPU_TILE_DEPTH + 8 };
  enum { A_SIZE = ROWS * LINE, B_SIZE = COLUMNS * LINE };
  float sums[FRAGMENTS][4] = {};

  template <int LINES> static GPU_METHOD void put(uint16_t *tile, int line, int summand, float value) {
    tile[line * LINE + summand] = T::store(value);
  }

  static GPU_METHOD uint32_t word(const uint16_t *tile, int line, int summand) {
    return *reinterpret_cast<const uint32_t *>(tile + line * LINE + summand);
  }

  static GPU_METHOD int first_row() {
    return int(threadIdx.x) / 32 % ROW_WARPS * 16 + int(threadIdx.x) % 32 / 4;
  }

  static GPU_METHOD int first_column() {
    return int(threadIdx.x) / 32 / ROW_WARPS * FRAGMENTS * 8;
  }

  GPU_METHOD void multiply(const uint16_t *a, const uint16_t *b) {
    int row = first_row(), column = first_column() + int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int d = 0; d < GPU_TILE_DEPTH; d += 16) {
      const uint32_t u[4] = {word(a, row, d + t), word(a, row + 8, d + t), word(a, row, d + t + 8),
                             word(a, row + 8, d + t + 8)};
#pragma unroll
      for (int j = 0; j < FRAGMENTS; j++) {
        const uint32_t v[2] = {word(b, column + 8 * j, d + t), word(b, column + 8 * j, d + t + 8)};
        gpu_multiply_fragment<T>(sums[j], u, v);
      }
    }
  }

  template <typename F> GPU_METHOD void for_each(F function) const {
    int row = first_row(), column = first_column() + int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int j = 0; j < FRAGMENTS; j++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        function(row + i / 2 * 8, column + 8 * j + i % 2, sums[j][i]);
  }
};

#endif
