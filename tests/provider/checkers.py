"""Checkers that a triggerer can import."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event

from txsaga.checkback.checkers import Question
from txsaga.core.decision import LocalState

PLACE = "TXSAGA_TEST_ASKED"


def third_time(question: Question) -> LocalState:
    """Say UNKNOWN twice, then COMMIT."""
    asked = Path(os.environ[PLACE])
    with asked.open("a") as lines:
        lines.write(f"{question.txid}\n")
    return LocalState.COMMIT if len(asked.read_text().splitlines()) >= 3 else LocalState.UNKNOWN


def never(question: Question) -> LocalState:
    """Never know."""
    return LocalState.UNKNOWN


def refuse(question: Question) -> LocalState:
    """Say that it failed."""
    return LocalState.ROLLBACK


hold = Event()
"""Until it is set, `hang` does not answer."""


def hang(question: Question) -> LocalState:
    """Answer when the test is over."""
    hold.wait(120)
    return LocalState.UNKNOWN


def leave(question: Question) -> LocalState:
    """End the process, as far as a checker can."""
    raise SystemExit(3)
