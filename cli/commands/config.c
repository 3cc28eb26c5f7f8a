/* flhost config: every setting in force and where it comes from. */
#include "cli/cli.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>

/* A setting's value, which the library gives as JSON text. */
static json_t *setting_value(const fl_setting *setting) {
  json_t *value = json_loads(setting->value, JSON_DECODE_ANY, NULL);
  return value ? value : cli_json_string(setting->value);
}

static int print_json(const fl_settings *settings) {
  json_t *object = json_object();
  for (uint32_t i = 0; i < settings->n; i++) {
    const fl_setting *setting = fl_setting_at(settings, i);
    json_t *entry =
        json_pack("{s:o, s:o}", "value", setting_value(setting), "origin", cli_json_string(setting->origin));
    if (json_object_set_new(object, setting->name, entry)) {
      json_decref(object);
      return cli_no_memory();
    }
  }
  return cli_print_json(json_pack("{s:o}", "settings", object));
}

/* One word of a list, or an op and its order: as one writes them in a variable. */
static void add_item(FILE *text, const char *key, const json_t *item) {
  const json_t *token;
  size_t index;
  if (!key) {
    fputs(json_string_value(item) ? json_string_value(item) : "", text);
    return;
  }
  fprintf(text, "%s=", key);
  json_array_foreach(item, index, token) fprintf(text, "%s%s", index ? "|" : "", json_string_value(token));
}

/* For people: lists and orders as one writes them in a variable, an unset value as nothing. NULL: out of memory. */
static char *readable(const fl_setting *setting) {
  json_t *value = setting_value(setting), *item;
  char *result = NULL;
  size_t size, index;
  const char *key, *separator = "";
  FILE *text = open_memstream(&result, &size);
  if (!text)
    goto out;
  if (json_is_string(value)) {
    fputs(json_string_value(value), text);
  } else if ((json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value))) {
    fputs("none", text);
  } else if (json_is_array(value)) {
    json_array_foreach(value, index, item) {
      fputs(separator, text);
      add_item(text, NULL, item);
      separator = ",";
    }
  } else if (json_is_object(value)) {
    json_object_foreach(value, key, item) {
      fputs(separator, text);
      add_item(text, key, item);
      separator = ";";
    }
  } else if (!json_is_null(value)) {
    json_dumpf(value, text, JSON_ENCODE_ANY);
  }
  if (fclose(text)) {
    free(result);
    result = NULL;
  }
out:
  json_decref(value);
  return result;
}

static int print_table(const fl_settings *settings) {
  static const char *const headers[] = {"SETTING", "VALUE", "ORIGIN", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < settings->n; i++) {
    char *value = readable(fl_setting_at(settings, i));
    table.failed |= !value;
    cli_table_add(&table, fl_setting_at(settings, i)->name);
    cli_table_add(&table, value);
    cli_table_add(&table, fl_setting_at(settings, i)->origin);
    free(value);
  }
  return cli_table_print(&table);
}

int command_config(int argc, char **argv) {
  bool json = false;
  const cli_option options[] = {CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "", 0, 0,
      "Lists every setting in force with its value and where it comes from: a variable, a file and line, or the "
      "built-in default.",
      options};
  int exit_status;
  fl_settings *settings;
  if (cli_parse(&syntax, argc, argv, &exit_status) < 0)
    return exit_status;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  fl_status status = fl_get_settings(host, &settings);
  if (status) {
    exit_status = cli_fail(status);
  } else {
    exit_status = json ? print_json(settings) : print_table(settings);
    fl_settings_free(settings);
  }
  fl_host_destroy(host);
  return exit_status;
}
