"""
What the console shows, as data: the same queries as the command line, page by page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from txsaga.checkback.heartbeat import checkers_of
from txsaga.checkback.profile import CheckProfile
from txsaga.config import BROKERS, RESOURCES
from txsaga.console.queries import ConsoleQueries
from txsaga.console.waiting import Waiting, waiting_of
from txsaga.core.decision import Decision
from txsaga.core.identity import HalfId, number_of
from txsaga.core.layout import unpack
from txsaga.core.records import TxFilter
from txsaga.errors import ConfigError, TxSagaError, UnknownGroup, UnknownProducerGroup, UnknownTransaction
from txsaga.flows.branch import HEURISTIC, NOTHING_DONE
from txsaga.flows.step import HeldLocks
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
from txsaga.inspect.overview import Audited, BranchBacklog
from txsaga.inspect.timeline import documented
from txsaga.inspect.timeline_steps import steps_of
from txsaga.store.store import Store
from txsaga.wiring.resources import unreachable

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.console.home import Home
    from txsaga.consume.dead_letter import DeadLetter
    from txsaga.flows.ballot import Polled
    from txsaga.flows.branch import Branch
    from txsaga.inspect.timeline import TimelineStep
    from txsaga.inspect.trace import Trace

PAGE, MOST = 50, 500
WAITS = {
    "active": "its owner",
    "sealed": "check-back",
    "prepared": "check-back",
    "parked": "a person",
    "scheduled": "its time",
}
LATE = "it has not answered within 2 seconds"
BODIES = ("input", "compensation", "action", "output", "error")
GIVEN = re.compile(
    "(COMMIT|ROLLBACK) BY (HAND|FORCE)|RESUMED|STEP (RESUMED|SKIPPED)|BRANCH .* FORGOTTEN|REPLAY(ED)?|CHECK NOW|"
    "(PAUSE|RESUME|DELETE|PURGE|REPLAY) (GROUP|TOPIC|LETTER) .*"
)
"""Rows of the audit whose `why` is the reason that a person gave; others may quote an exception."""
BY_PEOPLE = f"^(REFUSED: .*|{GIVEN.pattern})$"
VEIL = "only operators see why"
ADDING = ("create", "append", "insert", "attach")
"""Ways to write to a table that remove no rows."""
FEW, SHOWN = 100, 4_096
"""Messages of a transaction on a page, and letters of each."""


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


def transaction(home: Home, id: str, *, bodies: bool) -> tuple[dict[str, Any], Sequence[TimelineStep]]:
    """Return everything about one transaction but the bodies of its messages, and its steps.

    What steps were given and returned, what gates found, and the texts of exceptions are for those who may see bodies.
    """
    broker = home.broker
    store = broker.kernel.store
    txid = number_of(id, store.registry.identity)
    view, trace = store.overview.transaction(txid), store.overview.trace(txid)
    if view is None or trace is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    trace = trace if bodies else _veiled(trace)
    polls = [(txid, poll) for poll in broker.ballots(txid)]
    steps = steps_of(trace, None)
    rows = rows_document(store, view, trace)
    document = {
        **transaction_document(view),
        **links_document(trace),
        "waiting": _waiting(store, trace, polls),
        "published": ConsoleQueries.of(store).read_by({each.place.topic for each in trace.given}),
        "letters": ConsoleQueries.of(store).letters_of(view.id, trace.given),
        "checks": checks_document(trace.listed) or None,
        **rows,
        "history": [row if bodies else _veiled_row(row) for row in rows["history"]],
        "steps": _saga_steps(store, txid, bodies=bodies),
        "ballots": [_ballot(*each, bodies=bodies) for each in polls],
        "tables": _written(home, txid, decided=trace.decision is Decision.COMMIT),
        "owner": None if trace.life is None else trace.life._asdict(),
        "timeline": documented(steps),
    }
    return document, steps


def _veiled(trace: Trace) -> Trace:
    """Leave out what may quote an exception, which may quote a body."""
    listed = trace.listed and replace(
        trace.listed,
        parked=trace.listed.parked and VEIL,
        remarks=tuple(each._replace(why=VEIL) for each in trace.listed.remarks),
    )
    return replace(
        trace,
        listed=listed,
        audits=tuple(Audited(**_veiled_row(asdict(each))) for each in trace.audits),
        steps=tuple(each._replace(error=each.error and VEIL) for each in trace.steps),
        branches=tuple(
            each._replace(why=each.why if each.why == NOTHING_DONE else each.why and VEIL) for each in trace.branches
        ),
    )


def _veiled_row(row: dict[str, Any]) -> dict[str, Any]:
    return row if GIVEN.fullmatch(row["what"]) else {**row, "why": VEIL}


def _written(home: Home, txid: int, *, decided: bool) -> list[dict[str, Any]]:
    """Return what a transaction wrote to tables, with the snapshots that the tables' metadata names."""
    found = ConsoleQueries.of(home.broker.kernel.store).written(txid)
    asked = {
        (row["pointer"], row["snapshot"]): partial(_summary, home.broker, row["pointer"], int(row["snapshot"]))
        for row in found
        if decided and row["pointer"] and row["snapshot"] and row["counts"]
    }
    summaries = home.probes.ask(asked)
    return [_table_row(row, summaries.get((row["pointer"], row["snapshot"])), decided=decided) for row in found]


