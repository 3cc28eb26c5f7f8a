/*
 * The mixers: layers made of projections, a convolution, a scan and norms. How the parts follow each other is the same
 * for both kinds of implementation; what differs is the kernels of the parts and the type of what goes between them.
 */
#ifndef FLHOST_CPU_MIXERS_H
#define FLHOST_CPU_MIXERS_H

#include "plugins/cpu/state_space.h"

typedef struct cpu_parts {
  bool in_float; /* between the parts is float; else the tensors' own type, to which each part rounds */
  /* out [rows, weight's rows] = x weight^T; x and out [row, column] of any type */
  fl_status (*project)(int64_t rows, const cpu_array *x, const DLTensor *weight, const cpu_array *out);
  fl_status (*conv)(fl_call *call, const cpu_conv *conv);
  fl_status (*scan)(fl_call *call, const cpu_selective_scan *scan);
  fl_status (*ssd)(fl_call *call, const cpu_chunk_scan *scan);
  fl_kernel_fn rms_norm, mixer2_gated_rms_norm; /* the ops of these names */
} cpu_parts;

/* The ops of these names; `self` of their rows is a cpu_parts. */
fl_status cpu_mamba_mixer(void *self, fl_call *call);
fl_status cpu_mamba_mixer2(void *self, fl_call *call);
fl_status cpu_plamo2_mamba_mixer(void *self, fl_call *call);
fl_status cpu_short_conv(void *self, fl_call *call);

#endif
