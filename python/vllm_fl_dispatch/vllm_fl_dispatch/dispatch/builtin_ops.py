"""What is registered when a manager is first used: the backends of an installed vllm_fl, then plugins. Those of the host
are registered by the host."""

from __future__ import annotations

import importlib
import os

from .config import get_vendor_device_map
from .logger_manager import get_logger
from .registry import OpRegistry

logger = get_logger()
_PACKAGE = "vllm_fl.dispatch"


def _find_backends() -> str:
    """Where an installed vllm_fl has its vendors' backends; a directory that is not there if it is not installed."""
    package = importlib.import_module(_PACKAGE)
    places = [os.path.join(path, "backends", "vendor") for path in package.__path__]
    return next((place for place in places if os.path.isdir(place)), places[-1])


_VENDOR_BACKENDS_DIR = _find_backends()


def _find_vendor_backend_dir(vendor_name: str, available_vendor_dirs: set[str]) -> str | None:
    """Which of the directories is the vendor's, by its own name or its device's; None if none is."""
    vendor = {"maca": "metax"}.get(vendor_name, vendor_name)
    device = get_vendor_device_map().get(vendor)
    if device is None:
        return None
    names = (vendor, device["device_name"], device["device_type"])
    return next((name for name in names if name in available_vendor_dirs), None)


def _get_current_vendor_backend_dirs(available_vendor_dirs: set[str]) -> str | None:
    try:
        from vllm.platforms import current_platform

        vendor = getattr(current_platform, "vendor_name", None)
    except Exception as error:
        raise RuntimeError("Failed to detect current vendor backend from current_platform.") from error
    return _find_vendor_backend_dir(vendor, available_vendor_dirs) if isinstance(vendor, str) and vendor else None


def _register_vendor_backends(registry: OpRegistry) -> None:
    """The one of the vendor whose device this is."""
    if not os.path.isdir(_VENDOR_BACKENDS_DIR):
        logger.debug(f"Vendor backends directory not found: {_VENDOR_BACKENDS_DIR}")
        return
    available = {
        name
        for name in os.listdir(_VENDOR_BACKENDS_DIR)
        if not name.startswith("_") and os.path.isdir(os.path.join(_VENDOR_BACKENDS_DIR, name))
    }
    current = _get_current_vendor_backend_dirs(available)
    if not current:
        logger.warning("Unable to detect current vendor backend; skipping vendor backend registration")
        return
    logger.info("Registering vendor backends for current platform: %s", current)
    for vendor in sorted(available - {current}):
        logger.debug("Skipping vendor backend '%s' for current platform", vendor)
    if not os.path.isfile(os.path.join(_VENDOR_BACKENDS_DIR, current, "register_ops.py")):
        return
    try:
        module = importlib.import_module(f".backends.vendor.{current}.register_ops", package=_PACKAGE)
        module.register_builtins(registry)
        logger.debug(f"Registered {current} operators")
    except Exception as error:
        logger.warning(f"{current} operators not available: {error}")


def _register_backend(registry: OpRegistry, folder: str, name: str) -> None:
    """One that comes with vllm_fl, whole or not at all."""
    try:
        module = importlib.import_module(f".backends.{folder}.register_ops", package=_PACKAGE)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(f"{_PACKAGE}.backends"):
            logger.debug(f"{name} operators come with vllm_fl, which is not installed")
        else:
            logger.warning(f"Failed to register {name} operators: {error}")
        return
    except Exception as error:
        logger.warning(f"Failed to register {name} operators: {error}")
        return
    try:
        module.register_builtins(registry)
        logger.debug(f"Registered {name} operators")
    except Exception as error:
        logger.warning(f"Failed to register {name} operators: {error}")


def register_builtins(registry: OpRegistry) -> None:
    from .discovery import discover_plugins

    _register_backend(registry, "flaggems", "FlagGems")
    _register_backend(registry, "reference", "Reference")
    _register_vendor_backends(registry)
    try:
        count = discover_plugins(registry)
        if count:
            logger.debug(f"Registered {count} external plugins")
    except Exception as error:
        logger.debug(f"Plugin discovery failed: {error}")
