"""What a call through vllm_fl.dispatch costs, on a function that does nothing: the drop-in's and, where a checkout of
vllm-plugin-FL is given, its own, each in a process of its own, turn and turn about.

    python3 bench/python/dispatch.py [CHECKOUT]
"""

import json
import os
import subprocess
import sys
import textwrap

ROUNDS, CALLS, TIMES = 4, 4000, 50

# The least of all rounds counts: what a machine does besides adds, and takes nothing away.
MEASURE = """
    import json, os, sys, timeit
    CALLS, TIMES = map(int, sys.argv[1:])
    from vllm_fl import dispatch as d

    def nothing(obj, x):
        return x

    manager = d.get_default_manager()
    manager._state.initialized, manager._state.init_pid = True, os.getpid()
    for impl_id, kind in (("default.x", d.BackendImplKind.DEFAULT), ("reference.x", d.BackendImplKind.REFERENCE)):
        manager.registry.register_impl(d.OpImpl("bench_op", impl_id, kind, nothing))
    cached = d.CachedOp("bench_op")
    ways = {
        "a direct call": lambda: nothing(None, 1),
        "CachedOp": lambda: cached(None, 1),
        "manager.call": lambda: manager.call("bench_op", None, 1),
        "call_op": lambda: d.call_op("bench_op", None, 1),
        "manager.resolve": lambda: manager.resolve("bench_op"),
    }
    def cost(way):
        way()
        return min(timeit.repeat(way, number=CALLS, repeat=TIMES)) / CALLS * 1e9
    found = {name: cost(way) for name, way in ways.items()}
    with d.with_preference("flagos"):
        found["CachedOp in a context"] = cost(ways["CachedOp"])
        found["manager.call in a context"] = cost(ways["manager.call"])
    print(json.dumps(found))
"""

DROP_IN = "import vllm_fl_dispatch.finder; vllm_fl_dispatch.finder.install()\n"

# The peer's package imports FlagGems and vLLM for what has no part in dispatching.
PEER = """
    import sys, types
    from pathlib import Path

    def stub(name, **names):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(names)

    detector = type("DeviceDetector", (), {"vendor_name": "nvidia", "name": "cuda"})
    stub("flag_gems")
    stub("flag_gems.runtime", backend=None)
    stub("flag_gems.runtime.backend")
    stub("flag_gems.runtime.backend.device", DeviceDetector=detector)
    stub("vllm")
    stub("vllm.platforms", current_platform=types.SimpleNamespace(vendor_name="unknown"))
    sys.path.insert(0, CHECKOUT)
"""


def run(code):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_FL_")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(CALLS), str(TIMES)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "VLLM_FL_LOG_LEVEL": "ERROR"},
    )
    if done.returncode:
        sys.exit(f"bench: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    sides = {"drop-in": DROP_IN + textwrap.dedent(MEASURE)}
    if len(sys.argv) > 1:
        sides["vllm-plugin-FL"] = f"CHECKOUT = {sys.argv[1]!r}\n" + textwrap.dedent(PEER) + textwrap.dedent(MEASURE)
    least = {side: {} for side in sides}
    for _ in range(ROUNDS):
        for side, code in sides.items():
            for name, cost in run(code).items():
                least[side][name] = min(cost, least[side].get(name, cost))
    print(f"{'ns a call':28}" + "".join(f"{side:>16}" for side in sides))
    for name in least["drop-in"]:
        print(f"{name:28}" + "".join(f"{least[side][name]:16.0f}" for side in sides))


if __name__ == "__main__":
    main()
