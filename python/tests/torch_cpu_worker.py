"""What a worker of vLLM's needs on the CPU where vLLM has no kernels for it: attention and where keys go, in torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.worker.cpu_worker import CPUWorker


def greedy_argmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(dim=-1)


def fused_gumbel_argmax(logits: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """A sample of each row."""
    noise = torch.empty_like(logits)
    for row, seed in zip(noise, seeds.tolist(), strict=True):
        row.exponential_(generator=torch.Generator().manual_seed(seed))
    return (logits - noise.log()).argmax(dim=-1)


# What vLLM's sampler calls on a CPU.
_missing = torch.library.Library("_C", "FRAGMENT")
for _schema, _function in {
    "greedy_argmax(Tensor logits) -> Tensor": greedy_argmax,
    "fused_gumbel_argmax(Tensor logits, Tensor seeds) -> Tensor": fused_gumbel_argmax,
}.items():
    _missing.define(_schema)
    _missing.impl(_schema.partition("(")[0], _function, "CPU")


class TorchWorker(CPUWorker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super(CPUWorker, self).__init__(*args, **kwargs)  # CPUWorker's own binds memory to a node
        self.parallel_config.disable_custom_all_reduce = True

    def _maybe_get_memory_pool_context(self, tag: str) -> AbstractContextManager[None]:
        return nullcontext()


def slot_mapping(
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_table_stride: int,
    slot_mapping: torch.Tensor,
    KV_CACHE_BLOCK_SIZE: int,  # noqa: N803
    *ranks: Any,
    **named: Any,
) -> None:
    """Where the key and value of each token go: a block of its request, and a place in that."""
    lengths = query_start_loc.diff()
    request = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    at = positions[: len(request)]
    block = block_table[request, at // KV_CACHE_BLOCK_SIZE].to(torch.int64)
    slot_mapping[: len(request)] = block * KV_CACHE_BLOCK_SIZE + at % KV_CACHE_BLOCK_SIZE
    slot_mapping[len(request) :] = -1


@dataclass
class Metadata:
    starts: list[int]  # of each request's queries
    lengths: list[int]  # of each request, what is in the cache counted
    blocks: torch.Tensor
    slot_mapping: torch.Tensor


class TorchMetadataBuilder(CPUAttentionMetadataBuilder):
    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Metadata:
        common = common_attn_metadata
        return Metadata(
            common.query_start_loc.tolist(), common.seq_lens.tolist(), common.block_table_tensor, common.slot_mapping
        )


class TorchAttention(CPUAttentionBackendImpl):
    def do_kv_cache_update(
        self, layer: Any, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Into a cache [blocks, heads, tokens of a block, key and value]."""
        slots = slot_mapping[slot_mapping >= 0]
        size = kv_cache.shape[2]
        kv_cache[slots // size, :, slots % size] = torch.cat((key, value), dim=-1)[: len(slots)].to(kv_cache.dtype)

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Metadata | None,
        output: torch.Tensor,
        *scales: Any,
        **named: Any,
    ) -> torch.Tensor:
        """Each request by itself, in float32."""
        if attn_metadata is None:  # vLLM measures
            return output
        size = kv_cache.shape[2]
        for i, length in enumerate(attn_metadata.lengths):
            first, end = attn_metadata.starts[i : i + 2]
            if first == end:
                continue
            cached = kv_cache[attn_metadata.blocks[i, : -(-length // size)].long()].transpose(0, 1).flatten(1, 2)
            keys, values = cached[:, :length].float().repeat_interleave(self.num_queries_per_kv, 0).chunk(2, dim=-1)
            at = torch.arange(length - (end - first), length).unsqueeze(1)
            behind = at - torch.arange(length)
            seen = behind >= 0
            if self.sliding_window > 0:
                seen &= behind < self.sliding_window
            scores = query[first:end].transpose(0, 1).float() @ keys.transpose(1, 2) * self.scale
            scores = scores.masked_fill(~seen, float("-inf"))
            if self.sinks is not None:
                sinks = self.sinks.float().view(-1, 1, 1).expand(-1, end - first, 1)
                scores = torch.cat((scores, sinks), dim=-1)
            weights = scores.softmax(-1)[..., :length]
            output[first:end] = (weights @ values).transpose(0, 1).reshape(output[first:end].shape).to(output.dtype)
        return output


class TorchAttentionBackend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls() -> type[TorchAttention]:
        return TorchAttention

    @staticmethod
    def get_builder_cls() -> type[TorchMetadataBuilder]:
        return TorchMetadataBuilder
