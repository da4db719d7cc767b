"""`txsaga status`: the state of a store at a glance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from txsaga.cli.group import GROUP, group_document, group_row
from txsaga.cli.home import reading
from txsaga.cli.options import options_of
from txsaga.cli.printing import document, fields, say, table
from txsaga.cli.producer import COLUMNS, backlog_document, backlog_row
from txsaga.cli.topic import topic_document
from txsaga.inspect.overview import ANSWERS

if TYPE_CHECKING:
    from txsaga.cli.store_state import Status
    from txsaga.inspect.overview import LastRound


def status(context: typer.Context) -> None:
    """Show the store, its topics, its readers, what is undecided and what waits for the dispatcher."""
    from txsaga.cli.store_state import status

    options = options_of(context)
    with reading(options) as store:
        found = status(store)
    if options.json:
        document(status_document(found))
        return
    fields(
        {
            "store": found.store.uuid,
            "incarnation": found.store.incarnation,
            "rejects transactions": found.rejects_transactions,
            "undecided": found.undecided.count,
            "oldest undecided": found.undecided.oldest,
            "parked": found.undecided.parked,
            "being asked": sum(backlog.asked for backlog in found.backlogs),
            "last check round": _round(found.last_round),
            "sagas": ", ".join(f"{count} {what}" for what, count in asdict(found.sagas).items()),
            "scheduled": found.undecided.scheduled,
            "waiting for a tick": found.dispatch.waiting,
            "blocked queues": ", ".join(found.dispatch.blocked) or "none",
            "last tick": f"{found.dispatch.tick}, {found.dispatch.age.total_seconds():.1f} s ago",
        }
    )
    if found.topics:
        say()
        rows = [(t.topic.name, t.topic.type, len(t.bounds), t.messages) for t in found.topics]
        table(("topic", "type", "queues", "messages"), rows)
    if found.backlogs:
        say()
        answers = [[each.answers.get(answer, 0) for answer in ANSWERS] for each in found.backlogs]
        groups = [backlog_row(each) for each in found.backlogs]
        table((*COLUMNS, *ANSWERS), [(*group, *said) for group, said in zip(groups, answers, strict=True)])
    if found.branches:
        say()
        columns = ("resource", "undecided branches", "waiting", "oldest", "heuristics")
        table(columns, [tuple(asdict(backlog).values()) for backlog in found.branches])
    if found.held:
        say()
        table(("resource", "held by flows", "over budget", "oldest"), found.held)
    if found.readings:
        say()
        table(GROUP, [group_row(reading) for reading in found.readings])
    if found.dead_letters:
        say()
        table(("group", "dead letters"), found.dead_letters.items())


def status_document(found: Status) -> dict[str, object]:
    """Write the state of a store for programs."""
    undecided, dispatch, last = found.undecided, found.dispatch, found.last_round
    return {
        "store": {"uuid": found.store.uuid, "incarnation": found.store.incarnation},
        "rejects_transactions": found.rejects_transactions,
        "undecided": {
            "count": undecided.count,
            "parked": undecided.parked,
            "oldest_seconds": undecided.oldest,
            "asked": sum(backlog.asked for backlog in found.backlogs),
        },
        "last_round": None if last is None else {"leader": last.leader, "ago_seconds": last.ago},
        "producers": [backlog_document(backlog) for backlog in found.backlogs],
        "branches": [asdict(backlog) for backlog in found.branches],
        "sagas": asdict(found.sagas),
        "held": [each._asdict() for each in found.held],
        "scheduled": undecided.scheduled,
        "dispatcher": {
            "tick": dispatch.tick,
            "age_seconds": dispatch.age,
            "waiting": dispatch.waiting,
            "blocked": dispatch.blocked,
        },
        "topics": [topic_document(state) for state in found.topics],
        "groups": [group_document(reading) for reading in found.readings],
        "dead_letters": dict(found.dead_letters),
    }


def _round(last: LastRound | None) -> str | None:
    return None if last is None else f"{last.ago.total_seconds():.1f} s ago, led by {last.leader}"
