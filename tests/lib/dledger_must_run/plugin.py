"""A pytest plugin for MUST_RUN: a run in which every test was skipped fails.

Tests are skipped on a machine that lacks root, loop devices or programs. That helps a developer,
but a stage of CI that ran nothing must not look as if it had passed.
"""

import os

import pytest


def register(config: pytest.Config) -> None:
    """Watch this run if MUST_RUN is set. With xdist, the process that collects reports does."""
    if os.environ.get("MUST_RUN") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Watch())


class _Watch:
    def __init__(self) -> None:
        self._skipped: set[str] = set()
        self._has_run = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether the test ran; one that fails as expected reports a skip, but ran."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.add(report.nodeid)
        elif report.when == "call" or report.failed:
            self._has_run = True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if nothing ran."""
        if self._ran_nothing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why the run fails."""
        if self._ran_nothing:
            count = len(self._skipped)
            terminalreporter.write_line(
                f"MUST_RUN is set, and all {count} tests were skipped: this machine lacks what "
                "they need",
                red=True,
            )

    @property
    def _ran_nothing(self) -> bool:
        return bool(self._skipped) and not self._has_run
