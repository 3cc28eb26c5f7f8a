/*
 * The gated delta rule: what both kinds of implementation compute from, as numbers and strides, and the ops that are
 * made of it, which differ in where query, key, value and the gates come from.
 */
#ifndef FLHOST_CPU_DELTA_RULE_H
#define FLHOST_CPU_DELTA_RULE_H

#include "plugins/cpu/state_space.h"

typedef struct cpu_delta {
  int64_t heads, key_heads, values, keys; /* values, keys: of a head */
  bool normalise;                         /* query and key */
  float scale;                            /* of the query */
  cpu_array q, k;                         /* [token, key head, key] */
  cpu_array v, out;                       /* [token, head, value] */
  cpu_array g;                            /* [token, head, key]; without: by a, a_log and dt_bias */
  cpu_array beta;                         /* [token, head]; of its sigmoid where there is no g */
  cpu_array a, a_log, dt_bias;            /* [token, head], [head], [head] */
  cpu_array state;                        /* [slot, head, value, key] */
  cpu_sequences sequences;
} cpu_delta;

typedef fl_status (*cpu_delta_fn)(fl_call *call, const cpu_delta *delta);

fl_status cpu_reference_delta(fl_call *call, const cpu_delta *delta);
fl_status cpu_flagos_delta(fl_call *call, const cpu_delta *delta);

/* Of an implementation: `self` of the rows of all three ops. */
typedef struct cpu_delta_parts {
  cpu_conv_fn conv;
  cpu_delta_fn delta;
} cpu_delta_parts;

fl_status cpu_chunk_gated_delta_rule(void *self, fl_call *call);
fl_status cpu_recurrent_gated_delta_rule(void *self, fl_call *call);
fl_status cpu_gdn_attention_core(void *self, fl_call *call);
size_t cpu_gdn_attention_core_workspace(void *self, const fl_call *call);

#endif
