"""
The work style on PostgreSQL: claims, in addition to the cursors.

Claiming and acknowledging are one statement each, sent straight to the server. If an acknowledgement were reported done
with its row still there, the message would be redelivered although its member was told that it would not be.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text

from txsaga.consume.claim import MOST, Burial, Claim, ClaimHold, Unread
from txsaga.consume.claim_end_statements import bury, extend, give_back, put_back, single_out
from txsaga.consume.dead_letter import Copy
from txsaga.core.retry import patiently
from txsaga.errors import ClaimLost, OutcomeUnknown, StoreUnavailable, TxSagaError
from txsaga.messages.hot_statements import RowSource, StatementForm
from txsaga.store.connection import transaction
from txsaga.store.pipeline import ConnectionLost, ConnectionPool
from txsaga.store.values import Value, float8, int4, int4_array, int4s, int8, int8s, texts
from txsaga.store.values import text as text_value
from txsaga.store.wire import Call, Rows

LAZY = "set_config('synchronous_commit', 'off', true)"
"""Commits without waiting for the disk: for statements whose loss is a redelivery."""

COPY = "message, extract(epoch FROM born)::float8, body"

# Locked rows belong to other members: skip to the next queue. The cursor is read again under its lock.
TAKE_NEW = """
WITH pick AS (
    SELECT c.qid, c.off, least(q.head - c.off, $4)::int AS size FROM {s}.cursor c JOIN {s}.queue q USING (qid)
     WHERE c.grp = $1 AND c.qid = ANY ($2) AND c.off < q.head
     ORDER BY c.qid <= $3, c.qid LIMIT 1 FOR UPDATE OF c SKIP LOCKED),
 moved AS (
    UPDATE {s}.cursor c SET off = c.off + p.size FROM pick p WHERE c.grp = $1 AND c.qid = p.qid)
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member)
SELECT $1, qid, off, size, (1::bigint << size) - 1, 1, clock_timestamp() + $5 * interval '1 second', $6, $7 FROM pick
RETURNING qid, base, size, open, attempts, receipt, {copy}, {lazy}"""

# The plan must start from the index by time: it can't use a clock that moves within a statement, and `+ 0` keeps the
# key from leading. The first message of each key is found in one scan of the line: a subquery per waiting message takes
# long. An expired run is split: its messages are redelivered one by one, each taken out by the next member that asks.
TAKE_DUE = """
WITH due AS MATERIALIZED (
    SELECT qid, base, size, open, attempts, until, history FROM {s}.claim c
     WHERE grp = $1 AND until <= statement_timestamp() AND qid + 0 = ANY ($2)
       AND (key IS NULL OR (qid, base) IN (
            SELECT DISTINCT ON (e.qid, e.key) e.qid, e.base FROM {s}.claim e
             WHERE e.grp = $1 AND e.qid = ANY ($2) AND e.key IS NOT NULL ORDER BY e.qid, e.key, e.base))
     ORDER BY until, qid, base LIMIT $3 FOR UPDATE SKIP LOCKED),
 first AS (SELECT * FROM due ORDER BY until, qid, base LIMIT 1),
 run AS (
    SELECT *, (SELECT min(i) FROM generate_series(0, size - 1) i WHERE open >> i & 1 = 1) AS at FROM first
     WHERE open & (open - 1) <> 0),
 chosen AS (
    SELECT due.qid, due.base, due.size FROM due, first f
     WHERE CASE WHEN f.attempts > 0 THEN (due.qid, due.base, due.size) = (f.qid, f.base, f.size)
                ELSE due.attempts = 0 END
       AND NOT EXISTS (SELECT FROM run)),
 less AS (
    UPDATE {s}.claim c SET open = run.open & ~(1::bigint << run.at) FROM run
     WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (run.qid, run.base, run.size)),
 alone AS (
    INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, receipt, member, history)
    SELECT $1, qid, base + at, 1, 1, attempts + 1, clock_timestamp() + $4 * interval '1 second', $5, $6, history
      FROM run RETURNING qid, base, size, open, attempts, receipt, {copy}),
 taken AS (
    UPDATE {s}.claim c SET until = clock_timestamp() + $4 * interval '1 second', receipt = $5, member = $6,
           attempts = c.attempts + 1
      FROM chosen x WHERE c.grp = $1 AND (c.qid, c.base, c.size) = (x.qid, x.base, x.size)
    RETURNING c.qid, c.base, c.size, c.open, c.attempts, c.receipt, {copy})
