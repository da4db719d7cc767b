"""
What a stream has bound to transactions, until it knows how they ended.

The block that consumed tells how it ended. Where it stayed undecided, or somebody else decided it, the store is
asked. If nobody asked, the chunks of a rollback would not come again before their queue changes hands.
"""

from __future__ import annotations

from collections.abc import Mapping

from txsaga.model.decision import Decision
from txsaga.model.records import Claimed
from txsaga.ports.ledger import Ledgers


class Bound:
    """The claims of undecided transactions, each as it was before its queue was first consumed."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._firsts: dict[int, dict[int, Claimed]] = {}  # by transaction and queue

    def __contains__(self, txid: object) -> bool:
        """Tell whether a transaction is one of these."""
        return txid in self._firsts

    @property
    def queues(self) -> frozenset[int]:
        """The queues that they hold."""
        return frozenset().union(*self._firsts.values())

    def add(self, txid: int, claim: Claimed) -> None:
        """Note that a transaction consumes from a claim on."""
        firsts = self._firsts.setdefault(txid, {})
        first = firsts.get(claim.qid)
        if first is None or first.epoch != claim.epoch:
            firsts[claim.qid] = claim

    def forget(self, txid: int) -> list[Claimed]:
        """Drop a transaction that is decided; return where its queues stood."""
        return list(self._firsts.pop(txid, {}).values())

    def decided(self) -> Mapping[int, Decision]:
        """Ask which of them are decided by now, and how."""
        if not self._firsts:
            return {}
        with self._ledgers.open() as ledger:
            standing = {txid: ledger.standing(txid) for txid in self._firsts}
        return {txid: decision for txid, decision in standing.items() if decision is not None}