def _table_row(row: Mapping[str, Any], summary: Mapping[str, str] | None, *, decided: bool) -> dict[str, Any]:
    removed = 0 if row["mode"] in ADDING and not row["head"] else None
    if summary is not None:
        removed = int(summary.get("deleted-records", 0))
    shown = decided and row["counts"]
    snapshot = (row["snapshot"] if summary is not None else row["head"] or row["snapshot"]) if shown else None
    kept = {name: row[name] for name in ("name", "kind", "mode", "rows", "counts")}
    return {**kept, "removed": removed if shown else None, "snapshot": snapshot}


def _summary(broker: Broker, pointer: str, snapshot: int) -> Mapping[str, str] | None:
    """Return the summary of a snapshot, as far as the lake can be read from here and still knows it."""
    try:
        storage = broker.kernel.tables.lake.storage
        from txsaga.lake.metadata import Metadata  # what it needs is there

        found = Metadata.load(storage, pointer).snapshot(snapshot)
    except TxSagaError:
        return None
    return None if found is None else found.get("summary", {})


def tables(store: Store, after: str = "", limit: int = PAGE) -> dict[str, Any]:
    """Return a page of tables by name, and the transaction that published to each last."""
    _check_text(after, "after")
    found = ConsoleQueries.of(store).tables(limit=limit + 1, after=after)
    return {"items": found[:limit], "next": found[limit - 1]["name"] if len(found) > limit else None}


def table(store: Store, name: str, before: str | None, limit: int = PAGE) -> dict[str, Any]:
    """Return a page of the transactions that wrote to a table, newest first."""
    _check_text(name, "the name")
    queries = ConsoleQueries.of(store)
    found = queries.published(name, limit=limit + 1, before=_number(before, "a transaction"))
    written = [row for row in queries.written(*(each["txid"] for each in found[:limit])) if row["name"] == name]
    items = []
    for each in found[:limit]:
        rows = [row for row in written if row["txid"] == each["txid"]]
        counting = [row for row in rows if row["counts"]] or rows
        snapshot = counting[-1]["head"] or counting[-1]["snapshot"] if each["decision"] == Decision.COMMIT else None
        added = sum(row["rows"] or 0 for row in counting)
        mode = ", ".join(dict.fromkeys(row["mode"] for row in counting))
        items.append({**each, "mode": mode, "rows": added, "snapshot": snapshot})
    pointer = next((row["pointer"] for row in written), None)
    next_ = items[-1]["txid"] if len(found) > limit else None
    return {"name": name, "pointer": pointer, "items": items, "next": next_}


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise ConfigError(f"{what} contains a zero byte")


def _number(before: str | None, of: str) -> int:
    if before and not (before.isdecimal() and len(before) < 19):
        raise ConfigError(f"before is {before[:30]!r}; it is the number of {of}")
    return int(before) if before else 2**63 - 1


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


def messages(broker: Broker, id: str, after: int = 0, limit: int = FEW) -> dict[str, Any]:
    """Return a page of the messages of a transaction with their bodies."""
    txid, end = number_of(id, broker.identity), after + limit
    chunks = ConsoleQueries.of(broker.kernel.store).messages(txid, after=after, limit=limit + 1)
    numbered = [each for c in chunks for each in enumerate(unpack(c["topic"], bytes(c["body"])), c["first"])]
    items = [
        {"topic": m.topic, "key": m.key, "tag": m.tag, "body": shortened(readable(m.body)[0])}
        for number, m in numbered
        if after <= number < end
    ]
    return {"items": items, "next": end if any(number >= end for number, _ in numbered) else None}


