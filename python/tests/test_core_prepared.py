"""Prepared weights: what Op.prepare makes, calls with it, its memory, its end."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import flhost
import numpy as np
import pytest
from core_support import HAS_TORCH, ROOT, Foreign, build_plugin

D = 5


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: Any) -> Path:
    """weighted(x, weight) = x * weight: an implementation that keeps the weight as it was, one for each way to fail, and a
    reference that prepares nothing."""
    source = (ROOT / "tests/plugins/prepares.c").read_text()
    return build_plugin(tmp_path_factory.mktemp("prepares"), "prepares", source)


@pytest.fixture
def host(plugin: Path) -> flhost.Host:
    host = flhost.Host(environment={})
    host.load_plugin(plugin)
    return host


def some(rows: int = 3) -> tuple[Any, Any]:
    return np.arange(rows * D, dtype="float32").reshape(rows, D), np.full(D, 2, "float32")


# ---------------------------------------------------------------------------------------------------------------- calls


def test_a_call_uses_what_was_made_of_the_weight(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    prepared = op.prepare(x[:1], weight)
    weight[:] = 3  # nobody looks
    np.testing.assert_array_equal(op.call(x, weight, prepared=prepared), 2 * x)
    np.testing.assert_array_equal(op.call(weight=weight, prepared=prepared, x=x), 2 * x)
    np.testing.assert_array_equal(op.call(x, weight, **{"".join(["prep", "ared"]): prepared}), 2 * x)  # not interned
    np.testing.assert_array_equal(op.call(x, weight), 3 * x)
    np.testing.assert_array_equal(op.call(x, weight, prepared=None), 3 * x)
    with host.prefer("reference"):  # another implementation uses the weight itself
        np.testing.assert_array_equal(op.call(x, weight, prepared=prepared), 3 * x)
    again = op.prepare(x, weight=weight)  # by name as well
    np.testing.assert_array_equal(op.call(x, weight, prepared=again), 3 * x)
    out = np.empty_like(x)
    assert op.call(x, weight, out=out, prepared=again) is out
    np.testing.assert_array_equal(out, 3 * x)
    assert op.infer(x, weight, prepared=again) == op.infer(x, weight)


def test_nothing_is_called_and_no_result_is_written(host: flhost.Host) -> None:
    x, weight = some()
    out = np.full_like(x, 7)
    host.op("weighted").prepare(x, weight, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("rows", [1, 16])
def test_linear_layers_give_the_same(rows: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 512)).astype("float32")
    weight, bias = rng.standard_normal((1024, 512)).astype("float32"), rng.standard_normal(1024).astype("float32")
    for name in ("replicated_linear", "column_parallel_linear", "row_parallel_linear", "parallel_lm_head"):
        with flhost.prepare(name, x[:1], weight, bias) as prepared:
            call = getattr(flhost.ops, name)
            np.testing.assert_allclose(
                call(x, weight, bias, prepared=prepared), call(x, weight, bias), rtol=1e-4, atol=1e-4
            )


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_tensors_of_torch_are_prepared(dtype: str) -> None:
    import torch

    kind = getattr(torch, dtype)
    x, weight = torch.randn(96, 512).to(kind), torch.randn(1024, 512).to(kind)
    with flhost.prepare("replicated_linear", x, weight) as prepared:
        got = flhost.ops.replicated_linear(x, weight, prepared=prepared)
        torch.testing.assert_close(got, flhost.ops.replicated_linear(x, weight), rtol=2e-2, atol=2e-1)
        torch.testing.assert_close(got.double(), x.double() @ weight.double().t(), rtol=2e-2, atol=2e-1)
        if prepared.bytes:  # not of each type on each processor
            with pytest.raises(flhost.InvalidArgument, match="argument 'weight' is not the tensor that was prepared"):
                flhost.ops.replicated_linear(x, weight.clone(), prepared=prepared)


@pytest.mark.parametrize("versioned", [True, False])
def test_tensors_of_other_libraries_are_prepared(host: flhost.Host, versioned: bool) -> None:
    op = host.op("weighted")
    x, weight = some()
    foreign = Foreign(weight, versioned=versioned)
    gc.collect()
    out = Foreign.handed_out - Foreign.came_back
    prepared = op.prepare(x, foreign)
    weight[:] = 3
    np.testing.assert_array_equal(op.call(x, foreign, prepared=prepared), 2 * x)
    assert Foreign.handed_out - Foreign.came_back == out  # what was borrowed was given back


def test_the_policy_in_force_says_who_prepares(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    assert op.prepare(x, weight).impl_id == "default.flagos"
    with host.op_order("weighted", ["impl:vendor.few", "flagos"]):
        assert op.prepare(x[:2], weight).impl_id == "vendor.few"
        assert op.prepare(x, weight).impl_id == "default.flagos"  # it does not take three rows


@pytest.mark.parametrize("who", ["reference.c", "vendor.declines"])
def test_where_nothing_is_prepared_calls_go_on_as_ever(host: flhost.Host, who: str) -> None:
    op = host.op("weighted")
    x, weight = some()
    before = sys.getrefcount(weight)
    with host.op_order("weighted", [f"impl:{who}"]), op.prepare(x, weight) as prepared:
        assert (prepared.impl_id, prepared.bytes) == (None, 0)
        assert repr(prepared) == "<flhost prepared weights of weighted: none>"
        assert sys.getrefcount(weight) == before
        np.testing.assert_array_equal(op.call(x, weight, prepared=prepared), 2 * x)
        np.testing.assert_array_equal(op.call(x, weight + 1, prepared=prepared), 3 * x)
        with pytest.raises(flhost.InvalidArgument, match="made for op 'weighted'"):  # a mistake on every machine
            host.op("weighted_too").call(x, weight, prepared=prepared)


# --------------------------------------------------------------------------------------------------------------- errors


def test_what_is_not_this_ops_is_an_error_with_words(host: flhost.Host, plugin: Path) -> None:
    op = host.op("weighted")
    x, weight = some()
    other = flhost.Host(environment={})
    other.load_plugin(plugin)
    prepared, elsewhere = op.prepare(x, weight), other.op("weighted").prepare(x, weight)
    longer = np.ones(D + 1, "float32")
    for wrong, kind, message in [
        (lambda: op.call(x, weight, prepared=3), TypeError, "weighted: argument 'prepared': int, expected what prepare"),
        (lambda: op.call(x, weight, prepared=op), TypeError, "argument 'prepared': flhost._core.Op, expected"),
        (lambda: op.call(x, weight.copy(), prepared=prepared), ValueError,
         "weighted: argument 'weight' is not the tensor that was prepared: it lies elsewhere"),
        (lambda: op.call(x, prepared=prepared), ValueError, "argument 'weight' is not the tensor that was prepared: it is none"),
        (lambda: op.call(x, weight[None], prepared=prepared), ValueError, "its shape is [1, 5], not [5]"),
        (lambda: op.call(x, longer, prepared=prepared), ValueError, "weighted: argument 'weight': shape [6], expected [5]"),
        (lambda: host.op("weighted_too").call(x, weight, prepared=prepared), ValueError,
         "weighted_too: argument 'prepared': it was made for op 'weighted', expected what prepare of 'weighted_too' gave"),
        (lambda: op.call(x, weight, prepared=elsewhere), ValueError,
         "weighted: argument 'prepared': it was made for op 'weighted' of another host"),
        (lambda: op.call(x, weight, prepaerd=prepared), TypeError, "no argument 'prepaerd'; did you mean 'prepared'"),
        (lambda: op.prepare(x, longer), ValueError, "weighted: argument 'weight': shape [6], expected [5]"),
        (lambda: op.prepare(x, "w"), TypeError, "weighted: argument 'weight': str, expected a tensor"),
        (lambda: op.prepare(), TypeError, "weighted: argument 'x': missing"),
        (lambda: op.prepare(x, weight, out=(x, x)), TypeError, "argument 'out': 2 results, expected 1"),
    ]:  # fmt: skip
        with pytest.raises(flhost.InvalidArgument) as caught:
            wrong()
        assert isinstance(caught.value, kind)
        assert message in str(caught.value)
    np.testing.assert_array_equal(op.call(x, weight, prepared=prepared), 2 * x)
    with pytest.raises(flhost.NotFound, match="replicated_linear"):
        flhost.prepare("replicated_linaer", x, weight)
    with pytest.raises(TypeError):
        flhost.Prepared()  # type: ignore[call-arg, unused-ignore]


@pytest.mark.parametrize(
    ("who", "error", "words"),
    [
        ("fails", flhost.DeviceError, "weighted: vendor.fails cannot prepare weights: the packer is out of order"),
        ("writes_behind", flhost.InternalError, "prepared more than the 20 bytes that it had asked for"),
        ("odd_status", flhost.InternalError, "vendor.odd_status returned 77"),
        ("greedy", flhost.OutOfMemory, "vendor.greedy wants 18446744073709551516 bytes"),
    ],
)
def test_who_fails_at_preparing_is_called_without(host: flhost.Host, who: str, error: Any, words: str) -> None:
    op = host.op("weighted")
    x, weight = some()
    before = sys.getrefcount(weight)
    with host.op_order("weighted", [f"impl:vendor.{who}"]):
        with pytest.raises(error) as caught:
            op.prepare(x, weight)
        assert words in str(caught.value)
        assert host.prepared_bytes() == 0
        np.testing.assert_array_equal(op.call(x, weight), 2 * x)
    del caught
    gc.collect()
    assert sys.getrefcount(weight) == before


# --------------------------------------------------------------------------------------------------------------- memory


def test_its_memory_is_counted_and_shown(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()

    def counted() -> tuple[int, int, int]:
        counters = host.counters("weighted", "default.flagos")
        return counters["prepared"], counters["prepared_bytes"], host.prepared_bytes()

    first, second = op.prepare(x, weight), op.prepare(x, weight)
    assert counted() == (2, 8 * D, 8 * D)
    assert (first.bytes, first.impl_id, first.closed) == (4 * D, "default.flagos", False)
    assert first.op.name == "weighted"
    assert repr(first) == "<flhost prepared weights of weighted: 20 bytes for default.flagos>"
    first.close()
    assert counted() == (1, 4 * D, 4 * D)
    assert (first.bytes, first.impl_id, first.closed) == (0, "default.flagos", True)
    assert repr(first) == "<flhost prepared weights of weighted: closed>"
    first.close()
    assert counted() == (1, 4 * D, 4 * D)
    del second
    assert counted() == (0, 0, 0)
    with op.prepare(x, weight) as third:
        assert counted() == (1, 4 * D, 4 * D)
    assert third.closed
    assert counted() == (0, 0, 0)
    with pytest.raises(ZeroDivisionError), op.prepare(x, weight):
        _ = 1 // 0
    assert counted() == (0, 0, 0)


def test_a_call_with_a_closed_one_is_an_error(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    with op.prepare(x, weight) as prepared:
        pass
    with pytest.raises(flhost.StateError) as caught:
        op.call(x, weight, prepared=prepared)
    assert str(caught.value) == "weighted: argument 'prepared': it was closed, prepare the weights again"


def test_it_keeps_the_weights_alive_and_nothing_else(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    before = sys.getrefcount(x), sys.getrefcount(weight)
    prepared = op.prepare(x, weight=weight)
    assert (sys.getrefcount(x), sys.getrefcount(weight)) == (before[0], before[1] + 1)
    op.call(x, weight, prepared=prepared)
    prepared.close()
    assert (sys.getrefcount(x), sys.getrefcount(weight)) == before
    prepared = op.prepare(x, weight)
    assert sys.getrefcount(weight) == before[1] + 1
    del prepared
    assert sys.getrefcount(weight) == before[1]


def test_a_weight_that_refers_to_it_ends_with_it(host: flhost.Host) -> None:
    x, array = some()
    weight: Any = Foreign(array)
    weight.prepared = host.op("weighted").prepare(x, weight)
    end = weakref.ref(weight)
    assert host.prepared_bytes() == 4 * D
    del weight
    gc.collect()
    assert end() is None
    assert host.prepared_bytes() == 0


def test_it_keeps_its_host(plugin: Path) -> None:
    x, weight = some()
    host = flhost.Host(environment={})
    host.load_plugin(plugin)
    end = weakref.ref(host)
    prepared = host.op("weighted").prepare(x, weight)
    del host
    gc.collect()
    assert end() is not None
    assert prepared.op.host.prepared_bytes() == 4 * D
    np.testing.assert_array_equal(prepared.op.call(x, weight, prepared=prepared), 2 * x)
    del prepared
    gc.collect()
    assert end() is None


def test_it_outlives_its_plugin(host: flhost.Host, plugin: Path) -> None:
    op = host.op("weighted")
    x, weight = some()
    prepared = op.prepare(x, weight)
    host.withdraw_plugin("prepares")
    with pytest.raises(flhost.NoImplementation):
        op.call(x, weight, prepared=prepared)
    assert host.prepared_bytes() == 4 * D
    prepared.close()
    assert host.prepared_bytes() == 0


# A device whose memory is malloc's, and an op that prepares there. What is done is written down.
DEVICE = """
#include <flhost/plugin.h>
#include <stdlib.h>
#include <string.h>
FL_PLUGIN("kept", "1", "Test", "MIT", "");
FL_EXPORT extern char events[64];
char events[64];
static bool is_active(void *self, const char **reason) { (void)self, (void)reason; return true; }
static int device_count(void *self) { (void)self; return 1; }
static fl_status properties(void *self, int32_t device, fl_device_properties *all) {
  (void)self, (void)device; strcpy(all->name, "kept"); return FL_OK; }
