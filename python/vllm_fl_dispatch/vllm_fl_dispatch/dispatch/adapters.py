"""How a call as vLLM's layers make it reads for implementations that take values: a table by op.

An adapter is given the arguments of a call and gives back None, where such an implementation cannot carry it out, or the
op's arguments and results, in the order of its schema, and what the call returns. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Adapted = tuple[tuple[Any, ...], tuple[Any, ...], Any] | None


def _empty(like: Any, *shape: int) -> Any:
    """A tensor for a result, of the same library, element type and device."""
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    import numpy

    return numpy.empty(shape, like.dtype)


def _plain(tensor: Any) -> Any:
    """Without autograd, which ends at the implementation."""
    detach = getattr(tensor, "detach", None)
    return tensor if detach is None else detach()


def _half(x: Any) -> Any:
    return _empty(x, *x.shape[:-1], x.shape[-1] // 2)


def _silu_and_mul(obj: Any, x: Any) -> Adapted:
    out = _half(x)
    return (x,), (out,), out


def _gelu_and_mul(obj: Any, x: Any) -> Adapted:
    out = _half(x)
    return (x, getattr(obj, "approximate", "none")), (out,), out


def _silu_and_mul_with_clamp(obj: Any, x: Any) -> Adapted:
    out = _half(x)
    limit = getattr(obj, "swiglu_limit", None)
    if limit is None:
        return None
    return (x, float(limit), float(getattr(obj, "alpha", 1.0)), float(getattr(obj, "beta", 0.0))), (out,), out


def _rms_norm(obj: Any, x: Any, residual: Any = None) -> Adapted:
    weight = getattr(obj, "weight", None)
    out = _empty(x, *x.shape)
    total = None if residual is None else _empty(x, *x.shape)
    size = getattr(obj, "variance_size_override", None)
    arguments = (x, residual, None if weight is None else _plain(weight), float(obj.variance_epsilon), size)
    return arguments, (out, total), out if residual is None else (out, total)


def _rotary_embedding(
    obj: Any,
    query: Any,
    key: Any,
    cos: Any,
    sin: Any,
    position_ids: Any,
    rotary_interleaved: bool = False,
    inplace: bool = True,
) -> Adapted:
    if len(position_ids.shape) != 1 or len(query.shape) not in (2, 3):
        return None
    arguments = (query, key, cos, sin, position_ids, bool(rotary_interleaved), 0, False)
    results = (query, key) if inplace else (_empty(query, *query.shape), _empty(key, *key.shape))
    return arguments, results, results


def _moe_sum(inp: Any, out: Any) -> Adapted:
    return (inp,), (out,), None


def _topk_softmax(
    topk_weights: Any, topk_indices: Any, token_expert_indices: Any, gating_output: Any, renormalize: bool = False
) -> Adapted:
    if str(topk_indices.dtype) not in ("torch.int32", "int32"):
        return None
    arguments = (gating_output, int(topk_weights.shape[-1]), bool(renormalize))
    return arguments, (topk_weights, topk_indices), (topk_weights, topk_indices)


_ADAPTERS: dict[str, Callable[..., Adapted]] = {
    "silu_and_mul": _silu_and_mul,
    "gelu_and_mul": _gelu_and_mul,
    "silu_and_mul_with_clamp": _silu_and_mul_with_clamp,
    "rms_norm": _rms_norm,
    "rotary_embedding": _rotary_embedding,
    "moe_sum": _moe_sum,
    "topk_softmax": _topk_softmax,
}


def find(op_name: str) -> Callable[[tuple, dict | None], Adapted] | None:
    """The op's adapter, for the arguments as a tuple and a dictionary; None if it has none."""
    adapter = _ADAPTERS.get(op_name)
    if adapter is None:
        return None
    return lambda args, kwargs: adapter(*args, **(kwargs or {}))
