"""Python backends written for vllm-plugin-FL, beside C plugins under one policy."""

import asyncio
import contextlib
import gc
import os
import sys
import threading
import types

import pytest
from peer_dropin import dispatch, impl, manager_of
from vllm_fl.dispatch import discovery
from vllm_fl.dispatch.policy import SelectionPolicy

numpy = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in [name for name in os.environ if name.startswith("VLLM_FL_")]:
        monkeypatch.delenv(name)
    dispatch.reset_global_policy()
    dispatch.reset_default_manager()
    yield
    dispatch.reset_global_policy()
    dispatch.reset_default_manager()


class Layer:
    """As vLLM's RMSNorm: what an implementation needs lies in the layer."""

    def __init__(self, n):
        self.weight = numpy.linspace(0.5, 1.5, n, dtype="float32")
        self.variance_epsilon = 1e-6


def python_rms_norm(obj, x, residual=None):
    if residual is not None:
        x = x + residual
    out = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + obj.variance_epsilon) * obj.weight
    return out if residual is None else (out, x)


def counts(manager, op):
    """Calls of each implementation that were passed over or failed."""
    return {one["impl_id"]: manager.host.counters(op, one["impl_id"]) for one in manager.host.explain(op)["impls"]}


# -------------------------------------------------------------------------------------------- Python beside C, by one policy


def test_the_policy_chooses_between_python_and_c():
    ran = []

    def vendor(obj, x, residual=None):
        ran.append("vendor.py")
        return python_rms_norm(obj, x, residual)

    manager = manager_of(impl("rms_norm", "vendor.py", vendor))
    layer, x = Layer(8), numpy.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    ids = [one.impl_id for one in manager.resolve_candidates("rms_norm")]
    assert ids[:2] == ["default.flagos", "vendor.py"]
    assert "reference.c" in ids
    out = manager.call("rms_norm", layer, x)
    assert not ran
    assert numpy.allclose(out, python_rms_norm(layer, x), atol=1e-6)
    with dispatch.with_preference("vendor"):
        assert numpy.array_equal(manager.call("rms_norm", layer, x), python_rms_norm(layer, x))
        assert ran == ["vendor.py"]
        with dispatch.with_denied_vendors("py"):
            manager.call("rms_norm", layer, x)
    assert ran == ["vendor.py"]
    with dispatch.policy_context(SelectionPolicy(per_op_order=(("rms_norm", ("impl:reference.c",)),))):
        assert manager.get_selected_impl_id("rms_norm") == "reference.c"
        assert numpy.allclose(manager.call("rms_norm", layer, x), python_rms_norm(layer, x), atol=1e-6)


def test_a_residual_comes_back_as_the_layer_wants_it():
    manager = manager_of(impl("rms_norm", "vendor.py", python_rms_norm))
    layer, x, residual = Layer(4), numpy.ones((2, 4), "float32"), numpy.full((2, 4), 2, "float32")
    out, total = manager.call("rms_norm", layer, x, residual)
    assert numpy.allclose(out, python_rms_norm(layer, x, residual)[0], atol=1e-6)
    assert numpy.array_equal(total, x + residual)
    assert (x == 1).all()
    assert (residual == 2).all()


def test_c_takes_over_when_python_fails_and_the_other_way():
    def broken(obj, x):
        raise OSError("the device is gone")

    manager = manager_of(impl("silu_and_mul", "vendor.py", broken))
    x = numpy.ones((2, 6), "float32")
    with dispatch.with_preference("vendor"):
        out = manager.call("silu_and_mul", None, x)
        assert out.shape == (2, 3)
        assert numpy.allclose(out, 1 / (1 + numpy.exp(-1)))
        assert manager.get_failed_impls("silu_and_mul") == {"silu_and_mul": {"vendor.py"}}
        failed = manager.host.failed_impls("silu_and_mul")
        assert "the device is gone" in failed[0]["reason"]
        assert "Traceback" in failed[0]["reason"]
        assert manager.host.counters("silu_and_mul", "vendor.py")["failures"] == 1


