"""Dumps what goes into ops and comes out: of ops of the dispatcher, of what torch runs below, and of functions of torch.

    VLLM_FL_IO_DUMP=folder         a summary of the ops that ran, {folder}/rank_0000/summary.json
    VLLM_FL_IO_DUMP_WITH_METAS=1   shapes and statistics of each call, rank_0000/step_0000/OP/input.json and output.json
    VLLM_FL_IO_DUMP_WITH_VALUES=1  the tensors, rank_0000/step_0000/OP/call_1_input.pt

VLLM_FL_IO_DUMP_OPS, _MODULES, _LAYERS, _MAX_CALLS, _STEP_RANGE, _RANK, _WITH_PRINT and _WITH_TORCH_FUNCS narrow it down;
a policy file may have the same in its section io_dump. Files are complete when a call returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import io_common
from .io_common import (
    SKIP_TORCH_FUNCS,
    dispatch_mode_mgr,
    expand_layer_specs,
    func_mode_mgr,
    get_torch_func_name,
    next_exec_order,
    parse_names,
    parse_rank_filter,
    parse_step_range,
    parse_torch_funcs_config,
)
from .logger_manager import get_logger

logger = get_logger("vllm_fl.dispatch.io_dump")

_lock = threading.RLock()
_PREFIX = "VLLM_FL_IO_DUMP"
_TRUE = ("1", "true")

# The settings in force, each a variable of this module.
_DEFAULTS: dict[str, Any] = {
    "enabled": False,
    "dump_dir": "",
    "match_all": False,
    "op_filter": frozenset(),
    "module_filter": frozenset(),
    "layer_filter": frozenset(),
    "max_calls": 0,
    "step_range": None,
    "rank_filter": None,
    "with_print": False,
    "with_metas": False,
    "with_values": False,
    "torch_funcs_enabled": False,
    "torch_func_filter": frozenset(),
}
_enabled = False
_dump_dir = ""
_match_all = False
_op_filter: set[str] = set()
_module_filter: set[str] = set()
_layer_filter: set[str] = set()
_max_calls = 0
_step_range: tuple[int, int] | None = None
_rank_filter: set[int] | None = None
_with_print = False
_with_metas = False
_with_values = False
_torch_funcs_enabled = False
_torch_func_filter: set[str] = set()

_call_counters: dict[str, int] = {}  # of this step
_op_summary: dict[str, dict[str, Any]] = {}
_exported: list[str] = []  # variables that enable_io_dump set
_hooks: list[Any] = []
_thread = threading.local()


# ------------------------------------------------------------------------------------------------------ what is dumped


def is_dump_enabled() -> bool:
    return _enabled


def _rank_ok() -> bool:
    return _rank_filter is None or io_common.get_rank() in _rank_filter


def _within_limits(op_name: str) -> bool:
    if _max_calls and _call_counters.get(op_name, 0) >= _max_calls:
        return False
    return _step_range is None or _step_range[0] <= io_common.get_step() < _step_range[1]


def _is_module(value: Any) -> bool:
    return hasattr(value, "named_modules") and hasattr(value, "forward")


def _place_matches(args: tuple) -> bool:
    """Is the call in a module and a layer that are asked for?"""
    module = args[0] if args and _is_module(args[0]) else None
    if _module_filter:
        named = module is not None and type(module).__name__ in _module_filter
        if not named and not io_common.module_context_matches(_module_filter):
            return False
    if _layer_filter:
        path = "" if module is None else io_common.get_module_path(module)
        if not io_common.path_matches(path, _layer_filter) and not io_common.layer_path_matches(_layer_filter):
            return False
    return True


def _should_dump(op_name: str, args: tuple) -> bool:
    if not _enabled or not _rank_ok() or not _within_limits(op_name):
        return False
    return (not _op_filter or op_name in _op_filter) and _place_matches(args)


def _should_dump_torch_func(func_name: str) -> bool:
    if not _enabled or not _torch_funcs_enabled or not _rank_ok():
        return False
    if func_name.startswith("__") or func_name in SKIP_TORCH_FUNCS or not _within_limits(f"torch.{func_name}"):
        return False
    if _torch_func_filter and func_name not in _torch_func_filter:
        return False
    return (not _op_filter or func_name in _op_filter) and _place_matches(())


@contextlib.contextmanager
def _not_looking() -> Iterator[bool]:
    """What the dumper itself computes is not dumped: False inside of it."""
    outer = getattr(_thread, "inside", False)
    _thread.inside = True
    try:
        yield not outer
    finally:
        _thread.inside = outer


# ------------------------------------------------------------------------------------------------------------ contents


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "numel") and hasattr(value, "is_floating_point")


def _serialize_value(value: Any) -> Any:
    """What can be kept of a value: tensors in the host's memory, modules by their text."""
    if _is_tensor(value):
        return value.detach().cpu().clone()
    if isinstance(value, (tuple, list)):
        return type(value)(_serialize_value(item) for item in value) if type(value) in (tuple, list) else list(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _named(args: tuple, kwargs: dict, is_output: bool) -> Iterator[tuple[str, Any]]:
    """arg_0, kwarg_NAME; result, or result_0 and on of several."""
    if is_output:
        result = args[0]
        several = isinstance(result, (tuple, list))
        yield from ((f"result_{i}", item) for i, item in enumerate(result)) if several else [("result", result)]
        return
    yield from ((f"arg_{i}", value) for i, value in enumerate(args))
    yield from ((f"kwarg_{name}", value) for name, value in kwargs.items())


def _build_data(args: tuple, kwargs: dict, *, is_output: bool = False) -> dict[str, Any]:
    return {name: _serialize_value(value) for name, value in _named(args, kwargs, is_output)}


def _extract_tensor_refs(args: tuple, kwargs: dict, *, is_output: bool = False) -> dict[str, Any]:
    return {name: value for name, value in _named(args, kwargs, is_output) if _is_tensor(value)}


# --------------------------------------------------------------------------------------------------------------- files


def _rank_dir() -> str:
    return os.path.join(_dump_dir, f"rank_{io_common.get_rank():04d}")


def _op_dir(op_name: str) -> str:
    folder = re.sub(r"[^\w.+-]", "_", op_name).lstrip(".") or "_"
    path = os.path.join(_rank_dir(), f"step_{io_common.get_step():04d}", folder)
    os.makedirs(path, exist_ok=True)
    return path


def _write(call: _Call, which: str, args: tuple, kwargs: dict) -> None:
    """One line of a JSON file and one file of tensors, as far as they are asked for."""
    is_output = which == "output"
    if _with_print:
        for name, value in _named(args, kwargs, is_output):
            logger.info("%s call %d %s %s: %s", call.op, call.number, which, name, io_common.format_value(value))
    if not _dump_dir or call.folder is None:
        return
    with _lock:
        if _with_metas:
            tensors = _extract_tensor_refs(args, kwargs, is_output=is_output)
            meta = {
                **call.meta,
                "tensors": {name: io_common.tensor_stats(tensor) for name, tensor in tensors.items()},
            }
            with open(os.path.join(call.folder, f"{which}.json"), "a", encoding="utf-8") as file:
                file.write(json.dumps({f"call_{call.number}": meta}, default=str) + "\n")
        if _with_values:
            import torch

            path = os.path.join(call.folder, f"call_{call.number}_{which}.pt")
            torch.save(_build_data(args, kwargs, is_output=is_output), path)


def _wait_and_flush() -> None:
    """Nothing is written behind a call's back."""


# --------------------------------------------------------------------------------------------------------------- calls


class _Call:
    """One that is dumped, between its input and its output."""

    __slots__ = ("folder", "meta", "number", "op")

    def __init__(self, op: str, exec_order: int | None, tags: dict[str, Any], dispatch_keys: str) -> None:
        with _lock:
            self.op = op
            self.number = _call_counters[op] = _call_counters.get(op, 0) + 1
            seen = _op_summary.setdefault(op, {"dispatch_keys": dispatch_keys, "call_count": 0})
            seen["call_count"] += 1
        self.folder = _op_dir(op) if _dump_dir and (_with_metas or _with_values) else None
        self.meta = {
            "op_name": op,
            "exec_order": next_exec_order() if exec_order is None else exec_order,
            "rank": io_common.get_rank(),
            "step": io_common.get_step(),
            "module": io_common.get_current_module(),
            "layer": io_common.get_current_module_path(),
            **tags,
        }


def _pending() -> list[_Call]:
    if not hasattr(_thread, "pending"):
        _thread.pending = []
    return _thread.pending


def _take_pending(op_name: str) -> _Call | None:
    pending = _pending()
    for i in range(len(pending) - 1, -1, -1):
        if pending[i].op == op_name:
            return pending.pop(i)
    return None


def dump_before(
    op_name: str,
    args: tuple,
    kwargs: dict,
    exec_order: int | None = None,
    module_tag: str = "",
    op_tag: str = "",
    dispatch_keys: str = "",
) -> None:
    """A call begins: its input is dumped, if it is asked for."""
    if not _should_dump(op_name, args):
        return
    tags = {name: tag for name, tag in (("module_tag", module_tag), ("op_tag", op_tag)) if tag}
    with _not_looking():
        call = _Call(op_name, exec_order, tags, dispatch_keys)
        _pending().append(call)
        _write(call, "input", args, kwargs)


def dump_after(op_name: str, args: tuple, result: Any) -> None:
    """It has ended: its output."""
    if not _enabled:
        return
    call = _take_pending(op_name)
    if call is None:
        if _should_dump(op_name, args):
            logger.warning("The output of '%s' is not dumped: its input was not", op_name)
        return
    with _not_looking():
        _write(call, "output", (result,), {})


def dump_cleanup(op_name: str) -> None:
    """It failed: there is no output."""
    _take_pending(op_name)


def _dumped(op_name: str, args: tuple, kwargs: dict, dispatch_keys: str, call: Callable[[], Any]) -> Any:
    """A call and its dump; what goes wrong in dumping never breaks a call."""
    for_it = next_exec_order()
    try:
        dump_before(op_name, args, kwargs, exec_order=for_it, dispatch_keys=dispatch_keys)
    except Exception as error:
        logger.debug(f"dump_before hook failed for '{op_name}': {error}")
    try:
        result = call()
    except BaseException:
        dump_cleanup(op_name)
        raise
    try:
        dump_after(op_name, args, result)
    except Exception as error:
        logger.debug(f"dump_after hook failed for '{op_name}': {error}")
    return result


def call_dumped(op_name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """For the manager, while dumping is on."""
    return _dumped(op_name, args, kwargs, "", lambda: function(*args, **kwargs))


# ---------------------------------------------------------------------------------------------------------- torch's ops


def _dispatch_keys(func: Any, args: tuple) -> str:
    """Who runs an op of torch for these tensors, as [(key, backend, False)]: FlagGems where it registered the kernel."""
    import torch

    tensor = next((value for value in args if _is_tensor(value)), None)
    key = "CPU" if tensor is None else tensor.device.type.upper()
    try:
        table = torch._C._dispatch_dump_table(func.name())
    except Exception:
        return f"[({key}, {key}, False)]"
    line = next((line for line in table.splitlines() if line.startswith(key + ":")), "")
    return f"[({key}, {'FlagGems' if 'flag_gems' in line else key}, False)]"


def _make_dispatch_mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class DumpOps(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            kwargs = kwargs or {}
            name = str(getattr(func, "overloadpacket", func))
            if getattr(_thread, "inside", False) or not _should_dump(name, args):
                return func(*args, **kwargs)
            return _dumped(name, args, kwargs, _dispatch_keys(func, args), lambda: func(*args, **kwargs))

    return DumpOps()


def _make_func_mode() -> Any:
    from torch.overrides import TorchFunctionMode

    class DumpFunctions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            kwargs = kwargs or {}
            name = get_torch_func_name(func)
            if getattr(_thread, "inside", False) or not _should_dump_torch_func(name):
                return func(*args, **kwargs)
            return _dump_function(f"torch.{name}", func, args, kwargs)

    return DumpFunctions()


def _dump_function(name: str, func: Any, args: tuple, kwargs: dict) -> Any:
    with _not_looking():
        call = _Call(name, None, {}, "")
        _write(call, "input", args, kwargs)
    result = func(*args, **kwargs)
    with _not_looking():
        _write(call, "output", (result,), {})
    return result


def register_io_module_hooks(model: Any) -> None:
    """While dumping is on: the modules of the model say when a thread is in them."""
    if not _enabled:
        return
    io_common.register_module_paths(model)
    for module in model.modules():
        _hooks.append(module.register_forward_pre_hook(_enter_module))
        _hooks.append(module.register_forward_hook(_leave_module, always_call=True))


def _enter_module(module: Any, args: Any) -> None:
    io_common.push_module_context(type(module).__name__, module)


def _leave_module(module: Any, args: Any, output: Any) -> None:
    io_common.pop_module_context()


# ------------------------------------------------------------------------------------------------------------ on and off


def _put_in_force(settings: dict[str, Any]) -> None:
    globals().update({f"_{name}": settings[name] for name in _DEFAULTS})


def _begin(settings: dict[str, Any]) -> None:
    """Dumping is on, with these settings."""
    from .manager import forget_callers

    named = settings["op_filter"] or settings["module_filter"]
    directory = settings["dump_dir"]
    if directory:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            logger.warning("Cannot create dump directory '%s': %s. File dumping disabled.", directory, error)
            settings["dump_dir"] = ""
    _put_in_force({**_DEFAULTS, **settings, "enabled": True, "match_all": not named})
    _call_counters.clear()
    _op_summary.clear()
    io_common.register_step_callback(_step_ends)
    if io_common.HAS_TORCH_DISPATCH_MODE:
        dispatch_mode_mgr.enter("dump", _make_dispatch_mode())
        if _torch_funcs_enabled:
            func_mode_mgr.enter("dump", _make_func_mode())
    forget_callers()


def enable_io_dump(
    dump_dir: str = "",
    ops: set[str] | None = None,
    modules: set[str] | None = None,
    layers: set[str] | None = None,
    max_calls: int = 0,
    step_range: Any = None,
    with_torch_funcs: Any = False,
    ranks: set[int] | None = None,
    with_print: bool = False,
    with_metas: bool = False,
    with_values: bool = False,
) -> None:
    """Begins to dump. Processes that are started later do so, too: the settings are put into the environment."""
    disable_io_dump()
    enabled, functions = parse_torch_funcs_config(with_torch_funcs)
    settings = {
        "dump_dir": str(dump_dir),
        "op_filter": set(ops or ()),
        "module_filter": set(modules or ()),
        "layer_filter": expand_layer_specs(layers or ()),
        "max_calls": int(max_calls),
        "step_range": parse_step_range(step_range),
        "rank_filter": None if ranks is None else set(ranks),
        "with_print": bool(with_print),
        "with_metas": bool(with_metas),
        "with_values": bool(with_values),
        "torch_funcs_enabled": enabled,
        "torch_func_filter": functions,
    }
    _begin(settings)
    _export()


def _export() -> None:
    """The settings in force, for child processes."""
    steps = "" if _step_range is None else f"{_step_range[0]}-{_step_range[1] - 1}"
    values = {
        "": _dump_dir or ("0" if not _with_print else ""),
        "_OPS": ",".join(sorted(_op_filter)),
        "_MODULES": ",".join(sorted(_module_filter)),
        "_LAYERS": ",".join(sorted(_layer_filter)),
        "_MAX_CALLS": str(_max_calls or ""),
        "_STEP_RANGE": steps,
        "_RANK": "" if _rank_filter is None else ",".join(map(str, sorted(_rank_filter))),
        "_WITH_PRINT": "1" if _with_print else "",
        "_WITH_METAS": "1" if _with_metas else "",
        "_WITH_VALUES": "1" if _with_values else "",
        "_WITH_TORCH_FUNCS": ",".join(sorted(_torch_func_filter)) or ("1" if _torch_funcs_enabled else ""),
    }
    for name, value in values.items():
        if value and _PREFIX + name not in os.environ:
            os.environ[_PREFIX + name] = value
            _exported.append(_PREFIX + name)


def disable_io_dump() -> None:
    """Ends it and writes the summary. The step stays what it is."""
    from .manager import forget_callers

    with _lock:
        if _enabled:
            _write_summary()
        func_mode_mgr.exit("dump")
        dispatch_mode_mgr.exit("dump")
        io_common.unregister_step_callback(_step_ends)
        while _hooks:
            _hooks.pop().remove()
        while _exported:
            os.environ.pop(_exported.pop(), None)
        _put_in_force({name: set() if value == frozenset() else value for name, value in _DEFAULTS.items()})
        _call_counters.clear()
        _op_summary.clear()
        _pending().clear()
        forget_callers()


def _write_summary() -> None:
    """Which ops ran, by whether FlagGems ran them."""
    if not _dump_dir or not _op_summary or not _rank_ok():
        return
    summary: dict[str, dict[str, Any]] = {"flaggems_ops": {}, "non_flaggems_ops": {}}
    for op, seen in sorted(_op_summary.items()):
        summary["flaggems_ops" if "FlagGems" in seen["dispatch_keys"] else "non_flaggems_ops"][op] = seen
    os.makedirs(_rank_dir(), exist_ok=True)
    with open(os.path.join(_rank_dir(), "summary.json"), "w", encoding="utf-8") as file:
        json.dump(summary, file, indent=2)


# --------------------------------------------------------------------------------------------------------------- steps


def _step_ends(step: int) -> None:
    if _enabled and _call_counters:
        logger.info("Step summary: step %d, ops: %s", step, ", ".join(sorted(_call_counters)))
    _call_counters.clear()


def io_dump_step() -> int:
    """The next step of the engine; gives back its number."""
    step = io_common.advance_step()
    _call_counters.clear()
    return step


def advance_io_step() -> None:
    """The same, where dumping is on."""
    if _enabled:
        io_dump_step()


# ---------------------------------------------------------------------------------------------------------- environment


def _word(name: str) -> str | None:
    value = os.environ.get(_PREFIX + name, "").strip()
    return value or None


def _from_environment() -> dict[str, Any]:
    directory = _word("")
    enabled, functions = parse_torch_funcs_config(_word("_WITH_TORCH_FUNCS") or "")
    calls = _word("_MAX_CALLS") or ""
    return {
        "dump_dir": "./io_dump" if directory == "1" else "" if directory in (None, "0") else directory,
        "op_filter": parse_names(_word("_OPS")),
        "module_filter": parse_names(_word("_MODULES")),
        "layer_filter": expand_layer_specs(parse_names(_word("_LAYERS"))),
        "max_calls": int(calls) if calls.isdigit() else 0,
        "step_range": parse_step_range(_word("_STEP_RANGE")),
        "rank_filter": parse_rank_filter(_word("_RANK")),
        "with_print": (_word("_WITH_PRINT") or "").lower() in _TRUE,
        "with_metas": (_word("_WITH_METAS") or "").lower() in _TRUE,
        "with_values": (_word("_WITH_VALUES") or "").lower() in _TRUE,
        "torch_funcs_enabled": enabled,
        "torch_func_filter": functions,
    }


# What a policy file calls the settings.
_YAML_NAMES = {
    "dir": "dump_dir",
    "ops": "op_filter",
    "modules": "module_filter",
    "layers": "layer_filter",
    "ranks": "rank_filter",
}


def _from_file(settings: dict[str, Any]) -> None:
    """What VLLM_FL_CONFIG's file says of dumping takes the place of what the environment says."""
    path = os.environ.get("VLLM_FL_CONFIG", "").strip()
    section = io_common.parse_io_config_from_yaml(path).get("io_dump", {}) if path else {}
    for key, value in section.items():
        if key == "with_torch_funcs":
            settings["torch_funcs_enabled"], settings["torch_func_filter"] = value
        else:
            settings[_YAML_NAMES.get(key, key)] = value
    if section:
        settings["with_values"] = section.get("with_values", False)


def _init_from_env() -> None:
    settings = _from_environment()
    _from_file(settings)
    asked = ("dump_dir", "with_print", "step_range", "layer_filter")
    if os.environ.get(_PREFIX, "").strip() == "0" or not any(settings[name] for name in asked):
        return
    _begin(settings)
    logger.info(
        "IO Dump enabled (env/yaml): rank=%d, rank_filter=%s, dir=%s, ops=%s, modules=%s, layers=%s",
        io_common.get_rank(),
        _rank_filter,
        _dump_dir,
        sorted(_op_filter) or "all",
        sorted(_module_filter) or "all",
        sorted(_layer_filter) or "all",
    )


def init_io_dump_from_env(eager: bool) -> None:
    """For the engine's start: begins to dump if the environment or the policy file says so. In graphs nothing can be."""
    if eager and not _enabled:
        _init_from_env()
