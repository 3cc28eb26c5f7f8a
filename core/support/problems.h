/*
 * What is wrong with the settings: collected while they are read, so that one start reports everything (rule C1). An
 * invalid setting is an error, a warning or nothing, as VLLM_FL_CHECK says.
 */
#ifndef FLHOST_CORE_SUPPORT_PROBLEMS_H
#define FLHOST_CORE_SUPPORT_PROBLEMS_H

#include "core/support/log.h"
#include "core/support/text.h"

typedef enum fl_check_mode { FL_CHECK_ERROR, FL_CHECK_WARN, FL_CHECK_OFF } fl_check_mode;

/* Zero-initialise. */
typedef struct fl_problems {
  fl_check_mode check;
  fl_log *log; /* NULL: nothing is logged */
  fl_text errors;
  uint32_t n_errors, n_warnings;
  bool no_memory;
} fl_problems;

/* Where a value stands: a file with line and column (from 1), or a variable or option (line 0). */
typedef struct fl_place {
  const char *source;
  unsigned line, column;
} fl_place;

/* An invalid setting; what follows it is the reader's affair: it ignores that part, as the peer does. */
void fl_problem(fl_problems *problems, fl_place place, const char *format, ...) FL_PRINTF(3, 4);

/* An error whatever VLLM_FL_CHECK says. */
void fl_problem_fatal(fl_problems *problems, fl_place place, const char *format, ...) FL_PRINTF(3, 4);

/* A line that starts nobody's failure; silent when VLLM_FL_CHECK is off. */
void fl_problems_warn(fl_problems *problems, const char *format, ...) FL_PRINTF(2, 3);

/* Where the host itself says what holds: most settings' origin, which so needs no memory. */
extern const char fl_builtin_source[];

/* "policy.yaml:3", "VLLM_FL_PREFER": for fl_origin_free; NULL is noted as out of memory. */
char *fl_place_origin(fl_problems *problems, fl_place place);
void fl_origin_free(char *origin);

/* FL_OK, FL_ENOMEM, or FL_ECONFIG with every error in the thread's message, one a line. Frees what was collected. */
fl_status fl_problems_finish(fl_problems *problems);

#endif
