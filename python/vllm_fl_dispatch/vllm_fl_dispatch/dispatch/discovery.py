"""Python plugins: the entry points of a group, then the modules that a variable names."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from .logger_manager import get_logger

PLUGIN_GROUP = "vllm_fl.plugin"
PLUGIN_MODULES_ENV = "VLLM_FL_PLUGIN_MODULES"

logger = get_logger()
_lock = threading.Lock()
_discovered: list[tuple[str, str, bool]] = []


class _Staged:
    """What a plugin is given for a registry: what it registers is kept back until it is done (R3)."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._impls: list[Any] = []

    def register_impl(self, impl: Any) -> None:
        existing = self.get_implementation(impl.op_name, impl.impl_id)
        if existing is not None:
            raise ValueError(
                f"Duplicate impl_id '{impl.impl_id}' for op='{impl.op_name}'. Existing: {existing!r}, New: {impl!r}"
            )
        self._impls.append(impl)

    def get_implementation(self, op_name: str, impl_id: str) -> Any:
        mine = (impl for impl in self._impls if (impl.op_name, impl.impl_id) == (op_name, impl_id))
        return next(mine, None) or self._registry.get_implementation(op_name, impl_id)

    def register_many(self, impls: Any) -> None:
        for impl in impls:
            self.register_impl(impl)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def commit(self) -> None:
        if self._impls:
            self._registry.register_many(self._impls)


def _get_entry_points() -> list[Any]:
    try:
        from importlib.metadata import entry_points

        return list(entry_points(group=PLUGIN_GROUP))
    except Exception as error:
        logger.warning(f"Error accessing entry points: {error}")
        return []


def _record(name: str, route: str, success: bool) -> bool:
    with _lock:
        _discovered.append((name, route, success))
    return success


def _call_register_function(loaded: Any, registry: Any, source_name: str) -> bool:
    """Calls what registers: the object itself if it can be called, or a function of the module."""
    from .registry import OpRegistry

    direct = callable(loaded) and not isinstance(loaded, type)
    register = loaded if direct else None
    for name in () if direct else ("vllm_fl_register", "register", "register_builtins"):
        register = getattr(loaded, name, None)
        if callable(register):
            break
    if not callable(register):
        logger.debug(f"No register function found in {source_name}")
        return False
    staged = _Staged(registry) if isinstance(registry, OpRegistry) else None
    try:
        register(registry if staged is None else staged)
        if staged is not None:
            staged.commit()
    except Exception as error:
        what = "plugin" if direct else "register function in"
        logger.error(f"Error calling {what} {source_name}: {error}")
        return False
    logger.info(f"Registered plugin from {source_name}{' (direct callable)' if direct else ''}")
    return True


def discover_from_entry_points(registry: Any) -> int:
    found = _get_entry_points()
    if not found:
        logger.debug(f"No entry points found for group: {PLUGIN_GROUP}")
        return 0
    logger.debug(f"Found {len(found)} entry points")
    loaded = 0
    for entry in found:
        logger.debug(f"Loading entry point: {entry.name}")
        try:
            plugin = entry.load()
        except Exception as error:
            logger.error(f"Failed to load entry point {entry.name}: {error}")
            _record(entry.name, "entry_point", False)
            continue
        source = f"entry_point:{entry.name}"
        loaded += _record(entry.name, "entry_point", _call_register_function(plugin, registry, source))
    return loaded


def _is_native(name: str) -> bool:
    """Is it a C plugin's, which the host loads? A path, or a name that it knows."""
    return "/" in name or name.endswith(".so") or ".so:" in name


def discover_from_env_modules(registry: Any) -> int:
    listed = [name.strip() for name in os.environ.get(PLUGIN_MODULES_ENV, "").split(",")]
    names = [name for name in listed if name and not _is_native(name)]
    if not names:
        return 0
    logger.debug(f"Loading plugins from env var: {names}")
    loaded = 0
    for name in names:
        logger.debug(f"Importing module: {name}")
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            logger.error(f"Failed to import plugin module {name}: {error}")
            _record(name, "env_module", False)
            continue
        except Exception as error:
            logger.error(f"Error loading plugin module {name}: {error}")
            _record(name, "env_module", False)
            continue
        loaded += _record(name, "env_module", _call_register_function(module, registry, f"env_module:{name}"))
    return loaded


def discover_plugins(registry: Any) -> int:
    """How many were registered."""
    if registry is None:
        logger.warning("Registry is None, skipping plugin discovery")
        return 0
    logger.debug("Starting plugin discovery...")
    total = discover_from_entry_points(registry) + discover_from_env_modules(registry)
    logger.debug(f"Plugin discovery complete. Loaded {total} plugins.")
    return total


def get_discovered_plugins() -> list[tuple[str, str, bool]]:
    """(name, "entry_point" or "env_module", whether it was registered) of each."""
    with _lock:
        return list(_discovered)


def clear_discovered_plugins() -> None:
    with _lock:
        _discovered.clear()
