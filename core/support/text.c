/* Strings: see text.h. */
#include "core/support/text.h"
#include "core/support/array.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool text_reserve(fl_text *text, size_t more) {
  if (text->failed)
    return false;
  size_t needed = text->length + more + 1;
  if (needed <= text->capacity)
    return true;
  size_t capacity = needed < 64 ? 64 : needed * 2;
  char *grown = realloc(text->text, capacity);
  if (!grown) {
    text->failed = true;
    return false;
  }
  text->text = grown;
  text->capacity = capacity;
  return true;
}

void fl_text_add_bytes(fl_text *text, const char *bytes, size_t length) {
  if (!text_reserve(text, length))
    return;
  if (length)
    memcpy(text->text + text->length, bytes, length);
  text->length += length;
  text->text[text->length] = 0;
}

void fl_text_add(fl_text *text, const char *format, ...) {
  enum { MOST_ADDITIONS = 48 }; /* need no more room than this, and so are formatted once */
  va_list arguments;
  if (!text_reserve(text, MOST_ADDITIONS))
    return;
  size_t room = text->capacity - text->length;
  va_start(arguments, format);
  int length = vsnprintf(text->text + text->length, room, format, arguments);
  va_end(arguments);
  if (length < 0 || !text_reserve(text, (size_t)length)) {
    text->text[text->length] = 0;
    return;
  }
  if ((size_t)length >= room) {
    va_start(arguments, format);
    vsnprintf(text->text + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
  }
  text->length += (size_t)length;
}

void fl_text_add_json(fl_text *text, const char *string) {
  uint32_t code;
  if (!string) {
    fl_text_add(text, "null");
    return;
  }
  fl_text_add_bytes(text, "\"", 1);
  for (size_t n; *string; string += n + !n) {
    n = fl_character(string, &code);
    if (code == '"' || code == '\\')
      fl_text_add(text, "\\%c", *string);
    else if (n && fl_is_printable(code))
      fl_text_add_bytes(text, string, n);
    else
      fl_text_add(text, "\\u%04x", (unsigned)code); /* what is not printable is no larger */
  }
  fl_text_add_bytes(text, "\"", 1);
}

const char *fl_text_get(const fl_text *text) {
  return text->text ? text->text : "";
}

char *fl_text_take(fl_text *text) {
  char *taken = text->failed ? NULL : text->text ? text->text : fl_strdup("");
  if (text->failed)
    free(text->text);
  *text = (fl_text){0};
  return taken;
}

void fl_text_free(fl_text *text) {
  free(text->text);
  *text = (fl_text){0};
}

void fl_text_add_list(fl_text *text, const char *const *items, uint32_t n) {
  fl_text_add_bytes(text, "[", 1);
  for (uint32_t i = 0; i < n; i++)
    fl_text_add(text, "%s'%s'", i ? ", " : "", items[i]);
  fl_text_add_bytes(text, "]", 1);
}

void fl_text_add_choices(fl_text *text, const char *const *words, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    fl_text_add(text, "%s\"%s\"", !i ? "" : i + 1 == n ? " or " : ", ", words[i]);
}

bool fl_strings_add_bytes(fl_strings *list, const char *bytes, size_t length) {
  char *copy = malloc(length + 1);
  /* Behind those that are there the NULL stands, or nothing does. */
  if (!copy || !fl_array_grow(&list->items, list->n + 1, sizeof copy)) {
    free(copy);
    list->failed = true;
    return false;
  }
  memcpy(copy, bytes, length);
  copy[length] = 0;
  list->items[list->n++] = copy;
  list->items[list->n] = NULL;
  return true;
}

bool fl_strings_add(fl_strings *list, const char *string) {
  return fl_strings_add_bytes(list, string, strlen(string));
}

static const char *find_string(const fl_strings *list, const char *string) {
  for (uint32_t i = 0; i < list->n; i++)
    if (!strcmp(list->items[i], string))
      return list->items[i];
  return NULL;
}

bool fl_strings_has(const fl_strings *list, const char *string) {
  return find_string(list, string) != NULL;
}

const char *fl_strings_keep(fl_strings *list, const char *string) {
  const char *kept = find_string(list, string);
  return kept || !fl_strings_add(list, string) ? kept : list->items[list->n - 1];
}

static int compare_strings(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

void fl_strings_sort_unique(fl_strings *list) {
  uint32_t kept = 0;
  if (list->n)
    qsort(list->items, list->n, sizeof *list->items, compare_strings);
  for (uint32_t i = 0; i < list->n; i++) {
    if (kept && !strcmp(list->items[kept - 1], list->items[i]))
      free(list->items[i]);
    else
      list->items[kept++] = list->items[i];
  }
  list->n = kept;
  if (list->items)
    list->items[kept] = NULL;
}

/* Equal ones in the order of their places. */
static int compare_places(const void *a, const void *b) {
  char *const *left = *(char *const *const *)a, *const *right = *(char *const *const *)b;
  int order = strcmp(*left, *right);
  return order ? order : left < right ? -1 : 1;
}

bool fl_strings_unique(fl_strings *list) {
  char ***places = list->n ? calloc(list->n, sizeof *places) : NULL;
  uint32_t kept = 0, first = 0;
  if (!places)
    return !list->n;
  for (uint32_t i = 0; i < list->n; i++)
    places[i] = &list->items[i];
  qsort(places, list->n, sizeof *places, compare_places);
  for (uint32_t i = 1; i < list->n; i++)
    if (strcmp(*places[first], *places[i]))
      first = i;
    else {
      free(*places[i]);
      *places[i] = NULL;
    }
  for (uint32_t i = 0; i < list->n; i++)
    if (list->items[i])
      list->items[kept++] = list->items[i];
  list->n = kept;
  list->items[kept] = NULL;
  free(places);
  return true;
}

void fl_strings_cut(fl_strings *list, uint32_t n) {
  while (list->n > n)
    free(list->items[--list->n]);
  if (list->items)
    list->items[list->n] = NULL;
}

void fl_strings_free(fl_strings *list) {
  fl_strings_cut(list, 0);
  free(list->items);
  *list = (fl_strings){0};
}

size_t fl_character(const char *text, uint32_t *code) {
  static const struct {
    unsigned char mask, lead;
    uint32_t least; /* what needs so many bytes */
  } forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  const unsigned char *s = (const unsigned char *)text;
  size_t more = 0, i = 0;
  while (more < 4 && (*s & forms[more].mask) != forms[more].lead)
    more++;
  uint32_t found = more < 4 ? *s & (unsigned char)~forms[more].mask : 0;
  while (more < 4 && i < more && (s[i + 1] & 0xc0) == 0x80)
    found = found << 6 | (s[++i] & 63);
  bool is_one = more < 4 && i == more && found >= forms[more].least && found <= 0x10ffff && found >> 11 != 0xd800 >> 11;
  *code = is_one ? found : 0xfffd;
  return is_one ? more + 1 : 0;
}

bool fl_is_printable(uint32_t code) {
  bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
  bool turns = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
               (code >= 0x2066 && code <= 0x2069);
  return !is_control && !turns;
}

/* Writes the next of `text` as it is shown; gives back how much of the text that is. */
static size_t show_next(const char *text, bool lines, char shown[8], size_t *length) {
  uint32_t code;
  size_t n = fl_character(text, &code);
  bool as_it_is = n && (fl_is_printable(code) || (lines && code == '\n'));
  *length = as_it_is ? n : 4;
  if (as_it_is)
    memcpy(shown, text, n);
  else
    snprintf(shown, 8, "\\x%02x", (unsigned char)*text);
  return as_it_is ? n : 1;
}

/* Are these eight bytes printable ASCII, all of them? */
static bool is_plain_word(const char *text) {
  const uint64_t each = UINT64_C(0x0101010101010101);
  uint64_t word;
  memcpy(&word, text, sizeof word);
  uint64_t below = (word - 0x20 * each) & ~word, above = (word + each) | word; /* 0x20, and 0x7e */
  return !((below | above) & 0x80 * each);
}

/* Most text is nothing but printable ASCII, at least for a while. `most` is not more than its length. */
static size_t plain_length(const char *text, size_t most) {
  size_t n = 0;
  while (n + 8 <= most && is_plain_word(text + n))
    n += 8;
  while (n < most && text[n] >= 0x20 && text[n] < 0x7f)
    n++;
  return n;
}

static __attribute__((noinline)) size_t show(char *to, size_t size, const char *text, bool lines) {
  static const char rest[] = "…";
  const size_t last_mark = size > sizeof rest ? size - sizeof rest : 0;
  char next[8], copy[FL_SHOWN_IN_PLACE];
  size_t length = 0, mark = 0, n; /* mark: where `rest` still fits behind */
  if (to == text) {
    n = strnlen(text, sizeof copy - 1);
    memcpy(copy, text, n);
    copy[n] = 0;
    text = copy;
  }
  for (; *text && size; text += n) {
    size_t more;
    n = plain_length(text, strnlen(text, size - 1 - length));
    if (n) {
      memcpy(to + length, text, n);
      if (length <= last_mark)
        mark = length + n < last_mark ? length + n : last_mark;
      length += n;
      continue;
    }
    n = show_next(text, lines, next, &more);
    if (length + more >= size)
      break;
    memcpy(to + length, next, more);
    length += more;
    if (length <= last_mark)
      mark = length;
  }
  if (*text && size >= sizeof rest) {
    memcpy(to + mark, rest, sizeof rest - 1);
    length = mark + sizeof rest - 1;
  }
  if (size)
    to[length] = 0;
  return length;
}

/* What needs no change, and no room for any. */
size_t fl_show(char *to, size_t size, const char *text, bool lines) {
  size_t length = strnlen(text, size);
  if (length == size || plain_length(text, length) < length)
    return show(to, size, text, lines);
  if (to != text)
    memcpy(to, text, length + 1);
  return length;
}

/* Length in bytes of the white space character that `s` begins with, 0 if it is none: the characters for which Python's
 * str.isspace() holds. */
static size_t space_length(const unsigned char *s, size_t length) {
  if (length && ((*s >= 9 && *s <= 13) || (*s >= 0x1c && *s <= 0x20)))
    return 1;
  if (length >= 2 && s[0] == 0xc2 && (s[1] == 0x85 || s[1] == 0xa0))
    return 2;
  if (length >= 3) {
    unsigned code = s[0] >= 0xe0 && s[0] < 0xf0 ? (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u) : 0;
    if (code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
        code == 0x205f || code == 0x3000)
      return 3;
  }
  return 0;
}

size_t fl_trim(const char **string, size_t length) {
  const unsigned char *s = (const unsigned char *)*string;
  size_t n;
  while ((n = space_length(s, length))) {
    s += n;
    length -= n;
  }
  for (n = 1; n <= 3 && n <= length; n++)
    if (space_length(s + length - n, n) == n) {
      length -= n;
      n = 0; /* from the new end */
    }
  *string = (const char *)s;
  return length;
}

bool fl_split(fl_strings *list, const char *string, char separator) {
  for (;;) {
    const char *end = strchr(string, separator);
    size_t length = end ? (size_t)(end - string) : strlen(string);
    const char *part = string;
    size_t trimmed = fl_trim(&part, length);
    if (trimmed && !fl_strings_add_bytes(list, part, trimmed))
      return false;
    if (!end)
      return true;
    string = end + 1;
  }
}

static int fold(int c) {
  return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Edit distance with swaps of neighbours (optimal string alignment), of words up to 63 bytes; more = far. */
static unsigned distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  unsigned rows[3][64];
  if (n > 63 || m > 63)
    return 99;
  for (size_t j = 0; j <= m; j++)
    rows[0][j] = (unsigned)j;
  for (size_t i = 1; i <= n; i++) {
    unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *before2 = rows[(i + 1) % 3];
    now[0] = (unsigned)i;
    for (size_t j = 1; j <= m; j++) {
      unsigned best = before[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
      if (before[j] + 1 < best)
        best = before[j] + 1;
      if (now[j - 1] + 1 < best)
        best = now[j - 1] + 1;
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]) &&
          before2[j - 2] + 1 < best)
        best = before2[j - 2] + 1;
      now[j] = best;
    }
  }
  return rows[n % 3][m];
}

