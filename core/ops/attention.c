/* Attention. */
#include "core/ops/entries.h"

const fl_op_def fl_op_attention_backend = {
    .size = sizeof(fl_op_def),
    .schema = "attention_backend(bool use_mla=False, bool use_sparse=False) -> str",
    .category = "attention",
    .doc = "The attention backend to use: the path of a class, or for a C engine the name of an attention component.",
    .formula = "(vLLM: Platform.get_attn_backend_cls)",
};
