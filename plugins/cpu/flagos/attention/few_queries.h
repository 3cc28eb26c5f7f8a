/*
 * A few queries over rows of keys and values that lie anywhere: products with keys, and sums of values with weights.
 * Each number of a row is loaded once for all queries, and converted in registers.
 */
#ifndef FLHOST_CPU_FLAGOS_ATTENTION_FEW_QUERIES_H
#define FLHOST_CPU_FLAGOS_ATTENTION_FEW_QUERIES_H

#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/lanes.h"

/* Queries, and keys that are multiplied at once: their products have registers. Rows that are so many keys ahead are
 * brought into the cache meanwhile: in a paged cache one head's rows are no sequence that processors foresee. */
enum { FEW_QUERIES = 4, FEW_KEYS = REGISTERS > 16 ? 4 : 2, FEW_AHEAD = 8 };

/*
 * Queries and sums are kept as floats, [size / PAIR, queries, PAIR], a pair in the order in which load_half takes one
 * of a row apart. `size` is a multiple of PAIR. Lists of rows have room for FEW_KEYS + FEW_AHEAD more behind the last.
 */
typedef struct few_queries {
  cpu_dtype dtype; /* of the rows */
  int queries;     /* 1, 2 or 4 */
  int64_t size;
  bool in_pairs; /* queries are kept as they lie in bfloat16, to be multiplied so */
} few_queries;

/* Where number i of a query lies, as a float, and of its sum. */
static inline int64_t few_place(const few_queries *few, int64_t query, int64_t i) {
  int64_t in_pair = i % PAIR;
  int64_t place = few->dtype == CPU_BFLOAT16 ? in_pair % 2 * LANES + in_pair / 2 : in_pair;
  return (i - in_pair) * few->queries + query * PAIR + place;
}

SPECIALISED void few_prefetch(cpu_dtype dtype, const void *row, int64_t i) {
  const char *at = (const char *)row + i * cpu_dtype_size(dtype);
  UNROLL for (int64_t line = 0; line < PAIR * cpu_dtype_size(dtype); line += 64) __builtin_prefetch(at + line, 0, 3);
}

/* scores[query * stride + key] = scale * what the lanes of sum [query, key] make. */
SPECIALISED void few_end(int queries, vector *sum, float scale, float *scores, int64_t stride) {
  const int n = queries * FEW_KEYS, whole = n - n % LANES;
  UNROLL for (int first = 0; first < whole; first += LANES) {
    float sums[LANES];
    const vector made = add_lanes_of_each(sum + first) * scale;
    memcpy(sums, &made, sizeof sums);
    UNROLL for (int i = 0; i < LANES; i++) scores[(first + i) / FEW_KEYS * stride + (first + i) % FEW_KEYS] = sums[i];
  }
  UNROLL for (int i = whole; i < n; i++) scores[i / FEW_KEYS * stride + i % FEW_KEYS] = add_lanes(sum[i]) * scale;
}

/* scores[query * stride + key] = query times key, of FEW_KEYS keys. */
SPECIALISED void few_multiply(cpu_dtype dtype, int queries, int64_t size, const float *query, const void *const *keys,
                              float *scores, int64_t stride) {
  vector sum[FEW_QUERIES * FEW_KEYS] = {0}, factors[FEW_KEYS];
  for (int64_t i = 0; i < size; i += PAIR, query += queries * PAIR) {
    UNROLL for (int k = 0; k < FEW_KEYS; k++) few_prefetch(dtype, keys[k + FEW_AHEAD], i);
    UNROLL for (int half = 0; half < 2; half++) {
      UNROLL for (int k = 0; k < FEW_KEYS; k++) factors[k] = load_half(dtype, keys[k], i, half);
      UNROLL for (int q = 0; q < queries; q++) {
        vector factor = *(const vector *)(query + q * PAIR + half * LANES);
        UNROLL for (int k = 0; k < FEW_KEYS; k++) sum[q * FEW_KEYS + k] += factor * factors[k];
      }
    }
  }
  few_end(queries, sum, 1, scores, stride);
}

#ifdef __AVX512BF16__
/* The same of bfloat16 in pairs, times `scale`. */
SPECIALISED void few_multiply_pairs(int queries, int64_t size, const cpu_element16 *query, const void *const *keys,
                                    float scale, float *scores, int64_t stride) {
  vector sum[FEW_QUERIES * FEW_KEYS] = {0};
  for (int64_t i = 0; i < size; i += PAIR, query += queries * PAIR) {
    __m512i pairs[FEW_KEYS];
    UNROLL for (int k = 0; k < FEW_KEYS; k++) {
      few_prefetch(CPU_BFLOAT16, keys[k + FEW_AHEAD], i);
      pairs[k] = _mm512_loadu_si512((const cpu_element16 *)keys[k] + i);
    }
    UNROLL for (int q = 0; q < queries; q++) {
      __m512i factors = _mm512_loadu_si512(query + q * PAIR);
      UNROLL for (int k = 0; k < FEW_KEYS; k++) sum[q * FEW_KEYS + k] =
          add_pairs(sum[q * FEW_KEYS + k], factors, pairs[k]);
    }
  }
  few_end(queries, sum, scale, scores, stride);
}
#endif

