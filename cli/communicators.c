/* Communicators as `flhost platform` and `flhost explain communicator` show them. */
#include "cli/communicators.h"

#include "cli/table.h"

#include <stdio.h>
#include <string.h>

bool cli_is_communicator(int n, char **words) {
  return n == 1 && !strcmp(words[0], CLI_COMMUNICATOR);
}

bool cli_ranks_fit(int n, char **words) {
  if (!cli_is_communicator(n, words))
    cli_error("--ranks needs the word " CLI_COMMUNICATOR " in place of operators");
  return cli_is_communicator(n, words);
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static json_t *names_json(const char *(*name_of)(int32_t), int32_t n, uint32_t set, bool are_in) {
  json_t *list = json_array();
  for (int32_t i = 0; i < n; i++)
    if (are_in == (bool)(set & 1u << i))
      list = cli_json_append(list, json_string(name_of(i)));
  return list;
}

static json_t *types_json(uint32_t set) {
  json_t *list = json_array();
  const fl_element_type *type;
  for (uint32_t i = 0; (type = fl_element_type_at(i)); i++)
    if (type->bit & set)
      list = cli_json_append(list, json_string(type->name));
  return list;
}

static json_t *communicator_json(const fl_communicator_info *c) {
  return json_pack("{s:o, s:o, s:s, s:o, s:i, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:b, s:b}", "name",
                   cli_json_string(c->name), "plugin", cli_json_string(c->plugin), "kind", cli_kind_name(c->kind),
                   "vendor", cli_json_string(c->vendor), "priority", (int)c->priority, "device_type",
                   cli_json_string(cli_device_name(c->device_type)), "available", (int)c->available, "chosen",
                   (int)c->chosen, "reason", cli_json_string(c->reason), "native",
                   names_json(fl_collective_name, FL_COLLECTIVES, c->native, true), "composed",
                   names_json(fl_collective_name, FL_COLLECTIVES, c->native, false), "dtypes", types_json(c->dtypes),
                   "reductions", names_json(fl_reduction_name, FL_REDUCTIONS, c->reductions, true), "batches",
                   (int)c->batches, "splits", (int)c->splits);
}

json_t *cli_communicators_json(fl_host *host, int *exit_status) {
  fl_communicators *all;
  fl_status status = fl_get_communicators(host, &all);
  if (status) {
    *exit_status = cli_fail(status);
    return NULL;
  }
  json_t *list = json_array();
  for (uint32_t i = 0; i < all->n; i++)
    list = cli_json_append(list, communicator_json(fl_communicator_at(all, i)));
  fl_communicators_free(all);
  if (!list)
    *exit_status = cli_no_memory();
  return list;
}

/* ------------------------------------------------------------------------------------------------------------ table */

/* "all", those that it has, or those that it has not, whichever is shorter. */
static void add_native(cli_table *table, uint32_t native) {
  int n = __builtin_popcount(native);
  bool are_in = n <= FL_COLLECTIVES / 2;
  char names[256] = "";
  size_t length = 0;
  for (int32_t i = 0; i < FL_COLLECTIVES && length < sizeof names - 32; i++)
    if (are_in == (bool)(native & 1u << i))
      length +=
          (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", fl_collective_name(i));
  cli_table_format(table, "%s%s", n == FL_COLLECTIVES ? "all" : are_in ? "" : "all but ", names);
}

int cli_print_communicators(fl_host *host) {
  static const char *const headers[] = {"COMMUNICATOR", "DEVICE", "AVAILABLE", ">PRIORITY",
                                        "PLUGIN",       "REASON", "NATIVE",    NULL};
  fl_communicators *all;
  cli_table table;
  fl_status status = fl_get_communicators(host, &all);
  if (status)
    return cli_fail(status);
  if (!all->n) {
    puts("No plugin brings a communicator.");
    fl_communicators_free(all);
    return EXIT_OK;
  }
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < all->n; i++) {
    const fl_communicator_info *c = fl_communicator_at(all, i);
    cli_table_add(&table, c->name);
    cli_table_add(&table, cli_device_name(c->device_type));
    cli_table_add(&table, c->available ? "yes" : "no");
    cli_table_format(&table, "%d", c->priority);
    cli_table_add(&table, c->plugin);
    cli_table_add(&table, c->chosen ? "chosen" : c->reason);
    add_native(&table, c->native);
  }
  fl_communicators_free(all);
  return cli_table_print(&table);
}
