/* Communicators, for the commands that show, verify and time them. */
#ifndef FLHOST_CLI_COMMUNICATORS_H
#define FLHOST_CLI_COMMUNICATORS_H

#include "cli/cli.h"

/* The word that stands for them where an operator may stand. */
#define CLI_COMMUNICATOR "communicator"

/* Is it what stands there, alone? Where --ranks is given it has to be: false with a message. */
bool cli_is_communicator(int n, char **words);
bool cli_ranks_fit(int n, char **words);

/* A list of objects; NULL, with a message and *exit_status: it could not be had. */
json_t *cli_communicators_json(fl_host *host, int *exit_status);

/* A table of them, with what each has itself, or that there are none. Exit status. */
int cli_print_communicators(fl_host *host);

/* Comes together with the ranks that were started with this process, and has every collective checked, or timed; timed
 * also among as many `threads` of it, if that is not 0. Rank 0 prints. Exit status, the same on all ranks that come to
 * their end. */
int cli_verify_communicator(fl_host *host, int32_t device_type, bool quick, bool json);
struct bench_request;
int cli_bench_communicator(fl_host *host, const struct bench_request *asked, int32_t threads);

/* How many ranks --ranks asks for; NULL: nobody said, *n stays. False, with a message. */
bool cli_read_ranks(const char *text, int32_t *n);

/* Starts so many ranks of this command, with its words but for --ranks, as `flhost launch` does. Those from `first` on
 * have to be the word for communicators. Exit status. */
int cli_start_ranks(const char *ranks, const char *device, int first, int argc, char **argv);

#endif
