/* What the analysers cannot see of functions in other files; included before all else when they read, and only then. */
#include <flhost/base.h>

/* In a loop up to n it is never NULL. */
#define fl_item_at(items, n, size, i) ((const void *)((const char *)(items) + (size_t)(size) * (i)))

#include "core/support/error.h"

/* They give back the status that they are given, which is never FL_OK. */
#define fl_error(status, ...) ((fl_error)(status, __VA_ARGS__), (status))
#define fl_error_no_memory()  ((fl_error_no_memory)(), FL_ENOMEM)
