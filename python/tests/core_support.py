"""What the tests of the core share: tensors to call ops with, plugins to call, and tensors of a library that is none."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def numpy_dtype(name: str) -> Any:
    """numpy's type of a name, also those that ml_dtypes has; None: it is not installed."""
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            return None
        return np.dtype(getattr(ml_dtypes, name))


def fill(example: tuple[Any, ...], seed: int = 0) -> Any:
    """An array with what Op.example says of one."""
    shape, dtype, contents, low, high = example
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    size = int(np.prod(shape, dtype="int64"))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        values = rng.integers(int(low), int(high) + 1, size) if contents in ("range", "ascending") else None
        if contents == "distinct":
            values = rng.permutation(int(high) - int(low) + 1)[:size] + int(low)
            values = np.resize(values, size) if len(values) < size else values
        if contents == "ascending":
            rows = np.linspace(int(low), int(high), shape[-1] if shape else 1).astype("int64")
            values = np.broadcast_to(rows, shape).reshape(-1) if shape else rows
        if values is None:
            values = rng.integers(0, 4, size)
        return np.ascontiguousarray(values.reshape(shape).astype(kind))
    if contents == "range":
        return rng.uniform(low, high, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def build_plugin(folder: Path, name: str, source: str) -> Path:
    """A plugin of C, by the tree's header."""
    file = folder / f"{name}.c"
    file.write_text(source)
    plugin = folder / f"{name}.so"
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-Wl,--build-id",
            f"-I{ROOT}/include",
            "-o",
            plugin,
            file,
            "-lm",
        ],
        check=True,
    )
    folder.chmod(0o755)
    return plugin


# Ops of one implementation each. what: the body of the kernel.
PLUGIN = """
#include <flhost/plugin.h>
#include <string.h>
FL_PLUGIN("%(name)s", "1.0.0", "acme", "Apache-2.0", "");
%(more)s
static fl_status kernel(void *self, fl_call *call) { (void)self; (void)call; %(body)s return FL_OK; }
fl_status register_builtins(fl_registry *registry) {
  const fl_op_def op = {.size = sizeof op, .schema = "%(schema)s", .rules = %(rules)s};
  const char *name = "%(op)s";
  const fl_impl impl = {.size = sizeof impl, .op_name = name, .impl_id = "%(impl_id)s", .kind = FL_KIND_VENDOR,
                        .vendor = "acme", .devices = %(devices)s, .fn = kernel};
  if ("%(schema)s"[0] && registry->register_op(registry, &op)) return FL_EINVAL;
  return registry->register_impl(registry, &impl);
}
"""


def simple_plugin(folder: Path, name: str, *, schema: str = "", op: str = "", body: str = "", **more: str) -> Path:
    fields = {
        "rules": "NULL",
        "impl_id": "vendor.acme",
        "devices": "FL_DEVICE_ANY",
        "more": "",
        "op": op or schema.partition("(")[0],
        **more,
    }
    return build_plugin(folder, name, PLUGIN % {"name": name, "schema": schema, "body": body, **fields})


# Classes for vLLM, and nothing else.
CLASS_PLUGIN = """
#include <flhost/plugin.h>
#include <string.h>
FL_PLUGIN("%(name)s", "1.0.0", "acme", "Apache-2.0", "");
%(note)s
fl_status register_builtins(fl_registry *registry) {
  static const char *const rows[][3] = {%(rows)s};
  fl_status status = FL_OK;
  for (size_t i = 0; !status && i < sizeof rows / sizeof *rows; i++) {
    const fl_component component = {.size = sizeof component, .type = rows[i][0], .name = rows[i][1], .functions = rows[i][2],
                                    .functions_type = FL_FUNCTIONS_CLASS_PATH,
                                    .functions_size = (uint32_t)strlen(rows[i][2]) + 1};
    status = registry->register_component(registry, &component);
  }
  return status;
}
"""


def class_plugin(folder: Path, name: str, *rows: tuple[str, str, str], note: str = "") -> Path:
    text = ", ".join("{" + ", ".join(f'"{word}"' for word in row) + "}" for row in rows)
    return build_plugin(folder, name, CLASS_PLUGIN % {"name": name, "rows": text, "note": note})


# --------------------------------------------------------------------------------------- a library of tensors in Python


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CapsuleEnd = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
python = ctypes.PyDLL(None)  # ctypes.pythonapi is everybody's: others set other argument types
new_capsule = python.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", python)
)


def fill_tensor(tensor: Tensor, array: Any, keep: list[Any], device: tuple[int, int] = (1, 0)) -> None:
    """Describes a numpy array; what it points to is kept in `keep`."""
    n = array.ndim
    shape = (ctypes.c_int64 * max(n, 1))(*array.shape)
    strides = (ctypes.c_int64 * max(n, 1))(*(stride // array.itemsize for stride in array.strides))
    keep += [array, shape, strides]
    tensor.data = array.ctypes.data
    tensor.device_type, tensor.device_id = device
    tensor.ndim = n
    tensor.code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
    tensor.bits, tensor.lanes = 8 * array.itemsize, 1
    tensor.shape, tensor.strides, tensor.byte_offset = shape, strides, 0


class Foreign:
    """A tensor of another library: only __dlpack__. It counts what it handed out and what came back."""

    handed_out = 0
    came_back = 0
    alive: dict[int, Any] = {}  # noqa: RUF012 # what is out

    def __init__(self, array: Any, *, versioned: bool = True, read_only: bool = False, device: Any = (1, 0)) -> None:
        self.array, self.versioned, self.read_only, self.device = array, versioned, read_only, device
        self.streams: list[Any] = []
        self.versions: list[Any] = []

    def describe(self, tensor: Tensor, keep: list[Any]) -> None:
        fill_tensor(tensor, self.array, keep, self.device)

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        self.versions.append(max_version)
        keep: list[Any] = []
        managed: Any = Versioned() if self.versioned else Unversioned()
        if self.versioned:
            managed.version = Version(1, 0)
            managed.flags = int(self.read_only)
        self.describe(managed.tensor, keep)
        address = ctypes.addressof(managed)
        Foreign.alive[address] = (managed, keep)
        Foreign.handed_out += 1
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return new_capsule(address, name, ctypes.cast(_capsule_end, ctypes.c_void_p))


def _end(capsule: int) -> None:
    for name in (b"dltensor_versioned", b"dltensor"):
        if python.PyCapsule_IsValid(ctypes.c_void_p(capsule), name):
            pointer = python.PyCapsule_GetPointer
            pointer.restype = ctypes.c_void_p
            Foreign.alive.pop(pointer(ctypes.c_void_p(capsule), name), None)
            Foreign.came_back += 1


_capsule_end = CapsuleEnd(_end)
