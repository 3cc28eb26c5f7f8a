/* The thread's last error: one message, kept until the next failing call of this thread. */
#ifndef FLHOST_CORE_SUPPORT_ERROR_H
#define FLHOST_CORE_SUPPORT_ERROR_H

#include <flhost/flhost.h>

#define FL_ERROR_MAX 4096

/* Sets the thread's message and gives back `status`. `format`'s arguments may point into the old message. */
fl_status fl_error(fl_status status, const char *format, ...) FL_PRINTF(2, 3);

/* The thread's message buffer itself (FL_ERROR_MAX bytes), for a call that an implementation writes into; NULL when out
 * of memory. Freed when the thread ends. */
char *fl_error_buffer(void);

/* Has `leave` called when the thread ends, before its buffer is freed; fl_error_buffer() was called before. */
void fl_error_at_thread_end(void (*leave)(void));

/* Sets the status alone: the message is in the buffer already. Gives back `status`. */
fl_status fl_error_note(fl_status status);

/* As if nothing had failed: no message, FL_OK. */
void fl_error_clear(void);

/* An error that is kept while something is done that may fail for reasons of its own. */
typedef struct fl_kept_error {
  fl_status status;
  char message[FL_ERROR_MAX];
} fl_kept_error;

void fl_error_keep(fl_kept_error *kept);
/* Puts it back. Gives back its status. */
fl_status fl_error_restore(const fl_kept_error *kept);

/* The out-of-memory error: no allocation. */
fl_status fl_error_no_memory(void);

#endif
