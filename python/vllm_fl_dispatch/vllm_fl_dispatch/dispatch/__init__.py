"""vllm_fl.dispatch over flhost: the names and the import path that vllm-plugin-FL has, the host's selection behind them.

    from vllm_fl.dispatch import call_op
    out = call_op("silu_and_mul", layer, x)

Python backends that were written for vllm-plugin-FL load unchanged and stand beside C plugins under one policy; the
VLLM_FL_* variables mean what flhost(7) says. docs/from-vllm-plugin-fl.md has what is different.
"""

import logging as _logging

from .discovery import (
    PLUGIN_GROUP,
    PLUGIN_MODULES_ENV,
    clear_discovered_plugins,
    discover_plugins,
    get_discovered_plugins,
)
from .io_common import list_model_layers, register_tensor_stat, tensor_stats
from .io_dumper import disable_io_dump, enable_io_dump, io_dump_step, is_dump_enabled
from .logger_manager import get_logger, set_log_level
from .manager import CachedOp, OpManager, call_op, get_default_manager, reset_default_manager, resolve_op
from .ops import VLLMFLBackendBase
from .policy import (
    PREFER_DEFAULT,
    PREFER_REFERENCE,
    PREFER_VENDOR,
    PolicyManager,
    SelectionPolicy,
    get_policy,
    get_policy_epoch,
    policy_context,
    policy_from_config,
    reset_global_policy,
    set_global_policy,
    with_allowed_vendors,
    with_denied_vendors,
    with_preference,
    with_strict_mode,
)
from .registry import OpRegistry, OpRegistrySnapshot
from .types import BackendImplKind, BackendPriority, OpImpl, match_token

__all__ = [
    "PLUGIN_GROUP",
    "PLUGIN_MODULES_ENV",
    "PREFER_DEFAULT",
    "PREFER_REFERENCE",
    "PREFER_VENDOR",
    "BackendImplKind",
    "BackendPriority",
    "CachedOp",
    "OpImpl",
    "OpManager",
    "OpRegistry",
    "OpRegistrySnapshot",
    "PolicyManager",
    "SelectionPolicy",
    "VLLMFLBackendBase",
    "call_op",
    "clear_discovered_plugins",
    "disable_io_dump",
    "discover_plugins",
    "enable_io_dump",
    "get_default_manager",
    "get_discovered_plugins",
    "get_logger",
    "get_policy",
    "get_policy_epoch",
    "io_dump_step",
    "is_dump_enabled",
    "list_model_layers",
    "match_token",
    "policy_context",
    "policy_from_config",
    "register_tensor_stat",
    "reset_default_manager",
    "reset_global_policy",
    "resolve_op",
    "set_global_policy",
    "set_log_level",
    "tensor_stats",
    "with_allowed_vendors",
    "with_denied_vendors",
    "with_preference",
    "with_strict_mode",
]

_logging.getLogger("vllm_fl.dispatch").debug("vllm_fl.dispatch is served by flhost, from %s", __path__[0])
