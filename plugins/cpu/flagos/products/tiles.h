/*
 * Tiles of bfloat16, which the processor multiplies (AMX): registers of TILE_EDGE rows of 64 bytes. A tile of factors
 * [TILE_EDGE, TILE_DEPTH] has rows as they lie in memory; one of columns [TILE_DEPTH / 2, TILE_EDGE] has pairs of
 * neighbours, from top to bottom, in places of 4 bytes; sums [TILE_EDGE, TILE_EDGE] are floats, to which _tile_dpbf16ps
 * adds factors times columns. Numbers that are smaller than normal ones count as 0.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_TILES_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_TILES_H

#ifdef __AMX_BF16__
#include <immintrin.h>
#include <stdint.h>

enum { TILE_EDGE = 16, TILE_DEPTH = 32 };

/* Between these two the thread has tiles, all whole; nobody else's code is called there, which may have its own. */
static inline void begin_tiles(void) {
  static const struct {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } whole = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&whole);
}

static inline void end_tiles(void) {
  _tile_release();
}

/* What was stored before is in memory, and what is there is read after: compilers do not know that tiles are loaded
 * and stored. */
#define SYNC_TILES __asm__ volatile("" ::: "memory")

#endif
#endif
