"""
Replays a rolled back transaction: commits its messages in a new transaction that is linked to it.

The new transaction is created, filled, linked to the old one and decided in ONE database transaction: a partial replay
is never visible and never needs a check. Without the link in the same commit, a second replay, or one retried after a
kill, would deliver everything twice. A second replay returns the number of the first.

Only messages that counted are replayed: the winning attempt of each part (R4), of a transaction its owner had closed.
The caller is responsible for the local work; it was not done, and a replay does not do it.

The new transaction is the next epoch of the old key, so a retry of the program finds the key committed and adds
nothing. Under another key, or with none, nothing prevents such a retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import TxRecord
from txsaga.core.retry import patiently
from txsaga.core.topic import DELETED
from txsaga.core.validation import validate_key
from txsaga.errors import AlreadyCommitted, ConfigError, InDoubt, TransactionError, UnknownTransaction
from txsaga.flows.ballot import require_carried
from txsaga.inspect.trace import SentMessages, Trace
from txsaga.messages.decide import DecidedBy
from txsaga.messages.tx_records import amended

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


REPLAY, REPLAYED = "REPLAY", "REPLAYED"
"""The events in the audit rows of the new and of the old transaction."""


class Resent(NamedTuple):
    """Messages that are sent again, and their original queue."""

    topic: str
    queue: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay, or its plan."""

    txid: int
    replayed_as: int | None  # None: a plan only
    key: str | None
    messages: tuple[Resent, ...]
    left_out: tuple[str, ...]
    """Parts that can't be replayed."""
    again: bool = False
    """It had already been replayed, so nothing was done now."""


class _Rival(Exception):
    """Another process has just replayed it, or opened the key."""


class Replays:
    """Replays single transactions."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._store = kernel, kernel.store

    def plan(self, txid: int, key: str | None = None) -> ReplayResult:
        """Return what a replay would send, or what an earlier one did; raise if it can't be replayed."""
        return self._plan(self._trace(txid), key)

    def run(self, txid: int, key: str | None = None, *, who: str, why: str) -> ReplayResult:
        """Replay a transaction, or return what an earlier replay did."""
        if not why.strip():
            raise ConfigError("give a reason: it is recorded with the replay")
        trace = self._trace(txid)
        plan = self._plan(trace, key)
        if plan.again:
            return plan
        with self._kernel.announce.around(facts.Resubmitting, txid):
            made, again = patiently(lambda: self.make(trace, plan, DecidedBy(who=who, why=why)))
        self._kernel.tell_decided()
        return replace(plan, replayed_as=made, again=again)

    def _trace(self, txid: int) -> Trace:
        trace = self._store.overview.trace(txid)
        if trace is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        return trace

    def _plan(self, trace: Trace, key: str | None) -> ReplayResult:
        if key is not None:
            validate_key(key)
        elif trace.life is not None:
            key = trace.life.key
        if trace.replayed_as is not None:
            made = self._store.overview.transaction(trace.replayed_as)
            key = made.key if made else None
        messages = tuple(Resent(*sent.place, sent.messages) for sent in _replayable(trace))
        if trace.replayed_as is None:
            with self._store.ledgers.open() as ledger:
                require_carried(ledger.ballots(trace.txid))
        return ReplayResult(
            txid=trace.txid,
            replayed_as=trace.replayed_as,
            key=key,
            messages=messages,
            left_out=tuple(_left_out(trace)),
            again=trace.replayed_as is not None,
        )

    def make(self, trace: Trace, plan: ReplayResult, by: DecidedBy) -> tuple[int, bool]:
        """Commit the new transaction, or find an earlier one; return its number and whether it existed."""
        while True:
            try:
                with self._store.ledgers.open() as ledger:
                    # Lock first: the next query sees what a rival did under the key, or it is not yet done.
                    latest = None if plan.key is None else ledger.latest(trace.group, plan.key)
                    before = ledger.replay_of(trace.txid)
                    if before is not None:
                        return before, True
                    return self._make(ledger, trace, plan.key, latest, by), False
            except _Rival:
                continue

    def _make(self, ledger: Ledger, trace: Trace, key: str | None, latest: TxRecord | None, by: DecidedBy) -> int:
        life = ledger.create(trace.group, key, _next_epoch(ledger, latest))
        if life is None or not ledger.tie(trace.txid, life.txid):
            raise _Rival
        if not ledger.copy(trace.txid, life):
            raise UnknownTransaction(f"the messages of transaction {trace.txid} were deleted")
        ledger.record(life.txid, REPLAY, who=by.who, why=by.why)
        ledger.record(trace.txid, REPLAYED, who=by.who, why=by.why)
        ledger.move(life.txid, TxEvent.SEAL)
        self._kernel.decider.within(ledger, life.txid, Decision.COMMIT, by)
        return life.txid


def _next_epoch(ledger: Ledger, latest: TxRecord | None) -> int:
    """Return the next epoch of a key; raise if a retry of the program has committed the key, or is working on it."""
    if latest is None:
        return 1
    if latest.state is TxState.COMMITTED:
        raise AlreadyCommitted(latest.txid, str(latest.key))
    if latest.state is not TxState.ROLLED_BACK:
        raise InDoubt(f"key {latest.key!r} is in use: transaction {latest.txid} is {latest.state}; settle it first")
    if (of := amended(ledger, latest)) is not None:
        raise AlreadyCommitted(of, str(latest.key))  # an amendment is replayed under another key
    return latest.epoch + 1


def _replayable(trace: Trace) -> list[SentMessages]:
    """Return the messages to replay, or raise."""
    if trace.decision is not Decision.ROLLBACK:
        state = "was committed: its messages are delivered" if trace.decision else "is undecided"
        raise TransactionError(f"transaction {trace.txid} {state}; only rolled-back transactions can be replayed")
    counting = [sent for sent in trace.sent if sent.counts]
    if any(sent.timed for sent in counting):
        raise TransactionError(f"transaction {trace.txid} was a delayed message that is overdue; send it again")
    if gone := [sent.place.topic for sent in counting if DELETED in sent.place.topic]:
        raise TransactionError(f"transaction {trace.txid} has messages of {gone[0]}, a deleted topic; send them again")
    if not counting:
        raise TransactionError(
            f"transaction {trace.txid} was never sealed by its owner, so its messages may be incomplete; "
            "do the work again"
        )
    return counting


def _left_out(trace: Trace) -> Iterator[str]:
    if trace.resource is not None:
        yield f"local work in {trace.resource.name}: it was not done"
    for slot, place in trace.kept:
        yield f"the late body {slot} to {place}: it was never known here"
    for written in dict.fromkeys(each.name for each in trace.written):
        yield f"writes to table {written}: they were not published"
    if trace.life is not None:
        yield "offsets it consumed, if any: they went back to their group, which reads them again"


# Messages of superseded attempts are not copied (R4).
