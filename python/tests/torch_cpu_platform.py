"""A platform from outside vLLM: the CPU, for a vLLM that was built for CUDA alone and has no kernels for it.

It is vLLM's own platform for the CPU, with an attention and a worker that need no more than torch (torch_cpu_worker.py): what
a vendor writes for his device. vLLM finds it as it finds any, by an entry point, which vllm_engine.py makes.
"""

from __future__ import annotations

import os
from typing import Any

from vllm.platforms import PlatformEnum
from vllm.platforms.cpu import CpuPlatform


def platform() -> str:
    """The entry point."""
    return f"{__name__}.TorchCpuPlatform"


class TorchCpuPlatform(CpuPlatform):
    # How vLLM sees it: as a CPU of its own, or, as a vendor's device, as one that it knows nothing of.
    _enum = PlatformEnum[os.environ.get("TORCH_CPU_PLATFORM", "CPU")]

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""

    @classmethod
    def get_attn_backend_cls(cls, *given: Any, **named: Any) -> str:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        # that of vLLM's for the CPU, where somebody has one in its place: vLLM's own has no kernels here
        latent = any(getattr(value, "use_mla", False) for value in (*given, *named.values()))
        registered = AttentionBackendEnum.CPU_MLA if latent else AttentionBackendEnum.CPU_ATTN
        return registered.get_path() if registered.is_overridden() else "torch_cpu_worker.TorchAttentionBackend"

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "torch_cpu_worker.TorchWorker"
        compilation = vllm_config.compilation_config
        # vLLM's own layers have kernels for the CPU where they are enabled, and torch where not
        compilation.custom_ops = ["none" if word == "all" else word for word in compilation.custom_ops]
        super().check_and_update_config(vllm_config)

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        from torch_cpu_worker import slot_mapping
        from vllm.triton_utils.dispatcher import register_kernels

        register_kernels({"vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel": slot_mapping})
