"""Adds up the kills of a session, also where several processes share its tests, and prints them at its end.

A kill test hands its figures on with its report: what a worker keeps to itself is never printed.
"""

from dataclasses import asdict, dataclass

import pytest

KILL_SEED = "TXSAGA_KILL_SEED"
PROPERTY = "kills"
FIGURES = ("points", "killed", "missed", "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """How often a program could be killed, was killed, and did not agree afterwards."""

    scenario: str
    points: int
    killed: int
    missed: int
    wrong: int
    seed: int

    def handed_on(self) -> tuple[str, object]:
        """Return the figures as a report can carry them."""
        return PROPERTY, asdict(self)


class KillTable:
    """The table of a session's kills."""

    def __init__(self) -> None:
        self._done: list[Kills] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test hands on; a report of its later phases says the same once more."""
        if report.when == "call":
            self._done += [Kills(**figures) for name, figures in report.user_properties if name == PROPERTY]  # type: ignore[arg-type]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line per program, and all of them together."""
        if not self._done:
            return
        terminalreporter.section(f"kills at facts, {KILL_SEED}={self._done[0].seed}")
        terminalreporter.write_line(f"{'program':60} {'points':>6} {'killed':>6} {'missed':>6} {'wrong':>6}")
        for kills in self._done:
            terminalreporter.write_line(
                f"{kills.scenario:60} {kills.points:6} {kills.killed:6} {kills.missed:6} {kills.wrong:6}"
            )
        points, killed, missed, wrong = (sum(getattr(k, name) for k in self._done) for name in FIGURES)
        terminalreporter.write_line(f"{'together':60} {points:6} {killed:6} {missed:6} {wrong:6}")
