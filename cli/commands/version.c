/* flhost version: the command's version, the library's, and the plugin interface's. */
#include "cli/cli.h"

#include <stdio.h>

int command_version(int argc, char **argv) {
  bool json = false;
  const cli_option options[] = {CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {"", 0, 0, "Prints the versions of the command, the library and the plugin interface.",
                             options};
  int status;
  if (cli_parse(&syntax, argc, argv, &status) < 0)
    return status;
  if (json)
    return cli_print_json(json_pack("{s:s, s:s, s:o}", "version", FLHOST_VERSION, "library", fl_version(), "abi",
                                    json_sprintf("%d.%d", FL_ABI_MAJOR, FL_ABI_MINOR)));
  printf("flhost %s\nlibflhost %s\nplugin interface %d.%d\n", FLHOST_VERSION, fl_version(), FL_ABI_MAJOR, FL_ABI_MINOR);
  return EXIT_OK;
}
