/*
 * Fuzzing: what every target has in common. A target is a file in tests/fuzz/targets that feeds
 * LLVMFuzzerTestOneInput's bytes to one reader of other people's text, and aborts with words where a promise does not
 * hold. `make fuzz` links it with libFuzzer; the suite test_fuzz links it with replay.c and runs what is kept in
 * tests/fuzz/corpus.
 */
#ifndef FLHOST_TESTS_FUZZ_H
#define FLHOST_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes as the file "fuzz.yaml" in a directory of this process's own; its path, the same each time. The directory
 * goes with the process. */
const char *fuzz_file(const uint8_t *data, size_t size);
/* The same under another name, which may have a directory of its own before it; the path is good until the next. */
const char *fuzz_named_file(const char *name, const uint8_t *data, size_t size);
/* That directory. */
const char *fuzz_directory(void);

/* Splits the bytes at each newline into strings, the last one the rest; NULs become spaces. `n` strings at most, those
 * that are missing are NULL, as is parts[n]. Valid until the next call. */
void fuzz_split(const uint8_t *data, size_t size, const char **parts, size_t n);

/* Aborts, with the words on standard error. */
_Noreturn void fuzz_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
