/*
 * The mixers: layers made of projections, a convolution, a scan and norms. How the parts follow each other is the same
 * for both kinds of implementation; what differs is the kernels of the parts and the type of what goes between them.
 */
#ifndef FLHOST_CPU_MIXERS_H
#define FLHOST_CPU_MIXERS_H

#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/state_space.h"

typedef struct cpu_parts {
  bool in_float; /* between the parts is float; else the tensors' own type, to which each part rounds */
  /* out [rows, weight's rows] = x weight^T; x and out [row, column] of any type */
  fl_status (*project)(int64_t rows, const cpu_array *x, const DLTensor *weight, const cpu_array *out);
  cpu_conv_fn conv;
  cpu_scan_fn scan;
  cpu_ssd_fn ssd;
  cpu_norm_fn norm;
  cpu_gated_norm_fn gated_norm;
} cpu_parts;

/* The ops of these names; `self` of their rows is a cpu_parts. */
fl_status cpu_mamba_mixer(void *self, fl_call *call);
fl_status cpu_mamba_mixer2(void *self, fl_call *call);
fl_status cpu_plamo2_mamba_mixer(void *self, fl_call *call);
fl_status cpu_short_conv(void *self, fl_call *call);

#endif
