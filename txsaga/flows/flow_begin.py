"""
Beginning a flow and joining it: one process declares where its steps may work, others find it by key or number.

A flow has no single owner while its steps run: each process that joins adds steps, and only the last one raises the
owner, which closes the flow to steps (R3). Once its lease has expired, check-back rolls it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from txsaga import errors
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Group, TxRecord
from txsaga.flows.requests import Entered
from txsaga.flows.saga import undo
from txsaga.flows.step import Amendment, Enrolled
from txsaga.messages.tx_records import TxRecords, amended

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


JOINED = 1
"""The owner number of a flow to which steps can be added."""


class FlowStart(NamedTuple):
    """The options with which a flow is begun."""

    enrolled: Sequence[Enrolled]
    lease: timedelta
    run: str | None = None
    amend: str | None = None  # identifier of this amendment; without one, committed work stays as it is


class FlowOpening:
    """Finds flows, or begins them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def begin(self, group: Group, key: str, said: FlowStart) -> Entered:
        """Begin a flow, or join the one that was begun with the same options under its key."""
        with self._kernel.announce.around(facts.Declaring, about=key):
            while True:
                try:
                    with self._kernel.store.ledgers.open() as ledger:
                        life = _tried(ledger, group, key, said)
                        found = None if life is None else ledger.flows.look(life.txid)
                except errors.OutcomeUnknown:
                    continue  # anything written is found again by the key
                except errors.NotCompensated as left:
                    undo(self._kernel, left)
                    continue
                if found is None:
                    continue
                if found.life.state is TxState.ACTIVE:
                    return found
                try:
                    TxRecords(self._kernel).settle_first(found.life, key)
                except errors.AlreadyCommitted:
                    if said.amend is None:
                        raise

    def join(self, group: Group, key: str) -> Entered:
        """Join the flow with this key."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.latest(group.id, key)
            found = None if life is None else ledger.flows.look(life.txid)
        if found is None:
            raise errors.FlowUnknown(
                f"no flow was begun under key {key!r}; begin it with producer.begin_flow(…, key={key!r})"
            )
        _joined(found.life, key)
        return found

    def join_by_number(self, txid: int) -> Entered:
        """Join the flow with this number."""
        with self._kernel.store.ledgers.open() as ledger:
            found = ledger.flows.look(txid)
        if found is None:
            raise errors.FlowUnknown(f"transaction {txid} is not in this store, or it is not a flow")
        _joined(found.life, found.life.key or "")
        return found


def _tried(ledger: Ledger, group: Group, key: str, said: FlowStart) -> TxRecord | None:
    """Return the record of a key, begun or joined; one that is sealed has to be settled first."""
    life = ledger.latest(group.id, key)
    match life:
        case None:
            return _fresh(ledger, group, key, 1, said)
        case TxRecord(state=TxState.ROLLED_BACK, txid=txid) if ledger.has_open_saga(txid):
            raise errors.NotCompensated(txid, f"key {key!r} can be used again after that; retry later")
        case TxRecord(state=TxState.ROLLED_BACK, epoch=epoch):
            return _fresh(ledger, group, key, epoch + 1, said, amended(ledger, life))
        case TxRecord(state=TxState.COMMITTED, txid=txid, lease=None):
            raise errors.AlreadyCommitted(txid, key)
        case TxRecord(state=TxState.COMMITTED, txid=txid, epoch=epoch):
            return _fresh(ledger, group, key, epoch + 1, said, txid)
        case TxRecord(state=TxState.ACTIVE, txid=txid):
            _joined(life, key)
            _require_same(txid, ledger.flows.enrolled(txid), said.enrolled)
            _amend(ledger, life, said, amended(ledger, life))
            ledger.touch(txid)
    return life


def _fresh(
    ledger: Ledger, group: Group, key: str, epoch: int, said: FlowStart, of: int | None = None
) -> TxRecord | None:
    """Create a record for a key; after a committed one only if an amendment is named, and not committed yet."""
    if of is not None and (done := of if said.amend is None else _done_by(ledger, group, key, said.amend)) is not None:
        raise errors.AlreadyCommitted(done, key)
    life = ledger.create(group.id, key, epoch, said.run, lease=said.lease)
    if life is not None:
        ledger.flows.enrol(life.txid, said.enrolled)
        _amend(ledger, life, said, of)
    return life


def _done_by(ledger: Ledger, group: Group, key: str, word: str) -> int | None:
    """Return the committed transaction that was begun by this identifier: a late retry amends nothing."""
    life = ledger.latest(group.id, key)
    while life is not None:
        found = ledger.flows.amendment(life.txid)
        if life.state is TxState.COMMITTED and found is not None and found.by == word:
            return life.txid
        life = ledger.latest(group.id, key, before=life.epoch)
    return None


def _amend(ledger: Ledger, life: TxRecord, said: FlowStart, of: int | None) -> None:
    if said.amend is not None:
        ledger.flows.amend(life.txid, Amendment(said.amend, of))


def entered(ledger: Ledger, life: TxRecord) -> Entered:
    """Lock an undecided flow, renew its lease, and return it with its steps."""
    found = ledger.flows.enter(life.txid)
    if found is None or found.life.token != life.token:  # another store uses the same numbers
        raise errors.FlowUnknown(f"transaction {life.txid} is not in this store")
    if found.standing is not None:
        raise errors.DecidedOtherwise(life.txid, found.standing.name)
    if found.life.state is not TxState.ACTIVE:
        raise errors.TransactionClosed(f"flow {life.txid} is sealed; it takes no more work")
    return found


def opened(ledger: Ledger, life: TxRecord) -> Entered:
    """Do the same, and require that steps can be added."""
    found = entered(ledger, life)
    require_joined(found.life)
    return found


def require_joined(life: TxRecord) -> None:
    """Refuse to add to a flow that a process is ending, or began to end."""
    if life.owner != JOINED:
        raise errors.TransactionClosed(
            f"flow {life.txid} is being ended; no step can be added any more: end it, or roll back"
        )


def _joined(life: TxRecord, key: str) -> None:
    if life.lease is None:
        raise errors.KeyInUse(key, f"transaction {life.txid}, which is not a flow")
    if life.state is TxState.COMMITTED:
        raise errors.AlreadyCommitted(life.txid, key)
    if life.state is TxState.ROLLED_BACK:
        raise errors.DecidedOtherwise(life.txid, Decision.ROLLBACK.name)


def _require_same(txid: int, known: Sequence[Enrolled], said: Sequence[Enrolled]) -> None:
    if sorted(known) != sorted(said):
        told = ", ".join(f"{each.resource}{' (lane)' if each.lane else ''}" for each in known) or "nothing"
        raise errors.ConfigError(
            f"flow {txid} was begun with {told}; begin it the same way again, or join it with producer.flow(key)"
        )
