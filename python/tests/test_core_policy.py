"""Policies for a with block: threads, tasks, other hosts, a frozen host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import Any

import flhost
import numpy as np
import pytest

OP = "silu_and_mul"


@pytest.fixture(name="host")
def make_host() -> flhost.Host:
    return flhost.Host(environment={}, statistics=True)


def x() -> Any:
    return np.ones((2, 8), "float32")


def selected(host: flhost.Host) -> str:
    return str(host.resolve(OP)["impl_id"])


def calls(host: flhost.Host, impl_id: str) -> int:
    return host.counters(OP, impl_id)["calls"]


def test_a_with_block_decides_what_calls_run(host: flhost.Host) -> None:
    call = host.op(OP).call
    call(x())
    assert (calls(host, "default.flagos"), calls(host, "reference.c")) == (1, 0)
    with host.prefer("reference") as policy:
        assert policy.fields["prefer"] == "reference"
        assert selected(host) == "reference.c"
        assert host.explain(OP)["selected"] == "reference.c"
        call(x())
        with host.op_order(OP, ["flagos"]):
            call(x())
        call(x())
    call(x())
    assert (calls(host, "default.flagos"), calls(host, "reference.c")) == (3, 2)


def test_each_kind_of_block(host: flhost.Host) -> None:
    default = host.get_policy()
    blocks = {
        "prefer": (host.prefer("vendor"), "vendor"),
        "strict": (host.strict(), True),
        "allow_vendors": (host.allow_vendors("acme", "zeta"), ["acme", "zeta"]),
        "deny_vendors": (host.deny_vendors("acme"), ["acme"]),
        "per_op": (host.op_order(OP, ["reference"]), {OP: ["reference"]}),
        "preserve_inputs": (host.policy(preserve_inputs=True), True),
        "host_fallback": (host.policy(host_fallback=True), True),
    }
    for field, (block, expected) in blocks.items():
        with block:
            fields = host.get_policy().fields
            assert fields.pop(field) == expected
            assert fields.items() <= default.fields.items()
        assert host.get_policy() == default
    with host.policy(prefer="reference", strict=True), host.policy(deny_vendors=["acme"]):
        assert host.get_policy() == flhost.Policy(prefer="reference", strict=True, deny_vendors=["acme"])
    with host.policy(flhost.Policy(prefer="vendor")):
        assert host.get_policy().fingerprint == "prefer=vendor;st=0"
    with (
        flhost.prefer("reference"),
        flhost.strict(),
        flhost.allow_vendors("a"),
        flhost.deny_vendors("b"),
        flhost.op_order(OP, ["reference"]),
        flhost.policy(preserve_inputs=True),
    ):
        fields = flhost.default_host().get_policy().fields
        assert fields == {
            "prefer": "reference", "strict": True, "preserve_inputs": True, "host_fallback": False,
            "per_op": {OP: ["reference"]}, "allow_vendors": ["a"], "deny_vendors": ["b"],
        }  # fmt: skip
    assert host.get_policy() == default  # another host


def test_a_mistake_enters_nothing(host: flhost.Host) -> None:
    default = host.get_policy()
    for block in (
        lambda: host.prefer("refrence"),
        lambda: host.op_order(OP, ["vendr"]),
        lambda: host.allow_vendors(" "),
        lambda: host.policy(per_op={"": ["reference"]}),
    ):
        with pytest.raises(flhost.InvalidArgument), block():
            pytest.fail("entered")
    for wrong in ({"deny_vendors": "acme"}, {"per_op": {OP: "reference"}}, {"per_op": [1]}, {"allow_vendors": [1]}):
        with pytest.raises((flhost.WrongType, TypeError, AttributeError)), host.policy(**wrong):  # type: ignore[arg-type]
            pytest.fail("entered")
    with pytest.raises(flhost.WrongType, match="expected several strings"), host.op_order(OP, "reference"):
        pytest.fail("entered")
    assert host.get_policy() == default
    with pytest.raises(ZeroDivisionError), host.prefer("reference"):
        _ = 1 / 0
    assert host.get_policy() == default


def test_a_block_may_be_used_again_and_as_a_decorator(host: flhost.Host) -> None:
    block = host.prefer("reference")

    @block
    def inside() -> str:
        return selected(host)

    with block:
        assert selected(host) == "reference.c"
        with block:
            assert inside() == "reference.c"
        assert selected(host) == "reference.c"
    assert selected(host) == "default.flagos"
    assert inside() == "reference.c"


def test_other_threads_do_not_see_it(host: flhost.Host) -> None:
    seen: list[str] = []
    with host.prefer("reference"):
        thread = threading.Thread(target=lambda: seen.append(selected(host)))
        thread.start()
        thread.join()
        context = contextvars.copy_context()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(context.run, selected, host).result() == "reference.c"
            assert pool.submit(selected, host).result() == "default.flagos"
    assert seen == ["default.flagos"]


def test_tasks_of_one_thread_have_their_own(host: flhost.Host) -> None:
    call = host.op(OP).call

    async def task(prefer: str, expected: str) -> None:
        async with host.prefer(prefer):
            for _ in range(50):
                before = calls(host, expected)
                call(x())
                assert calls(host, expected) == before + 1
                await asyncio.sleep(0)
                assert selected(host) == expected
                assert await asyncio.to_thread(selected, host) == expected

    async def plain() -> None:
        for _ in range(100):
            assert selected(host) == "default.flagos"
            await asyncio.sleep(0)

    async def child_of_a_block() -> None:
        with host.prefer("reference"):
            assert await asyncio.create_task(asyncio.sleep(0, selected(host))) == "reference.c"

    async def main() -> None:
        await asyncio.gather(
            task("reference", "reference.c"), task("flagos", "default.flagos"), task("reference", "reference.c"),
            plain(), child_of_a_block(),
        )  # fmt: skip

    asyncio.run(main())
    assert selected(host) == "default.flagos"


def test_a_block_that_is_left_in_another_context_says_so(host: flhost.Host) -> None:
    block = host.prefer("reference")
    context = contextvars.copy_context()
    context.run(block.__enter__)
    with pytest.raises(flhost.StateError, match="another context"):
        block.__exit__(None, None, None)
    context.run(block.__exit__, None, None, None)
    assert selected(host) == "default.flagos"


def test_the_global_policy_is_every_thread_s(host: flhost.Host) -> None:
    host.set_global_policy(flhost.Policy(prefer="reference"))
    assert selected(host) == "reference.c"
    with host.prefer("flagos"):
        assert selected(host) == "default.flagos"
    host.reset_global_policy()
    assert selected(host) == "default.flagos"
    for wrong in (None, "reference", 3):
        with pytest.raises(flhost.WrongType):
            host.set_global_policy(wrong)  # type: ignore[arg-type]


def test_a_frozen_host_refuses_other_policies(host: flhost.Host) -> None:
    host.freeze("test")
    with pytest.raises(flhost.StateError, match="frozen by 'test'"), host.prefer("reference"):
        host.op(OP).call(x())
    assert host.op(OP).call(x()).shape == (2, 4)
    host.thaw("test")


def test_policies_are_values(tmp_path: Any) -> None:
    a, b = flhost.Policy(prefer="vendor"), flhost.Policy(prefer="vendor", strict=False)
    assert a == b
    assert hash(a) == hash(b)
    assert a != flhost.Policy()
    assert a != "vendor"
    assert a.with_strict(True).fields["strict"] is True
    assert a.with_denied_vendors(["x"]).with_denied_vendors({"y"}).fields["deny_vendors"] == ["x", "y"]
    assert a.with_allowed_vendors([]).fields["allow_vendors"] is None
    assert flhost.Policy(allow_vendors=[]).fields["allow_vendors"] == []
    assert a.with_op_order("op", ["reference"]).fields["per_op"] == {"op": ["reference"]}
    assert "prefer=vendor" in repr(a)
    file = tmp_path / "policy.yaml"
    file.write_text("prefer: reference\n")
    assert flhost.Policy.from_config(file) == flhost.Policy(prefer="reference")
    file.write_text("prefer: refrence\n")
    with pytest.raises(flhost.ConfigError, match=r"policy.yaml:1"):
        flhost.Policy.from_config(str(file))
    for wrong in ({"prefer": 3}, {"unknown": 1}, {"per_op": 3}, {"deny_vendors": 3}):
        with pytest.raises(TypeError):
            flhost.Policy(**wrong)  # type: ignore[arg-type]
