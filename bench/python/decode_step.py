"""What a decode step of vLLM's costs with flhost and without: python bench/python/decode_step.py [--rounds 4] [--steps 200]

Two models with random weights: a tiny one (tests/models/qwen3), where all is overhead, and one of 0.5 B parameters. Engines are
processes of their own, A B A B; of each the least of several runs counts. What is not kernels in a step is told by one of its layers,
an RMSNorm, whose call is taken apart: the layer (Python), the op of torch's below it (torch), that less a no-op of the same form
(flhost); times the calls of flhost that a step makes. A compiled model has no layers left: their part is 0 there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULT = "RESULT "
PARTS = ("python_us", "torch_us", "flhost_us")
LARGE = {  # the shapes of Qwen2.5 0.5B
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}


def model_of(size: str, scratch: Path) -> tuple[Path, str]:
    """Folder and load format."""
    tiny = ROOT / "tests" / "models" / "qwen3"
    if size == "tiny":
        return tiny, "auto"
    folder = scratch / "large"
    folder.mkdir(exist_ok=True)
    config = {**json.loads((tiny / "config.json").read_text()), **LARGE}
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder, "dummy"


def engine(size: str, steps: int, eager: bool, nop: str | None, scratch: Path) -> dict[str, Any]:
    """In a process of its own: microseconds a step, least of five runs, and the parts of it that are no kernels."""
    from vllm import LLM, SamplingParams

    folder, load_format = model_of(size, scratch)
    llm = LLM(
        str(folder),
        dtype="float32" if size == "tiny" else "bfloat16",
        load_format=load_format,
        enforce_eager=eager,
        skip_tokenizer_init=True,
        max_model_len=min(2048, steps + 16) if size != "tiny" else 128,
        seed=0,
    )
    steps = min(steps, 100) if size == "tiny" else steps
    took = []
    for _ in range(6):
        for n in (1, steps):
            started = time.perf_counter()
            llm.generate(
                [{"prompt_token_ids": [1, 2, 3, 4]}],
                SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False),
                use_tqdm=False,
            )
            took.append(time.perf_counter() - started)
    per_step = [(b - a) / (steps - 1) for a, b in zip(took[2::2], took[3::2], strict=True)]
    parts = parts_of_step(llm, nop) if nop and "flhost._core" in sys.modules else {}
    if not eager:
        parts["python_us"] = 0.0
    return {"us": min(per_step) * 1e6, **parts}


def parts_of_step(llm: Any, nop: str) -> dict[str, float]:
    """Microseconds of a step that are Python's, torch's and flhost's: those of one call, times the calls of a step."""
    import ctypes

    import flhost
    import torch

    host = flhost.default_host()
    counts = {row["op_name"]: 0 for row in host.impls()}
    for row in host.impls():
        counts[row["op_name"]] += host.counters(row["op_name"], row["impl_id"])["calls"]
    calls = sum(counts.values()) / max(counts["vocab_parallel_embedding"], 1)
    library = torch.library.Library("flhost_bench", "FRAGMENT")
    library.define("nop(Tensor x, Tensor y, Tensor(a!) z) -> ()")
    if ctypes.CDLL(nop).torch_nop_register(b"nop"):
        raise OSError("no stable C interface in this torch")
    x, empty_like, nothing = torch.zeros(1, 8), torch.empty_like, torch.ops.flhost_bench.nop.default
    weight, op = torch.ones(8), torch.ops.flhost.rms_norm.default

    def without_kernel() -> None:
        nothing(x, weight, empty_like(x))

    layer = llm.apply_model(lambda model: next(m for m in model.modules() if type(m).__name__ == "RMSNorm"))[0]
    row = torch.zeros(1, layer.weight.shape[0], dtype=layer.weight.dtype)
    with torch.inference_mode():
        of_layer = _time(lambda: layer(row))
        of_its_op = _time(lambda: op(row, None, layer.weight, layer.variance_epsilon, None))
        of_op = _time(lambda: op(x, None, weight, 1e-6, None))
        of_torch = _time(without_kernel)
    return {
        "python_us": (of_layer - of_its_op) * calls,
        "torch_us": of_torch * calls,
        "flhost_us": (of_op - of_torch) * calls,
    }


def _time(function: Any, n: int = 20000, rounds: int = 5) -> float:
    """Microseconds of a call, the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(n):
            function()
        best = min(best, (time.perf_counter() - started) / n * 1e6)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=4, help="engines in turn, plain and with flhost")
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--sizes", default="tiny,0.5B")
    arguments.add_argument("--modes", default="eager,compiled")
    arguments.add_argument("--nop", help="build/bench/python/torch_nop.so, for the parts of a step")
    arguments.add_argument("--json", help="also write the figures into a file")
    arguments.add_argument("--engine", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.engine:
        print(RESULT + json.dumps(engine(**json.loads(given.engine) | {"scratch": Path(tempfile.gettempdir())})))
        return
    with tempfile.TemporaryDirectory() as scratch:
        print(
            f"{'model':<6} {'mode':<9} {'plain us':>9} {'flhost us':>9} {'ratio':>6}  {'Python, torch, flhost: us a step, and share':<50}"
        )
        results = []
        for size in given.sizes.split(","):
            for mode in given.modes.split(","):
                found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
                for turn in range(given.rounds):
                    through = turn % 2 == 1
                    found[through].append(start(size, mode, given, through, scratch))
                plain = statistics.median(result["us"] for result in found[False])
                ours = {key: statistics.median(result[key] for result in found[True]) for key in found[True][0]}
                shares = "  ".join(f"{ours.get(part, 0):8.1f} {ours.get(part, 0) / ours['us']:6.2%}" for part in PARTS)
                print(
                    f"{size:<6} {mode:<9} {plain:9.0f} {ours['us']:9.0f} {ours['us'] / plain:6.2f}  {shares}",
                    flush=True,
                )
                results.append({"model": size, "mode": mode, "plain_us": plain, **ours})
        if given.json:
            Path(given.json).write_text(json.dumps(results, indent=1))


def start(size: str, mode: str, given: argparse.Namespace, through: bool, scratch: str) -> dict[str, Any]:
    scenario = json.dumps({"size": size, "steps": given.steps, "eager": mode == "eager", "nop": given.nop})
    return run_engine(__file__, scenario, through, scratch)


def run_engine(script: str, scenario: str, through: bool, scratch: str) -> dict[str, Any]:
    """What an engine in a process of its own found: `script --engine SCENARIO`, plain or through flhost."""
    done = subprocess.run(
        [sys.executable, script, "--engine", scenario],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "TMPDIR": scratch,
            "VLLM_PLUGINS": "flhost" if through else "none",
            "VLLM_FL_STATISTICS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": f"{scratch}/cache",
            "HF_HUB_OFFLINE": "1",
        },
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not lines:
        sys.exit(done.stdout[-4000:])
    return dict(json.loads(lines[-1][len(RESULT) :]))


if __name__ == "__main__":
    main()
