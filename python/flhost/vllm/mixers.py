"""Mamba's layers, whole: one op from hidden states to hidden states, over the states that vLLM keeps of each request.

vLLM's layer calls an op of its own, so that torch.compile does not look inside; what that calls is replaced here. Where a layer
is not whole on this rank, its weights are not plain, or a batch wants what the op knows nothing of, it runs as vLLM's own, on
the same states.
"""

from __future__ import annotations

from typing import Any

import torch

from .methods import LinearMethod
from .ops import torch_op


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


def _run(layer: Any, metadata: Any, x: torch.Tensor, output: torch.Tensor) -> None:
    """All tokens of a batch, or as many as vLLM warms up with."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    if metadata is None:
        output.copy_(layer.mix(x, [None, None], [None, None, None]))
        return
    tokens = metadata.num_prefill_tokens + metadata.num_decode_tokens
    starts, slots, begin = _sequences(metadata)
    conv_state, ssm_state = layer.kv_cache[:2]
    if is_conv_state_dim_first():
        output[:tokens] = layer.mix(x[:tokens], [conv_state, ssm_state], [starts, slots, begin])
        return
    # The op has a channel's inputs beside each other, vLLM all channels' of one time: it gets the batch's states as copies.
    states = [conv_state[slots].transpose(-1, -2).contiguous(), ssm_state[slots]]
    output[:tokens] = layer.mix(x[:tokens], states, [starts, None, begin])
    conv_state[slots], ssm_state[slots] = states[0].transpose(-1, -2), states[1]


def mamba_mixer(base: Any, op: str) -> type:
    """(hidden_states, output)"""

    class Mixer(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)

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