def test_a_call_without_c_form_goes_to_python_alone():
    """Four dimensions of position ids are nothing that a C implementation takes."""
    manager = manager_of(impl("rotary_embedding", "reference.py", lambda obj, *args: "python"))
    four = numpy.zeros((1, 2, 3, 4), "float32")
    assert manager.call("rotary_embedding", None, four, four, four, four, numpy.zeros((1, 3), "int64")) == "python"
    c_alone = SelectionPolicy(per_op_order=(("rotary_embedding", ("flagos",)),))
    error = pytest.raises(RuntimeError, match="No implementation selected")
    with dispatch.policy_context(c_alone), error:
        manager.call("rotary_embedding", None, four, four, four, four, numpy.zeros((1, 3), "int64"))


def test_what_resolve_gives_of_a_c_plugin_can_be_called():
    manager = manager_of(impl("silu_and_mul", "reference.py", lambda obj, x: None))
    x = numpy.ones((1, 4), "float32")
    function = manager.resolve("silu_and_mul")
    assert manager.get_selected_impl_id("silu_and_mul") == "default.flagos"
    assert numpy.allclose(function(None, x), manager.call("silu_and_mul", None, x))


# ------------------------------------------------------------------------------------------------------------------ plugins


def test_a_backend_written_for_the_peer_loads_unchanged(monkeypatch):
    def register_builtins(registry):
        registry.register_many([impl("py_op", "vendor.acme", lambda a, b=1: a + b), impl("py_op", "reference.acme")])

    module = types.ModuleType("acme_fl")
    module.register_builtins = register_builtins
    monkeypatch.setitem(sys.modules, "acme_fl", module)
    monkeypatch.setenv("VLLM_FL_PLUGIN_MODULES", "acme_fl")
    discovery.clear_discovered_plugins()
    manager = dispatch.OpManager()
    assert manager.call("py_op", 2, b=3) == 5
    assert ("acme_fl", "env_module", True) in dispatch.get_discovered_plugins()
    assert manager.get_selected_impl_id("py_op") == "vendor.acme"


def test_r3_a_plugin_that_fails_half_way_leaves_nothing(monkeypatch):
    def register(registry):
        registry.register_impl(impl("py_op", "vendor.half"))
        raise ValueError("no")

    registry = dispatch.OpRegistry()
    assert discovery._call_register_function(register, registry, "test") is False
    assert registry.list_operators() == []


def test_r1_what_the_host_refuses_is_refused():
    manager = manager_of(impl("op", "default.one"))
    manager.resolve("op")
    with pytest.raises(ValueError, match=r"op_name|name"):
        manager.registry.register_impl(impl("", "default.two"))
    with pytest.raises(ValueError, match="is no function"):
        manager.registry.register_impl(dispatch.OpImpl("op", "default.three", dispatch.BackendImplKind.DEFAULT, None))
    with pytest.raises(ValueError, match="kind"):
        manager.registry.register_impl(dispatch.OpImpl("op", "default.four", "bogus", print))
    with pytest.raises(ValueError, match=r"Duplicate impl_id 'default.one' for op='op'"):
        manager.registry.register_impl(impl("op", "default.one"))
    assert manager.registry.list_operators() == ["op"]


def test_r2_what_a_plugin_of_the_host_has_stays_and_costs_no_other_op_its_implementations():
    """FlagGems of an installed vllm_fl and the CPU plugin both have a default.flagos."""
    manager = manager_of(
        impl("op", "default.flagos"), impl("rms_norm", "default.flagos"), impl("rms_norm", "vendor.py")
    )
    layer, x = Layer(4), numpy.ones((2, 4), "float32")
    assert manager.call("op") == "default.flagos"
    assert numpy.allclose(manager.call("rms_norm", layer, x), python_rms_norm(layer, x), atol=1e-6)
    assert [one.impl_id for one in manager.resolve_candidates("rms_norm")][:2] == ["default.flagos", "vendor.py"]
    assert manager.registry.get_implementation("rms_norm", "default.flagos") is None
    with dispatch.with_preference("vendor"):
        assert manager.call("rms_norm", layer, x) == "vendor.py"


