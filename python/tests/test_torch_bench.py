"""What `flhost bench --peer torch` times is the same computation: each form of the table gives what flhost's reference does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import flhost
import pytest
import torch

COMMAND = (Path(flhost.__file__).parent / "bin" / "flhost").resolve()
PLACES = (COMMAND.parents[1] / "share" / "flhost" / "peers", COMMAND.parent / "peers")
PEERS = next(path for path in PLACES if path.is_dir())
sys.path.insert(0, str(PEERS))

import torch_ops  # noqa: E402
import torch_peer  # noqa: E402

# What keeps the large ones small.
DIMS = {
    "vocab_parallel_embedding": "...: [5]; v: 40; h: 16",
    "parallel_lm_head": "...: [3]; v: 40; h: 16",
    "logits_processor": "...: [3]; v: 40; h: 16",
    "replicated_linear": "...: [3]; k: 16; n: 24",
    "column_parallel_linear": "...: [3]; k: 16; n: 24",
    "row_parallel_linear": "...: [3]; k: 16; n: 24",
    "conv2d": "n: 2; c: 3; h: 28; w: 28; o: 8",
    "conv3d": "n: 2; o: 8",
    "fused_moe": "m: 3; h: 32; i: 16; e: 4; n: 4; top_k: 2",
    "modular_fused_moe": "m: 3; h: 32; i: 16; e: 4; k: 2",
    "unquantized_fused_moe": "m: 3; h: 32; i: 16; e: 4; k: 2",
    "transformers_fused_moe": "m: 3; h: 32; i: 16; e: 4; k: 2",
    "mla_prefill": "n: 5; h: 2; p: 16; r: 8; l: 32; v_head_dim: 16",
    "mla_decode": "b: 2; h: 4; c: 24; kv_lora_rank: 16; size: 4; n: 2",
    "paged_attention": "n: 2; h: 4; k: 2; d: 16; size: 4; m: 3",
    "mm_encoder_attn": "b: 1; s: 7; h: 4; k: 4; d: 16",
    "selective_scan": "d: 16; l: 5",
    "causal_conv1d": "d: 16; l: 6; w: 4",
    **dict.fromkeys(
        (
            "apply_temperature",
            "apply_min_p",
            "apply_top_k_top_p",
            "greedy_argmax",
            "exponential_sample",
            "gumbel_sample",
        ),
        "n: 3; v: 200",
    ),
    "apply_penalties": "n: 3; v: 200; p: 20; o: 20",
    "gather_logprobs": "n: 3; v: 200; num_logprobs: 20",
    "mamba_chunk_scan": "t: 70; h: 4; p: 16; g: 2; n: 8; chunk_size: 16",
    "chunk_gated_delta_rule": "t: 70; h: 2; H: 4; c: 16; v: 8",
    "recurrent_gated_delta_rule": "n: 3; num_k_heads: 2; H: 4; c: 16; v: 8",
    "gdn_attention_core": "t: 70; num_k_heads: 2; head_k_dim: 16; H: 4; v: 8",
    "fused_qk_norm_rope": "n: 5; num_heads_q: 4; num_heads_k: 2; num_heads_v: 2; d: 20; r: 8; p: 9",
    "mrope": "n: 5; h: 4; k: 2; d: 130; p: 9",
}


@pytest.fixture(scope="module")
def session():
    made = torch_peer.Session(torch, torch_ops)
    made.begin({"device": "cpu", "threads": 1})
    return made


def request_of(op, directory):
    """What the command asks a peer for that has it timed."""
    log, python = directory / "requests", directory / "python"
    python.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        "channel = os.fdopen(3, 'r+b', buffering=0)\n"
        "for line in os.fdopen(os.dup(3), 'rb'):\n"
        f"    open({str(log)!r}, 'ab').write(line)\n"
        "    channel.write(json.dumps({'id': json.loads(line)['id'], 'ns': 1000, 'version': ''}).encode() + b'\\n')\n"
    )
    python.chmod(0o755)
    command = [COMMAND, "bench", "--peer", "torch", "--seconds", "0.001", "--size", "small"]
    command += ["--dtype", "int8" if op == "scaled_mm" else "float32"]
    command += ["--dims", DIMS[op]] if op in DIMS else []
    done = subprocess.run(
        [*command, op], env={**os.environ, "PYTHON": str(python)}, capture_output=True, text=True, check=False
    )
    requests = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    ready = [request for request in requests if request["do"] == "ready"]
    assert ready, done.stderr
    return ready[0]


def results_of(returned):
    return returned if isinstance(returned, (tuple, list)) else (returned,)


@pytest.mark.parametrize("op", sorted(torch_ops.OPS))
def test_a_form_gives_what_the_reference_does(op, session, tmp_path):
    arguments = session.make(request_of(op, tmp_path)["arguments"])
    with torch.inference_mode():
        ours = results_of(torch_ops.OPS[op](arguments))
        kept = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
        theirs = [value for value in results_of(getattr(flhost.ops, op)(**kept)) if value is not None]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        torch.testing.assert_close(mine.float(), other.float(), atol=2e-3, rtol=2e-3)


def test_the_command_times_torch():
    command = [
        COMMAND,
        "bench",
        "--json",
        "--peer",
        "torch,python",
        "--seconds",
        "0.01",
        "--dims",
        "...: [2]; d: 64",
        "gelu",
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["peers"] == dict.fromkeys(("torch", "python"), f"torch {torch.__version__}")
    for name in ("torch", "python"):
        row = next(row for row in report["timings"] if row["impl_id"] == name)
        assert row["us"]
        assert row["reason"] is None, row
