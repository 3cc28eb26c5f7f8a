"""What an implementation is, as Python backends describe it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class BackendImplKind(str, Enum):
    """Whose an implementation is."""

    DEFAULT = "flagos"
    REFERENCE = "reference"
    VENDOR = "vendor"

    def __str__(self) -> str:
        return self.value


class BackendPriority:
    """Higher first among implementations that match the same token."""

    DEFAULT = 150
    VENDOR = 100
    REFERENCE = 50


@dataclass(frozen=True)
class OpImpl:
    """One implementation of one op. supported_dtypes and min_arch are kept and not looked at, as ever."""

    op_name: str
    impl_id: str
    kind: BackendImplKind
    fn: Callable[..., Any]
    vendor: str | None = None
    priority: int = 0
    supported_dtypes: set[str] | None = None
    min_arch: str | None = None

    def __post_init__(self) -> None:
        if self.kind == BackendImplKind.VENDOR and not self.vendor:
            raise ValueError(f"OpImpl with kind=VENDOR must specify vendor name: {self.impl_id}")

    def is_available(self) -> bool:
        """What the function's `_is_available` says; without one it is available, with one that raises it is not."""
        ask = getattr(self.fn, "_is_available", None)
        if not callable(ask):
            return True
        try:
            return bool(ask())
        except Exception:
            return False


def match_token(impl: OpImpl, token: str) -> bool:
    """Does a token of an order mean this implementation? For callers: the host matches by itself."""
    word, colon, name = token.partition(":")
    if not colon:
        return any(token == kind.value and impl.kind == kind for kind in BackendImplKind)
    if word == "vendor":
        return impl.kind == BackendImplKind.VENDOR and impl.vendor == name
    return word == "impl" and impl.impl_id == name
