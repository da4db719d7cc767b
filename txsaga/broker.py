"""The broker: one store, and everything a program does with it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

from txsaga.airflow_host.followers import Followers, FollowUpRole
from txsaga.checkback.answering import THREADS, AnswerRole
from txsaga.checkback.checkers import Checker
from txsaga.checkback.heartbeat import Heartbeat, checkers_of
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.checkback.runs import Runs
from txsaga.consume.consumer import Consumer
from txsaga.consume.dispatcher import Dispatcher, PartitionRole
from txsaga.consume.queue_reader import Start
from txsaga.consume.stream import Stream
from txsaga.core import facts
from txsaga.core.arguments import check_function, check_kind, check_text
from txsaga.core.forking import at_fork
from txsaga.core.identity import StoreId, check_txid
from txsaga.core.kernel import Handler, Kernel
from txsaga.core.records import Group
from txsaga.core.role_loop import Loop, Role
from txsaga.core.topic import check_name
from txsaga.core.validation import validate_life
from txsaga.errors import StoreError
from txsaga.flows.ballot import CastVote, Polled
from txsaga.flows.ballots import ballots, vote
from txsaga.flows.flow import Budgets, Flow
from txsaga.flows.flow_begin import FlowOpening
from txsaga.flows.recovery import Recovery
from txsaga.flows.saga import Saga
from txsaga.flows.saga_driver import SagaRecovery
from txsaga.lake.cut import Cut, chosen, names_of
from txsaga.lake.table import TableName
from txsaga.messages.administration import Administration
from txsaga.messages.producer import Producer
from txsaga.messages.scheduler import Scheduler
from txsaga.resources.participant import Enlistable, Participant
from txsaga.store.right import Right

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


logger = logging.getLogger("txsaga")

_every_broker: weakref.WeakSet[Broker] = weakref.WeakSet()


class HomeDatabase(Protocol):
    """What only a home database has: snapshots, and resources beside it."""

    def cut(self, tables: Sequence[TableName] = ()) -> AbstractContextManager[Cut]:
        """Open a snapshot with these tables; its home connection reads the rows of that moment until the block ends."""

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        """Register a resource."""

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        """Register a participant that is not a database."""

    def new_member(self) -> str:
        """Return a member name that is unique within its group."""


class Broker(Administration):
    """One store with its topics, producers, streams and roles."""

    def __init__(
        self,
        kernel: Kernel,
        home: HomeDatabase,
        *,
        roles: bool,
        on_close: Callable[[], None],
        answering: bool = True,
        heartbeat: bool = True,
        check_threads: int = THREADS,
        followers: Followers | None = None,
    ) -> None:
        super().__init__(kernel)
        self._home, self._on_close, self._followers = home, on_close, followers
        self._answers, self._check_threads = answering, check_threads
        if heartbeat:  # without it open work here counts as abandoned; some tests want that
            kernel.running.on_work = self._live
        self._run_roles = roles and Right.ENGINE in kernel.store.rights
        if roles and not self._run_roles:
            logger.warning(
                "this login lacks the right 'engine': messages of this process are delivered only while a "
                "`txsaga engine` runs; pass roles=False to silence this"
            )
        self._loop: Loop | None = None
        self._own: Loop | None = None
        self._streams: set[Stream] = set()  # kept so that `close` releases their leases
        self._consumers = weakref.WeakSet[Consumer]()
        self._saga_groups: dict[str, Group] = {}
        self._starting = Lock()
        _every_broker.add(self)

    def __repr__(self) -> str:
        store = self._parts.store
        return f"<Broker {store.namespace} in database {store.engine.url.database}>"

    @property
    def identity(self) -> StoreId:
        """The store's uuid and incarnation."""
        return self._kernel.store.registry.identity

    @property
    def kernel(self) -> Kernel:
        """The internal parts, for command lines and hosts."""
        return self._parts

    def vote(
        self, txid: int, ballot: str, voter: str, *, yes: bool, evidence: Mapping[str, object] | None = None
    ) -> bool:
        """Cast a vote on an open transaction, from any process; False if the voter already voted (the first counts)."""
        check_txid(txid)
        return vote(self._kernel, txid, ballot, CastVote(voter=voter, yes=yes, evidence=evidence or {}))

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction and their votes."""
        check_txid(txid)
        return ballots(self._kernel, txid)

    def flow(self, id: int | str) -> Flow:
        """Join a flow by its number or id."""
        txid = self.identity.own(id) if isinstance(id, str) else id
        check_txid(txid, "id", "give the number of a flow, or its id")
        return Flow(self._kernel, FlowOpening(self._kernel).join_by_number(txid))

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        """Register a database under a name, so that `tx.local(name)` and check-back can use it."""
        self._kernel.require_open()
        self._home.register(name, engine)

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        """Register a folder, functions, a service or your own participant, for `producer.coordinated(name)`.

        Registered databases do not need this. Your own participant replaces the previous one of that name.
        """
        kernel = self._kernel
        self._home.enlist(name, participant)
        kernel.leave_out(name)

    def producer(self, group: str, *, checker: Checker | None = None) -> Producer:
        """Return the producer of a group.

        A checker answers for work that leaves no evidence, such as a call of a service after `tx.prepare()`.
        """
        self._start()
        producer = Producer(self._kernel, group, checker)
        self._answer()
        return producer

    def saga(self, group: str, *, key: str | None = None, run: str | None = None) -> Saga:
        """Open a saga of a producer group: steps commit one by one, and are undone if it fails.

        With a key it happens once, however often it is tried. `run` names the flow it belongs to.
        """
        self._start()
        registry = self._kernel.store.registry
        check_name(group, what="producer group", known=lambda: registry.find_group(group) is not None)
        validate_life(key, run)
        if group not in self._saga_groups:
            with self._kernel.announce.around(facts.Registering, about=f"producer group {group}"):
                self._saga_groups[group] = registry.group(group)
        return Saga(self._kernel, self._saga_groups[group], key=key, run=run)

    def when_exhausted(self, group: str, handler: Handler) -> None:
        """Have check-back in this process call a handler for each transaction of a group that is out of checks."""
        check_function(handler, "handler", "give a function that takes a question")
        self._look_for(group, "its handler is not called")
        self._kernel.handlers[group] = handler

    def answer_for(self, group: str, checker: Checker) -> None:
        """Answer checks for a producer group whose producers may be gone, as an additional member."""
        self._look_for(group, "its checker is not called")
        self.producer(group, checker=checker)

    def _look_for(self, group: str, so: str) -> None:
        check_text(group, "the producer group", "give its name")
        if self._kernel.store.registry.find_group(group) is None:
            logger.warning("producer group %r does not exist in this store yet, so %s", group, so)

    def ask_runs(self, runs: Runs) -> None:
        """Have check-back in this process first ask a host about the flow a transaction belongs to."""
        self._kernel.runs = runs

    def stream(
        self,
        group: str,
        topics: Iterable[str],
        *,
        start: Start = "earliest",
        tag: str | None = None,
        member: str | None = None,
        ttl: timedelta = timedelta(seconds=15),
    ) -> Stream:
        """Read topics as a member of a consumer group."""
        self._start()
        name, closed = self._member(member), self._streams.discard
        stream = Stream(self._kernel, group, topics, member=name, start=start, tag=tag, ttl=ttl, on_close=closed)
        self._streams.add(stream)
        return stream

    def consumer(
        self,
        group: str,
        topics: Iterable[str],
        *,
        batch: int = 32,
        invisible: timedelta = timedelta(seconds=30),
        start: Start = "earliest",
        tag: str | None = None,
        member: str | None = None,
    ) -> Consumer:
        """Process a group's messages one by one, alongside any number of other members."""
        self._start()
        consumer = Consumer(
            self._kernel,
            group,
            topics,
            member=self._member(member),
            batch=batch,
            invisible=invisible,
            start=start,
            tag=tag,
            on_close=self._consumers.discard,
        )
        self._consumers.add(consumer)
        return consumer

    @contextmanager
    def cut(self, *, tables: Iterable[str | TableName] = (), topics: Iterable[str] | None = None) -> Iterator[Cut]:
        """Open a snapshot of topics, tables and home rows; it has all topics unless some are named."""
        with ExitStack() as opened:
            named = names_of(self._kernel.tables, tables)
            with self._kernel.announce.around(facts.Ticking, about="cut"):
                cut = opened.enter_context(self._home.cut(named))
            yield chosen(cut, named, topics, self._kernel.tables)

    def roles(self, profile: CheckProfile | None = None) -> list[Role]:
        """Return the roles of this store, to run in a loop or one by one."""
        if profile is not None:
            check_kind(profile, CheckProfile, "profile", "give a CheckProfile")
        kernel = self._kernel
        settling: list[Role] = [CheckBack(kernel, profile), Recovery(kernel), SagaRecovery(kernel)]
        telling = [] if self._followers is None else [FollowUpRole(kernel, self._followers, self.consumer)]
        return [Dispatcher(kernel), *settling, PartitionRole(kernel), Scheduler(kernel), Budgets(kernel), *telling]

    def own_roles(self) -> list[Role]:
        """Return the roles every process runs for itself: renew its leases, answer for its producer groups."""
        return [Heartbeat(self._kernel), AnswerRole(self._kernel, self._check_threads)]

    def close(self) -> None:
        """Release the leases of streams, stop the roles, finish queued calls and release every connection."""
        if self._parts.closed:
            return
        readers: list[Stream | Consumer] = [*self._streams, *self._consumers]
        for reader in readers:
            with suppress(StoreError):  # its leases expire on their own
                reader.close()
        self._parts.when_decided(lambda: None)  # a late decision must not restart the roles
        self._parts.running.on_work = None
        for loop in (self._loop, self._own):
            if loop is not None:
                loop.stop()
        self._loop = self._own = None
        with suppress(StoreError):
            self._resign()
        self._parts.close()
        self._on_close()

    def __enter__(self) -> Self:
        """Use the broker as a context manager."""
        self._kernel.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the broker."""
        self.close()

    def _start_anew(self) -> None:
        """Leave roles and streams to the parent, as a forked child must: it has neither the threads nor the leases."""
        self._starting = Lock()
        self._streams.clear()
        self._consumers.clear()
        self._parts.member = self._home.new_member()  # the parent keeps its leases and memberships
        self._parts.running.start_anew()
        self._parts.notes.start_anew()  # a thread that exists only in the parent may hold its lock
        self._own = None  # the first work in this child starts its own loop
        if self._loop is not None:
            self._loop = None
            self._parts.when_decided(self._start)  # the first decision in this child starts its roles

    def _member(self, name: str | None) -> str:
        if name is None:
            return self._home.new_member()
        check_name(name, what="member", known=lambda: False)
        return name

    def _resign(self) -> None:
        """Remove this process from the producer groups it answers for."""
        if kinds := [checkers_of(group) for group in self._parts.checkers.by_id]:
            with self._parts.announce.around(facts.Enlisting, about=self._parts.member):
                self._parts.store.leases.drop(kinds, self._parts.member)

    def _answer(self) -> None:
        if self._answers and self._parts.checkers:
            self._live()
        if self._own is not None:
            self._own.wake(Heartbeat.name)

    def _live(self) -> None:
        """Start renewing leases on this process's work and answering for its groups."""
        if self._own is not None:
            return
        with self._starting:
            if self._own is None and not self._parts.closed:
                answering = [AnswerRole(self._parts, self._check_threads)] if self._answers else []
                own = Loop([Heartbeat(self._parts, enlists=self._answers), *answering], self._parts.jitter)
                own.start()  # if this fails, the next call tries again
                self._own = own

    def _start(self) -> None:
        self._kernel.require_open()
        with self._starting:
            if self._run_roles and self._loop is None:
                loop = Loop(self.roles(), self._parts.jitter)
                loop.start()
                self._loop = loop
                self._kernel.when_decided(lambda: loop.wake(Dispatcher.name))


def _start_anew_after_fork() -> None:
    for broker in list(_every_broker):
        broker._start_anew()


at_fork(_start_anew_after_fork)
