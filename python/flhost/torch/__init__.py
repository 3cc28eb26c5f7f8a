"""The ops as torch's: torch.ops.flhost.rms_norm(x, weight=w), for torch.compile, torch.export and CUDA graphs.

    import flhost.torch
    flhost.torch.register()

Each op has two overloads: one allocates its results, `.out` writes into those that it is given, which may be arguments
where the op allows it. Ops whose weights somebody prepares have `.prepared` as well. docs/torch.md says more.
"""

from __future__ import annotations

from typing import Any

__all__ = ["handle", "register", "use_threads"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'flhost.torch' has no attribute {name!r}")
    from . import library, threads

    values: dict[str, Any] = {
        "handle": library.handle,
        "register": library.register,
        "use_threads": threads.use_threads,
    }
    globals().update(values)
    return values[name]
