"""torch.ops.flhost: what torch needs to know of each op, and its kernel.

The kernel is C (extension/torch.c) and serves every backend by one registration; in a torch without the stable C interface
the extension's function for calls from Python takes its place. What torch asks while it traces, shapes
and dtypes, the op's rules answer here. There are no derivatives, and to ask for one is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true

from flhost import _core, default_host

from . import schema as schemas
from .rules import Integers, Rules, RulesError, Tensor
from .threads import use_threads

__all__ = ["handle", "register"]

_TAGS = (torch.Tag.pt2_compliant_tag,)
_library: torch.library.Library | None = None
_registered: dict[str, tuple[str, str]] = {}  # by name, schema and rules
_lock = Lock()


class _Symbols(Integers):
    """Sizes that may be torch's symbols. Of two that should be equal and are not known to differ, they are: the kernel checks."""

    def same(self, a: Any, b: Any) -> bool:
        return bool(guard_or_true(a == b))

    def holds(self, condition: Any) -> bool:
        return bool(guard_or_false(condition))

    def least(self, a: Any, b: Any) -> Any:
        return torch.sym_min(a, b)

    def largest(self, a: Any, b: Any) -> Any:
        return torch.sym_max(a, b)


_symbols = _Symbols()


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return value


class _Op:
    """One op: how torch sees it."""

    def __init__(self, op: Any):
        self.name: str = op.name
        self.schema = schemas.parse(op.schema)
        self.rules = Rules(self.schema, op.rules, bool(op.ranks))

    def bind(self, overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """All values of a call, in the order of torch's schema."""
        given = list(args)
        for argument in overload._schema.arguments[len(args) :]:
            given.append(kwargs.get(argument.name, argument.default_value))
        return given

    def infer(self, values: list[Any]) -> tuple[Tensor | None, ...]:
        return self.rules.infer([_described(value) for value in values], _symbols)

    def refuse_grad(self, overload: Any, values: Sequence[Any]) -> None:
        """There are no derivatives; in C the kernel says the same."""
        if not torch.is_grad_enabled():
            return
        for value, argument in zip(values, overload._schema.arguments, strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                name = argument.name
                raise RuntimeError(
                    f"{self.name}: argument '{name}': requires grad, and the op has no derivative: call it under "
                    f"torch.inference_mode() or torch.no_grad(), or give it {name}.detach()"
                )

    def device(self, values: list[Any]) -> torch.device:
        """That of the tensors, which have one."""
        found: torch.device | None = None
        name = ""
        for argument, value in zip((*self.schema.arguments, *self.schema.results), values, strict=False):
            if not isinstance(value, torch.Tensor):
                continue
            if found is not None and value.device != found:
                raise RulesError(
                    f"{self.name}: argument '{argument.name}': on {value.device}, expected {found} (that of '{name}')"
                )
            if found is None:
                found, name = value.device, argument.name
        return found if found is not None else torch.device("cpu")

    def fake_functional(self, overload: Any) -> Callable[..., Any]:
        def fake(*args: Any, **kwargs: Any) -> Any:
            values = self.bind(overload, args, kwargs)
            self.refuse_grad(overload, values)
            values = values[
                : len(self.schema.arguments)
            ]  # behind them the handle of prepared weights, on the processor
            device = self.device(values)
            made = [
                None if spec is None else torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
                for spec in self.infer(values)
            ]
            if not made:  # it only writes states
                return None
            return made[0] if len(made) == 1 else tuple(made)

        return fake

    def fake_out(self, overload: Any) -> Callable[..., None]:
        n = len(self.schema.arguments)

        def fake(*args: Any, **kwargs: Any) -> None:
            values = self.bind(overload, args, kwargs)
            self.refuse_grad(overload, values)
            self.device(values)
            for result, given, spec in zip(self.schema.results, values[n:], self.infer(values[:n]), strict=True):
                self.check_result(result, given, spec)

        return fake

    def check_result(self, result: schemas.Value, given: torch.Tensor | None, spec: Tensor | None) -> None:
        if given is None or spec is None:
            if given is not None or (spec is not None and not result.optional):
                raise RulesError(f"{self.name}: result '{result.name}': {'none' if given is None else 'given'}, expected "
                                 f"{'none' if spec is None else 'Tensor'}")  # fmt: skip
            return
        found = _described(given)
        fits = len(found.shape) == len(spec.shape) and all(map(_symbols.same, found.shape, spec.shape))
        if not fits or (found.dtype != spec.dtype and not found.dtype.startswith("float8")):
            raise RulesError(f"{self.name}: result '{result.name}': {found.dtype}{list(found.shape)}, expected "
                             f"{spec.dtype}{list(spec.shape)}")  # fmt: skip

    def autograd(self, overload: Any) -> Callable[..., Any]:
        """Refuses what would need a derivative, where the kernel cannot."""
        after = torch._C._after_autograd_keyset

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            self.refuse_grad(overload, self.bind(overload, args, kwargs))
            return overload.redispatch(keyset & after, *args, **kwargs)

        return kernel


def _python_kernel(op: _Op, call: Callable[..., Any], which: str) -> Callable[..., Any]:
    """A kernel by torch's way through Python."""
    if which == "default":
        return call
    if which == "prepared":

        def with_prepared(*args: Any, prepared: torch.Tensor, **kwargs: Any) -> Any:
            number = int(prepared.item())
            return call(*args, **kwargs, prepared=_core._prepared_of(number) if number else None)

        return with_prepared
    names = [result.name for result in op.schema.results]

    def kernel(*args: Any, **kwargs: Any) -> None:
        results = tuple(kwargs.pop(name, None) for name in names)
        call(*args, **kwargs, out=results if len(results) > 1 else results[0])

    return kernel


def _implement(library: torch.library.Library, op: _Op, described: Any, which: str, qualified: str) -> bool:
    """Gives an overload its kernel; returns whether that refuses arguments which require grad."""
    try:
        overload = "" if which == "default" else which
        return _core.torch_implement(described.host, op.name, overload, torch.version.hip is not None)
    except _core.NotSupported:  # an old torch, or more ops than there are kernels for
        library.impl(qualified, _python_kernel(op, described.call, which), "CompositeExplicitAutograd")
        return False


def _register(library: torch.library.Library, host: Any, name: str) -> None:
    described = host.op(name)
    op = _Op(described)
    forms = {"default": schemas.functional(op.schema), "out": schemas.out(op.schema)}
    if any(impl["prepares"] for impl in host.explain(name)["impls"]):
        forms["prepared"] = schemas.prepared(op.schema)
    for which, form in forms.items():
        if form is None:
            continue
        qualified = name if which == "default" else f"{name}.{which}"
        library.define(form, tags=_TAGS)
        refuses_grad = _implement(library, op, described, which, qualified)
        overload = getattr(getattr(torch.ops.flhost, name), which)
        fake = op.fake_out(overload) if which == "out" else op.fake_functional(overload)
        if all(result.is_tensor for result in op.schema.results):
            torch.library.register_fake(f"flhost::{qualified}", fake, lib=library)
        if not refuses_grad:
            library.impl(qualified, op.autograd(overload), "Autograd", with_keyset=True)
    _registered[name] = (described.schema, described.rules)


def handle(prepared: _core.Prepared | None) -> torch.Tensor:
    """What stands for prepared weights in torch.ops.flhost.OP.prepared(…, prepared=handle): a tensor of one number, which any
    graph may be handed; 0, of None, is a call without. It does not keep them: that is for whoever has the Prepared. A call with
    one that was closed is an error."""
    return torch.tensor([0 if prepared is None else prepared.handle], dtype=torch.int64, device="cpu")


def register(names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Makes the default host's ops torch's, all or those that are named; returns the names of those that are new.

    It may be called again at any time: then ops are added which plugins brought since. Kernels on the processor compute in
    torch's threads from now on (use_threads).
    """
    global _library
    with _lock:
        use_threads()
        host = default_host()
        if _library is None:
            _library = torch.library.Library("flhost", "FRAGMENT")
        wanted = host.ops() if names is None else tuple(names)
        new = tuple(name for name in wanted if name not in _registered)
        for name in new:
            _register(_library, host, name)
        return new
