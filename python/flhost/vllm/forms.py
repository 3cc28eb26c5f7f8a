"""How vLLM calls its layers, for each op that replaces some.

Which classes an op replaces is said by its entry (fl_op_def.layers); how such a class is called is said here, once for
all classes of an op. A form makes of a class of vLLM's, and the op's name, the class that takes its place.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from .ir import sparsity_of
from .methods import EmbeddingMethod, LinearMethod, request_amx
from .mixers import gdn_attention_core, mamba_mixer, mamba_mixer2
from .ops import torch_op
from .prepared import prepare_head

Form = Callable[[Any, str], Any]


# ----------------------------------------------------------------------------------------------------------- CustomOp


def custom_op(forward: Callable[..., Any]) -> Form:
    """A CustomOp with this forward; `self.flhost` is the torch op there, `self.of_vllm` what vLLM would call."""

    def replace(base: Any, op: str) -> type:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            base.__init__(self, *args, **kwargs)
            self.flhost = torch_op(op)
            self.of_vllm = self._forward_method
            # CustomOp.forward calls this. It is set behind the layer's own __init__, since some set it, too; subclasses
            # that wrap forward (TPAwareRMSNorm) keep doing so.
            self._forward_method = self.forward_flhost

        # With torch.compile custom_ops is "none": vLLM would take its native code in silence. What custom_ops disables
        # runs its reference in flhost.
        enabled = classmethod(lambda cls: True)
        return type(base.__name__, (base,), {"__init__": __init__, "enabled": enabled, "forward_flhost": forward})

    return replace


def activation(*attributes: str) -> Form:
    """(x) -> new, with these attributes of the layer behind x."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.flhost(x, *[getattr(self, name) for name in attributes])

    return custom_op(forward)


