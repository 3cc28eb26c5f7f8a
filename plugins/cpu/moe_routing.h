/*
 * Routing of tokens to experts: what the ops that route have in common. How scores follow from logits is each
 * implementation's; choosing among them is not a matter of speed and the same for all.
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

/* The scores of one token, from its logits; float, not rounded. */
typedef void (*cpu_score_fn)(const cpu_routing *routing, const void *logits, float *scores);

void cpu_reference_score(const cpu_routing *routing, const void *logits, float *scores);
void cpu_flagos_score(const cpu_routing *routing, const void *logits, float *scores);

/* logits [..., experts] -> weights float32 [..., topk], ids int32 [..., topk]. FL_ENOMEM: some rows may be written. */
fl_status cpu_route(fl_call *call, const cpu_routing *routing, cpu_score_fn score, DLTensor *logits, DLTensor *weights,
                    DLTensor *ids);

/* The ops of these names; `self` of their rows is the address of a cpu_score_fn. */
fl_status cpu_grouped_topk(void *self, fl_call *call);
fl_status cpu_topk_softmax(void *self, fl_call *call);

#endif
