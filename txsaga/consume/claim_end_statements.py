"""
The end of one claimed message that was not acknowledged: it is redelivered, buried, or bound to a transaction.

Each statement runs in the caller's database transaction, on a row of its own: a message of a run is first taken out of
it. Otherwise the other messages of the run would share its outcome.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, TextClause, text

from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import rolled_back
from txsaga.errors import ClaimLost
from txsaga.store import sql_files

SQL = sql_files.read("consume/sql/claim_end.sql")


def mine(claim: Claim) -> dict[str, Any]:
    """Return a claim's parameters."""
    names = ("qid", "base", "size", "receipt", "open")
    return {"grp": claim.group, **{name: getattr(claim, name) for name in names}}


def single_out(connection: Connection, schema: str, claim: Claim, then: str, **values: object) -> None:
    """Move the one open message of a claim to a row of its own, and run a statement on that row."""
    _require_held(connection, schema, claim)
    if claim.size > 1 and claim.copy is None:
        _take_out(connection, schema, claim)
        claim = claim._replace(base=next(claim.offsets()), size=1, open=1)
    connection.execute(statement(then, schema), {**mine(claim), **values})


def bind(connection: Connection, schema: str, claim: Claim, txid: int, retry: timedelta) -> None:
    """Bind the open messages of a claim to a transaction: only its decision ends their claim."""
    _require_held(connection, schema, claim)
    offsets = list(claim.offsets())
    if claim.size > 1 and claim.copy is None:
        _take_out(connection, schema, claim)
        claim = claim._replace(size=1)
    named = {**mine(claim), "offsets": offsets, "txid": txid, "retry": retry}
    connection.execute(statement(SQL["bind"], schema), named)


def decided(connection: Connection, schema: str, txid: int, *, why: str | None) -> None:
    """Remove a transaction's messages from their groups; with a reason (it did not commit), redeliver them."""
    if why is None:
        connection.execute(statement(SQL["committed"], schema), {"txid": txid})
    else:
        connection.execute(statement(SQL["rolled_back"], schema), {"txid": txid, "cause": rolled_back(txid, why)})


def _take_out(connection: Connection, schema: str, claim: Claim) -> None:
    """Move the open messages of a run to a row each."""
    for step in (SQL["take_out"], SQL["leave_run"], SQL["end_run"]):
        connection.execute(statement(step, schema), mine(claim))


def _require_held(connection: Connection, schema: str, claim: Claim) -> None:
    """Lock a claim, or raise `ClaimLost`."""
    if connection.execute(statement(SQL["lock"], schema), mine(claim)).one_or_none() is None:
        raise ClaimLost(
            f"the claim on message {next(claim.offsets())} of queue {claim.qid} in group {claim.group!r} ran out; "
            "the message comes again"
        )


def statement(sql: str, schema: str) -> TextClause:
    """Return a statement for a (quoted) namespace."""
    return text(sql.format(s=schema))
