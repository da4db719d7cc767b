"""
What a sensor can wait for in a store, and one poll for all sensors; nothing here imports Airflow.

A wait is a value: equal waits share every poll, with one statement per kind and group, however many sensors wait. Its
target is the plain, rendered data of a serialized trigger. Only check-back writes: it decides what can be known. If the
store is unavailable, no wait ends. A wait that can't be answered ends alone, without affecting others: each check runs
in its own thread, since its checker may hang.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

from txsaga import errors
from txsaga.core.arguments import read_number
from txsaga.core.decision import Decision
from txsaga.core.failure import complete, contained
from txsaga.core.identity import LAST

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.checkback.checkers import Checker


class WaitKind(StrEnum):
    """The kinds of waits."""

    DECISION = "decision"
    CHECK_BACK = "check-back"
    MESSAGES = "messages"
    PARKED = "parked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What one sensor waits for; fields that its kind does not use keep their defaults."""

    kind: WaitKind
    transaction: str = ""  # number or id
    checker: str = ""  # as module:function
    interval: float = 60.0
    max_checks: int = 15
    topic: str = ""
    group: str = ""
    at_least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAnswer:
    """How a wait ended."""

    good: bool
    told: str
    value: Mapping[str, Any]


def wait_of(kind: str, target: Mapping[str, Any]) -> Wait:
    """Parse the target of a trigger."""
    read = dict(target)
    if "transaction" in read:
        read["transaction"] = named(read["transaction"])
    for name, number in (("interval", float), ("max_checks", int), ("at_least", int)):
        if name in read:
            read[name] = number(read[name])
    return Wait(kind=WaitKind(kind), **read)


def named(transaction: object) -> str:
    """Return the number or id of a transaction, given as such or as the output of the task that began it."""
    told = told_of(transaction)
    found = told.get("txid") if isinstance(told, Mapping) else told
    if isinstance(found, (str, int)) and not isinstance(found, bool) and str(found).strip():
        return str(found).strip()
    raise errors.ConfigError(
        f"{transaction!r} names no transaction; give its number, its id, or the output of its first task"
    )


def told_of(handed_on: object) -> object:
    """Return a sensor's result, parsed if it is text: Airflow passes it as text if its task ended in the triggerer."""
    if isinstance(handed_on, str) and handed_on.lstrip().startswith("{"):
        try:
            return json.loads(handed_on)
        except ValueError:
            return handed_on
    return handed_on


Checked = tuple[WaitAnswer | None, int]
"""The answer, if there is one, and the number of checks."""


logger = logging.getLogger("txsaga")
MOST_SHOWN = 100
PROMPT, LATE, LONGEST = 2.0, 5.0, 60.0
"""Seconds: how long a round waits for checks, when a late check stops blocking others, when it is given up."""
AT_ONCE = 16
"""The largest number of checks at the same time, not counting late ones."""
AWAY = (errors.StoreUnavailable, errors.StoreBusy, errors.NotPrimary, errors.OutcomeUnknown)
"""Errors of the store, not of a wait: the next round tries again."""


