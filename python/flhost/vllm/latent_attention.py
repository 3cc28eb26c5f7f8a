"""Latent attention (MLA) over a paged cache: the backend that takes the place of vLLM's own for the CPU.

Rows of the cache are [latent | rotated key]; prompts and next tokens are computed over it by one op each. What these have no
form for (a projection with quantised weights, a cache of another type) runs as vLLM's own.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadata, MLACommonMetadataBuilder
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl

from .methods import LinearMethod
from .ops import torch_op


class Backend(CPUMLABackend):
    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []  # any

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        return Impl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder


class Metadata(MLACommonMetadata):
    def __post_init__(self) -> None:
        """vLLM's would refuse rows of other sizes than its own kernels have."""


class MetadataBuilder(MLACommonMetadataBuilder[Any]):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"metadata_cls": Metadata, **kwargs})


class Impl(CPUMLAImpl):
    """Of one layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.through_flhost = isinstance(self.kv_b_proj.quant_method, LinearMethod) and self.kv_cache_dtype in (
            "auto",
            str(torch.get_default_dtype()).removeprefix("torch."),  # the model's, while its layers are made
        )
        self.attend = torch_op("mla_paged_attention")
        self.decode = torch_op("mla_decode")
        self.write = torch_op("concat_and_cache_mla")

    def do_kv_cache_update(
        self,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        *scales: Any,
    ) -> None:
        if not self.through_flhost:
            super().do_kv_cache_update(kv_c_normed, k_pe, kv_cache, slot_mapping, *scales)
        elif kv_cache.numel():
            self.write(kv_c_normed, k_pe, kv_cache, slot_mapping.flatten()[: kv_c_normed.shape[0]])

    def forward_mha(
        self,
        q: torch.Tensor,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: Any,
        k_scale: torch.Tensor,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
    ) -> None:
        """Of tokens that are prompts', whose rows are in the cache already."""
        if not self.through_flhost or output_scale is not None:
            super().forward_mha(q, kv_c_normed, k_pe, kv_c_and_k_pe_cache, attn_metadata, k_scale, output, output_scale)
            return
        prefill = attn_metadata.prefill
        lengths = prefill.query_start_loc.diff()
        if prefill.chunked_context is not None:
            lengths = lengths + prefill.chunked_context.context_lens.to(lengths)
        output.copy_(
            self.attend(
                q,
                kv_c_and_k_pe_cache,
                self.kv_b_proj.weight,
                prefill.block_table,
                prefill.query_start_loc,
                lengths,
                self.kv_lora_rank,
                self.v_head_dim,
                self.scale,
            )
        )

    def forward_mqa(
        self, q: Any, kv_c_and_k_pe_cache: torch.Tensor, attn_metadata: Any, layer: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of requests' next tokens, whose queries are in the latent space already."""
        if not self.through_flhost:
            return super().forward_mqa(q, kv_c_and_k_pe_cache, attn_metadata, layer)
        query = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        decode = attn_metadata.decode
        out, _ = self.decode(
            query, kv_c_and_k_pe_cache, decode.block_table, decode.seq_lens, self.scale, self.kv_lora_rank
        )
        return out, None
