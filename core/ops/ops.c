/* The table of built-in ops. */
#include "core/ops/ops.h"

#include "core/ops/entries.h"

#define ENTRY(name) &fl_op_##name,

const fl_op_def *const fl_builtin_ops[] = {FL_BUILTIN_OPS(ENTRY) NULL};