def shortened(text: str) -> str:
    """Return the beginning of a long text, and say that it is cut."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text) - SHOWN} more letters)"


def audit(store: Store, before: str | None, *, bodies: bool, people: bool = False, limit: int = PAGE) -> dict[str, Any]:
    """Return a page of the audit, newest first: all of it, or acts of people."""
    queries, end = ConsoleQueries.of(store), _number(before, "a row")
    found = queries.audit(limit=limit + 1, before=end, people=BY_PEOPLE if people else None)
    rows = [{"id": id, "txid": txid, **asdict(each)} for id, txid, each in found[:limit]]
    items = [row if bodies else _veiled_row(row) for row in rows]
    earlier = queries.audit_from(end) if people else None
    return {"items": items, "next": items[-1]["id"] if len(found) > limit else earlier}


def waits(store: Store, items: Sequence[Mapping[str, Any]], problem: str | None = None) -> Mapping[int, str]:
    """Say in a few words what each transaction of a list waits for."""
    if problem is not None:
        written = store.work.written([tx["txid"] for tx in items])
        return {txid: ", ".join(["a person", *_heuristic(known.branches)]) for txid, known in written.items()}
    answered = {backlog.group for backlog in store.overview.backlogs() if backlog.members}
    found = {tx["txid"]: WAITS[tx["state"]] for tx in items if tx["state"] in WAITS}
    for tx in items:
        if tx["state"] in ("sealed", "prepared") and tx["resource"] is None and tx["group"] not in answered:
            found[tx["txid"]] = "a checker, or a person"
    return found


def _heuristic(branches: Sequence[Branch]) -> list[str]:
    return [f"{each.resource}: {each.state.replace('_', ' ')}" for each in branches if each.state in HEURISTIC]


def resources(home: Home, *, bodies: bool) -> list[dict[str, Any]]:
    """Return every resource: whether this process reaches it, its unfinished branches, the locks that flows hold."""
    store, urls = home.broker.kernel.store, RESOURCES.each(home.env)
    tried = {name: partial(unreachable, name, url) for name, url in urls.items() if not url.startswith("sqlite")}
    away = home.probes.ask(tried, otherwise=LATE)
    branches = {each.resource: each for each in store.overview.branches()}
    held, prepared = {each.resource: each for each in store.flows.held()}, ConsoleQueries.of(store).prepared()
    return [
        {
            **asdict(branches.get(name, BranchBacklog(name, 0, 0, None, 0))),
            "reachable": not away[name] if name in away else None,
            "why": _why_away(name, away, urls, bodies=bodies),
            "prepared": prepared.get(name),
            "locks": held.get(name, HeldLocks(name, 0, 0, None))._asdict(),
        }
        for name in sorted({*urls, *branches, *held})
    ]


def _why_away(name: str, away: Mapping[str, str | None], urls: Mapping[str, str], *, bodies: bool) -> str | None:
    if name not in away:
        return "a SQLite file is not opened" if name in urls else "this console has no URL for it"
    return away[name] if bodies or not away[name] else "it does not answer"


def cluster(home: Home, *, bodies: bool) -> dict[str, Any]:
    """Return what the file of the cluster says, and what each broker of it, or of the environment, answers."""
    urls, config = BROKERS.each(home.env), home.cluster
    named = [*config.leaves()] if config else [*urls]
    asked = {("broker", name): partial(_broker, urls[name]) for name in named if name in urls}
    found = home.probes.ask(asked, otherwise={"why": LATE})
    brokers = []
    for name in named:
        answer = found.get(("broker", name), {"why": f"set {BROKERS.name}{name.upper()} to its URL"})
        away = {} if "why" not in answer else {"why": answer["why"] if bodies or name not in urls else LATE}
        brokers.append({"name": name, "available": not away, **(away or answer)})
    belongs = home.broker.cluster
    return {"cluster": belongs, "definition": None if config is None else asdict(config), "brokers": brokers}


def _broker(url: str) -> dict[str, Any]:
    """Return the figures of a broker, or why it does not answer."""
    try:
        with closing(Store.open(url)) as store:
            undecided, dispatch = store.overview.undecided(), store.overview.dispatch()
            return {
                "cluster": store.registry.cluster,
                "rejects": store.registry.rejects_transactions,
                "undecided": undecided.count,
                "parked": undecided.parked,
                "waiting": dispatch.waiting,
                "lag": sum(each.lag for each in store.overview.readings()),
                "dead_letters": sum(store.overview.dead_letters().values()),
            }
    except TxSagaError as away:
        return {"why": str(away)}


def members(store: Store, name: str) -> dict[str, Any]:
    """Return who answers checks for a producer group, and who reads as a member of a consumer group of that name."""
    _check_text(name, "the group")
    queries, producers, consumers = ConsoleQueries.of(store), store.registry.find_group(name), store.groups.find(name)
    if producers is None and consumers is None:
        raise UnknownGroup(name)
    found: dict[str, Any] = {"group": name, "producers": None, "consumers": None}
    if producers is not None:
        found["producers"] = {"kind": producers.kind, "members": queries.answerers(name)}
    if consumers is not None:
        state = {"style": consumers.style, "paused": consumers.policy.paused, "seen": queries.seen(name)}
        found["consumers"] = state | {"members": queries.readers(name)}
    return found


def letters(store: Store, group: str | None, before: str | None, *, bodies: bool, limit: int = PAGE) -> dict[str, Any]:
    """Return a page of dead letters, newest first."""
    _check_text(group or "", "the group")
    found = store.dead_letters.list(group or None, limit + 1, _number(before, "a dead letter"))
    items = [letter(each, bodies=bodies) for each in found[:limit]]
    return {"items": items, "next": items[-1]["id"] if len(found) > limit else None}


def letter(found: DeadLetter, *, bodies: bool) -> dict[str, Any]:
    """Return a dead letter; its body, and the exceptions that it caused, only for those who may see bodies."""
    written = letter_document(found) | {"txid": HalfId.decode(found.copy.message).txid}
    message = written["message"]
    if not bodies and isinstance(message, dict):
        kept = {name: value for name, value in message.items() if name not in ("body", "stored", "headers")}
        written |= {"message": kept, "cause": VEIL, "history": []}
    return written
