"""vLLM's platforms with flhost's choices. Attention stays vLLM's: get_attn_backend_cls of these classes is where a
backend of flhost's comes in."""

from __future__ import annotations

import os

# vLLM's own platform for a name that VLLM_FL_PLATFORM may have.
_PLATFORMS = {
    "cpu": "vllm.platforms.cpu.CpuPlatform",
    "cuda": "vllm.platforms.cuda.CudaPlatform",
    "nvidia": "vllm.platforms.cuda.CudaPlatform",
    "rocm": "vllm.platforms.rocm.RocmPlatform",
    "amd": "vllm.platforms.rocm.RocmPlatform",
}


def requested() -> str | None:
    """The class for VLLM_FL_PLATFORM, None without it, and for one that vLLM has no class for."""
    return _PLATFORMS.get(os.environ.get("VLLM_FL_PLATFORM", "").strip().lower())
