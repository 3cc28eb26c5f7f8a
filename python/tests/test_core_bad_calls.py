"""The bad calls of tests/test_bad_calls.c, from Python: each is an error that names op and argument, or gives what the
reference does; the interpreter lives on, and flhost.Error is all that comes.

The suite prints them (make build/tests/bad_calls.jsonl). Tensors are of a library that has __dlpack__ and nothing else,
and says of them whatever the line says.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from typing import Any

import flhost
import pytest
from core_support import ROOT, Foreign, Tensor, fill, numpy_dtype

np = pytest.importorskip("numpy")
pytest.importorskip("ml_dtypes")

LINES = ROOT / "build" / "tests" / "bad_calls.jsonl"
if not LINES.is_file():
    pytest.skip("no build/tests/bad_calls.jsonl here: make it", allow_module_level=True)

# What stands for a type that the library has not.
NO_TYPES_OF_ITS = [object(), int, b"x", {}, 2**70, -(2**70), 1j, (1,) * 200, [object()], ["1"], "\udc80", "a\0b"]
SKIPPED = {"string", "ints"}  # null pointers: Python has no such text or list
NAMES = {(0, 32): "int32", (0, 64): "int64", (2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16", (6, 8): "bool",
         (0, 8): "int8", (1, 8): "uint8", (10, 8): "float8_e4m3fn"}  # fmt: skip
MOST_BYTES = 1 << 24


class Described(Foreign):
    """A tensor of which the line says what its library claims of it; `memory` is a good one's."""

    def __init__(self, line: dict[str, Any], memory: list[Any]) -> None:
        super().__init__(None, device=tuple(line["device"]))
        self.line, self.memory = line, memory

    def span(self) -> int:
        """Bytes that it would reach; 0 where that says nothing."""
        shape, strides = self.line["shape"] or [], self.line["strides"]
        if min(shape, default=1) < 1 or max(shape, default=1) > MOST_BYTES or len(shape) != self.line["ndim"]:
            return 0
        strides = strides or [int(np.prod(shape[d + 1 :], dtype="int64")) for d in range(len(shape))]
        reached = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        return reached * self.line["dtype"][1] // 8

    def describe(self, tensor: Tensor, keep: list[Any]) -> None:
        line = self.line
        lists = [line["shape"], line["strides"]]
        arrays = [None if sizes is None else (ctypes.c_int64 * 64)(*sizes) for sizes in lists]
        tensor.shape, tensor.strides = arrays
        tensor.ndim, tensor.byte_offset = line["ndim"], 0
        tensor.code, tensor.bits, tensor.lanes = line["dtype"]
        tensor.device_type, tensor.device_id = line["device"]
        tensor.data = None if line["data"] is None else self.memory[line["data"][0]].ctypes.data + line["data"][1]
        keep += [arrays, self.memory]


class NoTensor:
    """A null pointer for a tensor: its library gives nothing."""

    def __dlpack_device__(self) -> Any:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return None


class Good:
    """A good call, and those that were made of it."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.op, self.number, self.values, self.bytes = line["op"], line["number"], line["values"], line["bytes"]
        self.spoilt: list[dict[str, Any]] = []

    def memory(self, op: Any) -> list[Any]:
        """Bytes of each value, as many as any of the calls could reach, with the elements that the op's entry asks for."""
        example = op.example(self.number)
        buffers = []
        for i, size in enumerate(self.bytes):
            buffer = np.zeros(2 * size + (1 << 16), "uint8")
            if i < len(example) and isinstance(self.values[i], dict) and "shape" in self.values[i]:
                array = np.ascontiguousarray(fill(example[i], i))
                buffer[:size] = array.reshape(-1).view("uint8")[:size]
            buffers.append(buffer)
        return buffers


def goods() -> Iterator[Good]:
    found: Good | None = None
    for text in LINES.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "op" in line:
            if found:
                yield found
            found = Good(line)
        else:
            assert found
            found.spoilt.append(line)
    if found:
        yield found


GOODS = list(goods())


def of_python(value: Any, memory: list[Any]) -> list[Any]:
    """What stands for a value in Python: one object, for a type of no library many, for a pointer that cannot be null none."""
    if value is None:
        return [None]
    if "shape" in value:
        return [Described(value, memory)]
    ((kind, held),) = value.items()
    if kind == "other":
        return NO_TYPES_OF_ITS
    if kind == "null":
        return [] if held in SKIPPED else [NoTensor()]
    return [float(held) if kind == "float" else held]


