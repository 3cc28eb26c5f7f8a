"""All that the dispatcher asks of flhost, in one place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import flhost
from flhost import _core

# Kinds as the C header numbers them.
_KINDS = {"flagos": 1, "vendor": 2, "reference": 3}

# In place of a device: a call with Python objects, which has none.
OPAQUE = None


def make_host() -> Any:
    """A host of one's own, which finds its plugins as every host does."""
    return flhost.Host()


def shared_host() -> Any:
    """The one that the process shares."""
    return flhost.default_host()


def _settings_host() -> Any:
    """A host without plugins, for what is asked before any manager has one: it has the settings of this moment."""
    return flhost.Host(plugins=False)


# ------------------------------------------------------------------------------------------------------------- policies


def make_policy(**fields: Any) -> Any:
    try:
        return _core.Policy(**fields)
    except flhost.Error as error:
        raise ValueError(str(error)) from error


def policy_from_config(path: str) -> dict[str, Any]:
    try:
        return _core.Policy.from_config(path).fields
    except flhost.Error as error:
        raise ValueError(f"Failed to load config file '{path}': {error}") from error


def policy_from_environment() -> dict[str, Any]:
    try:
        return policy_fields(_settings_host())
    except flhost.ConfigError as error:
        raise ValueError(str(error)) from error


def set_policy(host: Any, policy: Any) -> None:
    host.set_global_policy(policy)


def reset_policy(host: Any) -> None:
    try:
        host.reset_global_policy()
    except flhost.ConfigError as error:
        raise ValueError(str(error)) from error


def policy_fields(host: Any) -> dict[str, Any]:
    return host.get_policy().fields


# ------------------------------------------------------------------------------------------------------ implementations


def has_op(host: Any, op: str) -> bool:
    try:
        host.op(op)
    except flhost.NotFound:
        return False
    return True


def register(host: Any, impl: Any, is_available: Any) -> None:
    """An op that has no C form is declared on the way."""
    kind = _KINDS.get(str(impl.kind), 0)
    try:
        if not has_op(host, impl.op_name):
            host.register_op(f"{impl.op_name}() -> ()")
        _core.register_impl(
            host,
            impl.op_name,
            impl.impl_id,
            impl.fn,
            kind,
            impl.vendor,
            int(impl.priority),
            None,
            0,
            is_available,
            None,
            None,
        )
    except flhost.Error as error:
        raise ValueError(str(error)) from error


def withdraw(host: Any, op: str, impl_id: str) -> None:
    _core.withdraw_impl(host, op, impl_id)


def device_of(host: Any) -> str:
    """The platform's devices: where the winner is looked for when no call says."""
    active = host.platform()
    named = (platform for platform in active["platforms"] if platform["name"] == active["active"])
    return str(next(named, {}).get("device_type") or "cpu")


def candidates(host: Any, op: str, device: str | None, policy: Any | None) -> tuple[list[dict[str, Any]], str | None]:
    """The candidates in order, and why there are none."""
    token = host.enter(policy) if policy is not None else None
    try:
        found = host.explain(op, device)
    except flhost.NotFound:
        return [], f"No available implementation for op='{op}'. Registered: []"
    finally:
        if token is not None:
            host.leave(token)
    return [impl for impl in found["impls"] if impl["verdict"] != "rejected"], found["error"]


def failed(host: Any, op: str | None) -> dict[str, dict[str, str]]:
    by_op: dict[str, dict[str, str]] = {}
    try:
        listed = host.failed_impls(op)
    except flhost.NotFound:
        return by_op
    for item in listed:
        by_op.setdefault(item["op"], {})[item["impl_id"]] = item["reason"]
    return by_op


# ------------------------------------------------------------------------------------------------------------- platform


def platform_name() -> str:
    return str(_settings_host().platform()["active"])


def platform_file(platform: str) -> Path | None:
    """Platform files lie beside each other."""
    active = _settings_host().platform()["config_file"]
    path = Path(active).parent / f"{platform}.yaml" if active else None
    return path if path is not None and path.is_file() else None


def config_file() -> str | None:
    return os.environ.get("VLLM_FL_CONFIG", "").strip() or None
