"""Which of vLLM's own platforms VLLM_FL_PLATFORM asks for. flhost has no platform of its own: layers are replaced on any,
a vendor's included."""

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
