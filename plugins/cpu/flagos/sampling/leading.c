/* The first elements of a row: see leading.h. */
#include "plugins/cpu/flagos/sampling/leading.h"
#include "plugins/cpu/flagos/sampling/probability.h"
#include "plugins/cpu/flagos/vectors/chunk.h"

#include <float.h>

static int64_t chunks_of(int64_t size) {
  return (size + CPU_CHUNK - 1) / CPU_CHUNK;
}

size_t cpu_leading_bytes(int64_t size) {
  return (size_t)size * sizeof(uint64_t) + (size_t)chunks_of(size) * sizeof(uint32_t);
}

/* Of the chunk; lanes behind the row's end are none. */
CPU_TEMPLATE uint32_t largest_of(const float *row, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  uint32_t largest = 0;
  cpu_load_ahead(CPU_FLOAT32, values, row, first, n);
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint32_t bits = n == CPU_CHUNK || i < n ? cpu_order_bits(values[i]) : 0;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

cpu_leading cpu_leading_begin(const float *values, int64_t size, void *memory) {
  cpu_leading row = {.values = values, .size = size, .keys = memory};
  const int64_t whole = size / CPU_CHUNK;
  row.largest = (uint32_t *)(row.keys + size);
  for (int64_t chunk = 0; chunk < whole; chunk++)
    row.largest[chunk] = largest_of(values, chunk * CPU_CHUNK, CPU_CHUNK);
  if (whole < chunks_of(size))
    row.largest[whole] = largest_of(values, whole * CPU_CHUNK, size % CPU_CHUNK);
  for (int64_t chunk = 0; chunk < chunks_of(size); chunk++)
    row.most = row.largest[chunk] > row.most ? row.largest[chunk] : row.most;
  return row;
}

/* ------------------------------------------------------------------------------------------------------------- keys */

static void swap(uint64_t *a, uint64_t *b) {
  uint64_t kept = *a;
  *a = *b;
  *b = kept;
}

/* Puts what is above one of n keys, about a middle one, before that, and the rest behind; its place. */
static int64_t split(uint64_t *keys, int64_t n) {
  uint64_t *a = keys + n / 4, *b = keys + n / 2, *c = keys + n - 1 - n / 4;
  uint64_t *middle = (*a < *b) == (*b < *c) ? b : (*b < *a) == (*a < *c) ? a : c;
  uint64_t pivot = *middle;
  int64_t above = 0;
  swap(middle, keys + n - 1);
  for (int64_t i = 0; i < n - 1; i++) { /* without a branch, which would go either way */
    uint64_t key = keys[i];
    keys[i] = keys[above];
    keys[above] = key;
    above += key > pivot;
  }
  swap(keys + above, keys + n - 1);
  return above;
}

static void choose(uint64_t *keys, int64_t n, int64_t wanted) {
  while (n > wanted) {
    int64_t at = split(keys, n);
    if (at >= wanted) {
      n = at;
    } else {
      keys += at + 1;
      n -= at + 1;
      wanted -= at + 1;
    }
  }
}

void cpu_leading_sort(uint64_t *keys, int64_t n) {
  enum { FEW = 12 };
  while (n > FEW) {
    int64_t at = split(keys, n), behind = n - at - 1;
    bool few_before = at < behind;
    cpu_leading_sort(few_before ? keys : keys + at + 1, few_before ? at : behind);
    keys = few_before ? keys + at + 1 : keys;
    n = few_before ? behind : at;
  }
  for (int64_t i = 1; i < n; i++) {
    uint64_t key = keys[i];
    int64_t at = i;
    for (; at > 0 && keys[at - 1] < key; at--)
      keys[at] = keys[at - 1];
    keys[at] = key;
  }
}

uint64_t cpu_leading_last(const uint64_t *keys, int64_t n) {
  uint64_t least = UINT64_MAX;
  for (int64_t i = 0; i < n; i++)
    least = keys[i] < least ? keys[i] : least;
  return least;
}

/* The keys of all elements that are not below `bound`; how many. */
static int64_t collect(const cpu_leading *row, uint32_t bound) {
  int64_t n = 0;
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK)
    for (int64_t i = first; row->largest[first / CPU_CHUNK] >= bound && i < row->size && i < first + CPU_CHUNK; i++) {
      uint64_t key = cpu_order_key(row->values[i], i);
      row->keys[n] = key;
      n += key >> 32 >= bound;
    }
  return n;
}

