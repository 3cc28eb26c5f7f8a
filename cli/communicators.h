/* Communicators, for the commands that show them. */
#ifndef FLHOST_CLI_COMMUNICATORS_H
#define FLHOST_CLI_COMMUNICATORS_H

#include "cli/cli.h"

/* A list of objects; NULL, with a message and *exit_status: it could not be had. */
json_t *cli_communicators_json(fl_host *host, int *exit_status);

/* A table of them, with what each has itself, or that there are none. Exit status. */
int cli_print_communicators(fl_host *host);

#endif
