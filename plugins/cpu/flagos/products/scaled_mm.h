/* Products with a weight of 8 bits, which experts have, too; and what the files of scaled_mm share: products of a few
 * rows, and how a row of the result ends. */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_SCALED_MM_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_SCALED_MM_H

#include "plugins/cpu/quantised_linear.h"

/* In as many threads as pay; FL_ENOMEM. */
fl_status cpu_scaled_mm_run(const cpu_scaled_mm *mm);

/* Elements [row, first] to [row, first + n - 1] of the result, n <= CPU_BLOCK, of sums that have their scales already
 * where those are of blocks; `sums` is changed. */
void cpu_scaled_mm_end(const cpu_scaled_mm *mm, int64_t row, int64_t first, int64_t n, float *sums);

/* A few rows times a weight that is read once and unpacked in registers: is it a case for that? Then does it, in as
 * many threads as pay; FL_ENOMEM. */
bool cpu_scaled_rows_take(const cpu_scaled_mm *mm);
fl_status cpu_scaled_rows(const cpu_scaled_mm *mm);

/* Elements `first` to first + n - 1 of a row of x that is no integers, n <= CPU_BLOCK, as floats. */
void cpu_scaled_mm_widen(const cpu_scaled_mm *mm, float *restrict to, int64_t row, int64_t first, int64_t n);
/* Codes of e4m3fn as floats. */
void cpu_widen_float8(float *restrict to, const uint8_t *restrict from, int64_t n);

#endif
