#!/usr/bin/env python3
"""Times every operator on a GPU: flhost's implementations, a copy of as many bytes on the device, and PyTorch where it is
installed, one after the other in one run. `make bench-cuda` and `make bench-rocm` run it.

Prints a table and what is missing from the targets, and writes RESULTS/DATE-HARDWARE.json. Without a GPU that can be used
it says why, writes nothing and ends with 0.
"""

import argparse
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


sys.dont_write_bytecode = True  # of torch_ops.py, in the tree


class Nothing(Exception):
    """Why there is nothing to measure."""


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flhost", default="build/flhost", help="the command")
    parser.add_argument("--device", choices=("cuda", "rocm"), default="cuda")
    parser.add_argument("--results", default="bench/results", help="directory of the result file")
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


def load_torch():
    """bench/torch_ops.py, and why not."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        return None, f"PyTorch is not measured: {error}"
    if not torch.cuda.is_available():
        return None, "PyTorch is not measured: it finds no GPU"
    import torch_ops  # pylint: disable=import-outside-toplevel

    return torch_ops, None


def add_torch(report):
    module, reason = load_torch()
    report["torch"] = {"version": module.version() if module else None, "reason": reason}
    timed = {}
    for row in report["timings"]:
        call = (row["op"], row["arguments"], row["dtype"])
        if module and call not in timed:
            timed[call] = module.time_call(*call)
        row["torch"] = timed.get(call)


def tokens_of(row):
    """The first size of the first tensor."""
    return int(re.search(r"\[(\d+)", row["arguments"] + "[0").group(1))


def judge(row):
    """What the row misses of the targets."""
    missed = []
    if row["us"] is None or row["impl_id"] == "memcpy":
        return missed
    share, eager = row["times_as_fast_as_memcpy"], (row["torch"] or {}).get("eager_us")
    is_product = row["op"] in PRODUCTS
    if share is not None and not is_product and row["bytes"] >= MEMCPY_BYTES and share < MEMCPY_TARGET:
        missed.append(f"{share:.2f} of a copy's speed, target {MEMCPY_TARGET}")
    limit = LINEAR_TARGET if is_product else TORCH_TARGET if tokens_of(row) == 1 else None
    if eager and limit and row["us"] > limit * eager:
        missed.append(f"{row['us'] / eager:.2f} times PyTorch's time, target {limit}")
    return missed


def show(report):
    line = "{:28} {:14} {:>10} {:>8} {:>10} {:>10}  {}"
    print(line.format("OP", "IMPL", "US", "X MEMCPY", "TORCH US", "COMPILED", "ARGUMENTS"))

    def text(value, form):
        return "" if value is None else format(value, form)

    for row in report["timings"]:
        torch = row["torch"] or {}
        print(line.format(row["op"], row["impl_id"], text(row["us"], ".2f"),
                          text(row["times_as_fast_as_memcpy"], ".2f"), text(torch.get("eager_us"), ".2f"),
                          text(torch.get("compiled_us"), ".2f"), row["arguments"]))
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
        report, status = time_flhost(asked.flhost, asked.device, asked.ops)
    except Nothing as nothing:
        print(f"skip: bench-{asked.device}: {nothing}")
        return 0
    report["hardware"] = hardware
    add_torch(report)
    for row in report["timings"]:
        row["missed"] = judge(row)
    show(report)
    print("written:", write(report, asked.results))
    return status


if __name__ == "__main__":
    sys.exit(main())