/* sums += weights[query * stride + key] * value, of n values. */
SPECIALISED void few_add(cpu_dtype dtype, int queries, int64_t size, const void *const *values, int64_t n,
                         const float *weights, int64_t stride, float *sums) {
  for (int64_t i = 0; i < size; i += PAIR, sums += queries * PAIR) {
    vector sum[FEW_QUERIES][2];
    UNROLL for (int q = 0; q < queries; q++) UNROLL for (int half = 0; half < 2; half++) sum[q][half] =
        *(const vector *)(sums + q * PAIR + half * LANES);
    for (int64_t key = 0; key < n; key++) {
      few_prefetch(dtype, values[key + FEW_AHEAD], i);
      UNROLL for (int half = 0; half < 2; half++) {
        vector value = load_half(dtype, values[key], i, half);
        UNROLL for (int q = 0; q < queries; q++) sum[q][half] += weights[q * stride + key] * value;
      }
    }
    UNROLL for (int q = 0; q < queries; q++) UNROLL for (int half = 0; half < 2; half++) *
        (vector *)(sums + q * PAIR + half * LANES) = sum[q][half];
  }
}

/* ------------------------------------------------------------------- a function for each type and number of queries */

typedef void (*few_multiply_fn)(int64_t size, const float *query, const void *const *keys, int64_t n, float *scores,
                                int64_t stride);
typedef void (*few_add_fn)(int64_t size, const void *const *values, int64_t n, const float *weights, int64_t stride,
                           float *sums);

#define FEW_FORM(dtype, queries)                                                                                       \
  static void few_multiply_##dtype##_##queries(int64_t size, const float *query, const void *const *keys, int64_t n,   \
                                               float *scores, int64_t stride) {                                        \
    for (int64_t key = 0; key < n; key += FEW_KEYS)                                                                    \
      few_multiply(dtype, queries, size, query, keys + key, scores + key, stride);                                     \
  }                                                                                                                    \
  static void few_add_##dtype##_##queries(int64_t size, const void *const *values, int64_t n, const float *weights,    \
                                          int64_t stride, float *sums) {                                               \
    few_add(dtype, queries, size, values, n, weights, stride, sums);                                                   \
  }
FEW_FORM(CPU_FLOAT32, 1)
FEW_FORM(CPU_FLOAT32, 2)
FEW_FORM(CPU_FLOAT32, 4)
FEW_FORM(CPU_FLOAT16, 1)
FEW_FORM(CPU_FLOAT16, 2)
FEW_FORM(CPU_FLOAT16, 4)
FEW_FORM(CPU_BFLOAT16, 1)
FEW_FORM(CPU_BFLOAT16, 2)
FEW_FORM(CPU_BFLOAT16, 4)

typedef void (*few_multiply_pairs_fn)(int64_t size, const cpu_element16 *query, const void *const *keys, int64_t n,
                                      float scale, float *scores, int64_t stride);

#ifdef __AVX512BF16__
#define FEW_PAIRS(queries)                                                                                             \
  static void few_multiply_pairs_##queries(int64_t size, const cpu_element16 *query, const void *const *keys,          \
                                           int64_t n, float scale, float *scores, int64_t stride) {                    \
    for (int64_t key = 0; key < n; key += FEW_KEYS)                                                                    \
      few_multiply_pairs(queries, size, query, keys + key, scale, scores + key, stride);                               \
  }
FEW_PAIRS(1)
FEW_PAIRS(2)
FEW_PAIRS(4)
static const few_multiply_pairs_fn few_multiply_pairs_of[3] = {few_multiply_pairs_1, few_multiply_pairs_2,
                                                               few_multiply_pairs_4};
#else
static const few_multiply_pairs_fn few_multiply_pairs_of[3] = {NULL}; /* no queries are in pairs */
#endif

/* By type, and by half the number of queries. */
static const few_multiply_fn few_multiply_of[CPU_N_DTYPES][3] = {
    [CPU_FLOAT32] = {few_multiply_CPU_FLOAT32_1, few_multiply_CPU_FLOAT32_2, few_multiply_CPU_FLOAT32_4},
    [CPU_FLOAT16] = {few_multiply_CPU_FLOAT16_1, few_multiply_CPU_FLOAT16_2, few_multiply_CPU_FLOAT16_4},
    [CPU_BFLOAT16] = {few_multiply_CPU_BFLOAT16_1, few_multiply_CPU_BFLOAT16_2, few_multiply_CPU_BFLOAT16_4},
};
static const few_add_fn few_add_of[CPU_N_DTYPES][3] = {
    [CPU_FLOAT32] = {few_add_CPU_FLOAT32_1, few_add_CPU_FLOAT32_2, few_add_CPU_FLOAT32_4},
    [CPU_FLOAT16] = {few_add_CPU_FLOAT16_1, few_add_CPU_FLOAT16_2, few_add_CPU_FLOAT16_4},
    [CPU_BFLOAT16] = {few_add_CPU_BFLOAT16_1, few_add_CPU_BFLOAT16_2, few_add_CPU_BFLOAT16_4},
};

#endif
