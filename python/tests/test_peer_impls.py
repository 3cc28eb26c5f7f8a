"""Python functions as implementations that any caller of an op reaches: Host.register_impl."""

import subprocess
import sys
import textwrap
import threading

import flhost
import pytest
from core_support import Versioned, capsule_pointer

numpy = pytest.importorskip("numpy")


@pytest.fixture
def host():
    return flhost.Host(environment={})


def ones(*shape):
    return numpy.ones(shape, "float32")


def only(host, impl_id, strict=True):
    """Calls that implementation, and no other."""
    return host.policy(per_op={"silu_and_mul": [f"impl:{impl_id}"]}, strict=strict)


def silu_and_mul(x):
    gate, up = numpy.split(x, 2, -1)
    return gate / (1 + numpy.exp(-gate)) * up


def test_a_result_that_is_returned_is_copied(host):
    host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")
    x, out = ones(2, 6), numpy.zeros((2, 3), "float32")
    with only(host, "vendor.py"):
        host.op("silu_and_mul").call(x, out=out)
    assert numpy.allclose(out, silu_and_mul(x))


def test_a_result_is_written_where_the_function_takes_it(host):
    def fill(x, out):
        out[...] = x.sum()

    host.register_impl("silu_and_mul", "vendor.py", fill, vendor="py")
    with only(host, "vendor.py"):
        assert (host.op("silu_and_mul").call(ones(2, 6)) == 12).all()


def test_tensors_are_views_with_their_strides(host):
    seen = []

    def look(x):
        seen.append((x.strides, x.__array_interface__["data"][0]))
        return silu_and_mul(x)

    host.register_impl("silu_and_mul", "vendor.py", look, vendor="py", tensors="numpy")
    x = ones(4, 12)[::2, :6]
    with only(host, "vendor.py"):
        host.op("silu_and_mul").call(x)
    assert seen == [(x.strides, x.__array_interface__["data"][0])]


def test_a_compact_tensor_has_strides_too(host, monkeypatch):
    """Newer consumers of DLPack want them, and the call's tensors have none where rows lie close."""
    torch = pytest.importorskip("torch")
    seen = []
    original = flhost._python_impl._from_dlpack

    def looking(tensors):
        tensor = original(tensors)

        def look(view):
            managed = capsule_pointer(view.__dlpack__(max_version=(1, 0)), b"dltensor_versioned")
            seen.append(Versioned.from_address(managed).tensor.strides[:2])
            return tensor(view)

        return look

    monkeypatch.setattr(flhost._python_impl, "_from_dlpack", looking)
    host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")
    with only(host, "vendor.py"):
        host.op("silu_and_mul").call(torch.ones(2, 6))
    assert seen == [[6, 1], [3, 1]]


def test_a_view_ends_with_its_call(host, monkeypatch):
    kept = []
    original = flhost._python_impl._from_dlpack

    def keeping(tensors):
        tensor = original(tensors)
        return lambda view: kept.append(view) or tensor(view)

    monkeypatch.setattr(flhost._python_impl, "_from_dlpack", keeping)
    host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")
    with only(host, "vendor.py"):
        host.op("silu_and_mul").call(ones(2, 6))
    with pytest.raises(RuntimeError, match="the call that this tensor belongs to is over"):
        kept[0].__dlpack__()


def test_arguments_that_are_no_tensors_are_pythons_own(host):
    seen = []

    def look(x, weight, bias, stride, *others):
        seen.append((bias, stride, others))
        raise NotImplementedError("only a look")

    host.register_impl("conv2d", "vendor.py", look, vendor="py")
    with host.prefer("vendor"):
        host.op("conv2d").call(ones(1, 1, 4, 4), ones(1, 1, 2, 2), None, [2, 2])
    bias, stride, others = seen[0]
    assert bias is None
    assert stride == (2, 2)
    assert all(type(other) in (tuple, int, str) for other in others)


def test_tensors_are_of_the_library_that_was_asked_for(host):
    with pytest.raises(flhost.InvalidArgument, match="tensors 'cupy', expected one of: torch, numpy"):
        host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py", tensors="cupy")
    with pytest.raises(flhost.NotFound):
        host.counters("silu_and_mul", "vendor.py")


