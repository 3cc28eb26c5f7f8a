"""Calling ops: arguments, results, errors."""

from __future__ import annotations

import inspect
import math
import resource
from typing import Any

import flhost
import numpy as np
import pytest
from core_support import HAS_TORCH, fill, numpy_dtype, simple_plugin


@pytest.fixture(scope="module")
def host() -> flhost.Host:
    return flhost.Host(environment={}, statistics=True)


def rms(x: Any, weight: Any = 1.0, epsilon: float = 1e-6) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def test_results_are_made_in_the_kind_of_the_first_tensor() -> None:
    x, w = np.random.randn(4, 64).astype("float32"), np.random.randn(64).astype("float32")
    out, residual = flhost.ops.rms_norm(x, weight=w)
    assert type(out) is np.ndarray
    assert residual is None
    np.testing.assert_allclose(out, rms(x, w), rtol=1e-5, atol=1e-5)
    if HAS_TORCH:
        import torch

        made, _ = flhost.ops.rms_norm(torch.from_numpy(x), weight=w)
        assert type(made) is torch.Tensor
        assert made.shape == (4, 64)
        np.testing.assert_allclose(made.numpy(), rms(x, w), rtol=1e-5, atol=1e-5)
        made += 1  # its memory is its own
        made.resize_(2, 2)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_the_memory_of_torchs_results_goes_with_them(host: flhost.Host) -> None:
    import torch

    x = torch.randn(16, 4096)
    out = host.op("relu2").call(x)
    kept = [out, out[1:, ::2].t(), out.detach()]
    expected = [item.clone() for item in kept]
    del out
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(4000):  # 1 GB
        host.op("relu2").call(x + 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert all(map(torch.equal, kept, expected))


def test_arguments_go_by_position_and_by_name(host: flhost.Host) -> None:
    op = host.op("rms_norm").call
    x, w = np.random.randn(2, 8).astype("float32"), np.random.randn(8).astype("float32")
    expected = op(x, None, w, 1e-3, None)[0]
    np.testing.assert_array_equal(op(x, weight=w, epsilon=1e-3)[0], expected)
    np.testing.assert_array_equal(op(epsilon=1e-3, weight=w, x=x)[0], expected)
    name = "".join(["wei", "ght"])  # not interned
    np.testing.assert_array_equal(op(x, **{name: w, "epsilon": 1e-3})[0], expected)
    assert not np.array_equal(op(x, weight=w)[0], expected) or np.allclose(expected, rms(x, w, 1e-3))


def test_out_takes_the_results_and_is_returned(host: flhost.Host) -> None:
    x, r, w = (np.random.randn(*shape).astype("float32") for shape in ((3, 8), (3, 8), (8,)))
    before = x.copy(), r.copy()
    out, residual_out = np.empty_like(x), np.empty_like(r)
    got = host.op("fused_add_rms_norm").call(x, r, w, 1e-6, out=(out, residual_out))
    assert got[0] is out
    assert got[1] is residual_out
    np.testing.assert_allclose(residual_out, before[0] + before[1], rtol=1e-6)
    np.testing.assert_allclose(out, rms(before[0] + before[1], w), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x, before[0])  # functional: what may be overwritten was not
    np.testing.assert_array_equal(r, before[1])
    half = host.op("fused_add_rms_norm").call(x, r, w, 1e-6, out=(out, None))
    assert half[0] is out
    assert half[1] is not residual_out
    single = np.empty((3, 4), "float32")
    assert host.op("silu_and_mul").call(x, out=single) is single
    assert host.op("silu_and_mul").call(x, out=(single,)) is single


def test_out_that_is_the_argument_works_in_place(host: flhost.Host) -> None:
    x, r = np.random.randn(3, 8).astype("float32"), np.random.randn(3, 8).astype("float32")
    total = x + r
    got = host.op("rms_norm").call(x, r, out=(x, r))
    assert got[0] is x
    assert got[1] is r
    np.testing.assert_allclose(r, total, rtol=1e-6)
    np.testing.assert_allclose(x, rms(total), rtol=1e-5, atol=1e-5)


def test_a_state_is_overwritten_and_an_optional_one_may_be_none(host: flhost.Host) -> None:
    op = host.op("causal_conv1d")
    for number in range(60):
        try:
            example = op.example(number, dtype="float32")
        except flhost.InvalidArgument:
            continue
        arguments = [fill(a) if isinstance(a, tuple) and len(a) == 5 else a for a in example]
        names = [a["name"] for a in op.arguments]
        state = arguments[names.index("conv_state")]
        if state is None or not all(state.shape) or not all(arguments[0].shape):
            continue
        before = state.copy()
        op.call(*arguments)
        assert not np.array_equal(before, state)
        state.flags.writeable = False
        with pytest.raises(flhost.InvalidArgument, match="argument 'conv_state': a read-only tensor"):
            op.call(*arguments)
        return
    pytest.fail("no call with a state")


def test_results_that_are_no_tensors(host: flhost.Host, tmp_path: Any) -> None:
    simple_plugin(
        tmp_path,
        "numbers",
        schema="numbers(int n, str word) -> (int twice, float half, bool odd, str echo)",
        body="""call->values[2].type = FL_INT; call->values[2].v.i = 2 * call->values[0].v.i;
                call->values[3].type = FL_FLOAT; call->values[3].v.f = call->values[0].v.i / 2.0;
                call->values[4].type = FL_BOOL; call->values[4].v.b = call->values[0].v.i & 1;
                call->values[5].type = FL_STRING; call->values[5].v.s = call->values[1].v.s;""",
    )
    host.load_plugin(tmp_path / "numbers.so")
    assert host.op("numbers").call(5, "größe") == (10, 2.5, True, "größe")
    with pytest.raises(flhost.WrongType, match="result 'twice': it is no tensor"):
        host.op("numbers").call(5, "x", out=(1, None, None, None))


def test_an_op_without_results_gives_none(host: flhost.Host, tmp_path: Any) -> None:
    simple_plugin(
        tmp_path, "effect", schema="effect(Tensor(a!) x) -> ()", body="*(float *)fl_data(call->values[0].v.tensor) = 7;"
    )
    host.load_plugin(tmp_path / "effect.so")
    x = np.zeros(2, "float32")
    assert host.op("effect").call(x) is None
    assert x[0] == 7


def test_infer_says_shapes_without_calling(host: flhost.Host) -> None:
    calls = (
        host.counters("silu_and_mul", "default.flagos")["calls"] + host.counters("silu_and_mul", "reference.c")["calls"]
    )
    x = np.zeros((3, 8), "float32")
    assert host.op("silu_and_mul").infer(x) == (((3, 4), "float32", "cpu"),)
    assert host.op("rms_norm").infer(x) == (((3, 8), "float32", "cpu"), None)
    after = (
        host.counters("silu_and_mul", "default.flagos")["calls"] + host.counters("silu_and_mul", "reference.c")["calls"]
    )
    assert after == calls


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (8, True), (np.int64(8), True), (np.int8(8), True), (True, False), (np.bool_(True), False), (8.0, False),
        ("8", False), (None, False), (np.float32(8), False), ([8], False), (2**63, False), (-(2**70), False),
    ],
)  # fmt: skip
def test_an_int_is_what_counts_and_no_bool(host: flhost.Host, value: Any, fits: bool) -> None:
    x = np.random.randn(2, 16).astype("float32")
    call = host.op("topk_softmax").call
    if fits:
        assert call(x, value)[1].shape == (2, 8)
    else:
        with pytest.raises(flhost.InvalidArgument, match="topk_softmax: argument 'topk': .*expected"):
            call(x, value)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (0.5, True), (1, True), (np.float32(0.5), True), (np.float64(0.5), True), (np.int32(1), True), (True, False),
        ("0.5", False), (None, False), (np.zeros(1), False), ([0.5], False), (10**400, False), (1j, False),
    ],
)  # fmt: skip
def test_a_float_is_a_number_and_no_bool(host: flhost.Host, value: Any, fits: bool) -> None:
    x = np.random.randn(2, 16).astype("float32")
    call = host.op("fatrelu_and_mul").call
    if fits:
        np.testing.assert_array_equal(call(x, value), call(x, float(value)))
    else:
        with pytest.raises(flhost.InvalidArgument, match="argument 'threshold': .*(expected|no float)"):
            call(x, value)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (True, True),
        (np.bool_(False), True),
        (1, False),
        (0, False),
        ("True", False),
        (None, False),
        (np.int8(1), False),
    ],
)
def test_a_bool_is_a_bool(host: flhost.Host, value: Any, fits: bool) -> None:
    x = np.random.randn(2, 16).astype("float32")
    call = host.op("topk_softmax").call
    if fits:
        np.testing.assert_array_equal(call(x, 2, value)[0], call(x, 2, bool(value))[0])
    else:
        with pytest.raises(flhost.WrongType, match="argument 'renormalize': .*expected bool"):
            call(x, 2, value)


