#!/usr/bin/env python3
"""What a call that does nothing costs through the dispatchers of Python: prints a JSON list of {name, ns, note}.

ns is the median of many short rounds, null where the package is not there; note then says why. bench/dispatch runs this
and puts the list into its report. Only the packages that are installed are looked at; nothing is downloaded.
"""

import json
import statistics
import sys
import time

QUICK = "--quick" in sys.argv[1:]
ROUNDS, CALLS = (5, 100) if QUICK else (301, 1000)


def nothing(x):
    return None


def loop(function, argument):
    """Nanoseconds of one call, loop included."""
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        function(argument)
    return (time.perf_counter_ns() - start) / CALLS


def cost(function, argument):
    loop(function, argument)
    return statistics.median(loop(function, argument) for _ in range(ROUNDS))


def python_function():
    return cost(nothing, 1), f"Python {sys.version.split()[0]}: what the loop and a call of a function cost by themselves"


def tvm_ffi_handle():
    import tvm_ffi

    return cost(tvm_ffi.get_global_func("testing.nop"), 1), f"apache-tvm-ffi {tvm_ffi.__version__}, function held"


def tvm_ffi_name():
    import tvm_ffi

    find = tvm_ffi.get_global_func
    return cost(lambda x: find("testing.nop")(x), 1), f"apache-tvm-ffi {tvm_ffi.__version__}, looked up at each call"


def torch_ops():
    import torch

    library = torch.library.Library("flhost_bench", "DEF")
    library.define("nothing(Tensor x) -> ()")
    library.impl("nothing", nothing, "CPU")
    with torch.inference_mode():
        return cost(torch.ops.flhost_bench.nothing, torch.zeros(1)), f"torch {torch.__version__}, kernel in Python"


PEERS = {
    "Python function": python_function,
    "tvm-ffi function": tvm_ffi_handle,
    "tvm-ffi function by name": tvm_ffi_name,
    "torch.ops": torch_ops,
}


def main():
    peers = []
    for name, measure in PEERS.items():
        try:
            ns, note = measure()
        except ImportError as error:
            ns, note = None, f"absent: {error}"
        except Exception as error:  # a package that is there and does not work is no reason to lose the other figures
            ns, note = None, f"failed: {type(error).__name__}: {error}"
        peers.append({"name": name, "ns": ns, "note": note})
    json.dump(peers, sys.stdout)


if __name__ == "__main__":
    main()
