"""Tensors of several libraries: borrowed without a copy, with strides, given back whatever happens."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import subprocess
import sys
import weakref
from typing import Any

import flhost
import numpy as np
import pytest
from core_support import (
    HAS_TORCH,
    Deleter,
    Foreign,
    Tensor,
    Version,
    Versioned,
    fill_tensor,
    new_capsule,
    python,
    simple_plugin,
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> flhost.Host:
    """With an op that says what its tensor looks like: address, stream, strides."""
    folder = tmp_path_factory.mktemp("plugins")
    host = flhost.Host(environment={})
    simple_plugin(
        folder,
        "look",
        schema="look(Tensor x, Tensor? y=None) -> (int address, int stream, int stride, int size)",
        body="""const DLTensor *t = call->values[0].v.tensor;
                long n[4] = {(long)fl_data(t), (long)call->stream, t->ndim ? fl_stride(t, 0) : 0, t->ndim ? t->shape[0] : 0};
                for (int i = 0; i < 4; i++) { call->values[2 + i].type = FL_INT; call->values[2 + i].v.i = n[i]; }""",
    )
    host.load_plugin(folder / "look.so")
    simple_plugin(
        folder, "fails", schema="fails(Tensor x) -> Tensor out", body='return fl_fail(call, FL_EDEVICE, "broken");'
    )
    host.load_plugin(folder / "fails.so")
    simple_plugin(
        folder,
        "touch",
        schema="touch(Tensor x) -> Tensor out",
        body="(void)call;",
    )
    host.load_plugin(folder / "touch.so")
    return host


def test_nothing_is_copied_and_strides_stay(host: flhost.Host) -> None:
    look = host.op("look").call
    base = np.zeros((6, 8), "float32")
    x = base[::2, 2:6]
    assert look(x) == (x.ctypes.data, 0, 16, 3)
    if HAS_TORCH:
        import torch

        t = torch.zeros(6, 8)[1::2, 2:6]
        assert look(t) == (t.data_ptr(), 0, 16, 3)
        parameter = torch.nn.Parameter(torch.zeros(4, 2))  # a class that is derived from Tensor
        assert look(parameter) == (parameter.data_ptr(), 0, 2, 4)


def test_a_read_only_array_is_read_but_not_written(host: flhost.Host) -> None:
    x = np.random.randn(2, 8).astype("float32")
    x.flags.writeable = False
    assert host.op("look").call(x)[0] == x.ctypes.data
    assert host.op("silu_and_mul").call(x).shape == (2, 4)
    with pytest.raises(flhost.InvalidArgument, match="result 'out': a read-only tensor"):
        host.op("gelu").call(np.zeros((2, 8), "float32"), out=x)
    with pytest.raises(flhost.InvalidArgument, match="read-only"):
        host.op("gelu").call(x, out=x)


def test_arrays_that_no_kernel_reads_right(host: flhost.Host) -> None:
    look = host.op("look").call
    swapped = np.zeros(4, ">f4")
    with pytest.raises(
        flhost.InvalidArgument, match="argument 'x': a numpy.ndarray that cannot be borrowed: .*byte order"
    ):
        look(swapped)
    memory = np.zeros(17, "uint8")
    unaligned = memory[1:].view("float32") if memory.ctypes.data % 4 == 0 else memory[:16].view("float32")
    assert unaligned.ctypes.data % 4
    with pytest.raises(flhost.InvalidArgument, match="argument 'x': its first element is not aligned to the 4 bytes"):
        look(unaligned)
    for kind in ("object", "U4", "datetime64[s]", [("a", "f4")], "float128"):
        with pytest.raises(flhost.InvalidArgument, match="argument 'x'"):
            look(np.zeros(2, kind))
    record = np.zeros(3, [("a", "f4"), ("b", "u1")])["a"]  # strides of 5 bytes
    with pytest.raises(flhost.InvalidArgument, match="argument 'x'"):
        look(record)
    empty = np.zeros((0, 8), "float32")
    assert host.op("silu_and_mul").call(empty).shape == (0, 4)


@pytest.mark.parametrize("versioned", [True, False])
def test_a_library_with_dlpack_alone(host: flhost.Host, versioned: bool) -> None:
    array = np.random.randn(3, 8).astype("float32")
    x = Foreign(array, versioned=versioned)
    before = Foreign.handed_out - Foreign.came_back
    assert host.op("look").call(x)[0] == array.ctypes.data
    assert x.streams == [None]
    assert x.versions == [(1, 0)]
    assert Foreign.handed_out - Foreign.came_back == before
    out = host.op("silu_and_mul").call(x)
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, host.op("silu_and_mul").call(array))
    result = Foreign(np.zeros((3, 4), "float32"), versioned=versioned)
    assert host.op("silu_and_mul").call(array, out=result) is result
    np.testing.assert_array_equal(result.array, out)
    assert Foreign.handed_out == Foreign.came_back


def test_what_was_borrowed_comes_back_on_every_path(host: flhost.Host) -> None:
    def x() -> Foreign:
        return Foreign(np.zeros((3, 8), "float32"))

    small = Foreign(np.zeros(3, "float32"))
    rms, silu, fails = (host.op(name).call for name in ("rms_norm", "silu_and_mul", "fails"))
    for wrong in (
        lambda: rms(x(), x(), small),
        lambda: rms(x(), 3),
        lambda: rms(x(), x(), "w"),
        lambda: rms(x(), epsilon="no"),
        lambda: silu(x(), out=small),
        lambda: silu(x(), out=3),
        lambda: silu(x(), out=Foreign(np.zeros((3, 4), "float32"), read_only=True)),
        lambda: fails(x()),
        lambda: fails(x(), out=x()),
        lambda: silu(Foreign(np.zeros((3, 7), "float32"))),
    ):
        with pytest.raises(flhost.Error):
            wrong()
        gc.collect()
        assert Foreign.handed_out == Foreign.came_back
    assert not Foreign.alive


def test_an_old_library_that_does_not_know_max_version(host: flhost.Host) -> None:
    class Old(Foreign):
        def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
            return super().__dlpack__(stream=stream)

    x = Old(np.zeros((3, 8), "float32"), versioned=False)
    assert host.op("look").call(x)[3] == 3
    assert host.op("look").call(x)[3] == 3
    assert x.versions == [None, None]


def test_the_stream_is_asked_for_devices_alone(host: flhost.Host) -> None:
    array = np.zeros((3, 8), "float32")
    look = host.op("look").call
    x = Foreign(array, device=(2, 0))
    assert look(x)[1] == 0
    assert x.streams == [1]  # DLPack's number of CUDA's default stream
    x = Foreign(array, device=(10, 1))
    assert look(x, Foreign(array, device=(10, 1)), stream=0x1234)[1] == 0x1234
    assert x.streams == [0x1234]


def test_a_library_that_lies_is_told_so(host: flhost.Host) -> None:
    class Wrong:
        def __init__(self, given: Any, device: Any = (1, 0)) -> None:
            self.given, self.device = given, device

        def __dlpack_device__(self) -> Any:
            return self.device

        def __dlpack__(self, **keywords: Any) -> Any:
            if isinstance(self.given, BaseException):
                raise self.given
            return self.given

    look = host.op("look").call
    used = new_capsule(1, b"used_dltensor", None)
    for wrong in (Wrong(None), Wrong(3), Wrong(used), Wrong(RuntimeError("no")), Wrong(TypeError("no"))):
        with pytest.raises(flhost.InvalidArgument, match="look: argument 'x': a .*Wrong that cannot be borrowed"):
            look(wrong)
    for device in (None, 3, (1,), ("cpu", 0), (2**40, 0)):
        with pytest.raises(flhost.InvalidArgument, match="argument 'x'"):
            look(Wrong(None, device))
    with pytest.raises(flhost.InvalidArgument) as caught:
        look(Wrong(RuntimeError("gone")))
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(KeyboardInterrupt):
        look(Wrong(KeyboardInterrupt()))

    class Newer(Foreign):
        def __dlpack__(self, **keywords: Any) -> Any:
            capsule = super().__dlpack__(**keywords)
            next(reversed(Foreign.alive.values()))[0].version = Version(2, 0)
            return capsule

    with pytest.raises(flhost.InvalidArgument, match="DLPack 2, expected 1"):
        look(Newer(np.zeros(3, "float32")))
    assert not Foreign.alive


# ------------------------------------------------------------------------------------------ DLPack's exchange functions

FUNCTIONS = {
    "allocate": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "to_managed": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    "to_object": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    "borrow": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Tensor)),
    "current_stream": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)),
}


class Exchange(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("previous", ctypes.c_void_p),
        *((name, type_) for name, type_ in FUNCTIONS.items()),
    ]


SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


def exchange_type(**functions: Any) -> type:
    """A type whose tensors are borrowed by functions of C, which Python stands in for."""

    class Exchanged:
        keep: list[Any] = []  # noqa: RUF012
        streams: list[tuple[int, int]] = []  # noqa: RUF012
        device = (1, 0)

        def __init__(self, array: Any) -> None:
            self.array = array

    def borrow(address: int, tensor: Any) -> int:
        object_ = ctypes.cast(address, ctypes.py_object).value
        fill_tensor(tensor.contents, object_.array, Exchanged.keep, object_.device)
        return 0

    def current_stream(device_type: int, device: int, stream: Any) -> int:
        Exchanged.streams.append((device_type, device))
        stream[0] = 0xBEEF0
        return 0

    given = {"borrow": borrow, "current_stream": current_stream, **functions}
    table = Exchange(
        Version(1, 3), None, *(type_(given[name]) if given.get(name) else type_() for name, type_ in FUNCTIONS.items())
    )
    Exchanged.keep += [table, given]
    Exchanged.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)  # type: ignore[attr-defined]
    return Exchanged


def test_exchange_functions_give_the_tensor_and_the_stream(host: flhost.Host) -> None:
    kind: Any = exchange_type()
    look = host.op("look").call
    x = kind(np.zeros((3, 8), "float32"))
    assert look(x) == (x.array.ctypes.data, 0, 8, 3)
    assert kind.streams == []  # host memory has none
    x.device = (2, 1)
    assert look(x, x)[1] == 0xBEEF0
    assert kind.streams == [(2, 1)]  # asked once
    assert look(x, stream=0x10)[1] == 0x10
    foreign = Foreign(x.array, device=(2, 1))
    assert look(foreign, x)[1] == 0xBEEF0
    assert foreign.streams == [0xBEEF0]  # made ready for that stream


def test_a_result_that_cannot_be_made_is_no_memory(host: flhost.Host) -> None:
    def allocate(prototype: int, made: int, context: int, set_error: int) -> int:
        SET_ERROR(set_error)(context, b"RuntimeError", b"nothing left")
        return -1

    kind: Any = exchange_type(allocate=allocate)
    x = kind(np.zeros((300, 1024), "float32"))
    with pytest.raises(
        flhost.OutOfMemory, match="silu_and_mul: result 'out': no memory for it: .*nothing left"
    ) as caught:
        host.op("silu_and_mul").call(x)
    assert isinstance(caught.value, MemoryError)


@pytest.mark.parametrize("shape", [(2, 5, 16), (2, 0, 16), (0, 16), (16,), (64, 1024)])
def test_a_small_result_comes_with_its_memory(host: flhost.Host, shape: tuple[int, ...]) -> None:
    """Its library makes the object, and gives the memory back when that goes."""
    taken: list[int] = []

    def to_object(managed: int, made: int) -> int:
        taken.append(managed)
        python.Py_IncRef(ctypes.py_object(kind))  # a new reference
        ctypes.c_void_p.from_address(made).value = id(kind)
        return 0

    kind: Any = exchange_type(to_object=to_object)  # it has no function that allocates
    values = np.random.randn(*shape).astype("float32")
    assert host.op("relu2").call(kind(values)) is kind
    made = Versioned.from_address(taken[0])
    tensor = made.tensor
    assert (made.version.major, made.flags, tensor.device_type, tensor.byte_offset) == (1, 0, 1, 0)
    assert tensor.data % 64 == 0
    assert tuple(tensor.shape[: tensor.ndim]) == shape
    step = 1
    for size, stride in zip(reversed(shape), reversed(tensor.strides[: tensor.ndim]), strict=True):
        assert stride == step
        step *= max(size, 1)
    result = (ctypes.c_float * values.size).from_address(tensor.data)
    np.testing.assert_array_equal(np.frombuffer(result, "float32").reshape(shape), np.maximum(values, 0) ** 2)
    Deleter(made.deleter)(taken[0])


def test_functions_of_another_version_are_not_used(host: flhost.Host) -> None:
    kind: Any = exchange_type()
    kind.keep[0].version = Version(2, 0)
    with pytest.raises(flhost.WrongType, match=r"argument 'x': .*Exchanged, expected a tensor"):
        host.op("look").call(kind(np.zeros(3, "float32")))


def test_types_that_come_and_go_are_not_confused(host: flhost.Host) -> None:
    """The memory of a type is another's soon; each has to be asked for what it is."""
    look = host.op("look").call
    for _ in range(300):
        kind: Any = type("Kind", (Foreign,), {})
        assert look(kind(np.zeros(3, "float32")))[3] == 3
        other: Any = type("Other", (), {})
        with pytest.raises(flhost.WrongType):
            look(other())
        del kind, other
        gc.collect(0)


