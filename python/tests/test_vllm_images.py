"""A model of text and images in vLLM through flhost: its tokens have a position in time, in height and in width."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from test_vllm_mixers import MORE, run
from vllm_engine import expected, has_attention

PASSES = 16
TEXT = {
    "vocab_parallel_embedding": 1,
    "rms_norm": 9,
    "column_parallel_linear": 4,
    "row_parallel_linear": 4,
    "mrope": 2,
    "reshape_and_cache": 2,
    "paged_attention": 2,
    "silu_and_mul": 2,
    "logits_processor": 1,
}
IMAGE = {
    "conv3d": 1,
    "apply_rotary_emb": 1,
    "column_parallel_linear": 4,
    "row_parallel_linear": 4,
}  # before its first pass


def counted(image: bool) -> dict[str, dict[str, int]]:
    calls = Counter({op: n * PASSES for op, n in TEXT.items()}) + Counter(IMAGE if image else {})
    return {f"{op}:default.flagos": {"calls": n} for op, n in calls.items()}


@MORE
@pytest.mark.skipif(not has_attention(), reason="attention is vLLM's own there")
def test_a_prompt_with_an_image_and_one_without_run_through_flhost(tmp_path: Path) -> None:
    (result,) = run(tmp_path, [("qwen3_vl", {"requests": [[0], [1]]})], {})
    wanted = expected(str(tmp_path / "qwen3_vl"))
    assert result["tokens"] == [[wanted[f"tokens_{i}"].tolist()] for i in (0, 1)]
    assert result["counts"] == [[counted(image=True)], [counted(image=False)]]
