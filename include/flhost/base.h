/*
 * flhost/base.h: what the headers for engines share: how functions behave, versions, errors.
 *
 * Unless a comment says otherwise: every function may be called from any thread at any time; a function that returns
 * fl_status leaves its outputs alone on error and sets this thread's fl_error_message(); a `const char *` or struct
 * that is handed out belongs to the object it came from and lives as long as that; a pointer that is passed in is not
 * NULL. FL_ENOMEM may come from every function that makes something.
 *
 * A struct that is handed out begins with its size, sizeof in the library's own header: later versions append fields,
 * and who may meet an older library looks whether a field lies within. Items of a list that is handed out have no size
 * of their own; it stands beside the list, and the function that goes with it (fl_plugin_at, fl_setting_at, …) finds
 * them.
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

/* -------------------------------------------------------------------------------------------------------- lists */

/* Item i of a list of n items that lie item_size bytes apart, which may be more than this header knows of; NULL: there
 * are fewer. */
static inline const void *fl_item_at(const void *items, uint32_t n, uint32_t item_size, uint32_t i) {
  return i < n ? (const char *)items + (size_t)item_size * i : NULL;
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_BASE_H */
