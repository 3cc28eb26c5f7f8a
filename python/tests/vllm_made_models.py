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

import numpy as np
import torch
import vllm_engine
from safetensors.torch import save_file
from vllm_engine import RESULT

TOKENS = 16
# Names of transformers' for tokens from 252 on.
VISION = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}

SIZES = {
    "hidden_size": 64,
    "vocab_size": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
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
    # text and images; a token has a position in time, in height and in width
    "qwen3_vl": {
        "text_config": {
            **SIZES,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "intermediate_size": 96,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": 4,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        "image_token_id": 252,
        "video_token_id": 253,
        "vision_start_token_id": 254,
        "vision_end_token_id": 255,
    },
}


def make_processor(folder: Path) -> Any:
    """What makes the model's inputs of words, w5 being token 5, and of images."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    special = {0: "<pad>", 1: "<s>", 2: "</s>", **dict(enumerate(VISION.values(), 252))}
    words = Tokenizer(WordLevel({special.get(i, f"w{i}"): i for i in range(256)}, unk_token="<pad>"))
    words.pre_tokenizer = WhitespaceSplit()
    words.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special.values()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>", extra_special_tokens=VISION
    )
    patches = {"patch_size": 4, "size": {"shortest_edge": 64, "longest_edge": 4096}}
    processor = Qwen3VLProcessor(Qwen2VLImageProcessor(**patches), tokenizer, Qwen3VLVideoProcessor(**patches))
    processor.save_pretrained(folder)
    return processor


def image_inputs(processor: Any, prompt: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    """A prompt with an image between its tokens: as it is given to vLLM, with one token in the image's place; what transformers'
    model takes; the image."""
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (16, 32, 3), dtype=np.uint8))
    asked = torch.cat((prompt[:2], torch.tensor([254, 252, 255]), prompt[2:]))
    inputs = processor(
        text=[" ".join(processor.tokenizer.convert_ids_to_tokens(asked.tolist()))],
        images=[image.numpy()],
        return_tensors="pt",
    )
    return asked, dict(inputs), image


def write_expected(folder: Path, model: Any, processor: Any = None) -> None:
    """Tokens and the prompts' logits, where and as tests/models have them; the prompts are those of qwen3, the first with an image
    where the model takes some."""
    given = vllm_engine.expected("qwen3")
    said: dict[str, torch.Tensor] = {}
    for i in (0, 1):
        prompt = torch.from_numpy(given[f"prompt_{i}"]).long()
        inputs = {"input_ids": prompt.unsqueeze(0)}
        if processor and i == 0:
            prompt, inputs, said["image_0"] = image_inputs(processor, prompt)
        n = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            for _ in range(TOKENS):
                logits = model(**inputs, use_cache=False).logits[0]
                inputs["input_ids"] = torch.cat((inputs["input_ids"], logits[-1:].argmax(-1, keepdim=True)), dim=-1)
                for name in inputs.keys() & {"attention_mask", "mm_token_type_ids"}:
                    like = inputs[name]
                    inputs[name] = torch.cat((like, torch.full_like(like[:, -1:], name == "attention_mask")), dim=-1)
        said[f"prompt_{i}"], said[f"tokens_{i}"] = prompt, inputs["input_ids"][0, n:].contiguous()
        said[f"prompt_logits_{i}"] = logits[:n].contiguous()
    (folder / "expected").mkdir(parents=True, exist_ok=True)
    save_file(said, folder / "expected" / "expected.safetensors")


def make(folder: Path, name: str) -> Path:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **SIZES, **CONFIGS[name])
    of_images = hasattr(config, "vision_config")
    family = AutoModelForImageTextToText if of_images else AutoModelForCausalLM
    model = family.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2 and "A_log" not in key:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
        if of_images:
            model.lm_head.weight[252:] = 0  # it is not to answer with an image's tokens
    model.save_pretrained(folder / name)
    write_expected(folder / name, model, make_processor(folder / name) if of_images else None)
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
