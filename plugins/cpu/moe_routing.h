/*
 * Routing of tokens to experts: what the ops that route have in common. How scores follow from logits, and the loops
 * over all experts, are each implementation's.
 */
#ifndef FLHOST_CPU_MOE_ROUTING_H
#define FLHOST_CPU_MOE_ROUTING_H

#include "plugins/cpu/cpu.h"

typedef struct cpu_routing {
  int64_t experts, topk, groups, topk_group; /* one group of all: no groups */
  bool sigmoid;                              /* else softmax */
  bool renormalize;
  bool guarded;         /* as vLLM's kernels: a score that is not finite is 0, and a sum of 0 divides nothing */
  cpu_dtype dtype;      /* of the logits */
  cpu_dtype rounding;   /* what scores and weights are rounded to, step by step */
  const DLTensor *bias; /* may be NULL: added to the scores that are compared, not to the weights */
  float scaling;
} cpu_routing;

/* The key of an expert that may not be chosen, and one that is above all; and there is room for a multiple of so many
 * scores. */
#define CPU_CLOSED    0
#define CPU_ABOVE_ALL UINT64_MAX
enum { CPU_SCORES = 32 };

/* What is done with all experts of one token. */
typedef struct cpu_router {
  void (*score)(const cpu_routing *routing, const void *logits, float *scores); /* not rounded */
  void (*order)(const cpu_routing *routing, float *scores, uint64_t *keys);     /* moe_order.h */
  uint64_t (*largest_below)(const uint64_t *keys, int64_t n, uint64_t bound);
} cpu_router;

extern const cpu_router cpu_reference_router, cpu_flagos_router;

/* logits [..., experts] -> weights float32 [..., topk], ids int32 [..., topk]. FL_ENOMEM: some rows may be written. */
fl_status cpu_route(fl_call *call, const cpu_routing *routing, const cpu_router *router, DLTensor *logits,
                    DLTensor *weights, DLTensor *ids);

/* The ops of these names; `self` of their rows is a cpu_router. */
fl_status cpu_grouped_topk(void *self, fl_call *call);
fl_status cpu_topk_softmax(void *self, fl_call *call);

#endif