void cpu_leading_choose(const cpu_leading *row, int64_t n) {
  int64_t chunks = chunks_of(row->size);
  uint32_t bound = 0;
  if (n <= chunks / 2) {
    /* The n largest of the chunks are n elements: none of the first n is below the last of these. */
    for (int64_t i = 0; i < chunks; i++)
      row->keys[i] = (uint64_t)row->largest[i] << 32 | (uint32_t)i;
    choose(row->keys, chunks, n);
    bound = (uint32_t)(cpu_leading_last(row->keys, n) >> 32);
  }
  choose(row->keys, collect(row, bound), n);
}

/* ---------------------------------------------------------------------------------------------------- probabilities */

static double weigh(const cpu_leading *row, uint64_t key) {
  return probability_exp((double)cpu_order_value_of(key) - (double)cpu_order_value(row->most));
}

static double weigh_all(const cpu_leading *row, const uint64_t *keys, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += weigh(row, keys[i]);
  return sum;
}

/* The last of n keys, in their order, before which there is less than `wanted`; at least the first. */
static uint64_t last_before(const cpu_leading *row, uint64_t *keys, int64_t n, double wanted) {
  uint64_t last = UINT64_MAX;
  double before = 0;
  wanted = wanted > DBL_MIN ? wanted : DBL_MIN;
  while (n && before < wanted) {
    int64_t at = split(keys, n);
    double with = before + weigh_all(row, keys, at);
    if (at && with >= wanted) {
      n = at;
      continue;
    }
    last = keys[at];
    before = with + weigh(row, last);
    keys += at + 1;
    n -= at + 1;
  }
  return last;
}

uint64_t cpu_leading_part_of_keys(const cpu_leading *row, int64_t n, double part) {
  return last_before(row, row->keys, n, part * weigh_all(row, row->keys, n));
}

/* Elements by how far they are below the largest: so many ranges, of an eighth each. The last has all that is beyond.
 */
enum { RANGES = 256, RANGES_OF_1 = 8, TABLES = 4 };

/* Lanes behind the row's end are -infinity. */
CPU_TEMPLATE void load_chunk(const cpu_leading *row, int64_t first, float *values) {
  int64_t n = row->size - first;
  if (n >= CPU_CHUNK) {
    cpu_load_ahead(CPU_FLOAT32, values, row->values, first, CPU_CHUNK);
    return;
  }
  cpu_load(CPU_FLOAT32, values, row->values, first, n);
  for (int64_t i = n; i < CPU_CHUNK; i++)
    values[i] = -INFINITY;
}

CPU_TEMPLATE void find_ranges(const cpu_leading *row, const float *values, int32_t *range) {
  float most = cpu_order_value(row->most);
  for (int i = 0; i < CPU_CHUNK; i++) {
    float at = (most - values[i]) * RANGES_OF_1;
    range[i] = (int32_t)(at < RANGES - 1 ? at : RANGES - 1);
  }
}

/* Sums of several tables: an addition is not to wait for the one before it. */
static void weigh_ranges(const cpu_leading *row, double sums[TABLES][RANGES]) {
  double most = (double)cpu_order_value(row->most);
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    float values[CPU_CHUNK];
    double weights[CPU_CHUNK];
    int32_t range[CPU_CHUNK];
    load_chunk(row, first, values);
    find_ranges(row, values, range);
    for (int i = 0; i < CPU_CHUNK; i++)
      weights[i] = probability_exp((double)values[i] - most);
    for (int i = 0; i < CPU_CHUNK; i++)
      sums[i % TABLES][range[i]] += weights[i];
  }
}

/* The keys of the elements in a range; how many. */
static int64_t collect_range(const cpu_leading *row, int32_t wanted) {
  int64_t n = 0;
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    float values[CPU_CHUNK];
    int32_t range[CPU_CHUNK], any = 0;
    load_chunk(row, first, values);
    find_ranges(row, values, range);
    for (int i = 0; i < CPU_CHUNK; i++)
      any |= range[i] == wanted;
    for (int64_t i = 0; any && i < CPU_CHUNK && first + i < row->size; i++) {
      row->keys[n] = cpu_order_key(values[i], first + i);
      n += range[i] == wanted;
    }
  }
  return n;
}

uint64_t cpu_leading_part(const cpu_leading *row, double part) {
  double sums[TABLES][RANGES] = {{0}}, all = 0, before = 0;
  int32_t range = 0;
  weigh_ranges(row, sums);
  for (int i = 0; i < RANGES; i++) {
    sums[0][i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    all += sums[0][i];
  }
  for (; range < RANGES - 1 && before + sums[0][range] < part * all; range++)
    before += sums[0][range];
  int64_t n = collect_range(row, range);
  return last_before(row, row->keys, n, part * all - before);
}