def call(op: Any, values: list[Any]) -> None:
    n = len(op.arguments)
    results = tuple(values[n:])
    op.call(*values[:n], out=results[0] if len(results) == 1 else results)


def in_range(value: Any) -> bool:
    """Does it lie in memory that is there? What does not has to be refused, so that nobody reads it."""
    if not isinstance(value, Described) or value.line["data"] is None:
        return True
    index, offset = value.line["data"]
    return offset + value.span() <= len(value.memory[index])


def results_of(good: Good, op: Any, memory: list[Any]) -> list[Any]:
    """The results as numbers, each with its tolerance's type."""
    found = []
    for i in range(len(op.arguments), len(good.values)):
        value = good.values[i]
        if isinstance(value, dict) and "shape" in value:
            name = NAMES[tuple(value["dtype"][:2])]
            found.append((name, memory[i][: good.bytes[i]].view(numpy_dtype(name)).astype("float64")))
    return found


def outcome(good: Good, op: Any, spoil: Any) -> Any:
    """The results of a call from memory of its own, or the type of the error that its implementations give."""
    memory = good.memory(op)
    try:
        call(op, spoil(memory))
    except flhost.Error as error:
        return type(error)
    return results_of(good, op, memory)


def gives_what_the_reference_does(good: Good, op: Any, host: Any, spoil: Any) -> Any:
    given = outcome(good, op, spoil)
    with host.policy(per_op={good.op: ["reference"]}):
        expected = outcome(good, op, spoil)
    if not isinstance(given, list):
        assert given is expected
        return given
    for (name, a), (_, b) in zip(given, expected, strict=True):
        atol, rtol = op.tolerance(name)
        largest = np.abs(b[np.isfinite(b)]).max(initial=1)  # 2**70 is a factor here and there
        assert np.allclose(a, b, atol=atol * largest, rtol=rtol, equal_nan=True)
    return given


def may_be_right(op: Any, line: dict[str, Any], wrong: Any) -> bool:
    """What may be in C, and what Python takes for the same: an int for a float, and no result for one that is to be made."""
    arguments = op.arguments
    if line["index"] >= len(arguments):
        return line["right"] or wrong is None
    is_int = isinstance(wrong, int) and not isinstance(wrong, bool)
    return line["right"] or (is_int and arguments[line["index"]]["type"] == "float")


@pytest.fixture(scope="module")
def host() -> Any:
    return flhost.Host(environment={})


@pytest.mark.parametrize("good", GOODS, ids=lambda good: f"{good.op}-{good.number}")
def test_each_is_refused_by_name_or_gives_what_the_reference_does(host: Any, good: Good) -> None:
    op = host.op(good.op)
    values = [*op.arguments, *op.results]

    def whole(memory: list[Any]) -> list[Any]:
        return [of_python(value, memory)[0] for value in good.values]

    given = gives_what_the_reference_does(good, op, host, whole)
    assert isinstance(given, list) or good.op == "attention_backend"  # which may say that there is none
    memory = good.memory(op)
    for line in good.spoilt:
        for wrong in of_python(line["value"], memory):

            def spoilt(memory: list[Any], line: Any = line, wrong: Any = wrong) -> list[Any]:
                made = whole(memory)
                made[line["index"]] = Described(line["value"], memory) if isinstance(wrong, Described) else wrong
                return made

            what = f"{good.op}, {line['name']}: {line['way']} ({line['variant']}): {wrong!r:.60}"
            try:
                call(op, spoilt(memory))
            except flhost.Error as error:
                text = str(error)
                name = values[line["index"]]["name"]
                about = f"'{name}'" in text or "result '" in text or "'out'" in text
                about |= name == "x" and "argument 'x_scale': shape" in text  # one for each of x's rows
                about |= isinstance(wrong, list) and f"{name}[" in text  # the tensor whose size a list gives
                assert text.startswith(f"{good.op}: "), what
                assert about, f"{what}: {text}"
            else:
                assert may_be_right(op, line, wrong), what
                assert in_range(wrong), what
                gives_what_the_reference_does(good, op, host, spoilt)
            if line["index"] < len(op.arguments):
                try:
                    op.infer(*spoilt(memory)[: len(op.arguments)])
                except flhost.Error as error:
                    text = str(error)
                    assert text.startswith(f"{good.op}: "), what


def test_every_op_has_its_calls(host: Any) -> None:
    assert {good.op for good in GOODS} == set(host.ops())
    assert sum(len(good.spoilt) for good in GOODS) > 10_000
