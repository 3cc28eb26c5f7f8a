"""Calls to test ops with, as `flhost verify` has them, and what the library infers for them: flhost/testing.h by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flhost
from flhost.torch.rules import Tensor
from flhost.torch.schema import Schema, parse

MAX_DIMS = 8
NONE, TENSOR, INT, FLOAT, BOOL, STRING, INT_LIST = range(7)
NORMAL, RANGE, DISTINCT, ASCENDING, MODERATE = range(1, 6)


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Union(ctypes.Union):
    _fields_ = [
        ("tensor", ctypes.POINTER(_DLTensor)),
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("b", ctypes.c_bool),
        ("s", ctypes.c_char_p),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("length", ctypes.c_uint32), ("v", _Union)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("present", ctypes.c_bool),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("device", _DLDevice),
        ("shape", ctypes.c_int64 * MAX_DIMS),
    ]


class _Input(ctypes.Structure):
    _fields_ = [
        ("value", _Value),
        ("contents", ctypes.c_int),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("spec", _Spec),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("values", ctypes.POINTER(_Value)),
        ("stream", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("message_size", ctypes.c_size_t),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_size_t),
    ]


class _ElementType(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("bit", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("aliases", ctypes.c_void_p),
        ("safetensors", ctypes.c_char_p),
        ("dtype", _DLDataType),
    ]


@dataclass
class Argument:
    """One argument of a generated call: its value, or of a tensor form and contents."""

    value: Any
    contents: int
    low: float
    high: float


@dataclass
class Call:
    op: str
    arguments: list[Argument]
    results: tuple[Tensor | None, ...] | None  # None: the library refuses it
    message: str

    @property
    def values(self) -> list[Any]:
        return [argument.value for argument in self.arguments]


class Library:
    """libflhost with a host of its own process: the default one."""

    def __init__(self) -> None:
        self.c = ctypes.CDLL(str(Path(flhost.__file__).parent / "lib" / "libflhost.so.0"))
        for name in ("fl_find_op", "fl_default_host", "fl_element_type_of", "fl_element_type_named"):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.c.fl_error_message.restype = ctypes.c_char_p
        self.c.fl_find_op.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.c.fl_element_type_of.argtypes = [_DLDataType]
        self.c.fl_generate_inputs.argtypes = [
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64,
            ctypes.POINTER(_Input), ctypes.c_uint32, ctypes.c_size_t,
        ]  # fmt: skip
        self.c.fl_infer.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_Call), ctypes.POINTER(_Spec), ctypes.c_uint32, ctypes.c_size_t,
        ]  # fmt: skip
        self.host = self.c.fl_default_host()
        assert self.host, self.c.fl_error_message()
        host = flhost.default_host()
        ops = [host.op(name) for name in host.ops()]
        self.rules: dict[str, str] = {op.name: op.rules for op in ops}
        self.over_ranks: dict[str, bool] = {op.name: bool(op.ranks) for op in ops}
        self.schemas: dict[str, Schema] = {op.name: parse(op.schema) for op in ops}

    def dtype_name(self, dtype: _DLDataType) -> str:
        row = self.c.fl_element_type_of(dtype)
        return ctypes.cast(row, ctypes.POINTER(_ElementType)).contents.name.decode() if row else "?"

    def _argument(self, given: _Input, kind: str) -> Argument:
        value: Any = None
        if kind == "Tensor":
            spec = given.spec
            value = Tensor(tuple(spec.shape[: spec.ndim]), self.dtype_name(spec.dtype)) if spec.present else None
        elif given.value.type == INT_LIST:
            value = list(given.value.v.ints[: given.value.length])
        elif given.value.type != NONE:
            v = given.value.v
            value = {INT: v.i, FLOAT: v.f, BOOL: v.b}.get(given.value.type)
            if given.value.type == STRING:
                value = v.s.decode()
        return Argument(value, given.contents, given.low, given.high)

    def _infer(self, op: int, schema: Schema, inputs: Any) -> tuple[tuple[Tensor | None, ...] | None, str]:
        n = len(schema.arguments)
        values, tensors, kept = (_Value * max(n, 1))(), (_DLTensor * max(n, 1))(), []
        for i, argument in enumerate(schema.arguments):
            values[i] = inputs[i].value
            if argument.is_tensor:
                spec = inputs[i].spec
                values[i].type = TENSOR if spec.present else NONE
                shape = (ctypes.c_int64 * MAX_DIMS)(*spec.shape)
                kept.append(shape)
                tensors[i] = _DLTensor(None, spec.device, spec.ndim, spec.dtype, shape, None, 0)
                values[i].v.tensor = ctypes.pointer(tensors[i])
        call = _Call(ctypes.sizeof(_Call), n, values)
        specs = (_Spec * max(len(schema.results), 1))()
        if self.c.fl_infer(op, ctypes.byref(call), specs, len(schema.results), ctypes.sizeof(_Spec)):
            return None, self.c.fl_error_message().decode()
        found = [
            Tensor(tuple(s.shape[: s.ndim]), self.dtype_name(s.dtype)) if result.is_tensor and s.present else None
            for s, result in zip(specs, schema.results, strict=False)
        ]
        return tuple(found), ""

    def _dtype(self, name: str) -> _DLDataType:
        row = self.c.fl_element_type_named(name.encode())
        return ctypes.cast(row, ctypes.POINTER(_ElementType)).contents.dtype

    def refusal(self, name: str, values: list[Any]) -> str:
        """What the library says against arguments, "" if nothing."""
        schema = self.schemas[name]
        inputs = (_Input * max(len(values), 1))()
        kept = []
        for given, value in zip(inputs, values, strict=False):
            if isinstance(value, Tensor):
                shape = (ctypes.c_int64 * MAX_DIMS)(*value.shape)
                given.spec = _Spec(True, len(value.shape), self._dtype(value.dtype), _DLDevice(1, 0), shape)
            elif isinstance(value, bool):
                given.value = _Value(BOOL, 0, _Union(b=value))
            elif isinstance(value, int):
                given.value = _Value(INT, 0, _Union(i=value))
            elif isinstance(value, float):
                given.value = _Value(FLOAT, 0, _Union(f=value))
            elif isinstance(value, str):
                kept.append(value.encode())
                given.value = _Value(STRING, 0, _Union(s=kept[-1]))
            elif isinstance(value, list):
                kept.append((ctypes.c_int64 * len(value))(*value))
                given.value = _Value(INT_LIST, len(value), _Union(ints=kept[-1]))
        return self._infer(self.c.fl_find_op(self.host, name.encode()), schema, inputs)[1]

    def calls(self, name: str, numbers: range, seed: int = 1) -> Iterator[Call]:
        """Generated calls; those which the library cannot make are left out."""
        schema = self.schemas[name]
        op = self.c.fl_find_op(self.host, name.encode())
        assert op, self.c.fl_error_message()
        n = len(schema.arguments)
        for number in numbers:
            inputs = (_Input * max(n, 1))()
            if self.c.fl_generate_inputs(op, 0, seed, number, inputs, n, ctypes.sizeof(_Input)):
                continue
            results, message = self._infer(op, schema, inputs)
            arguments = [self._argument(inputs[i], a.type) for i, a in enumerate(schema.arguments)]
            yield Call(name, arguments, results, message)
