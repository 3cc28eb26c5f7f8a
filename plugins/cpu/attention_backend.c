/*
 * attention_backend: the class that vLLM's CPU platform uses for attention. Both kinds of implementation give the same
 * answer, as vLLM has one attention backend for CPUs (vllm/platforms/cpu.py, CpuPlatform.get_attn_backend_cls:
 * AttentionBackendEnum.CPU_ATTN; it refuses MLA and sparse attention).
 */
#include "plugins/cpu/cpu.h"

enum { USE_MLA, USE_SPARSE, RESULT };

static fl_status attention_backend(void *self, fl_call *call) {
  (void)self;
  bool use_mla = call->values[USE_MLA].v.b, use_sparse = call->values[USE_SPARSE].v.b;
  if (use_sparse && !use_mla)
    return fl_fail(call, FL_EINVAL, "argument 'use_sparse' is true, expected false while 'use_mla' is false");
  if (use_mla)
    return fl_fail(call, FL_ENOTSUP, "vLLM has no MLA attention backend for CPUs");
  call->values[RESULT] = fl_string("vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend");
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "attention_backend", CPU_REFERENCE, .fn = attention_backend},
    {.op_name = "attention_backend", CPU_FLAGOS, .fn = attention_backend},
};
OP_LIST(ops);
