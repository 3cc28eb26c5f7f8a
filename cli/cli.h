/* The command's own conventions. Each subcommand is one file with one function, listed in the table in main.c. */
#ifndef FLHOST_CLI_H
#define FLHOST_CLI_H

#include <flhost/flhost.h>
#include <jansson.h>

enum { EXIT_OK = 0, EXIT_MISMATCH = 1, EXIT_USAGE = 2, EXIT_NO_IMPL = 3 };

/* Each takes its own words, argv[0] being the subcommand's name, parses options with getopt_long (--help, --json, …) and
 * returns the exit status. Results go to standard output, messages ("flhost: …") to standard error. */
int command_config(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_platform(int argc, char **argv);
int command_plugins(int argc, char **argv);
int command_resolve(int argc, char **argv);
int command_run(int argc, char **argv);

/* Prints "flhost: …" to standard error. */
void cli_error(const char *format, ...) FL_PRINTF(1, 2);

/* A host from the environment, quiet below WARNING unless VLLM_FL_LOG_LEVEL is set. On failure prints why and returns
 * NULL; *exit_status is then the command's. */
fl_host *cli_open_host(uint32_t flags, int *exit_status);

/* Exit status that an fl_status stands for: FL_ENOIMPL → 3, others → 2. */
int cli_exit_status(fl_status status);

/* Prints a JSON value with a newline and releases it. */
void cli_print_json(json_t *value);

#endif
