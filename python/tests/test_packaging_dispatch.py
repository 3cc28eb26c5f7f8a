"""The wheel of the drop-in for vllm_fl.dispatch, beside flhost's and beside a vllm_fl that somebody else installed."""

import sys
import textwrap
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from environments import make_environment, of_another_version, pip, run, site_packages, the_dispatch_wheel, the_wheel

VERSION = the_wheel().name.split("-")[1]
SERVED = "import vllm_fl.dispatch as d; print(d.__file__.split('site-packages/')[1])"

# As vllm-plugin-FL has it: with a dispatch of its own, and what that lies beside.
FOREIGN = {
    "vllm_fl/__init__.py": "NAME = 'foreign'\n",
    "vllm_fl/other.py": "from . import NAME\n",
    "vllm_fl/dispatch/__init__.py": "OLD = True\n",
    "vllm_fl/dispatch/manager.py": "OLD = True\n",
    "vllm_fl/dispatch/backends/__init__.py": "",
    "vllm_fl/dispatch/backends/reference/__init__.py": "",
    "vllm_fl/dispatch/backends/reference/register_ops.py": """
        from ...types import BackendImplKind, OpImpl

        def register_builtins(registry):
            registry.register_impl(OpImpl("their_op", "reference.torch", BackendImplKind.REFERENCE, lambda a: a * 2))
    """,
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of somebody else's vllm_fl."""
    made = tmp_path_factory.mktemp("foreign") / "vllm_fl-0.2.0-py3-none-any.whl"
    information = {
        "METADATA": "Metadata-Version: 2.1\nName: vllm-fl\nVersion: 0.2.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files = {name: textwrap.dedent(text).lstrip() for name, text in FOREIGN.items()}
    files |= {f"vllm_fl-0.2.0.dist-info/{name}": text for name, text in information.items()}
    with zipfile.ZipFile(made, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr("vllm_fl-0.2.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    return made


def install(python: Path) -> None:
    """PyYAML, which it names, is for files that nobody reads here; there is no index to have it from."""
    pip(python, "install", "--no-index", "--no-deps", the_dispatch_wheel())


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the interpreter's own caches."""
    files = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_both_wheels_in_a_fresh_environment_serve_the_import_path(tmp_path: Path):
    python = make_environment(tmp_path / "env")
    assert "No module named 'vllm_fl'" in run(python, "-c", SERVED, fails=True)
    install(python)
    code = f"""
        {SERVED}
        import sys, flhost
        print(d.get_default_manager().resolve_candidates("rms_norm")[0].impl_id, flhost.__version__)
        print(d.call_op("attention_backend"))
        print("torch" in sys.modules, "numpy" in sys.modules)
    """
    said = run(python, "-c", textwrap.dedent(code), environment={"VLLM_FL_LOG_LEVEL": "ERROR"})
    assert said.splitlines() == [
        "vllm_fl_dispatch/dispatch/__init__.py",
        f"default.flagos {VERSION}",
        "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend",
        "False False",
    ]


def test_an_installed_vllm_fl_stays_as_it_is(tmp_path: Path, foreign: Path):
    """In either order of installation; and it has its own dispatch back when the drop-in goes."""
    theirs, environment = "import vllm_fl.other as o; print(o.NAME)", {"VLLM_FL_LOG_LEVEL": "ERROR"}
    call = "; print(d.call_op('their_op', 21), hasattr(d, 'OLD'))"
    for order in ("before", "behind"):
        python = make_environment(tmp_path / order)
        packages = site_packages(tmp_path / order)
        if order == "behind":
            install(python)
        pip(python, "install", "--no-index", foreign)
        before = contents(packages)
        if order == "before":
            install(python)
        assert run(python, "-c", SERVED + call, environment=environment).splitlines() == [
            "vllm_fl_dispatch/dispatch/__init__.py",
            "42 False",
        ]
        assert run(python, "-c", theirs).strip() == "foreign"
        now = contents(packages)
        assert {name: now.get(name) for name in before} == before
        added = {name.split("/")[0] for name in now.keys() - before.keys()}
        ours = {"vllm_fl_dispatch", "vllm_fl_dispatch.pth", f"flhost_vllm_fl_dispatch-{VERSION}.dist-info"}
        assert added == (ours if order == "before" else set())
        pip(python, "uninstall", "-y", "flhost-vllm-fl-dispatch")
        left = contents(packages)
        assert not [name for name in left if "vllm_fl_dispatch" in name]
        assert {name: left.get(name) for name in before if "vllm_fl_dispatch" not in name} == left
        assert run(python, "-c", f"{SERVED}; print(d.OLD)").splitlines() == ["vllm_fl/dispatch/__init__.py", "True"]


def test_python_starts_without_importing_flhost(tmp_path: Path):
    """What the .pth file runs, every interpreter of the environment runs."""
    python = make_environment(tmp_path / "env")
    install(python)
    loaded = run(python, "-c", "import sys; print(*sys.modules)").split()
    assert "vllm_fl_dispatch.finder" in loaded
    assert not {"flhost", "vllm_fl", "vllm_fl.dispatch"} & set(loaded)


def test_it_goes_with_flhost_of_its_own_version(tmp_path: Path):
    with zipfile.ZipFile(the_dispatch_wheel()) as archive:
        metadata = Parser().parsestr(archive.read(f"flhost_vllm_fl_dispatch-{VERSION}.dist-info/METADATA").decode())
        names = {name.split("/")[0] for name in archive.namelist()}
    assert metadata["Version"] == VERSION
    assert {text.lower() for text in metadata.get_all("Requires-Dist", [])} == {f"flhost=={VERSION}", "pyyaml"}
    assert names == {"vllm_fl_dispatch", "vllm_fl_dispatch.pth", f"flhost_vllm_fl_dispatch-{VERSION}.dist-info"}
    older = of_another_version(the_wheel(), tmp_path, "0.0.1")
    python = make_environment(tmp_path / "env", older)
    install(python)
    said = run(sys.executable, "-m", "pip", "--python", python, "check", fails=True)
    assert f"flhost-vllm-fl-dispatch {VERSION} has requirement flhost=={VERSION}, but you have flhost 0.0.1" in said
