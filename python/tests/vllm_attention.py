"""A program: layers of vLLM's attention, without a model, and the formula beside them. It prints, as JSON, by case: the
largest difference, the class that computed it, and what flhost's host counted."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from vllm_engine import MODELS, RESULT, WorkerExtension, difference

HEADS, SHARED, SIZE, BLOCK = 4, 2, 32, 32
LENGTHS, QUERIES = [5, 70, 33], [5, 3, 1]  # a prompt, the rest of one, and a next token
SLOPES, SINKS = [0.5, 0.25, 0.125, 0.0625], [0.5, -1.0, 2.0, 0.0]

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"per_layer_sliding_window": 7},
    "soft cap": {"logits_soft_cap": 2.5},
    "alibi": {"alibi_slopes": SLOPES},
    "sinks": {"sinks": SINKS},
    "window and sinks": {"per_layer_sliding_window": 33, "sinks": SINKS},
    "bfloat16": {"dtype": torch.bfloat16},
    "not causal": {"causal": False},
    "window, not causal": {"causal": False, "per_layer_sliding_window": 3},
    "some causal": {"causal": [1, 0, 1]},
    "float8": {"cache": "fp8"},
    "heads of 16": {"size": 16},
    "encoder": {"attn_type": "encoder_only", "causal": False},
}


def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, case: dict[str, Any]) -> torch.Tensor:
    """Of one request, all of whose keys are there; [tokens, heads, size]."""
    length, queries = len(k), len(q)
    k, v = (t.repeat_interleave(HEADS // SHARED, dim=1).double() for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * q.shape[-1] ** -0.5
    cap, window = case.get("logits_soft_cap"), case.get("per_layer_sliding_window")
    if cap:
        scores = cap * torch.tanh(scores / cap)
    ahead = torch.arange(length) - torch.arange(length - queries, length).unsqueeze(1)
    if "alibi_slopes" in case:
        scores = scores + torch.tensor(SLOPES).view(-1, 1, 1) * ahead
    seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    if window:
        seen = seen & (ahead.abs() < window)
    scores = scores.masked_fill(~seen, float("-inf"))
    sinks = torch.tensor(SINKS if "sinks" in case else [float("-inf")] * HEADS, dtype=torch.float64)
    scores = torch.cat((scores, sinks.view(-1, 1, 1).expand(-1, queries, 1)), dim=-1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], v)


def run(name: str, case: dict[str, Any], config: Any) -> dict[str, Any]:
    from vllm.model_executor.layers.attention import Attention
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.kv_cache_interface import EncoderOnlyAttentionSpec

    case = dict(case)
    dtype, size = case.get("dtype", torch.float32), case.get("size", SIZE)
    given = {key: case[key] for key in case if key not in ("dtype", "size", "causal", "cache", "sinks")}
    if "sinks" in case:
        given["sinks"] = torch.tensor(SINKS, dtype=dtype)
    config.cache_config.cache_dtype = case.get("cache", "auto")
    torch.set_default_dtype(dtype)
    layer = Attention(HEADS, size, size**-0.5, SHARED, cache_config=config.cache_config, prefix=f"{name}.0", **given)
    layer.process_weights_after_loading(dtype)
    torch.set_default_dtype(torch.float32)
    is_float8 = "cache" in case
    if is_float8:
        layer._k_scale.fill_(0.5)
        layer._v_scale.fill_(2.0)

    generator = torch.Generator().manual_seed(0)
    lengths = QUERIES if "attn_type" in case else LENGTHS
    keys, values = ([torch.randn(n, SHARED, size, generator=generator).to(dtype) for n in lengths] for _ in range(2))
    queries = [torch.randn(n, HEADS, size, generator=generator).to(dtype) for n in QUERIES]
    cache = torch.full((12, SHARED, BLOCK, 2 * size), float("nan")).to(torch.uint8 if is_float8 else dtype)
    table = torch.tensor([[7, 0, 0], [3, 11, 4], [9, 1, 0]], dtype=torch.int32)
    slots = [table[i, torch.arange(n) // BLOCK].long() * BLOCK + torch.arange(n) % BLOCK for i, n in enumerate(lengths)]
    starts = torch.tensor([0, *QUERIES]).cumsum(0).to(torch.int32)
    spec = layer.get_kv_cache_spec(config) or EncoderOnlyAttentionSpec(
        block_size=BLOCK, num_kv_heads=SHARED, head_size=size, dtype=dtype
    )
    causal = case.get("causal", True)
    common = CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        num_reqs=len(lengths),
        num_actual_tokens=sum(QUERIES),
        max_query_len=max(QUERIES),
        max_seq_len=max(lengths),
        block_table_tensor=table,
        slot_mapping=torch.cat([s[n - q :] for s, n, q in zip(slots, lengths, QUERIES, strict=True)]),
        causal=torch.tensor(causal, dtype=torch.int32) if isinstance(causal, list) else causal,
        positions=torch.cat([torch.arange(n - q, n) for n, q in zip(lengths, QUERIES, strict=True)]),
    )
    before = WorkerExtension().flhost_counts()
    metadata = layer.attn_backend.get_builder_cls()(spec, [f"{name}.0"], config, torch.device("cpu")).build(0, common)
    layer.impl.do_kv_cache_update(layer, torch.cat(keys), torch.cat(values), cache, torch.cat(slots))
    out = torch.full((sum(QUERIES), HEADS, size), float("nan"), dtype=dtype)
    new = [torch.cat([t[n - q :] for t, n, q in zip(ts, lengths, QUERIES, strict=True)]) for ts in (keys, values)]
    layer.impl.forward(layer, torch.cat(queries), *new, cache, metadata, out)
    if is_float8:
        keys = [(k / 0.5).to(torch.float8_e4m3fn).float() * 0.5 for k in keys]
        values = [(v / 2.0).to(torch.float8_e4m3fn).float() * 2.0 for v in values]
    of_each = causal if isinstance(causal, list) else [causal] * len(lengths)
    wanted = torch.cat([formula(*each, case) for each in zip(queries, keys, values, of_each, strict=True)])
    counted = difference(WorkerExtension().flhost_counts(), before)
    return {
        "difference": float((out.double() - wanted).abs().nan_to_num(nan=1e9).max()),
        "class": type(layer.impl).__module__,
        "calls": {key.partition(":")[0]: n["calls"] for key, n in counted.items()},
    }


def main() -> dict[str, Any]:
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    model = ModelConfig(str(MODELS / "qwen3"), dtype="float32", skip_tokenizer_init=True, max_model_len=64)
    config = VllmConfig(
        model_config=model, cache_config=CacheConfig(block_size=BLOCK), device_config=DeviceConfig("cpu")
    )
    with set_current_vllm_config(config), torch.inference_mode():
        return {name: run(name, CASES[name], config) for name in json.loads(sys.argv[1])}


if __name__ == "__main__":
    print(RESULT + json.dumps(main()), flush=True)