static fl_status current(void *self, int32_t *device) { (void)self; *device = 0; return FL_OK; }
static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device; strcat(events, "a"); *memory = aligned_alloc(256, (size + 255) / 256 * 256);
  return *memory ? FL_OK : FL_ENOMEM; }
static fl_status release(void *self, int32_t device, void *memory) {
  (void)self, (void)device; strcat(events, "r"); free(memory); return FL_OK; }
static fl_status copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t way, void *stream) {
  (void)self, (void)device, (void)way, (void)stream; memcpy(to, from, size); return FL_OK; }
static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream; strcat(events, all ? "s" : "?"); return FL_OK; }
static const char *error(void *self) { (void)self; return ""; }
static size_t prepared_size(void *self, const fl_call *call) { (void)self, (void)call; return 100; }
static fl_status prepare(void *self, fl_call *call, void *memory, size_t size) {
  (void)self, (void)size; strcat(events, call->stream == (void *)0x1234 ? "p" : "?"); memset(memory, 1, 100); return FL_OK; }
static fl_status kernel(void *self, fl_call *call) {
  strcat(events, fl_prepared_data(call, prepare, self) ? "k" : "?"); return FL_OK; }
fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {.size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active,
      .device_count = device_count, .properties = properties, .current_device = current, .allocate = allocate,
      .release = release, .copy = copy, .synchronize = synchronize, .error = error};
  static const fl_component component = {.size = sizeof component, .type = "platform", .name = "kept",
      .functions = &platform, .functions_type = FL_FUNCTIONS_PLATFORM, .functions_size = sizeof platform};
  const fl_op_def op = {.size = sizeof op, .schema = "kept(Tensor x, Tensor weight) -> Tensor out",
                        .rules = "x: float32[d]; weight: float32[d]; out: float32[d]"};
  const fl_impl impl = {.size = sizeof impl, .op_name = "kept", .impl_id = "vendor.kept", .kind = FL_KIND_VENDOR,
                        .vendor = "kept", .devices = FL_DEVICE(kDLExtDev), .fn = kernel, .prepares = 1 << 1,
                        .prepared_size = prepared_size, .prepare = prepare};
  return registry->register_op(registry, &op) || registry->register_component(registry, &component)
             ? FL_EINVAL : registry->register_impl(registry, &impl);
}
"""


def test_on_a_device_its_end_waits_for_the_work(tmp_path: Path) -> None:
    file = build_plugin(tmp_path, "kept", DEVICE.replace("<flhost/plugin.h>", "<flhost/hardware.h>"))
    host = flhost.Host(environment={})
    host.load_plugin(file)
    x, weight, out = (Foreign(np.ones(4, "float32"), device=(12, 0)) for _ in range(3))
    prepared = host.op("kept").prepare(x, weight, out=out, stream=0x1234)
    host.op("kept").call(x, weight, out=out, prepared=prepared, stream=0x1234)
    assert prepared.bytes == 100
    del prepared
    assert host.prepared_bytes() == 0
    assert ctypes.c_char_p(ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(str(file)), "events"))).value == b"apksr"


# -------------------------------------------------------------------------------------------------- threads, processes


def test_a_call_that_is_under_way_ends_before_it_is_freed(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    began, go = threading.Event(), threading.Event()

    def slow(x: Any, weight: Any) -> Any:
        began.set()
        assert go.wait(30)
        return x * weight

    prepared = op.prepare(x, weight)
    host.register_impl("weighted", "default.slow", slow, kind="flagos", tensors="numpy", priority=1000)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(op.call(x, weight, prepared=prepared)))
    thread.start()
    assert began.wait(30)
    prepared.close()
    assert prepared.closed
    with pytest.raises(flhost.StateError):
        op.call(x, weight, prepared=prepared)
    assert host.prepared_bytes() == 4 * D
    go.set()
    thread.join()
    assert host.prepared_bytes() == 0
    np.testing.assert_array_equal(got[0], 2 * x)


def test_threads_share_it(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    wrong: list[Any] = []
    with op.prepare(x, weight) as shared:
        weight[:] = 3

        def work() -> None:
            for i in range(500):
                if not np.array_equal(op.call(x, weight, prepared=shared), 2 * x):
                    wrong.append(i)
                with op.prepare(x, weight) as own:
                    if not np.array_equal(op.call(x, weight, prepared=own), 3 * x):
                        wrong.append(i)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert host.prepared_bytes() == 4 * D
    assert not wrong
    assert host.prepared_bytes() == 0


def test_threads_that_call_while_another_closes_it_are_answered_or_told(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    current = [op.prepare(x, weight)]
    end, wrong = threading.Event(), []

    def work() -> None:
        while not end.is_set():
            try:
                if not np.array_equal(op.call(x, weight, prepared=current[0]), 2 * x):
                    wrong.append("another result")
            except flhost.StateError:
                pass
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        before, current[0] = current[0], op.prepare(x, weight)
        before.close()
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong
    current.clear()
    gc.collect()
    assert host.prepared_bytes() <= 4 * D  # `before`
    del before
    assert host.prepared_bytes() == 0


def test_a_forked_child_uses_it(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    prepared = op.prepare(x, weight)
    weight[:] = 3
    child = os.fork()
    if not child:
        good = False
        with contextlib.suppress(Exception):
            good = np.array_equal(op.call(x, weight, prepared=prepared), 2 * x)
            prepared.close()
            good &= host.prepared_bytes() == 0
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(op.call(x, weight, prepared=prepared), 2 * x)


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps what is freed")
def test_many_leave_nothing_behind(host: flhost.Host) -> None:
    op = host.op("weighted")
    x, weight = some()
    wide, long = np.ones((16, 512), "float32"), np.ones((1024, 512), "float32")
    out = np.empty_like(x)

    def make(n: int) -> None:
        for _ in range(n):
            with op.prepare(x, weight) as prepared:
                op.call(x, weight, out=out, prepared=prepared)
            for bad in (3, prepared):
                with contextlib.suppress(flhost.Error):
                    op.call(x, weight, prepared=bad)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    make(1000)
    host.op("replicated_linear").prepare(wide, long)
    before, counts = resident(), [sys.getrefcount(thing) for thing in (x, weight, out, op, long)]
    make(20_000)
    for _ in range(50):
        host.op("replicated_linear").prepare(wide, long)
    assert [sys.getrefcount(thing) for thing in (x, weight, out, op, long)] == counts
    assert host.prepared_bytes() == 0
    assert resident() - before < 8 << 20
