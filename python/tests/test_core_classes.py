"""Classes that plugins bring for vLLM by their paths: what a host says of them, and how they are handed on. vLLM is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flhost
import pytest
from core_support import class_plugin
from flhost.vllm import classes, plugin

TYPES = ("attention_backend", "mla_attention_backend", "worker", "model_runner")


def all_types(folder: Path, name: str = "acme", platform: str = "cpu", note: str = "") -> Path:
    return class_plugin(folder, name, *((kind, platform, f"{name}.{kind}.Class") for kind in TYPES), note=note)


def make_host(file: Path, **environment: str) -> flhost.Host:
    return flhost.Host(environment=environment, platform="cpu", plugin_modules=file)


# -------------------------------------------------------------------------------------------------------------- the host


def test_a_host_says_which_class_a_plugin_brings(tmp_path: Path) -> None:
    host = make_host(all_types(tmp_path))
    assert {kind: host.class_path(kind) for kind in TYPES} == {kind: f"acme.{kind}.Class" for kind in TYPES}
    assert next(row for row in host.plugins() if row["name"] == "acme")["status"] == "loaded"
    host.withdraw_plugin("acme")
    assert host.class_path("worker") is None


def test_none_where_nobody_brings_one_for_the_platform(tmp_path: Path) -> None:
    assert flhost.Host(environment={}).class_path("worker") is None
    assert make_host(all_types(tmp_path, platform="acme")).class_path("worker") is None


def test_a_word_that_is_no_type_is_an_error() -> None:
    host = flhost.Host(environment={}, plugins=False)
    with pytest.raises(flhost.InvalidArgument, match="did you mean 'worker'"):
        host.class_path("wroker")
    with pytest.raises(flhost.InvalidArgument):
        host.class_path("layer")
    with pytest.raises(flhost.WrongType, match="the type of a class"):
        host.class_path(1)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        host.class_path("\ud800")


@pytest.mark.parametrize("path", ["Worker", "", "acme..Worker", "acme.1Worker", "acme.W\u00f6rker", "a." + "b" * 10000])
def test_what_is_no_path_is_refused_with_the_plugin(tmp_path: Path, path: str) -> None:
    with pytest.raises(flhost.PluginError, match="the path of|no path of"):
        flhost.Host(environment={}, plugins=False).load_plugin(class_plugin(tmp_path, "acme", ("worker", "cpu", path)))


def test_denied_vendors_are_left_out(tmp_path: Path) -> None:
    host = make_host(all_types(tmp_path, note='FL_PLUGIN_VENDOR("acme");'))
    host.load_plugin(all_types(tmp_path, "bolt", note='FL_PLUGIN_VENDOR("bolt");'))
    assert host.class_path("worker") == "acme.worker.Class"
    with host.deny_vendors("acme"):
        assert host.class_path("worker") == "bolt.worker.Class"
        with host.deny_vendors("bolt"):
            assert host.class_path("worker") is None
    with host.allow_vendors("bolt"):
        assert host.class_path("worker") == "bolt.worker.Class"
    host.set_global_policy(flhost.Policy(deny_vendors=["acme"]))
    assert host.class_path("worker") == "bolt.worker.Class"


# ---------------------------------------------------------------------------------------------------------------- to vLLM


class Base:
    """What a platform of vLLM's answers."""

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        return f"{cls.__name__} {selected_backend} {attn_selector_config.use_mla} {num_heads}"


@pytest.fixture(name="platform")
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """vLLM, as far as it is asked; a fresh class, since it is changed."""

    class Platform(Base):
        pass

    class Cache:
        cleared = 0

        def cache_clear(self) -> None:
            self.cleared += 1

    modules = {name: ModuleType(name) for name in ("vllm", "vllm.platforms", "vllm.v1", "vllm.v1.attention")}
    platform = Platform()
    modules["vllm.platforms"].current_platform = platform  # type: ignore[attr-defined]
    selector = SimpleNamespace(_cached_get_attn_backend=Cache())
    modules["vllm.v1.attention"].selector = selector  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(platform, "cache", selector._cached_get_attn_backend, raising=False)
    yield platform
    classes._backends.clear()


def layer(*, use_mla: bool = False, use_sparse: bool = False) -> Any:
    return SimpleNamespace(use_mla=use_mla, use_sparse=use_sparse)


