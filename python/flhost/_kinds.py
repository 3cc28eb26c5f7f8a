"""New tensors, and streams, of libraries that hand out no functions in C for it. A row for each, by the first part of the
name of the module that a tensor's type is from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _numpy_dtype(name: str) -> Any:
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"numpy has no {name} without the package ml_dtypes; tensors of torch have it") from None
    return numpy.dtype(getattr(ml_dtypes, name))


def _numpy(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    import numpy

    if device != "cpu":
        raise TypeError(f"numpy has no memory on {device}; expected out=, or a tensor of that device as first argument")
    return numpy.empty(shape, _numpy_dtype(dtype))


def _torch(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)


def _cupy(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    import cupy  # type: ignore[import-not-found]

    with like.device:
        return cupy.empty(shape, _numpy_dtype(dtype))


def _jax(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    import jax  # type: ignore[import-not-found]

    if device != "cpu":
        raise TypeError(f"results in JAX's memory on {device}: JAX does not say which stream uses it")
    return jax.block_until_ready(jax.numpy.empty(shape, _numpy_dtype(dtype), device=like.device))


def _standard(like: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """By the array API standard."""
    namespace = like.__array_namespace__()
    return namespace.empty(shape, dtype=getattr(namespace, dtype), device=like.device)


_ALLOCATE: dict[str, Callable[[Any, tuple[int, ...], str, str], Any]] = {
    "numpy": _numpy,
    "torch": _torch,
    "cupy": _cupy,
    "jax": _jax,
    "jaxlib": _jax,
}


def _library(like: Any) -> str:
    """Of a class that is derived from a library's tensor the library's."""
    for type_ in type(like).__mro__:
        name = type_.__module__.partition(".")[0]
        if name in _ALLOCATE:
            return name
    return ""


def allocate(like: Any, spec: tuple[tuple[int, ...], str, str]) -> Any:
    """A tensor of the same library as `like` (None: numpy), of (shape, dtype, device)."""
    make = _numpy if like is None else _ALLOCATE.get(_library(like))
    if make is None:
        make = _standard if hasattr(like, "__array_namespace__") else _numpy
    return make(like, *spec)


def _cupy_stream(like: Any) -> int:
    import cupy

    with like.device:
        return int(cupy.cuda.get_current_stream().ptr)


_STREAM: dict[str, Callable[[Any], int]] = {"cupy": _cupy_stream}


def stream(like: Any) -> int:
    """The address of the stream that the library's work on that tensor's device goes to; 0: the default one."""
    find = _STREAM.get(_library(like))
    return find(like) if find else 0
