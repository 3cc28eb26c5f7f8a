"""The implementations that Python registers. Each manager over a registry hands them to its host."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from .types import OpImpl

logger = logging.getLogger("vllm_fl.dispatch.manager")


@dataclass
class OpRegistrySnapshot:
    """What was registered at one moment; later registrations do not appear in it."""

    impls_by_op: dict[str, list[OpImpl]]


class OpRegistry:
    """Implementations by op and id, in the order of registration."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._impls: dict[str, dict[str, OpImpl]] = {}
        self._managers: weakref.WeakSet = weakref.WeakSet()

    def register_impl(self, impl: OpImpl) -> None:
        """Visible to the next call (R4). An id that is taken, or a field that the host refuses (R1): ValueError."""
        self.register_many([impl])

    def register_many(self, impls: Sequence[OpImpl]) -> None:
        """All of them, or none (R3)."""
        done: list[OpImpl] = []
        with self._lock:
            try:
                for impl in impls:
                    self._register(impl)
                    done.append(impl)
            except BaseException:
                self._take_back(done)
                raise

    def _register(self, impl: OpImpl) -> None:
        existing = self._impls.get(impl.op_name, {}).get(impl.impl_id)
        if existing is not None:
            raise ValueError(
                f"Duplicate impl_id '{impl.impl_id}' for op='{impl.op_name}'. Existing: {existing!r}, New: {impl!r}"
            )
        told = []
        try:
            for manager in self._managers:
                manager._add_impl(impl)
                told.append(manager)
        except BaseException:
            for manager in told:
                manager._remove_impl(impl)
            raise
        self._impls.setdefault(impl.op_name, {})[impl.impl_id] = impl

    def _take_back(self, impls: Sequence[OpImpl]) -> None:
        for impl in impls:
            for manager in self._managers:
                manager._remove_impl(impl)
            self._drop(impl)

    def _drop(self, impl: OpImpl) -> None:
        of_op = self._impls[impl.op_name]
        del of_op[impl.impl_id]
        if not of_op:
            del self._impls[impl.op_name]

    def _attach(self, manager) -> None:
        """From now on the manager is told of what is registered; it takes what is there. What its host refuses, since a
        plugin has an implementation of that name, is not registered (R2); the others are none the worse for it."""
        with self._lock:
            for impl in self._all():
                try:
                    manager._add_impl(impl)
                except ValueError as error:
                    logger.warning(f"Failed to register '{impl.impl_id}' for op='{impl.op_name}': {error}")
                    self._drop(impl)
            self._managers.add(manager)

    def _detach(self, manager) -> None:
        with self._lock:
            self._managers.discard(manager)

    def _all(self) -> list[OpImpl]:
        return [impl for of_op in self._impls.values() for impl in of_op.values()]

    def snapshot(self) -> OpRegistrySnapshot:
        with self._lock:
            return OpRegistrySnapshot({op: list(of_op.values()) for op, of_op in self._impls.items()})

    def get_implementations(self, op_name: str) -> list[OpImpl]:
        with self._lock:
            return list(self._impls.get(op_name, {}).values())

    def get_implementation(self, op_name: str, impl_id: str) -> OpImpl | None:
        with self._lock:
            return self._impls.get(op_name, {}).get(impl_id)

    def list_operators(self) -> list[str]:
        with self._lock:
            return list(self._impls)

    def clear(self) -> None:
        with self._lock:
            self._take_back(self._all())
