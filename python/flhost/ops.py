"""The operators of the default host, as functions: flhost.ops.rms_norm(x, weight=w)."""

from __future__ import annotations

from typing import Any

from ._host import default_host


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from ._core import NotFound

    try:
        function = default_host().op(name).call
    except NotFound as error:
        raise AttributeError(str(error)) from None
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *default_host().ops()})
