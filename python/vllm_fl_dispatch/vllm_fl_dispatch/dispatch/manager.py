"""OpManager: ops by name, called with Python objects. A host selects, falls back, remembers and counts; here its answers
get the form that Python has always had."""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flhost import _core

from . import _host, adapters, io_dumper
from .logger_manager import get_logger, take_over_host_log
from .policy import PolicyManager, SelectionPolicy, get_policy
from .registry import OpRegistry
from .types import BackendImplKind, OpImpl

get_logger()
logger = logging.getLogger("vllm_fl.dispatch.manager")


@dataclass
class _OpManagerState:
    init_pid: int = -1
    initialized: bool = False
    policy_epoch: int = 0


class OpManager:
    """Dispatches the ops of a registry, and those of the host's plugins beside them.

    Each has a host of its own; the default one has flhost.default_host(), which flhost's other clients share.
    """

    def __init__(self, registry: OpRegistry | None = None) -> None:
        take_over_host_log()
        self._make_host = _host.make_host
        self._lock = threading.RLock()
        self._registry = registry if registry is not None else OpRegistry()
        self._state = _OpManagerState()
        self._registered = False  # what register_builtins brings
        self._made_host: Any | None = None
        self._policies = PolicyManager.get_instance()
        self._policy_is_current = False
        self._callers: dict[str, Callable[..., Any]] = {}  # ready to call; emptied when something changes
        self._dispatch_cache: dict[tuple[str, SelectionPolicy, int], OpImpl] = {}
        self._candidates_cache: dict[tuple[str, SelectionPolicy, int], list[OpImpl]] = {}
        # What was put down here by hand; what calls found is the host's to know.
        self._failed_impls: dict[str, set[str]] = {}
        self._policies._listeners.add(self)
        _managers.add(self)

    # ----------------------------------------------------------------------------------------------- host and registry

    @property
    def registry(self) -> OpRegistry:
        return self._registry

    @property
    def host(self) -> Any:
        """The flhost.Host behind it: explain, counters, manifest and all."""
        with self._lock:
            if self._made_host is None:
                self._made_host = self._make_host()
                if self._make_host is _host.make_host:
                    self._policies._is_fresh(self._made_host)
                self._registry._attach(self)
            return self._made_host

    def _retire(self) -> None:
        """Leaves the shared host as it would be without this manager."""
        with self._lock:
            host, self._make_host = self._made_host, _host.make_host
            if host is None:
                return
            self._registry._detach(self)
            for impl in self._registry._all():
                _host.withdraw(host, impl.op_name, impl.impl_id)
            self._made_host = None
            self._policy_is_current = False
            self._forget()
            host.clear_failed_impls()

    def _add_impl(self, impl: OpImpl) -> None:
        _host.register(self._made_host, impl, _availability(impl))
        self._forget()

    def _remove_impl(self, impl: OpImpl) -> None:
        _host.withdraw(self._made_host, impl.op_name, impl.impl_id)
        self._forget()

    def _forget(self) -> None:
        self._dispatch_cache.clear()
        self._candidates_cache.clear()
        self._callers.clear()
        _forget_callers()

    def _policy_changed(self) -> None:
        self._policy_is_current = False
        self._callers.clear()
        _forget_callers()

    def _ready_host(self) -> Any:
        """The host with what there is to register, under the policy for all."""
        self.ensure_initialized()
        host = self.host
        with self._lock:
            if not self._policy_is_current:
                self._policies._put_in_force(host)
                self._policy_is_current = True
        return host

    def ensure_initialized(self) -> None:
        """Registers what there is; once, and again nowhere: a forked child has it."""
        if self._state.initialized and self._state.init_pid == os.getpid():
            return
        with self._lock:
            pid = os.getpid()
            if self._state.initialized and self._state.init_pid == pid:
                return
            logger.debug(f"Initializing OpManager in PID {pid}")
            if not self._registered:
                from . import builtin_ops

                builtin_ops.register_builtins(self._registry)
                self._registered = True
            self._state.initialized = True
            self._state.init_pid = pid
            self._state.policy_epoch += 1
            self._forget()
            self._say_what_is_there()

    def _say_what_is_there(self) -> None:
        impls = [impl for of_op in self._registry.snapshot().impls_by_op.values() for impl in of_op]
        ops = len(self._registry.list_operators())
        logger.info(f"OpManager initialized: {ops} ops with {len(impls)} implementations")
        vendor, default, reference = (
            sum(impl.kind == kind for impl in impls)
            for kind in (BackendImplKind.VENDOR, BackendImplKind.DEFAULT, BackendImplKind.REFERENCE)
        )
        logger.debug(f"  Vendor: {vendor}, Default: {default}, Reference: {reference}")

    # ---------------------------------------------------------------------------------------------------------- epochs

    @property
    def policy_epoch(self) -> int:
        return self._state.policy_epoch

    def bump_policy_epoch(self) -> None:
        """Forgets failures and all that was resolved."""
        with self._lock:
            self._state.policy_epoch += 1
            self._failed_impls.clear()
            self._forget()
            if self._made_host is not None:
                self._made_host.bump_policy_epoch()
            logger.debug(f"Policy epoch bumped to {self._state.policy_epoch}")

    def _after_fork(self) -> None:
        """The host has seen to itself; what lies beside it follows."""
        self._lock = self._registry._lock = threading.RLock()  # who held them is not here
        self._state = _OpManagerState(policy_epoch=self._state.policy_epoch + 1)
        self._failed_impls.clear()
        self._forget()
        logger.debug("OpManager reset after fork")

    # -------------------------------------------------------------------------------------------------------- failures

    def clear_failed_impls(self, op_name: str | None = None) -> None:
        """Lets them be tried again."""
        with self._lock:
            if op_name is None:
                self._failed_impls.clear()
            else:
                self._failed_impls.pop(op_name, None)
            if self._made_host is not None:
                self._made_host.clear_failed_impls(op_name)

    def get_failed_impls(self, op_name: str | None = None) -> dict[str, set[str]]:
        """Those that calls skip because they failed: {op: {impl_id}}, a copy."""
        with self._lock:
            found = {op: set(ids) for op, ids in self._failed_impls.items() if op_name in (None, op)}
            if self._made_host is not None:
                for op, reasons in _host.failed(self._made_host, op_name).items():
                    found.setdefault(op, set()).update(reasons)
            return found

    # ------------------------------------------------------------------------------------------------------- resolving

    def _candidates(self, op_name: str) -> list[OpImpl]:
        host = self._ready_host()
        policy = get_policy()
        key = (op_name, policy, self._state.policy_epoch)
        found = self._candidates_cache.get(key)
        if found is None:
            adapted = adapters.find(op_name) is not None
            device = _host.device_of(host) if adapted else _host.OPAQUE
            listed, error = _host.candidates(host, op_name, device, self._policies._native.get())
            if not listed:
                raise RuntimeError(error)
            found = self._candidates_cache[key] = [self._impl_of(op_name, item) for item in listed]
        return found

    def _impl_of(self, op_name: str, item: dict[str, Any]) -> OpImpl:
        """What Python registered, or a stand-in for one of a plugin's, which is called through the host."""
        impl = self._registry.get_implementation(op_name, item["impl_id"])
        if impl is not None:
            return impl
        return OpImpl(
            op_name=op_name,
            impl_id=item["impl_id"],
            kind=BackendImplKind(item["kind"]),
            fn=functools.partial(self._call_one, op_name, item["impl_id"]),
            vendor=item["vendor"],
            priority=item["priority"],
        )

    def _call_one(self, op_name: str, impl_id: str, *args: Any, **kwargs: Any) -> Any:
        policy = _host.make_policy(per_op={op_name: [f"impl:{impl_id}"]}, strict=True)
        caller = _core.Caller(self._ready_host(), op_name, lambda: policy, adapters.find(op_name), _failure)
        return caller(*args, **kwargs)

    def _resolve_impl(self, op_name: str) -> OpImpl:
        key = (op_name, get_policy(), self._state.policy_epoch)
        chosen = self._dispatch_cache.get(key)
        if chosen is None:
            chosen = self._candidates(op_name)[0]
            key = (op_name, get_policy(), self._state.policy_epoch)
            self._dispatch_cache[key] = chosen
        return chosen

    def resolve(self, op_name: str) -> Callable[..., Any]:
        """The function that the policy in force puts first. RuntimeError: there is none, and why."""
        return self._resolve_impl(op_name).fn

    def resolve_candidates(self, op_name: str) -> list[OpImpl]:
        """All that may be tried, in that order."""
        return list(self._candidates(op_name))

    def get_selected_impl_id(self, op_name: str) -> str:
        return self._resolve_impl(op_name).impl_id

    # --------------------------------------------------------------------------------------------------------- calling

    def _caller(self, op_name: str) -> Callable[..., Any]:
        """Calls the op in the host; kept as long as nothing changes."""
        host = self._ready_host()
        if not _host.has_op(host, op_name):
            raise RuntimeError(f"No available implementation for op='{op_name}'. Registered: []")
        caller = _core.Caller(host, op_name, self._policies._native.get, adapters.find(op_name), _failure)
        if io_dumper.is_dump_enabled():
            return functools.partial(io_dumper.call_dumped, op_name, caller)
        self._callers[op_name] = caller
        return caller

    def call(self, op_name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls the op. Not strict: what fails is replaced by the next candidate; RuntimeError when none is left."""
        caller = self._callers.get(op_name)
        if caller is None:
            caller = self._caller(op_name)
        return caller(*args, **kwargs)


def _failure(status: int, message: str, last: BaseException | None) -> BaseException:
    """What a call that failed raises: the host's words, with the last implementation's exception for its cause."""
    error = RuntimeError(message)
    error.__cause__ = last
    return error


def _availability(impl: OpImpl) -> Callable[[], bool] | None:
    """The function's own predicate, which the host asks, with its exception for the reason (R6)."""
    ask = getattr(impl.fn, "_is_available", None)
    return ask if callable(ask) else None


# -------------------------------------------------------------------------------------------------- what all managers share

_managers: weakref.WeakSet[OpManager] = weakref.WeakSet()
_cached_ops: weakref.WeakSet[CachedOp] = weakref.WeakSet()


def _forget_callers() -> None:
    for cached in list(_cached_ops):
        cached._caller = None


def forget_callers() -> None:
    """What calls do has changed for all managers, as when dumping begins or ends."""
    for manager in list(_managers):
        manager._callers.clear()
    _forget_callers()


def _after_fork_in_child() -> None:
    global _manager_lock
    _manager_lock = threading.RLock()
    PolicyManager.get_instance()._lock = threading.RLock()
    for manager in list(_managers):
        manager._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)

