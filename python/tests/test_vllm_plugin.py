"""The plugin's parts, without an engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flhost
import pytest
from core_support import class_plugin
from vllm_engine import has_kernels


def run(code: str, *arguments: str, **settings: str) -> str:
    """In a process of its own: the plugin changes vLLM for good."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
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
    assert "ShortConv (short_conv) is not replaced: vLLM keeps it" in said
    assert "FusedMoE (fused_moe) is not replaced" in said


TABLE = """
import logging, sys
theirs = logging.getLogger("vllm")
theirs.setLevel(sys.argv[1])
theirs.addHandler(logging.StreamHandler())
theirs.handlers[0].setFormatter(logging.Formatter("as vLLM: %(message)s"))
from flhost.vllm import register
register()
register()
import flhost
flhost.default_host().ops()
"""


def test_what_hosts_say_is_in_vllms_log() -> None:
    def said(level: str, **settings: str) -> list[str]:
        return run(TABLE, level, VLLM_CONFIGURE_LOGGING="0", **settings).splitlines()

    asked = said("INFO", VLLM_FL_DISPATCH_DEBUG="1")
    assert [line for line in asked if "[Operator: rms_norm]" in line] == [
        "as vLLM: [Operator: rms_norm]"
    ]  # by one host
    assert not [line for line in said("WARNING", VLLM_FL_DISPATCH_DEBUG="1") if "Operator" in line]
    unasked = said("INFO", VLLM_FL_NO_SUCH_THING="1")
    assert not [line for line in unasked if "Operator" in line or "plugin cpu" in line]
    assert [line for line in unasked if line.startswith("as vLLM: ") and "VLLM_FL_NO_SUCH_THING" in line]


def test_every_class_that_an_entry_names_has_a_form_or_is_known_to_stay_vllms() -> None:
    code = (
        "import flhost\n"
        "from flhost.vllm.forms import FORMS\n"
        "from flhost.vllm.hooks import BACKENDS\n"
        "from flhost.vllm.kernels import KERNELS\n"
        "host = flhost.Host()\n"
        "known = {**FORMS, **BACKENDS}\n"
        "stay = {op for op in host.ops() if op not in known and set(host.layers(op)) - set(KERNELS)}\n"
        "print('stay', sorted(stay))\n"
        "assert set(known) <= set(host.ops())\n"
        "assert set(KERNELS) <= {name for op in host.ops() for name in host.layers(op)}\n"
    )
    stay = [
        "dual_chunk_rotary_embedding",
        "fused_moe",
        "mm_encoder_attn",
        "modular_fused_moe",
        "multi_head_latent_attention",
        "plamo2_mamba_mixer",
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

    monkeypatch.setattr(plugin, "device", lambda: "cpu")
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


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"attention_config": SimpleNamespace(backend=SimpleNamespace(name="CPU_ATTN"))}, "attention backend CPU_ATTN"),
        (
            {"attention_config": SimpleNamespace(backend_per_kind={"full": SimpleNamespace(name="FLEX_ATTENTION")})},
            "attention backend FLEX_ATTENTION",
        ),
        ({"kv_transfer_config": SimpleNamespace(kv_connector="NixlConnector")}, "connector of caches"),
    ],
)
def test_attention_is_vllms_where_a_backend_is_named_or_a_connector_moves_caches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: dict[str, Any], said: str
) -> None:
    from flhost.vllm import settings

    monkeypatch.setattr(settings.logger, "propagate", True)
    monkeypatch.delenv("VLLM_FL_OOT_BLACKLIST", raising=False)
    with caplog.at_level("INFO", "vllm.flhost"):
        settings.attention(SimpleNamespace(attention_config=SimpleNamespace(backend=None)), flhost.Host())
        assert "VLLM_FL_OOT_BLACKLIST" not in os.environ
        settings.attention(SimpleNamespace(**config), flhost.Host())
    listed = os.environ.get("VLLM_FL_OOT_BLACKLIST")
    settings.restore()
    assert listed == "paged_attention,mla_paged_attention"
    assert f"vLLM's {said}" in caplog.text


