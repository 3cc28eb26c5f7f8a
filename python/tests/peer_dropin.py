"""The drop-in for tests: the installed wheel, or the folder of the tree."""

import sys
from pathlib import Path

try:
    import vllm_fl_dispatch.finder as finder
except ImportError:
    sys.path.append(str(Path(__file__).parents[1] / "vllm_fl_dispatch"))
    import vllm_fl_dispatch.finder as finder

finder.install()

import vllm_fl.dispatch as dispatch  # noqa: E402

DATA = Path(__file__).parents[2] / "tests" / "conformance"


def impl(op, impl_id, fn=None, *, available=None, priority=None, vendor=None):
    """An OpImpl by its id: default.…, vendor.NAME or reference.…"""
    kinds = dispatch.BackendImplKind
    word = impl_id.split(".")[0]
    kind = {"default": kinds.DEFAULT, "vendor": kinds.VENDOR}.get(word, kinds.REFERENCE)
    if fn is None:

        def fn(*args, **kwargs):
            return impl_id

    if available is not None:
        fn._is_available = available if callable(available) else lambda: available
    if priority is None:
        priority = {kinds.DEFAULT: 150, kinds.VENDOR: 100}.get(kind, 50)
    if kind is kinds.VENDOR:
        vendor = vendor or impl_id.split(".", 1)[1]
    return dispatch.OpImpl(op_name=op, impl_id=impl_id, kind=kind, fn=fn, vendor=vendor, priority=priority)


def manager_of(*impls):
    """A manager of its own with these; what is installed is not registered in it."""
    manager = dispatch.OpManager()
    manager._registered = True
    manager.registry.register_many(list(impls))
    return manager
