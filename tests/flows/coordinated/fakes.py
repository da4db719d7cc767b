"""Resources in memory that vote, hold and forget as a test wants it, and a coordinator of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from tests.contracts.samples import new_group
from tests.oracle import MemoryStore
from tests.scene.fake_store import bare_kernel
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.records import TxRecord
from txsaga.errors import ResourceUnknown
from txsaga.flows.branch import BranchId, BranchState, Finish, Vote
from txsaga.flows.journal import Journalled
from txsaga.flows.recovery import PATIENCE, Recovery
from txsaga.flows.requests import Begin, BranchVote, Decide
from txsaga.resources.capabilities import CAPABILITIES, Capabilities, ResourceKind
from txsaga.resources.participant import Ages, EnlistedBranch, Over
from txsaga.testing import FakeClock

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@dataclass(eq=False)
class FakeResource:
    """One resource: what it holds, what is committed in it, and how it fails."""

    name: str
    database: UUID = field(default_factory=uuid4)
    held: set[BranchId] = field(default_factory=set)
    committed: set[BranchId] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    failure: Exception | None = None  # of every call
    refused: dict[BranchId, Exception] = field(default_factory=dict)
    hazards: set[BranchId] = field(default_factory=set)
    forgotten: list[BranchId] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None  # what others do once its branches were listed
    behind: Callable[[], None] = lambda: None  # what others do once it has answered
    open: Event = field(default_factory=Event)  # while it is closed, nothing is answered

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES[ResourceKind.POSTGRESQL]

    def probe(self) -> None:
        self._called("probe")

    def enlist(self, branch: BranchId) -> EnlistedBranch:
        self._called("enlist")
        return FakeBranch(self, branch)

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        self._called(f"{decision.name} {branch.qualifier}")
        if branch in self.refused:
            raise self.refused[branch]
        if branch in self.hazards:
            return Finish.HAZARD
        held = branch in self.held
        self.held.discard(branch)
        self.behind()
        if branch in self.committed:
            return Finish.DONE if decision is COMMIT else Finish.COMMITTED
        if held and decision is COMMIT:
            self.committed.add(branch)
        return Finish.DONE if held or decision is ROLLBACK else Finish.ROLLED_BACK

    def fence(self, branch: BranchId) -> Finish:
        return Finish.COMMITTED if branch in self.committed else Finish.DONE

    def prepared(self, store: str) -> Sequence[BranchId]:
        self._called("prepared")
        found = sorted(each for each in self.held if each.store == store)
        self.meanwhile()
        return found

    def do(self, session: EnlistedBranch, statements: Sequence[Journalled]) -> None:
        self._called(f"do {len(statements)}")

    def forget(self, branch: BranchId) -> None:
        self._called("forget")
        self.forgotten.append(branch)

    def sweep(self, store: str, ages: Ages, over: Over) -> int:
        self._called("sweep")
        wanted = over(sorted(self.committed))
        self.forgotten += sorted(wanted)
        return len(wanted)

    def close(self) -> None:
        pass

    def _called(self, what: str) -> None:
        self.calls.append(what)
        assert self.open.wait(30)
        if self.failure is not None:
            raise self.failure


@dataclass(eq=False)
class FakeBranch:
    """The work of one branch: it votes yes, and does what it is told."""

    resource: FakeResource
    branch: BranchId

    @property
    def handle(self) -> object:
        return self.resource

    def prepare(self) -> Callable[[], Vote]:
        self.resource.held.add(self.branch)
        return lambda: Vote.PREPARED

    def finish(self, decision: Decision) -> Callable[[], Finish]:
        return lambda: self.resource.finish(self.branch, decision)

    def commit(self, transaction: str | None) -> Callable[[], None]:
        return lambda: self.resource.committed.add(self.branch)

    def leave(self) -> None:
        self.resource.calls.append("leave")


@dataclass(eq=False)
class Desk:
    """A coordinator in memory, and what lies in its resources."""

    kernel: Kernel
    clock: FakeClock
    resources: dict[str, FakeResource]
    facts: list[str]
    group: int = 0

    @property
    def store(self) -> Any:  # one in memory, with its insides
        return self.kernel.store

    def begun(self, *names: str) -> TxRecord:
        """Begin a transaction with branches in these resources, all of which hold them prepared."""
        ids = [self.kernel.participant(name)[0].id for name in names]
        (life,) = self.store.work.write([Begin(self.group, ids)])
        for number, name in enumerate(names, 1):
            self.resources[name].held.add(self.id(life, number))
        return life  # type: ignore[no-any-return]

    def decided(self, *names: str, decision: Decision = COMMIT) -> TxRecord:
        """Decide such a transaction, long enough ago for its owner to be dead."""
        life = self.begun(*names)
        votes = [self.voted(number) for number in range(1, len(names) + 1)] if decision is COMMIT else []
        self.store.work.write([Decide(life, decision, "owner 1", "the block ended", votes=votes)])
        self.clock.advance(60)
        return life

    def voted(self, number: int) -> BranchVote:
        """Return a vote of yes."""
        return BranchVote(number, 1, Vote.PREPARED)

    def id(self, life: TxRecord, number: int, attempt: int = 1) -> BranchId:
        """Name a branch as its resource knows it."""
        return BranchId(self.store.registry.identity.transaction(life.txid), number, attempt)

    def states(self, life: TxRecord) -> list[BranchState]:
        """Return where the branches of a transaction stand."""
        return [each.state for each in self.store.work.branches(life.txid)]

    def recovery(self, patience: float = PATIENCE) -> Recovery:
        """Start recovery as another process would."""
        return Recovery(self.kernel, patience=patience)


@contextmanager
def desk(*names: str) -> Iterator[Desk]:
    """Open a coordinator of some resources."""
    resources, clock, heard = {name: FakeResource(name) for name in names}, FakeClock(), list[str]()

    def participant(name: str) -> FakeResource:
        if name not in resources:
            raise ResourceUnknown(name, list(resources))
        return resources[name]

    def evidence(name: object) -> tuple[str, Any]:
        return str(name), SimpleNamespace(database=resources[str(name)].database)

    announce = Announcer([lambda fact: heard.append(fact.name)])
    kernel = bare_kernel(MemoryStore(clock), announce, "desk", evidence=evidence, participants=participant)
    opened = Desk(kernel, clock, resources, heard)
    opened.group = new_group(kernel.store)
    yield opened
    kernel.close()
