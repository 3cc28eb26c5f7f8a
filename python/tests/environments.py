"""Environments to install the wheel into, and the wheel itself, for the tests of packaging."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE_PYTHON = Path(getattr(sys, "_base_executable", sys.executable))


def blocks(page: str, heading: str) -> list[str]:
    """The code that a page of docs/ has below that heading."""
    section = (ROOT / "docs" / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def the_wheel() -> Path:
    """The one that `make check-python` made and installed."""
    named = os.environ.get("FLHOST_WHEEL")
    if named:
        return Path(named)
    (wheel,) = (ROOT / "build" / "dist").glob("flhost-*.whl")
    return wheel


def the_dispatch_wheel() -> Path:
    """The drop-in for vllm_fl.dispatch, which is made beside it."""
    (wheel,) = the_wheel().parent.glob("flhost_vllm_fl_dispatch-*.whl")
    return wheel


def run(
    *command: str | Path, environment: Mapping[str, str] | None = None, fails: bool = False, **options: object
) -> str:
    """What COMMAND prints, both streams. It has to succeed, or, with `fails`, has to fail."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
        **options,  # type: ignore[call-overload]
    )
    assert (done.returncode != 0) == fails, f"{command}: exit status {done.returncode}\n{done.stdout}"
    return str(done.stdout)


def pip(python: Path, *arguments: str | Path, **options: object) -> str:
    """pip of this environment works on that of PYTHON, which has none of its own and no index."""
    quiet = ("--disable-pip-version-check", "-q", "--no-input")
    return run(sys.executable, "-m", "pip", "--python", python, *quiet, *arguments, **options)  # type: ignore[arg-type]


def make_environment(directory: Path, wheel: Path | None = None) -> Path:
    """A new environment with nothing but the wheel; gives its interpreter."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    python = directory / "bin" / "python"
    pip(python, "install", "--no-index", wheel or the_wheel())
    return python


def site_packages(directory: Path) -> Path:
    (found,) = directory.glob("lib/python3*/site-packages")
    return found


def of_another_version(wheel: Path, directory: Path, version: str) -> Path:
    """The wheel with another version in its name, metadata and command; nothing else differs."""
    own = wheel.name.split("-")[1]
    made = directory / wheel.name.replace(f"-{own}-", f"-{version}-")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
        for item in source.infolist():
            content = source.read(item)
            name = item.filename.replace(f"flhost-{own}.", f"flhost-{version}.")
            if name.endswith(("/METADATA", "/RECORD", ".data/scripts/flhost")):
                content = content.replace(own.encode(), version.encode())
            if name.endswith("/RECORD"):  # digests that no longer hold are left out
                lines = [f"{line.split(b',')[0].decode()},," for line in content.splitlines()]
                content = ("\n".join(lines) + "\n").encode()
            item.filename = name
            target.writestr(item, content)
    return made


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target
