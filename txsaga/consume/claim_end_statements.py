"""
The end of one claimed message that was not acknowledged: it is redelivered, buried, or bound to a transaction.

Each statement runs in the caller's database transaction, on a row of its own: a message of a run is first taken out of
it. Otherwise the other messages of the run would share its outcome.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import rolled_back
from txsaga.errors import ClaimLost
from txsaga.store import sql_files
from txsaga.store.connection import Run

SQL = sql_files.read("consume/sql/claim_end.sql")


def mine(claim: Claim) -> dict[str, Any]:
    """Return a claim's parameters."""
    names = ("qid", "base", "size", "receipt", "open")
    return {"grp": claim.group, **{name: getattr(claim, name) for name in names}}


def single_out(run: Run, claim: Claim, then: str, **values: object) -> Claim:
    """Move the one open message of a claim to a row of its own, run a statement on that row, and return its claim."""
    _require_held(run, claim)
    if claim.size > 1 and claim.copy is None:
        _take_out(run, claim)
        claim = claim._replace(base=next(claim.offsets()), size=1, open=1)
    run(then, **mine(claim), **values)
    return claim


def bind(run: Run, claim: Claim, txid: int, retry: timedelta) -> None:
    """Bind the open messages of a claim to a transaction: only its decision ends their claim."""
    _require_held(run, claim)
    offsets = list(claim.offsets())
    if claim.size > 1 and claim.copy is None:
        _take_out(run, claim)
        claim = claim._replace(size=1)
    run(SQL["bind"], **mine(claim), offsets=offsets, txid=txid, retry=retry)


def decided(run: Run, txid: int, *, why: str | None) -> None:
    """Remove a transaction's messages from their groups; with a reason (it did not commit), redeliver them."""
    if why is None:
        run(SQL["committed"], txid=txid)
    else:
        run(SQL["rolled_back"], txid=txid, cause=rolled_back(txid, why))


def _take_out(run: Run, claim: Claim) -> None:
    """Move the open messages of a run to a row each."""
    for step in (SQL["take_out"], SQL["leave_run"], SQL["end_run"]):
        run(step, **mine(claim))


def _require_held(run: Run, claim: Claim) -> None:
    """Lock a claim, or raise `ClaimLost`."""
    if run(SQL["lock"], **mine(claim)).one_or_none() is None:
        raise ClaimLost(
            f"the claim on message {next(claim.offsets())} of queue {claim.qid} in group {claim.group!r} is over: "
            "the message is done already, or comes again"
        )
