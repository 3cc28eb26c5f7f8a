"""Generated calls as torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from flhost.torch.rules import Tensor
from flhost.torch.schema import Schema
from generated import ASCENDING, DISTINCT, MODERATE, NORMAL, Argument, Call, Library


def _integers(argument: Argument, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    low, high = int(argument.low), int(argument.high)
    n = 1
    for size in shape:
        n *= size
    if argument.contents == ASCENDING:
        return torch.linspace(low, high, n).floor().to(dtype).reshape(shape)
    if argument.contents == DISTINCT:
        return (low + torch.arange(n) % (high - low + 1)).to(dtype).reshape(shape)
    return torch.randint(low, high + 1, shape).to(dtype)


def tensor(argument: Argument) -> torch.Tensor:
    """A tensor with contents that the op is fine with, finite and not large."""
    shape, dtype = argument.value.shape, getattr(torch, argument.value.dtype)
    if argument.contents in (NORMAL, MODERATE):
        return torch.randn(shape).to(dtype)
    if dtype.is_floating_point:
        return (torch.rand(shape) * (argument.high - argument.low) + argument.low).to(dtype)
    return _integers(argument, shape, dtype)


def arguments(call: Call) -> list[Any]:
    return [tensor(a) if isinstance(a.value, Tensor) else a.value for a in call.arguments]


def results(call: Call) -> list[torch.Tensor | None]:
    """Tensors to write into."""
    assert call.results is not None
    return [None if r is None else torch.zeros(r.shape, dtype=getattr(torch, r.dtype)) for r in call.results]


def named_results(schema: Schema, given: list[torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    return {value.name: tensor for value, tensor in zip(schema.results, given, strict=True)}


def _elements(call: Call) -> int:
    total = 0
    for argument in call.arguments:
        if isinstance(argument.value, Tensor):
            n = 1
            for size in argument.value.shape:
                n *= size
            total = max(total, n)
            if not n:
                return -1
    return total


def small_calls(library: Library, name: str, n: int) -> list[Call]:
    """Of the generated calls some small ones that are right, with elements in each tensor."""
    good = [call for call in library.calls(name, range(200)) if call.results is not None and _elements(call) >= 0]
    return sorted(good, key=_elements)[:n]
