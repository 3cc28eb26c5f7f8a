/* flhost explain: every implementation of an op, in the order they are tried, and the rule that decided. */
#include "cli/communicators.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static const char *verdict_name(fl_verdict verdict) {
  static const char *const names[] = {
      [FL_SELECTED] = "selected", [FL_CANDIDATE] = "candidate", [FL_REJECTED] = "rejected"};
  return names[verdict];
}

static json_t *explanation_json(const fl_explanation *explanation, int32_t device_type) {
  json_t *order = json_array(), *implementations = json_array(), *replaces = json_array(), *missing = json_array();
  for (uint32_t i = 0; i < explanation->n_order; i++)
    order = cli_json_append(order, cli_json_string(explanation->order[i]));
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    implementations = cli_json_append(
        implementations,
        json_pack("{s:o, s:s, s:o, s:i, s:o, s:o, s:b, s:b, s:s, s:o}", "impl_id", cli_json_string(impl->impl_id),
                  "kind", impl->kind, "vendor", cli_json_string(impl->vendor), "priority", impl->priority, "plugin",
                  cli_json_string(impl->plugin), "variant", cli_json_string(impl->variant), "prepares",
                  (int)impl->prepares, "candidate", impl->verdict != FL_REJECTED, "verdict",
                  verdict_name(impl->verdict), "reason", cli_json_string(impl->reason)));
  }
  for (uint32_t i = 0; i < explanation->n_replaces; i++) {
    const fl_replaced *layer = fl_replaced_at(explanation, i);
    replaces =
        cli_json_append(replaces, json_pack("{s:o, s:b, s:o}", "class", cli_json_string(layer->class_name), "allowed",
                                            (int)layer->allowed, "reason", cli_json_string(layer->reason)));
  }
  for (uint32_t i = 0; i < explanation->n_missing; i++) {
    const fl_missing_plugin *plugin = fl_missing_plugin_at(explanation, i);
    missing =
        cli_json_append(missing, json_pack("{s:o, s:o, s:s, s:b, s:o}", "plugin", cli_json_string(plugin->plugin),
                                           "file", cli_json_string(plugin->file), "status", plugin->status, "lists_op",
                                           (int)plugin->lists_op, "reason", cli_json_string(plugin->reason)));
  }
  return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op", cli_json_string(explanation->op), "device",
                   cli_device_name(device_type), "order", order, "order_origin",
                   cli_json_string(explanation->order_origin), "selected", cli_json_string(explanation->selected),
                   "error", cli_json_string(explanation->error), "implementations", implementations, "replaces",
                   replaces, "missing_plugins", missing);
}

static void print_order(const fl_explanation *explanation) {
  for (uint32_t i = 0; i < explanation->n_order; i++) {
    fputs(i ? ", " : "", stdout);
    cli_put_text(stdout, explanation->order[i]);
  }
  fputs(" (", stdout);
  cli_put_text(stdout, explanation->order_origin);
  puts(")");
}

static void print_replaced(const fl_replaced *layer) {
  fputs("replaces: ", stdout);
  cli_put_text(stdout, layer->class_name);
  fputs(layer->allowed ? " (allowed" : " (not allowed: ", stdout);
  cli_put_text(stdout, layer->allowed ? "" : layer->reason);
  puts(")");
}

/* Plugins that would have brought the op more, or might have. A reason may have several lines: the first tells. */
static int print_missing(const fl_explanation *explanation) {
  static const char *const headers[] = {"MISSING PLUGIN", "HAS THE OP", "STATUS", "REASON", NULL};
  cli_table table;
  if (!explanation->n_missing)
    return EXIT_OK;
  putchar('\n');
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < explanation->n_missing; i++) {
    const fl_missing_plugin *plugin = fl_missing_plugin_at(explanation, i);
    cli_table_add(&table, plugin->plugin);
    cli_table_add(&table, plugin->lists_op ? "yes" : "perhaps");
    cli_table_add(&table, plugin->status);
    cli_table_format(&table, "%.*s", (int)strcspn(plugin->reason, "\n"), plugin->reason);
  }
  int exit_status = cli_table_print(&table);
  puts("'flhost plugins' tells more of them.");
  return exit_status;
}

/* Who packs or converts weights that an engine has prepared. */
static void print_preparing(const fl_explanation *explanation) {
  const char *before = "\nprepares weights (fl_prepare): ";
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    if (!impl->prepares)
      continue;
    fputs(before, stdout);
    cli_put_text(stdout, impl->impl_id);
    before = ", ";
  }
  if (*before == ',')
    putchar('\n');
}

