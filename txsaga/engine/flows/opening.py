"""
Beginning a flow and joining it: one process declares where its steps may work, any other finds it by key or number.

A flow has no one owner while its steps are at work: whoever joins adds steps, and only its last process raises the
owner, which shuts the flow to steps (R3). It waits for its lease to be heard of; then check-back rolls it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from txsaga.engine.coordinator.lanes import able
from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.saga.entering import undo
from txsaga.errors import AlreadyCommitted, ConfigError, DecidedOtherwise, OutcomeUnknown, TransactionClosed
from txsaga.errors.flows import FlowUnknown
from txsaga.errors.saga import NotCompensated
from txsaga.model import facts
from txsaga.model.decision import Decision
from txsaga.model.flow_step import Enrolled
from txsaga.model.lifecycle import TxState
from txsaga.model.records import Group, Life
from txsaga.ports.ledger import Ledger

JOINED = 1
"""The owner of a flow to which steps can be added."""


class Opening:
    """Finds flows, or begins them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._lives = kernel, Lives(kernel)

    def begin(
        self, group: Group, key: str, enrolled: Sequence[Enrolled], lease: timedelta, run: str | None = None
    ) -> Life:
        """Begin a flow, or join the one that was begun like that under its key."""
        for each in enrolled:
            able(self._kernel, each.resource) if each.lane else self._kernel.participant(each.resource)
        with self._kernel.announce.around(facts.Declaring, about=key):
            while True:
                try:
                    life = self._try(group, key, enrolled, lease, run)
                except OutcomeUnknown:
                    continue  # whatever was done is found again under the key
                except NotCompensated as left:
                    undo(self._kernel, left)
                    continue
                if life is None:
                    continue
                if life.state is TxState.ACTIVE:
                    return life
                self._lives.settle_first(life, key)

    def join(self, group: Group, key: str) -> Life:
        """Join the flow of a key."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.latest(group.id, key)
        if life is None:
            raise FlowUnknown(f"no flow was begun under key {key!r}; begin it with producer.begin_flow(…, key={key!r})")
        return _joined(life, key)

    def join_by_number(self, txid: int) -> Life:
        """Join the flow of a number."""
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.lock(txid)
        if life is None:
            raise FlowUnknown(f"transaction {txid} is not in this store, or it is no flow")
        return _joined(life, life.key or "")

    def _try(
        self, group: Group, key: str, enrolled: Sequence[Enrolled], lease: timedelta, run: str | None
    ) -> Life | None:
        with self._kernel.store.ledgers.open() as ledger:
            life = ledger.latest(group.id, key)
            match life:
                case None:
                    return self._fresh(ledger, group, key, 1, enrolled, lease, run)
                case Life(state=TxState.ROLLED_BACK, txid=txid) if ledger.compensates(txid):
                    raise NotCompensated(txid, f"key {key!r} opens again once it is; retry later")
                case Life(state=TxState.ROLLED_BACK, epoch=epoch):
                    return self._fresh(ledger, group, key, epoch + 1, enrolled, lease, run)
                case Life(state=TxState.COMMITTED, txid=txid):
                    raise AlreadyCommitted(txid, key)
                case Life(state=TxState.ACTIVE, txid=txid):
                    _joined(life, key)
                    _require_same(txid, ledger.flows.enrolled(txid), enrolled)
                    ledger.touch(txid)
            return life

    def _fresh(
        self,
        ledger: Ledger,
        group: Group,
        key: str,
        epoch: int,
        enrolled: Sequence[Enrolled],
        lease: timedelta,
        run: str | None,
    ) -> Life | None:
        life = ledger.create(group.id, key, epoch, run, lease=lease)
        if life is not None:
            ledger.flows.enrol(life.txid, enrolled)
        return life


def opened(ledger: Ledger, life: Life) -> Life:
    """Lock a flow, make sure that steps can be added, and show that somebody is at work."""
    return require_joined(locked(ledger, life))


def require_joined(life: Life) -> Life:
    """Refuse to add to a flow that somebody is ending, or began to end."""
    if life.owner != JOINED:
        raise TransactionClosed(f"flow {life.txid} is being ended; no step can be added any more: end it, or roll back")
    return life


def locked(ledger: Ledger, life: Life) -> Life:
    """Lock a flow that is not decided, and show that somebody is at work."""
    current = ledger.lock(life.txid)
    if current is None or current.token != life.token:  # another store counts its transactions alike
        raise FlowUnknown(f"transaction {life.txid} is not in this store")
    standing = ledger.standing(life.txid)
    if standing is not None:
        raise DecidedOtherwise(life.txid, standing.name)
    if current.state is not TxState.ACTIVE:
        raise TransactionClosed(f"flow {life.txid} is closed: its end is written")
    ledger.touch(life.txid)
    return current


def _joined(life: Life, key: str) -> Life:
    if life.lease is None:
        raise ConfigError(
            f"key {key!r} belongs to transaction {life.txid}, which is no flow; "
            "flows and other transactions of a group need keys of their own"
        )
    if life.state is TxState.COMMITTED:
        raise AlreadyCommitted(life.txid, key)
    if life.state is TxState.ROLLED_BACK:
        raise DecidedOtherwise(life.txid, Decision.ROLLBACK.name)
    return life


def _require_same(txid: int, known: Sequence[Enrolled], said: Sequence[Enrolled]) -> None:
    if sorted(known) != sorted(said):
        told = ", ".join(f"{each.resource}{' (lane)' if each.lane else ''}" for each in known) or "nothing"
        raise ConfigError(
            f"flow {txid} was begun with {told}; begin it the same way again, or join it with producer.flow(key)"
        )
