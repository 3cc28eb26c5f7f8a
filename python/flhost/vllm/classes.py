"""Classes that plugins bring for vLLM by their paths, handed to it: the worker in its configuration, attention backends in what
its platform answers. A model runner has no setting in vLLM: the worker that wants one asks Host.class_path for it.

Where no plugin brings one nothing of vLLM's is changed, or even imported. What a user chose himself stays.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

logger = logging.getLogger("vllm.flhost")

_ATTENTION = ("attention_backend", "mla_attention_backend")
_backends: dict[str, str] = {}  # what the platform answers in place of its own, by type, for the latest configuration


def backends() -> dict[str, str]:
    """The paths of the attention backends that plugins bring, by their types."""
    return dict(_backends)


def worker(config: Any, host: Any) -> None:
    """The worker of a plugin's, before vLLM's platform would choose its own."""
    path, parallel = _brought(host, "worker"), config.parallel_config
    if path is None:
        return
    if parallel.worker_cls == "auto":
        parallel.worker_cls = path
        logger.info("flhost: the worker is %s, which a plugin brings", path)
    elif parallel.worker_cls != path:
        logger.info("flhost: the worker %s, which a plugin brings, gives way to vLLM's %s", path, parallel.worker_cls)


def attention(host: Any) -> None:
    """Attention backends, for the layers that are made from here on."""
    found = {kind: path for kind in _ATTENTION if (path := _brought(host, kind)) is not None}
    if found == _backends:
        return
    from vllm.platforms import current_platform

    _backends.clear()
    _backends.update(found)
    _answer_for(type(current_platform))
    _forget_answers()
    for kind, path in found.items():
        logger.info("flhost: %s is %s, which a plugin brings", kind, path)


def _brought(host: Any, kind: str) -> str | None:
    """None also where the settings of replaced layers leave it out; in their lists it stands by its type."""
    path: str | None = host.class_path(kind)
    if path is None or host.is_oot_allowed(kind):
        return path
    logger.info("flhost: %s %s, which a plugin brings, is left out by VLLM_FL_OOT_*", kind, path)
    return None


def _answer_for(platform: Any) -> None:
    """Once for each platform; it is asked where we have no answer."""
    original = platform.get_attn_backend_cls
    if getattr(original, "of_flhost", False):
        return

    @functools.wraps(original)
    def get_attn_backend_cls(cls: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = args[0] if args else kwargs.get("selected_backend")
        path = None if chosen is not None else _backend_for((*args, *kwargs.values()))
        return original(*args, **kwargs) if path is None else path

    get_attn_backend_cls.of_flhost = True  # type: ignore[attr-defined]
    platform.get_attn_backend_cls = classmethod(get_attn_backend_cls)


def _backend_for(values: tuple[Any, ...]) -> str | None:
    """By what vLLM's selector says of the layer. Sparse attention is another kind, which no type stands for."""
    layer = next((value for value in values if hasattr(value, "use_mla")), None)
    if layer is None or getattr(layer, "use_sparse", False):
        return None
    return _backends.get("mla_attention_backend" if layer.use_mla else "attention_backend")


def _forget_answers() -> None:
    """Those that the selector keeps of an earlier configuration."""
    try:
        from vllm.v1.attention import selector
    except ImportError:
        return
    keep = getattr(selector, "_cached_get_attn_backend", None)
    if keep is not None:
        keep.cache_clear()
