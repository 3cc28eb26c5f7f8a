/*
 * Finds staged rows by hash, so that a plugin of a hundred thousand rows is no different from one of ten. Knows the
 * numbers of rows alone: whoever looks compares the rows that have the hash.
 */
#ifndef FLHOST_CORE_REGISTRY_ROW_INDEX_H
#define FLHOST_CORE_REGISTRY_ROW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_row_place {
  uint32_t row; /* its number + 1; 0: empty */
  uint32_t hash;
} fl_row_place;

enum { FL_ROWS_FEW = 4 };

/* Zero-initialise. */
typedef struct fl_row_index {
  fl_row_place *places;          /* open addressing; NULL: all are among the few */
  uint32_t n_places, n;          /* a power of two, twice as many as rows at least */
  fl_row_place few[FL_ROWS_FEW]; /* one after the other: an engine hands in one row at a time */
} fl_row_index;

/* false: out of memory, and it is as it was. */
bool fl_row_index_add(fl_row_index *index, uint64_t hash, uint32_t row);

/* The next row of that hash: begin with *at = 0. UINT32_MAX: there is none. */
uint32_t fl_row_index_next(const fl_row_index *index, uint64_t hash, uint32_t *at);

void fl_row_index_free(fl_row_index *index);

#endif
