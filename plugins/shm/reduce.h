/* What becomes of the ranks' elements: one loop for each element type and reduction. */
#ifndef FLHOST_PLUGINS_SHM_REDUCE_H
#define FLHOST_PLUGINS_SHM_REDUCE_H

#include <flhost/communicator.h>

/* out[i] = the reduction of operands[0][i] to operands[n - 1][i], in this order. `out` may be one of the operands. */
typedef void (*shm_reduce_fn)(void *out, const void *const *operands, int n, size_t count);

/* NULL: not with this element type. */
shm_reduce_fn shm_reduce_of(DLDataType dtype, int32_t reduction);

/* All that have a bit in fl_impl.dtypes. */
enum {
  SHM_REDUCES = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 | FL_FLOAT8_E4M3FN | FL_FLOAT64 | FL_INT32 | FL_INT64 | FL_UINT8 |
                FL_INT8 | FL_BOOLEAN
};

#endif
