/* Matrix products as the stand-ins for cuBLASLt and rocBLAS compute them, on the CPU and in a stream: column-major, as
 * both libraries count. */
#ifndef FLHOST_TESTS_PRODUCT_H
#define FLHOST_TESTS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum product_type { PRODUCT_F32, PRODUCT_F16, PRODUCT_BF16, PRODUCT_N_TYPES } product_type;

typedef struct product_matrix {
  const void *data;
  int64_t ld;
  bool transposed;
} product_matrix;

/* d [m, n] = alpha a [m, k] b [k, n] + beta c [m, n] + bias [m], in float, rounded once. */
typedef struct product {
  product_type type; /* of all */
  int64_t m, n, k;
  float alpha, beta;
  product_matrix a, b, c;
  const void *bias;         /* may be NULL */
  bool rounded_before_bias; /* a second time, that is */
  void *d;
  int64_t ldd;
  void *workspace; /* is overwritten, as it may be */
  size_t workspace_size;
} product;

/* As many products as `count`, whose a, b, c and d are arrays of as many addresses. They are read when the stream gets
 * there, and have to be multiples of `alignment`; c is d. */
typedef struct product_batch {
  product of;
  int32_t count;
  unsigned alignment;
} product_batch;

/* Element `i` of an array of the type. */
float product_load(product_type type, const void *data, int64_t i);
void product_store(product_type type, void *data, int64_t i, float value);

/* The result is a driver's code. */
int product_queue(const product *p, void *stream);
int product_queue_batch(const product_batch *batch, void *stream);

#endif