static int print_explanation(const fl_explanation *explanation, int32_t device_type) {
  static const char *const headers[] = {"IMPL", "KIND", "VENDOR", ">PRIORITY", "PLUGIN", "VERDICT", "REASON", NULL};
  cli_table table;
  cli_print_title(explanation->op);
  fputs("order:    ", stdout);
  print_order(explanation);
  fputs("selected: ", stdout);
  cli_put_text(stdout, explanation->selected ? explanation->selected : "none");
  printf(" (tensors on %s)\n", cli_device_name(device_type));
  for (uint32_t i = 0; i < explanation->n_replaces; i++)
    print_replaced(fl_replaced_at(explanation, i));
  putchar('\n');
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    cli_table_add(&table, impl->impl_id);
    cli_table_add(&table, impl->kind);
    cli_table_add(&table, impl->vendor);
    cli_table_format(&table, "%d", impl->priority);
    cli_table_format(&table, impl->variant ? "%s (%s)" : "%s", impl->plugin, impl->variant);
    cli_table_add(&table, verdict_name(impl->verdict));
    cli_table_add(&table, impl->reason);
  }
  int exit_status = cli_table_print(&table);
  print_preparing(explanation);
  return exit_status ? exit_status : print_missing(explanation);
}

/* ----------------------------------------------------------------------------------------------------- in few lines */

static const fl_failed_impl *failure_of(const fl_failed_impls *failed, const char *impl_id) {
  for (uint32_t i = 0; i < failed->n; i++)
    if (!strcmp(fl_failed_impl_at(failed, i)->impl_id, impl_id))
      return fl_failed_impl_at(failed, i);
  return NULL;
}

static bool is_unavailable(const fl_explained *impl) {
  static const char words[] = "not available: ";
  return impl->verdict == FL_REJECTED && !strncmp(impl->reason, words, strlen(words));
}

/* "rms_norm: vendor.acme, then default.flagos, reference.c" */
static void print_winners(const fl_explanation *explanation, const fl_failed_impls *failed) {
  uint32_t n = 0;
  cli_put_text(stdout, explanation->op);
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    if (impl->verdict == FL_REJECTED || failure_of(failed, impl->impl_id))
      continue;
    fputs(n == 0 ? ": " : n == 1 ? ", then " : ", ", stdout);
    cli_put_text(stdout, impl->impl_id);
    n++;
  }
  puts(n ? "" : ": none");
}

/* The implementations that are not tried, each with its reason; those that cannot run here in one line. */
static void print_losers(const fl_explanation *explanation, const fl_failed_impls *failed) {
  uint32_t unavailable = 0;
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    const fl_failed_impl *failure = failure_of(failed, impl->impl_id);
    if (is_unavailable(impl) || (impl->verdict != FL_REJECTED && !failure))
      continue;
    printf("  ");
    cli_put_text(stdout, impl->impl_id);
    fputs(failure ? ": failed: " : ": ", stdout);
    cli_put_text(stdout, failure ? failure->reason : impl->reason);
    if (failure && failure->retry_in >= 0)
      printf("; tried again in %.1f s", failure->retry_in);
    putchar('\n');
  }
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    if (is_unavailable(fl_explained_at(explanation, i))) {
      fputs(unavailable++ ? ", " : "  not available here: ", stdout);
      cli_put_text(stdout, fl_explained_at(explanation, i)->impl_id);
    }
  if (unavailable)
    putchar('\n');
}

/* In one line each. */
static void print_missing_briefly(const fl_explanation *explanation) {
  for (uint32_t i = 0; i < explanation->n_missing; i++) {
    const fl_missing_plugin *plugin = fl_missing_plugin_at(explanation, i);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(plugin->reason, "\n"), plugin->reason);
    fputs("  plugin ", stdout);
    cli_put_text(stdout, plugin->plugin);
    printf(", which %s it, %s%s: ", plugin->lists_op ? "lists" : "may have",
           strcmp(plugin->status, "failed") != 0 ? "is " : "", plugin->status);
    cli_put_text(stdout, line);
    putchar('\n');
  }
}

static int print_briefly(fl_host *host, const fl_explanation *explanation) {
  fl_failed_impls *failed;
  fl_status status = fl_get_failed_impls(host, explanation->op, &failed);
  if (status)
    return cli_fail(status);
  print_winners(explanation, failed);
  fputs("  order: ", stdout);
  print_order(explanation);
  print_losers(explanation, failed);
  print_missing_briefly(explanation);
  fl_failed_impls_free(failed);
  return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------------ the command */

typedef enum explain_form { AS_TABLE, BRIEF, AS_JSON } explain_form;

static int explain_one(fl_host *host, const char *op, int32_t device_type, explain_form form) {
  fl_explanation *explanation;
  fl_status status = fl_explain(host, op, device_type, &explanation);
  if (status)
    return cli_fail(status);
  int exit_status = form == AS_JSON ? cli_print_json(explanation_json(explanation, device_type))
                    : form == BRIEF ? print_briefly(host, explanation)
                                    : print_explanation(explanation, device_type);
  if (!exit_status && !explanation->selected) {
    const char *error = explanation->error ? explanation->error : "";
    cli_error("%.*s", (int)strcspn(error, "\n"), error); /* the lines after it repeat the reasons */
    exit_status = EXIT_NO_IMPL;
  }
  fl_explanation_free(explanation);
  return exit_status;
}

int cli_explain_briefly(fl_host *host, const char *op, int32_t device_type) {
  return explain_one(host, op, device_type, BRIEF);
}

const fl_explained *cli_most_telling(const fl_explanation *explanation, const fl_snapshot *snapshot, uint32_t op,
                                     int32_t device_type) {
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, op); j++) {
      const fl_impl_info *impl = fl_snapshot_impl(snapshot, op, j);
      if (!strcmp(impl->impl_id, fl_explained_at(explanation, i)->impl_id) && impl->devices & FL_DEVICE(device_type))
        return fl_explained_at(explanation, i);
    }
  return NULL;
}

