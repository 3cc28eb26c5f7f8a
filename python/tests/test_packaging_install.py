"""The wheel where people put it, and where they should not have."""

import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from environments import (
    BASE_PYTHON,
    ROOT,
    copy,
    make_environment,
    of_another_version,
    pip,
    run,
    site_packages,
    the_wheel,
)

IMPORTED = "import flhost, os; print(flhost.__version__, os.path.dirname(flhost.__file__))"
VERSION = the_wheel().name.split("-")[1]
NOBODY = 65534


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone. Its path has a space; tests change nothing in it."""
    directory = tmp_path_factory.mktemp("an environment") / "en v"
    make_environment(directory)
    return directory


def plugins_of(command: Path | str, **options: object) -> dict[str, str]:
    """Status and file of each plugin, as the command shows them."""
    shown = run(command, "plugins", **options).splitlines()  # type: ignore[arg-type]
    rows = [line for line in shown[1:] if not line.startswith(" ")]
    return {row.split()[0]: row for row in rows}


def assert_works(command: Path | str, package: Path, **options: object) -> None:
    """The command is that of this package: its version, its plugins, none of another place."""
    assert run(command, "--version", **options).split()[:2] == ["flhost", VERSION]  # type: ignore[arg-type]
    plugins = plugins_of(command, **options)
    assert " loaded " in plugins["cpu"]
    for name, row in plugins.items():
        assert f"{package}/lib/flhost/plugins/{name}.so" in row


def test_the_command_in_path_is_of_the_packages_version(installed: Path):
    path = f"{installed}/bin:{os.environ['PATH']}"
    said = run("sh", "-c", "flhost --version", environment={"PATH": path})
    assert said.split()[1] == run(installed / "bin" / "python", "-c", IMPORTED).split()[0] == VERSION


def test_command_library_plugins_and_platform_file_are_the_packages(installed: Path):
    package = site_packages(installed) / "flhost"
    assert_works(installed / "bin" / "flhost", package)
    assert f"{package}/share/flhost/config/" in run(installed / "bin" / "flhost", "config")
    run(installed / "bin" / "flhost", "verify", "silu_and_mul")
    maps = run(
        installed / "bin" / "python", "-c", "import flhost; flhost.__version__\nprint(open('/proc/self/maps').read())"
    )
    assert {line.split(maxsplit=5)[5] for line in maps.splitlines() if "libflhost" in line} == {
        f"{package}/lib/libflhost.so.0"
    }


def test_python_runs_it_as_a_module(installed: Path):
    assert run(installed / "bin" / "python", "-m", "flhost", "--version").split()[:2] == ["flhost", VERSION]
    assert "unknown command" in run(installed / "bin" / "python", "-m", "flhost", "no-such-command", fails=True)


def test_the_pages_of_the_manual_lie_where_man_looks(installed: Path):
    for page in ("man1/flhost.1", "man5/flhost.yaml.5", "man7/flhost-plugin.7"):
        assert (installed / "share" / "man" / page).is_file()


def test_the_command_starts_no_python(installed: Path, tmp_path: Path):
    """Its script is a shell's, and finds the program with no interpreter in reach."""
    readlink = shutil.which("readlink")
    assert readlink
    (tmp_path / "readlink").symlink_to(readlink)
    moved = copy(installed, tmp_path / "moved")
    for interpreter in (moved / "bin").glob("python*"):
        interpreter.unlink()
    assert run(moved / "bin" / "flhost", "--version", environment={"PATH": str(tmp_path)}).split()[1] == VERSION


def test_it_works_where_it_was_moved_to(installed: Path, tmp_path: Path):
    moved = copy(installed, tmp_path / "new home")
    assert_works(moved / "bin" / "flhost", site_packages(moved) / "flhost")
    found = run(moved / "bin" / "python", "-c", IMPORTED)
    assert str(site_packages(moved) / "flhost") in found


