"""`txsaga status`, `doctor` and `collect`: a store as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.group import GROUP, group_row
from txsaga.cli.home import home_url, opened, reading
from txsaga.cli.options import options_of, span_of
from txsaga.cli.printing import document, fields, result, say, shown, table
from txsaga.cli.producer import COLUMNS, backlog_row
from txsaga.config import RESOURCES
from txsaga.core import exits
from txsaga.inspect.documents import CHECK_BACK, status_document, topic_states
from txsaga.inspect.overview import ANSWERS, Backlog

if TYPE_CHECKING:
    from txsaga.store.doctor import Finding
    from txsaga.store.store import Store


def status(context: typer.Context) -> None:
    """Show the state of the store: topics, groups, undecided transactions, and what waits for the dispatcher."""
    options = options_of(context)
    with reading(options) as store:
        if options.json:
            document(status_document(store))
        else:
            _show_status(store)


def doctor(
    context: typer.Context,
    all: Annotated[bool, typer.Option("--all", help="Also list the checks that found nothing.")] = False,
) -> None:
    """Diagnose the home database and the store. Changes nothing. Exits with 7 if it finds an error."""
    from txsaga.store.doctor import Severity, examine

    options = options_of(context)
    findings = [*examine(home_url(options)), *_resources(RESOURCES.each(os.environ))]
    rows = [(f.severity, f.what, f.found, f.remedy) for f in findings if all or f.severity is not Severity.OK]
    if options.json:
        document([*map(asdict, findings)])
    elif rows:
        table(("level", "what", "found", "remedy"), rows)
    else:
        say(f"{len(findings)} checks, no problems")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(exits.REFUSED)


def _resources(urls: Mapping[str, str]) -> Iterator[Finding]:
    """Report databases of the environment that can't be reached from here; a SQLite file is not opened."""
    from txsaga.store.doctor import ok, warning
    from txsaga.wiring.resources import unreachable

    tried = {name: url for name, url in urls.items() if not url.startswith("sqlite")}
    if why := [*filter(None, starmap(unreachable, tried.items()))]:
        remedy = "start the database, or correct its TXSAGA_RESOURCE_<NAME>; work prepared in it keeps locks until then"
        yield replace(warning("; ".join(why), remedy), what="resources")
    elif tried:
        yield replace(ok(f"reachable from here: {', '.join(tried)}"), what="resources")


def collect(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    keep_rejected: Annotated[
        timedelta | None,
        typer.Option(parser=span_of, metavar="TIME", help="Keep files that a gate rejected for this long: 12h, 7d."),
    ] = None,
) -> None:
    """Delete staged files of rolled-back transactions and of attempts that were superseded."""
    options = options_of(context)
    with opened(options) as broker:
        kernel = broker.kernel
        gone = [*kernel.rows.collect(dry_run=dry_run)]
        gone += kernel.tables.collect(dry_run=dry_run, keep_rejected=keep_rejected or timedelta(0))
    told = [*gone, f"{len(gone)} {'would be deleted' if dry_run else 'deleted'}"]
    result(options, {"collected": gone, "dry_run": dry_run}, "\n".join(told))


def _show_status(store: Store) -> None:
    """Print the state of a store for people: parts without rows are left out."""
    overview, backlogs = store.overview, store.overview.backlogs()
    topics = [(each.topic.name, each.topic.type, len(each.bounds), each.messages) for each in topic_states(store)]
    producers = [(*backlog_row(each), *(each.answers.get(name, 0) for name in ANSWERS)) for each in backlogs]
    branches = [tuple(asdict(backlog).values()) for backlog in overview.branches()]
    parts = (
        (("topic", "type", "queues", "messages"), topics),
        ((*COLUMNS, *ANSWERS), producers),
        (("resource", "undecided branches", "waiting", "oldest", "heuristics"), branches),
        (("resource", "held by flows", "over budget", "oldest"), store.flows.held()),
        (GROUP, [group_row(each) for each in overview.readings()]),
        (("group", "dead letters"), list(overview.dead_letters().items())),
    )
    fields(_figures(store, backlogs))
    for columns, rows in parts:
        if rows:
            say()
            table(columns, rows)


def _figures(store: Store, backlogs: Sequence[Backlog]) -> dict[str, object]:
    identity, undecided, dispatch = store.registry.identity, store.overview.undecided(), store.overview.dispatch()
    last, sagas = store.overview.last_round(CHECK_BACK), asdict(store.work.saga_figures())
    return {
        "store": identity.uuid,
        "incarnation": identity.incarnation,
        "rejects transactions": store.registry.rejects_transactions,
        "undecided": undecided.count,
        "oldest undecided": undecided.oldest,
        "parked": undecided.parked,
        "being asked": sum(backlog.asked for backlog in backlogs),
        "last check round": None if last is None else f"{shown(last.ago)} ago, led by {last.leader}",
        "sagas": ", ".join(f"{count} {what}" for what, count in sagas.items()),
        "scheduled": undecided.scheduled,
        "waiting for a tick": dispatch.waiting,
        "blocked queues": ", ".join(dispatch.blocked) or "none",
        "last tick": f"{dispatch.tick}, {shown(dispatch.age)} ago",
    }
