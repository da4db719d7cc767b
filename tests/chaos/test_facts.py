"""The list of kill points is complete: no step is durable that nobody announced.

Every method of a port is named here as one that writes or one that reads. While the programs of the kill
matrix run, a write outside a pair of facts is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import txsaga
from tests.chaos import child, coordinated, lake_programs, nine_events, scenarios
from tests.chaos.conftest import Worlds
from tests.chaos.world import BANK, World, database
from txsaga.broker import Broker
from txsaga.catalog.open_catalog import OpenCatalog
from txsaga.catalog.repeats import CommitScope
from txsaga.catalog.requests import Change
from txsaga.catalog.tables import TableChange
from txsaga.checkback.doubts_store import Doubts
from txsaga.checkback.leases_store import Leases
from txsaga.checkback.questions_store import Questions
from txsaga.consume.claims_store import Claims
from txsaga.consume.groups_store import ConsumerGroups, DeadLetterStore, Queues
from txsaga.consume.log_store import Log
from txsaga.core.facts import ALL, Fact
from txsaga.evidence.database import SqlEvidence, SqlSteps
from txsaga.flows.ballots_store import BallotLedger
from txsaga.flows.flows_store import FlowLedger, Flows
from txsaga.flows.work_store import BranchLedger, WorkStore
from txsaga.lake.effects_store import TableLedger
from txsaga.lake.table import TableName
from txsaga.messages.halves_store import HalfStore, Schedule
from txsaga.messages.ledger_store import Ledger
from txsaga.messages.registry_store import Registry
from txsaga.resources.database import BranchRows
from txsaga.resources.postgres import PostgresParticipant
from txsaga.resources.postgres_branch import PostgresBranch
from txsaga.resources.reservations_store import Reservations

WRITES: dict[type, set[str]] = {
    HalfStore: {"write"},
    Ledger: {
        *{"create", "take_over", "touch", "move", "add", "add_last", "win", "reserve", "intend", "bind"},
        *{"apply_intents", "write_op", "record", "release", "copy", "tie", "park", "resume"},
    },
    BallotLedger: {"call", "cast"},
    BranchLedger: {"name", "record_votes", "forget", "move_step"},
    TableLedger: {"keep", "swap", "reserve_table"},
    WorkStore: {"write", "claim", "hold"},
    SqlSteps: {"run", "fence"},
    FlowLedger: {
        *{"enrol", "start", "end", "put", "name", "hold", "settle", "take_over", "do_home_work", "alarm"},
        *{"drop_compensations", "amend", "enter"},
    },
    Flows: set(),
    Reservations: {"begin", "hold", "shut", "settle", "drop"},
    Log: {
        *{"tick", "tick_with", "extend_partitions", "drop_partitions"},
    },
    Doubts: {"sweep", "hold", "settle", "put_off"},
    Questions: {"ask", "take", "answered", "collect"},
    Leases: {"acquire", "release", "keep", "drop"},
    Schedule: {"commit_due"},
    Queues: {
        *{"renew", "leave", "create_cursors", "acquire", "release", "advance", "reset", "forget", "purge"},
    },
    Claims: {
        *{"take_new", "take_due", "line_up", "ack", "extend", "extend_alone", "put_back", "give_back", "bury", "drop"},
    },
    ConsumerGroups: {"open", "alter", "delete", "touch", "expire"},
    DeadLetterStore: {"replay", "purge"},
    Registry: {
        "create_topic",
        "alter_topic",
        "delete_topic",
        "group",
        "resource",
        "enlist",
        "reject_transactions",
        "join_cluster",
        "alter_checks",
        "alter_kind",
    },
    SqlEvidence: {"fence"},
}
READS = {
    *{
        "numbers",
        "written",
        "views",
        "views_of",
        "at_once",
        "contents",
        "latest",
        "sees",
        "lock",
        "share",
        "slots",
        "standing",
        "fetch",
        "bounds",
        "offset_at",
        "wait",
        "effects",
        "pointer",
    },
    *{
        "unread",
        "find",
        "all",
        "list",
        "get",
        "replay_of",
        "unfinished",
        "over",
        "branches",
        "branches_in",
        "steps",
        "steps_of",
        "sagas",
        "saga_figures",
        "listed",
        "enlisted",
        "ballots",
        "guests",
        "held",
        "counted",
        "of_all",
        "output",
        "is_running",
        "has_open_saga",
        "flows",
        "amendment",
    },
    *{"enrolled", "steps", "journal", "units", "overdue", "look"},
    *{"waiting", "due", "of", "rests", "backlog", "alive", "ids", "producer_groups", "read_many"},
    *{"members", "intent_on", "identity", "rejects_transactions", "filled", "cluster"},
    *{"views", "latest", "lock", "share", "slots", "standing", "fetch", "bounds", "offset_at", "wait"},
    *{"unread", "find", "all", "list", "get", "ids"},
    *{"doubts", "doubt", "members", "intent_on", "identity", "rejects_transactions", "filled"},
    *{
        "topic",
        "topics",
        "find_group",
        "group_by_id",
        "resource_by_id",
        "transactions",
        "transaction",
        "read",
        "filled",
        "in_loop",
    },
}
# What is done in the resources of coordinated transactions.
IN_RESOURCES: dict[type, set[str]] = {
    PostgresBranch: {"prepare", "finish", "commit"},
    PostgresParticipant: {"finish"},
    BranchRows: {"_delete"},
}
# Local work announces its own commit, which covers what is filled in; the uuid is made where it is registered.
ANNOUNCED_BY_THEIR_CALLER = {"work", "fill", "database"}


class Watch:
    """Knows which steps are announced and not yet done, thread by thread; whoever is called on has its caller's."""

    def __init__(self) -> None:
        self.unannounced: list[str] = []
        self.seen: list[str] = []
        self._under_way = ContextVar("under way", default=0)

    @property
    def depth(self) -> int:
        """How many steps of this thread are under way."""
        return self._under_way.get()

    def __call__(self, fact: Fact) -> None:
        """Hear a fact: they come in pairs."""
        self.seen.append(fact.name)
        self._under_way.set(self.depth + (1 if fact.name.endswith("ing") else -1))

    def watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method that writes."""

        @functools.wraps(method)
        def call(*args: object, **options: object) -> object:
            if not self.depth:
                self.unannounced.append(method.__qualname__)
            return method(*args, **options)

        return call


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch = Watch()
    for adapter, names in [*WRITES.items(), *IN_RESOURCES.items()]:
        for name in names:
            monkeypatch.setattr(adapter, name, watch.watched(getattr(adapter, name)))
    yield watch
    assert not watch.unannounced
    assert watch.depth == 0


def play(watch: Watch, world: World, *programs: Callable[[Broker, World], None]) -> None:
    with (
        database(world.bank) as bank,
        txsaga.connect(
            world.home, resources={BANK: bank}, roles=False, answering=False, observers=[watch], env={}
        ) as broker,
    ):
        for program in programs:
            program(broker, world)


def test_facts_come_in_pairs() -> None:
    names = [fact.__name__ for fact in ALL]
    assert all(name.endswith("ing") for name in names[::2])
    assert not any(name.endswith("ing") for name in names[1::2])
    assert len(names) == 2 * len(names[::2])


@pytest.mark.parametrize("store", WRITES, ids=lambda store: store.__name__)
def test_every_method_of_a_store_is_known_to_write_or_to_read(store: type) -> None:
    writes = WRITES[store]
    methods = {name for name, member in vars(store).items() if not name.startswith("_") and callable(member)}
    methods -= {"close"} - writes  # it ends connections, but in a ledger of flows a step
    assert methods == writes | (methods & (READS | ANNOUNCED_BY_THEIR_CALLER))
    assert not writes & READS


@pytest.mark.postgres
def test_producers_announce_every_durable_step(watch: Watch, world: World) -> None:
    play(watch, world, scenarios.transfer, scenarios.keyed_transfer, scenarios.send_message_in_transaction)
    assert {"Reserved", "Worked", "Registered", "Prepared", "Decided", "Ended"} <= set(watch.seen)


@pytest.mark.postgres
def test_consumers_announce_every_durable_step(watch: Watch, world: World) -> None:
    play(watch, world, scenarios.place_orders, scenarios.pass_on)
    assert {"Positioned", "Renewed", "Acquired", "Intended", "Released"} <= set(watch.seen)


@pytest.mark.postgres
def test_readers_announce_every_durable_step(watch: Watch, world: World) -> None:
    play(watch, world, scenarios.send_and_read)
    assert {"Published", "Advanced", "Ticked"} <= set(watch.seen)


@pytest.mark.postgres
def test_messages_for_later_announce_every_durable_step(watch: Watch, world: World) -> None:
    play(watch, world, scenarios.send_for_later)
    assert {"Prepared", "Decided", "Scheduled", "Ticked"} <= set(watch.seen)


@pytest.mark.postgres
def test_check_back_announces_every_durable_step(watch: Watch, world: World) -> None:
    with pytest.raises(SystemExit):
        play(watch, world, scenarios.leave_in_doubt)
    play(watch, world, scenarios.check_back)
    assert {"Led", "Collected", "Swept", "Asked", "Heard", "Answered", "Parked", "Yielded", "Partitioned"} <= set(
        watch.seen
    )


@pytest.mark.postgres
def test_a_replay_announces_every_durable_step(watch: Watch, world: World) -> None:
    play(watch, world, scenarios.replay)
    assert {"Fenced", "Resubmitted", "Ticked"} <= set(watch.seen)


@pytest.mark.postgres
def test_a_cut_announces_its_tick(watch: Watch, world: World) -> None:
    def cut(broker: Broker, _: World) -> None:
        watch.seen.clear()
        with broker.cut():
            assert watch.seen == ["Ticking", "Ticked"]

    play(watch, world, cut)


@pytest.mark.postgres
def test_a_write_that_nobody_announced_is_found(watch: Watch, world: World) -> None:
    play(watch, world, lambda broker, _: broker.kernel.store.queues.leave("readers", "anna", ["orders"]))
    assert watch.unannounced == ["Queues.leave"]
    watch.unannounced.clear()


@pytest.mark.postgres
@pytest.mark.parametrize("program", [scenarios.work_off, scenarios.work_off_in_order])
def test_those_who_work_messages_off_announce_every_durable_step(
    watch: Watch, world: World, program: Callable[[Broker, World], None]
) -> None:
    play(watch, world, scenarios.place_orders, program)
    assert {"Taken", "Acknowledged", "Extended", "Returned", "Buried", "Bound", "Replayed"} <= set(watch.seen)


@pytest.mark.postgres
def test_what_is_tidied_up_is_announced(watch: Watch, houses: Worlds) -> None:
    with houses() as world, child.opened(world, {}, watch) as broker:
        for program in (coordinated.pay, coordinated.tidy):
            program(broker, world)
    assert watch.seen.count("Tidied") == 2


@pytest.mark.postgres
@pytest.mark.parametrize("program", [coordinated.pay, coordinated.pay_by_key, coordinated.pay_alone])
def test_coordinated_transactions_announce_every_durable_step(
    watch: Watch, houses: Worlds, program: Callable[[Broker, World], None]
) -> None:
    with houses() as world, child.opened(world, {}, watch) as broker:
        program(broker, world)
    two_phases = {"Named", "Voted", "Decided", "Finished", "Noted"}
    one_phase = {"Named", "Ended", "Worked", "Decided", "Noted"}
    assert (one_phase if program is coordinated.pay_alone else two_phases) <= set(watch.seen)


@pytest.mark.postgres
@pytest.mark.parametrize("program", [lake_programs.write, lake_programs.change, lake_programs.write_beside_databases])
def test_those_who_write_into_tables_announce_every_durable_step(
    watch: Watch, houses: Worlds, program: Callable[[Broker, World], None]
) -> None:
    with houses() as world, child.opened(world, {}, watch) as broker:
        program(broker, world)
    assert {"Staged", "Filed", "Built", "Decided"} <= set(watch.seen)


@pytest.mark.postgres
def test_commits_of_the_open_catalog_announce_every_durable_step(watch: Watch, world: World) -> None:
    names = [TableName("txsaga", "books", each) for each in ("ledger", "posting", "balance")]
    set_to = Change(updates=[{"action": "set-properties", "updates": {"n": "1"}}])
    changes = [TableChange(name, set_to) for name in names]
    with child.opened(world, {}, watch) as broker:
        producer = lake_programs.clerk(broker)
        lake_programs.open_tables(producer)
        watch.seen.clear()
        tables = OpenCatalog(broker).tables
        tables.commit(changes, CommitScope(key="monday"))
        assert {"Opened", "Ended", "Built", "Decided"} <= set(watch.seen)
        with producer.transaction() as tx:
            token = tx.token()
            watch.seen.clear()
            tables.commit(changes, CommitScope(token=token))
            assert watch.seen == ["Filing", "Filed"]


@pytest.mark.postgres
@pytest.mark.parametrize("hold", ["prepared", "journal"])
def test_flows_announce_every_durable_step(watch: Watch, houses: Worlds, hold: str) -> None:
    with houses() as world, child.opened(world, {}, watch) as broker:
        nine_events.order(broker, world)
        for event in nine_events.EVENTS:
            nine_events.Alone(event, hold, False)(broker, world)
        with broker.producer("tellers", checker=scenarios.nobody_knows).begin_flow(BANK, key="fails") as flow:
            with pytest.raises(ZeroDivisionError), flow.step("fails", on=BANK):
                raise ZeroDivisionError
            flow.touch()
            flow.roll_back()
    assert {"Declared", "Started", "Voted", "Closed", "Settled", "Touched", "Decided", "Finished"} <= set(watch.seen)
