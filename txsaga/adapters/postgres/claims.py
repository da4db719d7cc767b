"""
The work style on PostgreSQL: claims beside the cursors.

Taking and acknowledging go straight to the server, each in one statement. If an acknowledgement were told "done"
without its row gone, the message would come again although its member was told that it never would.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text

from txsaga.adapters.postgres.claim_ends import bury, extend, give_back, put_back, single_out
from txsaga.adapters.postgres.claim_statements import ClaimStatements
from txsaga.adapters.postgres.connection import transaction
from txsaga.adapters.postgres.line import ConnectionLost, Lines
from txsaga.adapters.postgres.values import Value, float8, int4, int4_array, int4s, int8, int8s, texts
from txsaga.adapters.postgres.values import text as text_value
from txsaga.adapters.postgres.wire import Call, Rows
from txsaga.engine.patience import patiently
from txsaga.errors import ClaimLost, OutcomeUnknown, StoreUnavailable, TxSagaError
from txsaga.model.claim import MOST, Burial, Claim, Hold, Unread
from txsaga.model.dead_letter import Copy


class PostgresClaims:
    """Claims of one namespace."""

    def __init__(self, engine: Engine, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._schema, self._owner = engine, f'"{namespace}"', owner
        self._sql = ClaimStatements.of(self._schema)
        self._lines = Lines(engine)

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: Hold) -> Claim | None:
        """Claim messages that nobody has taken yet."""
        values = [text_value(group), int4_array(qids), int4(after), int4(min(limit, MOST)), *_held(hold)]
        found = self._taken(group, Call(self._sql.take_new, values))
        return found[0] if found else None

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: Hold) -> Sequence[Claim]:
        """Claim messages whose time has come."""
        values = [text_value(group), int4_array(qids), int4(limit), *_held(hold)]
        return sorted(self._taken(group, Call(self._sql.take_due, values)))

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Find messages to be lined up."""
        values = {"grp": group, "qids": list(qids), "after": after, "limit": limit, "window": window}
        with transaction(self._engine) as connection:
            row = connection.execute(text(self._sql.unread), values).one_or_none()
        return None if row is None else Unread(*row)

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims that nobody holds, each with its key."""
        values = {"grp": group, **found._asdict(), "keys": list(keys)}
        with transaction(self._engine) as connection:
            return connection.execute(text(self._sql.line_up), values).rowcount > 0

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Take messages off the group."""
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
        """Hold a claim for so long from now on."""
        with transaction(self._engine) as connection:
            if not extend(connection, self._schema, claim, by):
                raise _lost(claim)

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Let a message come again."""
        with transaction(self._engine) as connection:
            put_back(connection, self._schema, claim, delay, cause)

    def give_back(self, claim: Claim) -> None:
        """Let messages come again at once, uncounted."""
        with transaction(self._engine) as connection:
            give_back(connection, self._schema, claim)

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Take a message off the group, into a backout queue or to the dead letters."""
        with transaction(self._engine) as connection:
            bury(connection, self._schema, claim, burial, owner=self._owner)

    def drop(self, claim: Claim) -> None:
        """Take a message off the group for good."""
        with transaction(self._engine) as connection:
            single_out(connection, self._schema, claim, "DELETE FROM {s}.claim WHERE {mine}")

    def close(self) -> None:
        """Close every line."""
        self._lines.close()

    def _taken(self, group: str, call: Call) -> list[Claim]:
        try:
            (rows,) = self._lines.exchange([call])
        except ConnectionLost as lost:
            # What may have been taken comes again when its time is over.
            raise StoreUnavailable(f"the home database went away while messages were taken: {lost}; retry") from lost
        return [_claim(group, *row) for row in rows]

    def _acked(self, call: Call) -> tuple[dict[tuple[Any, ...], int], bool]:
        """Acknowledge; tell what is done, and whether what is not could be done by a try that was not answered."""
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


def _held(hold: Hold) -> list[Value]:
    # A receipt tells one claim from the next; it guards nothing.
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
