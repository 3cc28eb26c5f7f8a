"""The dispatcher of a checkout of vllm-plugin-FL, in this process, without FlagGems and vLLM.

Its package imports both for what has no part in dispatching; names that it asks for stand in for them.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any


def stub(name: str, **names: Any) -> None:
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(names)


def load(checkout: str) -> Any:
    """Its vllm_fl.dispatch; ImportError: there is none."""
    stub("flag_gems")
    stub("flag_gems.runtime", backend=None)
    stub("flag_gems.runtime.backend")
    detector = type("DeviceDetector", (), {"vendor_name": "nvidia", "name": "cuda"})
    stub("flag_gems.runtime.backend.device", DeviceDetector=detector)
    stub("vllm")
    stub("vllm.platforms", current_platform=types.SimpleNamespace(vendor_name="unknown"))
    sys.path.insert(0, checkout)
    import vllm_fl.dispatch

    return vllm_fl.dispatch


def manager_with(dispatch: Any, op_name: str, function: Callable[..., Any]) -> Any:
    """The default manager of a vllm_fl.dispatch, for this process, with a default and a reference of that operator."""
    manager = dispatch.get_default_manager()
    manager._state.initialized, manager._state.init_pid = True, os.getpid()
    for impl_id, kind in (("default.x", "DEFAULT"), ("reference.x", "REFERENCE")):
        impl = dispatch.OpImpl(op_name, impl_id, dispatch.BackendImplKind[kind], function)
        manager.registry.register_impl(impl)
    return manager
