/*
 * flhost/vllm.h: what vLLM calls things: custom ops, out-of-tree layers, names of dispatch. For engines that stand
 * in for vLLM's dispatcher; flhost.h does not include it.
 */
#ifndef FLHOST_VLLM_H
#define FLHOST_VLLM_H

#include <flhost/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The device type that one of vLLM's names of dispatch stands for: cuda, hip, xpu, cpu, tpu, oot; 0 for native, which
 * is the reference on any device; -1 for another word (the message names the nearest). What runs there is what declares
 * the device: hip runs a CUDA implementation only if that declares ROCm, too.
 */
FL_API int32_t fl_dispatch_device(const char *name);

/*
 * Enables an op of this host whatever custom_ops says (vLLM's enforce_enable); false: custom_ops decides again. In
 * force for every thread's next call. FL_ENOENT: `op` is NULL.
 */
FL_API fl_status fl_op_enforce_enable(fl_op *op, bool enforce);

/* How many of the ops that have an implementation custom_ops leaves enabled, and how many it makes run their reference.
 */
FL_API void fl_custom_op_counts(fl_host *host, uint32_t *enabled, uint32_t *disabled);

/* Out-of-tree replacement: is it enabled at all, by the switches? May a layer be replaced, by switches and lists? It
 * may be named by its class, the op that replaces it (of which any layer may be) or what lists called it in the
 * dispatcher before; a name that no op is known to replace is looked for in the lists as it is. */
FL_API bool fl_is_oot_enabled(fl_host *host);
FL_API bool fl_is_oot_allowed(fl_host *host, const char *layer);

/*
 * The op that replaces a layer class of vLLM's ("SiluAndMul"), if that is enabled and the lists allow it; in these the
 * layer stands by the name of its class or of the op. Valid as long as the host. NULL with fl_error_status():
 * FL_ENOENT, no op replaces such a class (the message names the nearest), or the op is not registered; FL_ESTATE, not
 * allowed, and why.
 */
FL_API const char *fl_oot_op(fl_host *host, const char *class_name);

/*
 * The class of vLLM's that a plugin brings for the host's platform (fl_component in plugin.h), "package.module.Class".
 * `type` is attention_backend, mla_attention_backend, worker or model_runner. A plugin whose vendor the policy in force
 * in this thread keeps out does not count; of several that are left the one that was registered first does. Whether
 * there is such a class is for the engine to find out. *path stays as long as the host. FL_EINVAL: `type` is another
 * word (the message names the nearest); FL_ENOENT: nobody brings one (the message says who brings one for other
 * platforms, and who is kept out). May be called from any thread.
 */
FL_API fl_status fl_class_path(fl_host *host, const char *type, const char **path);

/* May the op use implementations of kind default, by the switches and FlagGems lists? */
FL_API bool fl_is_flagos_allowed(fl_host *host, const char *op);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_VLLM_H */
