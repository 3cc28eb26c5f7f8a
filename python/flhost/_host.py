"""Hosts."""

from __future__ import annotations

from typing import Any

from . import _core


class Host(_core.Host):
    """A host: a registry of implementations, a policy, and the plugins that were loaded."""


_default: Host | None = None


def default_host(**options: Any) -> Host:
    """The host that the process shares, made of the environment at first use; options make it before, and fail afterwards."""
    global _default
    if _default is None or options:
        _default = Host.default(**options)
    return _default
