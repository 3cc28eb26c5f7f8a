#!/usr/bin/env python3
"""Times the CPU plugin's kernels beside a plain loop that moves as many bytes, PyTorch, torch.compile and the reference.

`make bench-kernels` runs it. What is timed, and what each is to reach, are the tables below; `flhost bench` times it, all that
stand beside each other in turn. Prints a table, then what PyTorch does faster by more than a tenth; writes JSON with all
rows, from which bench/plot draws. Without PyTorch its columns are empty.
"""

import argparse
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys

OFFENCE = 1.1  # times PyTorch's time
GATED = ("silu_and_mul", "mul_and_silu", "gelu_and_mul", "swigluoai_and_mul", "silu_and_mul_with_clamp")
PLAIN = ("gelu", "gelu_new", "quick_gelu", "relu2", "fatrelu_and_mul")
NORMS = ("rms_norm", "fused_add_rms_norm", "gemma_rms_norm", "rms_norm_gated", "layer_norm", "nemotron_layer_norm")
ROTARY = ("rotary_embedding", "apply_rotary_emb")
NO_EXPONENTIAL = {*NORMS, *ROTARY, "relu2", "fatrelu_and_mul", "moe_sum", "quant_fp8", "vocab_parallel_embedding"} - {"rms_norm_gated"}
LATENCIES = {**dict.fromkeys((*NORMS, *ROTARY), 0.2), **dict.fromkeys((*GATED, *PLAIN), 0.5)}  # of torch's, one token
EXPERTS = ("unquantized_fused_moe",)
RECURRENCES = {"mla_decode", "causal_conv1d", "selective_scan", "mamba_chunk_scan", "chunk_gated_delta_rule", "gdn_attention_core"}

# Operators, and what of them is timed: (size, --dims, which threads: "one", "all" or both). Sizes: one token; a working set
# in the second cache; one that is rotated through more than the last cache holds; tokens of a product.
ACTIVATION = [("token", "...: [1]; d: 14336", "both"), ("L2", "...: [4]; d: 14336", "one"), ("memory", "...: [4096]; d: 14336", "both")]
CASES = [
    (GATED, ACTIVATION),
    (PLAIN, ACTIVATION),
    (NORMS, [("token", "...: [1]; H: 4096", "both"), ("L2", "...: [16]; H: 4096", "one"), ("memory", "...: [4096]; H: 8192", "both")]),
    (("rotary_embedding",), [("token", "n: 1", "both"), ("L2", "n: 16", "one"), ("memory", "n: 4096", "both")]),
    (("apply_rotary_emb",), [("token", "S: 1", "both"), ("L2", "S: 32", "one"), ("memory", "S: 4096", "both")]),
    (("quant_fp8",), [("token", "...: [1]; N: 4096", "both"), ("L2", "...: [64]; N: 4096", "one"), ("memory", "...: [8192]; N: 8192", "both")]),
    (("moe_sum",), [("token", "...: [1]; h: 4096", "both"), ("L2", "...: [8]; h: 4096", "one"), ("memory", "...: [4096]; h: 4096", "both")]),
    (("vocab_parallel_embedding",), [("token", "...: [1]; v: 32000; h: 4096", "both"), ("memory", "...: [4096]; v: 128256; h: 4096", "both")]),
    (("replicated_linear",), [(f"{t} tokens", f"...: [{t}]; k: 4096; n: 14336", "both") for t in (1, 8, 64, 512)]),
    (("conv2d",), [("64 images", "n: 64", "both")]),
    (("conv3d",), [("4096 patches", "n: 4096", "both")]),
    (("mm_encoder_attn",), [("1024 tokens", "s: 1024", "both")]),
    (EXPERTS, [(f"{m} tokens", f"m: {m}; e: 16", "both") for m in (1, 64, 512)]),
    (("mla_prefill",), [("512 tokens", "n: 512", "both")]),
    (("mla_decode",), [("16 sequences", "b: 16", "both")]),
    (("causal_conv1d",), [("512 tokens", "l: 512", "both")]),
    (("selective_scan",), [("64 tokens", "l: 64; d: 4096", "both")]),
    (("mamba_chunk_scan",), [("512 tokens", "t: 512; h: 16", "both")]),
    (("chunk_gated_delta_rule", "gdn_attention_core"), [("512 tokens", "t: 512", "both")]),
]
QUICK = [(("silu_and_mul",), [("token", "...: [1]; d: 64", "both"), ("memory", "...: [8]; d: 64", "both")]),
         (("replicated_linear",), [("1 tokens", "...: [1]; k: 32; n: 16", "one")])]

