"""What computes vLLM's linear layers with quantised weights: kernels in its tables of such.

vLLM asks a table's kernels in their order which of them takes a layer, and one that takes it sees the weights when they are
loaded. A form makes of vLLM's base class of a kind of kernels, and the op's name, ours of that kind. What ours does not take
goes to vLLM's, which stand behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .methods import request_amx
from .ops import torch_op

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _set(layer: Any, name: str, tensor: torch.Tensor) -> None:
    setattr(layer, name, torch.nn.Parameter(tensor.contiguous(), requires_grad=False))


def _is_supported(compute_capability: int | None = None) -> tuple[bool, str | None]:
    return True, None  # flhost has the op for this device, or no kernel of ours is in the table


# ----------------------------------------------------------------------------------------------- 8 bits, of inputs as well


def int8(base: Any, op: str) -> type:
    """(x, bias?): inputs are quantised with the checkpoint's scale, and zero point where they are not symmetric, or with some
    for each token."""

    class FlhostInt8Kernel(base):
        is_supported = staticmethod(_is_supported)

        @classmethod
        def can_implement(cls, c: Any) -> tuple[bool, str | None]:
            return True, None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.quantise, self.flhost = torch_op("scaled_int8_quant"), torch_op(op)

        def process_weights_after_loading(self, layer: Any) -> None:
            request_amx()
            _, scale, input_scale, zero_point, _ = self.layer_param_names
            scales = getattr(layer, scale).data
            if not self.config.is_channelwise and scales.numel() > 1:  # of each of the layers that are one here
                scales = scales.flatten().repeat_interleave(torch.tensor(layer.logical_widths, device=scales.device))
            _set(layer, scale, scales.flatten())
            if self.config.is_static_input_scheme:
                _set(layer, input_scale, getattr(layer, input_scale).data.reshape(1))
                if not self.config.input_symmetric:
                    _set(layer, zero_point, getattr(layer, zero_point).data.reshape(1).to(torch.int32))

        def apply_weights(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            weight, scale, input_scale, zero_point, _ = self._get_layer_params(layer)
            codes, scales, zero_points = self.quantise(x, input_scale, zero_point, self.config.input_symmetric)
            return self.flhost(codes, weight, scales, scale, bias, zero_points, _name(x.dtype))

    return FlhostInt8Kernel


def _takes_float8(config: Any) -> str | None:
    """Why this is no layer for the op, if it is none."""
    from vllm.platforms import current_platform

    if current_platform.fp8_dtype() != torch.float8_e4m3fn:
        return f"float8 is {current_platform.fp8_dtype()} here"
    return None if config.out_dtype in _FLOATS else f"its results are {config.out_dtype}"


def float8(base: Any, op: str) -> type:
    """(inputs and weight in float8, with scales for the tensor, or for each token and channel); the class quantises inputs, by
    its QuantFP8."""

    class FlhostFloat8Kernel(base):
        is_supported = staticmethod(_is_supported)

        @classmethod
        def can_implement(cls, config: Any) -> tuple[bool, str | None]:
            reason = _takes_float8(config)
            for key in (config.weight_quant_key, config.activation_quant_key):
                if reason is None and key.scale.group_shape.is_per_group():
                    reason = "its scales are of groups"
            return reason is None, reason

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)

        def process_weights_after_loading(self, layer: Any) -> None:
            request_amx()

        def apply_scaled_mm(
            self,
            *,
            A: torch.Tensor,  # noqa: N803
            B: torch.Tensor,  # noqa: N803
            out_dtype: torch.dtype,
            As: torch.Tensor,  # noqa: N803
            Bs: torch.Tensor,  # noqa: N803
            bias: torch.Tensor | None,
            output_shape: list[int],
        ) -> torch.Tensor:
            return self.flhost(A, B.t(), As, Bs, bias, None, _name(out_dtype)).view(*output_shape)

    return FlhostFloat8Kernel


def float8_of_blocks(base: Any, op: str) -> type:
    """(x, bias?): the same, with scales for blocks of the weight and groups of inputs."""

    class FlhostFloat8BlockKernel(base):
        is_supported = staticmethod(_is_supported)

        @classmethod
        def can_implement(cls, config: Any) -> tuple[bool, str | None]:
            reason = _takes_float8(config)
            group, block = (key.scale.group_shape for key in (config.activation_quant_key, config.weight_quant_key))
            if reason is None and (
                config.activation_quant_key.scale.static or group.row != 1 or group.col != block.col
            ):
                reason = f"groups of inputs are {tuple(group)}, blocks of the weight {tuple(block)}"
            return reason is None, reason

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)

        def process_weights_after_loading(self, layer: Any) -> None:
            request_amx()
            name = "weight_scale_inv" if getattr(layer, "weight_scale_inv", None) is not None else "weight_scale"
            self.scale = name
            _set(layer, name, getattr(layer, name).data.float())

        def apply_weights(
            self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None, **kwargs: Any
        ) -> torch.Tensor:
            codes, scales = self.quant_fp8(x.reshape(-1, x.shape[-1]))
            out_dtype, block = _name(self.config.out_dtype), list(self.weight_group_shape)
            scale = getattr(layer, self.scale)
            out = self.flhost(codes, layer.weight, scales, scale, bias, None, out_dtype, block)
            return out.view(*x.shape[:-1], -1)

        def apply_block_scaled_mm(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            raise NotImplementedError("flhost: apply_weights computes all of it")

    return FlhostFloat8BlockKernel


# --------------------------------------------------------------------------------------------------------- the weight alone


def four_bits(base: Any, op: str) -> type:
    """(x, bias?): weights in words of 8 rows, as GPTQ has them; those of AWQ vLLM has brought into that order."""

    class FlhostInt4Kernel(base):
        @classmethod
        def get_min_capability(cls) -> int:
            return -1

        @classmethod
        def can_implement(cls, c: Any) -> tuple[bool, str | None]:
            from vllm.scalar_type import scalar_types

            wanted = scalar_types.uint4 if c.zero_points else scalar_types.uint4b8
            reason = None
            if c.weight_type != wanted:
                reason = f"its weights are {c.weight_type}, not {wanted}"
            elif c.act_type not in _FLOATS or c.out_type not in (None, c.act_type):
                reason = f"its inputs are {c.act_type}, its results {c.out_type}"
            elif any(size % 8 for size in c.partition_weight_shape):
                reason = f"a size of {c.partition_weight_shape} is no multiple of 8"
            return reason is None, reason

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flhost = torch_op(op)

        def process_weights_after_loading(self, layer: Any) -> None:
            request_amx()
            names = [self.w_q_name, self.w_s_name]
            if self.config.zero_points:
                names.append(self.w_zp_name)
            elif self.w_zp_name is not None:
                setattr(layer, self.w_zp_name, None)  # 8, whatever is stored
            for name in names:
                parameter = getattr(layer, name)
                # [inputs, outputs], as the checkpoint has them or the other way round
                _set(layer, name, parameter.data.t() if parameter.output_dim == 0 else parameter.data)

        def apply_weights(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            weight, scales, zeros, *groups = self._get_weight_params(layer)
            # the group of each row, where rows have them in no order: vLLM before 0.32
            of_rows = groups[0] if getattr(self.config, "has_g_idx", False) else None
            return self.flhost(x, weight, scales, zeros, of_rows, bias, True)

    return FlhostInt4Kernel


# How kernels of a kind are called, and the table that vLLM has of them: from each platform to its kernels, the first before
# the others. (register_linear_kernel puts a kernel behind vLLM's, and knows no table of blocks.)
KERNELS: dict[str, tuple[Callable[[Any, str], type], str]] = {
    "Int8ScaledMMLinearKernel": (int8, "_POSSIBLE_INT8_KERNELS"),
    "FP8ScaledMMLinearKernel": (float8, "_POSSIBLE_FP8_KERNELS"),
    "Fp8BlockScaledMMLinearKernel": (float8_of_blocks, "_POSSIBLE_FP8_BLOCK_KERNELS"),
    "MPLinearKernel": (four_bits, "_POSSIBLE_KERNELS"),
}
