"""What a program that uses flhost looks like to a type checker: `make lint-python` checks it, and nothing runs it.

Each line with `type: ignore` is a mistake that the stubs have to find: mypy says so where one is no mistake to it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flhost
import flhost.ops
from typing_extensions import assert_type


class Mine:
    """A tensor of whatever library: it knows DLPack."""

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError


def calls(x: Mine, weight: Mine) -> None:
    assert_type(flhost.ops.silu_and_mul(x), Mine)
    assert_type(flhost.ops.silu_and_mul(x, out=x, stream=0), Mine)
    assert_type(flhost.ops.rms_norm(x, weight=weight, epsilon=1e-5), tuple[Mine, Mine | None])
    flhost.ops.rms_norm(x, None, weight, out=(x, None))
    assert_type(flhost.ops.attention_backend(use_mla=True), str)
    assert_type(flhost.ops.a_plugins_own(1, 2, whatever=3), Any)

    with flhost.prepare("replicated_linear", x, weight) as prepared:
        assert_type(flhost.ops.replicated_linear(x, weight, prepared=prepared), Mine)
    assert_type(flhost.default_host().op("replicated_linear").prepare(x, weight), flhost.Prepared)
    assert_type(prepared.impl_id, str | None)
    assert_type(prepared.bytes, int)

    flhost.ops.replicated_linear(x, weight, prepared=x)  # type: ignore[arg-type]
    flhost.ops.silu_and_mul()  # type: ignore[call-arg]
    flhost.ops.silu_and_mul("x")  # type: ignore[type-var]
    flhost.ops.silu_and_mul(x, x)  # type: ignore[call-arg]
    flhost.ops.silu_and_mul(x, stream="now")  # type: ignore[arg-type]
    flhost.ops.gelu_and_mul(x, approximate=1)  # type: ignore[arg-type]
    flhost.ops.rms_norm(x, weight=weight, eps=1e-5)  # type: ignore[call-arg]
    flhost.ops.rms_norm(x, weight=weight, out=x)  # type: ignore[arg-type]
    flhost.ops.topk_softmax(x, "2")  # type: ignore[arg-type]
    flhost.ops.conv2d(x, weight, None, 2)  # type: ignore[arg-type]


def hosts(path: Path) -> None:
    host = flhost.Host(environment={}, config_file=path, statistics=True)
    assert_type(host.op("rms_norm"), flhost.Op)
    assert_type(host.op("rms_norm").name, str)
    assert_type(host.op("rms_norm").tolerance("float32"), tuple[float, float])
    assert_type(host.resolve("rms_norm", "cuda:1"), dict[str, Any])
    assert_type(host.ops(), list[str])
    assert_type(host.counters("rms_norm", "reference.c"), dict[str, int])
    assert_type(flhost.default_host(), flhost.Host)

    flhost.Host(enviroment={})  # type: ignore[call-arg]
    flhost.Host(environment={"VLLM_FL_STRICT": 1})  # type: ignore[dict-item]
    host.op(3)  # type: ignore[arg-type]
    host.counters("rms_norm")  # type: ignore[call-arg]
    host.explained("rms_norm")  # type: ignore[attr-defined]
    host.op("rms_norm").name = "other"  # type: ignore[misc]


def policies(host: flhost.Host, policy: flhost.Policy) -> None:
    with (
        host.prefer("vendor") as chosen,
        flhost.deny_vendors("acme", "other"),
        flhost.op_order("rms_norm", ["reference"]),
    ):
        assert_type(chosen, flhost.Policy)
    assert_type(policy.with_preference("vendor").fingerprint, str)
    assert_type(flhost.Policy(prefer="vendor", per_op={"rms_norm": ["vendor", "reference"]}), flhost.Policy)

    flhost.Policy("vendor")  # type: ignore[call-arg]
    flhost.Policy(strict="no")  # type: ignore[arg-type]
    flhost.Policy(per_op={"rms_norm": 3})  # type: ignore[dict-item]
    flhost.deny_vendors(["acme"])  # type: ignore[arg-type]
    with host.strict("no"):  # type: ignore[arg-type]
        pass


async def tasks(host: flhost.Host) -> None:
    async with host.strict() as chosen:
        assert_type(chosen, flhost.Policy)


def implementations(host: flhost.Host, function: Callable[[Mine], Mine]) -> None:
    host.register_impl("silu_and_mul", "vendor.mine", function, vendor="mine", is_available=lambda: True)
    host.register_impl("silu_and_mul", "vendor.mine")  # type: ignore[call-arg]
    host.register_impl("silu_and_mul", "vendor.mine", 3)  # type: ignore[arg-type]
    host.register_impl("silu_and_mul", "vendor.mine", function, vendors="mine")  # type: ignore[call-arg]
    host.register_impl("silu_and_mul", "vendor.mine", function, priority="high")  # type: ignore[arg-type]


def errors() -> None:
    try:
        flhost.default_host()
    except flhost.NotFound as error:
        assert_type(error.status, int)
        lookup: LookupError = error
        memory: MemoryError = error  # type: ignore[assignment]
        raise lookup from memory
    except flhost.Misspelt:  # type: ignore[attr-defined]
        pass
