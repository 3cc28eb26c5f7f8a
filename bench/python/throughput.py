"""Tokens a second of vLLM with flhost and without: python bench/python/throughput.py [--rounds 4]

A model of a billion random parameters in bfloat16 (the shapes of Llama 3.2 1B, untied): one request and sixteen that decode, and
a prompt of 512 tokens. Engines are processes of their own, A B A B; of each the best of several runs counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decode_step import RESULT, ROOT, run_engine

MODEL = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}
# What is measured, and its tokens a second from the seconds of two runs: requests, tokens of a prompt, tokens to make.
CASES = {"decode 1": (1, 4, 24), "decode 16": (16, 4, 24), "prefill 512": (1, 512, 1)}
RUNS = 4


def make_model(folder: Path, like: str = "qwen3", sizes: dict[str, Any] = MODEL) -> None:
    """A config.json without weights: that of a model of the tests, in these sizes."""
    config = json.loads((ROOT / "tests" / "models" / like / "config.json").read_text()) | sizes
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))


def prompt_ids(number: int, n: int) -> list[int]:
    """Two of different numbers begin differently: what the one leaves in a cache is of no use to the other."""
    return [1 + (number + i) % 30000 for i in range(n)]


def measure(seconds: Callable[[int, int, int], float]) -> dict[str, float]:
    """The most tokens a second of each case, by what so many requests with so long prompts take until each has its tokens."""
    found = {}
    for name, (requests, prompt, tokens) in CASES.items():
        seconds(requests, prompt, tokens)
        if tokens > 1:  # what a further step takes
            took = [seconds(requests, prompt, tokens) - seconds(requests, prompt, 1) for _ in range(RUNS)]
            found[name] = requests * (tokens - 1) / min(took)
        else:
            found[name] = requests * prompt / min(seconds(requests, prompt, tokens) for _ in range(RUNS))
    return found


def engine(folder: str) -> dict[str, float]:
    """In a process of its own: the most tokens a second of each case, and threads. Weights are those of the folder, if there are any."""
    import torch
    from vllm import LLM, SamplingParams

    llm = LLM(
        folder,
        dtype="bfloat16",
        load_format="auto" if list(Path(folder).glob("*.safetensors")) else "dummy",
        enforce_eager=True,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
        max_model_len=1024,
        max_num_seqs=16,
        seed=0,
    )

    def seconds(requests: int, prompt: int, tokens: int) -> float:
        started = time.perf_counter()
        llm.generate(
            [{"prompt_token_ids": prompt_ids(i, prompt)} for i in range(requests)],
            SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False),
            use_tqdm=False,
        )
        return time.perf_counter() - started

    return measure(seconds) | {"threads": torch.get_num_threads()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rounds", type=int, default=4, help="engines in turn, plain and with flhost")
    arguments.add_argument("--json", help="also write the figures into a file")
    arguments.add_argument("--engine", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.engine:
        print(RESULT + json.dumps(engine(given.engine)))
        return
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        for turn in range(given.rounds):
            found[turn % 2 == 1].append(run_engine(__file__, folder, turn % 2 == 1, folder))
    print(f"{'tokens a second':<16} {'plain':>9} {'flhost':>9} {'ratio':>6}")
    results = []
    for name in CASES:
        plain, ours = (statistics.median(one[name] for one in found[through]) for through in (False, True))
        print(f"{name:<16} {plain:9.1f} {ours:9.1f} {ours / plain:6.2f}")
        results.append({"case": name, "plain": plain, "flhost": ours})
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
