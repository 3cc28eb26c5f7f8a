"""vllm_fl.dispatch under its import path, whether or not a vllm_fl is installed."""

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from peer_dropin import finder

FOLDER = str(Path(finder.__file__).parents[1])


def run(code, *paths):
    """What a Python of its own prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), FOLDER, *sys.path])}
    code = "import vllm_fl_dispatch.finder as f; f.install()\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def installed(tmp_path):
    """A vllm_fl as vllm-plugin-FL has it: with a dispatch of its own, and backends in it."""
    package = tmp_path / "vllm_fl"
    files = {
        "__init__.py": "NAME = 'installed'",
        "other.py": "NAME = 'other'",
        "dispatch/__init__.py": "raise ImportError('the installed dispatch is not to be imported')",
        "dispatch/manager.py": "raise ImportError('nor its modules')",
        "dispatch/backends/__init__.py": "",
        "dispatch/backends/reference/__init__.py": "",
        "dispatch/backends/reference/register_ops.py": """
            from ...types import BackendImplKind, OpImpl
            def register_builtins(registry):
                registry.register_many([OpImpl("their_op", "reference.torch", BackendImplKind.REFERENCE, lambda a: a * 2)])
        """,
    }
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return tmp_path


def test_without_vllm_fl():
    assert run("import vllm_fl.dispatch as d; print(d.__path__[0])") == [finder.DIRECTORY]
    assert run("from vllm_fl.dispatch.manager import OpManager; print(OpManager.__name__)") == ["OpManager"]


def test_beside_an_installed_vllm_fl(installed):
    before = {path: path.read_bytes() for path in installed.rglob("*.py")}
    code = """
        import vllm_fl, vllm_fl.other, vllm_fl.dispatch as d
        print(vllm_fl.NAME, vllm_fl.other.NAME, d.__path__[0])
        print(d.call_op("their_op", 21), d.get_default_manager().get_selected_impl_id("their_op"))
    """
    assert run(code, installed) == ["installed", "other", finder.DIRECTORY, "42", "reference.torch"]
    assert {path: path.read_bytes() for path in installed.rglob("*.py")} == before


def test_nothing_heavy_is_imported():
    assert run("import sys, vllm_fl.dispatch; print('torch' in sys.modules, 'vllm' in sys.modules)") == [
        "False",
        "False",
    ]


def test_it_says_so_once_at_debug_level():
    code = """
        import os, sys
        os.environ["VLLM_FL_LOG_LEVEL"], sys.stderr = "DEBUG", sys.stdout
        import vllm_fl.dispatch, vllm_fl.dispatch as again
    """
    assert run(code).count("flhost,") == 1


def test_all_names_are_there():
    from peer_dropin import dispatch

    assert all(hasattr(dispatch, name) for name in dispatch.__all__)
    assert isinstance(dispatch.get_logger(), logging.Logger)
