/* Sorting of tokens' places by expert, for the op that does nothing else and for one that also runs the experts. */
#ifndef FLHOST_GPU_MOE_ALIGN_H
#define FLHOST_GPU_MOE_ALIGN_H

#include "plugins/gpu/kernels/arguments/moe_align.h"
#include "plugins/gpu/launch.h"

/* Bytes that gpu_align() wants for `counts`. */
size_t gpu_align_workspace(int64_t places, int64_t experts);

/* Queues it: one kernel or two. `arguments` has all but the chunk. FL_ENOTSUP before anything is written. */
fl_status gpu_align(const gpu_op *op, fl_call *call, gpu_align_arguments *arguments);

#endif
