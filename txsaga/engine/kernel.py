"""
What producers, transactions and roles share: one store, its batchers, its decider, its resources.

It holds no rules of its own. If it is closed, what its batchers still hold is finished first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from txsaga.engine.announce import Announcer
from txsaga.engine.batcher import Batcher
from txsaga.engine.decide import Decider
from txsaga.engine.hooks import EndHooks, request_for
from txsaga.engine.pending import Pending
from txsaga.engine.settle import Checker, Settler
from txsaga.engine.topics import Topics
from txsaga.engine.writing import Answer, Write, Writing
from txsaga.errors import BrokerClosed, TxSagaError
from txsaga.model import facts
from txsaga.model.decision import Decision, LocalState
from txsaga.model.records import End, Group, Half, Receipt, Resource, Standing
from txsaga.ports.evidence import Evidence
from txsaga.ports.store import Store

logger = logging.getLogger("txsaga")

Item = TypeVar("Item")
Answered = TypeVar("Answered")


class Lane(Generic[Item, Answered]):
    """Calls of one kind in the batches that all kinds share: one commit carries them all."""

    def __init__(self, batcher: Batcher[Any, Any]) -> None:
        self.call: Callable[[Item], Answered] = batcher.call
        self.submit: Callable[[Item], Pending[Answered]] = batcher.submit


class Kernel:
    """One store with everything that works on it."""

    def __init__(
        self,
        store: Store,
        *,
        evidence: Callable[[object], tuple[str, Evidence]],
        announce: Announcer,
        auto_create: bool = False,
    ) -> None:
        self._store, self.closed = store, False
        self.announce = announce
        self.evidence = evidence
        self.topics = Topics(store.registry, announce, auto_create=auto_create)
        self.checkers: dict[str, Checker] = {}
        self.hooks = EndHooks()
        self.decider = Decider(store.ledgers, announce)
        self.writing = Writing(store.halves, announce)
        self.settler = Settler(
            store,
            self.decider,
            self.writing,
            evidence=lambda name: evidence(name)[1],
            checkers=self.checkers,
            hooks=self.hooks,
            announce=announce,
        )
        self._writes: Batcher[Write, Answer] = Batcher("store", self._write, weigh=_weight)
        self.stores: Lane[Half, Receipt] = Lane(self._writes)
        self.decides: Lane[End, Standing] = Lane(self._writes)
        self._resources: dict[str, tuple[Resource, Evidence]] = {}
        self.on_decided: Callable[[], None] = lambda: None

    def resource(self, named: object) -> tuple[Resource, Evidence]:
        """Return a registered resource, pinned by its database's uuid, and its evidence."""
        name, evidence = self.evidence(named)
        known = self._resources.get(name)
        if known is None:
            with self.announce.around(facts.Registering, facts.Registered, about=f"evidence of {name}"):
                database = evidence.database
            with self.announce.around(facts.Registering, facts.Registered, about=f"resource {name}"):
                known = self._resources[name] = self.store.registry.resource(name, database), evidence
        return known

    def tell_hooks(self, group: Group, txid: int, token: bytes, decision: Decision, remark: str = "") -> None:
        """Tell the end hooks of a group of an end that came as no request."""
        if self.hooks.hear(group.name):
            halves, state = self.store.halves.views(txid), LocalState[decision.name]
            self.hooks.tell(
                request_for(self.store, txid, halves, group=group.name, token=token, state=state, remark=remark)
            )

    @property
    def store(self) -> Store:
        """The store, until the broker is closed."""
        if self.closed:
            raise BrokerClosed
        return self._store

    def close(self) -> None:
        """Finish what is queued; what comes later is refused."""
        self._writes.close()
        self.closed = True

    def _write(self, batch: Sequence[Write]) -> Sequence[Answer | TxSagaError]:
        answers = self.writing(batch)
        if any(isinstance(item, End) or item.plain for item in batch):
            self._tell_decided()
        return answers

    def _tell_decided(self) -> None:
        try:
            self.on_decided()
        except Exception:  # the batch is written: an error here must not look like one of it
            logger.exception("nobody could be told of a decision; the next tick finds it")


def _weight(item: Write) -> int:
    return sum([len(row.body) for row in item.rows]) if isinstance(item, Half) else 0
