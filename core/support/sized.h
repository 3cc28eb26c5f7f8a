/*
 * Structs that cross the interface in the version of the other side's header (plugin.h, "Sizes"): what a smaller one
 * lacks reads as zero, and what a larger one has beyond is neither looked at nor left to chance.
 */
#ifndef FLHOST_CORE_SUPPORT_SIZED_H
#define FLHOST_CORE_SUPPORT_SIZED_H

#include <flhost/base.h>

/* The caller's struct must have its first `least` bytes. FL_EINVAL: "WHOSE size is 0 bytes, expected at least 24: set
 * .size = sizeof(TYPE)"; also if it is NULL. */
fl_status fl_sized_check(const void *given, size_t least, const char *whose, const char *type);

/* Copies what the caller's struct has into ours of `size` bytes, and sets the size of that. */
void fl_sized_take(void *to, size_t size, const void *given);

/* Fills the caller's struct from ours of `size` bytes, but for the caller's size. */
void fl_sized_give(void *given, const void *made, size_t size);

/* The same two for an array, whose elements have their size beside them: ours are `size` bytes each. */
void fl_elements_take(void *to, size_t size, const void *given, size_t given_size, uint32_t n);
void fl_elements_give(void *given, size_t given_size, const void *made, size_t size, uint32_t n);

#endif
