"""What crosses the ports of check-back: who is asked, what was answered, what is settled or put off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import Doubt, HalfView

TURNS = 20
"""So many times its patience a question waits to be taken up, before another member is asked."""


class Lead(NamedTuple):
    """A lease in its holder's hands, with its fence."""

    kind: str
    name: str
    holder: str
    epoch: int


class Ask(NamedTuple):
    """A question to put to a member: it has `patience` to answer, and after `interval` the next one may come."""

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
    """What a member said; a decision was written before this is told. Without a state nobody there has seen it."""

    txid: int
    state: LocalState | None
    why: str


def kept(text: str) -> str:
    """Return what a store can keep of a text that somebody else wrote."""
    return text.replace("\0", "").encode(errors="replace").decode()


class VerdictRecord(NamedTuple):
    """A decision that check-back writes, and what it rests on."""

    txid: int
    decision: Decision
    why: str


class PutOff(NamedTuple):
    """A doubt that could not be settled now; without a reason nothing came of it that anybody need read."""

    txid: int
    by: timedelta
    why: str
    counted: bool
    anew: bool = False  # its total time begins again: it is known to go on


class Remark(NamedTuple):
    """What came of one check."""

    at: datetime
    who: str
    answer: str
    why: str
