/*
 * That the command ends in the ordinary way: what it runs is other people's code, and a plugin that calls exit(0) or
 * pthread_exit() would otherwise make "no result" look like success.
 */
#ifndef FLHOST_CLI_ENDING_H
#define FLHOST_CLI_ENDING_H

#include <flhost/plugin.h>

/* From here to cli_ending_is_due() the process may not end by exit() or by the end of its threads: if it does, what was
 * being done is said on standard error, and the exit status is EXIT_USAGE. Once, from main. */
void cli_guard_ending(void);
void cli_ending_is_due(void);

/* What is being done, in words that fit behind "while": "calling vendor.acme of rms_norm". Kept until the next. From
 * one thread. */
void cli_doing(const char *format, ...) FL_PRINTF(1, 2);

/* In a child process that somebody else watches: says nothing. */
void cli_ending_is_watched(void);

#endif
