/* What the host knows of tile.h. */
#ifndef FLHOST_GPU_ARGUMENTS_TILE_H
#define FLHOST_GPU_ARGUMENTS_TILE_H

/* Threads of a block, and summands of a step */
enum { GPU_TILE_THREADS = 256, GPU_TILE_DEPTH = 32 };

#endif