@pytest.mark.parametrize("value", [b"tanh", 3, None, "ta\0nh", "\udcff", np.zeros(2)])
def test_a_string_is_text(host: flhost.Host, value: Any) -> None:
    x = np.random.randn(2, 16).astype("float32")
    with pytest.raises(flhost.InvalidArgument, match="gelu: argument 'approximate'"):
        host.op("gelu").call(x, value)


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ([2, 2], True), ((2, 2), True), (np.array([2, 2]), True), (range(2, 4), True), ([np.int64(2), 2], True),
        (2, False), ("22", False), (b"22", False), ([2, True], False), ([2, 2.0], False), ({2: 2}, False),
        ([1] * 1000, False), ([2**63, 1], False), (None, False),
    ],
)  # fmt: skip
def test_a_list_of_ints_is_any_sequence_of_them(host: flhost.Host, value: Any, fits: bool) -> None:
    x, w = np.random.randn(1, 2, 8, 8).astype("float32"), np.random.randn(2, 2, 3, 3).astype("float32")
    call = host.op("conv2d").call
    if fits:
        np.testing.assert_array_equal(call(x, w, None, value), call(x, w, None, [int(v) for v in value]))
    else:
        with pytest.raises(flhost.InvalidArgument, match="conv2d: argument 'stride'"):
            call(x, w, None, value)


