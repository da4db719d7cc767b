"""
The statements about steps and sagas, each for any number of them.

Only the owner of a transaction can write: a superseded one matches no row. A step is written only while its transaction
is open, under its lock (R3): ROLLBACK waits for the write, or the write sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.flows.ports import Close, Mark, OpenSaga, RecordStep, ReleaseSaga, Settle, Start
from txsaga.flows.step import STEP, TARGETS, StepEvent
from txsaga.store import sql_files
from txsaga.store.values import (
    Value,
    bool_array,
    bytea_array,
    float8_array,
    int4_array,
    int8_array,
    text_array,
)

SQL = sql_files.read("flows/sql/step.sql")


def _leased(name: str) -> str:
    return SQL[name].replace("{lease}", str(LEASE.total_seconds()))


STEP_TYPES = ("int4[]", "text[]", "text[]", "text[]", "text[]", "text[]", "text[]", "float8[]")
OPEN_TYPES = ("int4[]", "text[]", "int8[]", "int4[]", *STEP_TYPES, "int8[]", "bytea[]", "bool[]")
OPEN_ANSWERS = "ord int8, txid int8, token bytea, first bool"
OPEN = _leased("open")
RECORD = _leased("record")
SETTLE = _leased("settle")

Values = list[Value | None]
SOURCES = {event: ",".join(STEP.sources(event)) for event in TARGETS}
ANY = ",".join(dict.fromkeys(state for state, _ in STEP.moves))
"""A try without an event is recorded for a step in any unfinished state."""


def steps(starts: Sequence[Start]) -> Values:
    """Encode steps that are about to run, as parameters."""
    return [
        int4_array([each.number for each in starts]),
        text_array([each.name for each in starts]),
        text_array([each.kind.value for each in starts]),
        text_array([each.resource or "" for each in starts]),
        text_array([each.input for each in starts]),
        text_array([each.compensation or "" for each in starts]),
        text_array([each.action or "" for each in starts]),
        float8_array([-1.0 if each.expires is None else each.expires.total_seconds() for each in starts]),
    ]


def opens(begins: Sequence[OpenSaga], tickets: Sequence[int], *, kept: Sequence[bool] = ()) -> Values:
    """Encode begins with their first steps; a ticket, or its number, finds each of them again."""
    named = [(at, step) for at, begin in enumerate(begins, 1) for step in begin.steps]
    return [
        int4_array([begin.group for begin in begins]),
        text_array([begin.run or "" for begin in begins]),
        int8_array(tickets),
        int4_array([at for at, _ in named]),
        *steps([step for _, step in named]),
        int8_array([0 if begin.life is None else begin.life.txid for begin in begins]),
        bytea_array([b"" if begin.life is None else begin.life.given for begin in begins]),
        bool_array(list(kept) or [True] * len(begins)),
    ]


def lost(begins: Sequence[OpenSaga], tickets: Sequence[int]) -> Values:
    """Encode what finds begins again."""
    return [int4_array([begin.group for begin in begins]), int8_array(tickets)]


def records(given: Sequence[RecordStep]) -> Values:
    """Encode further steps."""
    named = [(each.life, step) for each in given for step in each.steps]
    owners = [int8_array([life.txid for life, _ in named]), int4_array([life.owner for life, _ in named])]
    return [*owners, *steps([step for _, step in named])]


def marks(given: Sequence[Mark]) -> Values:
    """Encode marks, with the states that each event may leave."""
    return [
        int8_array([mark.txid for mark in given]),
        int4_array([mark.owner for mark in given]),
        int4_array([mark.number for mark in given]),
        text_array([TARGETS[mark.event].value if mark.event else "" for mark in given]),
        text_array([SOURCES[mark.event] if mark.event else ANY for mark in given]),
        text_array([mark.left.value if mark.left else "" for mark in given]),
        text_array([mark.output or "" for mark in given]),
        text_array([kept(mark.error) for mark in given]),
        int4_array([-1 if mark.event is StepEvent.RESUME else mark.tries for mark in given]),
    ]


def settles(given: Sequence[Settle]) -> Values:
    """Encode the drivers of decided sagas, and the steps after their decisions."""
    named = [(each.word.life.txid, step) for each in given for step in each.steps]
    return [
        int8_array([each.word.life.txid for each in given]),
        int4_array([each.word.life.owner for each in given]),
        text_array([each.driver for each in given]),
        int8_array([txid for txid, _ in named]),
        *steps([step for _, step in named]),
    ]


def rests(given: Sequence[ReleaseSaga]) -> Values:
    """Encode sagas that are released."""
    return [
        int8_array([each.txid for each in given]),
        int4_array([each.owner for each in given]),
        float8_array([each.by.total_seconds() for each in given]),
        text_array([kept(each.why) for each in given]),
        bool_array([each.stalled for each in given]),
    ]


def closes(given: Sequence[Close]) -> Values:
    """Encode sagas that may be over."""
    return [int8_array([each.txid for each in given]), int4_array([each.owner for each in given])]
