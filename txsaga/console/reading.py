"""
What the console shows, as data: the same queries as the command line, page by page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from txsaga.checkback.heartbeat import checkers_of
from txsaga.checkback.profile import CheckProfile
from txsaga.console.queries import ConsoleQueries
from txsaga.console.waiting import Waiting, waiting_of
from txsaga.core.identity import number_of
from txsaga.core.layout import unpack
from txsaga.core.records import TxFilter
from txsaga.errors import ConfigError, UnknownProducerGroup, UnknownTransaction
from txsaga.inspect.documents import (
    ballot_document,
    checks_document,
    letter_document,
    links_document,
    readable,
    rows_document,
    step_document,
    transaction_document,
)
from txsaga.inspect.timeline import documented
from txsaga.inspect.timeline_steps import steps_of

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.consume.dead_letter import DeadLetter
    from txsaga.flows.ballot import Polled
    from txsaga.inspect.timeline import TimelineStep
    from txsaga.inspect.trace import Trace
    from txsaga.store.store import Store

PAGE, MOST = 50, 500
WAITS = {
    "active": "its owner",
    "sealed": "check-back",
    "prepared": "check-back",
    "parked": "a person",
    "scheduled": "its time",
}
BODIES = ("input", "compensation", "action", "output", "error")
FEW, SHOWN = 100, 4_096
"""Messages of a transaction that are shown, and letters of each."""


def transactions(store: Store, only: TxFilter, limit: int = PAGE) -> dict[str, Any]:
    """Return a page of transactions, newest first, and the number before which the next page begins."""
    if not 1 <= limit <= MOST:
        raise ConfigError(f"limit is {limit}; give a number from 1 to {MOST}")
    if only.topic is not None:
        store.registry.topic(only.topic)
    if only.group is not None and store.registry.find_group(only.group) is None:
        raise UnknownProducerGroup(only.group)
    found = store.overview.transactions(limit=limit + 1, only=only)
    more = len(found) > limit
    return {"items": [*map(transaction_document, found[:limit])], "next": found[limit - 1].txid if more else None}


def transaction(broker: Broker, id: str, *, bodies: bool) -> tuple[dict[str, Any], Sequence[TimelineStep]]:
    """Return everything about one transaction but the bodies of its messages, and its steps.

    What steps were given and returned, and what gates found, is there for those who may see bodies.
    """
    store = broker.kernel.store
    txid = number_of(id, store.registry.identity)
    view, trace = store.overview.transaction(txid), store.overview.trace(txid)
    if view is None or trace is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    polls = [(txid, poll) for poll in broker.ballots(txid)]
    steps = steps_of(trace, None)
    document = {
        **transaction_document(view),
        **links_document(trace),
        "waiting": _waiting(store, trace, polls),
        "checks": checks_document(store.overview.checks(txid)) or None,
        **rows_document(store, view, trace),
        "steps": _saga_steps(store, txid, bodies=bodies),
        "ballots": [_ballot(*each, bodies=bodies) for each in polls],
        "tables": [written._asdict() for written in trace.written],
        "owner": None if trace.life is None else trace.life._asdict(),
        "timeline": documented(steps),
    }
    return document, steps


def _ballot(txid: int, poll: Polled, *, bodies: bool) -> dict[str, Any]:
    """Write a ballot; the evidence of a gate holds values of rows."""
    written: dict[str, Any] = ballot_document(txid, poll)
    if not bodies:
        written["votes"] = [{**vote, "evidence": {}} for vote in written["votes"]]
    return written


def _saga_steps(store: Store, txid: int, *, bodies: bool) -> list[dict[str, Any]]:
    found = map(step_document, store.work.steps(txid))
    return [{name: value for name, value in step.items() if bodies or name not in BODIES} for step in found]


def _waiting(store: Store, trace: Trace, polls: Sequence[tuple[int, Any]]) -> dict[str, Any] | None:
    group = store.registry.group_by_id(trace.group)
    kind = checkers_of(group.id)
    members = len(list(store.leases.alive([kind])[kind]))
    checks = CheckProfile().of_group(group.checks)
    found: Waiting | None = waiting_of(trace, [poll for _, poll in polls], members, checks)
    return None if found is None else asdict(found)


def messages(broker: Broker, id: str) -> list[dict[str, Any]]:
    """Return the messages of a transaction with their bodies, the first hundred of them."""
    txid = number_of(id, broker.identity)
    found = [message for each in broker.kernel.store.halves.contents(txid) for message in unpack(*each)]
    return [{"topic": m.topic, "key": m.key, "tag": m.tag, "body": shortened(readable(m.body)[0])} for m in found[:FEW]]


def shortened(text: str) -> str:
    """Return the beginning of a long text, and say that it is cut."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text) - SHOWN} more letters)"


def audit(store: Store, before: str | None, limit: int = PAGE) -> dict[str, Any]:
    """Return a page of the audit, newest first."""
    if before and not (before.isdecimal() and len(before) < 19):
        raise ConfigError(f"before is {before[:30]!r}; it is the number of a row")
    found = ConsoleQueries.of(store).audit(limit=limit + 1, before=int(before) if before else None)
    items = [{"id": id, "txid": txid, **asdict(each)} for id, txid, each in found[:limit]]
    return {"items": items, "next": items[-1]["id"] if len(found) > limit else None}


def waits(store: Store, items: Sequence[Mapping[str, Any]]) -> Mapping[int, str]:
    """Say in a few words what each transaction of a list waits for."""
    answered = {backlog.group for backlog in store.overview.backlogs() if backlog.members}
    found = {tx["txid"]: WAITS[tx["state"]] for tx in items if tx["state"] in WAITS}
    for tx in items:
        if tx["state"] in ("sealed", "prepared") and tx["resource"] is None and tx["group"] not in answered:
            found[tx["txid"]] = "a checker, or a person"
    return found


def resources(store: Store) -> dict[str, Any]:
    """Return resources with unfinished branches, and the locks that flows hold."""
    held = [each._asdict() for each in store.flows.held()]
    return {"branches": [asdict(each) for each in store.overview.branches()], "held": held}


def letter(found: DeadLetter, *, bodies: bool) -> dict[str, Any]:
    """Return a dead letter; its body only for those who may see bodies."""
    written = letter_document(found)
    message = written["message"]
    if not bodies and isinstance(message, dict):
        written["message"] = {
            name: value for name, value in message.items() if name not in ("body", "stored", "headers")
        }
    return written
