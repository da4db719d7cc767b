"""
`/api/v1/messages`: messages for programs in any language, over HTTP.

What is prepared here is the half message of a producer group as any other is. Its transaction id holds the token that
allows to end it, and a receipt is a claim: the next request may come from another program, to another console.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, HTTPException, Request

from txsaga.checkback.doubt_context import DoubtContext
from txsaga.checkback.profile import checked
from txsaga.console.access import Client
from txsaga.console.answers import broker_of, refused
from txsaga.console.home import Home
from txsaga.console.people import Person
from txsaga.consume.claim import MOST, Claim
from txsaga.consume.dead_letter import short_cause
from txsaga.consume.delivery import Delivery
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.core.message import MAX_BODY, Message, as_message
from txsaga.core.records import DecisionOutcome, Doubt, Half
from txsaga.core.topic import SendKind, check_name
from txsaga.core.validation import validate_wanted_tag
from txsaga.errors import ConfigError, DecidedOtherwise, InDoubt, InvalidMessage, UnknownTransaction
from txsaga.gateway.arrivals import Arrivals
from txsaga.gateway.consumers import LONGEST, SHORTEST, ConsumerKey, ConsumerPool, Wanted
from txsaga.gateway.contribution import TokenContribution
from txsaga.gateway.handles import claim_of, end_of, receipt_handle, transaction_id
from txsaga.gateway.sql92 import by_condition
from txsaga.messages.message_buffer import Outbox
from txsaga.messages.topics import admit_immunity

REFUSED = refused(400, 401, 403, 404, 409, 411, 413, 422, 503)
router = APIRouter(prefix="/api/v1/messages", tags=["messages"], responses=REFUSED)

LONGEST_WAIT = 30.0  # seconds
STRICT = {"extra": "forbid"}  # a field with another name is refused
ABSENT = object()  # None is a JSON value
OPTIONS = ("key", "tag", "headers", "ordering_key", "deliver_at")
Joined = Annotated[str | None, Header(description="the token of the transaction that it joins")]
Prepared = Annotated[str, Body(embed=True, description="what prepare returned")]


@dataclass(kw_only=True)
class NewMessage:
    """A message; its body is one of `text`, `json` and `base64`. `delay` is in seconds."""

    __pydantic_config__ = STRICT
    topic: str
    text: str | None = None
    json: Any = field(default_factory=lambda: ABSENT)
    base64: str | None = None
    key: str | None = None
    tag: str | None = None
    headers: dict[str, str] | None = None
    ordering_key: str | None = None
    delay: float | None = None
    deliver_at: datetime | None = None

    def made(self) -> Message:
        """Return it as txsaga sends it."""
        options: dict[str, Any] = {name: getattr(self, name) for name in OPTIONS}
        options["delay"] = None if self.delay is None else _span("delay", self.delay)
        bodies = {"text": self.text, "base64": self.base64}
        given = {name: value for name, value in bodies.items() if value is not None}
        given |= {} if self.json is ABSENT else {"json": self.json}
        if len(given) != 1:
            raise InvalidMessage("a message has one body: give text, json or base64")
        encoded = given.pop("base64", None)
        try:
            body = None if encoded is None else base64.b64decode(encoded, validate=True)
        except ValueError as wrong:
            raise InvalidMessage(f"the body is not base64: {wrong}") from None
        message = as_message(self.topic, body, {**options, **given})
        if len(message.body) > MAX_BODY:
            raise HTTPException(413, f"the body has {len(message.body)} bytes; at most {MAX_BODY} are stored")
        return message


@dataclass(kw_only=True)
class NewSend(NewMessage):
    """A message and its producer group; by default the group has the name of the account."""

    group: str | None = None


@dataclass(kw_only=True)
class NewTransaction:
    """Half messages of one transaction; `evidence` is the resource of the database that will join it."""

    __pydantic_config__ = STRICT
    messages: list[NewMessage]
    group: str | None = None
    evidence: str | None = None
    immunity: int | None = None


@dataclass(kw_only=True)
class Wish:
    """What to receive: up to `count` messages, waiting `wait` seconds for the first, each held for `invisible`."""

    __pydantic_config__ = STRICT
    topic: str
    group: str | None = None
    count: int = 1
    wait: float = 0.0
    invisible: float = 30.0
    tag: str | None = None
    filter: str | None = None

    def wanted(self) -> Wanted | None:
        """Return which messages its client wants; None for all."""
        validate_wanted_tag(self.tag)
        if self.filter is None:
            return None if self.tag is None else lambda message: message.tag == self.tag
        if self.tag is not None:
            raise ConfigError("give a tag or a filter, not both; in a filter the tag is TAGS")
        try:
            return by_condition(self.filter)
        except ValueError as wrong:
            raise ConfigError(f"filter {self.filter[:99]!r}: {wrong}") from None


@dataclass(kw_only=True)
class HeldMessage:
    """The receipt of a message, of one consumer group."""

    __pydantic_config__ = STRICT
    receipt: str
    group: str | None = None


@dataclass(kw_only=True)
class Extension(HeldMessage):
    """For how many seconds it is to be held from now; 0 puts it back."""

    seconds: float


@dataclass(kw_only=True)
class Rejection(HeldMessage):
    """Why it can't be processed."""

    topic: str
    reason: str


