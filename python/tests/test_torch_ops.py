"""torch.ops.flhost: each op in both overloads, as torch checks and compiles it."""

from __future__ import annotations

import contextlib
import contextvars
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import flhost.torch  # noqa: E402
from generated import Library  # noqa: E402
from torch_calls import arguments, named_results, results, small_calls  # noqa: E402

library = Library()
flhost.torch.register()
OPS = sorted(library.schemas)
TENSOR_OPS = [name for name in OPS if all(result.is_tensor for result in library.schemas[name].results)]
WITH_OUT = {name for name in TENSOR_OPS if library.schemas[name].results}  # others only write states


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def overload(name: str, which: str = "default") -> Any:
    return getattr(getattr(torch.ops.flhost, name), which)


def flat(given: Any) -> list[Any]:
    return list(given) if isinstance(given, tuple) else [given]


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.float().nan_to_num(7), b.float().nan_to_num(7))


@pytest.mark.parametrize("name", TENSOR_OPS)
def test_both_overloads_give_what_the_host_gives(name: str) -> None:
    schema = library.schemas[name]
    calls = small_calls(library, name, 4)
    assert calls
    for call in calls:
        torch.manual_seed(0)
        given = arguments(call)
        again = [a.clone() if isinstance(a, torch.Tensor) else a for a in given]
        third = [a.clone() if isinstance(a, torch.Tensor) else a for a in given]
        expected = flat(flhost.default_host().op(name).call(*third))
        allocated = flat(overload(name)(*given))
        assert all(map(same, allocated, expected)), call
        into = results(call)
        which = "out" if name in WITH_OUT else "default"
        assert overload(name, which)(*again, **named_results(schema, into)) is None
        assert all(map(same, into, expected)), call
        for i, argument in enumerate(schema.arguments):  # states, and nothing else, are written
            if argument.is_tensor:
                assert same(given[i], third[i]), argument.name
                assert same(again[i], third[i]), argument.name


@pytest.mark.parametrize("name", TENSOR_OPS)
def test_opcheck_passes(name: str) -> None:
    schema = library.schemas[name]
    for call in small_calls(library, name, 2):
        torch.manual_seed(0)
        assert call.results is not None
        given = (value for value, argument in zip(call.values, schema.arguments, strict=True) if argument.is_tensor)
        is_float8 = any(tensor is not None and tensor.dtype.startswith("float8") for tensor in (*call.results, *given))
        checks = CHECKS[1:] if is_float8 else CHECKS  # test_schema multiplies those, which torch cannot do in float8
        torch.library.opcheck(overload(name), tuple(arguments(call)), test_utils=checks)
        if name not in WITH_OUT:
            continue
        out = named_results(schema, results(call))
        torch.library.opcheck(overload(name, "out"), tuple(arguments(call)), out, test_utils=checks)


def test_every_op_has_its_overloads() -> None:
    for name in OPS:
        packet = getattr(torch.ops.flhost, name)
        expected = ["default", "out"] if name in WITH_OUT else ["default"]
        # test_torch_prepared says which have this one, too
        assert [overload for overload in packet.overloads() if overload != "prepared"] == expected, name
    assert set(OPS) <= set(flhost.torch.library._registered)


def test_registering_again_adds_nothing() -> None:
    flhost.torch.register()  # what other tests brought
    assert flhost.torch.register() == ()
    assert flhost.torch.register(["rms_norm"]) == ()
    with pytest.raises(flhost.NotFound, match="rms_norm"):
        flhost.torch.register(["rms_nrom"])


def test_results_may_be_written_in_place() -> None:
    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
    out, sum_ = torch.ops.flhost.rms_norm(x, residual, weight)
    torch.ops.flhost.rms_norm.out(x, residual, weight, out=x, residual_out=residual)
    assert torch.equal(x, out)
    assert torch.equal(residual, sum_)


def test_strided_tensors_are_read_where_they_lie() -> None:
    whole = torch.randn(4, 24)
    part = whole[:, 8:16]
    assert torch.equal(torch.ops.flhost.gelu(part), torch.ops.flhost.gelu(part.contiguous()))


