/*
 * plot REPORT.json FIGURE.svg: draws what bench/dispatch measured. Above, what one call costs by each way, on one
 * thread and on two; below, how much of its target each row takes. Of a report of bench/kernels.py it draws the
 * figures: how many times as fast each kernel is as what stands beside it; of one of bench/communicators.py for each
 * collective its time and bus bandwidth by size. All axes are logarithmic. Needs jansson and nothing else.
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 960, LEFT = 330, RIGHT = 100, TOP = 70, ROW = 34, BAR = 12, TARGET_ROW = 24, GAP = 90, BOTTOM = 40 };

static const char one_colour[] = "#1f6fb4", two_colour[] = "#e08214", met_colour[] = "#1f6fb4",
                  missed_colour[] = "#c0392b", grid_colour[] = "#dddddd";
static const char *const beside_colours[] = {"#777777", "#1f6fb4", "#e08214"};
enum {
  BESIDE = sizeof beside_colours / sizeof *beside_colours,
  THIN_BAR = 8,
  KERNEL_ROW = BESIDE * (THIN_BAR + 1) + 8
};

/* A logarithmic axis over the width between LEFT and RIGHT. */
typedef struct axis {
  double least, most; /* powers of ten */
} axis;

static double position(const axis *scale, double value) {
  double share = (log10(fmin(fmax(value, scale->least), scale->most)) - log10(scale->least)) /
                 (log10(scale->most) - log10(scale->least));
  return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static void text(FILE *out, double x, double y, const char *anchor, const char *style, const char *words) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, style);
  for (; *words; words++)
    if (*words == '<' || *words == '>' || *words == '&')
      fprintf(out, "&#%d;", *words);
    else
      fputc(*words, out);
  fputs("</text>\n", out);
}

static void grid(FILE *out, const axis *scale, double top, double bottom, const char *unit) {
  for (double at = scale->least; at <= scale->most * 1.001; at *= 10) {
    char label[32];
    double x = position(scale, at);
    snprintf(label, sizeof label, "%g%s", at, unit);
    fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x, x, top, bottom,
            grid_colour);
    text(out, x, bottom + 16, "middle", " class=\"small\"", label);
  }
}

static void bar_of_height(FILE *out, const axis *scale, double y, int height, double value, const char *colour,
                          const char *label) {
  double end = position(scale, value);
  fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", LEFT, y, fmax(end - LEFT, 1),
          height, colour);
  text(out, end + 5, y + height / 2.0 + 4, "start", " class=\"small\"", label);
}

static void bar(FILE *out, const axis *scale, double y, double value, const char *colour, const char *label) {
  bar_of_height(out, scale, y, BAR, value, colour, label);
}

static const char *string_of(const json_t *object, const char *key) {
  const char *string = json_string_value(json_object_get(object, key));
  return string ? string : "";
}

/* The median of a spread; NAN for null. */
static double median_of(const json_t *object, const char *key) {
  const json_t *median = json_object_get(json_object_get(object, key), "median");
  return json_is_number(median) ? json_number_value(median) : NAN;
}

/* ----------------------------------------------------------------------------------------------------------- costs */

/* A bar for one thread and, below, one for two. */
static void cost(FILE *out, const axis *scale, double y, const char *name, double one, double two) {
  char label[32];
  text(out, LEFT - 10, y + ROW / 2.0 + 4, "end", "", name);
  snprintf(label, sizeof label, "%.*f ns", one < 99.95 ? 1 : 0, one);
  bar(out, scale, isnan(two) ? y + (ROW - BAR) / 2.0 : y + 4, one, one_colour, label);
  if (isnan(two))
    return;
  snprintf(label, sizeof label, "%.*f ns", two < 99.95 ? 1 : 0, two);
  bar(out, scale, y + 5 + BAR, two, two_colour, label);
}

static int count_costs(const json_t *costs, const json_t *python) {
  size_t i;
  int n = 0;
  json_t *one;
  json_array_foreach(costs, i, one) n += !isnan(median_of(one, "one_thread"));
  json_array_foreach(python, i, one) n += json_is_number(json_object_get(one, "ns"));
  return n;
}

static double draw_costs(FILE *out, const json_t *costs, const json_t *python, double top) {
  const axis scale = {1, 1000};
  double y = top, bottom = top + ROW * count_costs(costs, python);
  size_t i;
  json_t *one;
  text(out, 20, top - 34, "start", " class=\"title\"", "What one call costs a thread");
  fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT, top - 24, one_colour);
  text(out, LEFT + 18, top - 14, "start", " class=\"small\"", "one thread");
  fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT + 100, top - 24,
          two_colour);
  text(out, LEFT + 118, top - 14, "start", " class=\"small\"", "two threads at once");
  grid(out, &scale, top, bottom, " ns");
  json_array_foreach(costs, i, one) {
    double alone = median_of(one, "one_thread");
    if (isnan(alone))
      continue;
    cost(out, &scale, y, string_of(one, "name"), alone, median_of(one, "two_threads"));
    y += ROW;
  }
  json_array_foreach(python, i, one) {
    const json_t *ns = json_object_get(one, "ns");
    if (!json_is_number(ns))
      continue;
    cost(out, &scale, y, string_of(one, "name"), json_number_value(ns), NAN);
    y += ROW;
  }
  return bottom;
}

