"""Tokens a second of examples/llm beside transformers and plain vLLM: python bench/python/llm.py --llm build/llm [--quick]

A model of a billion random parameters in bfloat16 (the shapes of Llama 3.2 1B, untied), with weights in a file that all three read,
and as many threads for each: one request and sixteen that decode, and a prompt of 512 tokens. Engines are processes of their own,
A B C A B C; of each the best of several runs counts, after one that does not. Then, of examples/llm: the part of flhost in the time
(timed_calls.c says how), and the peak of its memory beside weights, cache and what a pass computes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import throughput
from decode_step import RESULT, run_engine
from throughput import CASES, MODEL, RUNS, make_model, measure, prompt_ids

TINY = MODEL | {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
BLOCKS, BLOCK_SIZE, BYTES = 64, 16, 2  # of the cache, and of an element
MOST_SHARE, MOST_MEMORY = 0.005, 1.1  # what is to be reached
NUMBER = r"([0-9.]+)"


def make_weights(folder: str) -> dict[str, int]:
    """In a process of its own: a process that it starts counts the memory of its parent into its own peak."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return {"parameters": model.num_parameters()}


def transformers(folder: str) -> dict[str, float]:
    """In a process of its own, not compiled: as generate() does it, without what else that does."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def seconds(requests: int, prompt: int, tokens: int) -> float:
        ids, cache = torch.tensor([prompt_ids(i, prompt) for i in range(requests)]), None
        started = time.perf_counter()
        for _ in range(tokens):
            out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            ids, cache = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
        return time.perf_counter() - started

    with torch.inference_mode():
        return measure(seconds) | {"threads": torch.get_num_threads()}


def vllm(folder: str) -> dict[str, float]:
    return run_engine(throughput.__file__, folder, False, folder)


def run_llm(program: str, folder: str, name: str, settings: dict[str, str]) -> tuple[str, float]:
    """What it says when it does the case several times over, and the peak of its memory in MB."""
    requests, prompt, tokens = CASES[name]
    prompts = [" ".join(map(str, prompt_ids(1000 * i, prompt))) for i in range((RUNS + 1) * requests)]
    process = subprocess.Popen(
        [program, folder, "--tokens", str(tokens), "--at-once", str(requests), "--pass", "512", "--timing"]
        + ["--statistics", "--blocks", str(BLOCKS), "--block-size", str(BLOCK_SIZE)]
        + [word for text in prompts for word in ("--prompt", text)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    assert process.stderr
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(said)
    return said, used.ru_maxrss / 1e3


def passes(said: str) -> list[float]:
    return [float(took) for took in re.findall(rf"^pass: .* {NUMBER} s$", said, re.M)]


def memory(said: str, folder: str, sizes: dict[str, Any], peak: float) -> dict[str, float]:
    """In MB. `kept` is what examples/llm says it has beside the files all the time: the cache, and little else."""
    kept, of_a_pass = re.findall(rf"rearranged weights {NUMBER}; a pass {NUMBER};", said)[0]
    per_token = 2 * sizes["num_hidden_layers"] * sizes["num_key_value_heads"] * sizes["head_dim"] * BYTES
    found = {
        "weights": sum(file.stat().st_size for file in Path(folder).glob("*.safetensors")) / 1e6,
        "cache": BLOCKS * BLOCK_SIZE * per_token / 1e6,
        "kept": float(kept),
        "pass": float(of_a_pass),
    }
    total = found["weights"] + found["kept"] + found["pass"]
    return found | {"sum": total, "peak": peak, "ratio": peak / total}


def llm(program: str, folder: str, sizes: dict[str, Any]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Tokens a second and memory of each case. The first pass of a run has the prompts, the others a token of each."""
    found, memories = {}, {}
    for name, (requests, prompt, tokens) in CASES.items():
        said, peak = run_llm(program, folder, name, {})
        took, first = passes(said), 1 if tokens > 1 else 0
        if len(took) != (RUNS + 1) * tokens:
            sys.exit(f"{name}: {len(took)} passes, expected {RUNS + 1} times {tokens}")
        least = min(sum(took[i + first : i + tokens]) for i in range(tokens, len(took), tokens))
        found[name] = requests * (tokens - 1 if first else prompt) / least
        memories[name] = memory(said, folder, sizes, peak)
    return found, memories


