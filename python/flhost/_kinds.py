"""New tensors of the libraries that hand out no functions of C for it."""

from __future__ import annotations

from typing import Any


def _numpy(shape: tuple[int, ...], dtype: str, device: str) -> Any:
    import numpy

    if device != "cpu":
        raise ValueError(f"numpy has no memory on {device}")
    try:
        kind = numpy.dtype(dtype)
    except TypeError:
        import ml_dtypes

        kind = numpy.dtype(getattr(ml_dtypes, dtype))
    return numpy.empty(shape, kind)


def allocate(like: Any, spec: tuple[tuple[int, ...], str, str]) -> Any:
    """A tensor of the same library as `like` (None: numpy), of (shape, dtype, device)."""
    return _numpy(*spec)
