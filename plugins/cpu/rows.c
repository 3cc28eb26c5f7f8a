/* Rows in several threads: see rows.h. */
#include "plugins/cpu/rows.h"
#include "plugins/cpu/parallel.h"

#include <unistd.h>

typedef struct rows_loop {
  cpu_rows begin;
  cpu_row_fn row;
  const void *user;
} rows_loop;

static fl_status run_range(void *user, int64_t first, int64_t end) {
  const rows_loop *loop = user;
  cpu_rows rows = loop->begin;
  cpu_rows_skip(&rows, first);
  for (int64_t i = first; i < end; i++, cpu_rows_next(&rows))
    loop->row(loop->user, &rows);
#ifdef __SSE2__
  if (rows.around)
    __builtin_ia32_sfence(); /* who sees that the range is done sees its results */
#endif
  return FL_OK;
}

/* Results that the last cache cannot hold would only drive out of it what others need. What lies in no cache is read
 * before it is written, which writing around them saves, where there are instructions for it. */
static bool outgrows_caches(int64_t bytes) {
#ifdef __SSE2__
  const int64_t never = 4 << 20; /* smaller than any: not worth a question */
  return bytes > never && bytes > sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  return (void)bytes, false;
#endif
}

fl_status cpu_rows_run(int n_tensors, DLTensor *const *tensors, cpu_row_cost cost, cpu_row_fn row, const void *user) {
  rows_loop loop = {cpu_rows_begin(n_tensors, tensors), row, user};
  loop.begin.around = outgrows_caches(loop.begin.left * cost.written);
  return cpu_parallel_for(loop.begin.left, cpu_grain(cost.work), run_range, &loop);
}
