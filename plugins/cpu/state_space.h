/*
 * Convolutions and scans over the sequences of a batch: what both kinds of implementation compute from, as numbers and
 * strides, so that the ops and the mixers, whose tensors lie in other orders, share the kernels.
 */
#ifndef FLHOST_CPU_STATE_SPACE_H
#define FLHOST_CPU_STATE_SPACE_H

#include "plugins/cpu/cpu.h"

/* Elements [i, j, k, l] by strides in elements; `data` is NULL where there is no tensor. */
typedef struct cpu_array {
  void *data;
  cpu_dtype dtype;
  int64_t stride[4];
} cpu_array;

cpu_array cpu_array_of(const DLTensor *tensor); /* NULL: none */

static inline int64_t cpu_at(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l) {
  return i * array->stride[0] + j * array->stride[1] + k * array->stride[2] + l * array->stride[3];
}

/* The sequences of a batch. Reading them checks all indices; nothing has been written when it fails. */
typedef struct cpu_sequences {
  int64_t n, tokens;
  const DLTensor *starts, *slots, *initial; /* may be NULL */
  bool steps; /* each token is a sequence, which goes on from its state; starts and initial are NULL */
} cpu_sequences;

typedef struct cpu_sequence {
  int64_t begin, length;
  int64_t slot;   /* of the state; -1: the sequence is skipped */
  bool continues; /* begins from the state */
} cpu_sequence;

/* query_start_loc, cache_indices and has_initial_state are the call's values `first` to first + 2; `slots` is the
 * number of slots of the state, -1 without one. */
fl_status cpu_sequences_read(fl_call *call, uint32_t first, int64_t tokens, int64_t slots, cpu_sequences *sequences);
/* Of those that are all known but not checked yet: that the tokens of each follow those of the one before. */
fl_status cpu_sequences_check(fl_call *call, const cpu_sequences *sequences);
/* The same of one token each, which all go on from the slots that the call's value `cache_indices` names. */
fl_status cpu_steps_read(fl_call *call, uint32_t cache_indices, int64_t slots, cpu_sequences *sequences);
cpu_sequence cpu_sequence_at(const cpu_sequences *sequences, int64_t i);
/* The first token behind the last sequence. */
int64_t cpu_sequences_end(const cpu_sequences *sequences);

typedef struct cpu_conv {
  int64_t channels, width;
  bool silu;
  cpu_array x, out;       /* [channel, token] */
  cpu_array weight, bias; /* [channel, width], [channel] */
  cpu_array state;        /* [slot, channel, width - 1] */
  cpu_sequences sequences;
} cpu_conv;

typedef struct cpu_scan {
  int64_t channels, groups, states;
  bool softplus;
  cpu_array u, delta, z, out; /* [channel, token] */
  cpu_array a, d, delta_bias; /* [channel, state], [channel], [channel] */
  cpu_array b, c;             /* [group, state, token] */
  cpu_array state;            /* [slot, channel, state] */
  cpu_sequences sequences;
} cpu_scan;

typedef struct cpu_ssd {
  int64_t heads, size, groups, states; /* size: of a head */
  bool softplus;
  float dt_min, dt_max;
  cpu_array x, z, out;      /* [token, head, size] */
  cpu_array dt, a, dt_bias; /* [token, head], [head], [head] */
  cpu_array d;              /* [head, size] */
  cpu_array b, c;           /* [token, group, state] */
  cpu_array state;          /* [slot, head, size, state] */
  cpu_sequences sequences;
} cpu_ssd;

typedef fl_status (*cpu_conv_fn)(fl_call *call, const cpu_conv *conv);
typedef fl_status (*cpu_scan_fn)(fl_call *call, const cpu_scan *scan);
typedef fl_status (*cpu_ssd_fn)(fl_call *call, const cpu_ssd *scan);

fl_status cpu_reference_conv(fl_call *call, const cpu_conv *conv);
fl_status cpu_reference_scan(fl_call *call, const cpu_scan *scan);
fl_status cpu_reference_ssd(fl_call *call, const cpu_ssd *scan);

fl_status cpu_flagos_conv(fl_call *call, const cpu_conv *conv);
fl_status cpu_flagos_scan(fl_call *call, const cpu_scan *scan);
fl_status cpu_flagos_ssd(fl_call *call, const cpu_ssd *scan);

/* The ops; `self` of their rows is the address of a cpu_conv_fn, cpu_scan_fn, cpu_ssd_fn. */
fl_status cpu_causal_conv1d(void *self, fl_call *call);
fl_status cpu_selective_scan(void *self, fl_call *call);
fl_status cpu_mamba_chunk_scan(void *self, fl_call *call);

#endif
