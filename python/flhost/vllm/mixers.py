"""Layers that keep a state of each request, over the states as vLLM has them: Mamba's, whole, in one op from hidden states to
hidden states, and between its projections that of Qwen3-Next.

vLLM's layer calls an op of its own, so that torch.compile does not look inside; what that calls is replaced here. Where a layer
is not whole on this rank, its weights are not plain, or a batch wants what the op knows nothing of, it runs as vLLM's own, on
the same states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .methods import LinearMethod
from .ops import torch_op


def _take_whole(mixer: Any) -> None:
    """Its projections are multiplied in the mixer's op, not by their own: what these would prepare nobody reads."""
    for name in ("in_proj", "x_proj", "dt_proj", "out_proj"):
        method = getattr(getattr(mixer, name, None), "quant_method", None)
        if isinstance(method, LinearMethod):
            method.prepares = False


def _are_plain(*layers: Any) -> bool:
    """Whole, and with weights that stay as they are."""
    return all(
        getattr(layer, "tp_size", 1) == 1 and isinstance(layer.quant_method, LinearMethod) and layer.bias is None
        for layer in layers
    )


def _rows(conv1d: Any) -> torch.Tensor:
    return conv1d.weight.view(conv1d.weight.shape[0], -1)


def _metadata(layer: Any) -> Any:
    """Of this batch; None while vLLM warms up."""
    from vllm.forward_context import get_forward_context

    of_layers = get_forward_context().attn_metadata
    return None if of_layers is None else of_layers.get(layer.prefix)


def _is_usual(metadata: Any) -> bool:
    """One token for each request that decodes; no states but the last."""
    return (
        metadata.num_decodes == metadata.num_decode_tokens
        and getattr(metadata, "checkpoint_chunk_idx", None) is None
        and getattr(metadata, "block_idx_last_scheduled_token", None) is None
    )


def _sequences(metadata: Any) -> list[torch.Tensor]:
    """Where each request's tokens begin, which state it has, whether it begins from that. Those that decode come first."""
    decodes = metadata.num_decodes
    starts, slots, begin = [], [], []
    if decodes:
        indices = metadata.state_indices_tensor_d[:decodes]
        slots.append(indices if indices.dim() == 1 else indices[:, 0])
        starts.append(torch.arange(decodes, dtype=torch.int32, device=indices.device))
        begin.append(torch.ones(decodes, dtype=torch.bool, device=indices.device))
    if metadata.num_prefills:
        indices = metadata.state_indices_tensor_p
        slots.append(indices if indices.dim() == 1 else indices[:, 0])
        starts.append(metadata.query_start_loc_p.to(torch.int32) + decodes)
        given = metadata.has_initial_states_p
        begin.append(torch.zeros(len(indices), dtype=torch.bool, device=indices.device) if given is None else given)
    else:
        starts.append(torch.full((1,), decodes, dtype=torch.int32, device=slots[0].device))
    return [torch.cat(starts), torch.cat(slots), torch.cat(begin)]


def _over_states(layer: Any, sequences: list[torch.Tensor], call: Callable[..., torch.Tensor]) -> torch.Tensor:
    """What the call gives of both states, and of where sequences begin, which states they have, whether they begin from those."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    conv_state, ssm_state = layer.kv_cache[:2]
    starts, slots, begin = sequences
    if is_conv_state_dim_first():
        return call([conv_state, ssm_state], [starts, slots, begin])
    # The op has a channel's inputs beside each other, vLLM all channels' of one time: it gets the batch's states as copies.
    states = [conv_state[slots].transpose(-1, -2).contiguous(), ssm_state[slots]]
    out = call(states, [starts, None, begin])
    conv_state[slots], ssm_state[slots] = states[0].transpose(-1, -2), states[1]
    return out


def _run(layer: Any, metadata: Any, x: torch.Tensor, output: torch.Tensor) -> None:
    """All tokens of a batch, or as many as vLLM warms up with."""
    if metadata is None:
        output.copy_(layer.mix(x, [None, None], [None, None, None]))
        return
    tokens = metadata.num_prefill_tokens + metadata.num_decode_tokens
    output[:tokens] = _over_states(layer, _sequences(metadata), lambda *given: layer.mix(x[:tokens], *given))


def mamba_mixer(base: Any, op: str) -> type:
    """(hidden_states, output)"""

    class Mixer(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)
            _take_whole(self)

        def forward_impl(self, hidden_states: torch.Tensor, output: torch.Tensor) -> Any:
            metadata = _metadata(self)
            through_flhost = (
                _are_plain(self.in_proj, self.x_proj, self.out_proj)
                and self.dt_proj.tp_size == 1
                and isinstance(self.dt_proj.quant_method, LinearMethod)
                and self.activation == "silu"
                and (metadata is None or _is_usual(metadata))
            )
            if not through_flhost:
                return super().forward_impl(hidden_states, output)
            return _run(self, metadata, hidden_states, output)

        def mix(self, x: torch.Tensor, states: list[Any], sequences: list[Any]) -> torch.Tensor:
            norms = [self.dt_layernorm, self.b_layernorm, self.c_layernorm]
            weights = [norm.weight if self.use_rms_norm else None for norm in norms]
            return self.flhost(
                x,
                self.in_proj.weight,
                _rows(self.conv1d),
                self.conv1d.bias,
                self.x_proj.weight,
                self.dt_proj.weight,
                self.dt_proj.bias,
                self.A,
                self.D,
                self.out_proj.weight,
                *weights,
                *states,
                *sequences,
                norms[0].variance_epsilon if self.use_rms_norm else 1e-5,
            )

    Mixer.__name__ = base.__name__
    return Mixer


def mamba_mixer2(base: Any, op: str) -> type:
    """(hidden_states, mup_vector?) -> new. vLLM's op is between the projections; here it has hidden states on both sides."""

    class Mixer(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)
            _take_whole(self)
            self.chunk_size = 256 if self.model_config is None else self.model_config.get_mamba_chunk_size()

        def is_whole(self) -> bool:
            return (
                _are_plain(self.in_proj, self.out_proj)
                and self.use_rms_norm
                and self.activation == "silu"
                and not self.use_replayssm
                and self.num_spec == 0
                and self.chunk_size is not None
                and self.chunk_size & (self.chunk_size - 1) == 0
            )

        def forward(self, hidden_states: torch.Tensor, mup_vector: torch.Tensor | None = None) -> torch.Tensor:
            if mup_vector is not None or not self.is_whole():
                return super().forward(hidden_states, mup_vector)
            from vllm.utils.torch_utils import _encode_layer_name

            output = torch.empty_like(hidden_states)
            torch.ops.vllm.mamba_mixer2(hidden_states, output, _encode_layer_name(self.prefix))
            return output

        def conv_ssm_forward(self, projected_states: torch.Tensor, output: torch.Tensor) -> Any:
            if projected_states.shape[-1] != self.in_proj.weight.shape[1]:  # called by vLLM's forward
                return super().conv_ssm_forward(projected_states, output)
            metadata = _metadata(self)
            if metadata is None or _is_usual(metadata):
                return _run(self, metadata, projected_states, output)
            projected, _ = self.in_proj(projected_states)
            scanned = projected.new_empty(projected.shape[0], self.tped_intermediate_size)
            super().conv_ssm_forward(projected, scanned)
            output.copy_(self.out_proj(self.norm(scanned, projected[..., : self.tped_intermediate_size]))[0])
            return None

        def mix(self, x: torch.Tensor, states: list[Any], sequences: list[Any]) -> torch.Tensor:
            return self.flhost(
                x,
                self.in_proj.weight,
                _rows(self.conv1d),
                self.conv1d.bias,
                self.dt_bias,
                self.A,
                self.D,
                self.norm.weight,
                self.out_proj.weight,
                *states,
                self.n_groups,
                self.head_dim,
                self.chunk_size,
                *sequences,
                self.norm.variance_epsilon,
            )

    Mixer.__name__ = base.__name__
    return Mixer


