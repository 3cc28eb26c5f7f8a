/* Strings: a growing buffer, lists, trimming as the settings need it, and the nearest word for "did you mean". */
#ifndef FLHOST_CORE_SUPPORT_TEXT_H
#define FLHOST_CORE_SUPPORT_TEXT_H

#include <flhost/flhost.h>
#include <flhost/testing.h>

/* A growing string. Zero-initialise; `text` may be NULL while empty (fl_text_get gives ""). After an allocation failed,
 * `failed` is set and further appends do nothing. */
typedef struct fl_text {
  char *text;
  size_t length, capacity;
  bool failed;
} fl_text;

void fl_text_add(fl_text *text, const char *format, ...) FL_PRINTF(2, 3);
void fl_text_add_bytes(fl_text *text, const char *bytes, size_t length);
void fl_text_add_json(fl_text *text, const char *string); /* quoted and escaped; NULL gives null */
const char *fl_text_get(const fl_text *text);
char *
fl_text_take(fl_text *text); /* the malloc'ed string (never NULL unless out of memory); the buffer is empty again */
void fl_text_free(fl_text *text);

/* A list of owned strings. Zero-initialise. Ends in NULL once it holds something. `failed` is set when there was no
 * memory for one, so that whoever adds many may ask once. */
typedef struct fl_strings {
  char **items;
  uint32_t n;
  bool failed;
} fl_strings;

bool fl_strings_add(fl_strings *list, const char *string);                     /* a copy; false: out of memory */
bool fl_strings_add_bytes(fl_strings *list, const char *bytes, size_t length); /* a copy */
bool fl_strings_has(const fl_strings *list, const char *string);
const char *fl_strings_keep(fl_strings *list, const char *string); /* the list's own, added once; NULL: out of memory */
void fl_strings_cut(fl_strings *list, uint32_t n);                 /* to its first `n` */
void fl_strings_sort_unique(fl_strings *list);                     /* bytewise */
bool fl_strings_unique(fl_strings *list); /* keeps the first of equal ones, in place; false: out of memory */
void fl_strings_free(fl_strings *list);
/* ['a', 'b'], as Python prints a list of strings. */
void fl_text_add_list(fl_text *text, const char *const *items, uint32_t n);

/* "a", "b" or "c", for what is expected. */
void fl_text_add_choices(fl_text *text, const char *const *words, uint32_t n);

/* Splits at `separator`, trims each part (fl_trim), drops empty ones, appends the rest. false: out of memory. */
bool fl_split(fl_strings *list, const char *string, char separator);

/* The nearest of `words`, which end in NULL; else the first that a word of letters begins, as if cut short ("ref"), or
 * that begins it ("warning" for warn), in any case; NULL: none. */
const char *fl_nearest_or_beginning(const char *word, const char *const *words);

/*
 * Text of others (plugins, files, variables) as it may be shown: what is no UTF-8 and what is not printable becomes
 * \x1b, byte by byte, and what does not fit is left out, with "…" at the end. A newline stays where `lines` says so.
 * Shown text is its own shown text. Gives back its length, less than `size`. `to` may be `text` itself, of which no
 * more than FL_SHOWN_IN_PLACE bytes stay then if it has to be changed.
 */
enum { FL_SHOWN_IN_PLACE = 4096 };
size_t fl_show(char *to, size_t size, const char *text, bool lines);

/* What a message ends with when a word is unknown: "; did you mean 'vendor'?", or "" when none is near. By value, so
 * that it needs no buffer: fl_error(…, "no op '%s'%s", name, fl_suggest(nearest).text). */
typedef struct fl_suggestion {
  char text[FL_NAME_MAX + 40];
} fl_suggestion;

/* `nearest` may be NULL. */
fl_suggestion fl_suggest(const char *nearest);
/* The nearest of the list. */
fl_suggestion fl_suggest_among(const char *word, const fl_strings *words);

/* Length of `*string` without the white space around it; `*string` is moved to the first byte. White space is what
 * Python's str.strip() strips: Unicode's too, in UTF-8. */
size_t fl_trim(const char **string, size_t length);

/* malloc'ed; of NULL NULL. */
char *fl_strdup(const char *string);
char *fl_format(const char *format, ...) FL_PRINTF(1, 2);

#endif
