"""What a call from Python costs, beside what it cannot do without: one run, each pair in turns (A B A B).

Time is that of the thread: others on the machine take none of it. A row is a line of ROWS: two statements and a limit
of the first over the second. Statements are timed in one loop each, with the same names at hand; a row whose names are
not there (a library is not installed) is left out with its reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import flhost


@dataclass(frozen=True)
class Row:
    name: str
    statement: str
    beside: str
    other: str
    limit: float | None  # of the ratio; None: for information


ROWS = [
    Row("three torch tensors", "three(x, y, z)", "borrowing them", "borrow(x, y, z)", 1.3),
    Row("two and out=", "out(x, y, out=z)", "borrowing the three", "borrow(x, y, z)", None),
    Row(
        "three, one result made", "made(x, y, z)", "borrowing + torch.empty_like", "borrow(x, y, z); empty_like(x)", 1.3
    ),
    Row("three torch tensors", "three(x, y, z)", "tvm-ffi's no-op", "tvm_nop(x, y, z)", 1.0),
    Row("three torch tensors", "three(x, y, z)", "vllm_fl's manager", "peer_call('bench_op', x, y, z)", 1.0),
    Row("a tensor and three values", "values(x, 3, 1e-6, False)", "borrowing it", "borrow(x)", None),
    Row(
        "the same by name", "values(x, n=3, epsilon=1e-6, flag=False)", "by position", "values(x, 3, 1e-6, False)", None
    ),
    Row("a tensor and two Nones", "optional(x, None, None)", "without them", "optional(x)", 1.2),
    Row("three numpy arrays", "three(a, b, c)", "a.__dlpack__() of each", "a_dlpack(); b_dlpack(); c_dlpack()", None),
    Row("three, as a torch op", "torch_three(x, y, z)", "a no-op registered the same way", "torch_nop(x, y, z)", 1.2),
    Row("three, as a torch op", "torch_three(x, y, z)", "a no-op by custom_op", "custom_nop(x, y, z)", 1.0),
    Row("two and .out of a torch op", "torch_out(x, y, out=z)", "such a no-op", "torch_nop_out(x, y, out=z)", 1.2),
    Row("in a with block", "scoped(x, y, z)", "outside", "three(x, y, z)", None),
]


def torch_ops(nop: str) -> dict[str, Any]:
    """Ops of torch's: flhost's, and one whose kernel does nothing."""
    import ctypes

    import flhost.torch
    import torch

    flhost.torch.register(["bench_three", "bench_out"])
    library = torch.library.Library("flhost_bench", "FRAGMENT")
    library.define("nop(Tensor x, Tensor y, Tensor(a!) z) -> ()")
    library.define("nop.out(Tensor x, Tensor y, *, Tensor(a!) out) -> ()")
    register = ctypes.CDLL(nop).torch_nop_register
    if register(b"nop") or register(b"nop.out"):
        raise OSError("no stable C interface in this torch")
    ours, other = torch.ops.flhost, torch.ops.flhost_bench.nop
    found = {"torch_three": ours.bench_three.default, "torch_out": ours.bench_out.out}
    return {**found, "torch_nop": other.default, "torch_nop_out": other.out, "_library": library}


def custom_nop() -> Any:
    """The same no-op, in Python, by the route that PyTorch recommends."""
    import torch

    schema = "(Tensor x, Tensor y, Tensor(a!) z) -> ()"
    wrap = torch.library.custom_op("flhost_bench::custom_nop", mutates_args=["z"], schema=schema)
    return wrap(lambda x, y, z: None)


def peer_call(checkout: str | None) -> Any:
    """call() of vllm_fl's manager, with an operator that does nothing."""
    if not checkout:
        raise ImportError("no checkout of vllm-plugin-FL was given")
    import vllm_plugin_fl

    return vllm_plugin_fl.manager_with(vllm_plugin_fl.load(checkout), "bench_op", lambda x, y, z: None).call


