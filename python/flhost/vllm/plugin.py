"""What flhost does in each process of vLLM's: settings are checked, layers and IR ops replaced, classes of plugins handed on,
vLLM's configuration told of it."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger("vllm.flhost")

# Keys in additional_config.
DIGEST, BACKENDS, PREPARED = "flhost_manifest", "flhost_attention", "flhost_prepared"


def register() -> None:
    _log_as_vllm()
    _configure()
    _bring_in_line()


def _log_as_vllm() -> None:
    """What hosts say of plugins, choices and failures goes where vLLM's own lines go, in their form. vLLM gives the root logger no
    handler, so that it would be lost. Below warnings only what somebody asked for: a server has one line of flhost's at its start."""
    ours = logging.getLogger("flhost")
    if ours.handlers:  # somebody has taken it over, such as vllm_fl.dispatch
        return
    ours.parent = logging.getLogger("vllm")
    asked = any(os.environ.get(name) for name in ("VLLM_FL_LOG_LEVEL", "VLLM_FL_DISPATCH_DEBUG"))
    ours.setLevel(logging.NOTSET if asked else logging.WARNING)


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """For hosts that are made to be asked: what these say the process's own host says again."""
    ours = logging.getLogger("flhost")
    level = ours.level
    ours.setLevel(logging.WARNING)
    try:
        yield
    finally:
        ours.setLevel(level)


@_aside()
def _bring_in_line() -> dict[str, str]:
    """Layers, IR ops and attention backends by the settings as they are now. The host is one for this alone: the one that the process shares
    is made when the first layer is, after vLLM's own settings are known."""
    from flhost import Host

    from . import classes, hooks, ir, settings

    host = Host()  # an invalid setting ends the start here
    settings.check_names(host)
    ir.provide(host)
    classes.attention(host)
    return hooks.replace_layers(host)


def _configure() -> None:
    """VllmConfig tells flhost what it was told, and is told by flhost."""
    from vllm.config import VllmConfig

    original: Callable[..., None] = VllmConfig.__post_init__
    if getattr(original, "of_flhost", False):
        return

    @functools.wraps(original)
    def __post_init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _tell(self)
        original(self, *args, **kwargs)

    __post_init__.of_flhost = True  # type: ignore[attr-defined]
    VllmConfig.__post_init__ = __post_init__


@_aside()
def _tell(config: Any) -> None:
    """Once for each configuration; copies of it carry the digest."""
    from flhost import Host

    from . import classes, settings

    extra = config.additional_config
    if config.model_config is None or not isinstance(extra, dict) or DIGEST in extra:
        return
    settings.restore()
    host = Host()
    settings.custom_ops(config, host)
    settings.ir_ops(config, host)
    settings.attention(config, host)
    replaced = _bring_in_line()
    host = Host()  # with what vLLM was told
    classes.worker(config, host)
    place = device()
    manifest = host.manifest(place)
    # Part of the keys of vLLM's compile caches: what was compiled is right for what calls run then.
    extra[DIGEST] = manifest["sha256"] or manifest["problem"]
    if classes.backends():
        extra[BACKENDS] = classes.backends()
    if host.config()["prepare_weights"]["value"]:
        extra[PREPARED] = True
    logger.info("%s", summary(manifest, place, replaced))
    _freeze_captures()


def summary(manifest: dict[str, Any], device: str, replaced: dict[str, str]) -> str:
    """What runs where, in a line."""
    from . import classes, hooks

    backends = sorted(name for name, op in replaced.items() if op in hooks.BACKENDS)
    attention = f"and {', '.join(backends)}" if backends else "attention is vLLM's"
    if classes.backends():
        attention += f", but where plugins bring it: {', '.join(classes.backends().values())}"
    first = [row for row in manifest["rows"] if row["place"] == 0]
    by = Counter(f"vendor {row['vendor']}" if row["vendor"] else row["kind"] for row in first)
    names = ", ".join(f"{n} {name}" for name, n in by.most_common())
    layers = f"{len(replaced) - len(backends)} layer classes of vLLM's are replaced"
    return f"flhost: {len(first)} ops: {names} on {device}; {layers}, {attention}"


def device() -> str:
    """flhost's name for what this process of vLLM's computes on."""
    from vllm.platforms import current_platform

    return "rocm" if current_platform.is_rocm() else str(current_platform.device_type or "cpu")


# ------------------------------------------------------------------------------------------------------------- graphs

_RUNNERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")


def _freeze_captures() -> None:
    """Where graphs are captured, what a call runs must not change: a graph keeps what it met. On the CPU there are
    none."""
    import importlib

    if device() == "cpu":
        return
    for name in _RUNNERS:
        try:
            runner = importlib.import_module(name).GPUModelRunner
        except (ImportError, AttributeError) as error:
            logger.debug("flhost: no graphs are captured by %s: %s", name, error)
            continue
        freeze_while(runner, "capture_model")


def freeze_while(owner: Any, method: str) -> None:
    """The default host is frozen while that method runs; what it binds was bound before."""
    original = getattr(owner, method)
    if getattr(original, "of_flhost", False):
        return

    @functools.wraps(original)
    def frozen(*args: Any, **kwargs: Any) -> Any:
        from flhost import default_host

        host, who = default_host(), f"vLLM: {method}"
        host.warm_up(device())
        host.freeze(who)
        try:
            return original(*args, **kwargs)
        finally:
            host.thaw(who)

    frozen.of_flhost = True  # type: ignore[attr-defined]
    setattr(owner, method, frozen)