SELECT *, {lazy} FROM (SELECT * FROM alone UNION ALL SELECT * FROM taken) t"""

# Lock rows before reading them: of two calls that end the last messages of a run, one would find it changed.
ACK = """
WITH x AS MATERIALIZED (SELECT * FROM {rows} AS x(grp, qid, base, size, receipt, open)),
 held AS MATERIALIZED (
    SELECT c.grp, c.qid, c.base, c.size, c.receipt, c.open & x.open AS acked, c.open & ~x.open AS rest
      FROM x JOIN {s}.claim c USING (grp, qid, base, size, receipt)
     WHERE c.until > clock_timestamp() AND c.txid IS NULL AND c.open & x.open <> 0 FOR UPDATE OF c),
 done AS (
    DELETE FROM {s}.claim c USING held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest = 0),
 less AS (
    UPDATE {s}.claim c SET open = h.rest FROM held h
     WHERE (c.grp, c.qid, c.base, c.size) = (h.grp, h.qid, h.base, h.size) AND h.rest <> 0)
SELECT qid, base, size, receipt, acked FROM held"""
ACKS = RowSource(1, ("text", "int4", "int8", "int4", "int8", "int8"))

UNREAD = """
SELECT c.qid, c.off, least(q.head, c.off + :limit) AS upto FROM {s}.cursor c JOIN {s}.queue q USING (qid)
 WHERE c.grp = :grp AND c.qid = ANY (:qids) AND c.off < q.head
   AND (SELECT count(*) FROM (SELECT FROM {s}.claim w WHERE w.grp = c.grp AND w.qid = c.qid LIMIT :window) n) < :window
 ORDER BY c.qid <= :after, c.qid LIMIT 1"""

LINE_UP = """
WITH moved AS (
    UPDATE {s}.cursor SET off = :end WHERE grp = :grp AND qid = :qid AND off = :start RETURNING qid)
