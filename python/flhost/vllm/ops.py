"""The torch ops that the layers call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def torch_op(name: str) -> Callable[..., Any]:
    """torch.ops.flhost.<name>, functional: it allocates what it returns."""
    import flhost.torch  # registers them

    del flhost
    return getattr(torch.ops.flhost, name).default
