"""Where the minutes of a session went: the files whose tests, fixtures included, took longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

WORTH_A_LOOK = 60.0


def slowest_files(reports: Iterable[object], count: int = 10) -> list[tuple[str, float]]:
    """Return the slowest files with the seconds that they took, slowest first; none of a short session."""
    seconds = defaultdict[str, float](float)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    slowest = sorted(seconds.items(), key=lambda each: each[1], reverse=True)
    return slowest[:count] if sum(seconds.values()) > WORTH_A_LOOK else []
