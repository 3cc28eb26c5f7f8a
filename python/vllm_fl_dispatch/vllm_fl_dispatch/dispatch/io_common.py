"""What dumping the inputs and outputs of ops rests on: steps and order, ranks, where in a model a call is, statistics of
tensors, and the settings' forms. Imports torch when something of it is needed."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

HAS_TORCH_DISPATCH_MODE = HAS_TORCH_FUNC_MODE = importlib.util.find_spec("torch") is not None
DEFAULT_LAYER_PREFIX = "model.layers."

_lock = threading.Lock()

# ------------------------------------------------------------------------------------------------------ steps and order

_step_counter = 0
_exec_order = 0
_step_callbacks: list[Callable[[int], None]] = []


def get_step() -> int:
    return _step_counter


def advance_step() -> int:
    """The next step; who is registered hears of the one that ends."""
    global _step_counter
    for callback in list(_step_callbacks):
        callback(_step_counter)
    with _lock:
        _step_counter += 1
    reset_exec_order()
    return _step_counter


def reset_step() -> None:
    global _step_counter
    with _lock:
        _step_counter = 0


def register_step_callback(callback: Callable[[int], None]) -> None:
    if callback not in _step_callbacks:
        _step_callbacks.append(callback)


def unregister_step_callback(callback: Callable[[int], None]) -> None:
    if callback in _step_callbacks:
        _step_callbacks.remove(callback)


def next_exec_order() -> int:
    """Numbers calls within a step, from 1."""
    global _exec_order
    with _lock:
        _exec_order += 1
        return _exec_order


def get_exec_order() -> int:
    return _exec_order


def reset_exec_order() -> None:
    global _exec_order
    with _lock:
        _exec_order = 0


# ---------------------------------------------------------------------------------------------------------------- ranks

_rank: int | None = None


def get_rank() -> int:
    """This process's, from RANK or torch.distributed; 0 where there is none. Kept once it is known."""
    global _rank
    if _rank is None:
        word = os.environ.get("RANK", "")
        _rank = int(word) if word.isdigit() else _distributed_rank()
    return _rank


def _distributed_rank() -> int:
    import sys

    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    ready = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_rank()) if ready else 0


def reset_rank() -> None:
    global _rank
    _rank = None


# ---------------------------------------------------------------------------------------------------- places in a model

_paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_context = threading.local()


def register_module_paths(model: Any) -> None:
    """Remembers what the modules of a model are called."""
    for path, module in model.named_modules():
        if path:
            _paths[module] = path


def get_module_path(module: Any) -> str:
    """ "" for a module that nobody registered."""
    return _paths.get(module, "")


def _stack() -> list[tuple[str, str]]:
    if not hasattr(_context, "stack"):
        _context.stack = []
    return _context.stack


def push_module_context(cls_name: str, module: Any = None) -> None:
    """This thread is in the forward of a module."""
    _stack().append((cls_name, "" if module is None else get_module_path(module)))


def pop_module_context() -> None:
    if _stack():
        _stack().pop()


def get_current_module() -> str | None:
    return _stack()[-1][0] if _stack() else None


def get_current_module_path() -> str:
    return _stack()[-1][1] if _stack() else ""


def module_context_matches(names: set[str]) -> bool:
    return any(cls_name in names for cls_name, _ in _stack())


def path_matches(path: str, patterns: Iterable[str]) -> bool:
    """Is the path one of these, below one, or does a pattern with wildcards fit it?"""
    for pattern in patterns:
        if path == pattern or path.startswith(pattern + "."):
            return True
        if any(sign in pattern for sign in "*?[") and path and fnmatch.fnmatchcase(path, pattern):
            return True
    return False


def layer_path_matches(patterns: set[str]) -> bool:
    """Is this thread in one of these layers?"""
    return any(path_matches(path, patterns) for _, path in _stack())


def expand_layer_specs(specs: Iterable[str], prefix: str = DEFAULT_LAYER_PREFIX) -> set[str]:
    """Numbers and ranges of numbers ("2-4") as layers behind the prefix; others stay as they are."""
    expanded: set[str] = set()
    for spec in (word.strip() for word in specs):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", spec)
        if bounds:
            first, last = int(bounds[1]), int(bounds[2] or bounds[1])
            expanded.update(f"{prefix}{i}" for i in range(first, last + 1))
        elif spec:
            expanded.add(spec)
    return expanded


def list_model_layers(model: Any, max_depth: int | None = None) -> list[str]:
    """ "path (Class)" of each module of a model; those that lie deeper are left out."""
    return [
        f"{path} ({type(module).__name__})"
        for path, module in model.named_modules()
        if path and (max_depth is None or path.count(".") < max_depth)
    ]


# ----------------------------------------------------------------------------------------------- statistics of a tensor

