"""
The hot path on PostgreSQL: halves, plain messages and decisions, a batch of all three in one commit.

Each batch has exclusive use of a session: threads and event loops run theirs concurrently. If a batch never runs, its
callers got no answer and none of it is stored.
"""

from __future__ import annotations

import random
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, auto
from hashlib import sha256
from itertools import chain, groupby, repeat
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import ARRAY, BigInteger, Engine, any_, func, literal, select

from txsaga.checkback.profile import MIN_AGE
from txsaga.core.decision import Decision
from txsaga.core.identity import HalfId, StoreId
from txsaga.core.records import Content, DecisionOutcome, Due, End, Half, HalfView, HalvesWritten, Receipt, Row
from txsaga.core.retry import PATIENCE, patiently
from txsaga.core.topic import HALF_TOPIC
from txsaga.errors import (
    EndRefused,
    InvalidMessage,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TransactionsRejected,
    TxSagaError,
    UnknownTransaction,
)
from txsaga.messages.hot_statements import Hot, StatementForm
from txsaga.store import schema
from txsaga.store.connection import by_index, transaction
from txsaga.store.pipeline import ConnectionLost, PipelineConnection, Pool, until_answered
from txsaga.store.values import (
    Value,
    bools,
    byteas,
    float8s_or_null,
    int4,
    int4_array,
    int4_or_null,
    int4s,
    int4s_or_null,
    int8,
    int8_array,
    int8s,
    uuid,
)
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
    """Batches on one connection, for one caller at a time; it remembers the halves it stored itself.

    It decides its own halves without reading them first. If it forgot what it stored, each decision would cost a
    lookup; if it took another session's half for its own, a transaction already decided could be decided again.
    """

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


RESENDS = 3
"""Maximum resends: a batch that breaks every connection would be sent for ever."""


class CallKind(IntEnum):
    """What is stored with a half; an integer for speed: it is looked up per half."""

    HELD = auto()  # nothing: it is decided later
    PLAIN = auto()  # its COMMIT
    LATER = auto()  # the time when it is due


def kind_of(half: Half) -> CallKind:
    """Return the kind of a half."""
    if half.plain:
        return CallKind.PLAIN
    return CallKind.HELD if half.due is None else CallKind.LATER


class HotStore(NamedTuple):
    """A call that stores halves of one kind, and the batch number for finding them."""

    call: Call
    number: Value
    kind: CallKind


class HotBatch:
    """What one transaction writes: all its halves and decisions are committed, or none.

    If its answer was lost, it is looked up by its numbers before anything is sent again: the old backend is ended
    first, so that it can't store the batch after the lookup (R14). Without the lookup, a caller would retry a message
    that is already stored, and an orphan half would wait for a decision for ever.

    With `own` its ends are written unchecked: the session stored all their halves itself. Otherwise, even if only some
    are others', all are checked together: two batches with the same ends must take their numbers in the same order.
    """

    def __init__(
        self,
        hot: Hot,
        halves: Sequence[Half],
        ends: Sequence[End],
        own: StatementForm | None = None,
        lone: str | None = None,
    ) -> None:
        self._hot, self._ends, self.own, self._lone = hot, ends, own, lone
        self._alone = len(halves) + len(ends) == 1
        self.stored: dict[CallKind, list[Half]] = {}
        for half in halves:
            self.stored.setdefault(kind_of(half), []).append(half)
        self._stores = [_store(hot, kind, stored) for kind, stored in self.stored.items()]

    def answered(self, line: PipelineConnection, low: int, here: Sequence[Value]) -> tuple[dict[CallKind, Rows], Rows]:
        """Run the batch until its answer is known; return the rows of each kind of half, and of the decisions."""
        try:
            return self._by_kind(self._first(line, here))
        except ConnectionLost:
            pass
        try:
            return self._by_kind(self._again(line, low))
        except (TxSagaError, ConnectionLost) as reason:
            # An error after the first loss shows nothing about the first try.
            raise OutcomeUnknown(f"whether this batch was written is not known: {reason}") from reason

    def _first(self, line: PipelineConnection, here: Sequence[Value]) -> Sequence[Rows]:
        stores, alike = [store.call for store in self._stores], self._hot.prepare_alike
        if self._lone is not None and alike is not None and stores[0].sql == alike.one:
            stored = line.exchange([Call(self._lone, [*stores[0].values, *here])], alone=self._alone)
            if stored[0]:  # empty if the store rejects, or is another one: the full statement finds out which
                return stored
        if not self._ends:
            return line.exchange(stores)
        if self.own is not None:
            try:
                *stored, ((written,),) = line.exchange(
                    [*stores, _own_call(self.own, self._ends, here)], alone=self._alone
                )
                if written == len(self._ends):
                    return [*stored, [(end.txid,) for end in self._ends]]
                self.own = None  # a user's trigger skipped some: ask for the outcome of each
                return [*stored, []]
            except StoreError as refused:
                if not isinstance(refused.__cause__, psycopg.IntegrityError):
                    raise
                self.own = None  # another process decided one of them: nothing was written
        return line.exchange([*stores, *self._decides()])

    def _again(self, line: PipelineConnection, low: int) -> Sequence[Rows]:
        stores, decides = [store.call for store in self._stores], self._decides()
        for _ in range(RESENDS):
            patiently(line.connection, min(line.patience, PATIENCE))
            try:
                return self._found(line, low, decides) or line.exchange([*stores, *decides])
            except ConnectionLost as lost:
                reason = lost
        raise reason

    def _found(self, line: PipelineConnection, low: int, decides: Sequence[Call]) -> list[Rows] | None:
        """If the batch was stored, run only its decisions and return all rows; None if it was not."""
        if not self._stores:
            return None
        lookups = [Call(self._hot.batch, [int8(low), store.number]) for store in self._stores]
        stored: list[Rows] = [*line.exchange(lookups)]
        if not any(stored):
            return None
        return stored + (line.exchange(decides) if decides else [])

    def _decides(self) -> list[Call]:
        """Return the calls that check the halves and decide them."""
        recalls = [end for end in self._ends if end.recalls]
        decides = [end for end in self._ends if not end.recalls] if recalls else self._ends
        kinds = ((self._hot.decide, decides), (self._hot.recall, recalls))
        return [Call(form.of(len(some)), _end_values(some)) for form, some in kinds if some]

    def _by_kind(self, answers: Sequence[Rows]) -> tuple[dict[CallKind, Rows], Rows]:
        stored = dict(zip(self.stored, answers, strict=False))
        return stored, list(chain.from_iterable(answers[len(stored) :]))


