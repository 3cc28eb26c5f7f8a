/* Memory that is freed together: see arena.h. */
#include "core/support/arena.h"
#include "core/support/error.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct fl_arena_block {
  struct fl_arena_block *older;
  size_t used, room;
  alignas(max_align_t) char bytes[];
};

/* Of the first block and the largest; each has twice the room of the one before. */
enum { FIRST_ROOM = 448, MOST_ROOM = 1 << 14 };

static struct fl_arena_block *add_block(fl_arena *arena, size_t least) {
  size_t room = arena->blocks ? 2 * arena->blocks->room : FIRST_ROOM;
  if (room > MOST_ROOM)
    room = MOST_ROOM;
  if (room < least)
    room = least;
  struct fl_arena_block *block = room < SIZE_MAX - sizeof *block ? malloc(sizeof *block + room) : NULL;
  if (!block)
    return NULL;
  *block = (struct fl_arena_block){.older = arena->blocks, .room = room};
  return arena->blocks = block;
}

/* `align` is a power of two. What a block has left when it gets too small is lost. */
static void *take(fl_arena *arena, size_t size, size_t align) {
  struct fl_arena_block *block = arena->blocks;
  size_t at = block ? (block->used + align - 1) & ~(align - 1) : 0;
  if (arena->failed)
    return NULL;
  if (!block || at > block->room || size > block->room - at) {
    block = add_block(arena, size);
    at = 0;
  }
  arena->failed = !block;
  if (!block)
    return NULL;
  block->used = at + size;
  return block->bytes + at;
}

void *fl_arena_allocate(fl_arena *arena, size_t size) {
  void *memory = take(arena, size, alignof(max_align_t));
  return memory && size ? memset(memory, 0, size) : memory;
}

void *fl_arena_array(fl_arena *arena, size_t n, size_t item_size) {
  size_t size;
  if (__builtin_mul_overflow(n, item_size, &size))
    size = SIZE_MAX;
  return fl_arena_allocate(arena, size);
}

const char *fl_arena_bytes(fl_arena *arena, const char *bytes, size_t length) {
  char *kept = take(arena, length + 1, 1);
  if (!kept)
    return "";
  memcpy(kept, bytes, length);
  kept[length] = 0;
  return kept;
}

const char *fl_arena_string(fl_arena *arena, const char *string) {
  return string ? fl_arena_bytes(arena, string, strlen(string)) : NULL;
}

const char *fl_arena_format(fl_arena *arena, const char *format, ...) {
  char first[256]; /* most need no more room, and so are formatted once */
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(first, sizeof first, format, arguments);
  va_end(arguments);
  if (length >= 0 && (size_t)length < sizeof first)
    return fl_arena_bytes(arena, first, (size_t)length);
  char *text = length < 0 ? NULL : take(arena, (size_t)length + 1, 1);
  arena->failed |= !text;
  if (!text)
    return "";
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

const char *fl_arena_text(fl_arena *arena, fl_text *text) {
  arena->failed |= text->failed;
  const char *kept = fl_arena_bytes(arena, fl_text_get(text), text->length);
  fl_text_free(text);
  return kept;
}

const char **fl_arena_strings(fl_arena *arena, const char *const *strings, uint32_t n) {
  const char **kept = fl_arena_array(arena, (size_t)n + 1, sizeof *kept);
  for (uint32_t i = 0; kept && i < n; i++)
    kept[i] = fl_arena_string(arena, strings[i]);
  return kept;
}

void fl_arena_free(fl_arena *arena) {
  for (struct fl_arena_block *block = arena->blocks, *older; block; block = older) {
    older = block->older;
    free(block);
  }
  *arena = (fl_arena){0};
}

/* ------------------------------------------------------------------------------------------------ given-out objects */

/* Behind the object, which so is what the allocator gave: tools that look for leaks follow pointers to beginnings. */
static fl_arena *arena_of(void *object, size_t size) {
  return (fl_arena *)((char *)object + (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t));
}

void *fl_arena_create(size_t size, fl_arena **arena) {
  void *object = calloc(1, size + alignof(max_align_t) + sizeof **arena);
  if (object)
    *arena = arena_of(object, size);
  return object;
}

void fl_arena_destroy(void *object, size_t size) {
  if (!object)
    return;
  fl_arena_free(arena_of(object, size));
  free(object);
}

fl_status fl_arena_finish(void *object, size_t size) {
  if (!arena_of(object, size)->failed)
    return FL_OK;
  fl_arena_destroy(object, size);
  return fl_error_no_memory();
}