_TENSOR_STAT_REGISTRY: list[tuple[str, Callable[[Any], Any], bool]] = [
    ("min", lambda tensor: tensor.min().item(), False),
    ("max", lambda tensor: tensor.max().item(), False),
    ("mean", lambda tensor: tensor.float().mean().item(), True),
    ("std", lambda tensor: tensor.float().std(correction=0).item(), True),
]


def register_tensor_stat(name: str, fn: Callable[[Any], Any], float_only: bool = True) -> None:
    """One more number for each tensor that is dumped; with float_only of tensors of floating point alone."""
    _TENSOR_STAT_REGISTRY.append((name, fn, float_only))


def tensor_stats(tensor: Any) -> dict[str, Any]:
    """Shape, dtype and device; and of one that has elements the registered numbers, as far as they can be had."""
    stats: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype), "device": str(tensor.device)}
    if not tensor.numel():
        return stats
    for name, fn, float_only in _TENSOR_STAT_REGISTRY:
        if float_only and not tensor.is_floating_point():
            continue
        try:
            stats[name] = fn(tensor.detach())
        except Exception as error:
            stats[name] = f"{type(error).__name__}: {error}"
    return stats


def format_value(value: Any) -> str:
    """A line for a log."""
    if hasattr(value, "numel") and hasattr(value, "dtype"):
        return " ".join(f"{name}={number}" for name, number in tensor_stats(value).items())
    return repr(value)


# ------------------------------------------------------------------------------------------------------- torch's modes


class ModeManager:
    """Modes of torch that are entered by name, and left."""

    def __init__(self) -> None:
        self._entered: dict[str, Any] = {}

    def is_entered(self, name: str) -> bool:
        return name in self._entered

    def enter(self, name: str, mode: Any) -> None:
        if name not in self._entered:
            mode.__enter__()
            self._entered[name] = mode

    def exit(self, name: str) -> None:
        mode = self._entered.pop(name, None)
        if mode is not None:
            mode.__exit__(None, None, None)


dispatch_mode_mgr = ModeManager()
func_mode_mgr = ModeManager()

# Functions that say nothing of what is computed.
SKIP_TORCH_FUNCS = frozenset(
    [
        "size",
        "dim",
        "shape",
        "numel",
        "stride",
        "storage_offset",
        "data_ptr",
        "is_contiguous",
        "element_size",
        "type",
        "to",
        "cpu",
        "item",
        "tolist",
    ]
)


def get_torch_func_name(func: Any) -> str:
    return getattr(func, "__name__", str(func))


# ------------------------------------------------------------------------------------------------------------- settings


def parse_names(value: Any) -> set[str]:
    """A list, or a string with commas."""
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple, set)) else []
    return {str(word).strip() for word in words if str(word).strip()}


def parse_step_range(value: Any) -> tuple[int, int] | None:
    """ "a-b", both included, or one number; as (first, last + 1). None: no such thing."""
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return int(value[0]), int(value[1])
    bounds = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", str(value)) if value is not None else None
    return (int(bounds[1]), int(bounds[2] or bounds[1]) + 1) if bounds else None


def parse_torch_funcs_config(value: Any) -> tuple[bool, set[str]]:
    """ "" and "0": none; "1": all; else names. The same of a YAML file: a bool or a list."""
    if isinstance(value, (bool, int)):
        return bool(value), set()
    if isinstance(value, str) and value.strip() in ("", "0", "1"):
        return value.strip() == "1", set()
    names = parse_names(value)
    return bool(names), names


def parse_rank_filter(value: Any) -> set[int] | None:
    """None: all."""
    if value is None or (isinstance(value, str) and value.strip() in ("", "all")):
        return None
    words = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple, set)) else [value]
    return {int(word) for word in words if str(word).strip().isdigit()}


_YAML_FORMS: dict[str, Callable[[Any], Any]] = {
    "dir": str,
    "with_print": bool,
    "ops": parse_names,
    "modules": parse_names,
    "layers": lambda value: expand_layer_specs(parse_names(value)),
    "max_calls": int,
    "step_range": parse_step_range,
    "with_torch_funcs": parse_torch_funcs_config,
    "ranks": parse_rank_filter,
    "with_metas": bool,
    "with_values": bool,
}


def parse_io_config_from_yaml(config_path: str) -> dict[str, Any]:
    """{"io_dump": settings} of a policy file that has that section; {} of one that has not, or is not there."""
    import yaml

    try:
        with open(config_path, encoding="utf-8") as file:
            section = (yaml.safe_load(file) or {}).get("io_dump")
    except (OSError, yaml.YAMLError, AttributeError):
        return {}
    if not isinstance(section, dict):
        return {}
    return {"io_dump": {key: form(section[key]) for key, form in _YAML_FORMS.items() if section.get(key) is not None}}