def test_mistakes_name_op_argument_given_and_expected(host: flhost.Host) -> None:
    x = np.zeros((2, 8), "float32")
    call = host.op("rms_norm").call
    for wrong, message in [
        (lambda: call(), "argument 'x': missing"),
        (lambda: call(3), "argument 'x': int, expected a tensor"),
        (lambda: call(None), "argument 'x': NoneType, expected a tensor"),
        (lambda: call(x, "r"), "argument 'residual': str, expected a tensor"),
        (lambda: call(x, wieght=x), "no argument 'wieght'; did you mean 'weight'"),
        (lambda: call(x, x=x), "argument 'x': given twice"),
        (lambda: call(x, None, None, 1e-6, None, None), "6 arguments, expected at most 5"),
        (lambda: call(x, out=x), "argument 'out': one object, expected a tuple of 2"),
        (lambda: call(x, out=(x,)), "argument 'out': 1 results, expected 2"),
        (lambda: call(x, out=[x, None]), "argument 'out'"),
        (lambda: call(x, stream="s"), "argument 'stream': 's', expected the address"),
        (lambda: call(x, out=(3, None)), "result 'out': int, expected a tensor"),
        (lambda: call(x, weight=np.zeros(3, "float32")), "argument 'weight'"),
        (lambda: call(x, weight=np.zeros(8, "complex64")), "argument 'weight'"),
        (lambda: call(np.zeros((2, 8), "int32")), "argument 'x'"),
        (lambda: call(x[:, ::2]), "argument 'x': stride"),
        (lambda: call(np.zeros((1,) * 9, "float32")), "argument 'x'"),
    ]:
        with pytest.raises(flhost.InvalidArgument) as caught:
            wrong()
        assert str(caught.value).startswith("rms_norm: ")
        assert message in str(caught.value)
        assert caught.value.status_name == "FL_EINVAL"
        assert isinstance(caught.value, (TypeError, ValueError))


def test_an_op_that_is_not_there_is_an_attribute_error_with_the_nearest(host: flhost.Host) -> None:
    with pytest.raises(AttributeError, match="rms_norm"):
        _ = flhost.ops.rmsnorm
    with pytest.raises(flhost.NotFound, match="rms_norm") as caught:
        host.op("rmsnorm")
    assert isinstance(caught.value, LookupError)
    assert "rms_norm" in dir(flhost.ops)