class StorePoll:
    """The polls of one store, with the number of checks for each wait."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker, self._clock = broker, clock
        self._store = broker.kernel.store
        self._checked: dict[Wait, tuple[int, float]] = {}
        self._asking: dict[Wait, tuple[Future[Checked], float]] = {}  # with when each began

    def look(self, waits: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        """Return the waits that have an answer now, with their answers."""
        self._checked = {wait: kept for wait, kept in self._checked.items() if wait in waits}
        self._asking = {wait: asking for wait, asking in self._asking.items() if wait in waits}
        found: dict[Wait, WaitAnswer] = {}
        for kind, answered in (
            (WaitKind.DECISION, self._decided),
            (WaitKind.CHECK_BACK, self._check),
            (WaitKind.MESSAGES, self._messages),
            (WaitKind.PARKED, self._parked),
        ):
            if asked := [wait for wait in waits if wait.kind is kind]:
                found |= each_answered(answered, asked)
        return found

    def _decided(self, waits: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        found, numbers = {}, {}
        for wait in waits:
            try:
                numbers[wait] = self._number(wait)
            except errors.TxSagaError as reason:
                found[wait] = _no(str(reason), wait)
        decisions = self._store.overview.decisions(set(numbers.values())) if numbers else {}
        for wait, txid in numbers.items():
            if txid in decisions:
                found[wait] = _told(txid, decisions[txid], "it is already decided", 0)
        return found

    def _check(self, waits: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        found = self._decided(waits)
        for wait in waits:
            if wait not in found and wait not in self._asking and self._is_due(wait):
                self._ask(wait)
        until = time.monotonic() + PROMPT
        for wait, (asking, begun) in list(self._asking.items()):
            if wait in found:
                del self._asking[wait]
            elif futures.wait([asking], max(0.0, until - time.monotonic())).done:
                del self._asking[wait]
                found |= self._heard(wait, asking)
            elif time.monotonic() - begun > LONGEST:
                del self._asking[wait]
                found[wait] = _no(f"its check has not come to an end within {LONGEST:g} s", wait)
        return found

    def _is_due(self, wait: Wait) -> bool:
        _, due = self._checked.get(wait, (0, None))
        prompt = sum(time.monotonic() - begun < LATE for _, begun in self._asking.values())
        return prompt < AT_ONCE and (due is None or self._clock() >= due)

    def _ask(self, wait: Wait) -> None:
        count, _ = self._checked.get(wait, (0, 0.0))
        asking: Future[Checked] = Future()
        check = partial(contained, partial(self.check, wait, count))
        Thread(target=complete, args=(asking, check), name="txsaga-asking", daemon=True).start()
        self._asking[wait] = asking, time.monotonic()

    def _heard(self, wait: Wait, asking: Future[Checked]) -> dict[Wait, WaitAnswer]:
        count, _ = self._checked.get(wait, (0, 0.0))
        try:
            answer, count = asking.result()
        except AWAY as away:
            logger.warning("the store can't be polled now: %s", away)
            answer = None
        except Exception as failure:
            logger.exception("a check of transaction %s failed", wait.transaction)
            answer = _no(f"{type(failure).__name__}: {failure}", wait)
        self._checked[wait] = (count, self._clock() + wait.interval)
        return {} if answer is None else {wait: answer}

    def check(self, wait: Wait, count: int) -> Checked:
        """Check one transaction now; return the answer, if there is one, and the number of checks so far."""
        from txsaga.checkback.one_check import OneCheck

        try:
            txid = self._number(wait)
            answered = OneCheck(self._broker.kernel).ask(txid, _checker(wait))
        except AWAY:
            raise
        except errors.TxSagaError as reason:
            return _no(str(reason), wait), count
        asked = answered.counted or answered.decision is not None
        count += asked
        logger.info("check %d of transaction %d: %s", count, txid, answered.why)
        if answered.decision is not None:
            return _told(txid, answered.decision, answered.why, count), count
        if count >= wait.max_checks:
            return _no(f"transaction {txid} is not decided after {count} checks: {answered.why}", wait), count
        return None, count

    def _messages(self, waits: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        readings = {(reading.group, reading.topic): reading for reading in self._store.overview.readings()}
        found = {}
        for wait in waits:
            reading = readings.get((wait.group, wait.topic))
            new = self._head(wait.topic) if reading is None else reading.lag
            if new is None:
                found[wait] = _no(f"topic {wait.topic!r} does not exist; create it with `txsaga topic create`", wait)
                continue
            there = new + (0 if reading is None else reading.retrying)
            if there >= wait.at_least:
                value = {"topic": wait.topic, "group": wait.group, "messages": there, "new": new}
                found[wait] = WaitAnswer(good=True, told=f"{there} messages wait", value=value)
        return found

    def _head(self, topic: str) -> int | None:
        """Return how many messages a topic holds for a group that has not begun to read it."""
        try:
            bounds = self._store.log.bounds(self._store.registry.topic(topic).qids)
        except errors.UnknownTopic:
            return None
        return sum(each.head - each.tail for each in bounds.values())

    def _parked(self, waits: Collection[Wait]) -> dict[Wait, WaitAnswer]:
        found = {}
        for wait in waits:
            doubts = self._store.overview.doubts(limit=MOST_SHOWN, parked=True, group=wait.group or None)
            if ids := [doubt.txid for doubt in doubts]:
                value = {"parked": ids, "group": wait.group or None}
                found[wait] = WaitAnswer(good=True, told=f"{len(ids)} transactions need attention", value=value)
        return found

    def _number(self, wait: Wait) -> int:
        text = wait.transaction
        if (number := read_number(text)) is None:
            return self._broker.identity.own(text)
        if number > LAST:
            raise errors.UnknownTransaction(f"transaction {text[:40]} is not in this store")
        return number


def each_answered(
    answered: Callable[[Collection[Wait]], dict[Wait, WaitAnswer]], waits: Collection[Wait]
) -> dict[Wait, WaitAnswer]:
    """Answer many waits together; if that fails, one by one, so that a wait that can't be answered fails alone."""
    try:
        return answered(waits)
    except AWAY:
        raise
    except Exception as together:
        found: dict[Wait, WaitAnswer] = {}
        failed: dict[Wait, Exception] = {}
        for wait in waits:
            try:
                found |= answered([wait])
            except AWAY:
                raise
            except Exception as alone:  # noqa: BLE001  # reported below
                failed[wait] = alone
        if len(failed) == len(waits) and isinstance(together, errors.TxSagaError):
            raise  # no wait is at fault: all are polled again
        for why in failed.values():
            logger.error("a wait can't be answered: %s", why, exc_info=why)
        return found | {wait: _no(f"{type(why).__name__}: {why}", wait) for wait, why in failed.items()}


def _checker(wait: Wait) -> Checker | None:
    if not wait.checker:
        return None
    from txsaga.config import load

    checker: Checker = load(wait.checker, "checker")
    return checker


def _told(txid: int, decision: Decision, why: str, checks: int) -> WaitAnswer:
    state = "COMMITTED" if decision is Decision.COMMIT else "ROLLED_BACK"
    value = {"txid": txid, "state": state, "checks": checks, "why": why}
    return WaitAnswer(good=decision is Decision.COMMIT, told=f"transaction {txid} is {state}: {why}", value=value)


def _no(why: str, wait: Wait) -> WaitAnswer:
    return WaitAnswer(good=False, told=why, value={"state": "UNKNOWN", "why": why, "kind": wait.kind.value})
