/* Which instruction sets this machine has. */
#ifndef FLHOST_CORE_PLUGINS_INSTRUCTION_SETS_H
#define FLHOST_CORE_PLUGINS_INSTRUCTION_SETS_H

#include <stdbool.h>
#include <stddef.h>

/* Does this processor (and operating system) have every instruction set of the comma list? If not, *missing (into the
 * buffer) is the first that it lacks; an unknown name counts as lacking, and is said to be unknown. */
bool fl_isa_available(const char *isa, char *missing, size_t size);

#endif
