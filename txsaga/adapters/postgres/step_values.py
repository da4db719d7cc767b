"""Calls about steps and sagas as columns of their statements."""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.adapters.postgres.values import (
    Value,
    bool_array,
    bytea_array,
    float8_array,
    int4_array,
    int8_array,
    text_array,
)
from txsaga.model.asking import kept
from txsaga.model.step import STEP, TARGETS, StepEvent
from txsaga.ports.steps import Close, Mark, Open, Record, Rest, Settle, Start

Values = list[Value | None]
SOURCES = {event: ",".join(STEP.sources(event)) for event in TARGETS}
ANY = ",".join(dict.fromkeys(state for state, _ in STEP.moves))
"""A try that moves nothing is noted of whatever is not over."""


def steps(starts: Sequence[Start]) -> Values:
    """Lay out steps that are about to run."""
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


def opens(begins: Sequence[Open], tickets: Sequence[int], *, kept: Sequence[bool] = ()) -> Values:
    """Lay out begins with their first steps; a ticket, or its number, finds each of them again."""
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


def lost(begins: Sequence[Open], tickets: Sequence[int]) -> Values:
    """Lay out what finds begins again."""
    return [int4_array([begin.group for begin in begins]), int8_array(tickets)]


def records(given: Sequence[Record]) -> Values:
    """Lay out further steps."""
    named = [(each.life, step) for each in given for step in each.steps]
    owners = [int8_array([life.txid for life, _ in named]), int4_array([life.owner for life, _ in named])]
    return [*owners, *steps([step for _, step in named])]


def marks(given: Sequence[Mark]) -> Values:
    """Lay out what became of steps, with the states that each event may leave."""
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
    """Lay out who sees to the steps of what is decided, and the steps behind the decisions."""
    named = [(each.word.life.txid, step) for each in given for step in each.steps]
    return [
        int8_array([each.word.life.txid for each in given]),
        int4_array([each.word.life.owner for each in given]),
        text_array([each.driver for each in given]),
        int8_array([txid for txid, _ in named]),
        *steps([step for _, step in named]),
    ]


def rests(given: Sequence[Rest]) -> Values:
    """Lay out sagas that are let go of."""
    return [
        int8_array([each.txid for each in given]),
        int4_array([each.owner for each in given]),
        float8_array([each.by.total_seconds() for each in given]),
        text_array([kept(each.why) for each in given]),
        bool_array([each.stalled for each in given]),
    ]


def closes(given: Sequence[Close]) -> Values:
    """Lay out sagas that may be over."""
    return [int8_array([each.txid for each in given]), int4_array([each.owner for each in given])]
