/*
 * report REPORT.json README.md: puts the figures of a run into the README, in the place of what stands between the
 * lines
 * "<!-- figures -->" and "<!-- end of figures -->".
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char begin_mark[] = "<!-- figures -->\n", end_mark[] = "<!-- end of figures -->\n";

static const char *string_of(const json_t *object, const char *key) {
  const char *string = json_string_value(json_object_get(object, key));
  return string ? string : "";
}

/* "12.3 ns"; "" for null. */
static void put_number(FILE *out, const json_t *value, const char *unit, bool sign) {
  double v = json_number_value(value);
  if (json_is_number(value))
    fprintf(out, sign ? "%+.*f %s" : "%.*f %s", fabs(v) >= 99.95 || !strcmp(unit, "instructions") ? 0 : 2, v, unit);
}

/* The median of a spread, "" for null. */
static void put_spread(FILE *out, const json_t *object, const char *key, const char *unit, bool sign) {
  put_number(out, json_object_get(json_object_get(object, key), "median"), unit, sign);
}

static void put_row(FILE *out, const json_t *row) {
  const char *unit = string_of(row, "unit"), *kind = string_of(row, "kind"), *baseline = string_of(row, "baseline");
  const char *value_unit = *kind == 'r' ? "×" : unit;
  const json_t *target = json_object_get(row, "target"), *met = json_object_get(row, "met");
  fprintf(out, "| %s | ", string_of(row, "what"));
  if (*kind != 'a')
    put_spread(out, row, "subject", unit, false);
  fprintf(out, " | %s%s", baseline, *baseline ? ": " : "");
  put_spread(out, row, "reference", unit, false);
  fputs(" | ", out);
  put_spread(out, row, "value", value_unit, *kind == 'd');
  fputs(" | ", out);
  if (json_is_number(target))
    fprintf(out, "%s %g %s", strcmp(string_of(row, "bound"), "at least") ? "≤" : "≥", json_number_value(target),
            value_unit);
  fprintf(out, " | %s |\n", json_is_null(met) ? "" : json_is_true(met) ? "yes" : "**no**");
}

static void put_notes(FILE *out, const json_t *rows) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) if (*string_of(row, "note"))
      fprintf(out, "- %s: %s.\n", string_of(row, "what"), string_of(row, "note"));
}

static void put_costs(FILE *out, const json_t *costs, const json_t *python) {
  size_t i;
  json_t *one;
  fputs("\n| one call costs each thread | one thread | two threads | |\n|---|---|---|---|\n", out);
  json_array_foreach(costs, i, one) {
    fprintf(out, "| %s | ", string_of(one, "name"));
    put_spread(out, one, "one_thread", "ns", false);
    fputs(" | ", out);
    put_spread(out, one, "two_threads", "ns", false);
    fprintf(out, " | %s |\n", string_of(one, "note"));
  }
  json_array_foreach(python, i, one) {
    fprintf(out, "| %s | ", string_of(one, "name"));
    put_number(out, json_object_get(one, "ns"), "ns", false);
    fprintf(out, " | | %s |\n", string_of(one, "note"));
  }
}

static void put_figures(FILE *out, const json_t *report) {
  const json_t *machine = json_object_get(report, "machine"), *rows = json_object_get(report, "rows");
  size_t i;
  json_t *row;
  fprintf(out, "%s, %lld processors, %s, %s, flhost %s, %.10s; load when it ended: %.1f.\n\n",
          string_of(machine, "cpu"), (long long)json_integer_value(json_object_get(machine, "processors")),
          string_of(machine, "kernel"), string_of(machine, "compiler"), string_of(machine, "flhost"),
          string_of(machine, "date"), json_number_value(json_object_get(machine, "load")));
  fputs("| row | measured | beside | difference or ratio | target | met |\n|---|---|---|---|---|---|\n", out);
  json_array_foreach(rows, i, row) put_row(out, row);
  fputc('\n', out);
  put_notes(out, rows);
  put_costs(out, json_object_get(report, "costs"), json_object_get(report, "python"));
}

/* A whole text file (malloc'ed); NULL: it cannot be read. */
static char *read_text(const char *name) {
  struct stat status;
  FILE *file = fopen(name, "re");
  char *text = file && !fstat(fileno(file), &status) ? malloc((size_t)status.st_size + 1) : NULL;
  if (text)
    text[fread(text, 1, (size_t)status.st_size, file)] = 0;
  if (file)
    fclose(file);
  return text;
}

static bool replace_figures(const char *name, const json_t *report) {
  char *old = read_text(name), *begin = old ? strstr(old, begin_mark) : NULL,
       *end = begin ? strstr(begin, end_mark) : NULL;
  FILE *out = end ? fopen(name, "we") : NULL;
  bool done = out != NULL;
  if (out) {
    begin += strlen(begin_mark);
    fwrite(old, 1, (size_t)(begin - old), out);
    put_figures(out, report);
    fputs(end, out);
    done = !ferror(out);
    done = !fclose(out) && done;
    if (!done)
      fprintf(stderr, "report: cannot write %s: %m\n", name);
  } else if (!old) {
    fprintf(stderr, "report: cannot read %s: %m\n", name);
  } else if (!end) {
    fprintf(stderr, "report: %s lacks the lines that figures go between: %s and %s", name, begin_mark, end_mark);
  } else {
    fprintf(stderr, "report: cannot write %s: %m\n", name);
  }
  free(old);
  return done;
}

int main(int argc, char **argv) {
  json_error_t error;
  if (argc != 3) {
    fprintf(stderr, "usage: report REPORT.json README.md\n");
    return 2;
  }
  json_t *report = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error);
  if (!report) {
    fprintf(stderr, "report: %s:%d: %s\n", argv[1], error.line, error.text);
    return 1;
  }
  bool done = replace_figures(argv[2], report);
  json_decref(report);
  return done ? 0 : 1;
}