@pytest.mark.parametrize("form", ["absolute", "relative", "chain"])
def test_the_command_works_through_links(installed: Path, tmp_path: Path, form: str):
    """As pipx and uv make them."""
    command = installed / "bin" / "flhost"
    link = tmp_path / "a link"
    link.symlink_to(os.path.relpath(command, tmp_path) if form == "relative" else command)
    if form == "chain":
        (tmp_path / "second").symlink_to(link.name)
        link = tmp_path / "second"
    assert_works(link, site_packages(installed) / "flhost")


def test_the_command_works_by_a_relative_name(installed: Path):
    assert run("bin/flhost", "--version", cwd=installed).split()[1] == VERSION
    assert (
        run(
            "sh", "-c", "flhost --version", cwd=installed / "bin", environment={"PATH": f".:{os.environ['PATH']}"}
        ).split()[1]
        == VERSION
    )


def test_it_works_in_a_directory_of_the_users_choice(tmp_path: Path):
    target = tmp_path / "some where"
    pip(BASE_PYTHON, "install", "--no-index", "--target", target, the_wheel())
    assert_works(target / "bin" / "flhost", target / "flhost")
    assert str(target) in run(BASE_PYTHON, "-c", IMPORTED, environment={"PYTHONPATH": str(target)})


def test_it_works_for_a_user_alone(tmp_path: Path):
    home = tmp_path / "home of a user"
    environment = {
        "PYTHONUSERBASE": str(home),
        "PYTHONNOUSERSITE": "",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "HOME": str(home),
    }
    if run(BASE_PYTHON, "-c", "import site; print(site.ENABLE_USER_SITE)", environment=environment).strip() != "True":
        pytest.skip("this interpreter has no user's site")
    pip(BASE_PYTHON, "install", "--user", "--no-index", the_wheel(), environment=environment)
    assert_works(home / "bin" / "flhost", site_packages(home) / "flhost", environment=environment)
    assert str(home) in run(BASE_PYTHON, "-c", IMPORTED, environment=environment)


def test_a_copy_in_pythonpath_uses_what_was_copied_with_it(installed: Path, tmp_path: Path):
    for name in ("flhost", "flhost.libs"):
        copy(site_packages(installed) / name, tmp_path / name)
    found = run(
        BASE_PYTHON,
        "-c",
        f"{IMPORTED}\nprint(open('/proc/self/maps').read())",
        environment={"PYTHONPATH": str(tmp_path)},
    )
    assert found.splitlines()[0] == f"{VERSION} {tmp_path}/flhost"
    assert {line.split(maxsplit=5)[5] for line in found.splitlines() if "libflhost" in line} == {
        f"{tmp_path}/flhost/lib/libflhost.so.0"
    }
    assert_works(tmp_path / "flhost" / "bin" / "flhost", tmp_path / "flhost")


