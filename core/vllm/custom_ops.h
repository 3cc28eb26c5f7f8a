/* vLLM's CustomOp rules. */
#ifndef FLHOST_CORE_VLLM_CUSTOM_OPS_H
#define FLHOST_CORE_VLLM_CUSTOM_OPS_H

#include "core/registry.h"

/* Names in custom_ops that are no op's: FL_ECONFIG, or warnings, as VLLM_FL_CHECK says. Warnings also while the host
 * has not loaded all plugins, since these may bring the op. */
fl_status fl_custom_ops_check(fl_host *host, const fl_config *config);

#endif
