"""
The end of one claimed message that was not acknowledged: it is redelivered, buried, or bound to a transaction.

Each statement runs in the caller's database transaction, on a row of its own: a message of a run is first taken out of
it. Otherwise the other messages of the run would share its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, text

from txsaga.consume.claim import Burial, Claim
from txsaga.consume.dead_letter import rolled_back
from txsaga.errors import ClaimLost
from txsaga.store import sql_files

SQL = sql_files.read("consume/sql/claim_end.sql")


def mine(claim: Claim) -> dict[str, Any]:
    """Return a claim's parameters."""
    names = {"grp": claim.group, "qid": claim.qid, "base": claim.base, "size": claim.size}
    return {**names, "receipt": claim.receipt}


def single_out(connection: Connection, schema: str, claim: Claim, then: str, **values: object) -> None:
    """Move the one open message of a claim to a row of its own, and run a statement on that row."""
    named = _held(connection, schema, claim)
    if claim.size > 1 and claim.copy is None:
        alone = next(claim.offsets())
        connection.execute(_text(SQL["alone"], schema), {**mine(claim), "alone": alone})
        connection.execute(_text(SQL["leave_run"], schema), named)
        connection.execute(_text(SQL["end_run"], schema), mine(claim))
        claim = claim._replace(base=alone, size=1, open=1)
    connection.execute(_text(then, schema), {**mine(claim), **values})


def extend(connection: Connection, schema: str, claim: Claim, by: timedelta) -> bool:
    """Extend a claim to this long from now; return False when it is lost."""
    named = {**mine(claim), "open": claim.open, "by": by}
    return connection.execute(_text(SQL["extend"], schema), named).rowcount > 0


def put_back(connection: Connection, schema: str, claim: Claim, delay: timedelta, cause: str) -> None:
    """Put a message back for redelivery."""
    single_out(connection, schema, claim, SQL["put_back"], delay=delay, cause=cause)


def give_back(connection: Connection, schema: str, claim: Claim) -> None:
    """Put messages back, uncounted."""
    named = {**mine(claim), "open": claim.open}
    if claim.size == 1 or claim.copy is not None:
        connection.execute(_text(SQL["give_back"], schema), mine(claim))
    elif connection.execute(_text(SQL["lock_some"], schema), named).one_or_none() is not None:
        for step in (SQL["apart"], SQL["leave_run"], SQL["end_run"]):
            connection.execute(_text(step, schema), named)


def bury(connection: Connection, schema: str, claim: Claim, burial: Burial, *, owner: bool) -> None:
    """Remove a message from the group, to a backout queue or the dead letters."""
    copy = burial.copy
    if burial.backout is None:
        values = {**copy._asdict(), "uncounted": burial.uncounted}
        single_out(connection, schema, claim, SQL["dead"], topic=burial.topic, cause=burial.cause, **values)
    else:
        backed_out = SQL["backed_out"] if owner else SQL["back_out"]
        single_out(connection, schema, claim, backed_out, to=burial.backout, body=copy.body)


def forget(connection: Connection, schema: str, group: str, qids: Sequence[int] | None, why: str) -> None:
    """Drop a group's claims, on some queues or on all; a replayed message has no other copy, so it is dead again."""
    connection.execute(_text(SQL["forgotten"], schema), {"grp": group, "qids": qids, "why": why})


def bind(connection: Connection, schema: str, claim: Claim, txid: int, retry: timedelta) -> None:
    """Bind the open messages of a claim to a transaction: only its decision ends their claim."""
    named = {**_held(connection, schema, claim), "txid": txid, "retry": retry, "alone": list(claim.offsets())}
    run = claim.size > 1 and claim.copy is None
    for step in (SQL["each_alone"], SQL["leave_run"], SQL["end_run"], SQL["bind_each"]) if run else (SQL["bind"],):
        connection.execute(_text(step, schema), named)


def decided(connection: Connection, schema: str, txid: int, *, why: str | None) -> None:
    """Remove a transaction's messages from their groups; with a reason (it did not commit), redeliver them."""
    if why is None:
        connection.execute(_text(SQL["committed"], schema), {"txid": txid})
    else:
        connection.execute(_text(SQL["rolled_back"], schema), {"txid": txid, "cause": rolled_back(txid, why)})


def _held(connection: Connection, schema: str, claim: Claim) -> dict[str, Any]:
    """Lock a claim, or raise `ClaimLost`; return the parameters of its open messages."""
    named = {**mine(claim), "open": claim.open}
    if connection.execute(_text(SQL["lock"], schema), named).one_or_none() is None:
        raise ClaimLost(
            f"the claim on message {next(claim.offsets())} of queue {claim.qid} in group {claim.group!r} ran out; "
            "the message comes again"
        )
    return named


def _text(sql: str, schema: str) -> Any:
    return text(sql.format(s=schema))
