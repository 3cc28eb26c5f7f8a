"""Mamba's layers in vLLM through flhost: architectures that vLLM's own kernels for the CPU cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vllm_made_models
from vllm_engine import RESULT, environment, expected, has_attention

MORE = pytest.mark.skipif(os.environ.get("FLHOST_VLLM") != "all", reason="make check-vllm-all")
REQUESTS = [[0], [0, 1]]
PASSES = 16
IN_PARTS = {"max_num_batched_tokens": 4, "max_num_seqs": 2}  # the prompts are longer

# What a forward pass calls, besides embedding and head.
CALLS = {
    "mamba": {"mamba_mixer": 2, "rms_norm": 3},
    "falcon_mamba": {"mamba_mixer": 2, "rms_norm": 3},
    "jamba": {
        "mamba_mixer": 1,
        "rms_norm": 5,
        "column_parallel_linear": 2,
        "row_parallel_linear": 2,
        "paged_attention": 1,
        "reshape_and_cache": 1,
        "silu_and_mul": 1,
        "replicated_linear": 1,
        "unquantized_fused_moe": 1,
    },
}


def run(scratch: Path, runs: list[tuple[str, dict[str, Any]]], settings: dict[str, str]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, vllm_made_models.__file__, str(scratch), json.dumps(runs)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=scratch,
        env=environment(scratch, settings),
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith(RESULT))[len(RESULT) :])


def assert_right(scratch: Path, name: str, result: Any, impl: str = "default.flagos", passes: int = PASSES) -> None:
    wanted = expected(str(scratch / name))
    of_model = {"vocab_parallel_embedding": 1, "logits_processor": 1, **CALLS[name]}
    for tokens, counts, numbers in zip(result["tokens"], result["counts"], REQUESTS, strict=True):
        assert tokens == [wanted[f"tokens_{i}"].tolist() for i in numbers]
        if passes:
            assert counts == [{f"{op}:{impl}": {"calls": n * passes} for op, n in of_model.items()}]
        else:  # so many as the parts were
            assert {key for counted in counts for key in counted} == {f"{op}:{impl}" for op in of_model}
            assert all(list(found) == ["calls"] for counted in counts for found in counted.values())


def test_mamba_runs_through_flhost_with_prompts_whole_and_in_parts(tmp_path: Path) -> None:
    scenario = {"requests": REQUESTS}
    whole, parts = run(tmp_path, [("mamba", scenario), ("mamba", {**scenario, **IN_PARTS})], {})
    assert_right(tmp_path, "mamba", whole)
    assert_right(tmp_path, "mamba", parts, passes=0)


@MORE
@pytest.mark.parametrize("layout", ["SD", "DS"])
def test_states_lie_as_vllm_has_them(tmp_path: Path, layout: str) -> None:
    names = ["mamba", "falcon_mamba", *(["jamba"] if has_attention() else [])]
    settings = {"VLLM_SSM_CONV_STATE_LAYOUT": layout}
    for name, result in zip(names, run(tmp_path, [(n, {"requests": REQUESTS}) for n in names], settings), strict=True):
        assert_right(tmp_path, name, result)


@MORE
def test_mamba_compiled_and_by_the_reference(tmp_path: Path) -> None:
    (compiled,) = run(tmp_path, [("mamba", {"requests": REQUESTS, "eager": False})], {})
    assert_right(tmp_path, "mamba", compiled)
    (reference,) = run(tmp_path, [("mamba", {"requests": REQUESTS})], {"VLLM_FL_PREFER": "reference"})
    assert_right(tmp_path, "mamba", reference, "reference.c")
