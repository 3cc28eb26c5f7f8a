#!/usr/bin/env python3
"""Times every operator on a GPU: flhost's implementations, a copy of as many bytes on the device, and PyTorch where it is
installed, in turn. `make bench-cuda` and `make bench-rocm` run it.

Prints a table and what is missing from the targets, and writes RESULTS/DATE-HARDWARE.json. Without a GPU that can be used
it says why, writes nothing and ends with 0.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys

MEMCPY_TARGET, MEMCPY_BYTES = 0.85, 64 << 20  # share of a copy's speed, from that many bytes on
TORCH_TARGET = 1.0  # times PyTorch's time, at one token
LINEAR_TARGET = 1.02  # the same, of products: PyTorch calls the same library
NO_IMPLEMENTATION = 3  # flhost's exit status
PRODUCTS = {"replicated_linear", "column_parallel_linear", "row_parallel_linear", "parallel_lm_head", "logits_processor"}
NO_IMPLEMENTATIONS = ("memcpy", "torch", "torch.compile")
os.environ["PYTHON"] = sys.executable  # flhost bench --peer calls PyTorch by this one


class Nothing(Exception):
    """Why there is nothing to measure."""


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flhost", default="build/flhost", help="the command")
    parser.add_argument("--device", choices=("cuda", "rocm"), default="cuda")
    parser.add_argument("--results", default="bench/results", help="directory of the result file")
    parser.add_argument("--eager", action="store_true", help="without torch.compile, which takes seconds for each call")
    parser.add_argument("ops", nargs="*", metavar="OP-or-OPTION", help="of flhost bench; after --")
    return parser.parse_args()


def ask(command, accepted=(0,)):
    """What a command of flhost's prints, from JSON, and its exit status."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in accepted:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout), done.returncode


def find_device(flhost, name):
    platforms, _ = ask([flhost, "platform", "--json"])
    found = [p for p in platforms["platforms"] if p["name"] == name]
    if not found:
        raise Nothing(f"no plugin brings the platform {name}")
    if not found[0]["active"] or not found[0]["devices"]:
        raise Nothing(found[0]["diagnosis"])
    return found[0]["devices"][0]


def time_flhost(flhost, device, ops):
    # 1: an implementation failed; its row says how, and it is shown
    report, status = ask([flhost, "bench", "--json", "--device", device, *ops], accepted=(0, 1, NO_IMPLEMENTATION))
    if status == NO_IMPLEMENTATION:
        reasons = sorted({row["reason"] for row in report["timings"] if row["reason"]})
        raise Nothing("; ".join(reasons) or "no implementation for it")
    return report, status


def find_torch():
    """Why this interpreter has no PyTorch to be measured; None: it has one."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        return f"PyTorch is not measured: {error}"
    return None if torch.cuda.is_available() else "PyTorch is not measured: it finds no GPU"


def peers(eager):
    """What flhost bench is to put beside the operators, and why not all of it. Inductor needs Triton on a GPU."""
    reason = find_torch()
    compiles = not eager and importlib.util.find_spec("triton") is not None
    return ([] if reason else ["--peer", "torch,torch.compile" if compiles else "torch"]), reason


def tokens_of(row):
    """The first size of the first tensor."""
    return int(re.search(r"\[(\d+)", row["arguments"] + "[0").group(1))


def judge(row):
    """What the row misses of the targets."""
    missed = []
    if row["us"] is None or row["impl_id"] in NO_IMPLEMENTATIONS:
        return missed
    share, faster = row["times_as_fast_as_memcpy"], row["times_as_fast_as_peers"].get("torch")
    is_product = row["op"] in PRODUCTS
    if share is not None and not is_product and row["bytes"] >= MEMCPY_BYTES and share < MEMCPY_TARGET:
        missed.append(f"{share:.2f} of a copy's speed, target {MEMCPY_TARGET}")
    limit = LINEAR_TARGET if is_product else TORCH_TARGET if tokens_of(row) == 1 else None
    if faster and limit and faster * limit < 1:
        missed.append(f"{1 / faster:.2f} times PyTorch's time, target {limit}")
    return missed


def show(report):
    line = "{:28} {:14} {:>10} {:>8} {:>8} {:>10}  {}"
    print(line.format("OP", "IMPL", "US", "X MEMCPY", "X TORCH", "X COMPILED", "ARGUMENTS"))

    def text(value, form=".2f"):
        return "" if value is None else format(value, form)

    for row in report["timings"]:
        torch = row["times_as_fast_as_peers"]
        print(line.format(row["op"], row["impl_id"], text(row["us"]), text(row["times_as_fast_as_memcpy"]),
                          text(torch.get("torch")), text(torch.get("torch.compile")), row["arguments"]))
        for said in [row["reason"], *row["missed"]]:
            if said:
                print(f"    {said}")
    if report["torch"]["reason"]:
        print(report["torch"]["reason"])


def write(report, directory):
    hardware = re.sub(r"[^a-z0-9]+", "-", report["hardware"]["name"].lower()).strip("-")
    path = os.path.join(directory, f"{report['machine']['date'][:10]}-{hardware}.json")
    os.makedirs(directory, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    return path


def main():
    asked = parse()
    try:
        hardware = find_device(asked.flhost, asked.device)
        beside, reason = peers(asked.eager)
        report, status = time_flhost(asked.flhost, asked.device, [*beside, *asked.ops])
    except Nothing as nothing:
        print(f"skip: bench-{asked.device}: {nothing}")
        return 0
    report["hardware"] = hardware
    report["torch"] = {"version": report["peers"].get("torch"), "reason": reason}
    for row in report["timings"]:
        row["missed"] = judge(row)
    show(report)
    print("written:", write(report, asked.results))
    return status


if __name__ == "__main__":
    sys.exit(main())
