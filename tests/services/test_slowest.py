"""The slowest files are named with the time of all their tests."""

from __future__ import annotations

import pytest

from tests.services.slowest import slowest_files


def report(nodeid: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", None, ""), {}, "passed", None, "call", duration=seconds)


def test_the_time_of_a_file_is_that_of_its_tests_and_their_fixtures() -> None:
    reports = [report("a.py::one", 50), report("b.py::one", 60), report("a.py::one", 20), object()]
    assert slowest_files(reports) == [("a.py", 70), ("b.py", 60)]
    assert slowest_files(reports, count=1) == [("a.py", 70)]


def test_a_short_session_has_none() -> None:
    assert slowest_files([report("a.py::one", 5)]) == []
