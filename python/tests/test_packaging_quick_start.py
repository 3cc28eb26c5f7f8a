"""docs/python.md: each of its blocks runs, in order, and prints what the page says."""

import os
import re
import shlex
import sys
import venv
from pathlib import Path
from typing import NamedTuple

import pytest
from environments import ROOT, run, site_packages, the_wheel

PAGE = ROOT / "docs" / "python.md"
END_OF_BLOCK = "---- end of block ----"


class Block(NamedTuple):
    language: str
    line: int
    text: str
    expected: str | None


def blocks_of_page() -> list[Block]:
    found: list[Block] = []
    text = PAGE.read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, body = match.groups()
        if language == "text":
            assert found[-1].expected is None
            found[-1] = found[-1]._replace(expected=body)
        else:
            found.append(Block(language, text.count("\n", 0, match.start()) + 2, body, None))
    return found


def assert_prints(block: Block, printed: str) -> None:
    """Line by line; `…` stands for anything. Of a command more lines may come between."""
    if block.expected is None:
        return
    patterns = [re.escape(line).replace("…", ".*") for line in block.expected.splitlines()]
    pattern = "\n".join(patterns) + "\n" if block.language == "python" else ".*".join(f"{line}\n" for line in patterns)
    matched = re.fullmatch(pattern, printed) if block.language == "python" else re.search(pattern, printed, re.DOTALL)
    assert matched, f"{PAGE.name}:{block.line} printed:\n{printed}\nexpected:\n{block.expected}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A new environment, where pip finds the wheel, and numpy is there already as it is here."""
    directory = tmp_path_factory.mktemp("quick") / "start"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(directory)
    pip = directory / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pip --python "$(dirname "$0")/python" "$@"\n')
    pip.chmod(0o755)
    lent = directory / "lent"
    lent.mkdir()
    for path in site_packages(Path(sys.prefix)).glob("numpy*"):
        (lent / path.name).symlink_to(path)
    (site_packages(directory) / "lent.pth").write_text(f"{lent}\n")
    return {
        "PATH": f"{directory}/bin:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(the_wheel().parent),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def test_the_page_has_blocks_of_both_kinds():
    languages = [block.language for block in blocks_of_page()]
    assert set(languages) == {"sh", "python"}
    assert len([block for block in blocks_of_page() if block.expected]) > 8


def test_every_block_runs_and_prints_what_the_page_says(environment: dict[str, str], tmp_path: Path):
    blocks = blocks_of_page()
    for block in blocks:
        if block.language == "sh":
            shown = run("bash", "-euc", block.text, environment=environment, cwd=tmp_path)
            assert_prints(block, shown)
    # One interpreter for all of the page's Python, as a reader has it.
    script = tmp_path / "page.py"
    python = [block for block in blocks if block.language == "python"]
    script.write_text("".join(f"{block.text}\nprint({END_OF_BLOCK!r}, flush=True)\n" for block in python))
    printed = run("python3", script, environment=environment, cwd=tmp_path).split(f"{END_OF_BLOCK}\n")
    assert len(printed) == len(python) + 1
    for block, text in zip(python, printed, strict=False):
        assert_prints(block, text)
