/*
 * Planes: elements of an array, to be taken as floats, lane by lane, whichever way they lie in memory. A kernel of many
 * equal computations (channels, elements of a head) has one in each lane: its loops over the lanes have a fixed length,
 * of which compilers make vector instructions, and nothing is ever added up across lanes.
 */
#ifndef FLHOST_CPU_FLAGOS_RECURRENCES_PLANE_H
#define FLHOST_CPU_FLAGOS_RECURRENCES_PLANE_H

#include "plugins/cpu/state_space.h"

/* Two vectors of AVX-512 wide; and so many tokens, of which all that a kernel needs stays in the caches. */
enum { CPU_PLANE_LANES = 32, CPU_PLANE_ROWS = 64 };

/* Elements [row, lane] by strides in elements; `data` is NULL where there is no tensor: all are 0. */
typedef struct cpu_plane {
  void *data;
  cpu_dtype dtype;
  int64_t row, lane;
} cpu_plane;

/* From element [i, j, k] of an array on: rows along its dimension `row`, lanes along `lane`. */
cpu_plane cpu_plane_at(const cpu_array *array, int row, int lane, int64_t i, int64_t j, int64_t k);
/* The plane from row `row` on. */
cpu_plane cpu_plane_from(const cpu_plane *plane, int64_t row);

/* Rows of `to` and `from` are `width` floats; of those that are loaded, the floats behind the lanes are set to 0. */
void cpu_plane_load(const cpu_plane *plane, int64_t rows, int64_t lanes, float *to, int64_t width);
void cpu_plane_store(const cpu_plane *plane, int64_t rows, int64_t lanes, const float *from, int64_t width);
void cpu_plane_zero(const cpu_plane *plane, int64_t rows, int64_t lanes);

#endif
