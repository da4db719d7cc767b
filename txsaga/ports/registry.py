"""What is registered in a store: topics, producer groups, resources, and who the store is."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from txsaga.model.identity import StoreId
from txsaga.model.records import Group, Resource, TxView
from txsaga.model.topic import Topic, TopicType


class Registry(Protocol):
    """Topics, groups and resources by name."""

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""

    @property
    def rejects_transactions(self) -> bool:
        """Whether halves are refused now."""

    def reject_transactions(self, rejecting: bool) -> None:
        """Switch halves off or on."""

    @property
    def cluster(self) -> str | None:
        """The cluster that the store belongs to, if it was ever told."""

    def join_cluster(self, name: str | None) -> None:
        """Say which cluster the store belongs to; None for none."""

    def create_topic(
        self,
        name: str,
        type: TopicType,
        queues: int,
        retention_seconds: int | None = None,
        retention_bytes: int | None = None,
    ) -> Topic:
        """Create a topic; the same again is no error, other settings are `TopicExists`."""

    def alter_topic(self, name: str, retention_seconds: int | None, retention_bytes: int | None) -> Topic:
        """Keep a topic's messages for another time or size; `UnknownTopic` for one that does not exist."""

    def topic(self, name: str) -> Topic:
        """Return a topic or raise `UnknownTopic`."""

    def topics(self) -> Sequence[Topic]:
        """Return all topics by name."""

    def group(self, name: str, *, transactional: bool) -> Group:
        """Register a producer group; `GroupKindMismatch` when it is of the other kind."""

    def find_group(self, name: str) -> Group | None:
        """Return a registered producer group by name."""

    def group_by_id(self, id: int) -> Group:
        """Return a registered producer group."""

    def producer_groups(self) -> Sequence[Group]:
        """Return all producer groups by name."""

    def alter_checks(self, name: str, changes: Mapping[str, object]) -> Group:
        """Let a producer group say something otherwise than the engine; None takes a part back.

        `UnknownProducerGroup` for one that is not registered.
        """

    def resource(self, name: str, database: UUID) -> Resource:
        """Register a resource under its database's uuid."""

    def enlist(self, id: int) -> None:
        """Note that branches may be prepared in a resource: recovery looks there from now on."""

    def enlisted(self) -> Sequence[Resource]:
        """Return the resources in which branches may be prepared."""

    def resource_by_id(self, id: int) -> Resource:
        """Return a registered resource."""

    def transactions(self, *, undecided: bool, limit: int) -> Sequence[TxView]:
        """List transactions, newest first."""

    def transaction(self, txid: int) -> TxView | None:
        """Show one transaction."""
