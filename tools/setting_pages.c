/*
 * Build-time program: prints a page of the manual with the parts of it that come from the table of settings made anew.
 *   setting-pages docs/policy-guide.md > new
 * A part stands between a line that holds "settings: WHAT" and one that holds "settings: end", comments both.
 */
#include "core/settings.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ rows */

static void add_expected(const fl_setting_row *row, fl_text *text) {
  if (row->expects || !row->words)
    fl_text_add(text, "%s", row->expects ? row->expects : row->type->name);
  for (size_t i = 0; !row->expects && row->words && row->words[i]; i++)
    fl_text_add(text, "%s%s", i ? ", " : "", row->words[i]);
}

static const char *default_of(const fl_setting_row *row) {
  return row->builtin ? row->builtin : row->unset ? row->unset : "none";
}

/* Does the variable count beside a policy file (C1)? */
static bool counts_beside_file(const fl_setting_row *row) {
  return !row->key && !(row->flags & FL_SETTING_OF_OPS);
}

/* -------------------------------------------------------------------------------------------------------- Markdown */

/* A cell of words: names and what is written down as it stands are code, and no bar ends it. */
static void add_cell(const char *words, fl_text *text) {
  while (*words) {
    size_t length = strcspn(words, " "), begin = *words == '(', end = length;
    while (end > begin && strchr(",;:)", words[end - 1]))
      end--;
    size_t first = begin + strcspn(words + begin, "_=|:");
    const char *quote = first < end ? "`" : "";
    for (size_t i = 0; i < length; i++)
      fl_text_add(text, "%s%s%c", i == begin || i == end ? quote : "", words[i] == '|' ? "\\" : "", words[i]);
    fl_text_add(text, "%s ", end == length ? quote : "");
    words += length + (words[length] != 0);
  }
  fl_text_add(text, "|");
}

static void add_table(fl_text *text) {
  fl_text_add(text, "| variable | YAML key | type | default | meaning |\n|---|---|---|---|---|\n");
  for (size_t i = 0; i < FL_N_SETTINGS; i++) {
    const fl_setting_row *row = &fl_setting_table[i];
    fl_text expected = {0};
    add_expected(row, &expected);
    fl_text_add(text, *row->variable ? "| `%s` |" : "| |", row->variable);
    fl_text_add(text, row->key ? " `%s` | " : " | ", row->key);
    add_cell(fl_text_get(&expected), text);
    fl_text_add(text, " ");
    add_cell(default_of(row), text);
    fl_text_add(text, " ");
    add_cell(row->doc, text);
    fl_text_add(text, "\n");
    text->failed |= expected.failed;
    fl_text_free(&expected);
  }
}

static void add_variables(bool counting, const char *before, fl_text *text) {
  const char *separator = before;
  for (size_t i = 0; i < FL_N_SETTINGS; i++) {
    const fl_setting_row *row = &fl_setting_table[i];
    if (!*row->variable || i == FL_SETTING_CONFIG || counts_beside_file(row) != counting)
      continue;
    fl_text_add(text, "%s`%s`", separator, row->variable);
    separator = ", ";
  }
  fl_text_add(text, "\n");
}

static void add_beside_file(fl_text *text) {
  add_variables(false, "- ignored, and the log says so of each, once: ", text);
  add_variables(true, "- still count: ", text);
}

/* ------------------------------------------------------------------------------------------------------------ mdoc */

/* Running text, a line for each part of it. */
static void add_lines(const char *words, fl_text *text) {
  for (; *words; words++)
    if (*words == '\\')
      fl_text_add(text, "\\e");
    else if (!strncmp(words, "; ", 2)) {
      fl_text_add(text, ";\n");
      words++;
    } else
      fl_text_add_bytes(text, words, 1);
}

static void add_item(const fl_setting_row *row, const char *macro, const char *name, fl_text *text) {
  fl_text_add(text, ".It %s %s\n", macro, name);
  add_lines(row->doc, text);
  fl_text_add(text, ".\nValue: ");
  add_expected(row, text);
  fl_text_add(text, ".\nDefault: %s.\n", default_of(row));
}

static void add_key_items(fl_text *text) {
  for (size_t i = 0; i < FL_N_SETTINGS; i++)
    if (fl_setting_table[i].key)
      add_item(&fl_setting_table[i], "Ic", fl_setting_table[i].key, text);
}

static void add_variable_items(fl_text *text) {
  for (size_t i = 0; i < FL_N_SETTINGS; i++)
    if (*fl_setting_table[i].variable)
      add_item(&fl_setting_table[i], "Ev", fl_setting_table[i].variable, text);
}

/* ----------------------------------------------------------------------------------------------------------- pages */

static const struct {
  const char *name;
  void (*add)(fl_text *text);
} parts[] = {
    {"table", add_table}, {"beside", add_beside_file}, {"keys", add_key_items}, {"variables", add_variable_items}};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* The word behind "settings: " in the line; NULL: it is no mark. */
static const char *mark_in(const char *line, size_t length) {
  static const char mark[] = "settings: ";
  const char *at = memmem(line, length, mark, strlen(mark));
  bool comment = !strncmp(line, "<!--", 4) || !strncmp(line, ".\\\"", 3);
  return at && comment ? at + strlen(mark) : NULL;
}

static bool is_word(const char *at, const char *word) {
  return !strncmp(at, word, strlen(word)) && strchr(" ,\n", at[strlen(word)]);
}

/* What stands in the part is left out, up to its end. NULL: it has none. */
static const char *end_of_part(const char *line) {
  while (*line) {
    size_t length = strcspn(line, "\n");
    const char *word = mark_in(line, length);
    if (word)
      return is_word(word, "end") ? line : NULL;
    line += length + (line[length] == '\n');
  }
  return NULL;
}

/* NULL, or what is wrong with the page. */
static const char *make_page(const char *line, fl_text *page) {
  while (*line) {
    size_t length = strcspn(line, "\n"), part = 0;
    const char *word = mark_in(line, length);
    length += line[length] == '\n';
    fl_text_add_bytes(page, line, length);
    line += length;
    if (!word || is_word(word, "end"))
      continue;
    while (part < N_PARTS && !is_word(word, parts[part].name))
      part++;
    if (part == N_PARTS)
      return "a part that is none of table, beside, keys and variables";
    line = end_of_part(line);
    if (!line)
      return "a part without end";
    parts[part].add(page);
  }
  return page->failed ? "out of memory" : NULL;
}

int main(int argc, char **argv) {
  char *text = NULL;
  size_t length;
  fl_text page = {0};
  if (argc != 2) {
    fprintf(stderr, "usage: setting-pages PAGE\n");
    return 2;
  }
  const char *wrong = fl_read_file(argv[1], &text, &length) ? fl_error_message() : make_page(text, &page);
  if (wrong)
    fprintf(stderr, "setting-pages: %s: %s\n", argv[1], wrong);
  else
    fwrite(fl_text_get(&page), 1, page.length, stdout);
  fl_text_free(&page);
  free(text);
  return wrong || fflush(stdout) ? 2 : 0;
}