def gelu(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.flhost(x, "tanh" if type(self).__name__ == "GELUTanh" else "none")


def gelu_and_mul_sparse(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.flhost(x, sparsity_of(self.std_multiplier), self.approximate)


def xielu(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.flhost(x, self.alpha_p, self.alpha_n, self._beta_scalar, self._eps_scalar)


def rms_norm(self: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    """(x, residual?) -> out, or (out, residual); x may be a strided view of three dimensions."""
    weighted = self.pass_weight if residual is None else self.pass_weight_add
    weight = self.weight if weighted else None
    out, total = self.flhost(x, residual, weight, self.variance_epsilon, self.variance_size_override)
    return out if residual is None else (out, total)


def gemma_rms_norm(self: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    out, total = self.flhost(x, residual, self.weight, self.variance_epsilon)
    return out if residual is None else (out, total)


def layer_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.weight is not None and self.weight.dtype not in (x.dtype, torch.float32):
        return self.forward_native(x)
    return self.flhost(x, self.weight, self.bias, self.eps)


def nemotron_layer_norm(self: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
    if self.weight.dtype not in (x.dtype, torch.float32) or torch.is_autocast_enabled(x.device.type):
        return self.forward_native(x, residual)
    out, total = self.flhost(x, residual, self.weight, self.bias, self.eps)
    return out if residual is None else (out, total)


def fused_rms_norm_gated(
    self: Any, x: torch.Tensor, g: torch.Tensor, residual: torch.Tensor | None = None, prenorm: bool = False, *rest: Any
) -> torch.Tensor:
    if residual is not None or prenorm or self.weight is None:
        return self.forward_native(x, g, residual, prenorm, *rest)
    return self.flhost(x, g, self.weight, self.eps, None, True, self.activation)


def rms_norm_gated(self: Any, x: torch.Tensor, z: torch.Tensor | None = None) -> torch.Tensor:
    return self.flhost(x, z, self.weight, self.eps, self.group_size, self.norm_before_gate, self.activation)


def gated(base: Any, op: str) -> type:
    """FusedRMSNormGated has its gate behind the norm always, and is called otherwise."""
    forward = fused_rms_norm_gated if base.__name__ == "FusedRMSNormGated" else rms_norm_gated
    return custom_op(forward)(base, op)


def mixer2_gated_rms_norm(self: Any, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    if self.n_groups % self.tp_size:  # a group is on several ranks: vLLM gathers
        return self.forward_native(x, gate)
    return self.flhost(x, gate, self.weight, self.variance_epsilon, self.n_groups // self.tp_size, self.use_rms_norm)


def rotary_embedding(base: Any, op: str) -> type:
    """(positions, query, key?, offsets?): new tensors like query and key. The op's cos and sin are the halves of vLLM's table.
    Of multimodal layers (`mrope`), tokens have three positions each, or one as text has it."""

    def forward(
        self: Any,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        offsets: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if offsets is not None:
            positions = positions + offsets
        cos, sin = self._match_cos_sin_cache_dtype(query).chunk(2, dim=-1)
        heads = (positions.shape[-1], -1, self.head_size)
        turned = (query.reshape(heads), None if key is None else key.reshape(heads), cos, sin, positions)
        if positions.dim() == 1:
            rotated, rotated_key = self.flhost_of_text(*turned, not self.is_neox_style)
        else:
            rotated, rotated_key = self.flhost(
                *turned, self.mrope_section, self.mrope_interleaved, not self.is_neox_style
            )
        return rotated.reshape(query.shape), None if key is None else rotated_key.reshape(key.shape)

    made = custom_op(forward)(base, op)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        made.__init__(self, *args, **kwargs)
        # Not before there is a layer: it makes the host, which is to have the settings of vLLM's configuration.
        self.flhost_of_text = torch_op("rotary_embedding")

    return type(base.__name__, (made,), {"__init__": __init__})


def quant_fp8(base: Any, op: str) -> type:
    """(x, scale?, scale_ub?) -> codes and scales. Scales in a layout that kernels of vLLM's want, and codes of MI300's type,
    are vLLM's own."""
    from vllm.platforms import current_platform

    usual = current_platform.fp8_dtype() == torch.float8_e4m3fn

    def forward(
        self: Any, x: torch.Tensor, scale: torch.Tensor | None = None, scale_ub: torch.Tensor | None = None, *rest: Any
    ) -> Any:
        if not usual or self.column_major_scales or getattr(self, "tma_aligned_scales", False):
            return self.of_vllm(x, scale, scale_ub, *rest)
        powers_of_two = self.use_ue8m0 and self.is_group_quant and scale is None
        return self.flhost(x, scale, scale_ub, list(self.group_shape), powers_of_two, self.num_token_padding or 0)

    return custom_op(forward)(base, op)


def apply_rotary_emb(self: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return self.flhost(x, cos, sin, self.is_neox_style, self.enable_fp32_compute)


def convolution(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.padding_mode != "zeros" or isinstance(self.padding, str):
        return self.forward_native(x)
    return self.flhost(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


def grouped_topk(
    self: Any,
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    e_score_correction_bias: torch.Tensor | None = None,
) -> Any:
    return self.flhost(
        gating_output,
        self.topk,
        self.renormalize,
        self.num_expert_group,
        self.topk_group,
        self.scoring_func,
        self.routed_scaling_factor,
        e_score_correction_bias,
    )


# ------------------------------------------------------------------------------------------------------------- experts

MOE_ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "swigluoai", "swiglustep")


def _routing_of_experts() -> Callable[..., Any] | None:
    """vLLM's function that chooses the experts of each token, where its experts do that themselves: on the CPU before it
    had a router there. Its other router calls a kernel that the CPU's builds lack."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return None
    layers = "vllm.model_executor.layers.fused_moe"
    if importlib.util.find_spec(f"{layers}.router.cpu_router"):
        return None
    return importlib.import_module(f"{layers}.experts.cpu_moe").select_experts


def fused_moe_method(base: Any, op: str) -> type:
    """(layer, x, topk_weights, topk_ids): the experts' weights stay as they were loaded. Where vLLM's experts choose
    theirs, (layer, x, router_logits)."""

    class Method(base):
        @classmethod
        def enabled(cls) -> bool:
            return True

        def takes(self, layer: Any) -> bool:
            activation = getattr(layer.activation, "value", layer.activation)
            default = all(
                getattr(layer, name, None) in (None, usual)
                for name, usual in (("swiglu_alpha", 1.702), ("swiglu_beta", 1.0), ("swiglu_limit", 7.0))
            )
            return activation in MOE_ACTIVATIONS and self.moe.is_act_and_mul and default

        def process_weights_after_loading(self, layer: Any) -> None:
            self.through_flhost = self.takes(layer)
            if self.through_flhost:
                request_amx()
            else:
                super().process_weights_after_loading(layer)

        @property
        def is_monolithic(self) -> bool:
            return self.routing is not None if getattr(self, "through_flhost", True) else super().is_monolithic

        def apply_monolithic(
            self, layer: Any, x: torch.Tensor, router_logits: torch.Tensor, *ids: Any, **named: Any
        ) -> Any:
            if not self.through_flhost:
                return super().apply_monolithic(layer, x, router_logits, *ids, **named)
            factor = layer.routed_scaling_factor
            chosen = self.routing(
                x,
                router_logits,
                top_k=self.moe.experts_per_token,
                use_grouped_topk=layer.use_grouped_topk,
                renormalize=layer.renormalize,
                topk_group=layer.topk_group,
                num_expert_group=layer.num_expert_group,
                custom_routing_function=layer.custom_routing_function,
                scoring_func=layer.scoring_func,
                routed_scaling_factor=1.0 if factor is None else factor,
                e_score_correction_bias=layer.e_score_correction_bias,
            )
            return self.forward_flhost(layer, x, *chosen)

        def forward_flhost(
            self,
            layer: Any,
            x: torch.Tensor,
            topk_weights: torch.Tensor,
            topk_ids: torch.Tensor,
            *shared: Any,
            **named: Any,
        ) -> torch.Tensor:
            if not self.through_flhost:
                return self.forward_native(layer, x, topk_weights, topk_ids, *shared, **named)
            return self.flhost(
                x,
                layer.w13_weight,
                layer.w2_weight,
                topk_weights,
                topk_ids,
                getattr(layer.activation, "value", layer.activation),
                layer.apply_router_weight_on_input,
                layer.expert_map,
                getattr(layer, "w13_bias", None),
                getattr(layer, "w2_bias", None),
            )

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.routing: Any = _routing_of_experts()
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)
            self._forward_method = self.forward_flhost

    Method.__name__ = base.__name__
    return Method


# ---------------------------------------------------------------------------------------------------- PluggableLayer


def with_method(method: Callable[[str], Any], unquantized: str) -> Form:
    """A layer whose product is its `quant_method`'s: where that is vLLM's for plain weights, ours takes its place once
    the weights are created."""

    def replace(base: Any, op: str) -> type:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            base.__init__(self, *args, **kwargs)
            if type(self.quant_method).__name__ == unquantized:
                self.quant_method = method(op)

        return type(base.__name__, (base,), {"__init__": __init__})

    return replace


def logits_processor(base: Any, op: str) -> type:
    """(lm_head, hidden_states, bias?): in one op where this rank has all of the vocabulary."""

    class Processor(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)
            self.flhost_prepared: Any = None  # looked up once there is something prepared

        def forward(
            self, lm_head: Any, hidden_states: torch.Tensor, embedding_bias: torch.Tensor | None = None, **options: Any
        ) -> torch.Tensor | None:
            head_dtype = getattr(self, "head_dtype", None)
            if (
                self.logits_as_input
                or lm_head.tp_size > 1
                or not isinstance(lm_head.quant_method, EmbeddingMethod)
                or head_dtype not in (None, hidden_states.dtype)
                or any(options.values())
            ):
                return super().forward(lm_head, hidden_states, embedding_bias, **options)
            size = min(self.org_vocab_size, lm_head.weight.shape[0])
            rest = (embedding_bias, size, self.soft_cap, self.scale)
            handle = prepare_head(op, lm_head, hidden_states, *rest)
            if handle is None:
                return self.flhost(hidden_states, lm_head.weight, *rest)
            if self.flhost_prepared is None:
                self.flhost_prepared = torch_op(op, "prepared")
            return self.flhost_prepared(hidden_states, lm_head.weight, *rest, prepared=handle)

    Processor.__name__ = base.__name__
    return Processor


_linear = with_method(LinearMethod, "UnquantizedLinearMethod")
_embedding = with_method(EmbeddingMethod, "UnquantizedEmbeddingMethod")

# What has no row stays vLLM's, whatever its entry names.
FORMS: dict[str, Form] = {
    "silu_and_mul": activation(),
    "mul_and_silu": activation(),
    "gelu_and_mul": activation("approximate"),
    "gelu_and_mul_sparse": custom_op(gelu_and_mul_sparse),
    "swigluoai_and_mul": activation("alpha", "limit"),
    "fatrelu_and_mul": activation("threshold"),
    "silu_and_mul_with_clamp": activation("swiglu_limit", "alpha", "beta"),
    "swiglustep_and_mul": activation("limit"),
    "situ_and_mul": activation("beta", "linear_beta"),
    "gelu": custom_op(gelu),
    "gelu_new": activation(),
    "gelu_fast": activation(),
    "quick_gelu": activation(),
    "relu2": activation(),
    "xielu": custom_op(xielu),
    "rms_norm": custom_op(rms_norm),
    "gemma_rms_norm": custom_op(gemma_rms_norm),
    "layer_norm": custom_op(layer_norm),
    "nemotron_layer_norm": custom_op(nemotron_layer_norm),
    "rms_norm_gated": gated,
    "mixer2_gated_rms_norm": custom_op(mixer2_gated_rms_norm),
    "rotary_embedding": rotary_embedding,
    "mrope": rotary_embedding,
    "apply_rotary_emb": custom_op(apply_rotary_emb),
    "quant_fp8": quant_fp8,
    "conv2d": custom_op(convolution),
    "conv3d": custom_op(convolution),
    "grouped_topk": custom_op(grouped_topk),
    "unquantized_fused_moe": fused_moe_method,
    "replicated_linear": _linear,
    "column_parallel_linear": _linear,
    "row_parallel_linear": _linear,
    "vocab_parallel_embedding": _embedding,
    "parallel_lm_head": _embedding,
    "logits_processor": logits_processor,
    "mamba_mixer": mamba_mixer,
    "mamba_mixer2": mamba_mixer2,
    "gdn_attention_core": gdn_attention_core,
}
