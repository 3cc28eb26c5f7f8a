/* What `flhost doctor` found: a list that the checks (checks*.c) fill and the command (doctor.c) prints. */
#ifndef FLHOST_CLI_COMMANDS_DOCTOR_H
#define FLHOST_CLI_COMMANDS_DOCTOR_H

#include <flhost/flhost.h>
#include <sys/stat.h>

typedef enum finding_level { FINDING_OK, FINDING_NOTE, FINDING_WARNING, FINDING_PROBLEM } finding_level;

typedef struct finding {
  finding_level severity;
  const char *area;
  char *what, *advice; /* advice: what to do, "" if nothing */
} finding;

/* Zero-initialise. `failed`: memory ran out. */
typedef struct findings {
  finding *items;
  size_t n, capacity;
  bool failed;
} findings;

/* Adds one; `area` is static text. The same finding twice is kept once. */
void finding_add(findings *list, finding_level severity, const char *area, const char *advice, const char *format, ...)
    FL_PRINTF(5, 6);

/* Each looks at one area of a host and adds what it finds, good or bad. */
void check_directories(fl_host *host, findings *list);
void check_plugins(fl_host *host, findings *list);
void check_platform(fl_host *host, findings *list);
void check_settings(fl_host *host, findings *list);
void check_ops(fl_host *host, findings *list);
void check_communicators(fl_host *host, findings *list);

/* What several of them look at. Is the variable there, and not empty? */
bool is_variable_set(const char *variable);

/* Anyone could put code or a policy there. In a sticky directory others cannot replace what is there. */
void check_writable(const char *path, const struct stat *status, const char *area, findings *list);

#endif
