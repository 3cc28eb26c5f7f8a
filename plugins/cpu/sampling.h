/* Sampling: how the calls of its ops are read and taken apart into rows. What is computed of a row is each
 * implementation's. */
#ifndef FLHOST_CPU_SAMPLING_H
#define FLHOST_CPU_SAMPLING_H

#include "plugins/cpu/support/index.h"

/* One row of a call: each op has those members that it names. */
typedef struct cpu_sampling_row {
  int64_t size;       /* entries, 1 or more */
  cpu_dtype dtype;    /* of the logits; float32 but for greedy_argmax and gather_logprobs */
  const void *logits; /* [size] */
  float *out;         /* [size], may be the logits */
  float temperature, presence, frequency, repetition, min_p;
  float top_p;        /* at least 1: all */
  int64_t top_k;      /* from 1 to size */
  const float *noise; /* [size]: exponential or uniform */
  int64_t *id;        /* the result, which is one token */
  int64_t index;      /* of the row in prompt and output */
  const DLTensor *prompt, *output;
  int64_t token, wanted; /* the one given, and how many of the most probable are */
  int32_t *ids;          /* [wanted + 1], as logprobs */
  float *logprobs;
  int64_t *rank;
} cpu_sampling_row;

/* FL_ENOMEM is the only error. Any thread may call it, for rows in any order. */
typedef fl_status (*cpu_sampling_fn)(const cpu_sampling_row *row);

/* The ops of these names; `self` of their rows is the address of a cpu_sampling_fn. */
fl_status cpu_apply_penalties(void *self, fl_call *call);
fl_status cpu_apply_temperature(void *self, fl_call *call);
fl_status cpu_apply_min_p(void *self, fl_call *call);
fl_status cpu_apply_top_k_top_p(void *self, fl_call *call);
fl_status cpu_greedy_argmax(void *self, fl_call *call);
fl_status cpu_exponential_sample(void *self, fl_call *call);
fl_status cpu_gumbel_sample(void *self, fl_call *call);
fl_status cpu_gather_logprobs(void *self, fl_call *call);

#endif