def test_help_and_signature_come_from_the_entry(host: flhost.Host) -> None:
    call = host.op("rms_norm").call
    assert str(inspect.signature(call)) == (
        "(x, residual=None, weight=None, epsilon=1e-06, variance_size=None, *, out=None, stream=None, prepared=None)"
    )
    text = inspect.getdoc(call) or ""
    for part in ("Root-mean-square", "x: tensor T[..., H]", "epsilon: float; default 1e-06", "T = float32|float16|bfloat16",
                 "Formula", "out: a tuple of tensors", "may be the very tensor x"):  # fmt: skip
        assert part in text
    for name in host.ops():
        if name in ("numbers", "effect"):
            continue
        signature = inspect.signature(host.op(name).call)
        assert list(signature.parameters)[:-3] == [a["name"] for a in host.op(name).arguments]


def test_an_op_says_what_it_is(host: flhost.Host) -> None:
    op = host.op("rms_norm")
    assert op.name == "rms_norm"
    assert op.schema.startswith("rms_norm(Tensor(a!) x")
    assert "T[..., H]" in op.rules
    assert op.category == "normalisation"
    assert op.doc
    assert op.formula
    assert op.bytes == ""
    assert "numel" in op.flops
    assert op.host is host
    assert op.arguments[3] == {
        "name": "epsilon", "type": "float", "optional": False, "mutates": False, "has_default": True, "default": 1e-6,
        "alias": -1,
    }  # fmt: skip
    assert [r["alias"] for r in op.results] == [0, 1]
    assert op.tolerance("float32")[1] == pytest.approx(1.3e-6)
    with pytest.raises(flhost.InvalidArgument):
        op.tolerance("float31")
    with pytest.raises(TypeError):
        type(op)()
    assert "rms_norm(" in repr(op)


def _is_tensor(example: Any) -> bool:
    return isinstance(example, tuple) and len(example) == 5 and isinstance(example[1], str)


def test_every_op_gives_what_its_reference_gives(host: flhost.Host) -> None:
    """A few generated calls of each op, with numpy and where it is there torch, under the policy and by the reference."""
    compared = set()
    for name in host.ops():
        op = host.op(name)
        if not op.rules or "reference.c" not in [impl["impl_id"] for impl in host.impls(name)]:
            continue
        done = 0
        for number in range(400):
            if done == 3:
                break
            try:
                example = op.example(number, dtype="float32")
            except flhost.InvalidArgument:
                continue
            except flhost.NotFound:
                break
            if sum(math.prod(a[0]) for a in example if _is_tensor(a)) > 200_000:
                continue
            arguments = [fill(a, i) if _is_tensor(a) else a for i, a in enumerate(example)]
            copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            try:
                with np.errstate(all="ignore"):
                    got = op.call(*arguments)
                    with host.prefer("reference"):
                        expected = op.call(*copies)
            except flhost.NotSupported:
                continue
            except flhost.InvalidArgument:
                continue  # values that only the kernel can refuse
            done += 1
            compared.add(name)
            atol, rtol = op.tolerance("float32")
            for one, other in zip(_tuple(got), _tuple(expected), strict=True):
                if isinstance(one, np.ndarray) and one.dtype.kind == "f":
                    np.testing.assert_allclose(one, other, rtol=max(rtol, 1e-3), atol=max(atol, 1e-3), err_msg=name)
                elif isinstance(one, np.ndarray):
                    assert one.shape == other.shape
    assert len(compared) >= 40, sorted(set(host.ops()) - compared)


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_element_types_that_numpy_gets_from_ml_dtypes(host: flhost.Host) -> None:
    kind = numpy_dtype("bfloat16")
    if kind is None:
        pytest.skip("ml_dtypes is not installed")
    x = np.random.randn(3, 8).astype(kind)
    out = host.op("silu_and_mul").call(x)
    assert out.dtype == kind
    wide = x.astype("float32")
    expected = wide[:, :4] / (1 + np.exp(-wide[:, :4])) * wide[:, 4:]
    np.testing.assert_allclose(out.astype("float32"), expected, rtol=2e-2, atol=2e-2)
