"""Python functions as implementations of ops: Host.register_impl."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import _core
from ._core import InvalidArgument, WrongType

_KINDS = {"flagos": 1, "vendor": 2, "reference": 3}
_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float64", "int32", "int64", "uint8", "int8", "bool")
_TENSOR = "Tensor"


def _from_dlpack(tensors: str | None) -> Callable[[Any], Any]:
    """What makes tensors of that library of views, without a copy. None: torch where it is imported by now, else numpy."""
    if tensors is None:
        tensors = "torch" if "torch" in sys.modules else "numpy"
    if tensors not in ("torch", "numpy"):
        raise InvalidArgument(f"register_impl: tensors {tensors!r}, expected one of: torch, numpy")
    from_dlpack = importlib.import_module(tensors).from_dlpack
    return lambda value: from_dlpack(value) if isinstance(value, _core.View) else value


class ByValues:
    """Calls a function with views of the call's tensors, and puts into the results what it gives back."""

    def __init__(
        self,
        function: Callable[..., Any],
        tensor: Callable[[Any], Any],
        results: tuple[str, ...],
        is_tensor: tuple[bool, ...],
    ) -> None:
        self.function = function
        self.tensor = tensor
        self.names = results
        self.is_tensor = is_tensor
        self.strings: dict[str, str] = {}  # results that are strings live here
        self.takes_results = all(map(self._takes, results)) and bool(results)

    def _takes(self, name: str) -> bool:
        try:
            parameter = inspect.signature(self.function).parameters.get(name)
        except (TypeError, ValueError):
            return False
        return parameter is not None and parameter.kind is not parameter.POSITIONAL_ONLY

    def __call__(self, arguments: tuple[Any, ...], results: tuple[Any, ...]) -> tuple[Any, ...]:
        given = tuple(map(self.tensor, arguments))
        if self.takes_results:
            outputs = map(self.tensor, results)
            returned = self.function(*given, **dict(zip(self.names, outputs, strict=False)))
            if returned is None and all(self.is_tensor):
                return ()
        else:
            returned = self.function(*given)
        return self._store(returned, results)

    def _store(self, returned: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
        items = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        items += tuple(None for place in results[len(items) :] if place is None)  # what is not asked for
        if len(items) != len(results):
            raise ValueError(f"it gave back {len(items)} results, expected {len(results)}: {', '.join(self.names)}")
        for name, item, place, is_tensor in zip(self.names, items, results, self.is_tensor, strict=False):
            if is_tensor and place is not None:
                self._copy(name, item, self.tensor(place))
        return tuple(item for item, is_tensor in zip(items, self.is_tensor, strict=False) if not is_tensor)

    @staticmethod
    def _copy(name: str, item: Any, output: Any) -> None:
        shape = getattr(item, "shape", None)
        if shape is None or tuple(shape) != tuple(output.shape):
            found = type(item).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ValueError(f"result '{name}': {found}, expected shape {tuple(output.shape)}")
        if item is not output:
            output[...] = item


def _dtype_bits(words: Iterable[str]) -> int:
    bits = 0
    for word in words:
        if word not in _DTYPES:
            raise InvalidArgument(f"register_impl: dtype {word!r}, expected one of: {', '.join(_DTYPES)}")
        bits |= 1 << _DTYPES.index(word)
    return bits


def register(
    host: _core.Host,
    op: str,
    impl_id: str,
    function: Callable[..., Any],
    *,
    kind: str,
    vendor: str | None,
    priority: int | None,
    devices: Iterable[str] | None,
    dtypes: Iterable[str],
    is_available: Callable[[], bool] | None,
    supports_args: Callable[..., bool] | None,
    tensors: str | None,
) -> None:
    """Registers a function; see Host.register_impl."""
    for name, words in (("devices", devices), ("dtypes", dtypes)):
        if isinstance(words, str):
            raise WrongType(f"register_impl: {name} {words!r}, expected several strings: [{words!r}]")
    if kind not in _KINDS:
        raise InvalidArgument(f"register_impl: kind {kind!r}, expected one of: {', '.join(_KINDS)}")
    if not callable(function):
        raise InvalidArgument(f"register_impl: {function!r} is no function")
    results = host.op(op).results
    tensor = _from_dlpack(tensors)
    by_values = ByValues(
        function,
        tensor,
        tuple(result["name"] for result in results),
        tuple(result["type"] == _TENSOR for result in results),
    )
    asked = None if supports_args is None else lambda *views: supports_args(*map(tensor, views))
    _core.register_impl(
        host,
        op,
        impl_id,
        function,
        _KINDS[kind],
        vendor,
        priority,
        None if devices is None else tuple(devices),
        _dtype_bits(dtypes),
        is_available,
        asked,
        by_values,
    )