INSERT INTO {s}.claim (grp, qid, base, size, open, attempts, until, key)
SELECT :grp, :qid, :start + x.at - 1, 1, 1, 0, clock_timestamp(), x.key
  FROM moved, unnest(CAST(:keys AS bigint[])) WITH ORDINALITY AS x(key, at)"""


@dataclass(frozen=True)
class ClaimStatements:
    """The statements of one namespace."""

    take_new: str
    take_due: str
    ack: StatementForm
    unread: str
    line_up: str

    @classmethod
    def of(cls, schema: str) -> ClaimStatements:
        """Return the statements for a (quoted) namespace."""

        def write(sql: str, rows: str = "") -> str:
            return sql.format(s=schema, lazy=LAZY, copy=COPY, rows=rows).strip()

        return cls(
            take_new=write(TAKE_NEW),
            take_due=write(TAKE_DUE),
            ack=StatementForm(write(ACK, ACKS.one), write(ACK, ACKS.many)),
            unread=write(UNREAD),
            line_up=write(LINE_UP),
        )


class Claims:
    """Claims, in addition to the cursors. The store's clock decides; an expired claim is lost to its member.

    A cursor is after everything that was ever claimed; what of it is not done is in claims.
    """

    def __init__(self, engine: Engine, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._schema, self._owner = engine, f'"{namespace}"', owner
        self._sql = ClaimStatements.of(self._schema)
        self._lines = ConnectionPool(engine)

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: ClaimHold) -> Claim | None:
        """Claim up to `limit` messages that were never claimed, of the first free queue after `after`."""
        values = [text_value(group), int4_array(qids), int4(after), int4(min(limit, MOST)), *_held(hold)]
        found = self._taken(group, Call(self._sql.take_new, values))
        return found[0] if found else None

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: ClaimHold) -> Sequence[Claim]:
        """Claim messages that were put back or whose claim expired and that are due, raising their attempts.

        A message claimed before is delivered alone: if it kills its member, no other message is affected. An expired
        run is split. A message in line is delivered once no earlier one has its key.
        """
        values = [text_value(group), int4_array(qids), int4(limit), *_held(hold)]
        return sorted(self._taken(group, Call(self._sql.take_due, values)))

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Return messages to be lined up, of the first queue after `after` that has less than `window` in claims."""
        values = {"grp": group, "qids": list(qids), "after": after, "limit": limit, "window": window}
        with transaction(self._engine) as connection:
            row = connection.execute(text(self._sql.unread), values).one_or_none()
        return None if row is None else Unread(*row)

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims without a holder, each with its key; False when a rival was first."""
        values = {"grp": group, **found._asdict(), "keys": list(keys)}
        with transaction(self._engine) as connection:
            return connection.execute(text(self._sql.line_up), values).rowcount > 0

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Remove the open messages of these claims from the group; `ClaimLost` in the place of each that is lost.

        A message acknowledged, put back or bound earlier is lost to its claim; the claim's other messages are done.
        """
        if not claims:
            return []
        asked: dict[tuple[str, int, int, int, int], int] = {}
        for claim in claims:
            asked[_place(claim)] = asked.get(_place(claim), 0) | claim.open
        call = Call(self._sql.ack.of(len(asked)), _acks(asked))
        done, unknown = self._acked(call)
        lost = self._unknown if unknown else _lost
        return [None if not claim.open & ~done.get(_place(claim)[1:], 0) else lost(claim) for claim in claims]

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Extend a claim to this long from now; `ClaimLost` when it is lost."""
        with transaction(self._engine) as connection:
            if not extend(connection, self._schema, claim, by):
                raise _lost(claim)

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Put the one open message of a claim back, with the cause; `ClaimLost` when it is lost."""
        with transaction(self._engine) as connection:
            put_back(connection, self._schema, claim, delay, cause)

    def give_back(self, claim: Claim) -> None:
        """Put messages back at once, as if they had not been claimed; a lost claim is ignored."""
        with transaction(self._engine) as connection:
            give_back(connection, self._schema, claim)

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Remove the one open message of a claim from the group, to a backout queue or the dead letters.

        Both happen in one commit, with the history; `ClaimLost` when the claim is lost.
        """
        with transaction(self._engine) as connection:
            bury(connection, self._schema, claim, burial, owner=self._owner)

    def drop(self, claim: Claim) -> None:
        """Remove the one open message of a claim from the group for good; `ClaimLost` when it is lost."""
        with transaction(self._engine) as connection:
            single_out(connection, self._schema, claim, "DELETE FROM {s}.claim WHERE {mine}")

    def close(self) -> None:
        """Close every connection."""
        self._lines.close()

    def _taken(self, group: str, call: Call) -> list[Claim]:
        try:
            (rows,) = self._lines.exchange([call])
        except ConnectionLost as lost:
            # Messages that may have been claimed come again when the claim expires.
            raise StoreUnavailable(f"the home database went away while messages were taken: {lost}; retry") from lost
        return [_claim(group, *row) for row in rows]

    def _acked(self, call: Call) -> tuple[dict[tuple[Any, ...], int], bool]:
        """Acknowledge; return what is done, and whether the others may have been done by an unanswered attempt."""
        try:
            return _done(self._lines.exchange([call])), False
        except ConnectionLost:
            pass
        try:
            return _done(patiently(lambda: self._again(call))), True
        except StoreUnavailable as reason:
            raise OutcomeUnknown(f"whether messages were acknowledged is not known: {reason}") from reason

    def _again(self, call: Call) -> Sequence[Rows]:
        try:
            return self._lines.exchange([call])
        except ConnectionLost as lost:
            raise StoreUnavailable(str(lost)) from lost

    @staticmethod
    def _unknown(claim: Claim) -> TxSagaError:
        return OutcomeUnknown(
            f"whether messages from {claim.base} on of queue {claim.qid} were acknowledged is not known; "
            "if they were not, they come again"
        )


def _claim(
    group: str,
    qid: int,
    base: int,
    size: int,
    open: int,
    attempts: int,
    receipt: int,
    message: str | None,
    born: float,
    body: bytes,
    _: object,
) -> Claim:
    copy = None if message is None else Copy(message, datetime.fromtimestamp(born, UTC), body)
    return Claim(group, qid, base, size, open, attempts, receipt, copy)


def _held(hold: ClaimHold) -> list[Value]:
    # A receipt tells one claim from the next; it is no secret.
    return [float8(hold.seconds), int8(random.getrandbits(63)), text_value(hold.member)]


def _place(claim: Claim) -> tuple[str, int, int, int, int]:
    return claim.group, claim.qid, claim.base, claim.size, claim.receipt


def _acks(asked: dict[tuple[str, int, int, int, int], int]) -> list[Value]:
    groups, qids, bases, sizes, receipts = zip(*asked, strict=True)
    return [texts(groups), int4s(qids), int8s(bases), int4s(sizes), int8s(receipts), int8s(list(asked.values()))]


def _done(answers: Sequence[Rows]) -> dict[tuple[Any, ...], int]:
    return {tuple(place): acked for *place, acked in answers[0]}


def _lost(claim: Claim) -> ClaimLost:
    return ClaimLost(
        f"the claim on messages from {claim.base} on of queue {claim.qid} in group {claim.group!r} ran out; "
        "they come again: make the consumer's invisible time longer, or extend the claim"
    )
