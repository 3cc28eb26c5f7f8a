"""Policies: which implementations may run, in which order. The host decides by them; here they have their Python form."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flhost import _core

from . import _host

PREFER_DEFAULT = "flagos"
PREFER_VENDOR = "vendor"
PREFER_REFERENCE = "reference"
VALID_PREFER_VALUES = frozenset({PREFER_DEFAULT, PREFER_VENDOR, PREFER_REFERENCE})


@dataclass(frozen=True)
class SelectionPolicy:
    """Immutable; equal fields make equal policies. Tokens are judged when it comes into force (T2)."""

    prefer: str = PREFER_DEFAULT
    strict: bool = False
    per_op_order: tuple[tuple[str, tuple[str, ...]], ...] = ()
    deny_vendors: frozenset[str] = frozenset()
    allow_vendors: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.prefer not in VALID_PREFER_VALUES:
            raise ValueError(
                f"Invalid prefer value: '{self.prefer}'. Must be one of: {', '.join(sorted(VALID_PREFER_VALUES))}"
            )

    @classmethod
    def from_dict(
        cls,
        prefer: str = PREFER_DEFAULT,
        strict: bool = False,
        per_op_order: dict[str, list[str]] | None = None,
        deny_vendors: set[str] | None = None,
        allow_vendors: set[str] | None = None,
    ) -> SelectionPolicy:
        orders = sorted((per_op_order or {}).items())
        return cls(
            prefer=prefer.lower(),
            strict=strict,
            per_op_order=tuple((op, tuple(tokens)) for op, tokens in orders),
            deny_vendors=frozenset(deny_vendors or ()),
            allow_vendors=frozenset(allow_vendors) if allow_vendors else None,
        )

    @cached_property
    def _native(self) -> _core.Policy:
        """The host's form. A token or name that is none: ValueError with the nearest."""
        return _host.make_policy(
            prefer=self.prefer,
            strict=bool(self.strict),
            per_op=dict(self.per_op_order),
            deny_vendors=sorted(self.deny_vendors),
            allow_vendors=None if self.allow_vendors is None else sorted(self.allow_vendors),
        )

    @property
    def per_op_order_dict(self) -> dict[str, list[str]]:
        return {op: list(tokens) for op, tokens in self.per_op_order}

    def get_per_op_order(self, op_name: str) -> list[str] | None:
        return next((list(tokens) for op, tokens in self.per_op_order if op == op_name), None)

    def get_default_order(self) -> list[str]:
        return [self.prefer] + [
            word for word in (PREFER_DEFAULT, PREFER_VENDOR, PREFER_REFERENCE) if word != self.prefer
        ]

    def is_vendor_allowed(self, vendor_name: str) -> bool:
        if vendor_name in self.deny_vendors:
            return False
        return self.allow_vendors is None or vendor_name in self.allow_vendors

    def fingerprint(self) -> str:
        parts = [f"prefer={self.prefer}", f"st={int(self.strict)}"]
        if self.allow_vendors:
            parts.append("allow=" + ",".join(sorted(self.allow_vendors)))
        if self.deny_vendors:
            parts.append("deny=" + ",".join(sorted(self.deny_vendors)))
        if self.per_op_order:
            parts.append("per=" + ";".join(f"{op}={'|'.join(tokens)}" for op, tokens in self.per_op_order))
        return ";".join(parts)


def _from_fields(fields: dict[str, Any]) -> SelectionPolicy:
    allow = fields["allow_vendors"]
    return SelectionPolicy(
        prefer=fields["prefer"],
        strict=fields["strict"],
        per_op_order=tuple((op, tuple(tokens)) for op, tokens in sorted(dict(fields["per_op"]).items())),
        deny_vendors=frozenset(fields["deny_vendors"]),
        allow_vendors=None if allow is None else frozenset(allow),
    )


