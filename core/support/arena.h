/*
 * Memory that is freed together: what a result that is given out is made of. Whoever fills a result asks for memory as
 * often as he likes, and asks once, at the end, whether all of it was there.
 */
#ifndef FLHOST_CORE_SUPPORT_ARENA_H
#define FLHOST_CORE_SUPPORT_ARENA_H

#include "core/support/text.h"

/* Zero-initialise. After an allocation failed, `failed` is set and no more memory is given. */
typedef struct fl_arena {
  struct fl_arena_block *blocks;
  bool failed;
} fl_arena;

/* Zeroed, aligned for any type. NULL: out of memory, now or before. */
void *fl_arena_allocate(fl_arena *arena, size_t size);
/* An array; never NULL for n 0 unless out of memory. */
void *fl_arena_array(fl_arena *arena, size_t n, size_t item_size);

/* Copies; NULL gives NULL, and "" stands where there was no memory, so that it can be read on. */
const char *fl_arena_string(fl_arena *arena, const char *string);
const char *fl_arena_bytes(fl_arena *arena, const char *bytes, size_t length);
const char *fl_arena_format(fl_arena *arena, const char *format, ...) FL_PRINTF(2, 3);
/* Of a text, which is freed: if it has failed, so has the arena. */
const char *fl_arena_text(fl_arena *arena, fl_text *text);
/* An array of copies that ends in NULL. NULL: out of memory. */
const char **fl_arena_strings(fl_arena *arena, const char *const *strings, uint32_t n);

void fl_arena_free(fl_arena *arena);

/* An object of `size` bytes, zeroed, that is given out as a pointer alone: it and all that *arena gives are freed by
 * fl_arena_destroy, which ignores NULL. NULL: out of memory. */
void *fl_arena_create(size_t size, fl_arena **arena);
void fl_arena_destroy(void *object, size_t size);

/* The end of making it. FL_OK: all memory was there; else FL_ENOMEM, and the object is destroyed. */
fl_status fl_arena_finish(void *object, size_t size);

#endif
