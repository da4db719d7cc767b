"""The key of evidence: a transaction's id as it crosses databases, split into columns.

It names the store and its incarnation, so that rows left by another store, or by an earlier life of this
one, never answer for a transaction that has only the number in common with theirs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from txsaga.errors import UnknownTransaction

_ID = re.compile(r"([0-9a-f]{32})-([0-9a-f]{1,8})-([0-9a-f]{1,16})")
_INCARNATION_END = 2**31  # what the columns hold
_TXID_END = 2**63


class EvidenceKey(NamedTuple):
    """Which store, which incarnation of it, which transaction."""

    store: str
    incarnation: int
    txid: int

    @classmethod
    @lru_cache(maxsize=256)  # each of a transaction's branches reads it
    def parse(cls, transaction: str) -> EvidenceKey:
        """Read what `StoreId.transaction` wrote."""
        found = _ID.fullmatch(transaction)
        key = cls(found[1], int(found[2], 16), int(found[3], 16)) if found else None
        if key is None or key.incarnation >= _INCARNATION_END or key.txid >= _TXID_END:
            raise UnknownTransaction(f"{transaction!r} is not the id of a transaction")
        return key
