"""What a platform is called, and its policy file: the host's, which finds the platform by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import _host

# vendor: (device type, device name), as vllm-plugin-FL calls them.
_VENDOR_DEVICES = {
    "nvidia": ("cuda", "nvidia"),
    "ascend": ("npu", "npu"),
    "iluvatar": ("cuda", "cuda"),
    "metax": ("cuda", "metax"),
    "mthreads": ("musa", "musa"),
    "sunrise": ("ptpu", "ptpu"),
    "hygon": ("cuda", "cuda"),
    "thead": ("cuda", "thead"),
    "enflame": ("gcu", "gcu"),
    "tsingmicro": ("txda", "txda"),
    "kunlunxin": ("cuda", "kunlunxin"),
}


def get_vendor_device_map() -> dict[str, dict[str, str]]:
    """A copy: vendor -> its device type and device name."""
    return {vendor: {"device_type": kind, "device_name": name} for vendor, (kind, name) in _VENDOR_DEVICES.items()}


def get_platform_name() -> str:
    """The platform that the host found, or was told (VLLM_FL_PLATFORM)."""
    return _host.platform_name()


def get_config_path(platform: str | None = None) -> Path | None:
    """The platform's policy file; None if it has none."""
    return _host.platform_file(platform or get_platform_name())


def _load(path: Any) -> dict[str, Any] | None:
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            loaded = yaml.safe_load(file)
    except (OSError, yaml.YAMLError):
        return None
    return loaded if isinstance(loaded, dict) else {}


def load_platform_config(platform: str | None = None) -> dict[str, Any] | None:
    path = get_config_path(platform)
    return None if path is None else _load(path)


def get_effective_config() -> dict[str, Any]:
    """What VLLM_FL_CONFIG names, else the platform's file."""
    path = _host.config_file()
    return (_load(path) if path else load_platform_config()) or {}


def _given(config: dict[str, Any] | None) -> dict[str, Any]:
    return config if config is not None else get_effective_config()


def get_per_op_order(config: dict[str, Any] | None = None) -> dict[str, list[str]] | None:
    orders = _given(config).get("op_backends")
    if not isinstance(orders, dict):
        return None
    lists = {
        str(op): [str(token) for token in order] if isinstance(order, list) else order.split("|")
        for op, order in orders.items()
        if isinstance(order, (list, str))
    }
    return lists or None


def _names(config: dict[str, Any] | None, key: str) -> list[str] | None:
    names = _given(config).get(key, [])
    return [str(name) for name in names] if isinstance(names, list) else None


def get_flagos_blacklist(config: dict[str, Any] | None = None) -> list[str] | None:
    return _names(config, "flagos_blacklist")


def get_oot_blacklist(config: dict[str, Any] | None = None) -> list[str] | None:
    return _names(config, "oot_blacklist")
