"""
One session of the hot path: it writes batches one after another, and remembers the halves it stored itself.

It decides its own halves without reading them first. If it forgot what it stored, each decision would cost a lookup; if
it took another session's half for its own, a transaction already decided by others could be decided again.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, repeat
from typing import NamedTuple

from sqlalchemy import Engine

from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.records import DecisionOutcome, End, Half, HalvesWritten, Receipt
from txsaga.core.retry import PATIENCE
from txsaga.errors import (
    EndRefused,
    StoreError,
    StoreUnavailable,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.messages.batch import CallKind, HotBatch, kind_of, standing
from txsaga.messages.hot_statements import Hot
from txsaga.store import schema
from txsaga.store.pipeline import PipelineConnection, until_answered
from txsaga.store.values import int4, uuid
from txsaga.store.wire import Call, Rows

_NAMED = struct.Struct(">iq")


class Pads(NamedTuple):
    """The key pads of an HMAC over group and number."""

    outer: bytes
    inner: bytes

    def __repr__(self) -> str:
        """Hide both: together they can make every token."""
        return "Pads()"

    def token(self, group: int, txid: int) -> bytes:
        """Return the token that proves that a half was issued."""
        return sha256(self.outer + sha256(self.inner + _NAMED.pack(group, txid)).digest()).digest()


ISSUED = 65_536
"""How many of its undecided halves a session remembers, in some 20 MB; the others are looked up."""


class HalfSession:
    """Batches on one connection, for one caller at a time."""

    def __init__(self, engine: Engine, hot: Hot, identity: StoreId, patience: float = PATIENCE) -> None:
        self._hot, self._identity = hot, identity
        self._line = PipelineConnection(engine, patience)
        self._low: int | None = None
        self._pads: Pads | None = None
        self._here = (uuid(identity.uuid), int4(identity.incarnation))
        self._issued: OrderedDict[int, Receipt] = OrderedDict()  # stored by this session and not decided yet
        self._session: object = None

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves and write decisions; the first durable decision is final."""
        wanted = sorted({end.txid: end for end in reversed(ends)}.values()) if ends else []  # first of each number
        low = self._newest() if halves else 0
        own = self._hot.decide_own if self._own(wanted) else None
        lone = self._lone() if len(halves) == 1 and not ends and kind_of(halves[0]) is CallKind.HELD else None
        batch = HotBatch(self._hot, halves, wanted, own, lone)
        stored, decided = batch.answered(self._line, low, self._here)
        if batch.own is not own:
            self._issued.clear()  # the other remembered halves may be outdated too
        # The batch is written: from here on an error is the answer to one item, never to the whole batch.
        standings = self._standings(wanted, decided) if ends else {}
        receipts = self._stored(halves, batch, stored) if halves else []
        if len(wanted) == len(ends):
            return HalvesWritten(receipts, [standings[end.txid] for end in ends])
        return HalvesWritten(receipts, self._repeated(ends, standings))

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def _own(self, ends: Sequence[End]) -> bool:
        """Return whether all of these ends are of halves this session stored itself."""
        session = self._line.session()
        if session is not self._session:  # a new session may lead to a store restored to an earlier state
            self._session, self._issued = session, OrderedDict()
        own, youngest = bool(ends), (self._low or 0) // schema.SPAN
        for end in ends:
            receipt = self._issued.pop(end.txid, None)
            known = receipt is not None and (receipt.group, receipt.token) == (end.group, end.token)
            own = own and known and end.txid // schema.SPAN == youngest and not (end.from_check or end.recalls)
        return own

    def _lone(self) -> str | None:
        """Return the statement for a lone half, if this session can make its token."""
        if self._hot.lone is None:
            return None
        if self._pads is None:
            call = Call(self._hot.lone.pads, self._here)
            (found,) = until_answered(self._line, self._line.patience, lambda: self._line.exchange([call]))
            self._pads = Pads(*found[0]) if found else None
        return self._hot.lone.store if self._pads is not None else None

    def _issue(self, halves: Sequence[Half], receipts: Sequence[Receipt | TxSagaError]) -> None:
        """Remember the halves that may be decided without a lookup; drop the oldest."""
        if self._hot.decide_own is None or self._line.wire is not self._session:
            return
        for half, receipt in zip(halves, receipts, strict=True):
            if half.immunity is None and isinstance(receipt, Receipt):
                self._issued[receipt.txid] = receipt
        while len(self._issued) > ISSUED:
            self._issued.popitem(last=False)

    def _newest(self) -> int:
        """Return the number above which a batch is searched for after a lost answer."""
        if self._low is None:
            newest = Call(self._hot.newest, [])
            ((found,),) = until_answered(self._line, self._line.patience, lambda: self._line.exchange([newest])[0])
            self._low = int(found)
        return self._low

    def _stored(
        self, halves: Sequence[Half], batch: HotBatch, stored: Mapping[CallKind, Rows]
    ) -> Sequence[Receipt | TxSagaError]:
        receipts = {kind: self._receipts(batch.stored[kind], rows) for kind, rows in stored.items()}
        if CallKind.HELD in receipts:
            self._issue(batch.stored[CallKind.HELD], receipts[CallKind.HELD])
        if len(receipts) == 1:
            return receipts.popitem()[1]
        answers = {kind: iter(given) for kind, given in receipts.items()}
        return [next(answers[kind_of(half)]) for half in halves]

    def _receipts(self, halves: Sequence[Half], rows: Rows) -> list[Receipt | TxSagaError]:
        tokens = self._tokens(halves, rows)
        if not tokens:
            return [TransactionsRejected(str(self._identity)) for _ in halves]
        if len(tokens) != len(halves):
            damage = f"{len(halves)} transactions were stored as {len(tokens)}; the schema is damaged"
            return [StoreError(damage) for _ in halves]
        numbers = sorted(tokens)
        self._low = max(self._low or 0, numbers[-1])
        return [Receipt(txid, half.group, tokens[txid]) for txid, half in zip(numbers, halves, strict=True)]

    def _tokens(self, halves: Sequence[Half], rows: Rows) -> Mapping[int, bytes]:
        if self._pads is not None and rows and len(rows[0]) == 1:
            return {txid: self._pads.token(half.group, txid) for half, (txid,) in zip(halves, rows, strict=True)}
        return dict(rows)

    def _standings(self, ends: Sequence[End], decided: Rows) -> dict[int, DecisionOutcome | TxSagaError]:
        won, answers = dict.fromkeys(chain.from_iterable(decided)), dict[int, DecisionOutcome | TxSagaError]()
        for end in ends:
            if end.txid in won:
                answers[end.txid] = DecisionOutcome(end.txid, end.decision, True)
        if len(answers) == len(ends):
            return answers
        lost = [end for end in ends if end.txid not in won]
        call = standing(self._hot, lost)
        try:
            rows = until_answered(self._line, self._line.patience, lambda: self._line.exchange([call])[0])
        except TxSagaError as reason:
            silent = StoreUnavailable(f"what stands was not answered: {reason}; asking again is safe")
            return answers | {end.txid: silent for end in lost}
        stands = {row[0]: row[1:] for row in rows}
        return answers | {end.txid: _lost(end, *stands[end.txid]) for end in lost}

    def _repeated(
        self, ends: Sequence[End], standings: dict[int, DecisionOutcome | TxSagaError]
    ) -> Sequence[DecisionOutcome | TxSagaError]:
        """Run the later ends of a number once its first one is decided."""
        told = [standings.pop(end.txid, None) for end in ends]
        later = [end for end, answer in zip(ends, told, strict=True) if answer is None]
        answers: Iterator[DecisionOutcome | TxSagaError]
        try:
            answers = iter(self.write((), later).standings)
        except TxSagaError as reason:
            answers = repeat(reason)
        return [next(answers) if answer is None else answer for answer in told]


def _lost(
    end: End, decision: int | None, group: int | None, keyed: bool | None, genuine: bool
) -> DecisionOutcome | TxSagaError:
    refusal = _refusal(end, group, keyed, genuine)
    if refusal is not None:
        return refusal
    if decision is None:
        reason = "the message's own immunity has passed; the check decides"
        return EndRefused("ILLEGAL_OPERATION", f"transaction {end.txid}: {reason}")
    return DecisionOutcome(end.txid, Decision(decision), False)


def _refusal(end: End, group: int | None, keyed: bool | None, genuine: bool) -> TxSagaError | None:
    reason = None
    if group is None:
        reason = f"half not found: transaction {end.txid} is not in this store"
    elif group != end.group:
        reason = f"producer group wrong: transaction {end.txid} belongs to another group"
    elif keyed:
        reason = f"transaction {end.txid} is keyed; its own transaction decides it"
    if reason is not None:
        return EndRefused("SYSTEM_ERROR", reason)
    if not genuine:
        return UnknownTransaction(f"the token is not that of transaction {end.txid}; nothing was changed")
    return None
