"""
Calls in one batch by owners of whom a later one is in it, too: the transaction is theirs no more.

Whoever has a number as owner got it from the store, which stands there or beyond. A statement takes all calls of a
batch and answers by transaction, so both would be told what the later one said, and one would commit branches that
nobody asked for. They are refused without being sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txsaga.errors import Superseded


class Owned(NamedTuple):
    """A call by an owner."""

    call: object
    txid: int
    owner: int


def superseded(calls: Sequence[Owned]) -> dict[int, Superseded]:
    """Refuse those of earlier owners, by the `id` of each call."""
    latest: dict[int, int] = {}
    for _, txid, owner in calls:
        if owner > latest.get(txid, 0):
            latest[txid] = owner
    if len(latest) == len(calls):
        return {}
    return {id(call): Superseded(txid) for call, txid, owner in calls if owner < latest[txid]}
