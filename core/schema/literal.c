/* Values in texts: see literal.h. */
#include "core/schema/literal.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>

/* Length of what looks like a number: a sign, then letters, digits, points and the sign of an exponent. */
static size_t number_length(const char *at) {
  size_t n = *at == '-' || *at == '+';
  while (fl_scan_is_letter(at[n]) || fl_scan_is_digit(at[n]) || at[n] == '.' ||
         (n && (at[n - 1] == 'e' || at[n - 1] == 'E') && (at[n] == '-' || at[n] == '+')))
    n++;
  return n;
}

bool fl_read_float(const char *text, size_t length, double *number) {
  char *end = NULL;
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!c)
    return false;
  *number = strtod_l(text, &end, c);
  freelocale(c);
  return length && end == text + length;
}

/* Is the number at the cursor good? */
static fl_status judge(fl_scanner *scan, bool good, const char *expected) {
  if (fl_scan_is_octal(scan->at))
    return fl_scan_unexpected(scan, "a decimal number without leading zeros", NULL, 0);
  return good ? FL_OK : fl_scan_unexpected(scan, expected, NULL, 0);
}

static fl_status read_float(fl_scanner *scan, fl_value *value) {
  double number;
  size_t length = number_length(scan->at);
  fl_status status = judge(scan, fl_read_float(scan->at, length, &number), "a number");
  if (status)
    return status;
  scan->at += length;
  *value = fl_float(number);
  return FL_OK;
}

static fl_status read_int(fl_scanner *scan, int64_t *number) {
  char *end = NULL;
  fl_scan_peek(scan);
  size_t length = number_length(scan->at);
  errno = 0;
  *number = strtoll(scan->at, &end, 10);
  fl_status status = judge(scan, length && end == scan->at + length && !errno, "an integer of 64 bits");
  if (!status)
    scan->at = end;
  return status;
}

static fl_status read_bool(fl_scanner *scan, const char *const words[2], fl_value *value) {
  char expected[32];
  for (int i = 0; i < 2; i++)
    if (fl_scan_accept(scan, words[i])) {
      *value = fl_bool(i);
      return FL_OK;
    }
  snprintf(expected, sizeof expected, "%s or %s", words[1], words[0]);
  return fl_scan_unexpected(scan, expected, words, 2);
}

static bool is_escape(const char *at) {
  return *at == '\\' && (at[1] == '"' || at[1] == '\\');
}

static fl_status read_string(fl_scanner *scan, fl_arena *arena, fl_value *value) {
  if (!fl_scan_accept(scan, "\""))
    return fl_scan_unexpected(scan, "a text in \"quotes\"", NULL, 0);
  const char *end = scan->at;
  while (*end && *end != '"')
    end += 1 + is_escape(end);
  char *string = *end ? fl_arena_allocate(arena, (size_t)(end - scan->at) + 1) : NULL, *to = string;
  while (scan->at < end) {
    const char *from = scan->at + is_escape(scan->at);
    if (string)
      *to++ = *from;
    scan->at = from + 1;
  }
  if (!*end)
    return fl_scan_unexpected(scan, "'\"' at the end of the text", NULL, 0);
  scan->at++;
  *value = fl_string(string);
  return string ? FL_OK : fl_error_no_memory();
}

static fl_status read_ints(fl_scanner *scan, fl_arena *arena, fl_value *value) {
  uint32_t n = 0;
  size_t most = 1;
  if (!fl_scan_accept(scan, "["))
    return fl_scan_unexpected(scan, "a list of integers in []", NULL, 0);
  for (const char *at = scan->at; *at && *at != ']'; at++)
    most += *at == ',';
  int64_t *ints = fl_arena_array(arena, most, sizeof *ints);
  fl_status status = ints ? FL_OK : fl_error_no_memory();
  while (!status && !fl_scan_accept(scan, "]")) {
    if (n && !fl_scan_accept(scan, ","))
      return fl_scan_unexpected(scan, "',' or ']' in the list", NULL, 0);
    status = read_int(scan, &ints[n++]);
  }
  *value = fl_ints(ints, n);
  return status;
}

fl_status fl_literal_read(fl_scanner *scan, fl_type type, const char *const words[2], fl_arena *arena,
                          fl_value *value) {
  int64_t number;
  fl_status status;
  fl_scan_peek(scan);
  switch (type) {
  case FL_INT:
    status = read_int(scan, &number);
    *value = fl_int(number);
    return status;
  case FL_FLOAT:
    return read_float(scan, value);
  case FL_BOOL:
    return read_bool(scan, words, value);
  case FL_STRING:
    return read_string(scan, arena, value);
  default:
    return read_ints(scan, arena, value);
  }
}
