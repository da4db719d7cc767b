"""
The producer of a cluster: plain messages placed one by one, transactions as a whole.

If a broker can't take a plain message, the next one does. A lost answer is raised, because another broker would deliver
the message twice. If the policy guarantees several copies, each plain message is a transaction of its own, so that all
of them are kept or none.

    with producer.transaction() as tx:
        tx.send("orders", b"…")
        tx.consume(message)

A transaction is coordinated by a store that is no member. Every reachable broker has an open branch with the same
transaction id. Brokers that took or gave messages take part: only they vote and are notified of the decision. The
others are rolled back separately afterwards; errors there are logged and counted, and the commit waits for them only
briefly. An error of a participant is raised, before the decision as its vote, after it as `Unfinished`. If this process
dies, each broker rolls back what has not voted, and recovery finishes the rest.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from threading import Thread
from typing import NamedTuple, NoReturn, Self, Unpack, cast

from txsaga import errors
from txsaga.clusters.copies import as_copy
from txsaga.clusters.members import AWAY, Members
from txsaga.clusters.policies import PolicyName
from txsaga.clusters.selection import Chooser
from txsaga.consume.delivery import Consumed, Delivery
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.message import Message, SendOptions, as_message
from txsaga.core.records import Group, Receipt
from txsaga.core.validation import validate_key
from txsaga.flows.batches import noted
from txsaga.flows.branch import Vote
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.work import PhaseTwoResult
from txsaga.messages.producer import Producer
from txsaga.messages.stored_block import BlockStage
from txsaga.resources.broker import BrokerWork
from txsaga.resources.participant import EnlistedBranch

logger = logging.getLogger("txsaga")

CLEANING = 5.0
"""Seconds that a commit waits for brokers that take no part."""
RETRIED = (errors.CommunicationFailed, errors.TransientFailure, errors.TimedOut, errors.ResourceManagerFailed)
"""Vote errors that are not about the message itself."""


class ClusterTransaction(Coordinated):
    """One transaction of a cluster producer, as a context manager."""

    def __init__(
        self,
        kernel: Kernel,
        group: Group,
        chooser: Chooser,
        members: Members,
        *,
        key: str | None,
        nodes: Sequence[str] | None,
        failures: Counter[str],
    ) -> None:
        self._chooser, self._members, self._pinned, self._failures = chooser, members, nodes, failures
        self._reached, self._refused = _reached(kernel, members)
        super().__init__(kernel, group, self._reached, key=key)
        self._chosen: tuple[str, ...] = ()
        self._must: set[str] = set()  # consumed from: none of them may be missing
        self._aside: list[tuple[str, EnlistedBranch]] = []
        self._unheard: set[str] = set()  # asked, but no yes came: recovery rolls back what they hold
        self._votes: dict[str, Vote] | None = None
        self._ended = False
        self._took_part: tuple[str, ...] | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The brokers that take its messages: a node list for later ones."""
        return self._chosen

    @property
    def participants(self) -> tuple[str, ...]:
        """The brokers that took or gave messages, also after the block."""
        if self._took_part is not None:
            return self._took_part
        return tuple(name for name in self._open if self._handle(name).used)

    @property
    def _open(self) -> list[str]:
        """The brokers that have a branch, without units of auxiliary lanes."""
        return [name for name in self._branches.work.used if name in self._reached]

    def __enter__(self) -> Self:
        super().__enter__()
        with ExitStack() as opened:
            opened.push(self)
            self._open_branches()
            among = self._branches.work.used
            self._chosen = self._chooser.choose(among, self._pinned)
            opened.pop_all()
        return self

    async def __aenter__(self) -> NoReturn:
        """Refuse: its brokers are called in the caller's thread."""
        raise errors.ConfigError(
            "a cluster's transaction can't be used with `async with`; use `with` in a thread (asyncio.to_thread)"
        )

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Add a message to the transaction, on its chosen brokers."""
        message = as_message(topic, body, options)
        self._require_open("send")
        if len(self._chosen) == 1:
            self._handle(self._chosen[0]).send(message)
            return
        message = as_copy(message, self._chosen[0])
        answers = {name: self._sent(name, message) for name in self._chosen}
        try:
            took = self._chooser.accepted(answers)
        except errors.ClusterError:
            self._stage = BlockStage.BROKEN  # a broker that accepted it would keep it
            raise
        self._set_aside(set(self._chosen) - set(took) - self._must)
        self._chosen = took

    def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Add many messages of one topic, one by one if copies are sent."""
        for at, body in enumerate(bodies):
            self.send(Message(topic, body, keys[at] if keys else None, tags[at] if tags else None))

    def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Let the decision consume a message for its group, on the broker that it came from."""
        self._require_open("consume")
        store = consumed.delivered.half.store if isinstance(consumed, Delivery) else batch and batch.store
        name = self._members.of_store(store.uuid) if store else None
        if name in self._refused:
            raise self._refused[name]
        if name is None or name not in self._branches.work.used:
            raise errors.TransactionError(
                f"the consumed messages are in {name or 'no broker of this cluster'}, which has no branch in this "
                "transaction; open another transaction for them"
            )
        self._handle(name).consume(consumed, batch)  # type: ignore[arg-type]  # a chunk comes with its stream
        self._must.add(name)

    def end(self) -> None:
        """Accept no more messages; the votes come next."""
        self._require_open("end")
        self._branches.work.refuse_open_units()
        self._ended = True
        self._set_aside(set(self._open) - set(self.participants))

    def prepare(self) -> None:
        """Ask the participants for their votes; a no is raised, and the transaction can then only roll back."""
        if not self._ended:
            raise errors.ProtocolError("the transaction still accepts messages; call end() before prepare()")
        self._require_ours()
        work = self._branches.work
        answers = work.ask(work.used)
        units = work.heard({key: answers.pop(key) for key in list(answers) if key not in self._reached})
        refused = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        self._require_enough(answers, refused)
        self._unheard = set(refused)
        self._set_aside(self._unheard)
        self._votes = units | {name: vote for name, vote in answers.items() if isinstance(vote, Vote)}

    def commit(self) -> None:
        """Commit now; later work in the block is refused."""
        self._require_running("commit")
        self._commit()

    def roll_back(self) -> None:
        """Roll back now; raise `ResourceManagerFailed` if a participant was not notified.

        Raise `HeuristicCommit` if a branch was already committed there by hand.
        """
        self._require_running("roll back")
        told = self._roll_back("its program asked for it")
        if told.against:
            raise told.against[0]
        if told.silent:
            raise errors.ResourceManagerFailed(
                f"transaction {self.txid} is rolled back, but {', '.join(told.silent)} did not "
                "answer; recovery finishes it"
            )

    def _leave(self, error: BaseException | None) -> None:
        try:
            super()._leave(error)
        finally:
            self._took_part = self.participants  # its source is released next
            self._clean_up()  # also if the outcome is unknown: it concerns none of these

    def _commit(self) -> None:
        if not self._ended:
            self.end()
        if self._votes is None:
            self.prepare()
        work = self._branches.work
        votes = work.named(self._votes or {}, besides=self._unheard)
        self._stage = BlockStage.CLOSED  # from here on the answer may be lost: only the store knows
        standing = self._branches.decide(Decision.COMMIT, "the block ended", self._outbox.take(), votes)
        self._follow(standing)

    def _roll_back(self, why: str, leaves: BaseException | None = None) -> PhaseTwoResult:
        self._took_part = self.participants  # non-participants are released before the rest
        self._set_aside(set(self._open) - set(self._took_part))
        return super()._roll_back(why, leaves)

    def _told(self, decision: Decision) -> PhaseTwoResult:
        told = super()._told(decision)
        self._clean_up()
        return told

    def _open_branches(self) -> None:
        for name in self._reached:
            try:
                self._handle(name)
            except AWAY as away:
                self._members.failed(name, away)
            except errors.TransactionsRejected as reason:  # the others take the messages
                self._refused[name] = reason
        if self._refused and not self._open:
            raise next(iter(self._refused.values()))

    def _handle(self, name: str) -> BrokerWork:
        return cast(BrokerWork, self._branches.work.handle(name))

    def _sent(self, name: str, message: Message) -> errors.TxSagaError | None:
        try:
            self._handle(name).send(message)
        except errors.TxSagaError as error:
            return error
        return None

    def _require_enough(self, answers: dict[str, Vote | Exception], refused: dict[str, Exception]) -> None:
        """Raise a no vote, unless enough of the brokers that got a copy accepted it."""
        for name, error in refused.items():
            if isinstance(error, errors.ResourceManagerFailed | errors.CommunicationFailed):
                self._members.failed(name, error)
            error.add_note(f"this was the vote of broker {name!r}")
        many = PolicyName.GUARANTEED in self._chooser.policies and not self._must & set(refused)
        if refused and not many:
            raise next(iter(refused.values()))
        if many and self._chosen and not set(self._chosen).isdisjoint(answers):
            self._chooser.accepted({name: _reason(refused.get(name)) for name in self._chosen})

    def _set_aside(self, names: Iterable[str]) -> None:
        work = self._branches.work
        self._aside += [(name, work.take_out(name)) for name in work.used if name in set(names)]

    def _clean_up(self) -> None:
        """Roll back non-participants; their errors are only logged (WM-18, WM-20)."""
        aside, self._aside = self._aside, []
        threads = [Thread(target=self._roll_one_back, args=each, daemon=True) for each in aside]
        for thread in threads:
            thread.start()
        until = time.monotonic() + CLEANING
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _roll_one_back(self, name: str, enlisted: EnlistedBranch) -> None:
        try:
            found = enlisted.finish(Decision.ROLLBACK)()
            branch = self._branches.work.part(name).branch
            self._kernel.notes.add([noted(self._owner.life.txid, branch, Decision.ROLLBACK, found)])
        except Exception as error:  # noqa: BLE001  # the caller does not wait for it
            self._failures[name] += 1
            if isinstance(error, errors.StoreUnavailable):
                self._members.failed(name, error)
            logger.warning("broker %r kept its branch of transaction %s: %s", name, self.txid, error)
        finally:
            enlisted.leave()

    def _require_open(self, what: str) -> None:
        super()._require_open(what)
        if self._ended:
            raise errors.TransactionClosed(f"transaction {self.txid} has ended and can't {what}")

    def _require_running(self, what: str) -> None:
        super()._require_open(what)


def _reached(kernel: Kernel, members: Members) -> tuple[list[str], dict[str, errors.TransactionsRejected]]:
    """Return the brokers that can open a branch, and why others refuse."""
    found, refused = list[str](), dict[str, errors.TransactionsRejected]()
    for name in members.available():
        try:
            kernel.participant(name)
            found.append(name)
        except AWAY as away:
            members.failed(name, away)
        except errors.TransactionsRejected as reason:
            refused[name] = reason
    if not found:
        nobody = errors.StoreUnavailable(f"no broker of {', '.join(members.names)} is reachable; try again later")
        raise next(iter(refused.values()), nobody)
    return found, refused


def _reason(error: Exception | None) -> errors.TxSagaError | None:
    """Return why a broker did not accept, as a retryable or a permanent error."""
    if error is None or (isinstance(error, errors.TxSagaError) and not isinstance(error, RETRIED)):
        return error
    return errors.StoreUnavailable(str(error)) if isinstance(error, RETRIED) else errors.TransactionError(str(error))


class PlacedSend(NamedTuple):
    """The placement of a message: the node list that pins later ones, and the receipts."""

    nodes: tuple[str, ...]
    receipts: Mapping[str, Receipt]


class ClusterProducer:
    """Sends to the brokers of a cluster for one group."""

    def __init__(
        self,
        group: str,
        chooser: Chooser,
        members: Members,
        coordinator: tuple[Kernel, Producer] | None,
        failures: Counter[str],
    ) -> None:
        self.group = group
        self._chooser, self._members, self._coordinator = chooser, members, coordinator
        self._failures = failures
        self._producers: dict[str, Producer] = {}

    def send(
        self,
        topic: str | Message,
        body: bytes | None = None,
        *,
        nodes: Sequence[str] | None = None,
        **options: Unpack[SendOptions],
    ) -> PlacedSend:
        """Send a plain message to brokers chosen by the policy, or to a node list; return its placement."""
        message = as_message(topic, body, options)
        if PolicyName.GUARANTEED in self._chooser.policies:
            with self.transaction(nodes=nodes) as tx:
                tx.send(message)
            return PlacedSend(tx.nodes, {})
        while True:
            chosen = self._chooser.choose(self._members.available(), nodes)
            copy = as_copy(message, chosen[0]) if PolicyName.BEST_EFFORT in self._chooser.policies else message
            receipts, answers = self._sent(chosen, copy)
            if len(chosen) == 1 and (error := answers[chosen[0]]) is not None:
                if not isinstance(error, AWAY):
                    raise error
                if nodes is None:
                    continue  # nothing was written there: try the next one
                raise errors.PinRefused(
                    f"broker {chosen[0]!r} is not available, and the message is pinned to it; "
                    "wait for it, or send without a node list"
                ) from error
            unknown = next((error for error in answers.values() if isinstance(error, errors.OutcomeUnknown)), None)
            if not receipts and unknown is not None:
                raise unknown  # it may be stored: a second send would be another message
            return PlacedSend(self._chooser.accepted(answers), receipts)

    def transaction(self, *, key: str | None = None, nodes: Sequence[str] | None = None) -> ClusterTransaction:
        """Open a transaction whose messages all go to brokers that the policy chooses once."""
        if self._coordinator is None:
            raise errors.ConfigError(
                f"cluster {self._chooser.cluster.name!r} has no coordinator, which its transactions need; "
                "pass xa=True and coordinator=txsaga.connect(…)"
            )
        if key is not None:
            validate_key(key)
        kernel, producer = self._coordinator
        return ClusterTransaction(
            kernel, producer.group, self._chooser, self._members, key=key, nodes=nodes, failures=self._failures
        )

    def _sent(
        self, chosen: Sequence[str], message: Message
    ) -> tuple[dict[str, Receipt], dict[str, errors.TxSagaError | None]]:
        receipts, answers = dict[str, Receipt](), dict[str, errors.TxSagaError | None]()
        for name in chosen:
            try:
                receipts[name] = self._producer(name).send(message)
                answers[name] = None
            except errors.TxSagaError as error:
                answers[name] = error
                if isinstance(error, AWAY):
                    self._members.failed(name, error)
        return receipts, answers

    def _producer(self, name: str) -> Producer:
        if name not in self._producers:
            self._producers[name] = self._members.broker(name).producer(self.group)
        return self._producers[name]