/* One line for an op: what is selected and why; where nothing is, why one that is for the device was rejected. */
static void add_summary(cli_table *table, const fl_explanation *explanation, const fl_snapshot *snapshot, uint32_t op,
                        int32_t device_type) {
  uint32_t n[FL_REJECTED + 1] = {0};
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    n[fl_explained_at(explanation, i)->verdict]++;
  cli_table_add(table, explanation->op);
  cli_table_add(table, explanation->selected);
  cli_table_format(table, "%u", n[FL_SELECTED] + n[FL_CANDIDATE]);
  cli_table_format(table, "%u", n[FL_REJECTED]);
  const fl_explained *impl = cli_most_telling(explanation, snapshot, op, device_type);
  if (explanation->selected)
    cli_table_add(table, fl_explained_at(explanation, 0)->reason);
  else if (impl)
    cli_table_format(table, "%s: %s", impl->impl_id, impl->reason);
  else if (!explanation->n_impls && explanation->n_missing && fl_missing_plugin_at(explanation, 0)->lists_op)
    cli_table_format(table, "plugin %s is missing: %s", fl_missing_plugin_at(explanation, 0)->plugin,
                     fl_missing_plugin_at(explanation, 0)->reason);
  else
    cli_table_add(table, explanation->n_impls ? "none is for this device" : "nothing is registered");
}

static int explain_all(fl_host *host, int32_t device_type, explain_form form) {
  static const char *const headers[] = {"OP", "SELECTED", ">CANDIDATES", ">REJECTED", "REASON", NULL};
  cli_table table;
  fl_status status = FL_OK;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  json_t *list = json_array();
  if (!snapshot) {
    json_decref(list);
    return cli_no_memory();
  }
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot) && !status; i++) {
    fl_explanation *explanation;
    status = fl_explain(host, fl_snapshot_op_name(snapshot, i), device_type, &explanation);
    if (status)
      break;
    if (form == AS_JSON)
      list = cli_json_append(list, explanation_json(explanation, device_type));
    else
      add_summary(&table, explanation, snapshot, i, device_type);
    fl_explanation_free(explanation);
  }
  int exit_status = status            ? cli_fail(status)
                    : form == AS_JSON ? cli_print_json(json_incref(list))
                                      : cli_table_print(&table);
  cli_table_free(&table);
  json_decref(list);
  fl_snapshot_release(snapshot);
  return exit_status;
}

/* The word stands for what groups of ranks are made with, which is chosen like an implementation. */
static int explain_communicators(fl_host *host, bool json) {
  int exit_status = EXIT_OK;
  if (!json)
    return cli_print_communicators(host);
  json_t *list = cli_communicators_json(host, &exit_status);
  return list ? cli_print_json(list) : exit_status;
}

int command_explain(int argc, char **argv) {
  const char *device = "cpu";
  bool json = false, brief = false;
  const cli_option options[] = {CLI_DEVICE(&device),
                                {"brief", NULL, "the order and what is left out, in a few lines", &brief, NULL},
                                CLI_JSON(&json),
                                {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP]", 0, 1,
      "Lists every registered implementation of an operator in the order they are tried, with the verdict and "
      "the rule, setting and place that decided, and the layer classes of vLLM that it replaces, of which each "
      "may stand for OP; then the plugins that are missing though they list OP, or may have it. Without OP: one line "
      "for each operator. The word communicator in place of OP: which communicator groups of ranks use, and why. The "
      "kinds: flagos, an operator's default "
      "implementation, portable and optimised; vendor, a vendor's own; reference, plain code that says what is "
      "right.\n"
      "Exit status 3: OP has no implementation that may run.",
      options};
  int32_t device_type;
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  explain_form form = json ? AS_JSON : brief ? BRIEF : AS_TABLE;
  if (!cli_device_type(host, device, &device_type))
    exit_status = EXIT_USAGE;
  else if (first < argc && !strcmp(argv[first], CLI_COMMUNICATOR))
    exit_status = explain_communicators(host, json);
  else if (first < argc)
    exit_status = explain_one(host, argv[first], device_type, form);
  else
    exit_status = explain_all(host, device_type, form);
  fl_host_destroy(host);
  return exit_status;
}
