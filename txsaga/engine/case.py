"""
One transaction in doubt while it is settled: what lies stored of it, read when somebody needs it.

It holds no rules. Each thing is read at most once per check, however many ask.
"""

from __future__ import annotations

from functools import cached_property

from txsaga.model.records import Doubt, HalfView
from txsaga.ports.store import Store


class Case:
    """A doubt with its group and its halves."""

    def __init__(self, store: Store, doubt: Doubt) -> None:
        self._store, self.doubt = store, doubt

    @cached_property
    def group(self) -> str:
        """The name of its producer group."""
        return self._store.registry.group_by_id(self.doubt.group).name

    @cached_property
    def halves(self) -> tuple[HalfView, ...]:
        """Its halves as they lie."""
        return tuple(self._store.halves.views(self.doubt.txid))

    @property
    def id(self) -> str:
        """The id of the transaction."""
        return self._store.registry.identity.transaction(self.doubt.txid)

    @property
    def message_id(self) -> str:
        """The id of its first message; of the transaction when it has none."""
        return self.halves[0].id if self.halves else self.id