WEIGHTED = {"replicated_linear", *EXPERTS}  # their weights are rotated, too


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flhost", default="build/flhost", help="the command")
    parser.add_argument("--impl", default="default.flagos", help="the implementation")
    parser.add_argument("--json", default="build/bench/kernels.json", help="the report")
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--ops", default="", help="only these, separated by commas")
    parser.add_argument("--sizes", default="", help="only these, separated by commas: token, L2, memory, '64 tokens', own")
    parser.add_argument("--seconds", default="0.2", help="for each way to do a call, about")
    parser.add_argument("--rotate", default="2.2", help="gigabytes that are more than any cache")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-own", action="store_true", help="leave out the sizes that flhost bench has by itself")
    parser.add_argument("--quick", action="store_true", help="two small operators, for tests")
    return parser.parse_args()


class Failed(Exception):
    """The command that was to time something."""


class Interrupted(Exception):
    """By a signal, whose number it has."""


def interrupt(number, frame):
    del frame
    raise Interrupted(number)


def run(command, environment):
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 3):  # 1: one failed; 3: the element type has nothing; their rows say so
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, asked):
        self.asked = asked
        self.torch = importlib.util.find_spec("torch") is not None
        self.python = importlib.util.find_spec("flhost") is not None
        self.rows, self.machine, self.version, self.failed = [], None, None, False
        self.has_threads = b"VLLM_FL_CPU_THREADS" in subprocess.run(
            [asked.flhost, "config"], stdout=subprocess.PIPE, check=True).stdout
        processors = len(os.sched_getaffinity(0))
        self.threads = {"one": [1], "all": [processors], "both": [1, processors] if processors > 1 else [1]}
        if not self.has_threads:  # kernels have one thread
            self.threads = {"one": [1], "all": [1], "both": [1]}

    def peers(self, size):
        named = ["copy"]
        if self.torch:
            named += ["torch"] if self.asked.no_compile or size == "own" else ["torch", "torch.compile"]
            named += ["python"] if size == "token" and self.python else []
        return ",".join(named)

    def time(self, ops, size, dims, dtype, threads):
        asked, environment = self.asked, {**os.environ, "PYTHON": sys.executable}
        if self.has_threads:
            environment["VLLM_FL_CPU_THREADS"] = str(threads)
        command = [asked.flhost, "bench", "--json", "--impl", asked.impl, "--dtype", dtype, "--seconds", asked.seconds]
        command += ["--peer", self.peers(size)]
        if not RECURRENCES.intersection(ops):
            command += ["--no-reference"]
        if dims:
            command += ["--dims", dims]
        if size == "memory" or WEIGHTED.intersection(ops):
            command += ["--rotate", asked.rotate]
        print(f"{dtype}, {size}, {threads} threads: {' '.join(ops)}", file=sys.stderr, flush=True)
        try:
            report = run([*command, *ops], environment)
        except Failed as failed:
            self.failed = True
            print(failed, file=sys.stderr, flush=True)
            return
        self.machine, self.version = report["machine"], report["peers"].get("torch") or self.version
        beside = {(row["op"], row["arguments"], row["impl_id"]): row for row in report["timings"]}
        for row in report["timings"]:
            if row["impl_id"] != asked.impl:
                continue
            # Latency is compared where both are called from Python.
            python = beside.get((row["op"], row["arguments"], "python"))
            row.update(size=size, threads=threads,
                       python_as_torch=python and python["times_as_fast_as_peers"].get("torch"))
            row["target"], row["met"] = judge(row, max(self.threads["both"]))
            self.rows.append(row)

    def run(self):
        only, wanted = (set(filter(None, words.split(","))) for words in (self.asked.ops, self.asked.sizes))
        for dtype in self.asked.dtypes.split(","):
            for ops, sizes in QUICK if self.asked.quick else CASES:
                named = [op for op in ops if not only or op in only]
                for size, dims, which in sizes if named else []:
                    for threads in self.threads[which] if not wanted or size in wanted else []:
                        self.time(named, size, dims, dtype, threads)
            if not self.asked.quick and not self.asked.no_own and (not wanted or "own" in wanted):
                self.time(sorted(only), "own", None, dtype, self.threads["all"][0])


def judge(row, most_threads):
    """What the row is to reach, in words, and whether it does; None: nothing, or it was not measured."""
    faster, op, size = row["times_as_fast_as_peers"], row["op"], row["size"]
    tokens = int(size.split()[0]) if size[0].isdigit() else None

    def at_least(limit, peer, words):
        value = faster.get(peer)
        return words, None if value is None else value >= limit

    if row["us"] is None or size == "own":
        return None, None
    if size == "token":
        limit, value = LATENCIES.get(op), row["python_as_torch"]
        if not limit:
            return None, None
        return f"≤ {limit} × torch's latency, from Python", None if value is None else 1 / value <= limit
    if size == "memory":
        return at_least(0.85, "copy", "≥ 0.85 of the copy") if row["threads"] == most_threads else (None, None)
    if size == "L2":
        if row["dtype"] == "float32" and op in NO_EXPONENTIAL:
            return at_least(0.7, "copy", "≥ 0.7 of the copy")
        reached = [faster.get("copy") is not None and faster["copy"] >= 0.7,
                   faster.get("torch.compile") is not None and faster["torch.compile"] >= 2]
        return "≥ 2 × torch.compile, or 0.7 of the copy", any(reached)
    if op == "replicated_linear" and tokens <= 8:
        return at_least(0.9, "copy", "≥ 0.9 of reading the weight")
    if op in ("replicated_linear", "conv2d", "conv3d"):
        return at_least(0.95, "torch", "≥ 0.95 of torch (oneDNN)")
    if op in RECURRENCES:
        beside = faster.get("torch.compile")
        reference = row["times_as_fast_as_reference"]
        met = None if reference is None else reference >= 5 and (beside is None or beside >= 1)
        return "≥ 5 × the reference, ≥ torch.compile", met
    return at_least(1.2, "torch", "≥ 1.2 × torch")


