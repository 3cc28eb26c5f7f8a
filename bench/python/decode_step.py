"""What a decode step of vLLM's costs with flhost and without: python bench/python/decode_step.py [--rounds 4] [--steps 200]

Two models with random weights: a tiny one (tests/models/qwen3), where all is overhead, and one of 0.5 B parameters. Engines are
processes of their own, A B A B; of each the least of several runs counts. The plugin's part is what the same calls cost with
kernels that do nothing: flhost's calls are timed on tensors of the model's shapes, at the number of them that a step makes.
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


def engine(size: str, steps: int, eager: bool, scratch: Path) -> dict[str, Any]:
    """In a process of its own: microseconds a step, least of five runs, and what flhost was called for."""
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
    return {"us": min(per_step) * 1e6, "own_us": own_part() if "flhost._core" in sys.modules else 0.0}


def own_part() -> float:
    """Microseconds of a step that are flhost's: each call of the last step again, less the kernel."""
    import flhost
    import torch

    host = flhost.default_host()
    counts = {
        row["op_name"]: host.counters(row["op_name"], row["impl_id"])["calls"]
        for row in host.impls()
        if host.counters(row["op_name"], row["impl_id"])["calls"]
    }
    passes = counts.get("vocab_parallel_embedding", 1)
    call = host.op("rms_norm").call
    x, w = torch.zeros(1, 8), torch.ones(8)
    out = torch.empty(1, 8)
    best = min(_time(lambda: call(x, None, w, out=(out, None))) for _ in range(5))
    return best * sum(counts.values()) / passes


def _time(function: Any, n: int = 20000) -> float:
    started = time.perf_counter()
    for _ in range(n):
        function()
    return (time.perf_counter() - started) / n * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=4, help="engines in turn, plain and with flhost")
    arguments.add_argument("--steps", type=int, default=200)
    arguments.add_argument("--sizes", default="tiny,0.5B")
    arguments.add_argument("--modes", default="eager,compiled")
    arguments.add_argument("--engine", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.engine:
        print(RESULT + json.dumps(engine(**json.loads(given.engine) | {"scratch": Path(tempfile.gettempdir())})))
        return
    with tempfile.TemporaryDirectory() as scratch:
        print(
            f"{'model':<6} {'mode':<9} {'plain us':>10} {'flhost us':>10} {'ratio':>6} {'flhost own us':>14} {'share':>6}"
        )
        for size in given.sizes.split(","):
            for mode in given.modes.split(","):
                found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
                for turn in range(given.rounds):
                    through = turn % 2 == 1
                    found[through].append(start(size, mode, given.steps, through, scratch))
                plain = statistics.median(result["us"] for result in found[False])
                with_it = statistics.median(result["us"] for result in found[True])
                own = statistics.median(result["own_us"] for result in found[True])
                print(
                    f"{size:<6} {mode:<9} {plain:10.0f} {with_it:10.0f} {with_it / plain:6.2f} {own:14.1f} {own / with_it:6.1%}"
                )


def start(size: str, mode: str, steps: int, through: bool, scratch: str) -> dict[str, Any]:
    scenario = json.dumps({"size": size, "steps": steps, "eager": mode == "eager"})
    done = subprocess.run(
        [sys.executable, __file__, "--engine", scenario],
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
