/* flhost: the command. A client of the public API; each subcommand is one file. */
#include "cli/cli.h"
#include "cli/ending.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const cli_command cli_commands[] = {
    {"run", command_run, "call operators on safetensors files and compare the results"},
    {"verify", command_verify, "test implementations against the reference on generated calls"},
    {"bench", command_bench, "time implementations beside the reference and memcpy"},
    {"explain", command_explain, "why an operator resolves as it does"},
    {"resolve", command_resolve, "which implementation an operator gets"},
    {"manifest", command_manifest, "what calls run, all operators resolved ahead, and a digest of it"},
    {"ops", command_ops, "operators and their implementations"},
    {"plugins", command_plugins, "plugins that were found, and what became of each"},
    {"probe", command_probe, "try plugins, each in a process of its own"},
    {"lock", command_lock, "makes or checks a list of the plugin files that may be loaded"},
    {"launch", command_launch, "start ranks of a program, which come together as a group"},
    {"config", command_config, "settings in force and where each comes from"},
    {"platform", command_platform, "hardware and drivers"},
    {"doctor", command_doctor, "look for problems and say what to do"},
    {"version", command_version, "version of the command, the library and the plugin interface"},
    {"help", command_help, "this list, or the help of one command"},
    {NULL, NULL, NULL},
};

int cli_run_command(int argc, char **argv) {
  const char *words[sizeof cli_commands / sizeof *cli_commands];
  size_t n = 0;
  for (const cli_command *command = cli_commands; command->name; command++) {
    if (!strcmp(command->name, argv[0]))
      return command->function(argc, argv);
    words[n++] = command->name;
  }
  words[n] = NULL;
  return cli_unknown("command", "", argv[0], words, "'flhost help' lists the commands");
}

static int run(int argc, char **argv) {
  static const char *const options[] = {"--help", "--version", NULL};
  if (argc == 0) {
    cli_error("no command given; 'flhost help' lists them");
    return EXIT_USAGE;
  }
  if (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))
    return command_help(argc, argv);
  if (!strcmp(argv[0], "--version"))
    return command_version(argc, argv);
  if (*argv[0] == '-')
    return cli_unknown("option", "", argv[0], options, "'flhost help' lists the commands");
  return cli_run_command(argc, argv);
}

int main(int argc, char **argv) {
  /* A reader that goes away (`| head`) ends the command quietly, also where the caller ignores the signal. */
  signal(SIGPIPE, SIG_DFL);
  cli_guard_ending();
  int status = run(argc - 1, argv + 1);
  errno = 0;
  bool failed = ferror(stdout) != 0;
  if (fclose(stdout) || failed) {
    cli_error("cannot write to standard output: %s", errno ? strerror(errno) : "write error");
    status = EXIT_USAGE;
  }
  cli_ending_is_due();
  return status;
}
