"""A program: the tiny Qwen3 with its linear layers quantised, as checkpoints of several kinds have them, in vLLM. It prints, as
JSON, by kind: what vllm_engine.main gives, and what transformers says with the same formula in float32.

Its arguments: a folder for the checkpoints; the kinds and whether engines are eager, as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import vllm_engine
from safetensors.torch import load_file, save_file
from vllm_engine import MODELS, RESULT

MODEL, REQUESTS, TOKENS = "qwen3", [[0], [0, 1]], 16
GROUP = 32  # also the sides of blocks
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # of the columns of a word
Tensors = dict[str, torch.Tensor]
# What a layer adds to a checkpoint, its weight as computed with, and what becomes of its inputs.
Layer = tuple[Tensors, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def scale_of(x: torch.Tensor, greatest: float) -> torch.Tensor:
    """Of each row."""
    return (x.abs().amax(dim=-1, keepdim=True) / greatest).clamp(min=1e-9)


def int8(x: torch.Tensor, scale: torch.Tensor | float, zero: int = 0) -> torch.Tensor:
    return ((x / scale).round() + zero).clamp(-128, 127)


def float8(x: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def int8_for_each_token(w: torch.Tensor) -> Layer:
    scale = scale_of(w, 127)
    codes = int8(w, scale)
    return (
        {"weight": codes.to(torch.int8), "weight_scale": scale},
        codes * scale,
        lambda x: int8(x, scale_of(x, 127)) * scale_of(x, 127),
    )


def int8_with_zero_points(w: torch.Tensor) -> Layer:
    scale, step, zero = w.abs().max() / 127, 0.06, 9
    codes = int8(w, scale)
    stored = {
        "weight": codes.to(torch.int8),
        "weight_scale": scale.reshape(1),
        "input_scale": torch.tensor([step]),
        "input_zero_point": torch.tensor([zero], dtype=torch.int8),
    }
    return stored, codes * scale, lambda x: (int8(x, step, zero) - zero) * step


def float8_for_each_token(w: torch.Tensor) -> Layer:
    scale = scale_of(w, 448)
    codes = float8(w, scale)
    return (
        {"weight": codes, "weight_scale": scale},
        codes.float() * scale,
        lambda x: float8(x, scale_of(x, 448)).float() * scale_of(x, 448),
    )


def float8_of_blocks(w: torch.Tensor) -> Layer:
    n, k = w.shape
    blocks = w.view(n // GROUP, GROUP, k // GROUP, GROUP).transpose(1, 2)
    scale = scale_of(blocks.flatten(2), 448).unsqueeze(-1)
    codes = float8(blocks, scale)

    def inputs(x: torch.Tensor) -> torch.Tensor:
        groups = x.unflatten(-1, (-1, GROUP))
        return (float8(groups, scale_of(groups, 448)).float() * scale_of(groups, 448)).flatten(-2)

    stored = {"weight": codes.transpose(1, 2).reshape(n, k), "weight_scale": scale.view(n // GROUP, k // GROUP)}
    return stored, (codes.float() * scale).transpose(1, 2).reshape(n, k), inputs


def words(codes: torch.Tensor, nibbles: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Of 8 codes in the last dimension each."""
    shifts = torch.tensor([4 * n for n in nibbles])
    packed = (codes.long().unflatten(-1, (-1, 8)) << shifts).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32).contiguous()


