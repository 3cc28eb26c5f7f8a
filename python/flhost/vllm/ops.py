"""The torch ops that the layers call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# What vLLM's IR ops call. While Dynamo traces one, it is too late to register an op.
IR_OPS = ("rms_norm", "fused_add_rms_norm", "gelu_and_mul_sparse")


def torch_op(name: str, overload: str = "default") -> Callable[..., Any]:
    """torch.ops.flhost.<name>: functional, it allocates what it returns; "out" is given that. Makes the default host, if
    there is none."""
    from flhost.torch import register

    register((name, *IR_OPS))
    return getattr(getattr(torch.ops.flhost, name), overload)