def names(nop: str, checkout: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """What statements may use, and why some names are missing."""
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    host = flhost.default_host()
    for name in ("three", "out", "made", "values", "optional"):
        found[name] = host.op(f"bench_{name}").call
    try:
        import borrow
        import torch

        borrow.learn(torch.Tensor)
        found.update(borrow=borrow.borrow, empty_like=torch.empty_like)
        found.update({name: torch.zeros(4, 64) for name in "xyz"})
    except (ImportError, AttributeError) as error:
        missing.update(dict.fromkeys(("x", "y", "z", "borrow", "empty_like"), f"torch: {error}"))
    try:
        found.update(torch_ops(nop))
    except (ImportError, OSError) as error:
        missing.update(dict.fromkeys(("torch_three", "torch_out", "torch_nop", "torch_nop_out"), f"torch: {error}"))
    try:
        found["custom_nop"] = custom_nop()
    except (ImportError, AttributeError) as error:
        missing["custom_nop"] = f"torch: {error}"
    try:
        found["peer_call"] = peer_call(checkout)
    except ImportError as error:
        missing["peer_call"] = f"vllm_fl: {error}"
    try:
        import numpy

        found.update({name: numpy.zeros((4, 64), "float32") for name in "abc"})
        found.update({f"{name}_dlpack": found[name].__dlpack__ for name in "abc"})
    except ImportError as error:
        missing.update(dict.fromkeys("abc", f"numpy: {error}"))
    try:
        import tvm_ffi

        found["tvm_nop"] = tvm_ffi.get_global_func("testing.nop")
    except (ImportError, ValueError) as error:
        missing["tvm_nop"] = f"tvm-ffi: {error}"
    return found, missing


def loop(statement: str, known: dict[str, Any]) -> Callable[[int], float]:
    """A function that runs a statement n times and gives the nanoseconds of one."""
    scoped = statement.startswith("scoped(")
    source = (
        "def run(n, *, " + ", ".join(f"{name}=known[{name!r}]" for name in known) + "):\n"
        "    begin = clock()\n"
        f"    for _ in repeat(None, n):\n        {statement.replace('scoped(', 'three(')}\n"
        "    return (clock() - begin) / n\n"
    )
    from itertools import repeat

    space: dict[str, Any] = {"known": known, "clock": time.thread_time_ns, "repeat": repeat}
    exec(source, space)
    run: Callable[[int], float] = space["run"]
    if not scoped:
        return run

    def in_block(n: int) -> float:
        with flhost.policy(strict=True):
            return run(n)

    return in_block


def measure(row: Row, known: dict[str, Any], calls: int, rounds: int) -> tuple[float, float, float]:
    """The medians of both statements, in turns, and of the ratio in a turn."""
    first, second = loop(row.statement, known), loop(row.other, known)
    times: list[tuple[float, float]] = []
    first(calls // 10), second(calls // 10)
    for _ in range(rounds):
        times.append((first(calls), second(calls)))
    return (
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(a / b for a, b in times),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", required=True, help="the plugin whose kernels do nothing")
    parser.add_argument("--nop", required=True, help="the kernel of a torch op that does nothing")
    parser.add_argument("--peer", metavar="CHECKOUT", help="of vllm-plugin-FL, whose manager is timed, too")
    parser.add_argument("--json", help="also write the figures into a file")
    parser.add_argument("--calls", type=int, default=2000, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=151)
    options = parser.parse_args()

    flhost.default_host().load_plugin(options.plugin)
    known, missing = names(options.nop, options.peer)
    results = []
    print(f"{'row':<28} {'ns':>8}   {'beside':<30} {'ns':>8} {'ratio':>7}  {'limit':>5}")
    for row in ROWS:
        lacking = [f"{name}: {why}" for name, why in missing.items() if f"{name}" in row.statement + row.other]
        if lacking:
            print(f"skip: {row.name} beside {row.beside}: {lacking[0]}")
            continue
        one, other, ratio = measure(row, known, options.calls, options.rounds)
        verdict = "" if row.limit is None else f"{row.limit:5.2f} {'met' if ratio <= row.limit else 'NOT met'}"
        print(f"{row.name:<28} {one:8.0f}   {row.beside:<30} {other:8.0f} {ratio:7.2f}  {verdict}")
        results.append({**asdict(row), "ns": one, "other_ns": other, "ratio": ratio})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