def config(worker: str = "auto") -> Any:
    return SimpleNamespace(parallel_config=SimpleNamespace(worker_cls=worker))


def test_the_platform_answers_with_the_backends_of_a_plugin(tmp_path: Path, platform: Any) -> None:
    classes.attention(make_host(all_types(tmp_path)))
    assert platform.get_attn_backend_cls(None, attn_selector_config=layer()) == "acme.attention_backend.Class"
    assert platform.get_attn_backend_cls(None, layer(use_mla=True), 8) == "acme.mla_attention_backend.Class"
    assert type(platform).get_attn_backend_cls(selected_backend=None, attn_selector_config=layer()).startswith("acme.")
    # what somebody chose, and what no type stands for
    assert platform.get_attn_backend_cls("FLEX", attn_selector_config=layer(), num_heads=2) == "Platform FLEX False 2"
    assert platform.get_attn_backend_cls(None, layer(use_mla=True, use_sparse=True)) == "Platform None True None"
    assert classes.backends() == {kind: f"acme.{kind}.Class" for kind in TYPES[:2]}


def test_one_kind_of_attention_leaves_the_other_to_vllm(tmp_path: Path, platform: Any) -> None:
    classes.attention(make_host(class_plugin(tmp_path, "acme", ("mla_attention_backend", "cpu", "acme.Mla"))))
    assert platform.get_attn_backend_cls(None, layer()) == "Platform None False None"
    assert platform.get_attn_backend_cls(None, layer(use_mla=True)) == "acme.Mla"


def test_nothing_changes_where_no_plugin_brings_one(monkeypatch: pytest.MonkeyPatch, platform: Any) -> None:
    host, told = flhost.Host(environment={}, plugins=False), config()
    classes.attention(host)
    classes.worker(told, host)
    assert told.parallel_config.worker_cls == "auto"
    assert "get_attn_backend_cls" not in vars(type(platform))
    assert platform.cache.cleared == 0
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)  # importing it would fail
    classes.attention(host)


def test_a_later_configuration_is_answered_by_its_own_settings(tmp_path: Path, platform: Any) -> None:
    file = all_types(tmp_path)
    classes.attention(make_host(file))
    answers = type(platform).get_attn_backend_cls
    classes.attention(make_host(file))  # once more
    assert type(platform).get_attn_backend_cls == answers
    assert platform.cache.cleared == 1
    classes.attention(make_host(file, VLLM_FL_OOT_BLACKLIST="attention_backend"))
    assert platform.get_attn_backend_cls(None, layer()) == "Platform None False None"
    assert platform.get_attn_backend_cls(None, layer(use_mla=True)) == "acme.mla_attention_backend.Class"
    classes.attention(make_host(file, VLLM_FL_OOT_ENABLED="0"))
    assert platform.get_attn_backend_cls(None, layer(use_mla=True)) == "Platform None True None"
    assert classes.backends() == {}
    assert platform.cache.cleared == 3


def test_the_worker_of_a_plugin_is_vllms_unless_one_was_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, told, chosen = make_host(all_types(tmp_path)), config(), config("my.Worker")
    with caplog.at_level("INFO", "vllm.flhost"):
        classes.worker(told, host)
        classes.worker(chosen, host)
    assert told.parallel_config.worker_cls == "acme.worker.Class"
    assert chosen.parallel_config.worker_cls == "my.Worker"
    assert "acme.worker.Class, which a plugin brings, gives way to vLLM's my.Worker" in caplog.text
    left = config()
    classes.worker(left, make_host(tmp_path / "acme.so", VLLM_FL_OOT_WHITELIST="RMSNorm"))
    assert left.parallel_config.worker_cls == "auto"


def test_the_line_at_the_start_names_the_backends_of_plugins(tmp_path: Path, platform: Any) -> None:
    manifest: dict[str, Any] = {"rows": []}
    assert plugin.summary(manifest, "cpu", {}).endswith("attention is vLLM's")
    classes.attention(make_host(class_plugin(tmp_path, "acme", ("attention_backend", "cpu", "acme.Attention"))))
    assert platform.get_attn_backend_cls(None, layer()) == "acme.Attention"
    assert plugin.summary(manifest, "cpu", {}).endswith(
        "attention is vLLM's, but where plugins bring it: acme.Attention"
    )
