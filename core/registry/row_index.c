/* Staged rows by hash: see row_index.h. */
#include "core/registry/row_index.h"

#include <stdlib.h>

static void put(fl_row_index *index, fl_row_place row) {
  uint32_t mask = index->n_places - 1, i = row.hash & mask;
  while (index->places[i].row)
    i = (i + 1) & mask;
  index->places[i] = row;
}

/* From the few to the table, or twice the room there. */
static bool grow(fl_row_index *index) {
  enum { FIRST_PLACES = 16 };
  fl_row_index grown = {.n_places = index->n_places ? 2 * index->n_places : FIRST_PLACES, .n = index->n};
  grown.places = grown.n_places ? calloc(grown.n_places, sizeof *grown.places) : NULL;
  if (!grown.places)
    return false;
  const fl_row_place *from = index->places ? index->places : index->few;
  uint32_t n = index->places ? index->n_places : index->n;
  for (uint32_t i = 0; i < n; i++)
    if (from[i].row)
      put(&grown, from[i]);
  free(index->places);
  *index = grown;
  return true;
}

bool fl_row_index_add(fl_row_index *index, uint64_t hash, uint32_t row) {
  const fl_row_place place = {.row = row + 1, .hash = (uint32_t)hash};
  if (!index->places && index->n < FL_ROWS_FEW) {
    index->few[index->n++] = place;
    return true;
  }
  if (2 * (uint64_t)index->n >= index->n_places && !grow(index))
    return false;
  put(index, place);
  index->n++;
  return true;
}

uint32_t fl_row_index_next(const fl_row_index *index, uint64_t hash, uint32_t *at) {
  uint32_t mask = index->n_places - 1;
  while (index->places || *at < index->n) {
    const fl_row_place *place = index->places ? &index->places[((uint32_t)hash + *at) & mask] : &index->few[*at];
    if (!place->row)
      break;
    ++*at;
    if (place->hash == (uint32_t)hash)
      return place->row - 1;
  }
  return UINT32_MAX;
}

void fl_row_index_free(fl_row_index *index) {
  free(index->places);
  *index = (fl_row_index){0};
}
