"""flhost: operators for machine learning, by the plugins of whoever has the fastest.

    import flhost
    y = flhost.ops.rms_norm(x, weight=w)          # torch, numpy: any tensor with DLPack
    with flhost.prefer("reference"):
        y = flhost.ops.rms_norm(x, weight=w)
    print(flhost.default_host().explain("rms_norm"))

Importing this loads nothing: the library comes with the first name that is used, plugins with the first call.
"""

from __future__ import annotations

import importlib
from typing import Any

# Where each public name lies.
_HOMES = {
    "__version__": "._core",
    "ops": ".ops",
    **dict.fromkeys(
        (
            "Error",
            "InvalidArgument",
            "WrongType",
            "NotSupported",
            "OutOfMemory",
            "DeviceError",
            "InternalError",
            "NoImplementation",
            "ConfigError",
            "PluginError",
            "AlreadyExists",
            "NotFound",
            "StateError",
            "Policy",
            "Op",
            "Prepared",
        ),
        "._core",
    ),
    **dict.fromkeys(
        (
            "Host",
            "Scope",
            "default_host",
            "prepare",
            "policy",
            "prefer",
            "strict",
            "allow_vendors",
            "deny_vendors",
            "op_order",
        ),
        "._host",
    ),
}

__all__ = [name for name in _HOMES if name != "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flhost' has no attribute {name!r}")
    module = importlib.import_module(home, __name__)
    value = module if name == "ops" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
