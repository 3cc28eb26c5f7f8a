"""What a forward pass of each architecture calls, by its config.json: op and number of calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from vllm_engine import MODELS, has_attention, has_kernels


def _attention(layers: int, norms: int) -> Counter[str]:
    """Embedding, attention with fused q, k, v, norms, logits."""
    cached = Counter(reshape_and_cache=layers, paged_attention=layers) if has_attention() else Counter[str]()
    return cached + Counter(
        vocab_parallel_embedding=1,
        rms_norm=norms * layers + 1,
        column_parallel_linear=layers,
        rotary_embedding=layers,
        row_parallel_linear=layers,
    )


def _mlp(layers: int) -> Counter[str]:
    return Counter(column_parallel_linear=layers, silu_and_mul=layers, row_parallel_linear=layers)


def _experts(layers: int) -> Counter[str]:
    return Counter(replicated_linear=layers, unquantized_fused_moe=layers)


def _deepseek(layers: int) -> Counter[str]:
    """The first layer has no experts; latent attention is one op for prompts, and another for tokens behind them."""
    latent = Counter(concat_and_cache_mla=layers, mla_paged_attention=layers, mla_decode=layers)
    return latent + Counter(
        vocab_parallel_embedding=1,
        rms_norm=3 * layers + 1,
        column_parallel_linear=2 * layers,
        rotary_embedding=layers,
        row_parallel_linear=2 * layers,
        silu_and_mul=layers,
        replicated_linear=2 * layers - 1,
        unquantized_fused_moe=layers - 1,
    )


def _qwen3_next(layers: int) -> Counter[str]:
    """Linear attention and attention in turns; the shared expert has a gate of its own, and attention norms of query and key."""
    each = layers // 2
    return Counter(
        vocab_parallel_embedding=1,
        gemma_rms_norm=2 * layers + 2 * each + 1,
        column_parallel_linear=3 * each + layers,
        row_parallel_linear=2 * each + layers,
        replicated_linear=2 * layers,
        silu_and_mul=layers,
        unquantized_fused_moe=layers,
        gdn_attention_core=each,
        rms_norm_gated=each,
        rotary_embedding=each,
        reshape_and_cache=each,
        paged_attention=each,
    )


_PASSES: dict[str, Callable[[int], Counter[str]]] = {
    "llama": lambda n: _attention(n, 2) + _mlp(n),
    "llama-bf16": lambda n: _attention(n, 2) + _mlp(n),
    "qwen3": lambda n: _attention(n, 4) + _mlp(n),
    "mixtral": lambda n: _attention(n, 2) + _experts(n),
    "gpt-oss": lambda n: _attention(n, 2) + _experts(n),
    # the shared expert has a gate of its own
    "qwen2-moe": lambda n: _attention(n, 2) + _experts(n) + _mlp(n) + Counter(replicated_linear=n),
    "deepseek-v2": _deepseek,
    "qwen3-next": _qwen3_next,
    "mamba2": lambda n: Counter(vocab_parallel_embedding=1, rms_norm=n + 1, mamba_mixer2=n),
}


# Those that vLLM's CPU engine runs. Heads of 16 (llama, qwen3-next) and small latents (deepseek-v2) have no attention but
# flhost's.
MODELS_OF_VLLM = sorted(
    name for name in _PASSES if has_attention() or name not in ("llama", "qwen3-next", "deepseek-v2")
)


def calls(model: str, passes: int, ranks: int = 1) -> dict[str, int]:
    """Of so many forward passes. Several ranks gather the logits, so that the head alone is an op there."""
    layers = json.loads((MODELS / model / "config.json").read_text())["num_hidden_layers"]
    head = "logits_processor" if ranks == 1 else "parallel_lm_head"
    only_in = {"mla_paged_attention": 1, "mla_decode": passes - 1}  # the first pass has the prompts
    return {op: n * only_in.get(op, passes) for op, n in (_PASSES[model](layers) + Counter([head])).items()}


# What vLLM's own kernels say, with flhost or without: in float32 by version.
_CANNOT = {("0.28.0", "gpt-oss"): "expected scalar type BFloat16 but found Float"}  # attention sinks
# The same, without flhost alone: experts.
_NEEDS_FLHOST = dict.fromkeys(("gpt-oss", "mixtral"), "no attribute 'prepack_moe_weight'")


def vllm_cannot(version: str, model: str) -> str | None:
    """What this vLLM says when it is to run the architecture in float32; None if it runs."""
    return _CANNOT.get((version, model))


def needs_flhost(model: str) -> str | None:
    """What vLLM says when it is to run the architecture by itself; None if it runs."""
    return None if has_kernels() else _NEEDS_FLHOST.get(model)
