/* flhost platform: hardware on the bus, drivers that open, and the platform in force. */
#include "cli/communicators.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static json_t *steps_json(const fl_platform_info *platform) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < platform->n_steps; i++) {
    const fl_platform_step *step = fl_platform_step_at(platform, i);
    list = cli_json_append(list, json_pack("{s:s, s:s, s:o, s:o}", "step", step->name, "state", step->state, "finding",
                                           cli_json_string(step->finding), "advice", cli_json_string(step->advice)));
  }
  return list;
}

/* What is not known is null. */
static json_t *text_or_null(const char *text) {
  return cli_json_string(*text ? text : NULL);
}

static json_t *number_or_null(uint64_t number) {
  return number ? json_integer((json_int_t)number) : json_null();
}

static json_t *devices_json(const fl_platform_info *platform) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < platform->n_devices; i++) {
    const fl_device_properties *device = fl_platform_device_at(platform, i);
    list = cli_json_append(list, json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "index", (json_int_t)i, "name",
                                           text_or_null(device->name), "arch", text_or_null(device->arch), "driver",
                                           text_or_null(device->driver), "units",
                                           number_or_null(device->units > 0 ? (uint64_t)device->units : 0),
                                           "memory_total", number_or_null(device->memory_total), "memory_free",
                                           number_or_null(device->memory_free)));
  }
  return list;
}

static int print_json(fl_host *host, const fl_platform_report *report) {
  int exit_status = EXIT_OK;
  json_t *list = json_array(), *communicators = cli_communicators_json(host, &exit_status);
  if (!communicators) {
    json_decref(list);
    return exit_status;
  }
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_platform_info *platform = fl_platform_at(report, i);
    json_t *entry = json_pack(
        "{s:o, s:o, s:b, s:I, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "name", cli_json_string(platform->name),
        "plugin", cli_json_string(platform->plugin), "active", (int)platform->active, "pci_devices",
        (json_int_t)platform->pci_devices, "pci", cli_json_string(platform->pci), "driver_found",
        (int)platform->driver_found, "driver", cli_json_string(platform->driver), "device_count",
        platform->device_count < 0 ? json_null() : json_integer(platform->device_count), "diagnosis",
        cli_json_string(platform->diagnosis), "device_type", cli_json_string(cli_device_name(platform->device_type)),
        "steps", steps_json(platform), "devices", devices_json(platform));
    list = cli_json_append(list, entry);
  }
  return cli_print_json(json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "active", cli_json_string(report->active), "origin",
                                  cli_json_string(report->active_origin), "config_file",
                                  cli_json_string(report->config_file), "unserved", cli_json_string(report->unserved),
                                  "platforms", list, "communicators", communicators));
}

/* Is there anything of it: on the bus, in the file system, a library, a plugin that is active? */
static bool is_of_interest(const fl_platform_info *platform) {
  bool found = platform->active || platform->pci_devices;
  for (uint32_t i = 0; i < platform->n_steps; i++)
    found |= !strcmp(fl_platform_step_at(platform, i)->state, "ok");
  return found && platform->n_steps;
}

static int print_steps(const fl_platform_info *platform) {
  static const char *const headers[] = {"STEP", "STATE", "FINDING", NULL};
  cli_table table;
  fputs("\nSteps to a device of ", stdout);
  cli_put_text(stdout, platform->name);
  if (*platform->plugin) {
    fputs(", plugin '", stdout);
    cli_put_text(stdout, platform->plugin);
    putchar('\'');
  }
  puts(":");
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < platform->n_steps; i++) {
    const fl_platform_step *step = fl_platform_step_at(platform, i);
    cli_table_add(&table, step->name);
    cli_table_add(&table, step->state);
    cli_table_add(&table, step->finding);
    if (*step->advice && strcmp(step->state, "ok") != 0)
      cli_table_note(&table, step->advice);
  }
  return cli_table_print(&table);
}

static void add_size(cli_table *table, uint64_t bytes) {
  if (bytes)
    cli_table_format(table, "%.1f", (double)bytes / (1 << 30));
  else
    cli_table_add(table, NULL);
}

/* What --device takes. */
static const char *word_for(fl_host *host, const fl_platform_info *platform) {
  int32_t device_type;
  bool is_word = !fl_find_device_type(host, platform->name, &device_type);
  return is_word ? platform->name : cli_device_name(platform->device_type);
}

static void add_devices(fl_host *host, cli_table *table, const fl_platform_info *platform) {
  for (uint32_t i = 0; i < platform->n_devices; i++) {
    const fl_device_properties *device = fl_platform_device_at(platform, i);
    cli_table_format(table, "%s:%u", word_for(host, platform), i);
    cli_table_add(table, device->arch);
    if (device->units > 0)
      cli_table_format(table, "%d", device->units);
    else
      cli_table_add(table, NULL);
    add_size(table, device->memory_total);
    add_size(table, device->memory_free);
    cli_table_add(table, device->driver);
    cli_table_add(table, device->name);
  }
}

static int print_devices(fl_host *host, const fl_platform_report *report) {
  static const char *const headers[] = {"DEVICE", "ARCH", ">UNITS", ">GIB", ">GIB FREE", "DRIVER", "NAME", NULL};
  cli_table table;
  putchar('\n');
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < report->n; i++)
    add_devices(host, &table, fl_platform_at(report, i));
  return cli_table_print(&table);
}

static int print_table(fl_host *host, const fl_platform_report *report) {
  static const char *const headers[] = {"PLATFORM", "ACTIVE", ">ON THE BUS", "DRIVER", ">DEVICES", "DIAGNOSIS", NULL};
  cli_table table;
  cli_table_begin(&table, NULL, 2);
  cli_table_add(&table, "platform:");
  cli_table_format(&table, "%s (%s)", report->active, report->active_origin);
  cli_table_add(&table, "config file:");
  cli_table_add(&table, *report->config_file ? report->config_file : "none");
  int status = cli_table_print(&table);
  if (status)
    return status;
  putchar('\n');
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_platform_info *platform = fl_platform_at(report, i);
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
  status = cli_table_print(&table);
  if (*report->unserved) {
    fputs("\nOn the bus, and no plugin that was found serves it: ", stdout);
    cli_put_text(stdout, report->unserved);
    putchar('\n');
  }
  for (uint32_t i = 0; i < report->n && !status; i++)
    if (is_of_interest(fl_platform_at(report, i)))
      status = print_steps(fl_platform_at(report, i));
  status = status ? status : print_devices(host, report);
  if (!status)
    putchar('\n');
  return status ? status : cli_print_communicators(host);
}

int command_platform(int argc, char **argv) {
  bool json = false;
  const cli_option options[] = {CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "", 0, 0,
      "Shows the platform in force and, for each known platform, the devices on the bus, the driver library, and "
      "what that means. Where there is anything of a platform, also each step from the bus to a device: kernel "
      "driver, device nodes and their permissions, the driver's library and version. Then the devices, and the "
      "communicators of ranks, with the collectives that each has itself; the others are made up of these.",
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
    exit_status = json ? print_json(host, report) : print_table(host, report);
    fl_platform_report_free(report);
  }
  fl_host_destroy(host);
  return exit_status;
}
