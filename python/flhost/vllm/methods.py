"""What computes the products of vLLM's layers with plain weights: their `quant_method`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from .ops import torch_op
from .prepared import LinearWeights


def request_amx() -> None:
    """vLLM's attention in bfloat16 uses AMX where the processor has it, and relies on oneDNN having asked the kernel for
    it when the weights were packed. Where these stay as they are, nobody did: the process would die of SIGILL."""
    init = getattr(torch.cpu, "_init_amx", None)
    if init is not None:
        init()


def keep_weights(layer: Any) -> None:
    """In place of vLLM's packing, which takes the weight away on the CPU."""
    if layer.weight.device.type == "cpu":
        request_amx()
        # for code of vLLM's that calls its function for the CPU with this layer
        layer.cpu_linear = torch.nn.functional.linear


class LinearMethod(UnquantizedLinearMethod):
    """One of the linear ops. What ranks add up or gather stays with the layer: the op computes this rank's part, and
    is told nothing of reducing. (vLLM calls with a bias and without reducing on rank 0; the op refuses that.)"""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.op = op
        self.call = torch_op(op)
        self.call_prepared: Callable[..., Any] | None = None
        self.prepares = True  # unless another op multiplies with the weight
        self.weights = LinearWeights(op)

    def process_weights_after_loading(self, layer: Any) -> None:
        keep_weights(layer)
        if self.prepares and layer.weight.dim() == 2 and self.weights.prepare(layer):
            self.call_prepared = torch_op(self.op, "prepared")

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if self.call_prepared is None:
            return self.call(x, layer.weight, bias)
        return self.call_prepared(x, layer.weight, bias, prepared=layer.flhost_prepared)


class EmbeddingMethod(UnquantizedEmbeddingMethod):
    """Both sides of the vocabulary: a table may be tied to the head. Of a shard the layer masks the ids of others."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.lookup = torch_op("vocab_parallel_embedding")
        self.head = torch_op("parallel_lm_head")

    def process_weights_after_loading(self, layer: Any) -> None:
        keep_weights(layer)
        layer.flhost_head = None  # prepared by the first call of LogitsProcessor's

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return self.head(x, layer.weight, bias)

    def embedding(self, layer: Any, input_: torch.Tensor) -> torch.Tensor:
        return self.lookup(input_, layer.weight)