def standing(hot: Hot, ends: Sequence[End]) -> Call:
    """Return the call that asks for the final decision, or the fault, of ends that got no row."""
    return Call(hot.standing.of(len(ends)), _named(ends))


def _store(hot: Hot, kind: CallKind, halves: Sequence[Half]) -> HotStore:
    number = int8(random.getrandbits(63))  # distinguishes batches, not a secret
    alike = hot.prepare_alike if kind is CallKind.HELD else hot.publish_alike if kind is CallKind.PLAIN else None
    if alike is not None and (values := _alike_values(halves)):
        return HotStore(Call(alike.of(len(halves)), [number, *values]), number, kind)
    rows = [(at == 0, half, row) for half in halves for at, row in enumerate(half.rows)]
    if not all(half.rows for half in halves):
        raise InvalidMessage("a transaction without messages can't be stored; send at least one")
    form = {CallKind.HELD: hot.prepare, CallKind.PLAIN: hot.publish, CallKind.LATER: hot.schedule}[kind]
    times = _times(rows) if kind is CallKind.LATER else []
    return HotStore(Call(form.of(len(rows)), [number, *_half_values(rows), *times]), number, kind)


def _alike_values(halves: Sequence[Half]) -> list[Value | None]:
    """Lay out single-message halves that differ only in queue and body; return [] if they differ in more."""
    group, _, evidence, immunity = halves[0][:4]
    qids, bodies = [], []
    for half in halves:
        rows = half.rows
        if len(rows) != 1 or (half.group, half.evidence, half.immunity) != (group, evidence, immunity):
            return []
        ((qid, chunk, count, body),) = rows
        if chunk or count != 1:
            return []
        qids.append(qid)
        bodies.append(body)
    plain = int4(group), int4_or_null(evidence), int4_or_null(immunity)
    return [*plain, int4s(qids), byteas(bodies)]


def _half_values(rows: Sequence[tuple[bool, Half, Row]]) -> list[Value | None]:
    return [
        bools([first for first, _, _ in rows]),
        int4s([half.group for _, half, _ in rows]),
        int4s([row.qid for _, _, row in rows]),
        int4s([row.chunk for _, _, row in rows]),
        int4s([row.count for _, _, row in rows]),
        int4s_or_null([half.evidence for _, half, _ in rows]),
        int4s_or_null([half.immunity for _, half, _ in rows]),
        byteas([row.body for _, _, row in rows]),
    ]


def _times(rows: Sequence[tuple[bool, Half, Row]]) -> list[Value | None]:
    due = [half.due or Due() for _, half, _ in rows]
    return [
        float8s_or_null([None if each.delay is None else each.delay.total_seconds() for each in due]),
        float8s_or_null([None if each.at is None else each.at.timestamp() for each in due]),
    ]


