"""One set of threads for torch and for flhost's kernels on the processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from flhost import _core

__all__ = ["use_threads"]

_FUNCTIONS = ("GOMP_parallel", "omp_get_max_threads")


def use_threads() -> bool:
    """Kernels of plugins compute in torch's OpenMP threads from now on, as many as torch.get_num_threads() says, instead
    of in threads of flhost's own beside them. False: this torch has no OpenMP, and nothing changes. A forked child is
    back with flhost's own, since OpenMP's do not survive a fork, until it calls this again."""
    addresses = _of_openmp()
    if addresses is None:
        return False
    _core._use_openmp(*addresses)
    return True


def _of_openmp() -> tuple[int, int] | None:
    """Of the library that torch uses: one that is there for all, preloaded perhaps, else the one that torch is linked with."""
    for name in (None, str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")):
        try:
            library = ctypes.CDLL(name)
            parallel, threads = (
                ctypes.cast(getattr(library, function), ctypes.c_void_p).value for function in _FUNCTIONS
            )
        except (OSError, AttributeError):
            continue
        if parallel and threads:
            return parallel, threads
    return None
