"""The classes of vLLM's that flhost's op entries name, found and replaced."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger("vllm.flhost")

# Where vLLM has the layers; which of them are there differs by version.
MODULES = (
    "layers.activation",
    "layers.attention.mm_encoder_attention",
    "layers.conv",
    "layers.fused_moe.router.gate_linear",
    "layers.fused_moe.router.grouped_topk_router",
    "layers.fused_moe.unquantized_fused_moe_method",
    "layers.layernorm",
    "layers.linear",
    "layers.logits_processor",
    "layers.mamba.gdn.qwen_gdn_linear_attn",
    "layers.mamba.mamba_mixer",
    "layers.mamba.mamba_mixer2",
    "layers.quantization.input_quant_fp8",
    "layers.rotary_embedding",
    "layers.vocab_parallel_embedding",
    "models.deepseek_v2",
    "models.transformers.fusers.rms_norm",
)

# Ops whose classes are attention backends; vLLM imports the one in their place when a model has attention.
BACKENDS = {
    "paged_attention": "flhost.vllm.attention.Backend",
    "mla_paged_attention": "flhost.vllm.latent_attention.Backend",
}

_ours: dict[str, Any] = {}  # what we put into vLLM's table, by the class that it replaces
_our_kernels: dict[str, Any] = {}  # the same in its tables of kernels, by the class that says of which kind they are


def replace_layers(host: Any) -> dict[str, str]:
    """Brings vLLM's tables of out-of-tree layers, kernels and attention backends in line with what the host's entries and
    settings say; the ops of the classes that are replaced. What somebody else has replaced is left to him. Only here is a class
    put into a table of vLLM's."""
    from vllm.model_executor.custom_op import CustomOp, PluggableLayer, op_registry_oot

    from .forms import FORMS
    from .kernels import KERNELS

    _import_layers()
    classes: dict[str, Any] = {c.__name__: c for root in (CustomOp, PluggableLayer) for c in _subclasses(root)}
    replaced = {}
    for name in list(_ours):
        op_registry_oot.pop(name, None)
    for op in host.ops():
        for layer in host.explain(op)["replaces"]:
            name = layer["class_name"]
            reason = None if layer["allowed"] else layer["reason"]
            if op in BACKENDS or name in KERNELS:
                if op in BACKENDS:
                    reason = _replace_backend(name, BACKENDS[op], reason)
                else:
                    reason = _add_kernel(name, op, reason, host)
                if reason is None:
                    replaced[name] = op
                else:
                    logger.debug("flhost: %s (%s) is not replaced: %s", name, op, reason)
                continue
            if reason is None and op not in FORMS:
                reason = "vLLM keeps it: its call has a form of its own"
            if reason is None and name not in classes and name not in _ours:
                reason = "this vLLM has no such class"
            if reason is None and name in op_registry_oot:
                reason = f"replaced by {op_registry_oot[name].__module__}"
            if reason is not None:
                logger.debug("flhost: %s (%s) is not replaced: %s", name, op, reason)
                continue
            if name not in _ours:
                _ours[name] = FORMS[op](classes[name], op)
            CustomOp.register_oot(_ours[name], name=name)
            _ours[name].name = op  # register_oot gave it the class's; custom_ops has that of the op
            replaced[name] = op
    return replaced


def _replace_backend(name: str, path: str, reason: str | None) -> str | None:
    """Puts the class of that path into the place of vLLM's backend of that name, unless there is a reason not to, which it
    returns; then one that an earlier configuration put there goes."""
    from vllm.platforms import current_platform

    if current_platform.device_type != "cpu":
        return f"it is not for {current_platform.device_type}"
    try:
        from vllm.v1.attention import selector
        from vllm.v1.attention.backend import AttentionBackend
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    except ImportError as error:
        return f"this vLLM has no table of attention backends: {error}"
    if not hasattr(AttentionBackend, "supported_kv_cache_layouts"):
        return "caches are laid out differently in this vLLM"
    member = next((m for m in AttentionBackendEnum if (m.value or "").endswith(f".{name}")), None)
    if member is None:
        return "this vLLM has no such class"
    if member.is_overridden() and member.get_path() != path:
        return f"replaced by {member.get_path()}"
    if reason is None:
        register_backend(member, path)
    else:
        member.clear_override()
    selector._cached_get_attn_backend.cache_clear()  # of an earlier configuration
    return reason


def _add_kernel(name: str, op: str, reason: str | None, host: Any) -> str | None:
    """Puts our kernel of the kind that this class says before vLLM's for this platform, unless there is a reason not to, which
    it returns; then one that an earlier configuration put there goes."""
    from vllm.platforms import current_platform

    from .kernels import KERNELS
    from .plugin import device

    form, table_name = KERNELS[name]
    try:
        module = importlib.import_module("vllm.model_executor.kernels.linear")
        base, table = getattr(module, name), getattr(module, table_name)
    except (ImportError, AttributeError) as error:
        return f"this vLLM has no such kernels: {error}"
    if reason is None and not any(device() in row["devices"] for row in host.impls(op)):
        reason = f"nobody implements it on {device()}"
    kernels = table.setdefault(current_platform._enum, [])
    ours = _our_kernels.get(name)
    if ours in kernels:
        kernels.remove(ours)
    if reason is None:
        if ours is None:
            ours = _our_kernels[name] = form(base, op)
        kernels.insert(0, ours)
    return reason


def _import_layers() -> None:
    for name in MODULES:
        try:
            importlib.import_module(f"vllm.model_executor.{name}")
        except ImportError as error:
            logger.debug("flhost: this vLLM has no %s: %s", name, error)


def _subclasses(root: Any) -> Iterator[Any]:
    for c in root.__subclasses__():
        if c.__module__.startswith("vllm.") and "hw_agnostic" not in c.__module__:
            yield c
        yield from _subclasses(c)
