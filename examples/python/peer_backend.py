"""A backend as vllm-plugin-FL has them, which loads unchanged: VLLM_FL_PLUGIN_MODULES=peer_backend names it.

Its functions get what a layer of vLLM's calls with: the layer itself, then tensors.
"""

from vllm_fl.dispatch import BackendImplKind, BackendPriority, OpImpl


def rms_norm(obj, x, residual=None):
    total = x if residual is None else x + residual
    out = total * ((total * total).mean(-1)[..., None] + obj.variance_epsilon) ** -0.5 * obj.weight
    return out if residual is None else (out, total)


def register_builtins(registry):
    registry.register_impl(
        OpImpl("rms_norm", "vendor.example", BackendImplKind.VENDOR, rms_norm, "example", BackendPriority.VENDOR)
    )
