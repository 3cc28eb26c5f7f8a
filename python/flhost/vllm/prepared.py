"""Weights that are prepared once they are loaded, where VLLM_FL_PREPARE_WEIGHTS asks for it.

A layer holds the handle of its prepared weights as a buffer, which a compiled graph is handed like the weight itself: the
graph holds no number of this process's, and what was compiled serves each layer and each process.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

logger = logging.getLogger("vllm.flhost")

ROWS = 64  # of the call that is prepared for; any number serves


def prepare(op: str, *arguments: Any) -> Any:
    """The Prepared of a call with these weights; None where that is not asked for, nobody prepares them, or it fails."""
    from flhost import Error, default_host

    host = default_host()
    if not host.config()["prepare_weights"]["value"]:
        return None
    try:
        prepared = host.op(op).prepare(*arguments)
    except Error as error:
        logger.warning("flhost: weights stay as they were loaded: %s", error)
        return None
    if not prepared.bytes:
        return None
    logger.debug("flhost: %s: %d bytes of prepared weights for %s", op, prepared.bytes, prepared.impl_id)
    return prepared


class LinearWeights:
    """Those of one linear layer."""

    def __init__(self, op: str) -> None:
        self.op = op
        self._prepared: Any = None
        self._handle: torch.Tensor | None = None
        self._address = 0

    def prepare(self, layer: Any) -> bool:
        """After the layer's weights were loaded: whether it has a handle, its buffer `flhost_prepared`.

        Where they are loaded again, that tensor stays: graphs have it, and vLLM puts it back into the layer. vLLM may have
        loaded them into other memory for the while, from where it copies them: then calls go on with the weights themselves.
        """
        from flhost.torch import handle

        weight = layer.weight.detach()
        first, same = self._handle is None, weight.data_ptr() == self._address
        if not first:
            self._prepared.close()
        prepared = self._of(layer, weight) if first or same else None
        if prepared is not None:
            self._prepared, self._address = prepared, weight.data_ptr()
        if self._handle is not None:
            self._handle.copy_(handle(prepared))
        elif prepared is not None:
            self._handle = handle(prepared)
        if self._handle is not None and prepared is None:
            logger.warning("flhost: %s: weights that were loaded again are not prepared any more", self.op)
        layer.register_buffer("flhost_prepared", self._handle, persistent=False)
        return self._handle is not None

    def _of(self, layer: Any, weight: torch.Tensor) -> Any:
        rows = torch.empty(ROWS, weight.shape[1], dtype=weight.dtype, device=weight.device)
        bias = None if getattr(layer, "skip_bias_add", False) else getattr(layer, "bias", None)
        return prepare(self.op, rows, weight, None if bias is None else bias.detach())


def prepare_head(op: str, layer: Any, rows: torch.Tensor, *rest: Any) -> torch.Tensor | None:
    """The handle of a head's weights, made by the first call with them; None as above. Logits are computed outside of
    compiled graphs."""
    from flhost.torch import handle

    if layer.flhost_head is None and not torch.compiler.is_compiling():
        prepared = prepare(op, rows[:ROWS], layer.weight.detach(), *rest)
        layer.flhost_head = (prepared, None if prepared is None else handle(prepared))
    found: torch.Tensor | None = layer.flhost_head[1] if layer.flhost_head else None
    return found
