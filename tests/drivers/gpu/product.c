/* Matrix products on the CPU: see product.h. */
#include "tests/drivers/gpu/product.h"
#include "tests/drivers/gpu/standin.h"

#include <flhost/dtype.h>
#include <string.h>

float product_load(product_type type, const void *data, int64_t i) {
  switch (type) {
  case PRODUCT_F32:
    return ((const float *)data)[i];
  case PRODUCT_F16:
    return fl_f16_to_float(((const uint16_t *)data)[i]);
  default:
    return fl_bf16_to_float(((const uint16_t *)data)[i]);
  }
}

void product_store(product_type type, void *data, int64_t i, float value) {
  if (type == PRODUCT_F32)
    ((float *)data)[i] = value;
  else
    ((uint16_t *)data)[i] = type == PRODUCT_F16 ? fl_float_to_f16(value) : fl_float_to_bf16(value);
}

static int64_t place(const product_matrix *matrix, int64_t row, int64_t column) {
  return matrix->transposed ? column + row * matrix->ld : row + column * matrix->ld;
}

static void run(const void *arguments) {
  const product *p = arguments;
  if (p->workspace_size)
    memset(p->workspace, 0x5a, p->workspace_size);
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum +=
            product_load(p->type, p->a.data, place(&p->a, i, l)) * product_load(p->type, p->b.data, place(&p->b, l, j));
      sum *= p->alpha;
      if (p->beta != 0) /* else c is not read, so that NaN in it means nothing */
        sum += p->beta * product_load(p->type, p->c.data, place(&p->c, i, j));
      if (p->bias && p->rounded_before_bias) {
        product_store(p->type, p->d, i + j * p->ldd, sum);
        sum = product_load(p->type, p->d, i + j * p->ldd);
      }
      if (p->bias)
        sum += product_load(p->type, p->bias, i);
      product_store(p->type, p->d, i + j * p->ldd, sum);
    }
}

int product_queue(const product *p, void *stream) {
  return standin_queue(run, p, sizeof *p, stream);
}

/* A device would stop at an address that it cannot take; here the product is left out, and a line says so. */
static bool is_address(const product_batch *batch, int32_t i, const void *address) {
  bool fits = address && (uintptr_t)address % batch->alignment == 0;
  if (!fits)
    standin_log("product %d of %d: address %p is no multiple of %u", (int)i, (int)batch->count, address,
                batch->alignment);
  return fits;
}

static void run_batch(const void *arguments) {
  const product_batch *batch = arguments;
  const void *const *a = batch->of.a.data, *const *b = batch->of.b.data;
  void *const *d = batch->of.d;
  for (int32_t i = 0; i < batch->count; i++) {
    product one = batch->of;
    one.a.data = a[i];
    one.b.data = b[i];
    one.c.data = one.d = d[i];
    if (is_address(batch, i, a[i]) && is_address(batch, i, b[i]) && is_address(batch, i, d[i]))
      run(&one);
  }
}

int product_queue_batch(const product_batch *batch, void *stream) {
  return standin_queue(run_batch, batch, sizeof *batch, stream);
}
