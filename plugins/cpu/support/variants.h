/*
 * Instruction sets of the optimised kernels. The files in flagos/ are compiled once for the base of the architecture
 * and once for each of its variants (plugin.mk); a machine runs the best that processor and operating system have, or
 * the one that the setting VLLM_FL_CPU_ISA names. No code of a variant runs before that is found out.
 */
#ifndef FLHOST_CPU_SUPPORT_VARIANTS_H
#define FLHOST_CPU_SUPPORT_VARIANTS_H

#include "plugins/cpu/cpu.h"

typedef struct cpu_variant {
  const char *name;
  const op_list *const *lists, *const *end; /* its optimised kernels */
} cpu_variant;

/* The one to run; NULL where `wanted` names one that this machine or this build has not, with the reason. */
const cpu_variant *cpu_variant_choose(const char *wanted, char *reason, size_t size);

#endif
