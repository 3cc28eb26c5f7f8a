"""The plugin's parts, without an engine."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import flhost
import pytest


def run(code: str, **settings: str) -> str:
    """In a process of its own: the plugin changes vLLM for good."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "DEBUG", **settings},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_registering_again_changes_nothing() -> None:
    said = run(
        "import logging\n"
        "logging.basicConfig(level=logging.DEBUG)\n"
        "from flhost.vllm import register\n"
        "register()\n"
        "from vllm.model_executor.custom_op import op_registry_oot as table\n"
        "from vllm.config import VllmConfig\n"
        "first = dict(table), VllmConfig.__post_init__\n"
        "register()\n"
        "assert (dict(table), VllmConfig.__post_init__) == first\n"
        "assert {'RMSNorm', 'YaRNScalingRotaryEmbedding', 'GELUTanh', 'GateLinear', 'TPAwareRMSNorm'} <= set(table)\n"
        "print('classes', len(table))\n"
    )
    assert "classes" in said
    # what has no form here, and what this vLLM lacks, is said of, and is no error
    assert "MambaMixer (mamba_mixer) is not replaced: vLLM keeps it" in said
    assert "FusedMoE (fused_moe) is not replaced" in said


def test_every_class_that_an_entry_names_has_a_form_or_is_known_to_stay_vllms() -> None:
    code = (
        "import flhost\n"
        "from flhost.vllm.forms import FORMS\n"
        "host = flhost.Host()\n"
        "print('stay', sorted(op for op in host.ops() if host.layers(op) and op not in FORMS))\n"
        "assert set(FORMS) <= set(host.ops())\n"
    )
    stay = [
        "dual_chunk_rotary_embedding",
        "fused_moe",
        "mamba_mixer",
        "mamba_mixer2",
        "mm_encoder_attn",
        "modular_fused_moe",
        "multi_head_latent_attention",
        "plamo2_mamba_mixer",
        "quant_fp8",
        "short_conv",
        "transformers_fused_moe",
    ]
    assert f"stay {stay}" in run(code)


def test_no_platform_unless_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from flhost.vllm import platform

    monkeypatch.delenv("VLLM_FL_PLATFORM", raising=False)
    assert platform() is None
    monkeypatch.setenv("VLLM_FL_PLATFORM", "CPU")
    assert platform() == "vllm.platforms.cpu.CpuPlatform"


def test_the_host_is_frozen_while_graphs_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    from flhost.vllm import plugin

    seen: list[Any] = []

    class Runner:
        def capture_model(self, size: int) -> int:
            seen.append(flhost.default_host().is_frozen())
            with pytest.raises(flhost.StateError, match="vLLM: capture_model"):
                flhost.default_host().set_global_policy(flhost.Policy(prefer="reference"))
            return size

    monkeypatch.setattr(plugin, "_device", lambda: "cpu")
    plugin.freeze_while(Runner, "capture_model")
    plugin.freeze_while(Runner, "capture_model")  # once
    assert Runner().capture_model(3) == 3
    assert seen == [True]
    assert not flhost.default_host().is_frozen()


def test_what_an_operator_says_to_vllm_is_taken_back_for_the_next_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from flhost.vllm import settings

    monkeypatch.delenv("VLLM_FL_CUSTOM_OPS", raising=False)
    config = SimpleNamespace(compilation_config=SimpleNamespace(custom_ops=["none", "+rms_norm", "+vllms_own"]))
    settings.custom_ops(config, flhost.Host())
    assert os.environ["VLLM_FL_CUSTOM_OPS"] == "none,+rms_norm"
    settings.restore()
    assert "VLLM_FL_CUSTOM_OPS" not in os.environ


def test_flhosts_custom_ops_are_vllms_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from flhost.vllm import settings

    monkeypatch.setenv("VLLM_FL_CUSTOM_OPS", "none,+rms_norm")
    config = SimpleNamespace(compilation_config=SimpleNamespace(custom_ops=[]))
    settings.custom_ops(config, flhost.Host())
    assert config.compilation_config.custom_ops == ["none", "+rms_norm"]


def test_flhost_is_the_first_provider_unless_a_list_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from flhost.vllm import settings

    monkeypatch.setenv("VLLM_FL_OOT_BLACKLIST", "gelu_and_mul_sparse")
    priority = SimpleNamespace(rms_norm=[], fused_add_rms_norm=["native"], gelu_and_mul_sparse=[])
    config = SimpleNamespace(kernel_config=SimpleNamespace(ir_op_priority=priority))
    settings.ir_ops(config, flhost.Host())
    listed = os.environ["VLLM_FL_OOT_BLACKLIST"]
    settings.restore()
    assert vars(priority) == {"rms_norm": ["flhost"], "fused_add_rms_norm": ["native"], "gelu_and_mul_sparse": []}
    assert listed == "gelu_and_mul_sparse,fused_add_rms_norm"