_default_manager: OpManager | None = None
_manager_lock = threading.RLock()


def get_default_manager() -> OpManager:
    """The one of this process, made when first asked for."""
    global _default_manager
    manager = _default_manager
    if manager is None:
        with _manager_lock:
            if _default_manager is None:
                _default_manager = OpManager()
                _default_manager._make_host = _host.shared_host
            manager = _default_manager
    return manager


def reset_default_manager() -> None:
    """The next is new, with an empty registry."""
    global _default_manager
    with _manager_lock:
        manager, _default_manager = _default_manager, None
        _forget_callers()
    if manager is not None:
        manager._retire()


# VLLM_FL_OP_FAST_PATH=0: each call looks its op up.
_FAST_PATH = os.environ.get("VLLM_FL_OP_FAST_PATH", "1") == "1"


class CachedOp:
    """An op of the default manager at a place that calls it often: what is behind the name is looked up once, and anew
    when something changes. It falls back and remembers as every call does."""

    __slots__ = ("__weakref__", "_caller", "_op_name")

    def __init__(self, op_name: str) -> None:
        self._op_name = op_name
        self._caller: Callable[..., Any] | None = None
        _cached_ops.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        caller = self._caller
        if caller is None:
            caller = self._look_up()
        return caller(*args, **kwargs)

    def _look_up(self) -> Callable[..., Any]:
        manager = get_default_manager()
        caller = manager._callers.get(self._op_name) or manager._caller(self._op_name)
        if _FAST_PATH and self._op_name in manager._callers:
            self._caller = caller
        return caller


def call_op(op_name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls an op of the default manager."""
    return get_default_manager().call(op_name, *args, **kwargs)


def resolve_op(op_name: str) -> Callable[..., Any]:
    """The function that the default manager puts first for an op."""
    return get_default_manager().resolve(op_name)
