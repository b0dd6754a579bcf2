"""Write what a run of the tests found to a file, for `tests.verdict`: counts, and each failure.

With a failure goes how it failed, and what is needed to repeat it: the seed, and the tests that ran
before it in the same process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 3000  # characters that are kept of how a test failed: the last ones
_ENDS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--results", metavar="FILE", help="write counts and failures as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Collect results in the process that was started, not in the workers of pytest-xdist."""
    path = config.getoption("--results")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Results(config.invocation_params.dir / path))


class _Results:
    """What a run has found so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ran: dict[str, list[str]] = {}  # the tests of each worker, in their order
        self._ended = True
        self._passed = 0
        self._skipped: list[str] = []
        self._failed: dict[str, dict[str, Any]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file whose tests could not be collected, or that was skipped as a whole."""
        self._ended &= not report.failed
        if report.skipped:
            self._skipped.append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """Note a worker of pytest-xdist that did not end by itself."""
        self._ended &= not error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test, of its fixtures, or of its end."""
        node: Any = getattr(report, "node", None)  # a worker, or what stands for a lost one
        ran = self._ran.setdefault(node.gateway.id if node is not None else "", [])
        if report.failed and report.nodeid not in self._failed:
            self._failed[report.nodeid] = {
                "before": [name for name in ran if name != report.nodeid],
                "how": report.longreprtext[-_MOST:],
            }
        elif report.skipped or hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)
        if report.when == "call":
            self._passed += report.passed
        if ran[-1:] != [report.nodeid]:
            ran.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the file."""
        found = {
            "ended": self._ended and exitstatus == _ENDS[bool(self._failed)],
            "seed": session.config.getoption("randomly_seed", None),
            "passed": self._passed,
            "skipped": self._skipped,
            "failed": self._failed,
        }
        self._path.write_text(json.dumps(found), encoding="utf-8")
