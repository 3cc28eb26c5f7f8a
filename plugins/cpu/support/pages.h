/* Pages of memory: where one lies is looked up when it is first touched. */
#ifndef FLHOST_CPU_SUPPORT_PAGES_H
#define FLHOST_CPU_SUPPORT_PAGES_H

#include <stdint.h>

enum { CPU_PAGE = 4096 };

/* Fetches a line of each page of memory that is read or written soon. While a page is looked up some processors compute
 * nothing, even if it is only fetched from: asked for at once, all pages take little longer than one. It is no function
 * without an effect, which compilers would leave out. */
static inline void cpu_touch_pages(const void *memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += CPU_PAGE)
    __builtin_prefetch((const char *)memory + at, 0, 2);
  __asm__ volatile("");
}

#endif
