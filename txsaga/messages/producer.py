"""
The producer of one group: plain sends, half messages and transaction blocks, also with futures.

Only half messages that the caller decides (`prepare`, `tx.prepare`) need a checker: the work that they wait for leaves
no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack, overload

from txsaga.checkback.checkers import Checker
from txsaga.checkback.profile import LONGEST, checked
from txsaga.core import facts
from txsaga.core.arguments import check_count, check_duration, check_function, check_seconds, check_text
from txsaga.core.batch_future import BatchFuture
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel, OfBroker
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Column, Message, SendOptions, as_message
from txsaga.core.records import DecisionOutcome, Due, End, Group, Half, Receipt, Row
from txsaga.core.topic import SendKind, check_name
from txsaga.core.validation import validate_key, validate_life, validate_receipt
from txsaga.errors import CheckerMissing, ConfigError, DecidedOtherwise, InvalidMessage
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.flow import Flow, enrolled
from txsaga.flows.flow_begin import FlowOpening, FlowStart
from txsaga.flows.saga import Saga
from txsaga.flows.search import PAGE, Recovered, Scope, Search
from txsaga.flows.step import BUDGET, LEASE
from txsaga.messages.message_buffer import Outbox
from txsaga.messages.topics import admit_immunity
from txsaga.messages.transaction import Transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from txsaga.messages.joined_sends import AsyncJoined, JoinedSends


class Producer(OfBroker):
    """Sends messages for one producer group."""

    def __init__(
        self, kernel: Kernel, name: str, checker: Checker | None = None, *, transactional: bool = False
    ) -> None:
        """Register the group as one of RocketMQ's or a plain one; a plain producer with a checker joins both."""
        registry = kernel.store.registry
        check_name(name, what="producer group", known=lambda: registry.find_group(name) is not None)
        if checker is not None:
            check_function(checker, "checker", "give a function that answers for a transaction")
        super().__init__(kernel)
        self.checker = checker
        with kernel.announce.around(facts.Registering, about=f"producer group {name}"):
            kind = transactional or (False if checker is None else None)
            self.group: Group = registry.group(name, transactional=kind)
        kernel.running.expect(self.group)
        if checker is not None:
            kernel.checkers.register(self.group, checker)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group.name}>"

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> Receipt:
        """Send a plain message; when this returns, it is durable and will be delivered."""
        return self._kernel.stores.call(self._plain(as_message(topic, body, options)))

    def submit(
        self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]
    ) -> BatchFuture[Receipt]:
        """Send a plain message; the future is done when it is durable."""
        return self._kernel.stores.submit(self._plain(as_message(topic, body, options)))

    def send_many(self, topic: str, bodies: Sequence[bytes], *, keys: Column = None, tags: Column = None) -> Receipt:
        """Send many plain messages of one topic in one commit."""
        outbox = Outbox(self._kernel.topics, SendKind.PLAIN)
        outbox.add_many(topic, bodies, keys=keys, tags=tags)
        return self._kernel.stores.call(Half(self.group.id, outbox.take(), plain=True))

    @overload
    def join(self, connection: Connection) -> JoinedSends: ...

    @overload
    def join(self, connection: AsyncConnection) -> AsyncJoined: ...

    def join(self, connection: Connection | AsyncConnection) -> JoinedSends | AsyncJoined:
        """Send inside your own transaction in the home database: one commit, no half message."""
        from txsaga.messages.joined_sends import join

        return join(connection, self._kernel, self.group.id)

    def recall(self, receipt: Receipt) -> DecisionOutcome:
        """Recall a delayed message before it is delivered; `DecidedOtherwise` if it is too late."""
        validate_receipt(receipt)
        end = End(receipt.txid, self.group.id, receipt.token, Decision.ROLLBACK, recalls=True)
        return self._won(self._kernel.decides.call(end), Decision.ROLLBACK)

    def prepare(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        immunity: int | None = None,
        **options: Unpack[SendOptions],
    ) -> BatchFuture[Receipt]:
        """Store a half message; the future is done when it is durable and invisible."""
        return self._kernel.stores.submit(self._half(as_message(topic, body, options), immunity))

    def decide(self, receipt: Receipt, decision: Decision) -> BatchFuture[DecisionOutcome]:
        """Decide a half; the future returns the final decision."""
        return self._kernel.decides.submit(self._end(receipt, decision))

    def prepare_now(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        immunity: int | None = None,
        **options: Unpack[SendOptions],
    ) -> Receipt:
        """Store a half message in this thread."""
        return self._kernel.stores.call(self._half(as_message(topic, body, options), immunity))

    def commit(self, receipt: Receipt) -> DecisionOutcome:
        """Commit a half in this thread; `DecidedOtherwise` if it is already ROLLBACK."""
        return self._decided(receipt, Decision.COMMIT)

    def roll_back(self, receipt: Receipt) -> DecisionOutcome:
        """Roll a half back in this thread; `DecidedOtherwise` if it is already COMMIT."""
        return self._decided(receipt, Decision.ROLLBACK)

    def transaction(
        self, *, key: str | None = None, immunity: int | None = None, run: str | None = None
    ) -> Transaction:
        """Open a transaction block; with a key it happens once, however often it is tried.

        `run` names the flow it belongs to: check-back asks that flow's host first.
        """
        validate_life(key, run)
        if key is not None and immunity is not None:
            raise InvalidMessage("immunity is for half messages; one with a key is only checked after it is sealed")
        own = None if immunity is None else admit_immunity(self.group, checked(immunity))
        return Transaction(self._kernel, self.group, key=key, immunity=own, run=run)

    def coordinated(
        self, *resources: str, key: str | None = None, run: str | None = None, patience: float = 0.0
    ) -> Coordinated:
        """Open a transaction over several resources, with one outcome for all of them and for its messages.

        With a key it happens once, however often it is tried. `run` names the flow it belongs to. If the store, or a
        resource before its first work, is unavailable, wait up to `patience` seconds for it.
        """
        check_seconds(patience, "patience")
        validate_life(key, run)
        return Coordinated(self._kernel, self.group, resources, key=key, run=run, patience=patience)

    def begin_flow(
        self,
        *resources: str,
        key: str,
        lanes: Sequence[str] = (),
        lease: timedelta = LEASE,
        budget: timedelta | Mapping[str, timedelta] = BUDGET,
        run: str | None = None,
        amend: str | None = None,
    ) -> Flow:
        """Begin a flow: one transaction whose steps run in separate processes. Beginning it again joins it.

        Its steps may work in these resources, and in lanes of these. It is rolled back when no process shows activity
        for its lease. Locks held longer than a budget (for all, or by resource) are reported. If its key is already
        committed it is refused; with `amend` it opens a new record that amends the committed one, once per identifier.
        """
        validate_key(key)
        validate_life(key, run)
        check_duration(lease, "lease", LONGEST)
        if not lease:
            raise ConfigError("lease is 0:00:00; give the time for which the flow waits for its next process")
        if amend is not None:
            check_text(amend, "amend", "give an identifier that is the same each time this amendment is begun")
        said = FlowStart(enrolled(self._kernel, resources, lanes, budget), lease, run, amend)
        return Flow(self._kernel, FlowOpening(self._kernel).begin(self.group, key, said))

    def flow(self, key: str) -> Flow:
        """Join the flow that was begun under a key."""
        validate_key(key)
        return Flow(self._kernel, FlowOpening(self._kernel).join(self.group, key))

    def saga(self, *, key: str | None = None, run: str | None = None) -> Saga:
        """Open a saga of this group: steps commit one by one, and are undone one by one if it fails."""
        validate_life(key, run)
        return Saga(self._kernel, self.group, key=key, run=run)

    def recover(self, scope: Scope | str = Scope.RESTRICTED, *, page: int = PAGE) -> Iterator[list[Recovered]]:
        """Scan resources for prepared or heuristic branches, in pages: this group's, or all.

        If a resource can't be scanned, raise `ResourceManagerFailed`, which names it, before the first page.
        """
        check_count(page, "page")
        if scope not in list(Scope):
            raise ConfigError(f"unknown scope {scope!r}; use {' or '.join(map(repr, map(str, Scope)))}")
        return Search(self._kernel, self.group if scope == Scope.RESTRICTED else None).pages(page)

    def _decided(self, receipt: Receipt, decision: Decision) -> DecisionOutcome:
        return self._won(self._kernel.decides.call(self._end(receipt, decision)), decision)

    def _won(self, standing: DecisionOutcome, decision: Decision) -> DecisionOutcome:
        if standing.decision is not decision:
            raise DecidedOtherwise(standing.txid, standing.decision.name)
        return standing

    def _end(self, receipt: Receipt, decision: Decision) -> End:
        """Build the end of a half of this group; another group's receipt is refused later."""
        validate_receipt(receipt)
        if not isinstance(decision, Decision):
            raise InvalidMessage(f"{decision!r} is not a decision; give Decision.COMMIT or Decision.ROLLBACK")
        return End(receipt.txid, self.group.id, receipt.token, decision)

    def _plain(self, message: Message) -> Half:
        message, qid = self._kernel.topics.admit(message, SendKind.PLAIN)
        rows = [Row(qid, 0, 1, lay_out_one(message))]
        if message.scheduled:
            return Half(self.group.id, rows, due=Due(message.delay, message.deliver_at))
        return Half(self.group.id, rows, plain=True)

    def _half(self, message: Message, immunity: int | None) -> Half:
        if self.checker is None:
            raise CheckerMissing(self.group.name)
        return self._kernel.topics.half(self.group, message, immunity)[1]
