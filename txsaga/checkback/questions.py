"""The values of check-back: questions, answers, verdicts, postponed doubts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import Doubt, HalfView

TURNS = 20
"""A question waits this many times its patience to be taken up, before another member is asked."""


class Lead(NamedTuple):
    """A lease with its holder and its fence."""

    kind: str
    name: str
    holder: str
    epoch: int


class Ask(NamedTuple):
    """A question for a member: it has `patience` to answer, and after `interval` the next one may come."""

    txid: int
    group: int
    member: str
    interval: timedelta
    patience: timedelta


class OpenQuestion(NamedTuple):
    """A question as its member gets it."""

    doubt: Doubt
    key: str | None
    halves: tuple[HalfView, ...]
    patience: timedelta


class QuestionAnswer(NamedTuple):
    """A member's answer; a decision is written before it is sent. Without a state, no checker saw the question."""

    txid: int
    state: LocalState | None
    why: str


def kept(text: str) -> str:
    """Return what a store can keep of a text from elsewhere."""
    return text.replace("\0", "").encode(errors="replace").decode()


class VerdictRecord(NamedTuple):
    """A decision that check-back writes, and its reason."""

    txid: int
    decision: Decision
    why: str


class PutOff(NamedTuple):
    """A doubt that could not be settled now; without a reason it leaves no remark."""

    txid: int
    by: timedelta
    why: str
    counted: bool
    anew: bool = False  # its total time starts again: its run is known to be alive


class Remark(NamedTuple):
    """The result of one check."""

    at: datetime
    who: str
    answer: str
    why: str