def test_kernels_stand_before_vllms_and_go_when_they_are_left_out() -> None:
    said = run(
        "import os\n"
        "from flhost.vllm import register\n"
        "from vllm.model_executor.kernels import linear\n"
        "from vllm.platforms import current_platform\n"
        "tables = [linear._POSSIBLE_INT8_KERNELS, linear._POSSIBLE_FP8_KERNELS, linear._POSSIBLE_FP8_BLOCK_KERNELS]\n"
        "def first():\n"
        "    kernels = [table[current_platform._enum] for table in (*tables, linear._POSSIBLE_KERNELS)]\n"
        "    assert all(len(set(k)) == len(k) for k in kernels)\n"
        "    print([k[0].__module__ == 'flhost.vllm.kernels' if k else False for k in kernels])\n"
        "register()\n"
        "register()\n"
        "first()\n"
        "os.environ['VLLM_FL_OOT_BLACKLIST'] = 'FP8ScaledMMLinearKernel,gptq_linear'\n"
        "register()\n"
        "first()\n"
    )
    assert "[True, True, True, True]\n" in said
    assert "[True, False, True, False]\n" in said


def test_a_backend_that_somebody_else_registered_stays_and_ours_goes_when_it_is_left_out() -> None:
    pytest.importorskip("vllm.v1.kv_cache_layout", reason="this vLLM's caches are laid out differently")
    said = run(
        "from vllm.platforms import current_platform\n"
        "current_platform.device_type = 'cpu'\n"
        "from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend\n"
        "from flhost.vllm.hooks import BACKENDS, _replace_backend\n"
        "name, ours = 'CPUAttentionBackend', BACKENDS['paged_attention']\n"
        "cpu = AttentionBackendEnum.CPU_ATTN\n"
        "assert _replace_backend(name, ours, None) is None and cpu.get_path() == ours\n"
        "assert _replace_backend(name, ours, 'left out') == 'left out' and not cpu.is_overridden()\n"
        "register_backend(cpu, 'acme.Backend')\n"
        "print(_replace_backend(name, ours, None), cpu.get_path())\n"
        "assert _replace_backend('OfNoVersion', ours, None) == 'this vLLM has no such class'\n"
        "current_platform.device_type = 'npu'\n"
        "print(_replace_backend(name, ours, None))\n"
    )
    assert "replaced by acme.Backend acme.Backend\nit is not for npu" in said


def test_classes_of_a_plugin_come_before_those_of_vllms_platform(tmp_path: Path) -> None:
    rows = [(kind, "cpu", f"acme.{kind}.Class") for kind in ("attention_backend", "mla_attention_backend", "worker")]
    said = run(
        "from types import SimpleNamespace as Fields\n"
        "from vllm.platforms import current_platform\n"
        "from vllm.v1.attention import selector\n"
        "from vllm.v1.attention.backends.registry import AttentionBackendEnum\n"
        "from flhost.vllm import plugin, register\n"
        "def ask(backend, **layer):\n"
        "    given = dict.fromkeys(selector.AttentionSelectorConfig._fields)\n"
        "    given |= {'head_size': 64, 'use_mla': False, 'use_sparse': False, **layer}\n"
        "    print(current_platform.get_attn_backend_cls(\n"
        "        backend, attn_selector_config=selector.AttentionSelectorConfig(**given), num_heads=2))\n"
        "register()\n"
        "register()\n"
        "ask(None)\n"
        "ask(None, use_mla=True)\n"
        "ask(AttentionBackendEnum.CPU_ATTN)\n"
        "told = Fields(additional_config={}, model_config=True, compilation_config=Fields(custom_ops=[]),\n"
        "              parallel_config=Fields(worker_cls='auto'))\n"
        "plugin._tell(told)\n"
        "print(told.parallel_config.worker_cls, sorted(told.additional_config))\n",
        VLLM_FL_PLUGIN_MODULES=str(class_plugin(tmp_path, "acme", *rows)),
    )
    lines = said.splitlines()
    assert "acme.attention_backend.Class" in lines
    assert "acme.mla_attention_backend.Class" in lines
    assert "acme.worker.Class ['flhost_attention', 'flhost_manifest']" in lines
    # the one that was named; a vLLM without kernels for the CPU has no platform here, and that one has none
    named = r"(flhost|vllm)\.[\w.]+Backend" if has_kernels() else ""
    assert any(re.fullmatch(named, line) for line in lines)
