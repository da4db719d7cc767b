"""
What producers, transactions and roles share: one store, its batchers, its decider, its resources.

It holds no rules of its own. If it is closed, what its batchers still hold is finished first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txsaga.engine.announce import Announcer
from txsaga.engine.batcher import Batcher
from txsaga.engine.decide import Decider
from txsaga.engine.final_write import FinalWrite
from txsaga.engine.hooks import EndHooks, request_for
from txsaga.engine.settle import Checker, Settler
from txsaga.engine.topics import Topics
from txsaga.errors import TxSagaError
from txsaga.model import facts
from txsaga.model.decision import Decision, LocalState
from txsaga.model.records import End, Group, Half, Receipt, Resource, Standing
from txsaga.ports.evidence import Evidence
from txsaga.ports.store import Store

Stored = Sequence[Receipt | TxSagaError]


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
        self.store, self.announce = store, announce
        self.evidence = evidence
        self.topics = Topics(store.registry, announce, auto_create=auto_create)
        self.checkers: dict[str, Checker] = {}
        self.hooks = EndHooks()
        self.decider = Decider(store.ledgers, announce)
        self.final_write = FinalWrite(store.halves, announce)
        self.settler = Settler(
            store,
            self.decider,
            self.final_write,
            evidence=lambda name: evidence(name)[1],
            checkers=self.checkers,
            hooks=self.hooks,
            announce=announce,
        )
        self.prepares: Batcher[Half, Receipt] = Batcher("prepare", self._prepare)
        self.publishes: Batcher[Half, Receipt] = Batcher("publish", self._publish)
        self.decides: Batcher[End, Standing] = Batcher("decide", self._decide)
        self._resources: dict[object, tuple[Resource, Evidence]] = {}
        self.on_decided: Callable[[], None] = lambda: None

    def resource(self, named: object) -> tuple[Resource, Evidence]:
        """Return a registered resource, pinned by its database's uuid, and its evidence."""
        known = self._resources.get(named)
        if known is None:
            name, evidence = self.evidence(named)
            with self.announce.around(facts.Registering, facts.Registered, about=f"evidence of {name}"):
                database = evidence.database
            with self.announce.around(facts.Registering, facts.Registered, about=f"resource {name}"):
                known = self._resources[named] = self.store.registry.resource(name, database), evidence
        return known

    def tell_hooks(self, group: Group, txid: int, token: bytes, decision: Decision, remark: str = "") -> None:
        """Tell the end hooks of a group of an end that came as no request."""
        if self.hooks.hear(group.name):
            halves, state = self.store.halves.views(txid), LocalState[decision.name]
            self.hooks.tell(
                request_for(self.store, txid, halves, group=group.name, token=token, state=state, remark=remark)
            )

    def close(self) -> None:
        """Finish what is queued."""
        for batcher in (self.prepares, self.publishes, self.decides):
            batcher.close()

    def _prepare(self, halves: Sequence[Half]) -> Stored:
        if not self.announce:
            return self.store.halves.prepare(halves)
        self.announce(facts.Preparing())
        stored = self.store.halves.prepare(halves)
        self.announce(facts.Prepared(_numbers(stored)))
        return stored

    def _publish(self, halves: Sequence[Half]) -> Stored:
        if not self.announce:
            stored = self.store.halves.publish(halves)
        else:
            self.announce(facts.Publishing())
            stored = self.store.halves.publish(halves)
            self.announce(facts.Published(_numbers(stored)))
        self.on_decided()
        return stored

    def _decide(self, ends: Sequence[End]) -> Sequence[Standing | TxSagaError]:
        answers = self.final_write(ends)
        self.on_decided()
        return answers


def _numbers(stored: Stored) -> tuple[int, ...]:
    return tuple(receipt.txid for receipt in stored if isinstance(receipt, Receipt))