def test_r4_a_better_one_registered_late_is_seen_by_the_next_call():
    manager = manager_of(impl("op", "reference.one"))
    assert manager.call("op") == "reference.one"
    manager.registry.register_impl(impl("op", "default.two"))
    assert manager.call("op") == "default.two"
    assert manager.resolve("op")() == "default.two"
    manager.registry.clear()
    with pytest.raises(RuntimeError, match=r"No available implementation for op='op'. Registered: \[\]"):
        manager.call("op")


# ----------------------------------------------------------------------------------------------------------------- failures


def test_f5_wrong_arguments_are_held_against_nobody():
    manager = manager_of(impl("op", "default.one", lambda a: a), impl("op", "reference.two", lambda a: a))
    with pytest.raises(TypeError, match="argument"):
        manager.call("op", 1, 2)
    assert manager.get_failed_impls() == {}
    assert manager.call("op", 7) == 7


def test_f5_not_implemented_moves_on_without_a_memory():
    def only_small(a):
        if a > 9:
            raise NotImplementedError("too large")
        return "small"

    manager = manager_of(impl("op", "default.small", only_small), impl("op", "reference.any", lambda a: "any"))
    assert [manager.call("op", a) for a in (1, 10, 2)] == ["small", "any", "small"]
    assert manager.get_failed_impls() == {}
    assert manager.host.counters("op", "default.small")["fallbacks_not_supported"] == 1


def test_f3_strict_gives_back_the_very_exception():
    error = KeyError("mine")

    def fails():
        raise error

    manager = manager_of(impl("op", "default.one", fails), impl("op", "reference.two"))
    with dispatch.with_strict_mode(), pytest.raises(KeyError) as caught:
        manager.call("op")
    assert caught.value is error
    assert manager.get_failed_impls() == {}
    assert any(entry.name == "fails" for entry in caught.traceback)


def test_f2_the_last_failure_is_the_cause():
    def fails():
        raise OSError("last words")

    manager = manager_of(impl("op", "default.one", fails))
    with pytest.raises(
        RuntimeError, match=r"All 1 implementation\(s\) failed for op='op'. Last error: last words"
    ) as info:
        manager.call("op")
    assert isinstance(info.value.__cause__, OSError)
    with pytest.raises(RuntimeError, match=r"All implementations for op='op' have failed previously. Failed impl_ids"):
        manager.call("op")
    manager.clear_failed_impls("op")
    with pytest.raises(RuntimeError, match="All 1 implementation"):
        manager.call("op")


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_passes_through(passing):
    def ends():
        raise passing("now")

    manager = manager_of(impl("op", "default.one", ends), impl("op", "reference.two"))
    with pytest.raises(passing, match="now"):
        manager.call("op")
    assert manager.get_failed_impls() == {}


def test_r6_availability_is_asked_once_and_its_exception_is_the_reason():
    asked = []

    def ask():
        asked.append(1)
        raise OSError("no driver")

    manager = manager_of(impl("op", "default.one", available=ask), impl("op", "reference.two"))
    assert [manager.call("op") for _ in range(3)] == ["reference.two"] * 3
    assert len(asked) == 1
    reasons = {one["impl_id"]: one["reason"] for one in manager.host.explain("op", None)["impls"]}
    assert "OSError: no driver" in reasons["default.one"]
    manager.bump_policy_epoch()
    manager.call("op")
    assert len(asked) == 2


def test_ops_call_each_other():
    manager = manager_of(impl("inner", "default.one", lambda a: a + 1))
    manager.registry.register_impl(impl("outer", "default.two", lambda a: manager.call("inner", a) * 10))
    manager.registry.register_impl(impl("loop", "default.loop", lambda n: n if n == 0 else manager.call("loop", n - 1)))
    assert manager.call("outer", 1) == 20
    assert manager.call("loop", 20) == 0
    with pytest.raises(RuntimeError, match="inside"):
        manager.call("loop", 200)


# ------------------------------------------------------------------------------------------------ contexts, threads, processes


def test_tasks_have_their_own_policies():
    manager = manager_of(impl("op", "default.one"), impl("op", "reference.two"))

    async def task(prefer):
        found = []
        with dispatch.with_preference(prefer):
            for _ in range(20):
                found.append(manager.call("op"))
                await asyncio.sleep(0)
        return set(found)

    async def both():
        return await asyncio.gather(task("flagos"), task("reference"))

    assert asyncio.run(both()) == [{"default.one"}, {"reference.two"}]
    assert manager.call("op") == "default.one"


