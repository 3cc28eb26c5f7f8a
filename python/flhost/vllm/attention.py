"""Attention over a paged cache: the backend that takes the place of vLLM's own for the CPU.

Layers of decoders write the cache by reshape_and_cache and read it by paged_attention. What these have no form for (encoders,
attention across to one, caches of other types) runs as vLLM's own, in the same backend: a table of vLLM's has one class for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backend import AttentionMetadataBuilder, AttentionType
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)

from .ops import torch_op

_FLOAT8 = ("fp8", "fp8_e4m3")


class Backend(CPUAttentionBackend):
    """The cache is laid out as vLLM's backend has it, [blocks, heads, tokens of a block, key and value]; within that, rows
    are plain."""

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # any

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_kv_connector(cls) -> bool:
        return False  # what one brings to a CPU it packs for vLLM's kernels

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        return Impl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder


@dataclass
class Metadata:
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool | torch.Tensor  # a tensor says it of each request


class MetadataBuilder(AttentionMetadataBuilder[Any]):
    """One for layers that share a table of blocks; they have one kind of cache."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = get_layers_from_vllm_config(vllm_config, Attention, layer_names).values()
        ours = all(layer.impl.through_flhost for layer in layers)
        self.vllms = None if ours else CPUAttentionMetadataBuilder(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        if self.vllms is not None:
            return self.vllms.build(common_prefix_len, common_attn_metadata, fast_build)
        common = common_attn_metadata
        return Metadata(
            common.num_actual_tokens,
            common.query_start_loc,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
        )


class Impl(CPUAttentionBackendImpl):
    """Of one layer."""

    sinks: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plain = str(torch.get_default_dtype()).removeprefix("torch.")  # the model's, while its layers are made
        self.through_flhost = self.attn_type == AttentionType.DECODER and self.kv_cache_dtype in (
            "auto",
            plain,
            *_FLOAT8,
        )
        self.attend = torch_op("paged_attention", "out")
        self.write = torch_op("reshape_and_cache")

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        super().process_weights_after_loading(act_dtype)
        if self.sinks is not None and self.sinks.dtype not in (act_dtype, torch.float32):
            self.sinks = self.sinks.float()

    def _cache(self, layer: Any, kv_cache: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Keys and values as [blocks, tokens of a block, heads, size], and their scales."""
        is_float8 = self.kv_cache_dtype in _FLOAT8
        rows = (kv_cache.view(torch.float8_e4m3fn) if is_float8 else kv_cache).transpose(1, 2)
        scales = [layer._k_scale, layer._v_scale] if is_float8 else [None, None]
        return list(rows.split(self.head_size, dim=-1)), scales

    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        if not self.through_flhost:
            super().do_kv_cache_update(layer, key, value, kv_cache, slot_mapping)
            return
        caches, scales = self._cache(layer, kv_cache)
        self.write(key, value, *caches, slot_mapping[: key.shape[0]], *scales)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if not self.through_flhost:
            return super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, output_scale, output_block_scale
            )
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("flhost: attention quantises no output: leave the fusion of both out")
        if attn_metadata is None:  # vLLM warms up
            return output.zero_()
        tokens = attn_metadata.num_actual_tokens
        causal = attn_metadata.causal
        if not isinstance(causal, torch.Tensor):
            self._attend(layer, query[:tokens], kv_cache, attn_metadata, causal, output[:tokens])
            return output
        self._attend(layer, query[:tokens], kv_cache, attn_metadata, True, output[:tokens])
        both = torch.empty_like(output[:tokens])
        self._attend(layer, query[:tokens], kv_cache, attn_metadata, False, both)
        of_tokens = causal.bool().repeat_interleave(attn_metadata.query_start_loc.diff())
        output[:tokens] = torch.where(of_tokens.view(-1, 1, 1), output[:tokens], both)
        return output

    def _attend(
        self,
        layer: Any,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        metadata: Metadata,
        causal: bool,
        out: torch.Tensor,
    ) -> None:
        caches, scales = self._cache(layer, kv_cache)
        before = self.sliding_window - 1 if self.sliding_window > 0 else -1  # vLLM's counts the token itself
        self.attend(
            query,
            *caches,
            metadata.block_table,
            metadata.query_start_loc,
            metadata.seq_lens,
            self.scale,
            causal,
            before,
            -1 if causal else before,
            self.logits_soft_cap,
            self.alibi_slopes,
            self.sinks,
            *scales,
            out=out,
            lse=torch.empty((query.shape[1], query.shape[0]), dtype=torch.float32, device=query.device),
        )