/* --------------------------------------------------------------------------------------------------------- targets */

/* How much of its target a row takes, 1 being all of it; NAN where it has none or was not measured. */
static double share_of_target(const json_t *row) {
  const json_t *target = json_object_get(row, "target");
  double value = median_of(row, "value");
  if (!json_is_number(target) || isnan(value))
    return NAN;
  return strcmp(string_of(row, "bound"), "at least") ? value / json_number_value(target)
                                                     : json_number_value(target) / value;
}

static int count_targets(const json_t *rows) {
  size_t i;
  int n = 0;
  json_t *row;
  json_array_foreach(rows, i, row) n += !isnan(share_of_target(row));
  return n;
}

static void describe(const json_t *row, char *label, size_t size) {
  const char *unit = *string_of(row, "kind") == 'r' ? "x" : string_of(row, "unit");
  snprintf(label, size, "%.3g %s (%s %g)", median_of(row, "value"), unit, string_of(row, "bound"),
           json_number_value(json_object_get(row, "target")));
}

static double draw_targets(FILE *out, const json_t *rows, double top) {
  const axis scale = {0.01, 10};
  double y = top, bottom = top + TARGET_ROW * count_targets(rows), all = position(&scale, 1);
  size_t i;
  json_t *row;
  text(out, 20, top - 22, "start", " class=\"title\"", "How much of its target each row takes");
  grid(out, &scale, top, bottom, "");
  fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\" stroke-width=\"1.5\"/>\n", all,
          all, top - 4, bottom);
  json_array_foreach(rows, i, row) {
    char label[64];
    double share = share_of_target(row);
    if (isnan(share))
      continue;
    text(out, LEFT - 10, y + TARGET_ROW / 2.0 + 4, "end", "", string_of(row, "what"));
    describe(row, label, sizeof label);
    bar(out, &scale, y + (TARGET_ROW - BAR) / 2.0, share, share <= 1 ? met_colour : missed_colour, label);
    y += TARGET_ROW;
  }
  text(out, all, top - 8, "middle", " class=\"small\"", "target");
  return bottom;
}

/* --------------------------------------------------------------------------------------------------------- kernels */

/* The top of an image of that height. */
static void begin(FILE *out, double height) {
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" "
          "font-size=\"13\">\n<style>.small{font-size:11px;fill:#444;stroke:#fff;stroke-width:3px;paint-order:stroke}."
          "title{font-size:16px;font-weight:bold}</style>\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
          WIDTH, height);
}

static void end(FILE *out, const json_t *report, double height) {
  const json_t *machine = json_object_get(report, "machine");
  char caption[512];
  snprintf(caption, sizeof caption, "%s, %lld processors, %s, %s, flhost %s, %.10s", string_of(machine, "cpu"),
           (long long)json_integer_value(json_object_get(machine, "processors")), string_of(machine, "kernel"),
           string_of(machine, "compiler"), string_of(machine, "flhost"), string_of(machine, "date"));
  text(out, 20, height - 10, "start", " class=\"small\"", caption);
  fputs("</svg>\n", out);
}

/* A row's bars, one for each thing that stands beside the kernel. */
static void draw_kernel(FILE *out, const axis *scale, const json_t *row, double y) {
  const json_t *bars = json_object_get(row, "bars");
  text(out, LEFT - 10, y + KERNEL_ROW / 2.0, "end", "", string_of(row, "name"));
  for (size_t i = 0; i < BESIDE; i++) {
    const json_t *value = json_array_get(bars, i);
    char label[32];
    if (!json_is_number(value))
      continue;
    snprintf(label, sizeof label, "%.3g", json_number_value(value));
    bar_of_height(out, scale, y + 2 + (double)i * (THIN_BAR + 1), THIN_BAR, json_number_value(value), beside_colours[i],
                  label);
  }
}

/* One figure; where it ends. */
static double draw_figure(FILE *out, const json_t *figure, double top) {
  const axis scale = {0.01, 100};
  const json_t *rows = json_object_get(figure, "rows");
  double y = top, bottom = top + KERNEL_ROW * (double)json_array_size(rows), same = position(&scale, 1);
  size_t i;
  json_t *row;
  text(out, 20, top - 12, "start", " class=\"title\"", string_of(figure, "title"));
  grid(out, &scale, top, bottom, " x");
  fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\" stroke-width=\"1.5\"/>\n",
          same, same, top - 4, bottom);
  json_array_foreach(rows, i, row) {
    draw_kernel(out, &scale, row, y);
    y += KERNEL_ROW;
  }
  return bottom;
}