def test_a_command_without_its_package_says_so(installed: Path, tmp_path: Path):
    shutil.copy(installed / "bin" / "flhost", tmp_path / "flhost")
    said = run(tmp_path / "flhost", "--version", environment={"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}, fails=True)
    assert f"flhost {VERSION} is not where this command was installed with it" in said
    assert "pip install --force-reinstall flhost" in said


def test_a_command_without_a_package_beside_it_asks_python(installed: Path, tmp_path: Path):
    shutil.copy(installed / "bin" / "flhost", tmp_path / "flhost")
    environment = {"PATH": f"{installed}/bin:{os.environ['PATH']}"}
    assert_works(tmp_path / "flhost", site_packages(installed) / "flhost", environment=environment)


def cpythons() -> dict[str, Path]:
    """Every CPython of this machine from 3.10 on, by its version."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.implementation.name, sys.executable)"
    found = {}
    names = [f"python3.{minor}" for minor in range(10, 30)]
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # $HOME is the test's own
    paths = [shutil.which(name) for name in names]
    paths += [str(path) for name in names for path in home.glob(f".pyenv/versions/*/bin/{name}")]
    for path in [BASE_PYTHON, *filter(None, paths)]:
        done = subprocess.run([path, "-c", ask], check=False, capture_output=True, text=True)
        version, implementation, executable = [*done.stdout.split(maxsplit=2), "", "", ""][:3]
        if implementation == "cpython":
            found.setdefault(version, Path(executable.strip()))
    return found


def test_one_wheel_is_for_every_cpython_here(installed: Path):
    interpreters = cpythons()
    assert interpreters
    code = f"{IMPORTED}\nprint(flhost.default_host().resolve('rms_norm', 'cpu')['impl_id'])"
    for version, python in interpreters.items():
        said = run(python, "-S", "-c", code, environment={"PYTHONPATH": str(site_packages(installed))})
        assert said.splitlines() == [f"{VERSION} {site_packages(installed)}/flhost", "default.flagos"], version


def test_an_older_python_is_told_that_it_is_too_old(tmp_path: Path):
    said = run(sys.executable, "-m", "pip", "install", "--no-index", "--target", tmp_path / "none", "--dry-run",
               "--python-version", "3.9", "--only-binary", ":all:", the_wheel(), fails=True)  # fmt: skip
    assert "not a supported wheel" in said or "requires a different Python" in said


# ------------------------------------------------------------------------------------------------------------ rights


def test_it_works_where_nobody_may_write(installed: Path, tmp_path: Path):
    frozen = copy(installed, tmp_path / "read only")
    for path in [frozen, *frozen.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    environment = {"HOME": "/nonexistent"}
    try:
        open_way(frozen)
        assert_works(frozen / "bin" / "flhost", site_packages(frozen) / "flhost", environment=environment, **as_user)
        assert VERSION in run(frozen / "bin" / "python", "-c", IMPORTED, environment=environment, **as_user)
    finally:
        for path in [frozen, *frozen.rglob("*")]:
            if not path.is_symlink() and path.is_dir():
                path.chmod(path.stat().st_mode | stat.S_IWUSR)


def open_way(path: Path) -> None:
    """Lets other users through to PATH, on steps that are ours."""
    for step in path.parents:
        if step.stat().st_uid == os.geteuid() and step != Path("/"):
            step.chmod(step.stat().st_mode | 0o055)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_plugins_of_a_users_own_environment_load_for_him_and_for_root(tmp_path: Path):
    """His group may write what he installs, as Debian has it; it has only him."""
    directory = tmp_path / "his"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    open_way(directory)
    # He has no compiler, no index, and only what the environment gives him.
    environment = {"HOME": str(directory), "PATH": str(directory / "none"), "CC": "false"}
    wheel = shutil.copy(the_wheel(), directory)
    as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "umask": 0o002}
    run(BASE_PYTHON, "-m", "venv", directory / "env", environment=environment, **as_user)
    run(
        directory / "env/bin/python",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        wheel,
        environment=environment,
        **as_user,
    )
    package = site_packages(directory / "env") / "flhost"
    assert (package / "lib/flhost/plugins/cpu.so").stat().st_uid == NOBODY
    everyday = {"HOME": str(directory)}
    assert_works(directory / "env/bin/flhost", package, environment=everyday, **as_user)
    assert_works(directory / "env/bin/flhost", package)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_plugin_that_everybody_may_write_is_refused_here_too(installed: Path, tmp_path: Path):
    loose = copy(installed, tmp_path / "loose")
    package = site_packages(loose) / "flhost"
    (package / "lib/flhost/plugins/cpu.so").chmod(0o777)
    assert " loaded " not in plugins_of(loose / "bin/flhost")["cpu"]


# -------------------------------------------------------------------------------------------- versions, coming and going


def everything(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if "__pycache__" not in path.parts}


def test_what_was_installed_goes_again(tmp_path: Path):
    python = tmp_path / "env" / "bin" / "python"
    run(BASE_PYTHON, "-m", "venv", "--without-pip", tmp_path / "env")
    before = everything(tmp_path)
    pip(python, "install", "--no-index", the_wheel())
    run(python, "-c", IMPORTED)
    run(tmp_path / "env" / "bin" / "flhost", "plugins")
    pip(python, "uninstall", "-y", "flhost")
    left = everything(tmp_path) - before
    # pip leaves empty directories of the scheme "data", and Debian's names them itself.
    assert not [name for name in left if not (tmp_path / name).is_dir()]
    assert not [name for name in left if "flhost" in name]


def test_a_new_version_leaves_nothing_of_the_old_one(tmp_path: Path):
    python = make_environment(tmp_path / "env", of_another_version(the_wheel(), tmp_path, "0.0.1"))
    marker = site_packages(tmp_path / "env") / "flhost-0.0.1.dist-info"
    assert marker.is_dir()
    pip(python, "install", "--no-index", the_wheel())
    assert not marker.exists()
    assert_works(tmp_path / "env/bin/flhost", site_packages(tmp_path / "env") / "flhost")


def test_with_two_versions_below_one_directory_the_command_runs_its_own(installed: Path, tmp_path: Path):
    """A user's own installation for two Pythons shares one bin directory; the package that was installed last wrote the command."""
    both = copy(installed, tmp_path / "both")
    own = site_packages(both)
    for name in ("python3.1", "python3.99"):
        other = copy(own, both / "lib" / name / "site-packages")
        (other / f"flhost-{VERSION}.dist-info").rename(other / "flhost-9.9.9.dist-info")
    assert_works(both / "bin/flhost", own / "flhost")


# ------------------------------------------------------------------------------------------------------------ imports


def test_importing_needs_neither_torch_nor_numpy(installed: Path):
    code = "import flhost, sys; flhost.__version__; print(sorted({'torch', 'numpy', 'vllm'} & set(sys.modules)))"
    assert run(installed / "bin" / "python", "-c", code).strip() == "[]"
    assert "No module named 'numpy'" in run(installed / "bin" / "python", "-c", "import numpy", fails=True)


def test_importing_loads_no_plugin(installed: Path):
    maps = run(
        installed / "bin" / "python", "-c", "import flhost; flhost.__version__\nprint(open('/proc/self/maps').read())"
    )
    assert "libflhost.so.0" in maps
    assert "/plugins/" not in maps


def test_importing_takes_less_than_60_ms(installed: Path):
    """Without the interpreter's own start. What other programs take of the processor makes it slower, never faster: the best of
    seven is the nearest to what it costs."""
    clock = "import time; begin = time.perf_counter(); import flhost; flhost.__version__; print(time.perf_counter() - begin)"
    python = installed / "bin" / "python"
    run(python, "-c", clock)
    assert min(float(run(python, "-c", clock)) for _ in range(7)) < 0.060


def test_an_archive_is_no_place_to_import_from():
    """The extension is a file that the dynamic linker opens."""
    said = run(BASE_PYTHON, "-c", IMPORTED, environment={"PYTHONPATH": str(the_wheel())}, fails=True)
    assert re.search(r"(ImportError|ModuleNotFoundError): .*_core", said)


# ------------------------------------------------------------------------------------------------------------ in C


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_an_engine_in_c_is_built_against_the_wheel(tmp_path: Path):
    make_environment(tmp_path / "env")
    package = site_packages(tmp_path / "env") / "flhost"
    environment = {"PKG_CONFIG_PATH": str(package / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "flhost", environment=environment).split()
    directory = run("pkg-config", "--variable=libdir", "flhost", environment=environment).strip()
    program = tmp_path / "engine"
    compiler = os.environ.get("CC", "cc").split()
    run(
        *compiler,
        "-o",
        program,
        ROOT / "examples/call_op.c",
        *flags,
        "-lm",
        f"-Wl,-rpath,{directory}",
        environment=environment,
    )
    assert "silu_and_mul by " in run(program)
    plugins = run("pkg-config", "--variable=pluginsdir", "flhost", environment=environment).strip()
    assert Path(plugins).resolve() == package / "lib/flhost/plugins"


def test_the_interpreter_of_these_tests_has_the_wheel_and_not_the_tree():
    """Else the other files here would test something else."""
    import flhost

    assert Path(sys.prefix) in Path(flhost.__file__).parents
    assert subprocess.run(
        [sys.executable, "-c", IMPORTED], check=True, capture_output=True, text=True, cwd="/"
    ).stdout.startswith(VERSION)
