"""The process around: what an import loads, fork, spawn, threads, references, and wrong arguments of every op."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from typing import Any

import flhost
import numpy as np
import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_an_import_loads_neither_torch_nor_library_nor_plugin() -> None:
    assert (
        run("import sys, flhost; print(sorted({'torch', 'vllm', 'numpy', 'flhost._core'} & set(sys.modules)))")
        == "[]\n"
    )
    maps = "open('/proc/self/maps').read()"
    assert run(f"import flhost; flhost.Host; flhost.Error; print('plugins/' in {maps})") == "False\n"


not_sanitized = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer takes time and keeps what is freed"
)


@not_sanitized
def test_an_import_is_quick() -> None:
    code = "import time; t = time.thread_time(); import flhost; flhost.Host; print(time.thread_time() - t)"
    assert min(float(run(code)) for _ in range(5)) < 0.060


def in_child(n: int) -> bool:
    x = np.full((2, 2 * n), 1.0, "float32")
    return bool(flhost.ops.silu_and_mul(x).shape == (2, n))


def test_forked_and_spawned_children_call_ops() -> None:
    assert in_child(2)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert all(pool.map_async(in_child, [1, 2, 3, 4]).get(120))  # a child that dies would leave it waiting


def test_threads_call_at_once_while_policies_change() -> None:
    host = flhost.Host(environment={})
    call = host.op("silu_and_mul").call
    x = np.random.randn(4, 16).astype("float32")
    expected = call(x)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(500):
            with host.prefer(rng.choice(["reference", "flagos", "vendor"])):
                if not np.allclose(call(x), expected, rtol=1e-5, atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@not_sanitized
def test_a_million_calls_leave_nothing_behind() -> None:
    host = flhost.Host(environment={})
    call = host.op("relu2").call
    x, out, none = np.ones((1, 2), "float32"), np.empty((1, 2), "float32"), sys.getrefcount(None)

    def some(n: int) -> None:
        for _ in range(n):
            call(x, out=out)

    some(1000)
    before, counts = resident(), (sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(call))
    some(1_000_000)
    for _ in range(20_000):
        call(x)
        with contextlib.suppress(flhost.WrongType):
            call(x, wrong=1)
        with host.prefer("reference"):
            call(x)
    assert (sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(call)) == counts
    assert abs(sys.getrefcount(None) - none) < 100
    assert resident() - before < 4 << 20