static void draw_kernels(FILE *out, const json_t *report) {
  const json_t *figures = json_object_get(report, "figures"), *legend = json_object_get(report, "legend");
  double top = TOP, height = TOP + BOTTOM;
  size_t i;
  json_t *figure;
  json_array_foreach(figures, i, figure) height +=
      KERNEL_ROW * (double)json_array_size(json_object_get(figure, "rows")) + GAP;
  begin(out, height);
  for (i = 0; i < BESIDE; i++) {
    const char *words = json_string_value(json_array_get(legend, i));
    fprintf(out, "<rect x=\"%d\" y=\"14\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", LEFT + (int)i * 200,
            beside_colours[i]);
    text(out, LEFT + 18 + (double)i * 200, 24, "start", " class=\"small\"", words ? words : "");
  }
  json_array_foreach(figures, i, figure) top = draw_figure(out, figure, top) + GAP;
  end(out, report, height);
}

static void draw_dispatch(FILE *out, const json_t *report) {
  const json_t *rows = json_object_get(report, "rows");
  const json_t *costs = json_object_get(report, "costs"), *python = json_object_get(report, "python");
  double second = TOP + ROW * count_costs(costs, python) + GAP;
  double height = second + TARGET_ROW * count_targets(rows) + BOTTOM + 20;
  begin(out, height);
  draw_costs(out, costs, python, TOP);
  draw_targets(out, rows, second);
  end(out, report, height);
}

/* -------------------------------------------------------------------------------------------------- communicators */

enum { PANEL_WIDTH = 350, PANEL_HEIGHT = 150, PANEL_LEFT = 80, PANEL_RIGHT = 560, PANEL_STEP = 230 };
static const char *const run_colours[] = {"#1f6fb4", "#e08214", "#2a8a4a", "#8e44ad", "#777777"};
enum { RUNS = sizeof run_colours / sizeof *run_colours };

/* What a panel shows of the rows of one collective, by their size. */
typedef struct panel {
  const json_t *runs;
  const char *collective, *key;
  double factor; /* from the report's unit to that of the axis */
  axis sizes, values;
  double left, top;
} panel;

/* In the panel, from its left and from its bottom. */
static double share(const axis *scale, double value) {
  return (log10(value) - log10(scale->least)) / (log10(scale->most) - log10(scale->least));
}

static double x_of(const panel *p, double size) {
  return p->left + share(&p->sizes, size) * PANEL_WIDTH;
}

static double y_of(const panel *p, double value) {
  return p->top + (1 - share(&p->values, value)) * PANEL_HEIGHT;
}

/* Of a row what the panel shows; NAN: nothing. */
static double value_of(const panel *p, const json_t *row) {
  const json_t *value = json_object_get(row, p->key);
  bool is_shown =
      json_is_number(value) && json_number_value(value) > 0 && !strcmp(string_of(row, "collective"), p->collective);
  return is_shown ? json_number_value(value) * p->factor : NAN;
}

static double size_of(const json_t *row) {
  return json_number_value(json_object_get(row, "bytes"));
}

/* The axes begin and end where values do: those of sizes exactly, the others at a power of ten. False: no values. */
static bool fit(panel *p) {
  size_t i, j;
  json_t *run, *row;
  p->sizes = p->values = (axis){INFINITY, 0};
  json_array_foreach(p->runs, i, run) json_array_foreach(json_object_get(run, "rows"), j, row) {
    double value = value_of(p, row);
    if (isnan(value))
      continue;
    p->sizes = (axis){fmin(p->sizes.least, size_of(row)), fmax(p->sizes.most, size_of(row))};
    p->values = (axis){fmin(p->values.least, value), fmax(p->values.most, value)};
  }
  if (!(p->values.most > 0))
    return false;
  p->sizes.most = p->sizes.most > p->sizes.least ? p->sizes.most : p->sizes.least * 16;
  p->values.least = pow(10, floor(log10(p->values.least)));
  p->values.most = pow(10, fmax(ceil(log10(p->values.most)), log10(p->values.least) + 1));
  return true;
}

static void line(FILE *out, double x1, double y1, double x2, double y2) {
  fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, x2, y1, y2, grid_colour);
}

/* A value as the axis has it: "10 ms", "0.1 GB/s". */
static void name_value(char *label, size_t size, double at, const char *unit) {
  if (strcmp(unit, "us") != 0)
    snprintf(label, size, "%g %s", at, unit);
  else if (at < 1e3)
    snprintf(label, size, "%g us", at);
  else
    snprintf(label, size, at < 1e6 ? "%g ms" : "%g s", at < 1e6 ? at / 1e3 : at / 1e6);
}

