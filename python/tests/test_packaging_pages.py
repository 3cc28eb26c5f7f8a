"""The plugin in C of docs/vllm.md, as its reader has it: copied from the page, built by the page's commands against the wheel."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from pathlib import Path

import pytest
from environments import ROOT, blocks, make_environment, run, site_packages

SOURCE, COMMANDS = blocks("vllm.md", "A vendor's plugin")

pytestmark = pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    directory.chmod(0o755)  # plugins that others may write are not loaded
    return make_environment(directory / "env").parents[1]


def test_the_plugin_of_the_page_is_built_and_right(installed: Path):
    """All of the page's commands but the last, which starts vLLM: test_vllm_engine.py has that one."""
    *commands, serve = COMMANDS.splitlines()
    assert serve.endswith("vllm serve MODEL")
    place = installed.parent / "plugin"
    place.mkdir()
    (place / "acme.c").write_text(SOURCE)
    environment = {"PATH": f"{installed / 'bin'}:{os.environ['PATH']}"}
    said = run("bash", "-euc", "\n".join(commands), environment=environment, cwd=place)
    assert re.search(r"^silu_and_mul +vendor\.acme +float32 .* ok$", said, re.MULTILINE), said
    chosen = {**environment, "VLLM_FL_PLUGIN_MODULES": str(place / "acme.so"), "VLLM_FL_PREFER": "vendor"}
    assert re.search(r"vendor\.acme.*selected", run("flhost", "explain", "silu_and_mul", environment=chosen))


def test_a_plugin_is_built_where_the_system_has_no_header_of_dlpack(installed: Path, tmp_path: Path):
    """The wheel lends its own. Here the system's directory of headers is one without it."""
    system = tmp_path / "include"
    system.mkdir()
    for path in Path("/usr/include").iterdir():
        if path.name != "dlpack":
            (system / path.name).symlink_to(path)
    compiler = os.environ.get("CC", "cc").split()
    own = run(*compiler, "-print-file-name=include").strip()
    multiarch = f"/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    bare = ["-nostdinc", "-isystem", own, "-isystem", system, "-isystem", multiarch]
    environment = {"PKG_CONFIG_PATH": str(site_packages(installed) / "flhost/lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "flhost", environment=environment).split()
    (tmp_path / "acme.c").write_text(SOURCE)
    build = (*compiler, *bare, "-shared", "-fPIC", tmp_path / "acme.c", "-o", tmp_path / "acme.so", "-lm")
    assert "dlpack/dlpack.h" in run(*build, f"-I{ROOT / 'include'}", fails=True)
    run(*build, *flags)
