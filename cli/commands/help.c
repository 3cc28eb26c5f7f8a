/* flhost help: the list of commands, or one command's own help. */
#include "cli/cli.h"

#include <stdio.h>

static void print_commands(void) {
  printf("usage: flhost COMMAND [options] [arguments]\n\n"
         "Loads operator backends from plugin directories and shows what runs, and why.\n\ncommands:\n");
  for (const cli_command *command = cli_commands; command->name; command++)
    printf("  %-9s  %s\n", command->name, command->summary);
  puts("\nAn operator's implementations are of three kinds: 'flagos', its default one,\n"
       "portable and optimised; 'vendor', brought by a vendor's plugin; 'reference',\n"
       "plain code that says what is right.");
  printf("\n'flhost help COMMAND' says more about one. Settings come from VLLM_FL_*\n"
         "variables and YAML files: 'flhost config' shows them.\n");
}

int command_help(int argc, char **argv) {
  static const cli_option options[] = {{NULL, NULL, NULL, NULL, NULL}};
  static const cli_syntax syntax = {"[COMMAND]", 0, 1, "Lists the commands, or says what one does and takes.", options};
  int status, first = cli_parse(&syntax, argc, argv, &status);
  if (first < 0)
    return status;
  if (first == argc) {
    print_commands();
    return EXIT_OK;
  }
  char help[] = "--help";
  char *words[] = {argv[first], help, NULL};
  return cli_run_command(2, words);
}