# --------------------------------------------------------------------------------------------------------------- torch

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")


@needs_torch
def test_torch_tensors_that_cannot_be_borrowed_say_why(host: flhost.Host) -> None:
    import torch

    look = host.op("look").call
    for wrong in (torch.empty(3, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(flhost.InvalidArgument, match="look: argument 'x'") as caught:
            look(wrong)
        assert len(str(caught.value)) < 300  # no stack of C++
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3)
    with pytest.raises(flhost.InvalidArgument, match="look: argument 'x'"):
        look(fake)


@needs_torch
def test_torch_results_of_each_dtype_are_as_torch_has_them(host: flhost.Host) -> None:
    import torch

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(3, 8, dtype=dtype)
        out = host.op("silu_and_mul").call(x)
        assert out.dtype is dtype
        expected = torch.nn.functional.silu(x[:, :4].float()) * x[:, 4:].float()
        torch.testing.assert_close(out.float(), expected, rtol=2e-2, atol=2e-2)
        assert out.is_contiguous()
        assert not out.requires_grad
    q, scale = host.op("quant_fp8").call(torch.randn(3, 16))
    assert q.dtype is torch.float8_e4m3fn
    assert scale.dtype is torch.float32


@needs_torch
def test_a_result_lives_as_long_as_somebody_has_it(host: flhost.Host) -> None:
    import torch

    out = host.op("silu_and_mul").call(torch.ones(3, 8))
    kept = out.detach()
    ended = weakref.ref(out)
    del out
    assert ended() is None
    assert torch.isfinite(kept).all()


@needs_torch
def test_torch_and_numpy_in_one_call(host: flhost.Host) -> None:
    import torch

    x, w = torch.randn(3, 8), np.random.randn(8).astype("float32")
    out = host.op("rms_norm").call(x, weight=w)[0]
    assert type(out) is torch.Tensor
    array = np.empty((3, 8), "float32")
    assert host.op("rms_norm").call(x, weight=w, out=(array, None))[0] is array
    np.testing.assert_array_equal(array, out.numpy())


JAX = """
import flhost, jax, numpy as np
silu_and_mul = flhost.Host(environment={}).op("silu_and_mul").call
x = np.random.randn(3, 8).astype("float32")
for dtype in ("float32", "bfloat16", "float16"):
    given = jax.numpy.asarray(x, dtype)
    out = silu_and_mul(given)
    assert isinstance(out, jax.Array) and out.dtype == given.dtype, out
    np.testing.assert_array_equal(np.asarray(out), silu_and_mul(np.asarray(given)))
try:
    jax.jit(silu_and_mul)(x)
except flhost.WrongType as error:
    assert "argument 'x'" in str(error)
else:
    raise AssertionError("an array that is traced has no memory")
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="jax is not installed")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="jax does not know the sanitizer")
def test_jax_arrays() -> None:
    """In a process of its own: jax has threads, and other tests here fork."""
    done = subprocess.run([sys.executable, "-c", JAX], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
