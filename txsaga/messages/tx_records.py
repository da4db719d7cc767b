"""
Records of keyed transactions: opening a key, locking a record against its decision.

A key has one record per epoch; the next epoch opens after ROLLED_BACK. Within a record each re-join raises the owner
number: the previous owner is superseded and can add nothing any more (R3, R4). Without that fence, a retry and the
attempt before it would both be delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from txsaga import errors
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Doubt, Group, TxRecord

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class TxRecords:
    """Opens and locks records."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def enter(self, group: Group, key: str, run: str | None = None, *, undoes: bool = False) -> TxRecord:
        """Open a key: a first record, a take-over, or the next epoch; `AlreadyCommitted` if it is committed.

        Only a caller that `undoes` the steps it finds takes a saga over.
        """
        with self._kernel.announce.around(facts.Opening, about=key):
            while True:
                try:
                    life = self._try(group, key, run, undoes=undoes)
                except errors.OutcomeUnknown:
                    continue  # the retry finds under the key whatever was written
                if life is None:
                    continue
                if life.state is TxState.ACTIVE:
                    return life
                self.settle_first(life, key)

    def open_unkeyed(self, group: Group, run: str | None = None) -> TxRecord:
        """Open a record without a key."""
        with self._kernel.announce.around(facts.Opening), self._kernel.store.ledgers.open() as ledger:
            life = ledger.create(group.id, None, 1, run)
        assert life is not None
        return life

    def hold(self, ledger: Ledger, life: TxRecord) -> None:
        """Lock a record against its decision, raise unless it is still ours and open, and record its owner as alive."""
        self._require(ledger.share(life.txid), life)
        ledger.touch(life.txid)

    def own(self, ledger: Ledger, life: TxRecord) -> None:
        """Lock a record exclusively, raise unless it is still ours and open, and record its owner as alive."""
        self._require(ledger.lock(life.txid), life)
        ledger.touch(life.txid)

    def has_ended(self, life: TxRecord) -> bool:
        """Return whether the closing point of this owner was written, after its answer was lost."""
        with self._kernel.store.ledgers.open() as ledger:
            current, ended = ledger.lock(life.txid), (TxState.SEALED, TxState.COMMITTED)  # check-back may be faster
        return current is not None and current.owner == life.owner and current.state in ended

    def _try(self, group: Group, key: str, run: str | None, *, undoes: bool) -> TxRecord | None:
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.latest(group.id, key)
            if life is None:
                return ledger.create(group.id, key, 1, run)
            match life.state:
                case TxState.ACTIVE if life.lease is not None:
                    raise errors.KeyInUse(key, f"flow {life.txid}")
                case TxState.ACTIVE if not undoes and ledger.has_open_saga(life.txid):
                    raise errors.KeyInUse(key, f"saga {life.txid}, whose steps may have to be undone")
                case TxState.ACTIVE:
                    return ledger.take_over(life.txid)
                case TxState.COMMITTED:
                    raise errors.AlreadyCommitted(life.txid, key)
                case TxState.ROLLED_BACK:
                    if ledger.has_open_saga(life.txid):
                        raise errors.NotCompensated(life.txid, f"key {key!r} can be used again after that; retry later")
                    if (of := amended(ledger, life)) is not None:
                        raise errors.AlreadyCommitted(of, key)
                    return ledger.create(group.id, key, life.epoch + 1, run)
                case _:
                    return life

    def settle_first(self, life: TxRecord, key: str) -> None:
        """Settle the closed record of a key; `AlreadyCommitted`, or `InDoubt` while its outcome is unknown."""
        standing, why = None, "it is out of checks"
        if life.state is not TxState.PARKED:
            checked = self._kernel.settler.check(Doubt.of(life))
            standing, why = checked.standing, checked.why
        if standing is None:
            raise errors.InDoubt(
                f"key {key!r} is in doubt: transaction {life.txid} is {life.state} ({why}); retry later, or check "
                f"`txsaga tx show {life.txid}`"
            )
        if standing.decision is Decision.COMMIT:
            raise errors.AlreadyCommitted(life.txid, key)

    def _require(self, current: TxRecord | None, life: TxRecord) -> None:
        if current is None or current.token != life.token:  # another store may use the same number
            raise errors.UnknownTransaction(f"transaction {life.txid} is not in this store")
        if current.state is TxState.COMMITTED or current.state is TxState.ROLLED_BACK:
            standing = Decision.COMMIT if current.state is TxState.COMMITTED else Decision.ROLLBACK
            raise errors.DecidedOtherwise(life.txid, standing.name)
        if current.owner != life.owner:
            raise errors.Superseded(life.txid)
        if current.state is not TxState.ACTIVE:
            raise errors.TransactionClosed(f"transaction {life.txid} is sealed; nothing can be added any more")


def amended(ledger: Ledger, life: TxRecord) -> int | None:
    """Return the committed transaction that a record amends."""
    if life.epoch == 1:
        return None
    found = ledger.flows.amendment(life.txid)
    return None if found is None else found.of


def all_amended(ledger: Ledger, life: TxRecord) -> Iterator[int]:
    """Yield the committed transaction that a record amends, then the one that it amended in turn, and so on."""
    of = amended(ledger, life)
    while of is not None:
        yield of
        found = ledger.flows.amendment(of)
        of = None if found is None else found.of
