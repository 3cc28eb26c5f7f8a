"""The provider `flhost` of vLLM's IR ops.

vLLM compares the annotations of an implementation with those of its op, so they are types here, not strings.
"""

import logging
import math
from typing import Any

import torch
from torch import Tensor

from .settings import PROVIDER

logger = logging.getLogger("vllm.flhost")

# What the host has kernels for, by the name of the op: devices and dtypes. supports_args reads it; on the CPU Dynamo
# traces into that, so that it cannot ask the host then.
_taken: dict[str, set[tuple[str, torch.dtype]]] = {}


def _takes(op: str, x: Tensor) -> bool:
    return (x.device.type, x.dtype) in _taken[op]


def _weight_goes_with(x: Tensor, weight: Tensor | None) -> bool:
    return weight is None or weight.dtype in (x.dtype, torch.float32)


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    return torch.ops.flhost.rms_norm.default(x, None, weight, epsilon, variance_size)[0]


def rms_norm_supports(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    return _takes("rms_norm", x) and _weight_goes_with(x, weight)


def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    return torch.ops.flhost.fused_add_rms_norm.default(x, x_residual, weight, epsilon, variance_size)


def fused_add_rms_norm_supports(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return _takes("fused_add_rms_norm", x) and x_residual.dtype == x.dtype and _weight_goes_with(x, weight)


def sparsity_of(multiplier: float) -> float:
    """The part of a standard normal distribution that is below a multiple of its deviation, which is what vLLM keeps."""
    return 0.5 * (1.0 + math.erf(multiplier / math.sqrt(2.0)))


def gelu_and_mul_sparse(x: Tensor, std_multiplier: float, approximate: str = "none") -> Tensor:
    return torch.ops.flhost.gelu_and_mul_sparse.default(x, sparsity_of(std_multiplier), approximate)


def gelu_and_mul_sparse_supports(x: Tensor, std_multiplier: float, approximate: str = "none") -> bool:
    return _takes("gelu_and_mul_sparse", x)


_IMPLS = {
    "rms_norm": (rms_norm, rms_norm_supports),
    "fused_add_rms_norm": (fused_add_rms_norm, fused_add_rms_norm_supports),
    "gelu_and_mul_sparse": (gelu_and_mul_sparse, gelu_and_mul_sparse_supports),
}


def provide(host: Any) -> list[str]:
    """Registers the provider with each IR op that this vLLM has; their names."""
    try:
        import vllm.ir.ops  # noqa: F401
        from vllm.ir.op import IrOp
    except ImportError as error:
        logger.debug("flhost: this vLLM has no IR: %s", error)
        return []
    provided = []
    for name, (impl, supports) in _IMPLS.items():
        ir_op = IrOp.registry.get(name)
        if ir_op is None:
            logger.debug("flhost: this vLLM has no IR op %s", name)
            continue
        _taken[name] = {
            (device, getattr(torch, dtype))
            for row in host.impls(name)
            for device in row["devices"]
            for dtype in row["dtypes"] or ("float32", "float16", "bfloat16")
            if hasattr(torch, dtype)
        }
        if PROVIDER not in ir_op.impls:
            ir_op.register_impl(PROVIDER, supports_args=supports)(impl)
        provided.append(name)
    return provided
