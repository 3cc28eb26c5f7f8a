"""Operators on an NVIDIA GPU, called from Python: torch's streams, graphs and compiler, and tensors of CuPy and JAX."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU that torch can use", allow_module_level=True)

import flhost.torch  # noqa: E402
from generated import Library  # noqa: E402
from torch_calls import arguments, small_calls  # noqa: E402

library = Library()
flhost.torch.register()
ON_CUDA = "vendor.cuda"


def has_kernel(name: str) -> bool:
    """Of the plugin's own: selected with nothing on the CPU in between."""
    selected = flhost.default_host().explain(name, device="cuda")["selected"]
    return bool(selected) and selected.startswith(ON_CUDA)


OPS = [
    name
    for name in sorted(library.schemas)
    if all(result.is_tensor for result in library.schemas[name].results) and has_kernel(name)
]


def moved(values: list[Any], device: str) -> list[Any]:
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]


def flat(given: Any) -> list[Any]:
    return list(given) if isinstance(given, tuple) else [given]


def assert_near(on_device: Any, on_cpu: Any, what: object) -> None:
    """As far as two orders of adding may be apart; `flhost verify` holds each op to its own tolerance."""
    if on_cpu is None or on_device is None:
        assert on_cpu is on_device, what
        return
    assert (on_device.dtype, on_device.shape) == (on_cpu.dtype, on_cpu.shape), what
    if on_cpu.dtype.is_floating_point:
        near = torch.isclose(on_device.cpu().double(), on_cpu.double(), rtol=0.02, atol=0.02, equal_nan=True)
    else:
        near = (on_device.cpu().double() - on_cpu.double()).abs() <= (
            1 if on_cpu.dtype in (torch.int8, torch.uint8) else 0
        )
    assert near.double().mean() > 0.99 if on_cpu.numel() else True, what


def test_there_are_kernels() -> None:
    assert {"rms_norm", "silu_and_mul", "paged_attention", "reshape_and_cache"} <= set(OPS)


@pytest.mark.parametrize("name", OPS)
def test_an_op_gives_on_the_gpu_what_it_gives_on_the_cpu(name: str) -> None:
    op = getattr(torch.ops.flhost, name)
    taken = 0
    for call in small_calls(library, name, 6):
        torch.manual_seed(0)
        given = arguments(call)
        there = moved(given, "cuda")
        try:
            on_device = flat(op(*there))
        except RuntimeError as error:
            if "no implementation" in str(error) or "not supported" in str(error):
                continue
            raise
        taken += 1
        on_cpu = flat(op(*given))
        for a, b in zip(on_device, on_cpu, strict=True):
            assert_near(a, b, call)
        for a, b in zip(there, given, strict=True):  # states
            if isinstance(b, torch.Tensor):
                assert_near(a, b, call)
    if not taken:
        pytest.skip("no implementation takes one of these calls")


def test_the_current_stream_is_used() -> None:
    """Nobody waits: an op comes behind what its stream has to do, and what follows comes behind the op."""
    stream = torch.cuda.Stream()
    x = torch.zeros(64, 4096, device="cuda")
    ones = torch.ones_like(x)
    flhost.ops.relu2(torch.ops.flhost.rms_norm(ones)[0])  # the first calls load the kernels, and that waits
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
        x.copy_(ones)
        out, _ = torch.ops.flhost.rms_norm(x)
        again = flhost.ops.relu2(out)
        assert not stream.query(), "a call waited for its stream"
        total = again.sum()
    stream.synchronize()
    assert abs(total.item() / x.numel() - 1) < 1e-3


def test_results_are_allocated_where_the_tensors_are() -> None:
    x = torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    out = flhost.ops.silu_and_mul(x)
    assert out.device == x.device
    assert out.dtype == x.dtype
    with pytest.raises(flhost.Error, match="weight"):
        flhost.ops.rms_norm(x, None, torch.ones(64, dtype=torch.bfloat16))


def test_calls_are_captured_in_a_graph() -> None:
    x = torch.randn(16, 128, device="cuda", dtype=torch.float16)
    weight = torch.rand(128, device="cuda", dtype=torch.float16)

    def step() -> Any:
        return torch.ops.flhost.silu_and_mul(torch.ops.flhost.rms_norm(x, weight=weight)[0])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, step())


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_function_calls_them(mode: str) -> None:
    weight = torch.rand(256, device="cuda", dtype=torch.bfloat16)

    def step(x: Any) -> Any:
        normed, _ = torch.ops.flhost.rms_norm(x, weight=weight)
        return torch.ops.flhost.silu_and_mul(normed * 2) + 1

    compiled = torch.compile(step, fullgraph=True, mode=mode)
    for _ in range(4):
        x = torch.randn(32, 256, device="cuda", dtype=torch.bfloat16)
        torch.testing.assert_close(compiled(x).clone(), step(x))


def test_tensors_of_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    x = cupy.random.standard_normal((4, 32)).astype("float32")
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            given = x * 1
            out = flhost.ops.silu_and_mul(given)
            assert isinstance(out, cupy.ndarray)
            expected = given[:, :16] / (1 + cupy.exp(-given[:, :16])) * given[:, 16:]
            cupy.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
            into = cupy.zeros((4, 16), "float32")
            assert flhost.ops.silu_and_mul(given, out=into) is into
            cupy.testing.assert_array_equal(into, out)


JAX = """
import flhost, jax, numpy as np, torch
x = jax.device_put(np.random.randn(4, 32).astype("float32"), jax.devices("cuda")[0])
assert x.device.platform == "gpu", x.device
expected = np.asarray(jax.nn.silu(x[:, :16]) * x[:, 16:])
out = torch.zeros(4, 16, device="cuda")
flhost.ops.silu_and_mul(x * 1, out=out)
np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
try:
    flhost.ops.silu_and_mul(x)
except flhost.Error as error:
    assert "JAX does not say which stream uses it" in str(error), error
else:
    raise AssertionError("a result in JAX's memory on a GPU")
"""


def test_arrays_of_jax_are_read() -> None:
    """In a process of its own, with little of the GPU's memory."""
    pytest.importorskip("jax", reason="jax is not installed")
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.environ.update(" + repr(environment) + ")\n" + JAX],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