static void draw_axes(FILE *out, const panel *p, const char *unit) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
  char label[64];
  for (double at = p->values.least; at <= p->values.most * 1.001; at *= 10) {
    name_value(label, sizeof label, at, unit);
    line(out, p->left, y_of(p, at), p->left + PANEL_WIDTH, y_of(p, at));
    text(out, p->left - 6, y_of(p, at) + 4, "end", " class=\"small\"", label);
  }
  for (double at = 1; at <= p->sizes.most * 1.001; at *= 16) {
    int power = at >= 1 << 30 ? 3 : at >= 1 << 20 ? 2 : at >= 1 << 10 ? 1 : 0;
    if (at < p->sizes.least)
      continue;
    snprintf(label, sizeof label, "%g %s", at / pow(1024, power), units[power]);
    line(out, x_of(p, at), p->top, x_of(p, at), p->top + PANEL_HEIGHT);
    text(out, x_of(p, at), p->top + PANEL_HEIGHT + 16, "middle", " class=\"small\"", label);
  }
}

/* A run's line, with a mark for each size. */
static void draw_run(FILE *out, const panel *p, const json_t *rows, const char *colour) {
  size_t i;
  json_t *row;
  fputs("<polyline points=\"", out);
  json_array_foreach(rows, i, row) if (!isnan(value_of(p, row)))
      fprintf(out, "%.1f,%.1f ", x_of(p, size_of(row)), y_of(p, value_of(p, row)));
  fprintf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", colour);
  json_array_foreach(rows, i, row) if (!isnan(value_of(p, row)))
      fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_of(p, size_of(row)),
              y_of(p, value_of(p, row)), colour);
}

static void draw_panel(FILE *out, panel p, const char *title, const char *unit) {
  size_t i;
  json_t *run;
  if (!fit(&p))
    return;
  text(out, p.left, p.top - 10, "start", " class=\"small\"", title);
  draw_axes(out, &p, unit);
  json_array_foreach(p.runs, i, run) draw_run(out, &p, json_object_get(run, "rows"), run_colours[i % RUNS]);
}

static void draw_legend(FILE *out, const json_t *runs) {
  size_t i;
  json_t *run;
  json_array_foreach(runs, i, run) {
    char words[160];
    double x = PANEL_LEFT + (double)i * 280;
    snprintf(words, sizeof words, "%s, %lld ranks", string_of(run, "name"),
             (long long)json_integer_value(json_object_get(run, "ranks")));
    fprintf(out, "<rect x=\"%.1f\" y=\"14\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, run_colours[i % RUNS]);
    text(out, x + 18, 24, "start", " class=\"small\"", words);
  }
}

static void draw_communicators(FILE *out, const json_t *report) {
  static const char *const collectives[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                            "broadcast",  "reduce",     "send_recv",      "ping_pong"};
  enum { N = sizeof collectives / sizeof *collectives };
  const json_t *runs = json_object_get(report, "runs");
  const double height = TOP + 20 + N * PANEL_STEP;
  begin(out, height);
  draw_legend(out, runs);
  for (int i = 0; i < N; i++) {
    const double top = TOP + 20 + (double)i * PANEL_STEP;
    panel p = {
        .runs = runs, .collective = collectives[i], .key = "seconds", .factor = 1e6, .left = PANEL_LEFT, .top = top};
    text(out, 20, top - 28, "start", " class=\"title\"", collectives[i]);
    draw_panel(out, p, i == N - 1 ? "latency: half of the time there and back" : "time", "us");
    p = (panel){.runs = runs,
                .collective = collectives[i],
                .key = "bus_bytes_per_s",
                .factor = 1e-9,
                .left = PANEL_RIGHT,
                .top = top};
    draw_panel(out, p, "bus bandwidth", "GB/s");
  }
  end(out, report, height);
}

static void draw(FILE *out, const json_t *report) {
  if (json_is_array(json_object_get(report, "runs")))
    draw_communicators(out, report);
  else if (json_is_array(json_object_get(report, "figures")))
    draw_kernels(out, report);
  else
    draw_dispatch(out, report);
}

int main(int argc, char **argv) {
  json_error_t error;
  if (argc != 3) {
    fprintf(stderr, "usage: plot REPORT.json FIGURE.svg\n");
    return 2;
  }
  json_t *report = json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error);
  if (!report) {
    fprintf(stderr, "plot: %s:%d: %s\n", argv[1], error.line, error.text);
    return 1;
  }
  FILE *out = fopen(argv[2], "we");
  bool done = out != NULL;
  if (out) {
    draw(out, report);
    done = !ferror(out);
    done = !fclose(out) && done;
  }
  if (!done)
    fprintf(stderr, "plot: cannot write %s: %m\n", argv[2]);
  json_decref(report);
  return done ? 0 : 1;
}
