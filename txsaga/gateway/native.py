"""
A topic of a native RocketMQ as a participant: it votes yes with half messages.

The vote reserves ids in the home database, sends the halves and holds the reservation. RocketMQ keeps no decision: a
half that is ended twice is delivered twice. So only the process that confirms the reservation ends its halves, and
only within FINISH. After that RocketMQ's questions get the decision, from any process that has used the topic; but
ROLLBACK if the message is in the topic already. A half that no reservation names is rolled back. A commit is done when
the topic has the messages; the answer to an end only means that it was passed on.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack, cast

import grpc

from txsaga import errors
from txsaga.core.arguments import check_kind, check_seconds, check_text
from txsaga.core.decision import Decision
from txsaga.core.message import Message, SendOptions, as_message
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.gateway import wire
from txsaga.gateway.messages import read
from txsaga.gateway.proxy_client import ProxyClient
from txsaga.gateway.remoting import GIVEN_UP, BrokerView
from txsaga.gateway.status import CallRefused, Code
from txsaga.resources.capabilities import ResourceKind
from txsaga.resources.participant import HomeStore, ours
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.resources.reservations_store import Reservations
from txsaga.resources.tcc import TccParticipant
from txsaga.resources.two_phase import VotingBranch

BRANCH = "txsaga-branch"  # the property of a message that names its branch
FINISH, LATE = 30.0, 10.0  # seconds from the confirm on to end the halves, and how much earlier the last call begins
SEEN, LOOK = 2.0, 0.01  # seconds until an ended message is in its topic, and between two looks
TRANSACTION = wire.number("MessageType", "TRANSACTION")
ADDRESS, KEYS = re.compile(r"(?:\[[\da-fA-F:.]+\]|[^\s:/;\[\]]+):([0-9]{1,5})"), re.compile("[!-~]+ [!-~]+")
REFUSED = ("ordering_key", "deliver_at", "delay", "unique_key")  # options that its half messages do not have
CANCELLED = (ReservationState.CANCELLING, ReservationState.CANCELLED)


class RocketMQ:
    """
    A topic of a RocketMQ 5 to register, by the `host:port` of a proxy.

    By its `name_server`, the settings of its brokers are checked, and whether committed messages are in the topic.
    `undecided` is how many seconds a half message may have to wait, for example while txsaga is down.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        topic: str,
        name_server: str,
        undecided: float = 300.0,
        keys: tuple[str, str] | None = None,
        tls: grpc.ChannelCredentials | None = None,
    ) -> None:
        check_text(topic, "the topic", "name one of RocketMQ's")
        check_seconds(undecided, "undecided")
        check_text(name_server, "name_server", "write host:port")
        for address in (endpoint, *name_server.split(";")):
            found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
            if found is None or not 0 < int(found[1]) < 65_536:
                raise errors.ConfigError(f"{address!r} is no address of RocketMQ; write host:port")
        if keys is not None and not (isinstance(keys, tuple) and KEYS.fullmatch(" ".join(map(str, keys)))):
            raise errors.ConfigError(
                'keys are no access key and secret; give ("key", "secret"), in ASCII without blanks'
            )
        check_kind(tls, (grpc.ChannelCredentials, type(None)), "tls", "give grpc.ssl_channel_credentials()")
        self.endpoint, self.topic, self.undecided, self.keys, self.tls = endpoint, topic, undecided, keys, tls
        self.view = BrokerView(name_server, topic, keys)

    def participant(self, name: str, store: HomeStore) -> RocketMQParticipant:
        """Return the topic as a participant."""
        return RocketMQParticipant(self, name, store)


