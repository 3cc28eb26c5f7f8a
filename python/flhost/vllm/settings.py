"""vLLM's words for what flhost's settings say, and back: custom_ops, and the priority of IR ops.

What an operator tells vLLM is set as a variable of flhost's before this process's host is made, so that `flhost config`
and the workers, which inherit it, show it; what he tells flhost goes into vLLM's configuration before vLLM fills in its
own defaults. Where he says both, each has what it was told.
"""

from __future__ import annotations

import difflib
import logging
import os
from typing import Any

from .hooks import BACKENDS

logger = logging.getLogger("vllm.flhost")

PROVIDER = "flhost"
_CUSTOM_OPS, _BLACKLIST, _WHITELIST, _CONFIG = (
    "VLLM_FL_CUSTOM_OPS",
    "VLLM_FL_OOT_BLACKLIST",
    "VLLM_FL_OOT_WHITELIST",
    "VLLM_FL_CONFIG",
)
_before: dict[str, str | None] = {}  # variables that an earlier configuration of this process set: what they were


def restore() -> None:
    """Takes back what an earlier configuration of vLLM's said."""
    while _before:
        name, value = _before.popitem()
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _set(name: str, value: str, said: str) -> None:
    if os.environ.get(_CONFIG):
        logger.warning("flhost: %s has no effect on flhost: VLLM_FL_CONFIG=%s is complete", said, os.environ[_CONFIG])
        return
    _before.setdefault(name, os.environ.get(name))
    os.environ[name] = value
    logger.info("flhost: %s is %s=%s", said, name, value)


def check_names(host: Any) -> None:
    """A variable that is nearly one of flhost's is an error: a server that starts without what it was told would run for
    days before anybody looks. The host itself, which many programs share, only warns."""
    from flhost import ConfigError

    known = [setting["variable"] for setting in host.config().values() if setting["variable"]]
    if host.config()["VLLM_FL_CHECK"]["value"] != "error":
        return
    for name in sorted(os.environ):
        if not name.startswith("VLLM_FL_") or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if near:
            raise ConfigError(
                f"{name}: unknown variable; did you mean '{near[0]}'? (VLLM_FL_CHECK=warn starts without it)"
            )


def is_given(setting: dict[str, Any]) -> bool:
    return setting["origin"] != "built-in"


def custom_ops(config: Any, host: Any) -> None:
    """vLLM's list becomes flhost's, as far as it names flhost's ops; without one flhost's becomes vLLM's."""
    words = config.compilation_config.custom_ops
    given = host.config()["custom_ops"]
    if words and not is_given(given):
        known = set(host.ops())
        ours = [word for word in words if word in ("all", "none") or word[1:] in known]
        if ours:
            _set(_CUSTOM_OPS, ",".join(ours), f"vLLM's custom_ops {words}")
    elif is_given(given) and not words:
        words.extend(given["value"])
        logger.info("flhost: custom_ops of %s is vLLM's, too: %s", given["origin"], words)


def ir_ops(config: Any, host: Any) -> None:
    """An IR op has flhost first, unless vLLM's list leaves it out: then vLLM keeps the layers of that op, too."""
    priority = getattr(getattr(config, "kernel_config", None), "ir_op_priority", None)
    for op in vars(priority) if priority is not None else ():
        words = getattr(priority, op)
        if not isinstance(words, list):
            continue
        if not words:
            if host.is_oot_allowed(op):
                words.append(PROVIDER)
        elif PROVIDER not in words:
            _leave(op, f"vLLM's ir_op_priority.{op}={','.join(words)}", host)


def attention(config: Any, host: Any) -> None:
    """A backend that is named is vLLM's own; so is the cache that a connector fills, in which vLLM packs keys for its own."""
    chosen = getattr(config, "attention_config", None)
    named = [getattr(chosen, "backend", None), *(getattr(chosen, "backend_per_kind", None) or {}).values()]
    said = next((f"vLLM's attention backend {backend.name}" for backend in named if backend is not None), None)
    if said is None and getattr(config, "kv_transfer_config", None) is not None:
        said = "vLLM's connector of caches"
    for op in BACKENDS if said is not None else ():
        _leave(op, str(said), host)


def _leave(op: str, said: str, host: Any) -> None:
    """The layers of that op stay vLLM's."""
    if not host.is_oot_enabled() or not host.is_oot_allowed(op):
        return
    if os.environ.get(_WHITELIST) is not None:
        logger.warning("flhost: %s has no effect on layers: %s is set", said, _WHITELIST)
        return
    named = os.environ.get(_BLACKLIST)
    _set(_BLACKLIST, f"{named},{op}" if named else op, said)
