"""torch.ops.flhost.OP.prepared: calls with prepared weights, by their handle."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import flhost.torch  # noqa: E402

NAME = "replicated_linear"
flhost.torch.register()
op = getattr(torch.ops.flhost, NAME)


def some(rows: int = 96) -> tuple[Any, Any]:  # more than are few
    torch.manual_seed(0)
    return torch.randn(rows, 512), torch.randn(1024, 512)


@pytest.fixture
def weights() -> Any:
    """Of a call: x, weight, what was prepared."""
    x, weight = some()
    with flhost.prepare(NAME, x, weight) as prepared:
        if not prepared.bytes:
            pytest.skip("nothing is prepared on this processor")
        yield x, weight, prepared


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)


def test_there_is_an_overload_for_ops_whose_weights_somebody_prepares() -> None:
    host = flhost.default_host()
    with_it = {name for name in host.ops() if "prepared" in getattr(torch.ops.flhost, name).overloads()}
    assert {"replicated_linear", "column_parallel_linear", "row_parallel_linear", "logits_processor"} <= with_it
    assert with_it == {name for name in host.ops() if any(impl["prepares"] for impl in host.explain(name)["impls"])}
    assert str(op.prepared._schema) == (
        "flhost::replicated_linear.prepared(Tensor x, Tensor weight, Tensor? bias=None, bool skip_bias_add=False, *, "
        "Tensor prepared) -> Tensor"
    )


def test_a_call_uses_what_was_prepared(weights: Any) -> None:
    x, weight, prepared = weights
    handle = flhost.torch.handle(prepared)
    expected = op(x, weight)
    close(op.prepared(x, weight, prepared=handle), expected)
    close(op.prepared(x, weight.clone(), prepared=flhost.torch.handle(None)), expected)  # a call without
    weight.zero_()  # nobody looks: so it was not the weight that was read
    close(op.prepared(x, weight, prepared=handle), expected)
    assert not op(x, weight).any()
    close(op.prepared(x, weight, torch.ones(1024), prepared=handle.clone()), expected + 1)  # the number counts alone


def test_a_compiled_graph_is_handed_the_handle(weights: Any) -> None:
    x, weight, prepared = weights
    compiled = torch.compile(lambda x, weight, handle: op.prepared(2 * x, weight, prepared=handle) + 1, fullgraph=True)
    close(compiled(x, weight, flhost.torch.handle(prepared)), op(2 * x, weight) + 1)
    other = torch.randn(1024, 512)  # another layer's weight, the same graph
    with torch.compiler.set_stance("fail_on_recompile"), flhost.prepare(NAME, x, other) as prepared_too:
        close(compiled(x, other, flhost.torch.handle(prepared_too)), op(2 * x, other) + 1)


def test_opcheck_passes() -> None:
    """Which passes copies of the weights: where nothing was prepared any will do."""
    x, weight = some()
    with flhost.prefer("reference"):
        prepared = flhost.prepare(NAME, x, weight)
    assert prepared.bytes == 0
    torch.library.opcheck(op.prepared, (x, weight), {"prepared": flhost.torch.handle(prepared)})


def test_a_wrong_handle_is_an_error_with_words(weights: Any) -> None:
    x, weight, prepared = weights
    handle = flhost.torch.handle(prepared)
    other = flhost.prepare("row_parallel_linear", x, weight)
    closed = flhost.prepare(NAME, x, weight)
    old = flhost.torch.handle(closed)
    closed.close()
    again = flhost.torch.handle(flhost.prepare(NAME, x, weight))
    assert again.item() != old.item()
    for wrong, words in [
        (old, "it was closed, or is no handle"),
        (torch.tensor([-1]), "it was closed, or is no handle"),
        (handle + 1000, "it was closed, or is no handle"),
        (handle.int(), "a tensor that flhost.torch.handle did not make"),
        (handle.double(), "a tensor that flhost.torch.handle did not make"),
        (torch.cat([handle, handle]), "a tensor that flhost.torch.handle did not make"),
        (handle[0], "a tensor that flhost.torch.handle did not make"),
        (flhost.torch.handle(other), "it was made for another op"),
    ]:
        with pytest.raises(RuntimeError) as caught:
            op.prepared(x, weight, prepared=wrong)
        assert f"{NAME}: argument 'prepared': {words}, expected the handle of what prepare gave" in str(caught.value)
    with pytest.raises(RuntimeError, match="argument 'weight' is not the tensor that was prepared"):
        op.prepared(x, weight.clone(), prepared=handle)
    with pytest.raises(flhost.StateError, match="it was closed"):
        flhost.torch.handle(closed)
    close(op.prepared(x, weight, prepared=handle), op(x, weight))


def test_an_argument_that_requires_grad_is_refused(weights: Any) -> None:
    x, weight, prepared = weights
    with pytest.raises(RuntimeError, match="argument 'x': requires grad"):
        op.prepared(x.requires_grad_(), weight, prepared=flhost.torch.handle(prepared))


def test_the_way_through_python_takes_it_too(weights: Any) -> None:
    """That of a torch without the stable interface."""
    from flhost.torch import library

    x, weight, prepared = weights
    described = flhost.default_host().op(NAME)
    kernel = library._python_kernel(library._Op(described), described.call, "prepared")
    handle = flhost.torch.handle(prepared)
    close(kernel(x, weight, prepared=handle), op(x, weight))
    close(kernel(x, weight.clone(), prepared=flhost.torch.handle(None)), op(x, weight))
    with pytest.raises(flhost.InvalidArgument, match="argument 'prepared': it was closed, or is no handle"):
        kernel(x, weight, prepared=handle + 1000)


def test_threads_call_while_another_closes_it() -> None:
    x, weight = some()
    expected = op(x, weight)
    first = flhost.prepare(NAME, x, weight)
    current = [(first, flhost.torch.handle(first))]
    end, wrong = threading.Event(), []

    def work() -> None:
        while not end.is_set():
            try:
                close(op.prepared(x, weight, prepared=current[0][1]), expected)
            except RuntimeError as error:
                if "it was closed" not in str(error):
                    wrong.append(str(error))
            except AssertionError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        before = current[0][0]
        after = flhost.prepare(NAME, x, weight)
        current[0] = (after, flhost.torch.handle(after))
        before.close()
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong
    del first, before, after
    current.clear()
    gc.collect()
    assert flhost.default_host().prepared_bytes() == 0