class OutgoingHalves:
    """What a user works with: messages that are sent when the branch votes."""

    def __init__(self, topic: str, branch: BranchId) -> None:
        self._topic, self.branch, self.closed, self.messages = topic, branch, False, list[Message]()

    def send(self, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Send a message if the transaction commits: its body as bytes, `text=` or `json=`; a key, tag, headers."""
        if self.closed:
            raise errors.TransactionClosed(f"the branch for {self._topic!r} was asked for its vote: it is too late")
        message = as_message(self._topic, body, options)
        given = [each for each in REFUSED if getattr(message, each) is not None]
        if given or BRANCH in (message.headers or {}):
            raise errors.InvalidMessage(f"a half message of RocketMQ takes no {', '.join(given) or BRANCH}")
        try:
            read(_half(message, "", self.branch))
        except CallRefused as refused:
            raise errors.InvalidMessage(f"RocketMQ takes no such message: {refused}") from None
        self.messages.append(message)


class HalvesBranch(VotingBranch):
    """The work of one branch."""

    def __init__(self, participant: RocketMQParticipant, reservations: Reservations, branch: BranchId) -> None:
        super().__init__(branch)
        self._participant, self._reservations, self._begun = participant, reservations, False
        self.handle = OutgoingHalves(participant.topic, branch)

    def leave(self) -> None:
        """Release the branch; roll it back unless it has voted yes."""
        self._close()
        if not self._prepared:
            with suppress(errors.TxSagaError):  # recovery does it once the transaction is decided
                self._end(Decision.ROLLBACK)

    def _close(self) -> None:
        self.handle.closed = True

    def _vote(self) -> Vote:
        halves = {f"01{secrets.token_hex(16).upper()}": each for each in self.handle.messages}
        if not halves:
            return Vote.READ_ONLY
        self._begun = True
        if not self._reservations.begin(self._branch, self._participant.name, {"ids": [*halves]}):
            raise errors.RolledBack(f"branch {self._branch.gid} is closed: its messages come too late")
        self._participant.attempt(self._branch, halves)
        if not self._reservations.hold(self._branch):
            raise errors.RolledBack(f"branch {self._branch.gid} votes no: it was rolled back meanwhile")
        self._prepared = True
        return Vote.PREPARED

    def _end(self, decision: Decision) -> Finish:
        return self._participant.finish(self._branch, decision) if self._begun else Finish.DONE


class RocketMQParticipant(TccParticipant):
    """One registered topic."""

    def __init__(self, given: RocketMQ, name: str, store: HomeStore) -> None:
        place, kind = f"{given.topic}@{given.endpoint}", ResourceKind.ROCKETMQ
        super().__init__(self, name=name, kind=kind, place=place, store=store)
        self.topic, self._undecided, self._view = given.topic, given.undecided, given.view
        self.client = ProxyClient(given.endpoint, given.topic, self.answer, given.keys, given.tls)

    def probe(self) -> None:
        """Raise `ConfigError` unless the topic takes half messages and the settings of its brokers allow them."""
        super().probe()
        route = self.client.call("QueryRoute", topic={"name": self.topic}, endpoints=self.client.place())
        if not any(TRANSACTION in queue.accept_message_types for queue in route.message_queues):
            raise errors.ConfigError(
                f"topic {self.topic!r} takes no half messages ({route.status.message.splitlines()[0]}); run "
                f"mqadmin updateTopic -n NAMESERVER -c CLUSTER -t {self.topic} -a +message.type=TRANSACTION"
            )
        if not (settings := self._view.settings()):
            raise errors.ConfigError(f"the name server does not know topic {self.topic!r}; give one of its cluster")
        for broker, said in settings.items():
            check_settings(broker, said, self._undecided)

    def enlist(self, branch: BranchId) -> HalvesBranch:  # type: ignore[override]  # its work is no try
        """Open a branch; nothing is sent before its vote."""
        return HalvesBranch(self, self._store.reservations, branch)

    def prepared(self, store: str) -> Sequence[BranchId]:
        """Return every branch that is held, or still to be cancelled; from now on this process answers check-back."""
        self.client.listen()
        return super().prepared(store)

    def close(self) -> None:
        """Answer no more."""
        self.client.close()

    def attempt(self, branch: BranchId, arguments: Mapping[str, Any]) -> None:
        """Send halves by their ids."""
        for id, message in arguments.items():
            sent = self.client.call("SendMessage", messages=[_half(message, id, branch)])
            status = sent.entries[0].status if sent.entries else sent.status
            if status.code != Code.OK:
                raise errors.OtherReason(f"RocketMQ refused a message of branch {branch.gid}: {status.message}")

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """End the halves if no process has done so, and wait for them; HAZARD if RocketMQ has given them up."""
        until, missing, why = time.monotonic(), cast("Sequence[str]", reserved.arguments["ids"]), ""
        if self._store.reservations.settle(branch, Decision.COMMIT):
            for id in missing:
                if time.monotonic() > until + FINISH - LATE:
                    break
                with suppress(errors.ResourceManagerFailed):  # then RocketMQ asks
                    why = self.client.end(id, Decision.COMMIT).message
            until = time.monotonic() + SEEN
        while missing := self._view.missing(missing):
            if time.monotonic() > until:
                if (reserved.settled or 0.0) >= FINISH and not self._view.missing(missing, GIVEN_UP):
                    return Finish.HAZARD  # no process ends them any more
                raise errors.RetryLater(f"RocketMQ gets COMMIT for {missing[0]} when it asks (it said {why!r})")
            time.sleep(LOOK)
        return Finish.DONE

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """End the halves; what RocketMQ does not know any more was never sent, or it asks again."""
        for id in cast(Any, reserved.arguments["ids"]):
            self.client.end(id, Decision.ROLLBACK)
        return Finish.DONE

    def answer(self, asked: Any) -> Decision | None:
        """Return the decision about a half message that RocketMQ asks about; None if it is open, ended, or not ours."""
        store, id = self._store.registry.identity.uuid.hex, asked.system_properties.message_id
        for branch in ours(asked.user_properties.get(BRANCH, "")):
            if branch.store == store:
                found = self._store.reservations.find(branch) or self._store.reservations.shut(branch, self.name)
                if found.state is not ReservationState.CONFIRMED:
                    return Decision.ROLLBACK if found.state in CANCELLED else None
                if not self._view.missing([id]):
                    return Decision.ROLLBACK
                return None if found.settled is not None and found.settled < FINISH else Decision.COMMIT
        return None

    def _confirmed(self, branch: BranchId) -> Finish:
        self.client.listen()
        found = self._store.reservations.find(branch)
        if found is not None and found.state is ReservationState.CONFIRMED:  # its messages may still be on their way
            return self.confirm(branch, found)
        return super()._confirmed(branch)


def check_settings(broker: str, said: Mapping[str, str], undecided: float) -> None:
    """Refuse a broker whose settings would deliver twice, give up too early, or take no half messages."""
    if said["rejectTransactionMessage"] == "true":
        raise errors.ConfigError(f"broker {broker} takes no half messages; set rejectTransactionMessage=false there")
    batch = "transactionOpBatchInterval"
    for name in ("transactionCheckInterval", "transactionTimeOut"):
        if int(said[name]) <= int(said[batch]):
            raise errors.ConfigError(
                f"broker {broker} asks about messages that it has ended already, and delivers them twice: set {name} "
                f"({said[name]} ms) above {batch} ({said[batch]} ms) there"
            )
    asked_for = int(said["transactionCheckMax"]) * int(said["transactionCheckInterval"]) / 1000
    if asked_for < undecided + FINISH:
        raise errors.ConfigError(
            f"broker {broker} gives up half messages after {asked_for:.0f} s, which loses a commit after "
            f"undecided={undecided:.0f} s (and {FINISH:.0f} s to finish it): raise transactionCheckMax "
            f"({said['transactionCheckMax']}) there"
        )


def _half(message: Message, id: str, branch: BranchId) -> Any:
    system = {"message_type": TRANSACTION, "message_id": id, "keys": [message.key] if message.key else []}
    system |= {"born_timestamp": wire.in_parts(time.time()), "born_host": socket.gethostname(), "tag": message.tag}
    properties, topic = {**(message.headers or {}), BRANCH: branch.gid}, {"name": message.topic}
    return wire.new("Message", topic=topic, body=message.body, user_properties=properties, system_properties=system)
