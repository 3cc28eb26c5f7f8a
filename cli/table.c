/* Tables: see table.h. */
#include "cli/table.h"

#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Between columns, and the least room that is worth folding text into. */
enum { GAP = 2, LEAST_ROOM = 24 };

typedef struct cli_cell {
  char *text;
  bool is_note;
} cell;

void cli_table_begin(cli_table *table, const char *const *headers, uint32_t columns) {
  *table = (cli_table){.headers = headers, .columns = columns};
  if (headers)
    while (headers[table->columns])
      table->columns++;
}

static void add(cli_table *table, char *text, bool is_note) {
  if (!table->failed && table->n == table->capacity) {
    size_t capacity = table->capacity ? table->capacity * 2 : 64;
    cell *grown = realloc(table->cells, capacity * sizeof *grown);
    if (grown) {
      table->cells = grown;
      table->capacity = capacity;
    } else {
      table->failed = true;
    }
  }
  if (!text || table->failed) {
    table->failed = true;
    free(text);
    return;
  }
  for (char *c = text; *c; c++) /* a row is a line */
    if (*c == '\n')
      *c = ' ';
  table->cells[table->n++] = (cell){text, is_note};
}

void cli_table_add(cli_table *table, const char *text) {
  add(table, strdup(text && *text ? text : "-"), false);
}

void cli_table_note(cli_table *table, const char *text) {
  add(table, strdup(text), true);
}

void cli_table_format(cli_table *table, const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  add(table, length < 0 ? NULL : text, false);
}

static void put_spaces(uint32_t n) {
  printf("%*s", (int)n, "");
}

/* Width of the terminal, 0 when standard output is none. */
static uint32_t terminal_width(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

/* Text from column `indent` on, folded between words so as to stay within `limit` columns (0: not folded). */
static void put_folded(const char *text, uint32_t indent, uint32_t limit) {
  uint32_t room = limit > indent ? limit - indent : 0, used = 0;
  if (room < LEAST_ROOM) {
    cli_put_text(stdout, text);
    return;
  }
  while (*text) {
    size_t spaces = strspn(text, " "), length = strcspn(text + spaces, " ");
    uint32_t width = cli_width(text + spaces, length);
    if (used && used + spaces + width > room) {
      putchar('\n');
      put_spaces(indent);
      used = 0;
    } else {
      put_spaces((uint32_t)spaces);
      used += (uint32_t)spaces;
    }
    char *word = strndup(text + spaces, length);
    if (word)
      cli_put_text(stdout, word);
    free(word);
    used += width;
    text += spaces + length;
  }
}

static const char *header_text(const char *header) {
  return header + (*header == '>');
}

static void measure(const cli_table *table, uint32_t *widths) {
  uint32_t column = 0;
  for (uint32_t i = 0; i < table->columns; i++)
    widths[i] = table->headers ? cli_width(header_text(table->headers[i]), strlen(header_text(table->headers[i]))) : 0;
  for (size_t i = 0; i < table->n; i++) {
    if (table->cells[i].is_note)
      continue;
    uint32_t width = cli_width(table->cells[i].text, strlen(table->cells[i].text));
    if (width > widths[column])
      widths[column] = width;
    column = (column + 1) % table->columns;
  }
}

/* One cell and the gap after it; the last of a row ends the line. */
static void put_cell(const cli_table *table, const uint32_t *widths, uint32_t column, const char *text,
                     uint32_t limit) {
  uint32_t indent = 0, padding = widths[column] - cli_width(text, strlen(text));
  bool right = table->headers && *table->headers[column] == '>';
  if (right)
    put_spaces(padding);
  if (column + 1 == table->columns) {
    for (uint32_t i = 0; i < column; i++)
      indent += widths[i] + GAP;
    put_folded(text, indent, limit);
    putchar('\n');
    return;
  }
  cli_put_text(stdout, text);
  put_spaces((right ? 0 : padding) + GAP);
}

void cli_table_free(cli_table *table) {
  for (size_t i = 0; i < table->n; i++)
    free(table->cells[i].text);
  free(table->cells);
  *table = (cli_table){0};
}

int cli_table_print(cli_table *table) {
  uint32_t *widths = calloc(table->columns, sizeof *widths), limit = terminal_width(), column = 0;
  bool styled = cli_is_styled(stdout), failed = table->failed || !widths;
  if (failed)
    goto out;
  measure(table, widths);
  if (table->headers) {
    fputs(styled ? "\033[1m" : "", stdout);
    for (uint32_t i = 0; i + 1 < table->columns; i++)
      put_cell(table, widths, i, header_text(table->headers[i]), 0);
    printf("%s%s\n", header_text(table->headers[table->columns - 1]), styled ? "\033[0m" : "");
  }
  for (size_t i = 0; i < table->n; i++) {
    if (table->cells[i].is_note) {
      put_spaces(GAP * 2);
      put_folded(table->cells[i].text, GAP * 2, limit);
      putchar('\n');
      continue;
    }
    put_cell(table, widths, column, table->cells[i].text, limit);
    column = (column + 1) % table->columns;
  }
out:
  free(widths);
  cli_table_free(table);
  return failed ? cli_no_memory() : EXIT_OK;
}

void cli_print_title(const char *text) {
  bool styled = cli_is_styled(stdout);
  fputs(styled ? "\033[1m" : "", stdout);
  cli_put_text(stdout, text);
  puts(styled ? "\033[0m" : "");
}
