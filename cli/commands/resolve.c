/* flhost resolve: which implementation an op gets. */
#include "cli/cli.h"
#include "cli/table.h"

#include <stdio.h>

static int print_resolution(const char *op, const fl_resolution *found, int32_t device_type, bool json) {
  static const char *const headers[] = {"OP", "IMPL", "KIND", "VENDOR", ">PRIORITY", "DEVICE", NULL};
  const char *kind = cli_kind_name(found->kind), *device = cli_device_name(device_type);
  if (json)
    return cli_print_json(json_pack("{s:o, s:o, s:s, s:o, s:i, s:s}", "op", cli_json_string(op), "impl_id",
                                    cli_json_string(found->impl_id), "kind", kind, "vendor",
                                    cli_json_string(*found->vendor ? found->vendor : NULL), "priority", found->priority,
                                    "device", device));
  cli_table table;
  cli_table_begin(&table, headers, 0);
  cli_table_add(&table, op);
  cli_table_add(&table, found->impl_id);
  cli_table_add(&table, kind);
  cli_table_add(&table, found->vendor);
  cli_table_format(&table, "%d", found->priority);
  cli_table_add(&table, device);
  return cli_table_print(&table);
}

int command_resolve(int argc, char **argv) {
  const char *device = "cpu";
  bool json = false;
  const cli_option options[] = {CLI_DEVICE(&device), CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {"OP", 1, 1,
                             "Prints the implementation that the policy in force puts first for an operator.\n"
                             "Exit status 3: there is none.",
                             options};
  int32_t device_type;
  fl_resolution found = {.size = sizeof found};
  fl_status status;
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  if (!cli_device_type(host, device, &device_type))
    exit_status = EXIT_USAGE;
  else if ((status = fl_resolve_op(host, argv[first], device_type, &found)))
    exit_status = cli_fail(status);
  else
    exit_status = print_resolution(argv[first], &found, device_type, json);
  fl_host_destroy(host);
  return exit_status;
}
