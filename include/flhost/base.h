/*
 * flhost/base.h: what the headers for engines share: how functions behave, versions, errors.
 *
 * Unless a comment says otherwise: every function may be called from any thread at any time; a function that returns
 * fl_status leaves its outputs alone on error and sets this thread's fl_error_message(); a `const char *` or struct
 * that is handed out belongs to the object it came from and lives as long as that; a pointer that is passed in is not
 * NULL. FL_ENOMEM may come from every function that makes something.
 */
#ifndef FLHOST_BASE_H
#define FLHOST_BASE_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the library exports. */
#define FL_API __attribute__((visibility("default")))

/* Version of the library, "0.1.0". */
FL_API const char *fl_version(void);

/* ------------------------------------------------------------------------------------------------------- errors */

/* Why this thread's last call that failed did. Like errno it is of use after a failure alone: a call that goes well may
 * leave it or clear it. Valid until the thread's next call of flhost. */
FL_API const char *fl_error_message(void);

/* Its status, for functions that give back a pointer and gave NULL. */
FL_API fl_status fl_error_status(void);

/* "FL_EINVAL" and so on; "unknown status" for other numbers. */
FL_API const char *fl_status_name(fl_status status);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_BASE_H */
