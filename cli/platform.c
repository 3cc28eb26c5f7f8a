/* flhost platform: hardware on the bus, drivers that open, and the platform in force. */
#include "cli/cli.h"
#include "cli/table.h"

#include <stdio.h>

static int print_json(const fl_platform_report *report) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_platform_info *platform = &report->platforms[i];
    json_t *entry =
        json_pack("{s:o, s:o, s:b, s:I, s:o, s:b, s:o, s:o, s:o}", "name", cli_json_string(platform->name), "plugin",
                  cli_json_string(platform->plugin), "active", (int)platform->active, "pci_devices",
                  (json_int_t)platform->pci_devices, "pci", cli_json_string(platform->pci), "driver_found",
                  (int)platform->driver_found, "driver", cli_json_string(platform->driver), "device_count",
                  platform->device_count < 0 ? json_null() : json_integer(platform->device_count), "diagnosis",
                  cli_json_string(platform->diagnosis));
    list = cli_json_append(list, entry);
  }
  return cli_print_json(json_pack("{s:o, s:o, s:o, s:o}", "active", cli_json_string(report->active), "origin",
                                  cli_json_string(report->active_origin), "config_file",
                                  cli_json_string(report->config_file), "platforms", list));
}

static int print_table(const fl_platform_report *report) {
  static const char *const headers[] = {"PLATFORM", "ACTIVE", ">ON THE BUS", "DRIVER", ">DEVICES", "DIAGNOSIS", NULL};
  cli_table table;
  printf("platform:    %s (%s)\nconfig file: %s\n\n", report->active, report->active_origin,
         *report->config_file ? report->config_file : "none");
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_platform_info *platform = &report->platforms[i];
    cli_table_add(&table, platform->name);
    cli_table_add(&table, platform->active ? "yes" : "no");
    cli_table_format(&table, "%u", platform->pci_devices);
    cli_table_add(&table, platform->driver_found ? platform->driver : *platform->driver ? "not found" : "");
    if (platform->device_count < 0)
      cli_table_add(&table, "");
    else
      cli_table_format(&table, "%d", platform->device_count);
    cli_table_add(&table, platform->diagnosis);
  }
  return cli_table_print(&table);
}

int command_platform(int argc, char **argv) {
  bool json = false;
  const cli_option options[] = {CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {"", 0, 0,
                             "Shows the platform in force and, for each known platform, the devices on the bus, the\n"
                             "driver library, and what that means.",
                             options};
  int exit_status;
  fl_platform_report *report;
  if (cli_parse(&syntax, argc, argv, &exit_status) < 0)
    return exit_status;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  fl_status status = fl_get_platform(host, &report);
  if (status) {
    exit_status = cli_fail(status);
  } else {
    exit_status = json ? print_json(report) : print_table(report);
    fl_platform_report_free(report);
  }
  fl_host_destroy(host);
  return exit_status;
}
