/* Tables for people: aligned columns, the last one folded at the terminal's width, nothing cut off elsewhere. */
#ifndef FLHOST_CLI_TABLE_H
#define FLHOST_CLI_TABLE_H

#include <flhost/plugin.h>

/* Zero-initialise. After an allocation failed, `failed` is set and nothing is added any more. */
typedef struct cli_table {
  const char *const *headers;
  uint32_t columns;
  struct cli_cell *cells;
  size_t n, capacity;
  bool failed;
} cli_table;

/* Headers end with NULL and are borrowed; one that begins with '>' makes a column flush right. No headers (NULL): a
 * table of `columns` columns without them. */
void cli_table_begin(cli_table *table, const char *const *headers, uint32_t columns);

/* The next cell, row by row. NULL and "" print as "-". */
void cli_table_add(cli_table *table, const char *text);
void cli_table_format(cli_table *table, const char *format, ...) FL_PRINTF(2, 3);

/* A line of text below the last row. Only where a row is complete. */
void cli_table_note(cli_table *table, const char *text);

void cli_table_free(cli_table *table);

/* Prints to standard output and frees. The exit status: not 0 when memory ran out. */
int cli_table_print(cli_table *table);

/* Bold words on a terminal, plain ones elsewhere. */
void cli_print_title(const char *text);

#endif
