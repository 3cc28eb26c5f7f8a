/* Planes in and out of memory: see plane.h. */
#include "plugins/cpu/flagos/recurrences/plane.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/lanes.h"

static void *address(const cpu_plane *plane, int64_t row, int64_t lane) {
  return (char *)plane->data + (row * plane->row + lane * plane->lane) * cpu_dtype_size(plane->dtype);
}

cpu_plane cpu_plane_at(const cpu_array *array, int row, int lane, int64_t i, int64_t j, int64_t k) {
  cpu_plane plane = {NULL, array->dtype, array->stride[row], array->stride[lane]};
  if (array->data)
    plane.data = (char *)array->data + cpu_at(array, i, j, k, 0) * cpu_dtype_size(array->dtype);
  return plane;
}

cpu_plane cpu_plane_from(const cpu_plane *plane, int64_t row) {
  cpu_plane from = *plane;
  if (from.data)
    from.data = address(plane, row, 0);
  return from;
}

/* ---------------------------------------------------------------------------------------------- one after the other */

CPU_TEMPLATE float get(cpu_dtype dtype, const void *element) {
  if (dtype == CPU_FLOAT32)
    return *(const cpu_element32 *)element;
  cpu_element16 bits = *(const cpu_element16 *)element;
  return dtype == CPU_FLOAT16 ? cpu_half_to_float(bits) : fl_bf16_to_float(bits);
}

CPU_TEMPLATE void put(cpu_dtype dtype, void *element, float value) {
  if (dtype == CPU_FLOAT32)
    *(cpu_element32 *)element = value;
  else
    *(cpu_element16 *)element = dtype == CPU_FLOAT16 ? cpu_float_to_half(value) : fl_float_to_bf16(value);
}

/* Few rows that lie together, lane after lane, as a short state does: a fixed number, for vectors. */
CPU_TEMPLATE void load_groups(cpu_dtype dtype, int rows, const char *restrict from, int64_t lanes, float *restrict to) {
  for (int64_t lane = 0; lane < lanes; lane++)
    for (int row = 0; row < rows; row++)
      to[row * CPU_PLANE_LANES + lane] = get(dtype, from + (lane * rows + row) * cpu_dtype_size(dtype));
}

CPU_TEMPLATE void store_groups(cpu_dtype dtype, int rows, char *restrict to, int64_t lanes,
                               const float *restrict from) {
  for (int64_t lane = 0; lane < lanes; lane++)
    for (int row = 0; row < rows; row++)
      put(dtype, to + (lane * rows + row) * cpu_dtype_size(dtype), from[row * CPU_PLANE_LANES + lane]);
}

static bool is_grouped(const cpu_plane *plane, int64_t rows, int64_t width) {
  return plane->row == 1 && plane->lane == rows && width == CPU_PLANE_LANES;
}

/* Tiles, of which each lane's rows lie together: as many lanes as a vector has, and as many rows; of 16 bits those of a
 * chunk, which is stored at once. */
static int64_t tile_size(cpu_dtype dtype) {
  return dtype == CPU_FLOAT32 ? LANES : CPU_CHUNK;
}

CPU_TEMPLATE void load_tile_of(cpu_dtype dtype, const cpu_plane *plane, int64_t row, int64_t lane, float *to,
                               int64_t width) {
  vector tile[LANES];
  UNROLL for (int i = 0; i < LANES; i++) tile[i] = load_lanes(dtype, address(plane, row, lane + i), 0);
  transpose(tile);
  UNROLL for (int i = 0; i < LANES; i++) * (vector *)(to + (row + i) * width + lane) = tile[i];
}

/* Functions of their own: what has no tiles shall not make room for them. */
static __attribute__((noinline)) void load_tile(const cpu_plane *plane, int64_t row, int64_t lane, float *to,
                                                int64_t width) {
  if (plane->dtype == CPU_FLOAT32)
    load_tile_of(CPU_FLOAT32, plane, row, lane, to, width);
  else if (plane->dtype == CPU_FLOAT16)
    load_tile_of(CPU_FLOAT16, plane, row, lane, to, width);
  else
    load_tile_of(CPU_BFLOAT16, plane, row, lane, to, width);
}

static __attribute__((noinline)) void store_tile(const cpu_plane *plane, int64_t row, int64_t lane, const float *from,
                                                 int64_t width) {
  const int64_t size = tile_size(plane->dtype);
  float rows[LANES][CPU_CHUNK];
  for (int64_t part = 0; part < size; part += LANES) {
    vector tile[LANES];
    UNROLL for (int i = 0; i < LANES; i++) tile[i] = *(const vector *)(from + (row + part + i) * width + lane);
    transpose(tile);
    UNROLL for (int i = 0; i < LANES; i++) * (vector *)(rows[i] + part) = tile[i];
  }
  for (int i = 0; i < LANES; i++)
    cpu_block_types[plane->dtype].store(address(plane, row, lane + i), 0, rows[i], size);
}

