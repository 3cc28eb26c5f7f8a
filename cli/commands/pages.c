/* flhost ops --pages: the manual's pages of operators, one a category, from what the host knows of them. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  DLDataType dtype;
} tolerance_types[] = {
    {"float32", {kDLFloat, 32, 1}},
    {"float16", {kDLFloat, 16, 1}},
    {"bfloat16", {kDLBfloat, 16, 1}},
};

/* The rules, a line for each clause. */
static void write_rules(FILE *page, const char *rules) {
  while (*rules) {
    size_t length = strcspn(rules, ";");
    fprintf(page, "%.*s\n", (int)length, rules);
    rules += length;
    rules += strspn(rules, "; ");
  }
}

static void write_impls(FILE *page, const fl_snapshot *snapshot, uint32_t index) {
  uint32_t n = fl_snapshot_impl_count(snapshot, index);
  if (!n)
    fputs("No backend here has it.\n", page);
  for (uint32_t i = 0; i < n; i++) {
    const fl_impl_info *impl = fl_snapshot_impl(snapshot, index, i);
    char *devices = cli_device_names(impl->devices);
    fprintf(page, "%s`%s` (%s, on %s)", i ? ", " : "In ", impl->impl_id, impl->plugin, devices ? devices : "?");
    free(devices);
  }
  if (n)
    fputs(".\n", page);
}

static void write_layers(FILE *page, fl_host *host, const fl_op *op) {
  fl_explanation *explanation;
  if (fl_explain(host, fl_op_name(op), kDLCPU, &explanation))
    return;
  for (uint32_t i = 0; i < explanation->n_replaces; i++)
    fprintf(page, "%s`%s`", i ? ", " : "Replaces vLLM's ", fl_replaced_at(explanation, i)->class_name);
  fputs(explanation->n_replaces ? ".\n\n" : "", page);
  fl_explanation_free(explanation);
}

static void write_op(FILE *page, fl_host *host, const fl_op *op, const fl_snapshot *snapshot, uint32_t index) {
  fprintf(page, "\n## %s\n%s\n\n```\n%s\n```\n", fl_op_name(op), fl_op_doc(op), fl_op_schema(op));
  if (*fl_op_rules(op)) {
    fputs("Shapes and element types:\n```\n", page);
    write_rules(page, fl_op_rules(op));
    fputs("```\n", page);
  }
  if (*fl_op_formula(op))
    fprintf(page, "Formula: %s\n\n", fl_op_formula(op));
  if (*fl_op_parts(op))
    fprintf(page, "Parts: `%s`\n\n", fl_op_parts(op));
  if (*fl_op_ranks(op))
    fprintf(page, "Over [ranks](../ranks.md): `%s`\n\n", fl_op_ranks(op));
  write_layers(page, host, op);
  fprintf(page, "Cost: bytes `%s`, operations `%s`.\n\n", cli_op_bytes(op),
          *fl_op_flops(op) ? fl_op_flops(op) : "not known");
  fputs("Tolerance:", page);
  for (size_t i = 0; i < sizeof tolerance_types / sizeof *tolerance_types; i++) {
    fl_tolerance bound = cli_tolerance(op, tolerance_types[i].dtype);
    fprintf(page, "%s %s %g + %g·|e|", i ? "," : "", tolerance_types[i].name, bound.atol, bound.rtol);
  }
  fputs(".\n\n", page);
  write_impls(page, snapshot, index);
}

/* The category's page, as far as its head; NULL when it cannot be written. */
static FILE *begin_page(const char *directory, const char *category) {
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/%s.md", directory, category);
  for (char *c = path + strlen(directory) + 1; *c; c++)
    if (*c == ' ')
      *c = '-';
  FILE *page = length > 0 && (size_t)length < sizeof path ? fopen(path, "w") : NULL;
  if (!page) {
    cli_error("cannot write '%s': %s", path, strerror(errno));
    return NULL;
  }
  fprintf(page,
          "# %c%s\n\nMade by `make docs` from the operators' entries. In the shapes `...` stands for any leading "
          "dimensions, a capital letter for an element type; a result differs from e, the expected value, by no more "
          "than the tolerance. Costs are those of the best algorithm, in the words of `fl_op_def` (flhost/plugin.h): "
          "`default` is each argument read once and each result written once.\n",
          toupper((unsigned char)category[0]), category + 1);
  return page;
}

static bool is_first_of_category(fl_host *host, const fl_snapshot *snapshot, uint32_t index, const char *category) {
  for (uint32_t i = 0; i < index; i++)
    if (!strcmp(fl_op_category(fl_find_op(host, fl_snapshot_op_name(snapshot, i))), category))
      return false;
  return *category != 0;
}

static int write_page(fl_host *host, const fl_snapshot *snapshot, const char *directory, const char *category) {
  FILE *page = begin_page(directory, category);
  if (!page)
    return EXIT_USAGE;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    const fl_op *op = fl_find_op(host, fl_snapshot_op_name(snapshot, i));
    if (!strcmp(fl_op_category(op), category))
      write_op(page, host, op, snapshot, i);
  }
  bool failed = ferror(page);
  if (fclose(page) || failed) {
    cli_error("cannot write the page of '%s' in '%s'", category, directory);
    return EXIT_USAGE;
  }
  return EXIT_OK;
}

int cli_write_pages(fl_host *host, const fl_snapshot *snapshot, const char *directory) {
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    const char *category = fl_op_category(fl_find_op(host, fl_snapshot_op_name(snapshot, i)));
    if (is_first_of_category(host, snapshot, i, category) && write_page(host, snapshot, directory, category))
      return EXIT_USAGE;
  }
  return EXIT_OK;
}
