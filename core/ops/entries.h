/* The entries by name, for the table in ops.c and for the files that define them. */
#ifndef FLHOST_CORE_OPS_ENTRIES_H
#define FLHOST_CORE_OPS_ENTRIES_H

#include <flhost/plugin.h>

/* activation.c */
extern const fl_op_def fl_op_silu_and_mul, fl_op_gelu_and_mul;
/* normalisation.c */
extern const fl_op_def fl_op_rms_norm, fl_op_fused_add_rms_norm;
/* rotary.c */
extern const fl_op_def fl_op_rotary_embedding;
/* attention.c */
extern const fl_op_def fl_op_attention_backend;

#endif
