"""How a call as vLLM's layers make it reads for implementations that take values: a table by op.

An adapter is given the arguments of a call and gives back None, where such an implementation cannot carry it out, or the
op's arguments and results, in the order of its schema, and what the call returns: an object, or a function that makes it
of those results that are no tensors, when they are there. It writes nothing that the caller has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Adapted = tuple[tuple[Any, ...], tuple[Any, ...], Any] | None


def _empty(like: Any, *shape: int, dtype: str | None = None) -> Any:
    """A tensor for a result, of the same library, device and, unless another is named, element type."""
    if hasattr(like, "new_empty"):
        if dtype is None:
            return like.new_empty(shape)
        import torch

        return like.new_empty(shape, dtype=getattr(torch, dtype))
    import numpy

    return numpy.empty(shape, dtype or like.dtype)


def _has_dtype(tensor: Any, *names: str) -> bool:
    return str(tensor.dtype).removeprefix("torch.") in names


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


def _silu_and_mul_with_clamp(x: Any, swiglu_limit: Any, swiglu_limit_tensor: Any = None) -> Adapted:
    """Its layer gives the limit twice, as a number and as a tensor."""
    if not isinstance(swiglu_limit, (int, float)):
        return None
    out = _half(x)
    return (x, float(swiglu_limit), 1.0, 0.0), (out,), out


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
    """`token_expert_indices` is what vLLM's kernel leaves to itself; nobody reads it."""
    if not _has_dtype(topk_indices, "int32"):
        return None
    arguments = (gating_output, int(topk_weights.shape[-1]), bool(renormalize))
    return arguments, (topk_weights, topk_indices), (topk_weights, topk_indices)


def _grouped_topk(
    scores: Any,
    n_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: Any,
    scoring_func: int = 0,
) -> Adapted:
    """scoring_func 1 is the sigmoid; 0, scores as they are, is nothing that the op has a word for."""
    if int(scoring_func) != 1:
        return None
    if bias is None and n_group > 1:  # groups are compared by the sum of their two best even so
        bias = _empty(scores, scores.shape[-1], dtype="float32")
        bias[:] = 0
    if bias is not None and bias.dtype != scores.dtype and not _has_dtype(bias, "float32"):
        return None
    shape = (*scores.shape[:-1], int(topk))
    results = (_empty(scores, *shape, dtype="float32"), _empty(scores, *shape, dtype="int32"))
    bias = None if bias is None else _plain(bias)
    scaling = float(routed_scaling_factor)
    return (scores, int(topk), bool(renormalize), n_group, topk_group, "sigmoid", scaling, bias), results, results


def _moe_align_block_size(
    topk_ids: Any,
    block_size: int,
    num_experts: int,
    expert_map: Any = None,
    pad_sorted_ids: bool = False,
    ignore_invalid_experts: bool = False,
) -> Adapted:
    """The results are as long as vLLM makes them: shorter than the op's where few places can fill few blocks, and with
    pad_sorted_ids longer. Leaving experts of other ranks out (ignore_invalid_experts) is nothing that the op does."""
    if len(topk_ids.shape) != 2 or not _has_dtype(topk_ids, "int32", "int64"):
        return None
    if expert_map is not None and ignore_invalid_experts:
        return None
    numel = int(topk_ids.shape[0] * topk_ids.shape[1])
    needed = numel + num_experts * (block_size - 1)
    blocks = -(-needed // block_size)
    given = blocks * block_size if pad_sorted_ids else needed
    if numel < num_experts:
        given = min(numel * block_size, given)
    places = _empty(topk_ids, max(needed, given), dtype="int32")
    places[needed:] = numel  # what lies behind the op's result
    experts = _empty(topk_ids, blocks, dtype="int32")
    count = _empty(topk_ids, 1, dtype="int32")

    def answer() -> Any:
        of_blocks = experts[: -(-given // block_size)]
        return places[:given], of_blocks if expert_map is None else expert_map[of_blocks], count

    return (topk_ids, num_experts, block_size), (places[:needed], experts, count), answer


def _attention_backend(use_mla: bool = False, use_sparse: bool = False) -> Adapted:
    return (bool(use_mla), bool(use_sparse)), (None,), str


_ADAPTERS: dict[str, Callable[..., Adapted]] = {
    "silu_and_mul": _silu_and_mul,
    "gelu_and_mul": _gelu_and_mul,
    "silu_and_mul_with_clamp": _silu_and_mul_with_clamp,
    "rms_norm": _rms_norm,
    "rotary_embedding": _rotary_embedding,
    "moe_sum": _moe_sum,
    "topk_softmax": _topk_softmax,
    "grouped_topk": _grouped_topk,
    "moe_align_block_size": _moe_align_block_size,
    "attention_backend": _attention_backend,
}


def find(op_name: str) -> Callable[[tuple, dict | None], Adapted] | None:
    """The op's adapter, for the arguments as a tuple and a dictionary; None if it has none."""
    adapter = _ADAPTERS.get(op_name)
    if adapter is None:
        return None
    return lambda args, kwargs: adapter(*args, **(kwargs or {}))
