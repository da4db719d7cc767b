"""Long work shows how far it has come on a terminal, and nowhere else."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from txsaga.cli.printing import progress


class Terminal(io.StringIO):
    """An error output that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Give what a terminal shows of work of which 4 are done."""

    def show(*words: object, quiet: bool = False) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # now: between setup and call it is put back
        with progress(*words, quiet=quiet) as advance:  # type: ignore[arg-type]
            advance(4)
        return terminal.getvalue()

    return show


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end(shown: Callable[..., str]) -> None:
    bar = shown("replayed", 10)
    assert "replayed" in bar
    assert "4/10" in bar
    assert bar.endswith("\x1b[2K")  # the line is empty again


def test_work_without_a_known_end_shows_that_it_goes_on(shown: Callable[..., str]) -> None:
    bar = shown("migrating")
    assert ("migrating" in bar, "4/" in bar) == (True, False)


def test_whoever_asks_for_documents_sees_no_bar(shown: Callable[..., str]) -> None:
    assert shown("replayed", 10, quiet=True) == ""


def test_without_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("replayed", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")
