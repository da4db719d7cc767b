"""
What producers, transactions and roles share: one store, its batchers, its decider, its resources.

It holds no rules of its own. When it is closed, it first finishes what its batchers still hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txsaga.checkback.checkers import Checkers, Question
from txsaga.checkback.judge import Judge, Settler
from txsaga.checkback.runs import Runs
from txsaga.checkback.work_in_progress import WorkInProgress
from txsaga.consume.claim import Claim
from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.batcher import Batcher
from txsaga.core.decision import Decision
from txsaga.core.fibers import Loops, run_blocking
from txsaga.core.records import DecisionOutcome, End, Half, Receipt, RegisteredResource
from txsaga.core.timeboxed_calls import TimeboxedCalls
from txsaga.errors import BrokerClosed, TxSagaError
from txsaga.evidence.ports import Evidence
from txsaga.flows.batches import AnnouncedBatches, OutcomeWriter
from txsaga.flows.requests import Answer, Request
from txsaga.messages.decide import Decider
from txsaga.messages.effects import HomeEffect
from txsaga.messages.halves_writer import HalvesWriter, Write
from txsaga.messages.topics import Topics
from txsaga.resources.participant import Participant
from txsaga.resources.services import Services

if TYPE_CHECKING:
    from txsaga.lake.home_rows_store import PostgresHomeRows
    from txsaga.lake.opening import LakeOpener
    from txsaga.store.store import Store


logger = logging.getLogger("txsaga")

Handler = Callable[[Question], Decision | None]
"""What a group does with a transaction that is out of checks: ROLLBACK, or None for no answer."""


class Kernel:
    """One store with everything that works on it."""

    def __init__(
        self,
        store: Store,
        *,
        evidence: Callable[[object], tuple[str, Evidence]],
        participants: Callable[[str], Participant],
        announce: Announcer,
        member: str,
        auto_create: bool,
        effects: Mapping[str, HomeEffect],
        tables: LakeOpener,
        rows: PostgresHomeRows,
        services: Services,
        in_loop: Loops,
        jitter: Callable[[], float],
    ) -> None:
        self._store, self.closed = store, False
        self._wake: Callable[[], None] = lambda: None
        self.announce, self.services, self.jitter = announce, services, jitter
        self.in_loop = in_loop
        self.member = member  # its name in the producer groups that it answers for
        self.evidence = evidence
        self.reach = participants  # for finishing work that another process began; nothing is written for that
        self.tables, self.rows = tables, rows  # of the home catalog, and of the home database besides txsaga's own
        self.topics = Topics(store.registry, announce, auto_create=auto_create)
        self.checkers = Checkers()
        self.running = WorkInProgress()
        self.handlers: dict[str, Handler] = {}
        self.runs: Runs | None = None
        self.beside = TimeboxedCalls()
        self.decider = Decider(store.ledgers, announce, effects=effects, wake=self.tell_decided)
        self._writing = HalvesWriter(store.halves, announce, self.tell_decided)
        judge = Judge(store, evidence=lambda name: self.evidence(name)[1], checkers=self.checkers, announce=announce)
        self.settler = Settler(store, judge, self.decider, self._writing)
        # Calls of every kind share their batches: one commit carries them all.
        self._writes: Batcher[Any, Any] = Batcher("store", self._writing, weigh=_weight)
        self.stores: Batcher[Half, Receipt] = self._writes
        self.decides: Batcher[End, DecisionOutcome] = self._writes
        self.acks: Batcher[Claim, None] = Batcher("acknowledgements", self._acknowledge)
        write = AnnouncedBatches(store.work.write, announce)
        self.requests: Batcher[Request, Answer] = Batcher("requests", write)
        self.notes = OutcomeWriter(write)
        self._enlisted: dict[str, tuple[RegisteredResource, Participant]] = {}
        self._resources: dict[str, tuple[RegisteredResource, Evidence]] = {}

    def resource(self, named: object) -> tuple[RegisteredResource, Evidence]:
        """Return a registered resource, pinned by its database's uuid, and its evidence."""
        name, evidence = self.evidence(named)
        if (known := self._resources.get(name)) is None:
            known = self._resources[name] = run_blocking(lambda: self._recorded(name, evidence)), evidence
        return known

    def _recorded(self, name: str, evidence: Evidence) -> RegisteredResource:
        with self.announce.around(facts.Registering, about=f"evidence of {name}"):
            database = evidence.database
        with self.announce.around(facts.Registering, about=f"resource {name}"):
            return self.store.registry.resource(name, database)

    def participant(self, name: str) -> tuple[RegisteredResource, Participant]:
        """Return a registered resource that takes part in two-phase commit, probed before its first work."""
        if (known := self._enlisted.get(name)) is None:
            known = self._enlisted[name] = run_blocking(lambda: self._probed(name))
        return known

    def _probed(self, name: str) -> tuple[RegisteredResource, Participant]:
        participant = self.reach(name)
        participant.probe()
        with self.announce.around(facts.Registering, about=f"participant {name}"):
            recorded = self.store.registry.resource(name, participant.database)
            if not recorded.enlisted:
                self.store.registry.enlist(recorded.id)
        return recorded, participant

    def leave_out(self, name: str) -> None:
        """Forget a resource that takes part; the next caller opens and probes it again."""
        self._enlisted.pop(name, None)

    @property
    def store(self) -> Store:
        """The store, until the broker is closed."""
        self.require_open()
        return self._store

    def require_open(self) -> None:
        """Raise `BrokerClosed` once the broker is closed."""
        if self.closed:
            raise BrokerClosed

    def close(self) -> None:
        """Finish what is queued; refuse later calls."""
        self._writes.close()
        self.acks.close()
        self.notes.close()
        self.requests.close()
        self.closed = True

    def _acknowledge(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        with self.announce.around(facts.Acknowledging, about=claims[0].group):
            return self._store.claims.ack(claims)

    def when_decided(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each decision of this process, in place of the previous function."""
        self._wake = wake

    def tell_decided(self) -> None:
        """Wake the role that delivers decided transactions; an error is logged, the decision is final."""
        try:
            self._wake()
        except Exception:  # the decision is written: this error must not look like one of it
            logger.exception("the dispatcher could not be notified of a decision; the next tick finds it")


class OfBroker:
    """A part of a broker for programs: it stops working once the broker is closed."""

    def __init__(self, kernel: Kernel) -> None:
        self._parts = kernel

    @property
    def _kernel(self) -> Kernel:
        if self._parts.closed:
            raise BrokerClosed
        return self._parts


def _weight(item: Write) -> int:
    if isinstance(item, End):
        return 0
    rows = item.rows
    return len(rows[0].body) if len(rows) == 1 else sum([len(row.body) for row in rows])