class Receiving:
    """The consumers of a console, opened by the first request for messages."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._opened: tuple[Arrivals, ConsumerPool] | None = None

    async def pool(self) -> ConsumerPool:
        """Return the consumers, without those that nobody has asked for a while."""
        kernel = (await asyncio.to_thread(lambda: self._home.broker)).kernel
        if self._opened is None:
            arrivals = Arrivals(kernel)
            self._opened = arrivals, ConsumerPool(kernel, arrivals)
        await self._opened[1].close_idle()
        return self._opened[1]

    async def close(self) -> None:
        """Close them."""
        for each in self._opened or ():
            await asyncio.to_thread(each.close)


@router.post("", status_code=201)
def send(request: Request, person: Client, message: NewSend, x_txsaga_transaction: Joined = None) -> dict[str, str]:
    """Send a message; once this is answered it is durable, and will be delivered, or decided with its transaction."""
    broker, made = broker_of(request), message.made()
    if x_txsaga_transaction is not None:
        if message.group is not None or made.scheduled:
            raise ConfigError("a message that joins a transaction has its group, and no delay; leave them out")
        txid = TokenContribution(broker.kernel, x_txsaga_transaction).send(made)
        return {"transaction": broker.identity.transaction(txid)}
    broker.kernel.topics.open(made.topic, SendKind.PLAIN, scheduled=made.scheduled)  # no group for a topic that is not
    receipt = broker.producer(message.group or person.name).send(made)
    return {"transaction": broker.identity.transaction(receipt.txid)}


@router.post("/prepare", status_code=201)
def prepare(request: Request, person: Client, transaction: NewTransaction) -> dict[str, str]:
    """Store half messages, which nobody sees before their transaction is committed; return its id."""
    broker, kernel = broker_of(request), broker_of(request).kernel
    outbox = Outbox(kernel.topics, SendKind.HALF)
    for message in transaction.messages:
        outbox.add(message.made())
    evidence = None if transaction.evidence is None else kernel.resource(transaction.evidence)[0].id
    immunity = None if transaction.immunity is None else checked(transaction.immunity)
    group = broker.producer(transaction.group or person.name).group
    half = Half(group.id, outbox.take(), evidence, admit_immunity(group, immunity))
    return {"transaction": transaction_id(broker.identity, kernel.stores.call(half))}


@router.post("/commit")
def commit(request: Request, person: Client, transaction: Prepared) -> dict[str, str]:
    """Commit a transaction; repeating it is no error."""
    return _ended(request, person, transaction, Decision.COMMIT)


@router.post("/rollback")
def roll_back(request: Request, person: Client, transaction: Prepared) -> dict[str, str]:
    """Roll a transaction back; repeating it is no error."""
    return _ended(request, person, transaction, Decision.ROLLBACK)


@router.post("/receive")
async def receive(request: Request, person: Client, wish: Wish) -> dict[str, list[dict[str, object]]]:
    """Take messages for a consumer group; each comes again unless it is acknowledged in time."""
    invisible = _span("invisible", wish.invisible, SHORTEST)
    if not 1 <= wish.count <= MOST or not 0 <= wish.wait <= LONGEST_WAIT:
        raise ConfigError(f"give a count from 1 to {MOST}, and a wait from 0 to {LONGEST_WAIT:.0f} seconds")
    pool, member = await request.app.state.receiving.pool(), f"{person.name}@{broker_of(request).kernel.member}"
    key = ConsumerKey(wish.group or person.name, wish.topic, member, invisible, repr((wish.tag, wish.filter)))
    leaving = asyncio.ensure_future(request.receive())
    taking = asyncio.ensure_future(pool.take(key, wish.wanted, wish.count, wish.wait))
    try:
        while not (leaving.done() or taking.done() or request.app.state.stops()):
            await asyncio.wait({leaving, taking}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        return {"messages": [*map(_document, taking.result())] if taking.done() else []}
    finally:
        leaving.cancel()
        taking.cancel()  # what it takes for a client that has left is put back


@router.post("/ack")
def acknowledge(request: Request, person: Client, message: HeldMessage) -> dict[str, str]:
    """Acknowledge a message: its group does not get it again."""
    broker_of(request).kernel.acks.call(_claim(person, message))
    return {"receipt": message.receipt}


@router.post("/extend")
async def extend(request: Request, person: Client, message: Extension) -> dict[str, str]:
    """Hold a message for longer, or put it back; return its new receipt."""
    claim, pool = _claim(person, message), await request.app.state.receiving.pool()
    return {"receipt": receipt_handle(await pool.extend(claim, _span("seconds", message.seconds)))}


@router.post("/bury")
async def bury(request: Request, person: Client, message: Rejection) -> dict[str, str]:
    """Move a message to the dead letters of its group, or to its backout topic."""
    claim, pool = _claim(person, message), await request.app.state.receiving.pool()
    check_name(message.topic)
    await pool.bury(claim, message.topic, short_cause(message.reason))
    return {"receipt": message.receipt}


def _claim(person: Person, message: HeldMessage) -> Claim:
    group = message.group or person.name
    check_name(group, what="consumer group")
    return claim_of(group, message.receipt)


def _ended(request: Request, person: Person, id: str, decision: Decision) -> dict[str, str]:
    broker, kernel = broker_of(request), broker_of(request).kernel
    end = end_of(broker.identity, id, decision)
    doubt = kernel.store.doubts.of(end.txid)
    if doubt is None or (doubt.group, doubt.token) != (end.group, end.token):
        raise UnknownTransaction(f"transaction {end.txid} is not in this store, or this is not its whole id")
    outcome = _by_evidence(kernel, doubt, decision, person) if doubt.evidence else kernel.decides.call(end)
    if outcome.decision is not decision:
        raise DecidedOtherwise(outcome.txid, outcome.decision.name)
    return {"decision": outcome.decision.name}


def _by_evidence(kernel: Kernel, doubt: Doubt, decision: Decision, person: Person) -> DecisionOutcome:
    """Decide as the evidence says: another program's work may be committed, or still run."""
    case = DoubtContext(kernel.store, doubt)
    verdict = kernel.settler.judge.know(case, fence=decision is Decision.ROLLBACK)
    concluded = kernel.settler.conclude(case, verdict, f"{person.name}@console")
    if concluded.standing is None:
        raise InDoubt(f"transaction {doubt.txid} is not decided: {concluded.why}")
    return concluded.standing


def _document(delivery: Delivery) -> dict[str, object]:
    message = delivery.delivered
    try:
        body = {"text": message.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(message.body).decode()}
    named = {name: getattr(message, name) for name in ("id", "topic", "key", "tag", "headers", "ordering_key", "born")}
    held = {"attempts": delivery.attempts, "receipt": receipt_handle(delivery.claim)}
    return {**named, **body, "transaction": message.half.transaction, **held}


def _span(what: str, seconds: float, least: timedelta = timedelta()) -> timedelta:
    if not least.total_seconds() <= seconds <= LONGEST.total_seconds():
        raise ConfigError(f"{what} is {seconds}; give from {least.total_seconds():g} to {LONGEST.total_seconds():g}")
    return timedelta(seconds=seconds)
