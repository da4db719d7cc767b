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

from sqlalchemy import Engine

from txsaga.consume.claim import MOST, Burial, Claim, ClaimHold, Unread
from txsaga.consume.claim_end_statements import SQL as END
from txsaga.consume.claim_end_statements import mine, single_out
from txsaga.consume.dead_letter import Copy
from txsaga.core.retry import patiently
from txsaga.errors import ClaimLost, OutcomeUnknown, StoreUnavailable, TxSagaError
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore
from txsaga.store.pipeline import ConnectionLost, ConnectionPool, Rows
from txsaga.store.statement import BatchStatement, PreparedStatement, StatementCall

SQL = sql_files.read("consume/sql/claim.sql")

HOLD = ("float8", "int8", "text")  # seconds, receipt, member


@dataclass(frozen=True)
class ClaimStatements:
    """The statements of one namespace."""

    take_new: PreparedStatement
    take_due: PreparedStatement
    ack: BatchStatement

    @classmethod
    def of(cls, schema: str) -> ClaimStatements:
        """Return the statements for a (quoted) namespace."""
        new, due = (SQL[name].format(s=schema) for name in ("take_new", "take_due"))
        acked = ("text", "int4", "int8", "int4", "int8", "int8")
        return cls(
            take_new=PreparedStatement.of(new, ("text", "int4[]", "int4", "int4", *HOLD)),
            take_due=PreparedStatement.of(due, ("text", "int4[]", "int4", *HOLD)),
            ack=BatchStatement.of(lambda rows: SQL["ack"].format(s=schema, rows=rows), acked),
        )


class Claims(NamespaceStore):
    """Claims: what is not done of everything before the cursors. The store's clock decides when one expires."""

    def __init__(self, engine: Engine, namespace: str, *, owner: bool = True) -> None:
        super().__init__(engine, namespace)
        self._owner, self._sql = owner, ClaimStatements.of(self._schema)
        self._lines = ConnectionPool(engine)

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: ClaimHold) -> Claim | None:
        """Claim up to `limit` messages that were never claimed, of the first free queue after `after`."""
        found = self._taken(group, self._sql.take_new.call(group, qids, after, min(limit, MOST), *_held(hold)))
        return found[0] if found else None

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: ClaimHold) -> Sequence[Claim]:
        """Claim messages that were put back or whose claim expired and that are due, raising their attempts.

        A message claimed before is delivered alone: if it kills its member, no other message is affected. An expired
        run is split. A message in line is delivered once no earlier one has its key.
        """
        return sorted(self._taken(group, self._sql.take_due.call(group, qids, limit, *_held(hold))))

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Return messages to be lined up, of the first queue after `after` that has less than `window` in claims."""
        row = self._row(SQL["unread"], grp=group, qids=list(qids), after=after, limit=limit, window=window)
        return None if row is None else Unread(*row)

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims without a holder, each with its key; False when a rival was first."""
        return self._changed(SQL["line_up"], grp=group, keys=list(keys), **found._asdict()) > 0

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Remove the open messages of these claims from the group; `ClaimLost` in the place of each that is lost.

        A message acknowledged, put back or bound earlier is lost to its claim; the claim's other messages are done.
        """
        if not claims:
            return []
        asked: dict[tuple[str, int, int, int, int], int] = {}
        for claim in claims:
            asked[_place(claim)] = asked.get(_place(claim), 0) | claim.open
        done, unknown = self._acked(self._sql.ack.call([(*place, open) for place, open in asked.items()]))
        lost = self._unknown if unknown else _lost
        return [None if not claim.open & ~done.get(_place(claim)[1:], 0) else lost(claim) for claim in claims]

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Extend a claim to this long from now; `ClaimLost` when it is lost."""
        if not self._changed(END["extend"], **mine(claim), by=by):
            raise _lost(claim)

    def extend_alone(self, claim: Claim, by: timedelta) -> Claim:
        """Extend the claim on its one open message, no longer with others, and return it anew: no other call has it."""
        fresh = random.getrandbits(63)
        with self._open() as run:
            return single_out(run, claim, END["extend_alone"], by=by, fresh=fresh)._replace(receipt=fresh)

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Put the one open message of a claim back, with the cause; `ClaimLost` when it is lost."""
        with self._open() as run:
            single_out(run, claim, END["put_back"], delay=delay, cause=cause)

    def give_back(self, claim: Claim) -> None:
        """Put messages back at once, as if they had not been claimed; a lost claim is ignored."""
        with self._open() as run:
            if claim.size == 1 or claim.copy is not None:
                run(END["give_back"], **mine(claim))
            elif run(END["lock_some"], **mine(claim)).one_or_none() is not None:
                for step in (END["apart"], END["leave_run"], END["end_run"]):
                    run(step, **mine(claim))

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Move the one open message of a claim to a backout queue or the dead letters; `ClaimLost` when it is lost."""
        copy = burial.copy
        if burial.backout is None:
            values = {**copy._asdict(), "topic": burial.topic, "cause": burial.cause, "uncounted": burial.uncounted}
            then = END["dead"]
        else:
            values, then = {"to": burial.backout, "body": copy.body}, END["backed_out" if self._owner else "back_out"]
        with self._open() as run:
            single_out(run, claim, then, **values)

    def drop(self, claim: Claim) -> None:
        """Remove the one open message of a claim from the group for good; `ClaimLost` when it is lost."""
        with self._open() as run:
            single_out(run, claim, SQL["drop"])

    def close(self) -> None:
        """Close every connection."""
        self._lines.close()

    def _taken(self, group: str, call: StatementCall) -> list[Claim]:
        try:
            (rows,) = self._lines.exchange([call])
        except ConnectionLost as lost:
            # Messages that may have been claimed come again when the claim expires.
            raise StoreUnavailable(
                f"the home database became unavailable while messages were taken: {lost}; retry"
            ) from lost
        return [_claim(group, row) for row in rows]

    def _acked(self, call: StatementCall) -> tuple[dict[tuple[Any, ...], int], bool]:
        """Acknowledge; return what is done, and whether the others may have been done by an unanswered attempt."""
        try:
            return _done(self._lines.exchange([call])), False
        except ConnectionLost:
            pass
        try:
            return _done(patiently(lambda: self._again(call))), True
        except StoreUnavailable as reason:
            raise OutcomeUnknown(f"it is unknown whether messages were acknowledged: {reason}") from reason

    def _again(self, call: StatementCall) -> Sequence[Rows]:
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


def _claim(group: str, row: Sequence[Any]) -> Claim:
    *held, message, born, body, _ = row
    copy = None if message is None else Copy(message, datetime.fromtimestamp(born, UTC), body)
    return Claim._make([group, *held, copy])


def _held(hold: ClaimHold) -> tuple[float, int, str]:
    # A receipt tells one claim from the next; it is no secret.
    return hold.seconds, random.getrandbits(63), hold.member


def _place(claim: Claim) -> tuple[str, int, int, int, int]:
    return claim.group, claim.qid, claim.base, claim.size, claim.receipt


def _done(answers: Sequence[Rows]) -> dict[tuple[Any, ...], int]:
    return {tuple(place): acked for *place, acked in answers[0]}


def _lost(claim: Claim) -> ClaimLost:
    return ClaimLost(
        f"the claim on messages from {claim.base} on of queue {claim.qid} in group {claim.group!r} is over: "
        "they are done already, or it ran out and they come again: then make the invisible time longer, or extend it"
    )
