"""Hosts, and policies for a with block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from . import _core
from ._core import Policy, Prepared, StateError

# What the with blocks of this context have entered, the innermost last.
_entered: ContextVar[tuple[tuple[_core.Host, Token[Policy | None]], ...]] = ContextVar("flhost.entered", default=())


class Scope(ContextDecorator):
    """A policy for a with block, derived from the one in force where the block begins.

    It holds for the calls of this block and of the functions and tasks that it starts, in this thread or, where the context is
    copied there (asyncio.to_thread), another; not for other tasks and threads. `async with` does the same. One object may be
    used again, also by several tasks at once.
    """

    def __init__(self, host: _core.Host, derive: Callable[[Policy], Policy]) -> None:
        self._host = host
        self._derive = derive

    def __enter__(self) -> Policy:
        policy = self._derive(self._host.get_policy())
        token = self._host.enter(policy)
        _entered.set((*_entered.get(), (self._host, token)))
        return policy

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered.get()
        if not entered or entered[-1][0] is not self._host:
            raise StateError("a policy's with block is left in another context than it was entered in")
        _entered.set(entered[:-1])
        self._host.leave(entered[-1][1])

    async def __aenter__(self) -> Policy:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


class Host(_core.Host):
    """Host(*, environment=None, config_file=None, config_dir=None, platform=None, plugin_path=None, plugin_modules=None,
    plugins=True, statistics=False, synchronous=False)

    A host: a registry of implementations, a policy, and the plugins that were loaded. Several may live in one process;
    flhost.default_host() is the one that all share. What is not given comes from the environment and files. `environment`
    stands in for the process's, plugins=False loads none, statistics=True counts calls, synchronous=True waits for the
    device after each call.
    """

    def policy(
        self,
        policy: Policy | None = None,
        *,
        prefer: str | None = None,
        strict: bool | None = None,
        preserve_inputs: bool | None = None,
        host_fallback: bool | None = None,
        per_op: Mapping[str, Iterable[str]] | None = None,
        deny_vendors: Iterable[str] | None = None,
        allow_vendors: Iterable[str] | None = None,
    ) -> Scope:
        """For a with block: this policy, or the one in force, with the fields that are given in place of its own."""
        given = {
            "prefer": prefer,
            "strict": strict,
            "preserve_inputs": preserve_inputs,
            "host_fallback": host_fallback,
            "per_op": per_op,
            "deny_vendors": deny_vendors,
            "allow_vendors": allow_vendors,
        }
        changes = {name: value for name, value in given.items() if value is not None}

        def derive(in_force: Policy) -> Policy:
            base = in_force if policy is None else policy
            return Policy(**{**base.fields, **changes}) if changes else base

        return Scope(self, derive)

    def prefer(self, prefer: str) -> Scope:
        """For a with block: "flagos", "vendor" or "reference" first."""
        return Scope(self, lambda policy: policy.with_preference(prefer))

    def strict(self, strict: bool = True) -> Scope:
        """For a with block: fail at once, never fall back."""
        return Scope(self, lambda policy: policy.with_strict(strict))

    def allow_vendors(self, *vendors: str) -> Scope:
        """For a with block: these vendors alone; without any, all."""
        return Scope(self, lambda policy: policy.with_allowed_vendors(vendors))

    def deny_vendors(self, *vendors: str) -> Scope:
        """For a with block: not these vendors."""
        return Scope(self, lambda policy: policy.with_denied_vendors(vendors))

    def op_order(self, op: str, tokens: Iterable[str]) -> Scope:
        """For a with block: the order of one op, such as ["vendor:acme", "reference"]."""
        # A string is for the policy to refuse; what can be read once is read now, for a block that is entered again.
        words = tokens if isinstance(tokens, str) else list(tokens)
        return Scope(self, lambda policy: policy.with_op_order(op, words))

    def layers(self, op: str) -> list[str]:
        """The layer classes of vLLM's that an op replaces."""
        return [row["class_name"] for row in self.explain(op)["replaces"]]

    def register_impl(
        self,
        op: str,
        impl_id: str,
        function: Callable[..., Any],
        *,
        kind: str = "vendor",
        vendor: str | None = None,
        priority: int | None = None,
        devices: Iterable[str] | None = ("cpu",),
        dtypes: Iterable[str] = (),
        is_available: Callable[[], bool] | None = None,
        supports_args: Callable[..., bool] | None = None,
        tensors: str | None = None,
    ) -> None:
        """Offers a function of Python as an implementation of an op; visible at once.

        It is called with the arguments in the schema's order: tensors as views of the call's memory, no copies, of the
        library that tensors= names ("torch" or "numpy"; of torch, if that is imported by now, else of numpy), which end
        with the call. It gives back the results, which are copied, or takes the results by their names and writes
        into them. An exception of it is its failure, with the traceback in the message; NotImplementedError and
        flhost.NotSupported pass the call on to the next implementation.

        kind is "flagos", "vendor" or "reference"; devices=None is any; dtypes are those of the first tensor, none is all;
        is_available is a function without arguments, supports_args one with those of the call. AlreadyExists: the op has one
        of that id.
        """
        from ._python_impl import register

        register(
            self,
            op,
            impl_id,
            function,
            kind=kind,
            vendor=vendor,
            priority=priority,
            devices=devices,
            dtypes=dtypes,
            is_available=is_available,
            supports_args=supports_args,
            tensors=tensors,
        )


_shared: dict[str, Host] = {}  # the one that default_host() gives, as soon as there is one


def default_host(**options: Any) -> Host:
    """The host that the process shares, made of the environment at first use.

    Options, as of Host, make it before anybody uses it: AlreadyExists afterwards.
    """
    host = None if options else _shared.get("host")
    # Of several threads that are the first, each has the process's host, and all get the same object for it.
    return host or _shared.setdefault("host", Host.default(**options))


def prepare(op: str, /, *arguments: Any, **keywords: Any) -> Prepared:
    """Has the weights of many calls of an op prepared, by a call with them: Op.prepare in the default host.

        with flhost.prepare("replicated_linear", x[:1], weight) as prepared:
            y = flhost.ops.replicated_linear(x, weight, prepared=prepared)

    Nothing is called. The tensors are passed in each call all the same; the Prepared keeps them. Where no implementation
    prepares anything of them it is empty, and calls with it are made as ever.
    """
    return default_host().op(op).prepare(*arguments, **keywords)


def policy(policy: Policy | None = None, **fields: Any) -> Scope:
    """For a with block: Host.policy of the default host."""
    return default_host().policy(policy, **fields)


def prefer(prefer: str) -> Scope:
    """For a with block: "flagos", "vendor" or "reference" first, in the default host."""
    return default_host().prefer(prefer)


def strict(strict: bool = True) -> Scope:
    """For a with block: fail at once, never fall back, in the default host."""
    return default_host().strict(strict)


def allow_vendors(*vendors: str) -> Scope:
    """For a with block: these vendors alone in the default host."""
    return default_host().allow_vendors(*vendors)


def deny_vendors(*vendors: str) -> Scope:
    """For a with block: not these vendors in the default host."""
    return default_host().deny_vendors(*vendors)


def op_order(op: str, tokens: Iterable[str]) -> Scope:
    """For a with block: the order of one op in the default host."""
    return default_host().op_order(op, tokens)
