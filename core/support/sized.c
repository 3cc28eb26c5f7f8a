/* Structs of any header: see sized.h. */
#include "core/support/sized.h"

#include "core/support/error.h"

#include <string.h>

static uint32_t size_of(const void *given) {
  uint32_t size;
  memcpy(&size, given, sizeof size);
  return size;
}

/* What is behind the source's end is zero. */
static void copy(void *to, size_t to_size, const void *from, size_t from_size) {
  size_t common = from_size < to_size ? from_size : to_size;
  memcpy(to, from, common);
  memset((char *)to + common, 0, to_size - common);
}

fl_status fl_sized_check(const void *given, size_t least, const char *whose, const char *type) {
  if (!given)
    return fl_error(FL_EINVAL, "a null pointer, expected a %s", type);
  uint32_t size = size_of(given);
  return size < least ? fl_error(FL_EINVAL, "%s size is %u bytes, expected at least %zu: set .size = sizeof(%s)", whose,
                                 (unsigned)size, least, type)
                      : FL_OK;
}

void fl_sized_take(void *to, size_t size, const void *given) {
  uint32_t own = (uint32_t)size;
  copy(to, size, given, size_of(given));
  memcpy(to, &own, sizeof own);
}

void fl_sized_give(void *given, const void *made, size_t size) {
  uint32_t theirs = size_of(given);
  copy(given, theirs, made, size);
  memcpy(given, &theirs, sizeof theirs);
}

void fl_elements_take(void *to, size_t size, const void *given, size_t given_size, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    copy((char *)to + i * size, size, (const char *)given + i * given_size, given_size);
}

void fl_elements_give(void *given, size_t given_size, const void *made, size_t size, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    copy((char *)given + i * given_size, given_size, (const char *)made + i * size, size);
}