def _end_values(ends: Sequence[End]) -> list[Value]:
    decisions = int4s([end.decision for end in ends])
    return [*_named(ends), decisions, bools([end.from_check for end in ends]), int4(MIN_AGE)]


def _own_call(form: StatementForm, ends: Sequence[End], here: Sequence[Value]) -> Call:
    if len(ends) == 1:
        ((number, _, _, decision, *_),) = ends
        return Call(form.one, [int8(number), int4(decision), *here])
    numbers, decisions = int8_array([end.txid for end in ends]), int4_array([end.decision for end in ends])
    return Call(form.many, [numbers, decisions, *here])


def _named(ends: Sequence[End]) -> list[Value]:
    return [
        int8s([end.txid for end in ends]),
        int4s([end.group for end in ends]),
        byteas([end.token for end in ends]),
    ]


_half = schema.half.c
SHOWN = (_half.txid, _half.part, _half.attempt, _half.qid, _half.chunk, _half.n, _half.born, _half.keyed)
"""Columns of a half to read: never the body, which may be megabytes."""


class HalfStore:
    """Stores and decides many transactions in one durable step.

    If a batch raises, nothing was stored; the store has verified that by reading back.
    """

    def __init__(self, engine: Engine, hot: Hot, identity: StoreId, patience: float = PATIENCE) -> None:
        self._engine, self._hot, self._identity = engine, hot, identity
        self._sessions = Pool(lambda: HalfSession(engine, hot, identity, patience))

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> HalvesWritten:
        """Store halves in the given order, plain ones together with their COMMIT, and write decisions.

        A half with `due` goes on the schedule, undecided; a ROLLBACK that `recalls` removes it.

        A half is durable and invisible when this returns. The first durable decision is final. Refused (an error in
        its position, nothing changed): an end of a half that does not exist or that belongs to another group or a
        keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        if not halves and not ends:
            return HalvesWritten([], [])
        with self._sessions.taken() as session:
            return session.write(halves, ends)

    def views(self, txid: int) -> Sequence[HalfView]:
        """Return the stored halves of a transaction; none for an unknown one."""
        return list(self.views_of([txid]).get(txid, ()))

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Return the stored halves of several transactions."""
        h, q, t, o, g = schema.half, schema.queue, schema.topic, schema.op, schema.producer_group
        p, sender = schema.part, func.coalesce(g.c.name, "").label("group_name")
        # Looked up one by one: a join may read every decision.
        decision = select(o.c.decision).where(o.c.txid == h.c.txid).scalar_subquery().label("decision")
        winner = select(p.c.attempt).where(p.c.txid == h.c.txid, p.c.part == h.c.part).scalar_subquery().label("winner")
        query = (
            select(*SHOWN, q.c.idx, t.c.name, sender, decision, winner)
            .join_from(h, q, q.c.qid == h.c.qid)
            .join(t, t.c.id == q.c.topic)
            .outerjoin(g, g.c.id == h.c.pgroup)
            .where(h.c.txid == any_(literal(txids, ARRAY(BigInteger))))
            .order_by(h.c.txid, h.c.part, h.c.attempt, h.c.qid, h.c.chunk)
        )
        with by_index(self._engine) as connection:
            rows = connection.execute(query).all()
        return {txid: tuple(map(self._view, lying)) for txid, lying in groupby(rows, lambda row: row.txid)}

    def contents(self, txid: int) -> Sequence[Content]:
        """Return what a transaction would deliver: its halves; for a keyed one, those of the attempts that count."""
        with transaction(self._engine) as connection:
            rows = connection.exec_driver_sql(self._hot.contents, {"txid": txid})
            return [Content(topic, bytes(body)) for topic, body in rows]

    def close(self) -> None:
        """Close the idle sessions; those in use are closed when they are returned."""
        self._sessions.close()

    def _view(self, row: Any) -> HalfView:
        counts = not row.keyed or row.winner == row.attempt  # halves of a superseded attempt never count
        committed = row.decision == Decision.COMMIT and counts
        half = HalfId(self._identity, row.txid, row.part, row.attempt, row.qid, row.chunk, 0)
        return HalfView(
            id=half.encode(),
            topic=row.name if committed else HALF_TOPIC,
            queue=row.idx if committed else 0,
            real_topic=row.name,
            real_queue=row.idx,
            group=row.group_name,
            prepared=row.decision is None,
            flag="NOT" if row.decision is None else "COMMIT" if committed else "ROLLBACK",
            count=row.n,
            born=row.born,
        )
