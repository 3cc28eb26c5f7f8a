/* The built-in ops: one entry (fl_op_def) each, in a file per category. Everything else about an op comes from its
 * entry. */
#ifndef FLHOST_CORE_OPS_OPS_H
#define FLHOST_CORE_OPS_OPS_H

#include <flhost/plugin.h>

/* Every entry, ended by NULL. */
extern const fl_op_def *const fl_builtin_ops[];

#endif