def test_an_exception_is_its_failure_with_the_traceback(host):
    def breaks(x):
        raise OSError("no such device")

    host.register_impl("silu_and_mul", "vendor.py", breaks, vendor="py")
    with only(host, "vendor.py"), pytest.raises(flhost.InternalError) as info:
        host.op("silu_and_mul").call(ones(2, 6))
    assert "no such device" in str(info.value)
    assert "in breaks" in str(info.value)
    with host.prefer("vendor"):
        assert numpy.allclose(host.op("silu_and_mul").call(ones(2, 6)), silu_and_mul(ones(2, 6)))
    assert host.counters("silu_and_mul", "vendor.py")["failures"] == 2
    assert [one["impl_id"] for one in host.failed_impls("silu_and_mul")] == ["vendor.py"]


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (NotImplementedError("x"), flhost.NoImplementation),
        (flhost.NotSupported("x"), flhost.NoImplementation),
        (MemoryError("x"), flhost.OutOfMemory),
        (flhost.InvalidArgument("x"), flhost.InvalidArgument),
        (TypeError("x"), flhost.InternalError),
    ],
)
def test_which_exception_means_what(host, raised, status):
    def raises(x):
        raise raised

    host.register_impl("silu_and_mul", "vendor.py", raises, vendor="py")
    with only(host, "vendor.py", strict=False), pytest.raises(status):
        host.op("silu_and_mul").call(ones(2, 6))
    failed = status in (flhost.OutOfMemory, flhost.InternalError)
    assert bool(host.failed_impls("silu_and_mul")) == failed


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_passes_through(host, passing):
    def ends(x):
        raise passing("now")

    host.register_impl("silu_and_mul", "vendor.py", ends, vendor="py")
    with host.prefer("vendor"), pytest.raises(passing, match="now"):
        host.op("silu_and_mul").call(ones(2, 6))
    assert host.failed_impls() == []


def test_predicates_are_functions_too(host):
    there = [False]
    host.register_impl(
        "silu_and_mul",
        "vendor.py",
        lambda x: x[..., : x.shape[-1] // 2] * 0,
        vendor="py",
        is_available=lambda: there[0],
        supports_args=lambda x: x.shape[0] == 1,
    )
    call = host.op("silu_and_mul").call
    with host.prefer("vendor"):
        assert call(ones(1, 6)).any()
        there[0] = True
        host.bump_policy_epoch()
        assert not call(ones(1, 6)).any()
        assert call(ones(2, 6)).any()


def test_a_wrong_result_is_a_failure(host):
    for name, function, words in (
        ("shape", lambda x: x, "expected shape"),
        ("none", lambda x: None, "result 'out'"),
        ("many", lambda x: (x, x, x), "3 results, expected 1"),
    ):
        host.register_impl("silu_and_mul", f"vendor.{name}", function, vendor=name)
        with only(host, f"vendor.{name}"), pytest.raises(flhost.InternalError, match=words):
            host.op("silu_and_mul").call(ones(2, 6))


def test_what_cannot_be_registered_says_why(host):
    with pytest.raises(flhost.InvalidArgument, match="kind 'vndor'"):
        host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, kind="vndor", vendor="py")
    with pytest.raises(flhost.InvalidArgument, match="dtype 'float31'"):
        host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py", dtypes=["float31"])
    for name, word in (("devices", "cpu"), ("dtypes", "float32")):
        with pytest.raises(flhost.WrongType, match=rf"{name} '{word}', expected several strings: \['{word}'\]"):
            host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py", **{name: word})
    with pytest.raises(TypeError, match=r"register_impl\(\).*vendors"):
        host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendors="py")
    with pytest.raises(flhost.InvalidArgument, match="is no function"):
        host.register_impl("silu_and_mul", "vendor.py", 3, vendor="py")
    with pytest.raises(flhost.NotFound, match="silu_and_mul"):
        host.register_impl("silu_and_mull", "vendor.py", silu_and_mul, vendor="py")
    host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")
    with pytest.raises(flhost.AlreadyExists):
        host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")


def test_threads_run_a_python_implementation_at_once(host):
    host.register_impl("silu_and_mul", "vendor.py", silu_and_mul, vendor="py")
    call, errors = host.op("silu_and_mul").call, []

    def run(value):
        try:
            with host.prefer("vendor"):
                for _ in range(100):
                    assert numpy.allclose(call(ones(2, 6) * value), silu_and_mul(ones(2, 6) * value))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_function_goes_with_its_host():
    import gc
    import weakref

    class Function:
        def __call__(self, x):
            return silu_and_mul(x)

    function, host = Function(), flhost.Host(environment={})
    host.register_impl("silu_and_mul", "vendor.py", function, vendor="py")
    alive = weakref.ref(function)
    del function
    assert alive() is not None
    del host
    gc.collect()
    assert alive() is None


def test_the_interpreter_ends_while_functions_are_registered():
    code = """
        import flhost, numpy, threading
        host = flhost.Host(environment={})
        host.register_impl("silu_and_mul", "vendor.py", lambda x: x[..., :3], vendor="py")
        with host.prefer("vendor"):
            host.op("silu_and_mul").call(numpy.ones((2, 6), "float32"))
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
