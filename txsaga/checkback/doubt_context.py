"""
One transaction in doubt while it is settled: its stored data, read on demand.

It holds no rules. Each thing is read at most once per check, however often it is used.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from txsaga.core.layout import unpack
from txsaga.core.message import Message
from txsaga.core.records import Doubt, EvidenceOutcome, HalfView
from txsaga.errors import ChunkDamaged

if TYPE_CHECKING:
    from txsaga.store.store import Store


class Seen(NamedTuple):
    """Evidence read together with that of others, or why it could not be read."""

    resource: int
    outcome: EvidenceOutcome | None = None
    unread: str | None = None
    later: bool = False  # nothing is wrong: there was no time to read it

    @property
    def committed(self) -> bool:
        """Whether the local work is committed."""
        return self.outcome is not None and self.outcome.committed


class DoubtContext:
    """A doubt with its group and its half messages; callers that know the group's name pass it."""

    seen: Seen | None = None

    def __init__(self, store: Store, doubt: Doubt, group: str | None = None) -> None:
        self._store, self.doubt = store, doubt
        if group is not None:
            self.group = group

    @cached_property
    def group(self) -> str:
        """The name of its producer group."""
        return self._store.registry.group_by_id(self.doubt.group).name

    @cached_property
    def key(self) -> str | None:
        """Its key, if it has one."""
        view = self._store.overview.transaction(self.doubt.txid)
        return view.key if view else None

    @cached_property
    def halves(self) -> tuple[HalfView, ...]:
        """Its stored half messages."""
        return tuple(self._store.halves.views(self.doubt.txid))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Its messages as they were sent, with their transaction's id among the headers."""
        messages = list[Message]()
        for topic, body in self._store.halves.contents(self.doubt.txid):
            try:
                messages += [message.stored_in(self.id) for message in unpack(topic, body)]
            except ChunkDamaged as damage:
                txid = self.doubt.txid
                queues = sorted({half.real_queue for half in self.halves if half.real_topic == topic})
                raise ChunkDamaged(
                    f"the messages of transaction {txid} for topic {topic!r}, queue {', '.join(map(str, queues))}, "
                    f"can't be read: {damage}, or roll it back: `txsaga tx rollback {txid}`"
                ) from damage
        return tuple(messages)

    @property
    def id(self) -> str:
        """The id of the transaction."""
        return self._store.registry.identity.transaction(self.doubt.txid)

    @property
    def message_id(self) -> str:
        """The id of its first message; of the transaction when it has none."""
        return self.halves[0].id if self.halves else self.id
