"""
Transactions whose timelines are known line by line; `python -m tests.cli.stories` writes the files anew.

Each is lived through by the real engine, on a store in memory with a clock that moves on by a second at every fact.
What check-back and parking leave in a store is put there as they leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from sqlalchemy import NullPool, create_engine

from tests.flows.coordinated.fakes import FakeResource
from tests.oracle import MemoryStore
from tests.scene.elsewhere import Elsewhere
from tests.scene.fake_store import NoHome, bare_kernel
from txsaga.broker import Broker
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.one_check import look
from txsaga.cli.printing import say_timeline
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.announcer import Announcer
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import StoreUnavailable, Unfinished
from txsaga.flows.batches import OutcomeWriter
from txsaga.flows.by_hand import BranchesByHand
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.flow import Budgets, Flow
from txsaga.flows.recovery import Recovery
from txsaga.flows.requests import BranchOutcome
from txsaga.inspect.timeline import TimelineStep
from txsaga.inspect.timeline_steps import steps_of
from txsaga.messages.producer import Producer
from txsaga.messages.scheduler import Scheduler
from txsaga.testing import FakeClock
from txsaga.testing.checking import check_once
from txsaga.wiring.resources import Resources

FILES = Path(__file__).parent / "timelines"
LONG = 60


class Failed(Exception):
    """What the block of a story raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A broker in memory, the clock that it goes by, and a database for local work."""

    broker: Broker
    clock: FakeClock
    resources: Mapping[str, FakeResource]
    notes: list[BranchOutcome]

    @property
    def producer(self) -> Producer:
        """A producer whose checker never knows."""
        return self.broker.producer("shop", checker=lambda _: LocalState.UNKNOWN)

    def deliver(self) -> None:
        """Commit what is due, and give offsets to what is decided."""
        self.clock.advance(1)
        for role in (Scheduler(self.broker.kernel), Dispatcher(self.broker.kernel)):
            while role.run_once():
                pass

    def check(self) -> None:
        """Run a round of check-back when everything is old enough for it."""
        self.clock.advance(LONG)
        check_once(self.broker)
        self.clock.advance(LONG)

    def note(self) -> None:
        """Write down what became of branches."""
        self.broker.kernel.notes.flush()
        self.clock.advance(1)
        self.broker.kernel.store.work.write(self.notes)

    def recover(self, resource: str) -> None:
        """Let recovery tell one resource; two at once would tell their steps in any order."""
        self.clock.advance(LONG)
        recovery = Recovery(self.broker.kernel)
        for other in self.resources.keys() - {resource}:
            recovery._reach.failed(other)
        recovery.run_once()

    def steps(self, txid: int, *, evidence: bool = False) -> list[TimelineStep]:
        """Tell a transaction."""
        trace = self.broker.kernel.store.overview.trace(txid)
        assert trace is not None
        return steps_of(trace, look(self.broker.kernel, trace) if evidence else None)

    def shown(self, txid: int, *, evidence: bool = False) -> str:
        """Print its timeline as a command does."""
        with redirect_stdout(StringIO()) as printed:
            say_timeline(self.steps(txid, evidence=evidence))
        return printed.getvalue()


@contextmanager
def scene() -> Iterator[Scene]:
    """Open a scene."""
    clock = FakeClock()
    with TemporaryDirectory() as folder:
        database = create_engine(f"sqlite:///{folder}/billing.db", poolclass=NullPool)
        resources = {name: FakeResource(name) for name in ("current", "mortgage")}
        found, notes = Resources({}, {"billing": database}).find, list[BranchOutcome]()
        kernel = bare_kernel(
            MemoryStore(clock),
            Announcer([lambda _: clock.advance(1)]),
            "desk",
            evidence=lambda named: (
                (str(named), SimpleNamespace(database=resources[named].database))
                if named in resources
                else found(named)
            ),
            participants=resources.__getitem__,
        )
        kernel.notes = OutcomeWriter(notes.extend)
        with Broker(
            kernel, NoHome(), roles=False, answering=False, heartbeat=False, on_close=database.dispose
        ) as broker:
            broker.create_topic("orders", "transaction", queues=1)
            broker.create_topic("reminders", "delay", queues=1)
            yield Scene(broker=broker, clock=clock, resources=resources, notes=notes)


def committed_half(scene: Scene) -> str:
    """One half, committed by its producer and given out."""
    receipt = scene.producer.prepare_now("orders", b"a chair")
    scene.producer.commit(receipt)
    scene.deliver()
    return scene.shown(receipt.txid)


def rolled_back_half(scene: Scene) -> str:
    """One half, rolled back; a tick has seen it."""
    receipt = scene.producer.prepare_now("orders", b"a chair")
    scene.producer.roll_back(receipt)
    scene.deliver()
    return scene.shown(receipt.txid)


def late_body(scene: Scene) -> str:
    """A key, local work, and a body that is known in it only; somebody looked at the evidence."""
    with scene.producer.transaction(key="order-42") as tx:
        tx.send("orders", b"a chair")
        slot = tx.later("orders")
        with tx.local("billing") as connection:
            slot.fill(connection, b"its invoice")
    scene.deliver()
    assert tx.txid is not None
    return scene.shown(tx.txid, evidence=True)


def rolled_back_work(scene: Scene) -> str:
    """Local work that failed: the barrier stands, its messages are never seen."""
    with suppress(Failed), scene.producer.transaction(key="order-42") as tx:
        tx.send("orders", b"a chair")
        with tx.local("billing"):
            raise Failed
    assert tx.txid is not None
    return scene.shown(tx.txid)


def taken_over(scene: Scene) -> str:
    """Two attempts of one key, of which the second counts."""
    first = scene.producer.transaction(key="order-42")
    Elsewhere(first).__enter__()
    first.send_many("orders", [b"a chair" * 100_000] * 12)
    first.send("orders", b"a table")  # more than a block holds back: the first ones are stored
    with scene.producer.transaction(key="order-42") as second:
        second.send("orders", b"a chair")
    scene.deliver()
    assert second.txid is not None
    return scene.shown(second.txid)


def undecided(scene: Scene) -> str:
    """A half that nobody can answer for, asked about twice."""
    receipt = scene.producer.prepare_now("orders", b"a chair")
    scene.check()
    scene.check()
    return scene.shown(receipt.txid)


def parked(scene: Scene) -> str:
    """A half that is out of checks, taken up again, and committed by hand."""
    receipt = scene.producer.prepare_now("orders", b"a chair")
    _record(scene, receipt.txid, "PARKED", who="check-back", why="the checker said UNKNOWN")
    _record(scene, receipt.txid, "RESUMED", who="anna", why="the shop is back")
    ByHand(scene.broker.kernel).decide(receipt.txid, Decision.COMMIT, who="anna", why="the shop called")
    scene.deliver()
    return scene.shown(receipt.txid)


def recalled(scene: Scene) -> str:
    """A message for later, recalled before it was due."""
    producer = scene.broker.producer("calendar")
    receipt = producer.send("reminders", b"the dentist", delay=timedelta(hours=1))
    producer.recall(receipt)
    scene.deliver()
    return scene.shown(receipt.txid)


def waiting(scene: Scene) -> str:
    """A message for later that waits."""
    receipt = scene.broker.producer("calendar").send("reminders", b"the dentist", delay=timedelta(hours=1))
    return scene.shown(receipt.txid)


def replayed(scene: Scene) -> str:
    """A transaction that was rolled back, and the one that replays it."""
    with suppress(Failed), scene.producer.transaction(key="order-42") as tx:
        tx.send("orders", b"a chair")
        with tx.local("billing"):
            raise Failed
    assert tx.txid is not None
    done = scene.broker.replay(tx.txid, who="anna", why="the invoice was written by hand")
    scene.deliver()
    assert done.replayed_as is not None
    return f"{scene.shown(tx.txid)}\n{scene.shown(done.replayed_as)}"


def coordinated(scene: Scene) -> str:
    """Two databases and a message with one outcome, told by their owner."""
    with scene.producer.coordinated("current", "mortgage") as tx:
        _transfer(tx)
    scene.note()
    scene.deliver()
    assert tx.txid is not None
    return scene.shown(tx.txid)


def failed_transfer(scene: Scene) -> str:
    """A transfer whose block failed: nothing of it stays."""
    with suppress(Failed), scene.producer.coordinated("current", "mortgage") as tx:
        _transfer(tx)
        raise Failed
    scene.note()
    assert tx.txid is not None
    return scene.shown(tx.txid)


def told_by_recovery(scene: Scene) -> str:
    """An owner that could not tell one of the databases; recovery does it a minute later."""
    with suppress(Unfinished), scene.producer.coordinated("current", "mortgage") as tx:
        _transfer(tx)
        scene.resources["mortgage"].failure = StoreUnavailable("nobody listens")
    scene.note()
    assert tx.txid is not None
    before = scene.shown(tx.txid)
    scene.resources["mortgage"].failure = None
    scene.recover("mortgage")
    return f"{before}\n{scene.shown(tx.txid)}"


def overruled(scene: Scene) -> str:
    """A database that could not be told, and whose administrator rolled its branch back meanwhile."""
    mortgage = scene.resources["mortgage"]
    with suppress(Unfinished), scene.producer.coordinated("current", "mortgage") as tx:
        _transfer(tx)
        mortgage.failure = StoreUnavailable("nobody listens")
    scene.note()
    mortgage.failure = None
    mortgage.held.clear()
    scene.recover("mortgage")
    assert tx.txid is not None
    found = scene.shown(tx.txid)
    scene.clock.advance(LONG)
    BranchesByHand(scene.broker.kernel).forget(tx.txid, who="anna", why="paid by hand")
    return f"{found}\n{scene.shown(tx.txid)}"


def audited(scene: Scene) -> str:
    """A transfer that fails beside an auxiliary lane, whose unit stays."""
    with suppress(Failed), scene.producer.coordinated("current") as tx:
        with tx.on("current"), tx.lane("mortgage"):
            pass
        tx.lane("mortgage").commit()
        scene.note()
        raise Failed
    scene.note()
    assert tx.txid is not None
    return scene.shown(tx.txid)


def nine_events(scene: Scene) -> str:
    """The nine events, each in a process of its own: main 1 2 4 5 8 9, the lane 3 6 and its commit 7."""
    producer = scene.producer
    flow = producer.begin_flow("current", "mortgage", lanes=["mortgage"], key="transfer-7")  # 1
    with producer.flow("transfer-7").step("2", on="current"):
        pass
    _journal(producer.flow("transfer-7"), "3", lane="mortgage")
    for event in ("4", "5"):
        _journal(producer.flow("transfer-7"), event, on="mortgage")
    with producer.flow("transfer-7").step("6", lane="mortgage"):
        pass
    producer.flow("transfer-7").lane("mortgage").commit()  # 7
    teller = producer.flow("transfer-7")
    with teller.step("8"):
        teller.send("orders", b"a transfer")
    producer.flow("transfer-7").end()  # 9
    scene.note()
    scene.deliver()
    return scene.shown(flow.txid)


def tried_again(scene: Scene) -> str:
    """A flow with a step that failed, one whose process died, and one that holds its locks for too long."""
    flow = scene.producer.begin_flow("current", "mortgage", key="transfer-7")
    with suppress(Failed), flow.step("debit", on="current"):
        raise Failed("the account is closed")
    with flow.step("debit", on="current"):
        pass
    _left(flow, "credit")
    _journal(scene.producer.flow("transfer-7"), "credit", on="mortgage")
    scene.clock.advance(2 * LONG)
    Budgets(scene.broker.kernel).run_once()
    return scene.shown(flow.txid)


def _journal(flow: Flow, step: str, **place: Any) -> None:
    with flow.step(step, hold="journal", **place) as journal:
        journal.execute("update account set balance = balance + 1", rows=1)


def _left(flow: Flow, step: str) -> None:
    """Leave a step as a process does that dies in it."""
    work = flow.step(step, on="mortgage")
    work.__enter__()
    flow._step = None


def half_way(scene: Scene) -> str:
    """A transfer that is under way; without a key nothing would be written of it yet."""
    tx = scene.producer.coordinated("current", "mortgage", key="transfer-7").__enter__()
    _transfer(tx)
    assert tx.txid is not None
    return scene.shown(tx.txid)


def _transfer(tx: Coordinated) -> None:
    for name in ("current", "mortgage"):
        with tx.on(name):
            pass
    tx.send("orders", b"a transfer")


def _record(scene: Scene, txid: int, what: str, *, who: str, why: str) -> None:
    scene.clock.advance(1)
    with scene.broker.kernel.store.ledgers.open() as ledger:
        ledger.record(txid, what, who=who, why=why)


Story = Callable[[Scene], str]
STORIES: Mapping[str, Story] = {
    story.__name__: story
    for story in (
        committed_half,
        rolled_back_half,
        late_body,
        rolled_back_work,
        taken_over,
        undecided,
        parked,
        recalled,
        waiting,
        replayed,
        coordinated,
        failed_transfer,
        told_by_recovery,
        overruled,
        nine_events,
        tried_again,
        half_way,
        audited,
    )
}


def told(story: Story) -> str:
    """Live through a story and return its timeline."""
    with scene() as opened:
        return story(opened)


if __name__ == "__main__":
    for name, story in STORIES.items():
        (FILES / f"{name}.txt").write_text(told(story), "utf-8")
