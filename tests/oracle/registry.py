"""The registry of a store in memory: what is registered, and what its transactions look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from tests.oracle.doubts import MemoryDoubts
from tests.oracle.home import Home
from tests.oracle.names import Names
from tests.oracle.rows import Kept
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.lifecycle import TxState
from txsaga.core.records import EVERY, Group, RegisteredResource, TxFilter, TxView
from txsaga.core.topic import Topic, TopicType
from txsaga.errors import ConfigError
from txsaga.messages.registry_store import Registry

DECIDED = {Decision.COMMIT: TxState.COMMITTED, Decision.ROLLBACK: TxState.ROLLED_BACK}


class MemoryRegistry(Registry):
    """Topics, groups, resources and transactions by name and number."""

    def __init__(self, home: Home, names: Names, doubts: MemoryDoubts) -> None:
        self._home = home
        self._names = names
        self._doubts = doubts
        self._cluster: str | None = None

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to."""
        return self._cluster

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""
        return self._home.identity

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are refused now."""
        return self._home.rejecting

    def reject_transactions(self, rejecting: bool) -> None:
        """Switch halves off or on."""
        with self._home.lock:
            self._home.rejecting = rejecting

    def join_cluster(self, name: str | None) -> None:
        """Say which cluster the store belongs to."""
        self._cluster = name

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic, or find the same one."""
        if queues < 1:
            raise ConfigError(f"topic {name!r} can't have {queues} queues; it needs one at least")
        asked = Topic(
            id=0,
            name=name,
            type=type,
            qids=(),
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
        )
        return self._names.create_topic(asked, queues)

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Keep a topic's messages for another time or size."""
        return self._names.alter_topic(name, retention_seconds, retention_bytes)

    def topic(self, name: str) -> Topic:
        """Return a topic."""
        return self._names.topic(name)

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""
        return self._names.topics()

    def group(self, name: str, *, transactional: bool | None = None) -> Group:
        """Register a producer group, or find it."""
        return self._names.group(name, transactional=transactional)

    def find_group(self, name: str) -> Group | None:
        """Return a producer group by its name."""
        return self._names.find_group(name)

    def group_by_id(self, id: int) -> Group:
        """Return a producer group."""
        return self._names.group_by_id(id)

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""
        return self._names.groups()

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Let a producer group say something otherwise than the engine."""
        return self._names.alter_checks(name, changes)

    def resource(self, name: str, database: UUID) -> RegisteredResource:
        """Register a resource, or find it."""
        return self._names.resource(name, database)

    def enlist(self, id: int) -> None:
        """Note that branches may be prepared in a resource."""
        self._names.enlist(id)

    def enlisted(self) -> Sequence[RegisteredResource]:
        """Return the resources in which branches may be prepared."""
        return self._names.enlisted()

    def resource_by_id(self, id: int) -> RegisteredResource:
        """Return a resource."""
        return self._names.resource_by_id(id)

    def transactions(self, *, undecided: bool = False, limit: int, only: TxFilter = EVERY) -> Sequence[TxView]:
        """List transactions, newest first."""
        assert only is EVERY
        with self._home.lock:
            kept = self._home.kept
            txids = sorted({*kept.halves, *kept.lives}, reverse=True)
            wanted = [txid for txid in txids if not (undecided and txid in kept.ops)]
            return [self._view(kept, txid) for txid in wanted[:limit]]

    def transaction(self, txid: int) -> TxView | None:
        """Show one transaction."""
        with self._home.lock:
            kept = self._home.kept
            return self._view(kept, txid) if txid in kept.halves or txid in kept.lives else None

    def _view(self, kept: Kept, txid: int) -> TxView:
        op, opened = kept.ops.get(txid), kept.lives.get(txid)
        if opened is not None:
            life, born, _ = opened
            group, key, epoch, state = life.group, life.key, life.epoch, life.state
            evidence = life.evidence
        else:
            first = kept.halves[txid][0]
            group, key, epoch, state = first.group, None, None, TxState.PREPARED
            evidence, born = first.evidence, first.born
        due = None if op else kept.scheduled.get(txid)
        if self._doubts.parked(txid):
            state = TxState.PARKED
        return TxView(
            txid=txid,
            id=self.identity.transaction(txid),
            group=self._names.group_name(group),
            key=key,
            epoch=epoch,
            state=DECIDED[op.decision] if op else state if due is None else "scheduled",
            resource=None if not evidence else self.resource_by_id(evidence).name,
            born=born,
            decision=op.decision if op else None,
            from_check=op is not None and op.from_check,
            due=due,
        )