class PolicyManager:
    """The policies of this process: one for all, and one for a context that asks for it."""

    _instance: PolicyManager | None = None
    _instance_lock = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._epoch = 0
        self._global: SelectionPolicy | None = None
        self._is_set = False  # by set_global_policy: not what the environment says
        self._variable: contextvars.ContextVar = contextvars.ContextVar("vllm_fl_selection_policy", default=None)
        self._native: contextvars.ContextVar = contextvars.ContextVar("vllm_fl_native_policy", default=None)
        self._changes = 0  # of the policy for all, and how many of them a host has seen
        self._changes_seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._listeners: weakref.WeakSet = weakref.WeakSet()

    @classmethod
    def get_instance(cls) -> PolicyManager:
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def get_policy_epoch(self) -> int:
        return self._epoch

    def bump_policy_epoch(self) -> int:
        with self._lock:
            self._epoch += 1
            return self._epoch

    def get_policy(self) -> SelectionPolicy:
        policy = self._variable.get()
        return policy if policy is not None else self._get_global()

    def _get_global(self) -> SelectionPolicy:
        with self._lock:
            if self._global is None:
                self._global = self._policy_from_env()
            return self._global

    def set_global_policy(self, policy: SelectionPolicy | None) -> SelectionPolicy:
        with self._lock:
            before = self._get_global()
            if policy is not None:
                _ = policy._native  # judged before it is in force
            self._global, self._is_set = policy, policy is not None
            self._changed()
            return before

    def reset_global_policy(self) -> None:
        """Environment and files are read again when a policy is next asked for."""
        with self._lock:
            self._global, self._is_set = None, False
            self._changed()

    def _changed(self) -> None:
        self._epoch += 1
        self._changes += 1
        for listener in list(self._listeners):
            listener._policy_changed()

    def _is_fresh(self, host: Any) -> None:
        """It has just read environment and files."""
        self._changes_seen[host] = self._changes

    def _put_in_force(self, host: Any) -> None:
        """Makes the policy for all the host's; where none was set here, the host's is for all."""
        with self._lock:
            is_stale = self._changes_seen.get(host, 0) != self._changes
            self._is_fresh(host)
            if self._is_set and self._global is not None:
                _host.set_policy(host, self._global._native)
                return
            if is_stale:
                _host.reset_policy(host)
            self._global = _from_fields(_host.policy_fields(host))

    def _policy_from_env(self) -> SelectionPolicy:
        return _from_fields(_host.policy_from_environment())

    def _policy_from_config(self, config_path: str) -> SelectionPolicy:
        if not os.path.isfile(config_path):
            raise FileNotFoundError(f"Config file '{config_path}' not found.")
        return _from_fields(_host.policy_from_config(str(config_path)))


class _PolicyContext:
    """A policy for a context and a while; contexts nest, threads and tasks have their own."""

    def __init__(self, manager: PolicyManager, policy: SelectionPolicy | None):
        self._manager = manager
        self._policy = policy
        self._tokens: tuple[contextvars.Token, contextvars.Token] | None = None

    def __enter__(self) -> _PolicyContext:
        manager = self._manager
        native = self._policy._native if self._policy is not None else None
        self._tokens = manager._variable.set(self._policy), manager._native.set(native)
        manager.bump_policy_epoch()
        return self

    def __exit__(self, exc_type, exc_val, exc_tb) -> None:
        if self._tokens is not None:
            self._manager._variable.reset(self._tokens[0])
            self._manager._native.reset(self._tokens[1])
            self._manager.bump_policy_epoch()


def get_policy_epoch() -> int:
    return PolicyManager.get_instance().get_policy_epoch()


def bump_policy_epoch() -> int:
    return PolicyManager.get_instance().bump_policy_epoch()


def get_policy() -> SelectionPolicy:
    """The policy in force in this context."""
    return PolicyManager.get_instance().get_policy()


def set_global_policy(policy: SelectionPolicy) -> SelectionPolicy:
    """For every thread's next call outside contexts; gives back the one before."""
    return PolicyManager.get_instance().set_global_policy(policy)


def reset_global_policy() -> None:
    """What environment and files say is in force again."""
    PolicyManager.get_instance().reset_global_policy()


def policy_from_env() -> SelectionPolicy:
    return PolicyManager.get_instance()._policy_from_env()


def policy_from_config(config_path: str) -> SelectionPolicy:
    """From a YAML file of the form that VLLM_FL_CONFIG takes. ValueError: what is wrong, with file and line (C1)."""
    return PolicyManager.get_instance()._policy_from_config(config_path)


def policy_context(policy: SelectionPolicy) -> _PolicyContext:
    """A context manager that puts a policy into force; None means the one for all."""
    return _PolicyContext(PolicyManager.get_instance(), policy)


def _derived(**changes: Any) -> _PolicyContext:
    """A context with the policy that is in force now, but for the changes."""
    now = get_policy()
    fields: dict[str, Any] = {
        "prefer": now.prefer,
        "strict": now.strict,
        "per_op_order": now.per_op_order_dict,
        "deny_vendors": set(now.deny_vendors),
        "allow_vendors": set(now.allow_vendors) if now.allow_vendors else None,
    }
    return policy_context(SelectionPolicy.from_dict(**{**fields, **changes}))


def with_strict_mode() -> _PolicyContext:
    """Fail at once, never fall back."""
    return _derived(strict=True)


def with_preference(prefer: str) -> _PolicyContext:
    return _derived(prefer=prefer)


def with_allowed_vendors(*vendors: str) -> _PolicyContext:
    """Replaces the set; none lifts the restriction."""
    return _derived(allow_vendors=set(vendors))


def with_denied_vendors(*vendors: str) -> _PolicyContext:
    """Adds to the set."""
    return _derived(deny_vendors=set(get_policy().deny_vendors) | set(vendors))
