"""
A topic of a native RocketMQ as a participant: its half messages are the yes, and our decision answers its check-back.

    reserve    the ids of the messages, in the home database, before anything is sent
    vote       the halves are sent, each with the name of its branch; then the reservation is held
    commit     the reservation is confirmed first, then each half is ended once
    check-back is answered by the reservation, in any process that has registered the topic

RocketMQ keeps no state of a decision: who ends a half twice delivers it twice. So only the process that confirms the
reservation ends the halves by itself. Whatever is lost after that, RocketMQ's next question gets the answer; a copy of
a message that is in the topic already gets ROLLBACK. A half that no reservation names is closed, so that it can't be
committed later, and rolled back. With a name server, a commit is done when the topic has the messages; RocketMQ itself
only says that it has passed the end on.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID, uuid5

from txsaga import errors
from txsaga.core.arguments import check_kind, check_seconds, check_text
from txsaga.core.clock import wall_clock
from txsaga.core.decision import Decision
from txsaga.core.message import Message, SendOptions, as_message
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.gateway import wire
from txsaga.gateway.proxy_client import ProxyClient
from txsaga.gateway.remoting import BrokerView
from txsaga.gateway.status import Code
from txsaga.resources.capabilities import CAPABILITIES, ResourceKind
from txsaga.resources.participant import HomeStore, ours
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.resources.two_phase import VotingBranch, VotingParticipant
from txsaga.store.right import Right

if TYPE_CHECKING:
    import grpc

ADDRESS = "write host:port"
BRANCH = "TXSAGA_BRANCH"
"""The property of a message that names its branch."""
SEEN, LOOK = 2.0, 0.01
"""Seconds to wait until an ended message is in its topic, and between two looks."""
REFUSED = ("ordering_key", "deliver_at", "delay", "unique_key")
"""Options that RocketMQ's half messages do not have."""
MARGIN = 60.0
"""Seconds after RocketMQ's last question before a message that is not in the topic counts as set aside."""
DECISIONS = {
    ReservationState.CONFIRMED: Decision.COMMIT,
    ReservationState.CANCELLING: Decision.ROLLBACK,
    ReservationState.CANCELLED: Decision.ROLLBACK,
}


class RocketMQ:
    """
    A topic of a RocketMQ 5 to register, by the address of a proxy.

    With a `name_server`, the settings of its brokers are checked, and a commit is done when the messages are in the
    topic. `undecided` is how long a half message may wait for the decision, for example while txsaga is down.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        topic: str,
        name_server: str | None = None,
        undecided: float = 300.0,
        keys: tuple[str, str] | None = None,
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        check_text(topic, "the topic", "name one of RocketMQ's")
        for given, what in ((endpoint, "the endpoint"), (name_server, "name_server")):
            check_kind(given, (str, type(None)), what, ADDRESS)
            for address in given.split(";") if given is not None else ():
                if not re.fullmatch(r".+:[0-9]{1,5}", address):
                    raise errors.ConfigError(f"{what} is {address!r}; {ADDRESS}")
        check_seconds(undecided, "undecided")
        self._endpoint, self.topic, self.undecided = endpoint, topic, undecided
        self._name_server, self._keys, self._tls = name_server, keys, tls

    def participant(self, name: str, store: HomeStore) -> RocketMQParticipant:
        """Return the topic as a participant."""
        view = None if self._name_server is None else BrokerView(self._name_server, self.topic)
        participant = RocketMQParticipant(self, name, f"{self.topic}@{self._endpoint}", store, view)
        participant.client = ProxyClient(self._endpoint, self.topic, participant.answer, keys=self._keys, tls=self._tls)
        return participant


class OutgoingHalves:
    """What a user works with: messages that are sent when the branch votes."""

    def __init__(self, topic: str, branch: BranchId) -> None:
        self._topic, self.branch = topic, branch
        self.closed = False
        self.messages: list[Message] = []

    def send(self, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Send a message if the transaction commits: its body as bytes, `text=` or `json=`; a key, tag, headers."""
        if self.closed:
            raise errors.TransactionClosed(f"the branch for {self._topic!r} was asked for its vote: it is too late")
        message = as_message(self._topic, body, options)
        given = [each for each in REFUSED if getattr(message, each) is not None]
        if given:
            raise errors.InvalidMessage(f"a half message of RocketMQ takes no {', '.join(given)}")
        self.messages.append(message)