def dispatch(given: argparse.Namespace, folder: str, name: str) -> dict[str, float]:
    settings = {
        "LD_PRELOAD": given.timed,
        "TIMED_PLUGIN": given.plugin,
        "VLLM_FL_PLUGIN_PATH": str(Path(given.timed).parent),
    }
    said, _ = run_llm(given.llm, folder, name, settings)
    calls, in_calls, in_kernels = map(
        float, re.findall(rf"^calls: {NUMBER}, {NUMBER} s, kernels in them {NUMBER} s$", said, re.M)[0]
    )
    own, seconds = in_calls - in_kernels, sum(passes(said))
    return {"calls": calls, "us_a_call": own / calls * 1e6, "share": own / seconds, "kernels": in_kernels / seconds}


ENGINES = {"make_weights": make_weights, "transformers": transformers}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--llm", type=os.path.abspath, help="the program")
    arguments.add_argument("--plugin", type=os.path.abspath, help="the CPU's plugin")
    arguments.add_argument("--timed", type=os.path.abspath, help="timed_calls.so, alone in its directory")
    arguments.add_argument("--rounds", type=int, default=2, help="engines in turn, each so often")
    arguments.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments.add_argument("--quick", action="store_true", help="a tiny model: measures nothing worth reading")
    arguments.add_argument("--json", help="also write the figures into a file")
    arguments.add_argument("--engine", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.engine:
        name, folder = json.loads(given.engine)
        print(RESULT + json.dumps(ENGINES[name](folder)))
        return
    # vLLM would bind its threads to processors and leave one alone: all three have these processors, one thread on each.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    os.environ |= {"OMP_NUM_THREADS": str(given.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ["VLLM_FL_CPU_THREADS"] = str(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        results = compare(given, folder)
    print_tables(results)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1))


def compare(given: argparse.Namespace, folder: str) -> dict[str, Any]:
    sizes = TINY if given.quick else MODEL
    rounds = 1 if given.quick else given.rounds
    peers = ["transformers"] + (["vllm"] if find_spec("vllm") else [])
    make_model(Path(folder), "llama", sizes)
    made = run_engine(__file__, json.dumps(["make_weights", folder]), False, folder)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ["llm", *peers]}
    for _ in range(rounds):
        rates, memories = llm(given.llm, folder, sizes)
        found["llm"].append(rates)
        for peer in peers:
            found[peer].append(
                vllm(folder) if peer == "vllm" else run_engine(__file__, json.dumps([peer, folder]), False, folder)
            )
            if found[peer][-1]["threads"] != given.threads:
                sys.exit(f"{peer} has {found[peer][-1]['threads']} threads, expected {given.threads}")
    return {
        "parameters": made["parameters"],
        "threads": given.threads,
        "tokens_a_second": {
            case: {name: statistics.median(one[case] for one in runs) for name, runs in found.items()} for case in CASES
        },
        "dispatch": {case: dispatch(given, folder, case) for case in CASES} if given.timed else {},
        "memory": memories,
        "load": os.getloadavg()[0],
    }


def print_tables(results: dict[str, Any]) -> None:
    print(
        f"{results['parameters'] / 1e9:.2f} billion parameters, bfloat16, threads: {results['threads']}; load when it ended: {results['load']:.1f}"
    )
    names = list(next(iter(results["tokens_a_second"].values())))
    print(
        f"\n{'tokens a second':<16}"
        + "".join(f"{name:>14}" for name in names)
        + "".join(f"{'llm / ' + name:>20}" for name in names[1:])
    )
    for case, row in results["tokens_a_second"].items():
        print(
            f"{case:<16}"
            + "".join(f"{row[name]:14.1f}" for name in names)
            + "".join(f"{row['llm'] / row[name]:20.2f}" for name in names[1:])
        )
    if results["dispatch"]:
        print(
            f"\n{'flhost itself':<16}{'calls':>10}{'us a call':>12}{'kernels':>10}{'dispatch':>10}  below {MOST_SHARE:.1%}"
        )
    for case, row in results["dispatch"].items():
        print(
            f"{case:<16}{row['calls']:10.0f}{row['us_a_call']:12.2f}{row['kernels']:10.2%}{row['share']:10.3%}  {met(row['share'] < MOST_SHARE)}"
        )
    print(
        f"\n{'memory in MB':<16}"
        + "".join(f"{name:>10}" for name in results["memory"]["prefill 512"])
        + f"  at most {MOST_MEMORY}"
    )
    for case, row in results["memory"].items():
        print(
            f"{case:<16}"
            + "".join(f"{value:10.1f}" for value in list(row.values())[:-1])
            + f"{row['ratio']:10.3f}  {met(row['ratio'] <= MOST_MEMORY)}"
        )


def met(yes: bool) -> str:
    return "yes" if yes else "NO"


if __name__ == "__main__":
    main()