def test_threads_do_not_inherit_a_context_and_call_at_once():
    manager = manager_of(impl("op", "default.one"), impl("op", "reference.two"))
    seen, errors = [], []

    def run():
        try:
            seen.extend(manager.call("op") for _ in range(200))
            with dispatch.with_preference("reference"):
                seen.extend(manager.call("op") for _ in range(200))
        except BaseException as error:
            errors.append(error)

    with dispatch.with_preference("reference"):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert manager.call("op") == "reference.two"
    assert not errors
    assert seen.count("default.one") == seen.count("reference.two") == 800


def test_a_slow_availability_holds_nobody_up_for_ever():
    """One thread asks in Python while another, which has the GIL, wants to call."""
    entered, leave = threading.Event(), threading.Event()

    def ask():
        entered.set()
        return leave.wait(5)

    manager = manager_of(impl("op", "default.one", available=ask), impl("other", "default.two"))
    thread = threading.Thread(target=manager.call, args=("op",))
    thread.start()
    assert entered.wait(5)
    second = threading.Thread(target=manager.call, args=("op",))
    second.start()
    leave.set()
    thread.join(5)
    second.join(5)
    assert not thread.is_alive()
    assert not second.is_alive()


def test_x1_a_forked_child_begins_anew():
    def fails():
        raise OSError("parent's")

    manager = manager_of(impl("op", "default.one", fails), impl("op", "reference.two"))
    assert manager.call("op") == "reference.two"
    assert manager.get_failed_impls()
    epoch = manager.policy_epoch
    child = os.fork()
    if not child:
        code = 1
        try:
            good = manager.get_failed_impls() == {} and manager.policy_epoch == epoch + 1
            good = good and manager.call("op") == "reference.two" and manager.get_failed_impls()
            code = 0 if good else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert manager.get_failed_impls() == {"op": {"default.one"}}


# ----------------------------------------------------------------------------------------------------------------- CachedOp


def test_a_cached_op_follows_what_changes():
    manager = dispatch.get_default_manager()
    manager._registered = True
    manager.registry.register_many([impl("op", "default.one"), impl("op", "reference.two")])
    op = dispatch.CachedOp("op")
    assert op() == "default.one"
    assert op._caller is not None
    with dispatch.with_preference("reference"):
        assert op() == "reference.two"
    dispatch.set_global_policy(SelectionPolicy(prefer="reference"))
    assert op() == "reference.two"
    dispatch.reset_default_manager()
    other = dispatch.get_default_manager()
    other._registered = True
    other.registry.register_impl(impl("op", "default.other"))
    assert op() == "default.other"
    assert dispatch.call_op("op") == "default.other"


def test_a_cached_op_falls_back_and_remembers():
    calls = []

    def fails():
        calls.append(1)
        raise OSError("once")

    manager = dispatch.get_default_manager()
    manager._registered = True
    manager.registry.register_many([impl("op", "default.one", fails), impl("op", "reference.two")])
    op = dispatch.CachedOp("op")
    assert [op() for _ in range(3)] == ["reference.two"] * 3
    assert len(calls) == 1


# ------------------------------------------------------------------------------------------------------------- nothing leaks


def test_references_stay_flat():
    def fails(value):
        raise OSError(value)

    manager = manager_of(impl("op", "default.one", lambda value: value), impl("bad", "default.bad", fails))
    layer, x = Layer(4), numpy.ones((2, 4), "float32")
    policy = SelectionPolicy(strict=True)
    value = object()

    def round_of_calls():
        manager.call("op", value)
        manager.call("rms_norm", layer, x)
        manager.call("attention_backend")
        with dispatch.policy_context(policy):
            for _ in range(2):
                with contextlib.suppress(OSError):
                    manager.call("bad", value)

    for _ in range(50):
        round_of_calls()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in (value, layer, x, layer.weight, None, policy)]
    objects = len(gc.get_objects())
    for _ in range(500):
        round_of_calls()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in (value, layer, x, layer.weight, None, policy)]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=False)), (before, after)
    assert abs(len(gc.get_objects()) - objects) < 50