def test_a_mistake_says_which_argument() -> None:
    x = torch.randn(2, 8)
    with pytest.raises(RuntimeError, match=r"rms_norm: argument 'weight': shape \[3\], expected \[8\]"):
        torch.ops.flhost.rms_norm(x, weight=torch.rand(3))
    with pytest.raises(RuntimeError, match="rms_norm: argument 'x': dtype int64"):
        torch.ops.flhost.rms_norm(torch.ones(2, 8, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="argument 'x': a tensor of torch's dtype"):
        torch.ops.flhost.rms_norm(torch.ones(2, 8, dtype=torch.complex64))
    with pytest.raises(RuntimeError, match="argument 'x': 9 dimensions, expected 0 to 8"):
        torch.ops.flhost.rms_norm(torch.ones((1,) * 9))
    with pytest.raises(RuntimeError, match="rms_norm: result 'out': shape"):
        torch.ops.flhost.rms_norm.out(x, out=torch.empty(2, 7))
    whole = torch.randn(3, 8)
    with pytest.raises(RuntimeError, match="result 'out': overlaps argument 'x'"):
        torch.ops.flhost.rms_norm.out(whole[:2], out=whole[1:])


def test_a_tensor_without_memory_is_refused() -> None:
    with pytest.raises(RuntimeError):
        torch.ops.flhost.rms_norm(torch.eye(4).to_sparse())


class Wrapped(torch.Tensor):
    """A tensor without memory of its own, which hands calls on to the one that it holds if it is told to."""

    inner: Any
    hands_on = True

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not cls.hands_on:
            return NotImplemented
        return function(*(a.inner if isinstance(a, Wrapped) else a for a in args), **(kwargs or {}))


class Mute(Wrapped):
    hands_on = False


def test_subclasses_of_tensors() -> None:
    x = torch.randn(2, 8)
    assert torch.equal(torch.ops.flhost.gelu(torch.nn.Parameter(x, requires_grad=False)), torch.ops.flhost.gelu(x))
    assert torch.equal(torch.ops.flhost.gelu(Wrapped(x)), torch.ops.flhost.gelu(x))
    with pytest.raises(TypeError, match=r"(?s)flhost\.gelu.*Mute"):
        torch.ops.flhost.gelu(Mute(x))


def test_fakes_refuse_with_the_argument_too() -> None:
    x = torch.empty(2, 8, device="meta")
    with pytest.raises(ValueError, match="rms_norm: argument 'weight'"):
        torch.ops.flhost.rms_norm(x, weight=torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match=r"rms_norm: result 'out': float32\[2, 7\], expected float32\[2, 8\]"):
        torch.ops.flhost.rms_norm.out(x, out=torch.empty(2, 7, device="meta"))
    with pytest.raises(ValueError, match="result 'residual_out': given, expected none"):
        torch.ops.flhost.rms_norm.out(x, out=torch.empty_like(x), residual_out=torch.empty_like(x))


def test_a_derivative_is_refused_and_the_message_says_what_to_do() -> None:
    x, weight = torch.randn(2, 8), torch.rand(8, requires_grad=True)
    for call in (
        lambda: torch.ops.flhost.rms_norm(x, None, weight),
        lambda: torch.ops.flhost.rms_norm(x, weight=weight),
        lambda: torch.ops.flhost.rms_norm.out(x, weight=weight, out=torch.empty_like(x)),
        lambda: torch.compile(lambda w: torch.ops.flhost.rms_norm(x, None, w), fullgraph=True, backend="eager")(weight),
    ):
        with pytest.raises(
            RuntimeError, match=r"argument 'weight': requires grad, and the op has no derivative.*no_grad"
        ):
            call()
    with torch.no_grad():
        torch.ops.flhost.rms_norm(x, weight=weight)
    with torch.inference_mode():
        torch.ops.flhost.rms_norm(x, weight=weight)
    torch.ops.flhost.rms_norm(x, weight=weight.detach())


def test_of_a_derivative_by_torch_func_torch_warns() -> None:
    """It hides from the kernel that one is wanted."""
    with pytest.warns(UserWarning, match=r"flhost::gelu: an autograd kernel was not registered"):
        found = torch.func.grad(lambda x: torch.ops.flhost.gelu(x).sum())(torch.ones(3))
    assert torch.equal(found, torch.zeros(3))


class Count:
    """A backend of torch.compile that counts what it compiles."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        self.graphs += 1
        return compile_fx(graph, inputs)


def layer(x: Any, residual: Any, weight: Any, w13: Any) -> Any:
    x, residual = torch.ops.flhost.rms_norm(x, residual, weight)
    x = torch.ops.flhost.silu_and_mul(x @ w13)
    torch.ops.flhost.gelu.out(x, out=x)
    return x + 1, residual


def test_compiled_for_any_number_of_tokens_it_is_compiled_once() -> None:
    torch._dynamo.reset()
    backend = Count()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    weight, w13 = torch.rand(8), torch.randn(8, 12)
    with torch.inference_mode():
        for tokens in (3, 5, 17, 64, 2):
            x, residual = torch.randn(tokens, 8), torch.randn(tokens, 8)
            got = compiled(x.clone(), residual.clone(), weight, w13)
            assert all(
                torch.allclose(a, b, atol=1e-5) for a, b in zip(got, layer(x, residual, weight, w13), strict=True)
            )
    assert backend.graphs == 1


def test_results_of_computed_sizes_stay_symbols() -> None:
    """Division that rounds up, a size that an argument gives, leading dimensions."""
    torch._dynamo.reset()
    backend = Count()

    def route(x: Any, ids: Any) -> Any:
        q, scale = torch.ops.flhost.quant_fp8(x, group_shape=[1, 16])
        a, b, c = torch.ops.flhost.moe_align_block_size(ids, 8, 16)
        return q.float() * scale.repeat_interleave(16, -1)[:, : x.shape[1]], a + 1, b + 1, c + 1

    compiled = torch.compile(route, fullgraph=True, dynamic=True, backend=backend)
    with torch.inference_mode():
        for tokens in (3, 7, 50):
            x, ids = torch.randn(tokens, 40), torch.randint(0, 8, (tokens, 2))
            for a, b in zip(compiled(x, ids), route(x, ids), strict=True):
                assert torch.equal(a, b)
    assert backend.graphs == 1


def test_a_state_is_written_by_what_is_compiled() -> None:
    torch._dynamo.reset()

    def step(x: Any, weight: Any, state: Any) -> Any:
        return torch.ops.flhost.causal_conv1d(x, weight, None, state) + 1

    x, weight, state = torch.randn(4, 6), torch.randn(4, 3), torch.randn(1, 4, 2)
    expected_state = state.clone()
    expected = step(x, weight, expected_state)
    got = torch.compile(step, fullgraph=True, dynamic=True)(x, weight, state)
    assert torch.allclose(got, expected)
    assert torch.equal(state, expected_state)


def test_exported_with_a_symbol_for_tokens() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any, residual: Any, weight: Any, w13: Any) -> Any:
            return layer(x, residual, weight, w13)

    tokens = torch.export.Dim("tokens", min=2, max=4096)
    shapes = {"x": {0: tokens}, "residual": {0: tokens}, "weight": None, "w13": None}
    args = (torch.randn(4, 8), torch.randn(4, 8), torch.rand(8), torch.randn(8, 12))
    with torch.no_grad():
        program = torch.export.export(Module(), args, dynamic_shapes=shapes).run_decompositions()
        x = torch.randn(9, 8)
        got = program.module()(x, x + 1, args[2], args[3])
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, layer(x, x + 1, args[2], args[3]), strict=True))
    assert "flhost.rms_norm" in str(program.graph)


def test_a_policy_of_the_context_holds() -> None:
    x = torch.randn(2, 8)
    with (
        flhost.op_order("gelu", ["vendor:nobody"]),
        pytest.raises(RuntimeError, match="No implementation selected for op='gelu'"),
    ):
        torch.ops.flhost.gelu(x)
    torch.ops.flhost.gelu(x)


def test_ops_that_come_later_are_added() -> None:
    flhost.default_host().register_op(
        "late_op(Tensor x, Tensor(a!)? state=None, int n=2) -> Tensor out", rules="x: T[..., d]; out: T[..., d*n]"
    )
    assert flhost.torch.register() == ("late_op",)
    schemas = [str(getattr(torch.ops.flhost.late_op, which)._schema) for which in ("default", "out")]
    assert schemas == [
        "flhost::late_op(Tensor x, Tensor(a!)? state=None, SymInt n=2) -> Tensor",
        "flhost::late_op.out(Tensor x, Tensor(a!)? state=None, SymInt n=2, *, Tensor(b!) out) -> ()",
    ]
    assert torch.ops.flhost.late_op(torch.empty(3, 4, device="meta"), n=5).shape == (3, 20)
    with pytest.raises(RuntimeError, match="late_op"):
        torch.ops.flhost.late_op(torch.empty(3, 4))


OLD_TORCH = """
import torch, flhost.torch
from flhost import _core
def missing(*arguments):
    raise _core.NotSupported("no stable C interface")
_core.torch_implement = missing
flhost.torch.register()
x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
out, sum_ = torch.ops.flhost.rms_norm(x, residual, weight)
assert torch.allclose(out, torch.nn.functional.rms_norm(x + residual, (8,), weight, 1e-6), atol=1e-5)
into = torch.empty_like(x)
torch.ops.flhost.rms_norm.out(x, residual, weight, out=into, residual_out=residual)
assert torch.equal(into, out) and torch.equal(residual, sum_)
torch.ops.flhost.gelu.out(x, "tanh", out=x)
assert torch.ops.flhost.attention_backend()
try:
    torch.ops.flhost.rms_norm(x, None, weight.requires_grad_())
except RuntimeError as error:
    assert "no derivative" in str(error)
else:
    raise AssertionError
with torch.no_grad():
    for op, kwargs in ((torch.ops.flhost.rms_norm.default, {}), (torch.ops.flhost.rms_norm.out, {"out": into})):
        torch.library.opcheck(op, (x, None, weight.detach()), kwargs)
"""


def test_an_older_torch_is_served_through_python() -> None:
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", OLD_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_is_left_behind() -> None:
    """Handles that a kernel gets are its own to release: memory would grow by what is not."""
    import resource

    x, weight = torch.randn(2, 8), torch.rand(8)
    out = torch.empty_like(x)

    def calls(n: int) -> None:
        for _ in range(n):
            torch.ops.flhost.rms_norm(x, None, weight)
            torch.ops.flhost.rms_norm.out(x, None, weight, out=out)
            torch.ops.flhost.gelu(x, "tanh")
            torch.ops.flhost.quant_fp8(x, group_shape=[1, 8])

    def refused(n: int) -> None:
        for _ in range(n):
            with pytest.raises(RuntimeError):
                torch.ops.flhost.rms_norm(x, None, out[:, :3])

    calls(2000)
    refused(50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(20000)
    refused(500)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2000  # KiB; a handle each would be 9 000


def goes_on() -> None:
    """Python code behind a call, where an interrupt arrives."""
    for _ in range(100):
        pass


@pytest.fixture
def ends() -> Any:
    """An implementation that raises what a test says."""
    raised: list[BaseException] = []

    def function(x: Any) -> Any:
        if raised:
            raise raised.pop()
        raise flhost.InvalidArgument("its own")

    host = flhost.default_host()
    host.register_impl("silu_and_mul", "vendor.ends", function, vendor="ends")
    with host.policy(per_op={"silu_and_mul": ["impl:vendor.ends"]}):
        yield raised.append
    flhost._core.withdraw_impl(host, "silu_and_mul", "vendor.ends")


@pytest.mark.parametrize("passing", [KeyboardInterrupt("now"), SystemExit(3)])
def test_what_ends_a_program_comes_right_behind_torchs_error(ends: Any, passing: BaseException) -> None:
    """torch gives back its own exceptions alone; that one is not lost, and no later call's."""
    ends(passing)
    errors: list[BaseException] = []
    try:
        try:
            torch.ops.flhost.silu_and_mul(torch.ones(2, 4))
        except RuntimeError as error:
            errors.append(error)
        goes_on()
    except BaseException as error:
        errors.append(error)
    assert errors[-1] is passing
    with pytest.raises(flhost.InvalidArgument, match="its own"):
        flhost.default_host().op("silu_and_mul").call(torch.ones(2, 4))


def test_an_interrupt_in_a_thread_comes_to_that_thread(ends: Any) -> None:
    ends(KeyboardInterrupt("now"))
    caught: list[type] = []
    policy = contextvars.copy_context()

    def run() -> None:
        try:
            with contextlib.suppress(RuntimeError):
                torch.ops.flhost.silu_and_mul(torch.ones(2, 4))
            goes_on()
        except BaseException as error:
            caught.append(type(error))

    thread = threading.Thread(target=policy.run, args=(run,))
    thread.start()
    thread.join()
    goes_on()
    assert caught == [KeyboardInterrupt]


# -------------------------------------------------------------------------------------------------------------- threads


LARGE = """
import os, sys
from pathlib import Path
import torch, flhost.torch

def pool_threads():
    return [(t / "comm").read_text().strip() for t in Path("/proc/self/task").iterdir()].count("flhost")

def tasks():
    return len(list(Path("/proc/self/task").iterdir()))

torch.set_num_threads(1)
x = torch.ones(4096, 4096)
torch.set_num_threads(3)
before = tasks()
if sys.argv[1] == "torch":
    flhost.torch.register(["silu_and_mul"])
out = flhost.ops.silu_and_mul(x)
print(pool_threads(), tasks() - before)
child = os.fork()
if not child:
    again = flhost.ops.silu_and_mul(x)
    os._exit(0 if bytes(out.numpy().data) == bytes(again.numpy().data) and pool_threads() == 2 else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize(("whose", "own"), [("torch", 0), ("flhost", 2)])
def test_kernels_compute_in_torchs_threads(whose: str, own: int) -> None:
    # Either makes its threads when they are first needed: two beside the calling one.
    environment = {**os.environ, "VLLM_FL_CPU_THREADS": "3"}
    run = subprocess.run([sys.executable, "-c", LARGE, whose], capture_output=True, text=True, env=environment)
    assert run.stdout.split() == [str(own), "2", "0"], run.stderr
