/* vLLM's own words: CustomOp rules, layers that are replaced. What rooms above may use. */
#ifndef FLHOST_CORE_VLLM_H
#define FLHOST_CORE_VLLM_H

#include "core/vllm/custom_ops.h"
#include "core/vllm/layers.h"

#endif
