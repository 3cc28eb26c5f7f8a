"""What all tests of the Python package share: which of them run in an environment, and what is said at the end.

`make check-python` runs them on the installed wheel, in an environment with torch and in one without; python/tests/run
starts them. By hand: `make python`, then PYTHONPATH=build/python pytest python/tests.
"""

import importlib.util
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Without them there is nothing to test; another environment has them.
collect_ignore_glob = [f"test_{name}_*.py" for name in ("torch", "vllm") if importlib.util.find_spec(name) is None]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each test that could not be made, as tests/run has it, and the counts for whoever adds them up.

    FLHOST_TORCH_ELSEWHERE: what lacks torch here runs in an environment that has it.
    """
    stats = terminalreporter.stats
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if re.search(r"\btorch\b", reason) and os.environ.get("FLHOST_TORCH_ELSEWHERE"):
            continue
        terminalreporter.write_line(f"skip: {report.nodeid.split('/')[-1]}: {reason.removeprefix('Skipped: ')}")
    counts = os.environ.get("FLHOST_COUNTS")
    if counts:
        failed = len(stats.get("failed", [])) + len(stats.get("error", []))
        Path(counts).write_text(f"{len(stats.get('passed', []))} {failed}\n")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