class HalvesBranch(VotingBranch):
    """The work of one branch."""

    def __init__(self, participant: RocketMQParticipant, branch: BranchId) -> None:
        super().__init__(branch)
        self._participant, self._begun = participant, False
        self.handle = OutgoingHalves(participant.topic, branch)

    def leave(self) -> None:
        """Release the branch; roll it back unless it has voted yes."""
        self._close()
        if self._begun and not self._prepared:
            with suppress(errors.TxSagaError):  # recovery does it once the transaction is decided
                self._end(Decision.ROLLBACK)

    def _close(self) -> None:
        self.handle.closed = True

    def _vote(self) -> Vote:
        if not self.handle.messages:
            return Vote.READ_ONLY
        self._begun = True
        self._participant.reserve(self._branch, self.handle.messages)
        self._prepared = True
        return Vote.PREPARED

    def _end(self, decision: Decision) -> Finish:
        return self._participant.finish(self._branch, decision) if self._begun else Finish.DONE


class RocketMQParticipant(VotingParticipant):
    """One registered topic."""

    capabilities = CAPABILITIES[ResourceKind.ROCKETMQ]
    client: ProxyClient

    def __init__(self, given: RocketMQ, name: str, place: str, store: HomeStore, view: BrokerView | None) -> None:
        self.name, self.topic = name, given.topic
        self._undecided, self._place, self._store, self._view = given.undecided, place, store, view

    @property
    def database(self) -> UUID:
        """A uuid derived from the store, the proxy's address and the topic: RocketMQ has none."""
        return uuid5(self._store.registry.identity.uuid, f"{ResourceKind.ROCKETMQ}:{self._place}")

    def probe(self) -> None:
        """Raise `ConfigError` unless the topic takes half messages and the settings of its brokers allow them."""
        if Right.PRODUCER not in self._store.rights:
            raise errors.ConfigError(
                f"participant {self.name!r} can't vote: this login has no producer right; grant it"
            )
        with _reached(errors.StoreUnavailable):
            route = self.client.route()
            settings = {} if self._view is None else self._view.settings()
        transaction = wire.number("MessageType", "TRANSACTION")
        if not any(transaction in queue.accept_message_types for queue in route.message_queues):
            raise errors.ConfigError(
                f"topic {self.topic!r} takes no half messages ({route.status.message.splitlines()[0]}); run "
                f"mqadmin updateTopic -n NAMESERVER -c CLUSTER -t {self.topic} -a +message.type=TRANSACTION"
            )
        for broker, said in settings.items():
            check_settings(broker, said, self._undecided)

    def enlist(self, branch: BranchId) -> HalvesBranch:
        """Open a branch; nothing is sent before its vote."""
        return HalvesBranch(self, branch)

    def reserve(self, branch: BranchId, messages: Sequence[Message]) -> None:
        """Send the halves of a branch and hold them; any error is a no."""
        ids = [f"01{secrets.token_hex(16).upper()}" for _ in messages]
        kept = {"ids": ids, "born": wall_clock().timestamp()}
        if not self._store.reservations.begin(branch, self.name, kept):
            raise errors.RolledBack(f"branch {branch.gid} is closed in {self.name!r}: its messages come too late")
        self.client.listen()
        for id, message in zip(ids, messages, strict=True):
            with _reached(errors.CommunicationFailed):
                status = self.client.send(_half(message, id, branch))
            if status.code != Code.OK:
                raise errors.OtherReason(f"RocketMQ refused a message of {branch.gid}: {status.message}")
        if not self._store.reservations.hold(branch):
            raise errors.RolledBack(f"branch {branch.gid} votes no: it was rolled back meanwhile")

    def finish(self, branch: BranchId, decision: Decision) -> Finish:
        """Carry out the decision, from any process; if it is kept already, only its arrival is awaited."""
        self.client.listen()
        return self._confirmed(branch) if decision is Decision.COMMIT else self._cancelled(branch)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that is held, or still to be cancelled, for a store; answer check-back from now on."""
        self.client.listen()
        return self._store.reservations.held(self.name, store)

    def forget(self, branch: BranchId) -> None:
        """Delete the reservation."""
        self._store.reservations.drop(branch)

    def close(self) -> None:
        """End the answers of this process."""
        self.client.close()

    def answer(self, asked: Any) -> Decision | None:
        """Return what RocketMQ is answered about a half message: the decision, if there is one, about our own."""
        store = self._store.registry.identity.uuid.hex
        for branch in ours(asked.user_properties.get(BRANCH, "")):
            if branch.store == store:
                found = self._store.reservations.find(branch) or self._store.reservations.shut(branch, self.name)
                decision = DECISIONS.get(found.state)
                copied = decision is Decision.COMMIT and self._view is not None
                return Decision.ROLLBACK if copied and self._has(asked.system_properties.message_id) else decision
        return None

    def _confirmed(self, branch: BranchId) -> Finish:
        found = self._store.reservations.find(branch)
        match found.state if found else None:
            case ReservationState.OPEN:
                raise errors.ProtocolError(f"branch {branch.gid} did not vote yes, so it can't be committed")
            case ReservationState.HELD | ReservationState.CONFIRMED:
                assert found is not None
                first = self._store.reservations.settle(branch, Decision.COMMIT)
                if first:
                    self._end(found, Decision.COMMIT)
                return self._arrived(branch, found, SEEN if first else 0.0)
            case _:
                return Finish.ROLLED_BACK

    def _cancelled(self, branch: BranchId) -> Finish:
        found = self._store.reservations.shut(branch, self.name)
        if found.state is ReservationState.CONFIRMED:
            return Finish.COMMITTED
        if found.state is not ReservationState.CANCELLED:
            self._end(found, Decision.ROLLBACK)
            self._store.reservations.settle(branch, Decision.ROLLBACK)
        return Finish.DONE

    def _end(self, reserved: Reservation, decision: Decision) -> None:
        """End the halves; those that this proxy does not know any more get the decision when RocketMQ asks."""
        for id in _ids(reserved):
            with _reached(errors.ResourceManagerFailed):
                self.client.end(id, decision)

    def _arrived(self, branch: BranchId, reserved: Reservation, patience: float) -> Finish:
        """Return DONE once the topic has the messages; HAZARD if RocketMQ has given up asking."""
        missing, until = _ids(reserved) if self._view is not None else [], time.monotonic() + patience
        while missing := [id for id in missing if not self._has(id)]:
            if time.monotonic() > until:
                break
            time.sleep(LOOK)
        if not missing:
            return Finish.DONE
        if wall_clock().timestamp() - float(str(reserved.arguments["born"])) > self._asked_for():
            return Finish.HAZARD
        raise errors.RetryLater(f"branch {branch.gid}: RocketMQ gets COMMIT for {missing} when it asks the next time")

    def _has(self, id: str) -> bool:
        assert self._view is not None
        with _reached(errors.ResourceManagerFailed):
            return self._view.has(id)

    def _asked_for(self) -> float:
        """Return the age, in seconds, at which RocketMQ sets a half aside, with some to spare."""
        assert self._view is not None
        with _reached(errors.ResourceManagerFailed):
            return MARGIN + max((asked_for(each) for each in self._view.settings().values()), default=0.0)


def check_settings(broker: str, said: Mapping[str, str], undecided: float) -> None:
    """Refuse a broker whose settings would deliver twice, park too early, or take no half messages."""
    if said.get("rejectTransactionMessage") == "true":
        raise errors.ConfigError(f"broker {broker} takes no half messages; set rejectTransactionMessage=false there")
    batch = _number(said, "transactionOpBatchInterval")
    for name in ("transactionCheckInterval", "transactionTimeOut"):
        if _number(said, name) <= batch:
            raise errors.ConfigError(
                f"broker {broker} asks about messages that it has ended already, and then delivers them twice: set "
                f"{name} ({_number(said, name):.0f} ms) above transactionOpBatchInterval ({batch:.0f} ms)"
            )
    if asked_for(said) < undecided:
        raise errors.ConfigError(
            f"broker {broker} sets a half message aside after {asked_for(said):.0f} s, and undecided= is {undecided:.0f} s: "
            f"raise transactionCheckMax ({said['transactionCheckMax']}) there, or its commit would be lost"
        )


def asked_for(said: Mapping[str, str]) -> float:
    """Return for how many seconds a broker with these settings asks about a half message."""
    return _number(said, "transactionCheckMax") * _number(said, "transactionCheckInterval") / 1000


def _number(said: Mapping[str, str], name: str) -> float:
    try:
        return float(said[name])
    except (KeyError, ValueError):
        raise errors.ConfigError(f"the broker does not tell {name}; give no name_server, and check it there") from None


def _half(message: Message, id: str, branch: BranchId) -> Any:
    system = {"message_type": wire.number("MessageType", "TRANSACTION"), "message_id": id}
    system |= {"born_timestamp": wire.in_parts(time.time()), "born_host": socket.gethostname()}
    system |= {"body_encoding": wire.number("Encoding", "IDENTITY"), "keys": [message.key] if message.key else []}
    if message.tag:
        system["tag"] = message.tag
    properties = {**(message.headers or {}), BRANCH: branch.gid}
    topic = {"name": message.topic}
    return wire.new("Message", topic=topic, body=message.body, user_properties=properties, system_properties=system)


def _ids(reserved: Reservation) -> list[str]:
    ids = reserved.arguments.get("ids")
    return [str(id) for id in ids] if isinstance(ids, list) else []


@contextmanager
def _reached(lost: type[errors.TxSagaError]) -> Iterator[None]:
    """Raise this error where RocketMQ can't be reached."""
    try:
        yield
    except OSError as reason:
        raise lost(f"RocketMQ can't be reached: {reason}") from reason
