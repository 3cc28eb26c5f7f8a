"""What a call through vllm_fl.dispatch costs, on a function that does nothing: the drop-in's and, where a checkout of
vllm-plugin-FL is given, its own, each in a process of its own, turn and turn about.

    python3 bench/python/drop_in.py [CHECKOUT]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import timeit
from typing import Any

import vllm_plugin_fl

ROUNDS, CALLS, TIMES = 4, 4000, 50


def nothing(obj: Any, x: Any) -> Any:
    return x


# The least of all rounds counts: what a machine does besides adds, and takes nothing away.
def cost(way: Any) -> float:
    way()
    return min(timeit.repeat(way, number=CALLS, repeat=TIMES)) / CALLS * 1e9


def measure(dispatch: Any) -> dict[str, float]:
    manager = vllm_plugin_fl.manager_with(dispatch, "bench_op", nothing)
    ways = {
        "a direct call": lambda: nothing(None, 1),
        "manager.call": lambda: manager.call("bench_op", None, 1),
        "call_op": lambda: dispatch.call_op("bench_op", None, 1),
        "manager.resolve": lambda: manager.resolve("bench_op"),
    }
    if hasattr(dispatch, "CachedOp"):  # not in each version
        cached = dispatch.CachedOp("bench_op")
        ways["CachedOp"] = lambda: cached(None, 1)
    found = {name: cost(way) for name, way in ways.items()}
    with dispatch.with_preference("flagos"):
        for name in ["manager.call", "CachedOp"]:
            if name in ways:
                found[f"{name} in a context"] = cost(ways[name])
    return found


def side(checkout: str) -> dict[str, float]:
    """The costs of one process: that of a checkout, or the drop-in's, which is ''."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_FL_")}
    done = subprocess.run(
        [sys.executable, __file__, "--measure", checkout],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "VLLM_FL_LOG_LEVEL": "ERROR"},
    )
    if done.returncode:
        sys.exit(f"bench: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def dispatch_of(checkout: str) -> Any:
    if checkout:
        return vllm_plugin_fl.load(checkout)
    import vllm_fl_dispatch.finder

    vllm_fl_dispatch.finder.install()
    import vllm_fl.dispatch

    return vllm_fl.dispatch


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(dispatch_of(sys.argv[2]))))
        return
    sides = {"drop-in": ""}
    if any(sys.argv[1:]):
        sides["vllm-plugin-FL"] = sys.argv[1]
    least: dict[str, dict[str, float]] = {name: {} for name in sides}
    for _ in range(ROUNDS):
        for name, checkout in sides.items():
            for way, ns in side(checkout).items():
                least[name][way] = min(ns, least[name].get(way, ns))
    print(f"{'ns a call':28}" + "".join(f"{name:>16}" for name in sides))
    for way in least["drop-in"]:
        row = [least[name].get(way) for name in sides]
        print(f"{way:28}" + "".join(f"{'-' if ns is None else round(ns):>16}" for ns in row))


if __name__ == "__main__":
    main()
