"""The examples of backends in Python do what they say."""

import os
import subprocess
import sys

import pytest
from peer_dropin import DATA, finder

numpy = pytest.importorskip("numpy")
EXAMPLES = DATA.parents[1] / "examples" / "python"


def run(code, **environment):
    folders = [os.path.dirname(os.path.dirname(finder.__file__)), str(EXAMPLES), *sys.path]
    return subprocess.run(
        [sys.executable, *code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), **environment},
    ).stdout


def test_a_function_is_a_backend():
    assert run([str(EXAMPLES / "python_backend.py")]).strip() == "[0. 4. 9.] vendor.example"


def test_a_backend_of_the_peer_loads_by_its_name():
    code = """
import vllm_fl_dispatch.finder as finder
finder.install()
import numpy, types
from vllm_fl.dispatch import call_op, get_default_manager, with_preference
layer = types.SimpleNamespace(weight=numpy.ones(4, "float32"), variance_epsilon=0.0)
with with_preference("vendor"):
    print(call_op("rms_norm", layer, numpy.full((1, 4), 3, "float32")), get_default_manager().get_selected_impl_id("rms_norm"))
"""
    found = run(["-c", code], VLLM_FL_PLUGIN_MODULES="peer_backend")
    assert found.strip() == "[[1. 1. 1. 1.]] vendor.example"
