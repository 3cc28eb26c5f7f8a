/*
 * flhost/base.h: what the headers for engines share: how functions behave, versions, errors.
 *
 * Unless a comment says otherwise: every function may be called from any thread at any time; a function that returns
 * fl_status leaves its outputs alone on error and sets this thread's fl_error_message(); a `const char *` or struct
 * that is handed out belongs to the object it came from and lives as long as that; a pointer that is passed in is not
 * NULL. FL_ENOMEM may come from every function that makes something.
 *
 * Sizes are as in plugin.h. A struct begins with its size. What a caller fills or hands in to be filled has it set by
 * the caller: an older caller's smaller one is taken everywhere, and what a newer caller's has beyond comes back as
 * zero. What is handed out has it set by the library: later versions append fields, and who may meet an older library
 * looks whether a field lies within. Elements of arrays have no size of their own; it stands beside the array, and
 * FL_AT(array, size, i), or the function that goes with a list (fl_plugin_at, fl_setting_at, …), finds element i.
 */
#ifndef FLHOST_BASE_H
#define FLHOST_BASE_H

#include <flhost/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the library exports. */
#define FL_API __attribute__((visibility("default")))

/* Element i of an array whose elements are `size` bytes each, perhaps more than this header knows of. */
#define FL_AT(array, size, i) ((__typeof__(&(array)[0]))((uintptr_t)(array) + (size_t)(size) * (i)))

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