def four_bits(w: torch.Tensor, symmetric: bool, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Codes [n, k], scales and zero points [n, groups], the weight."""
    groups = w.unflatten(-1, (-1, GROUP))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = (groups.abs().amax(-1, keepdim=True) / 7 if symmetric else (high - low) / 15).to(dtype).float()
    zero = torch.full_like(scale, 8) if symmetric else (-low / scale).round().clamp(0, 15)
    codes = ((groups / scale).round() + zero).clamp(0, 15)
    weight = ((codes - zero) * scale).to(dtype).float()
    return codes.flatten(1), scale.squeeze(-1), zero.squeeze(-1), weight.flatten(1)


def packed(w: torch.Tensor) -> Layer:
    codes, scale, _, weight = four_bits(w, True, torch.float32)
    shape = torch.tensor(w.shape)
    return {"weight_packed": words(codes), "weight_scale": scale, "weight_shape": shape}, weight, same


def awq(w: torch.Tensor) -> Layer:
    codes, scale, zero, weight = four_bits(w, False, torch.bfloat16)
    stored = {
        "qweight": words(codes.t(), AWQ_NIBBLES),
        "qzeros": words(zero.t(), AWQ_NIBBLES),
        "scales": scale.t().contiguous().to(torch.bfloat16),
    }
    return stored, weight, same


def gptq(w: torch.Tensor) -> Layer:
    codes, scale, zero, weight = four_bits(w, True, torch.bfloat16)
    stored = {
        "qweight": words(codes).t().contiguous(),
        "qzeros": words(zero.t() - 1),
        "scales": scale.t().contiguous().to(torch.bfloat16),
        "g_idx": torch.arange(w.shape[1], dtype=torch.int32) // GROUP,
    }
    return stored, weight, same


class Kind(NamedTuple):
    layer: Callable[[torch.Tensor], Layer]
    config: dict[str, Any]
    ops: tuple[str, ...]  # that each linear layer calls
    dtype: str = "float32"


def compressed(form: str, weights: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
    """The configuration of a checkpoint of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": form,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


def of(kind: str, bits: int, strategy: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "num_bits": bits, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


KINDS = {
    "int8": Kind(
        int8_for_each_token,
        compressed("int-quantized", of("int", 8, "channel"), of("int", 8, "token", dynamic=True)),
        ("scaled_int8_quant", "scaled_mm"),
    ),
    "int8 with zero points": Kind(
        int8_with_zero_points,
        compressed("int-quantized", of("int", 8, "tensor"), of("int", 8, "tensor", symmetric=False)),
        ("scaled_int8_quant", "scaled_mm"),
    ),
    "float8": Kind(
        float8_for_each_token,
        compressed("float-quantized", of("float", 8, "channel"), of("float", 8, "token", dynamic=True)),
        ("quant_fp8", "scaled_mm"),
    ),
    "float8 of blocks": Kind(
        float8_of_blocks,
        compressed(
            "float-quantized",
            of("float", 8, "block", block_structure=[GROUP, GROUP]),
            of("float", 8, "group", group_size=GROUP, dynamic=True),
        ),
        ("quant_fp8", "scaled_mm"),
    ),
    "4 bits": Kind(
        packed, compressed("pack-quantized", of("int", 4, "group", group_size=GROUP), None), ("gptq_linear",)
    ),
    "AWQ": Kind(
        awq,
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": ["lm_head"],
        },
        ("gptq_linear",),  # vLLM brings the weights into that order
        "bfloat16",
    ),
    "GPTQ": Kind(
        gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True, "lm_head": False},
        ("gptq_linear",),
        "bfloat16",
    ),
}


def checkpoint(folder: Path, kind: Kind) -> None:
    """Writes it, and what transformers says, where tests/models have that."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODELS / MODEL, dtype=torch.float32)
    tensors = load_file(MODELS / MODEL / "model.safetensors")
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        stored, weight, inputs = kind.layer(tensors.pop(f"{name}.weight"))
        tensors.update({f"{name}.{key}": tensor for key, tensor in stored.items()})
        module.weight.data = weight
        module.register_forward_pre_hook(lambda _, given, inputs=inputs: (inputs(given[0]),))
    (folder / "expected").mkdir(parents=True)
    config = json.loads((MODELS / MODEL / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": kind.config}))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    given = vllm_engine.expected(MODEL)
    said: Tensors = {}
    for i in (0, 1):
        prompt = torch.from_numpy(given[f"prompt_{i}"]).long()
        with torch.inference_mode():
            ids = prompt.unsqueeze(0)
            for _ in range(TOKENS):
                logits = model(ids).logits[0]
                ids = torch.cat((ids, logits[-1:].argmax(-1, keepdim=True)), dim=-1)
            said[f"prompt_logits_{i}"] = model(prompt.unsqueeze(0)).logits[0]
        said[f"prompt_{i}"], said[f"tokens_{i}"] = prompt, ids[0, len(prompt) :].contiguous()
    save_file(said, folder / "expected" / "expected.safetensors")


def main(scratch: Path, names: list[str], eager: bool) -> dict[str, Any]:
    from vllm.distributed import cleanup_dist_env_and_memory

    results = {}
    for name in names:
        kind, folder = KINDS[name], scratch / name
        checkpoint(folder, kind)
        results[name] = vllm_engine.main(str(folder), REQUESTS, eager=eager, dtype=kind.dtype, logits=True)
        gc.collect()
        cleanup_dist_env_and_memory()
    return results


if __name__ == "__main__":
    print(RESULT + json.dumps(main(Path(sys.argv[1]), *json.loads(sys.argv[2]))), flush=True)