/* How many of `n` are in whole tiles. */
static int64_t in_tiles(const cpu_plane *plane, int64_t n, int64_t size) {
  return plane->row == 1 ? n - n % size : 0;
}

/* Each lane's rows in turn: they are nearer to each other than the lanes are. */
CPU_TEMPLATE void load_by_lanes(cpu_dtype dtype, const cpu_plane *plane, int64_t rows, int64_t lanes,
                                float *restrict to, int64_t width) {
  const int64_t step = plane->row * cpu_dtype_size(dtype);
  if (rows == 3 && is_grouped(plane, 3, width)) {
    load_groups(dtype, 3, plane->data, lanes, to);
    return;
  }
  if (rows == 4 && is_grouped(plane, 4, width)) {
    load_groups(dtype, 4, plane->data, lanes, to);
    return;
  }
  const int64_t tile_rows = in_tiles(plane, rows, LANES), tile_lanes = in_tiles(plane, lanes, LANES);
  for (int64_t lane = 0; lane < tile_lanes; lane += LANES)
    for (int64_t row = 0; row < tile_rows; row += LANES)
      load_tile(plane, row, lane, to, width);
  for (int64_t lane = 0; lane < lanes; lane++) {
    const char *from = address(plane, 0, lane);
    for (int64_t row = lane < tile_lanes ? tile_rows : 0; row < rows; row++)
      to[row * width + lane] = get(dtype, from + row * step);
  }
}

CPU_TEMPLATE void store_by_lanes(cpu_dtype dtype, const cpu_plane *plane, int64_t rows, int64_t lanes,
                                 const float *restrict from, int64_t width) {
  const int64_t step = plane->row * cpu_dtype_size(dtype);
  if (rows == 3 && is_grouped(plane, 3, width)) {
    store_groups(dtype, 3, plane->data, lanes, from);
    return;
  }
  const int64_t tile_rows = in_tiles(plane, rows, tile_size(dtype)), tile_lanes = in_tiles(plane, lanes, LANES);
  for (int64_t lane = 0; lane < tile_lanes; lane += LANES)
    for (int64_t row = 0; row < tile_rows; row += tile_size(dtype))
      store_tile(plane, row, lane, from, width);
  for (int64_t lane = 0; lane < lanes; lane++) {
    char *to = address(plane, 0, lane);
    for (int64_t row = lane < tile_lanes ? tile_rows : 0; row < rows; row++)
      put(dtype, to + row * step, from[row * width + lane]);
  }
}

/* ------------------------------------------------------------------------------------------------------- in and out */

void cpu_plane_load(const cpu_plane *plane, int64_t rows, int64_t lanes, float *to, int64_t width) {
  int64_t loaded = plane->data ? lanes : 0;
  for (int64_t row = 0; loaded < width && row < rows; row++)
    memset(to + row * width + loaded, 0, (size_t)(width - loaded) * sizeof *to);
  if (!plane->data)
    return;
  if (plane->lane == 1)
    for (int64_t row = 0; row < rows; row++)
      cpu_block_types[plane->dtype].load(to + row * width, address(plane, row, 0), 0, lanes);
  else if (plane->dtype == CPU_FLOAT32)
    load_by_lanes(CPU_FLOAT32, plane, rows, lanes, to, width);
  else if (plane->dtype == CPU_FLOAT16)
    load_by_lanes(CPU_FLOAT16, plane, rows, lanes, to, width);
  else
    load_by_lanes(CPU_BFLOAT16, plane, rows, lanes, to, width);
}

void cpu_plane_store(const cpu_plane *plane, int64_t rows, int64_t lanes, const float *from, int64_t width) {
  if (plane->lane == 1)
    for (int64_t row = 0; row < rows; row++)
      cpu_block_types[plane->dtype].store(address(plane, row, 0), 0, from + row * width, lanes);
  else if (plane->dtype == CPU_FLOAT32)
    store_by_lanes(CPU_FLOAT32, plane, rows, lanes, from, width);
  else if (plane->dtype == CPU_FLOAT16)
    store_by_lanes(CPU_FLOAT16, plane, rows, lanes, from, width);
  else
    store_by_lanes(CPU_BFLOAT16, plane, rows, lanes, from, width);
}

void cpu_plane_zero(const cpu_plane *plane, int64_t rows, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; lane++)
    for (int64_t row = 0; row < rows; row++)
      memset(address(plane, row, lane), 0, (size_t)cpu_dtype_size(plane->dtype));
}
