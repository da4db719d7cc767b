"""
Requests by earlier owners in a batch that also has a later owner's: the transaction is no longer theirs.

An owner got its number from the store, which has that number or a higher one. A statement takes all requests of a batch
and answers by transaction: both owners would get the later one's answer, and the earlier one would commit branches that
no decision names. Earlier requests are refused without being sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txsaga.errors import Superseded


class Owned(NamedTuple):
    """A request by an owner."""

    call: object
    txid: int
    owner: int


def superseded(calls: Sequence[Owned]) -> dict[int, Superseded]:
    """Refuse the requests of earlier owners, by the `id` of each."""
    latest: dict[int, int] = {}
    for _, txid, owner in calls:
        if owner > latest.get(txid, 0):
            latest[txid] = owner
    if len(latest) == len(calls):
        return {}
    return {id(call): Superseded(txid) for call, txid, owner in calls if owner < latest[txid]}