def offenders(rows):
    found = [row for row in rows if (row["times_as_fast_as_peers"].get("torch") or math.inf) < 1 / OFFENCE]
    return sorted(found, key=lambda row: row["times_as_fast_as_peers"]["torch"])


def speedups(rows):
    """Of large sizes, what the threads together gain over one."""
    alone = {(r["op"], r["dtype"], r["size"], r["arguments"]): r["us"] for r in rows if r["threads"] == 1}
    for row in rows:
        one = alone.get((row["op"], row["dtype"], row["size"], row["arguments"]))
        row["times_one_thread"] = one / row["us"] if row["threads"] > 1 and one and row["us"] else None


def number(value, form=".2f"):
    return "" if value is None else format(value, form)


def show(report):
    line = "{:26} {:9} {:12} {:>3} {:>10} {:>7} {:>7} {:>9} {:>7} {:>7} {:3} {}"
    print(line.format("OP", "DTYPE", "SIZE", "THR", "US", "X COPY", "X TORCH", "X COMPILE", "PYTHON", "X ONE", "MET", "TARGET"))
    met = {True: "yes", False: "NO", None: ""}
    for row in report["rows"]:
        faster = row["times_as_fast_as_peers"]
        print(line.format(row["op"], row["dtype"] or "", row["size"], row["threads"], number(row["us"]),
                          number(faster.get("copy")), number(faster.get("torch")), number(faster.get("torch.compile")),
                          number(row["python_as_torch"]), number(row["times_one_thread"]), met[row["met"]],
                          row["target"] or "").rstrip())
        if row["reason"]:
            print(f"    {row['reason']}")
    slower = offenders(report["rows"])
    print(f"\nslower than PyTorch by more than a tenth: {len(slower)}")
    for row in slower:
        print(f"    {1 / row['times_as_fast_as_peers']['torch']:.2f} times its time: {row['op']} {row['dtype']} {row['arguments']}"
              f" ({row['threads']} threads)")


def figures(rows, version):
    """What bench/plot draws: a figure for each size, element type and number of threads."""
    drawn = {}
    for row in rows:
        if row["size"] == "own" or row["us"] is None:
            continue
        kind = row["size"] if row["size"] in ("token", "L2", "memory") else "other"
        title = {"token": "One token", "L2": "In the second cache", "memory": "Larger than the last cache", "other": "Products, attention, experts, recurrences"}[kind]
        key = f"{title}, {row['dtype']}, {row['threads']} thread{'s' * (row['threads'] > 1)}"
        name = row["op"] if kind != "other" else f"{row['op']}, {row['size']}"
        faster = row["times_as_fast_as_peers"]
        drawn.setdefault(key, []).append({"name": name, "bars": [faster.get(p) for p in ("copy", "torch", "torch.compile")]})
    return {"legend": ["times as fast as the copy", f"as {version or 'torch'}", "as torch.compile"],
            "figures": [{"title": title, "rows": list(of)} for title, of in drawn.items()]}


def main():
    asked = parse()
    bench, interrupted = Bench(asked), 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:  # what took an hour is not lost by what comes after it
        bench.run()
    except Interrupted as by:
        interrupted = by.args[0]
    if not bench.rows:
        sys.exit("bench-kernels: nothing was timed")
    speedups(bench.rows)
    report = {"machine": bench.machine, "torch": bench.version, "impl_id": asked.impl, "seconds": float(asked.seconds),
              "rotated": float(asked.rotate) * 1e9, "rows": bench.rows, **figures(bench.rows, bench.version)}
    report["offenders"] = [[r["op"], r["dtype"], r["arguments"], r["threads"]] for r in offenders(bench.rows)]
    show(report)
    if not bench.torch:
        print("PyTorch is not measured: this Python has none")
    os.makedirs(os.path.dirname(asked.json) or ".", exist_ok=True)
    with open(asked.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print("written:", asked.json)
    if interrupted:
        print(f"interrupted ({signal.Signals(interrupted).name}): this is what was timed until then", file=sys.stderr)
        return 128 + interrupted
    return 1 if bench.failed or any(row["failed"] for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
