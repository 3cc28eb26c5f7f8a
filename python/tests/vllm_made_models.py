"""A program: tiny models that tests/models has not, with random weights, in vLLM, one after the other. It prints, as JSON, a list
of what vllm_engine.main gives. What transformers says of them in float32 lies beside each, as in tests/models.

Its arguments: a folder for the models, and as JSON a list of names and scenarios for vllm_engine.main.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
import vllm_engine
from safetensors.torch import save_file
from vllm_engine import RESULT

TOKENS = 16

CONFIGS: dict[str, dict[str, Any]] = {
    "mamba": {
        "state_size": 8,
        "num_hidden_layers": 2,
        "time_step_rank": 4,
        "residual_in_fp32": False,
    },
    # its norms have no weights
    "falcon_mamba": {
        "state_size": 8,
        "num_hidden_layers": 2,
        "time_step_rank": 4,
        "residual_in_fp32": False,
    },
    # a layer of Mamba, and one of attention with experts
    "jamba": {
        "num_hidden_layers": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 96,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
}


def write_expected(folder: Path, model: Any) -> None:
    """Tokens and the prompts' logits, where and as tests/models have them; the prompts are those of qwen3."""
    given = vllm_engine.expected("qwen3")
    said: dict[str, torch.Tensor] = {}
    for i in (0, 1):
        prompt = torch.from_numpy(given[f"prompt_{i}"]).long()
        ids = prompt.unsqueeze(0)
        with torch.inference_mode():
            for _ in range(TOKENS):
                logits = model(ids, use_cache=False).logits[0]
                ids = torch.cat((ids, logits[-1:].argmax(-1, keepdim=True)), dim=-1)
        said[f"prompt_{i}"], said[f"tokens_{i}"] = prompt, ids[0, len(prompt) :].contiguous()
        said[f"prompt_logits_{i}"] = logits[: len(prompt)].contiguous()
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    save_file(said, folder / "expected" / "expected.safetensors")


def make(folder: Path, name: str) -> Path:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "vocab_size": 256,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    config = AutoConfig.for_model(name, **sizes, **CONFIGS[name])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2 and "A_log" not in key:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    model.save_pretrained(folder / name)
    write_expected(folder / name, model)
    return folder / name


def main(scratch: Path, runs: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    from vllm.distributed import cleanup_dist_env_and_memory

    results = []
    for name, scenario in runs:
        folder = scratch / name
        if not folder.exists():
            make(scratch, name)
        results.append(vllm_engine.main(str(folder), **scenario))
        gc.collect()
        cleanup_dist_env_and_memory()
    return results


if __name__ == "__main__":
    print(RESULT + json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))), flush=True)