def gdn_attention_core(base: Any, op: str) -> type:
    """(hidden_states) -> new: the layer's forward with the op of vLLM's that calls _forward_core on any platform. On the CPU
    alone, where vLLM's own takes bfloat16 and no other type; what decodes several tokens at once is vLLM's."""
    from vllm.platforms import current_platform

    class Attention(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)
            if (
                current_platform.device_type == "cpu"
                and self.num_spec == 0
                and not hasattr(self, "in_proj_qkv")
                and hasattr(self, "_output_projection")
                and isinstance(self.conv1d.quant_method, LinearMethod)
            ):
                self._forward_method = self.forward_flhost

        def forward_flhost(self, hidden_states: torch.Tensor) -> torch.Tensor:
            from vllm.utils.torch_utils import _encode_layer_name

            projected, _ = self.in_proj_qkvz(hidden_states)
            gates, _ = self.in_proj_ba(hidden_states)
            if self.gqa_interleaved_layout:
                *qkv, z, b, a = self.fix_query_key_value_ordering(projected, gates)
                mixed = torch.cat([part.flatten(1) for part in qkv], dim=-1)
            else:
                z_size = self.value_dim // self.tp_size
                mixed, z = projected.split([projected.shape[-1] - z_size, z_size], dim=-1)
                z = z.unflatten(-1, (-1, self.head_v_dim))
                b, a = gates.chunk(2, dim=-1)
            heads = self.num_v_heads // self.tp_size
            out = hidden_states.new_zeros(hidden_states.shape[0], heads, self.head_v_dim)
            name = _encode_layer_name(self.prefix)
            torch.ops.vllm.qwen_gdn_attention_core(mixed.contiguous(), b.contiguous(), a.contiguous(), out, name)
            return self._output_projection(out, z)

        def _forward_core(
            self, mixed_qkv: torch.Tensor, b: torch.Tensor, a: torch.Tensor, core_attn_out: torch.Tensor
        ) -> Any:
            if self._forward_method != self.forward_flhost:
                return super()._forward_core(mixed_qkv, b, a, core_attn_out)
            metadata = _metadata(self)
            if metadata is None:  # vLLM warms up
                return None
            tokens = metadata.num_actual_tokens
            slots = metadata.non_spec_state_indices_tensor[: metadata.num_decodes + metadata.num_prefills]
            starts = metadata.non_spec_query_start_loc[: len(slots) + 1]
            begin = metadata.has_initial_state
            if begin is None:  # all decode
                begin = torch.ones(len(slots), dtype=torch.bool, device=slots.device)
            weights = [_rows(self.conv1d), self.conv1d.bias, self.A_log, self.dt_bias]
            heads = self.num_k_heads // self.tp_size

            def core(states: list[Any], sequences: list[Any]) -> torch.Tensor:
                inputs = [mixed_qkv[:tokens], a[:tokens], b[:tokens]]
                return self.flhost(*inputs, *weights, *states, heads, self.head_k_dim, *sequences)

            core_attn_out[:tokens] = _over_states(self, [starts, slots, begin], core)
            return None

    Attention.__name__ = base.__name__
    return Attention
