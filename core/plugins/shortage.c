/*
 * Shortages, by the words of a reason: see shortage.h. The dynamic linker gives nothing else. It does not promise
 * errno, and by the time dlopen returns its own clean-up has often changed that; and neither RLIMIT_NOFILE nor opening
 * something else tells, since what was short is there again as soon as it has given back what it took. But its words
 * end in those of strerror for the number that it met, in the same language, and what it says without a number is in
 * the list below.
 */
#include "core/plugins/shortage.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The first that fits decides. */
static const struct {
  const char *words;
  enum { ANYWHERE, AT_END, ALL } where;
  bool is_shortage;
} without_number[] = {
    /* Of a surplus that the process reserved when it started: it will not grow. */
    {"cannot allocate memory in static TLS block", ANYWHERE, false},
    {"returned FL_ENOMEM", ANYWHERE, true}, /* register_builtins */
    {"cannot create ", ANYWHERE, true},     /* cache for search path, scope list, TLS data structures, … */
    {"cannot allocate ", ANYWHERE, true},   /* dependency list, name record, symbol search list, … */
    {"cannot open shared object file", AT_END, true},
    {"out of memory", ALL, true}, /* not even for the words of another error */
};
enum { N_WITHOUT_NUMBER = sizeof without_number / sizeof *without_number };

static bool fits(const char *reason, size_t i) {
  const char *words = without_number[i].words, *found = strstr(reason, words),
             *end = found + (found ? strlen(words) : 0);
  switch (without_number[i].where) {
  case ALL:
    return found == reason && !*end;
  case AT_END: /* of a line */
    return found && (!*end || *end == '\n');
  default:
    return found != NULL;
  }
}

bool fl_is_shortage(const char *reason) {
  static const int numbers[] = {EMFILE, ENFILE, ENOMEM};
  char words[128];
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (strstr(reason, strerror_r(numbers[i], words, sizeof words)))
      return true;
  for (size_t i = 0; i < N_WITHOUT_NUMBER; i++)
    if (fits(reason, i))
      return without_number[i].is_shortage;
  return false;
}
