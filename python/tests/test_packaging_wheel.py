"""What is in the wheel."""

import re
import stat
import subprocess
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from environments import ROOT, the_wheel

VERSION = re.search(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]  # type: ignore[index]


@pytest.fixture(scope="module")
def archive():
    with zipfile.ZipFile(the_wheel()) as opened:
        yield opened


@pytest.fixture(scope="module")
def names(archive: zipfile.ZipFile) -> set[str]:
    return {item.filename for item in archive.infolist() if not item.is_dir()}


@pytest.fixture(scope="module")
def metadata(archive: zipfile.ZipFile) -> Message:
    return Parser().parsestr(archive.read(f"flhost-{VERSION}.dist-info/METADATA").decode())


def test_its_name_says_which_pythons_and_systems_it_is_for():
    assert re.fullmatch(rf"flhost-{re.escape(VERSION)}-cp310-abi3-manylinux_2_\d+_\w+\.whl", the_wheel().name)


def test_the_version_is_the_librarys(metadata: Message):
    assert metadata["Version"] == VERSION
    assert metadata["Requires-Python"] == ">=3.10"


def test_it_needs_no_other_package(metadata: Message):
    assert metadata.get_all("Requires-Dist") is None


def test_the_description_is_the_readme(metadata: Message):
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()


def test_library_command_and_extension_are_there(names: set[str]):
    assert {"flhost/_core.abi3.so", "flhost/lib/libflhost.so.0", "flhost/bin/flhost", "flhost/py.typed"} <= names


@pytest.mark.parametrize(
    ("there", "pattern", "here"),
    [
        ("flhost/include/flhost", "*.h", "include/flhost"),
        ("flhost/share/flhost/config", "*.yaml", "config"),
        ("flhost/share/flhost/peers", "*.py", "cli/bench/peers"),
        (f"flhost-{VERSION}.data/data/share/man/man1", "*.1", "docs/man"),
        (f"flhost-{VERSION}.data/data/share/man/man5", "*.5", "docs/man"),
        (f"flhost-{VERSION}.data/data/share/man/man7", "*.7", "docs/man"),
        ("flhost", "**/*.py", "python/flhost"),
        ("flhost", "**/*.pyi", "python/flhost"),
    ],
)
def test_files_are_those_of_the_tree(archive: zipfile.ZipFile, names: set[str], there: str, pattern: str, here: str):
    expected = {f"{there}/{path.relative_to(ROOT / here)}": path for path in (ROOT / here).glob(pattern)}
    assert expected or pattern == "**/*.pyi"
    suffix = Path(pattern).suffix
    elsewhere = "flhost/share/" if there == "flhost" else "-"  # rows of their own
    found = {name for name in names if name.startswith(f"{there}/") and not name.startswith(elsewhere)}
    assert {name for name in found if name.endswith(suffix)} == set(expected)
    for name, path in expected.items():
        assert archive.read(name) == path.read_bytes(), name


def test_every_backend_of_the_tree_has_its_plugin(names: set[str]):
    """So has each communicator; Open MPI's is built where its header is."""
    backends = {path.stem for path in (ROOT / "config").glob("*.yaml")}
    expected = backends | {"shm", "nccl", "rccl", "flagcx", "hccl"}
    plugins = {Path(name).stem for name in names if name.startswith("flhost/lib/flhost/plugins/")}
    assert expected <= plugins <= expected | {"mpi"}


def test_there_is_no_static_library_no_test_and_no_link(archive: zipfile.ZipFile, names: set[str]):
    assert not [name for name in names if name.endswith((".a", ".o", ".pyc")) or "/tests/" in name]
    assert not [item.filename for item in archive.infolist() if stat.S_ISLNK(item.external_attr >> 16)]


def test_what_is_run_may_be_run(archive: zipfile.ZipFile):
    for name in ("flhost/bin/flhost", f"flhost-{VERSION}.data/scripts/flhost"):
        assert archive.getinfo(name).external_attr >> 16 & 0o111 == 0o111, name


def test_nobody_else_may_write_a_file_of_it(archive: zipfile.ZipFile):
    loose = [item.filename for item in archive.infolist() if item.external_attr >> 16 & 0o022]
    assert not [name for name in loose if not name.endswith("/RECORD")]


def test_files_lie_in_places_of_the_packages_own(names: set[str]):
    assert {name.split("/")[0] for name in names} == {
        "flhost",
        "flhost.libs",
        f"flhost-{VERSION}.data",
        f"flhost-{VERSION}.dist-info",
    }


def test_each_library_that_it_brings_has_its_licence_there(names: set[str], metadata: Message):
    libraries = {re.split(r"[-.]", Path(name).name)[0] for name in names if name.startswith("flhost.libs/")}
    assert {"libyaml", "libhwloc", "libjansson", "libmd"} <= libraries
    texts = [name.split("/licenses/")[1] for name in names if "/licenses/" in name]
    assert sorted(texts) == sorted(metadata.get_all("License-File", []))
    for library in libraries:
        assert [text for text in texts if text.startswith(f"bundled/{library}")], library


def test_its_licence_names_those_of_the_libraries(metadata: Message):
    words = metadata["License-Expression"].split(" AND ")
    assert words[0] == "Apache-2.0"
    assert {"MIT", "BSD-3-Clause", "LGPL-2.1-or-later"} <= set(words)


def test_each_library_is_found_in_the_wheel_or_on_every_system(
    archive: zipfile.ZipFile, names: set[str], tmp_path: Path
):
    systems = re.compile(r"(lib(c|m|dl|pthread|rt|gcc_s)|ld-linux-\S+)\.so\.\d+")
    archive.extractall(tmp_path)
    for name in names:
        path = tmp_path / name
        if path.read_bytes()[:4] != b"\x7fELF":
            continue
        dynamic = subprocess.run(["readelf", "-Wd", path], check=True, capture_output=True, text=True).stdout
        where = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic)
        directories = [
            Path(place.replace("$ORIGIN", str(path.parent))) for place in ":".join(where).split(":") if place
        ]
        assert not [place for place in directories if not place.resolve().is_relative_to(tmp_path)], f"{name}: {where}"
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            assert systems.fullmatch(needed) or any((place / needed).is_file() for place in directories), (
                f"{name} needs {needed}"
            )
