/*
 * Values as schemas and cases write them: -1, 1e-6, True, "text", [1, 2]. Numbers are decimal, and read without the
 * process's locale: an engine may have set one with a decimal comma. 010 is none: it could be octal.
 */
#ifndef FLHOST_CORE_SCHEMA_LITERAL_H
#define FLHOST_CORE_SCHEMA_LITERAL_H

#include "core/support.h"

/* The value of a type, which is not FL_TENSOR, at the cursor; moves past it. `words` are those for false and true;
 * strings and lists are the arena's. FL_EINVAL with the place, what was found and what is expected. */
fl_status fl_literal_read(fl_scanner *scan, fl_type type, const char *const words[2], fl_arena *arena, fl_value *value);

/* A number alone: all of the text must belong to it. */
bool fl_read_float(const char *text, size_t length, double *number);

#endif
