"""vLLM's attention through flhost, layer by layer and in an engine that computes prompts in parts and keeps their beginnings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vllm_attention
from vllm_architectures import calls
from vllm_engine import RESULT, environment, expected, has_attention, has_kernels, run

pytestmark = pytest.mark.skipif(not has_attention(), reason="attention is this vLLM's own")

TAKEN = [name for name in vllm_attention.CASES if name != "encoder"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of all cases, by one process. An encoder's attention is vLLM's own."""
    scratch = tmp_path_factory.mktemp("attention")
    names = list(vllm_attention.CASES) if has_kernels() else TAKEN
    done = subprocess.run(
        [sys.executable, vllm_attention.__file__, json.dumps(names)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=scratch,
        env=environment(scratch, {}),
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith(RESULT))[len(RESULT) :])


@pytest.mark.parametrize("case", TAKEN)
def test_a_layer_computes_the_formula_by_flhosts_operators(results: dict[str, Any], case: str) -> None:
    found = results[case]
    assert found["difference"] < (0.016 if case == "bfloat16" else 2e-6)
    assert found["calls"] == {"paged_attention": 2 if case == "some causal" else 1, "reshape_and_cache": 1}


@pytest.mark.skipif(not has_kernels(), reason="this vLLM has no kernels for the CPU")
def test_an_encoders_attention_is_vllms(results: dict[str, Any]) -> None:
    assert results["encoder"]["calls"] == {}
    assert results["encoder"]["difference"] < 2e-6


def test_prompts_in_parts_and_a_beginning_that_is_in_the_cache(tmp_path: Path) -> None:
    """A prompt of 33 tokens, 8 at a time; then, beside another one, once more, with a block of 32 in the cache. Its model has
    sinks and, in every other layer, a window."""
    generated = 12  # of the prompt's own tokens, which make it long enough
    result = run(
        tmp_path,
        "gpt-oss",
        requests=[[[1, generated]], [[1, generated], 0]],
        enable_prefix_caching=True,
        block_size=32,
        max_num_batched_tokens=8,
        max_num_seqs=2,
    )
    wanted = expected("gpt-oss")
    continued = wanted["tokens_1"][generated:].tolist()
    for tokens in (result["tokens"][0][0], result["tokens"][1][0]):
        assert tokens[: len(continued)] == continued
    assert result["tokens"][0][0] == result["tokens"][1][0]
    assert result["tokens"][1][1] == wanted["tokens_0"].tolist()
    passes = [5 + 15, 16]  # five for the prompt; one for the token behind the block and all of the other prompt
    for counts, n in zip(result["counts"], passes, strict=True):
        assert counts == [{f"{op}:default.flagos": {"calls": c} for op, c in calls("gpt-oss", n).items()}]
