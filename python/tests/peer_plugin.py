"""For pytest -p: the dispatch tests of vllm-plugin-FL, whose folder is not part of this project, against the drop-in.

The drop-in is imported before a test can bring the folder's own vllm_fl into sight. Tests that peer-exceptions.txt
lists are expected to fail, each by a rule that is marked "Differs"; one that passes all the same is an error.
"""

from pathlib import Path

import pytest
import vllm_fl_dispatch.finder

vllm_fl_dispatch.finder.install()

import vllm_fl.dispatch  # noqa: E402

assert vllm_fl.dispatch.__path__[0] == vllm_fl_dispatch.finder.DIRECTORY


def _exceptions() -> dict[str, str]:
    """{name of a test: why it may fail}."""
    lines = Path(__file__).with_name("peer-exceptions.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    return dict(pairs)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = _exceptions()
    for item in items:
        name = item.nodeid.split("/")[-1]
        if name in listed:
            item.add_marker(pytest.mark.xfail(reason=listed.pop(name), strict=True))
    if listed and len(items) > 200:
        raise pytest.UsageError(f"peer-exceptions.txt lists tests that there are not: {', '.join(listed)}")
