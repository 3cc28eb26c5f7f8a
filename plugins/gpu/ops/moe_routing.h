/* Routing of tokens to experts, for the ops that route and for the one that also runs the experts. */
#ifndef FLHOST_GPU_MOE_ROUTING_H
#define FLHOST_GPU_MOE_ROUTING_H

#include "plugins/gpu/kernels/arguments/moe_routing.h"
#include "plugins/gpu/launch.h"

/* Queues it. `arguments` has the attributes; `tensors` are logits [..., e], weights and ids [..., topk]; `bias` may be
 * NULL. FL_ENOTSUP before anything is written. */
fl_status gpu_route(const gpu_op *op, fl_call *call, gpu_route_arguments *arguments, const DLTensor *bias,
                    DLTensor *const *tensors);

#endif