const char *fl_nearest_word(const char *word, const char *const *words, size_t n) {
  const char *nearest = NULL;
  size_t length = strlen(word);
  unsigned limit = length <= 5 ? 1 : length <= 8 ? 2 : 3;
  /* Short words: two neighbours swapped or one letter off; "vendro" and "refrence" are within reach. */
  if (length >= 4 && limit < 2)
    limit = 2;
  for (size_t i = 0; i < n && words[i]; i++) {
    unsigned d = distance(word, words[i]);
    if (d <= limit) {
      nearest = words[i];
      limit = d ? d - 1 : 0;
      if (!d)
        break;
    }
  }
  return nearest;
}

static const char *nearest_beginning(const char *word, const char *const *words) {
  enum { LEAST = 3 }; /* letters that say enough */
  size_t length = strlen(word);
  if (word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")])
    return NULL;
  for (; *words; words++) {
    size_t known = strlen(*words), common = length < known ? length : known;
    if (common >= LEAST && !strncasecmp(word, *words, common))
      break;
  }
  return *words;
}

const char *fl_nearest_or_beginning(const char *word, const char *const *words) {
  const char *nearest = fl_nearest_word(word, words, SIZE_MAX);
  return nearest ? nearest : nearest_beginning(word, words);
}

fl_suggestion fl_suggest(const char *nearest) {
  fl_suggestion suggestion = {""};
  if (nearest)
    snprintf(suggestion.text, sizeof suggestion.text, "; did you mean '%s'?", nearest);
  return suggestion;
}

fl_suggestion fl_suggest_among(const char *word, const fl_strings *words) {
  return fl_suggest(fl_nearest_word(word, (const char *const *)words->items, words->n));
}

char *fl_strdup(const char *string) {
  return string ? strdup(string) : NULL;
}

char *fl_format(const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  return length < 0 ? NULL : text;
}
