"""
The ids that a client gives back: they hold all that the gateway needs, so that any instance can serve the next call.

    transaction id    the transaction, its producer group, and the token that allows to end it
    receipt handle    a claim on one message
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from txsaga import errors
from txsaga.consume.claim import COPIED, Claim
from txsaga.consume.dead_letter import Copy
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.records import Doubt, End, Receipt

TRANSACTION = re.compile(r"([0-9a-f-]{36,80})\.([0-9a-f]{1,8})\.((?:[0-9a-f]{2}){1,64})")
RECEIPT = re.compile(r"[0-9a-f]{1,16}(?:\.[0-9a-f]{1,16}){5}")
ELSEWHERE = Copy("", datetime.fromtimestamp(0, UTC), b"")
"""Stands for the copy of a replayed message, which the store has."""


def transaction_id(store: StoreId, stored: Receipt | Doubt) -> str:
    """Return the id by which a client ends a transaction."""
    return f"{store.transaction(stored.txid)}.{stored.group:x}.{stored.token.hex()}"


def end_of(store: StoreId, id: str, decision: Decision, *, from_check: bool = False, recalls: bool = False) -> End:
    """Return the end of the transaction with this id."""
    found = TRANSACTION.fullmatch(id)
    if found is None:
        raise errors.UnknownTransaction(f"{id[:99]!r} is no transaction id; give that of the send")
    txid, group, token = store.own(found[1]), int(found[2], 16), bytes.fromhex(found[3])
    if group >= 2**31:
        raise errors.UnknownTransaction(f"{id[:99]!r} names no producer group")
    return End(txid, group, token, decision, from_check=from_check, recalls=recalls)


def receipt_handle(claim: Claim) -> str:
    """Return the handle of a claim on one message."""
    numbers = (claim.qid, claim.base, claim.size, claim.open, claim.attempts, claim.receipt)
    return ".".join(f"{each:x}" for each in numbers)


def claim_of(group: str, handle: str) -> Claim:
    """Return the claim of a handle."""
    found = RECEIPT.fullmatch(handle)
    if found is not None:
        qid, base, size, open, attempts, receipt = (int(each, 16) for each in found[0].split("."))
        whole = max(base + size, receipt) < 2**63 and max(qid, attempts) < 2**31
        if whole and 1 <= size <= COPIED and open.bit_count() == 1 and open < 1 << size:
            return Claim(group, qid, base, size, open, attempts, receipt, ELSEWHERE if size == COPIED else None)
    raise errors.ClaimLost(f"{handle[:99]!r} is no receipt handle; give that of the message")
