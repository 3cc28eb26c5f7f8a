"""vLLM with quantised checkpoints through flhost: the formula's logits and tokens, and counters that say by what they were
computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vllm_quantised
from vllm_architectures import calls
from vllm_engine import RESULT, environment, expected
from vllm_quantised import KINDS, MODEL, TOKENS

ALL = os.environ.get("FLHOST_VLLM") == "all"
FEW = list(KINDS) if ALL else ["int8", "float8 of blocks", "AWQ", "GPTQ"]
MORE = pytest.mark.skipif(not ALL, reason="make check-vllm-all")
WEIGHT_ONLY = [name for name, kind in KINDS.items() if kind.ops == ("gptq_linear",)]


def results_of(scratch: Path, settings: dict[str, str], eager: bool = True) -> dict[str, Any]:
    """Of these kinds, by one process."""
    done = subprocess.run(
        [sys.executable, vllm_quantised.__file__, str(scratch), json.dumps([FEW, eager])],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=scratch,
        env=environment(scratch, settings),
    )
    assert done.returncode == 0, done.stdout[-8000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith(RESULT))[len(RESULT) :])
    return {name: {**result, "expected": expected(str(scratch / name))} for name, result in found.items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results_of(tmp_path_factory.mktemp("quantised"), {})


def assert_right(result: dict[str, Any], name: str, impl: str) -> None:
    kind, wanted = KINDS[name], result["expected"]
    far = []
    for i in (0, 1):
        logits = wanted[f"prompt_logits_{i}"].astype(np.float64)
        greatest = logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits - greatest).sum(axis=-1, keepdims=True)) + greatest
        far.append(np.abs(np.array(result["logprobs"][1][i]) - logits).ravel())
    # Sums in another order move an input to the next code here and there, and what comes behind that with it: not half of
    # all. (Logits are some 3 from their mean.)
    differences = np.concatenate(far)
    rounded = kind.dtype == "bfloat16"
    assert np.median(differences) < (0.1 if rounded else 2e-5)
    assert np.sqrt((differences**2).mean()) < (0.2 if rounded else 0.05)
    if name in WEIGHT_ONLY and not rounded:
        assert result["tokens"] == [[wanted[f"tokens_{i}"].tolist() for i in numbers] for numbers in ([0], [0, 1])]
    for counts, prompts in zip(result["counts"], (1, 2), strict=True):
        of_layers = calls(MODEL, TOKENS)
        linear = of_layers.pop("column_parallel_linear") + of_layers.pop("row_parallel_linear")
        of_layers["logits_processor"] += prompts  # the prompts' own
        of_layers |= dict.fromkeys(kind.ops, linear)
        assert counts == [{f"{op}:{impl}": {"calls": n} for op, n in of_layers.items()}]


@pytest.mark.parametrize("name", FEW)
def test_a_quantised_checkpoint_is_computed_by_flhosts_operators(results: dict[str, Any], name: str) -> None:
    assert_right(results[name], name, "default.flagos")


@MORE
def test_the_reference_computes_quantised_checkpoints_when_it_is_preferred(tmp_path: Path) -> None:
    for name, result in results_of(tmp_path, {"VLLM_FL_PREFER": "reference"}).items():
        assert_right(result, name, "reference.c")


@MORE
def test_quantised_checkpoints_compiled(tmp_path: Path) -> None:
    for name, result in results_of(tmp_path, {}, eager=False).items():
        assert_right(result, name, "default.flagos")
