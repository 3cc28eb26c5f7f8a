/*
 * A cursor over a text that a person wrote (a schema, rules), and errors that show the place in it. Words are those of
 * C identifiers; white space between tokens has no meaning.
 */
#ifndef FLHOST_CORE_SUPPORT_SCAN_H
#define FLHOST_CORE_SUPPORT_SCAN_H

#include "core/support/error.h"
#include "core/support/text.h"

#include <string.h>

typedef struct fl_scanner {
  const char *what; /* "schema", "rules": begins the message */
  const char *text;
  const char *at;
} fl_scanner;

/* isalpha() and friends depend on the process's locale. */
static inline bool fl_scan_is_digit(char c) {
  return c >= '0' && c <= '9';
}

static inline bool fl_scan_is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Does a number begin as an octal or hexadecimal one of C's would? Texts have neither, and 010 is not read as 10. */
static inline bool fl_scan_is_octal(const char *number) {
  number += *number == '-' || *number == '+';
  return *number == '0' && (fl_scan_is_digit(number[1]) || number[1] == 'x' || number[1] == 'X');
}

/* Moves past white space and gives the character there, 0 at the end. */
static inline char fl_scan_peek(fl_scanner *scanner) {
  while (*scanner->at == ' ' || *scanner->at == '\t' || *scanner->at == '\r' || *scanner->at == '\n')
    scanner->at++;
  return *scanner->at;
}

/* Moves past `token` if it stands there. A token that is a word must end there too. */
static inline bool fl_scan_accept(fl_scanner *scanner, const char *token) {
  size_t length = strlen(token);
  if (fl_scan_peek(scanner) != *token || strncmp(scanner->at, token, length))
    return false;
  char next = scanner->at[length];
  if (fl_scan_is_letter(*token) && (fl_scan_is_letter(next) || fl_scan_is_digit(next)))
    return false;
  scanner->at += length;
  return true;
}

/* Length of the word that stands there, 0 if none does. Does not move past it. */
static inline size_t fl_scan_word(fl_scanner *scanner) {
  size_t length = 0;
  if (fl_scan_is_letter(fl_scan_peek(scanner)))
    while (fl_scan_is_letter(scanner->at[length]) || fl_scan_is_digit(scanner->at[length]))
      length++;
  return length;
}

/* "schema 'f(int x)', column 7: `format`", of a very long text what stands around the place. FL_EINVAL. */
static inline FL_PRINTF(3, 4) fl_status
    fl_scan_fail(const fl_scanner *scanner, const char *at, const char *format, ...) {
  enum { AROUND = 1024 }; /* bytes that are shown of a long text: the message must hold the reason, too */
  char reason[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  const char *begin = at - scanner->text > AROUND ? at - AROUND : scanner->text;
  while ((*begin & 0xc0) == 0x80) /* the middle of a character */
    begin++;
  size_t shown = strnlen(begin, 2 * AROUND);
  return fl_error(FL_EINVAL, "%s '%s%.*s%s', column %d: %s", scanner->what, begin > scanner->text ? "…" : "",
                  (int)shown, begin, begin[shown] ? "…" : "", (int)(at - scanner->text) + 1, reason);
}

/* The token that stands there is not what is expected. `words` (n of them, may be NULL) are what it may have been meant
 * to be. FL_EINVAL. */
static inline fl_status fl_scan_unexpected(fl_scanner *scanner, const char *expected, const char *const *words,
                                           size_t n) {
  char found[FL_NAME_MAX + 1];
  char first = fl_scan_peek(scanner);
  size_t length = first == '-' || first == '+'; /* of a number */
  if (!first)
    return fl_scan_fail(scanner, scanner->at, "found the end, expected %s", expected);
  while (fl_scan_is_letter(scanner->at[length]) || fl_scan_is_digit(scanner->at[length]) || scanner->at[length] == '.')
    length++;
  if (!length) /* one character, which may have several bytes */
    for (length = 1; (scanner->at[length] & 0xc0) == 0x80;)
      length++;
  snprintf(found, sizeof found, "%.*s", (int)length, scanner->at);
  const char *nearest = words ? fl_nearest_word(found, words, n) : NULL;
  return fl_scan_fail(scanner, scanner->at, "found '%s', expected %s%s", found, expected, fl_suggest(nearest).text);
}

#endif
