/* A hash of names, as tables of them need. */
#ifndef FLHOST_CORE_SUPPORT_HASH_H
#define FLHOST_CORE_SUPPORT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t fl_hash_mix(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Eight bytes at a time; the constants are odd numbers with as many ones as zeros. */
static inline uint64_t fl_hash_name(const char *name, size_t length) {
  const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t hash = k ^ length, word;
  for (; length >= 8; name += 8, length -= 8) {
    memcpy(&word, name, 8);
    hash = fl_hash_mix(hash ^ word, k);
  }
  word = 0;
  if (length >= 4) {
    uint32_t low, high;
    memcpy(&low, name, 4);
    memcpy(&high, name + length - 4, 4);
    word = (uint64_t)high << 32 | low;
  } else if (length) {
    word = (uint64_t)(unsigned char)name[0] << 16 | (uint64_t)(unsigned char)name[length / 2] << 8 |
           (unsigned char)name[length - 1];
  }
  return fl_hash_mix(hash ^ word, UINT64_C(0xd6e8feb86659fd93));
}

#endif
