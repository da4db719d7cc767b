"""`txsaga status`, `doctor`, `cut` and `collect`: a store as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli import exits
from txsaga.cli.group import GROUP, group_document, group_row
from txsaga.cli.home import home_url, opened, reading
from txsaga.cli.options import options_of, span_of
from txsaga.cli.printing import document, fields, say, table
from txsaga.cli.producer import COLUMNS, backlog_document, backlog_row
from txsaga.cli.topic import TopicState, topic_document, topic_states
from txsaga.inspect.overview import ANSWERS, Backlog, BranchBacklog, Dispatch, LastRound, Reading, Undecided

if TYPE_CHECKING:
    from txsaga.core.identity import StoreId
    from txsaga.flows.requests import SagaFigures
    from txsaga.flows.step import HeldLocks
    from txsaga.store.store import Store

CHECK_BACK = "check-back"
"""The role whose last round is shown."""


def status(context: typer.Context) -> None:
    """Show the store, its topics, its readers, what is undecided and what waits for the dispatcher."""
    options = options_of(context)
    with reading(options) as store:
        found = Status.of(store)
    if options.json:
        document(found.document())
    else:
        found.show()


def doctor(context: typer.Context) -> None:
    """Examine the home database and the store; nothing is changed. It exits with 7 when an error is found."""
    from txsaga.store.doctor import Severity, examine

    options = options_of(context)
    findings = examine(home_url(options))
    if options.json:
        document([asdict(finding) for finding in findings])
    else:
        table(("", "what", "found", "remedy"), [(f.severity, f.what, f.found, f.remedy) for f in findings])
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(exits.REFUSED)


def cut(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="A table, like bank.ledger; as often as need be."),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; without any, all topics.")
    ] = None,
) -> None:
    """Show the heads of topics and the snapshots of tables at one moment."""
    options = options_of(context)
    with opened(options) as broker, broker.cut(tables=tables or (), topics=topics) as found:
        snapshots = {name: found.snapshot(name) for name in found.tables}
    if options.json:
        named = {name: {"metadata": at, "snapshot": snapshots[name]} for name, at in found.tables.items()}
        document({"tick": found.tick, "topics": found.heads, "tables": named})
        return
    say(f"tick {found.tick}")
    if found.heads:
        say()
        table(
            ("topic", "messages", "heads"),
            [(name, sum(at), ", ".join(map(str, at))) for name, at in found.heads.items()],
        )
    if found.tables:
        say()
        table(("table", "snapshot", "metadata"), [(name, snapshots[name], at) for name, at in found.tables.items()])


def collect(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    keep_rejected: Annotated[
        timedelta | None,
        typer.Option(parser=span_of, metavar="TIME", help="Keep what a gate said no to for so long: 12h, 7d."),
    ] = None,
) -> None:
    """Take away staged files of transactions that rolled back, and of attempts that lost."""
    options = options_of(context)
    with opened(options) as broker:
        kernel = broker.kernel
        gone = [*kernel.rows.collect(dry_run=dry_run)]
        gone += kernel.tables.collect(dry_run=dry_run, keep_rejected=keep_rejected or timedelta(0))
    if options.json:
        document({"collected": gone, "dry_run": dry_run})
        return
    for place in gone:
        say(place)
    say(f"{len(gone)} {'would go' if dry_run else 'taken away'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a store looks like now. Its figures are read one after the other, so they need not be of one moment."""

    store: StoreId
    rejects_transactions: bool
    topics: tuple[TopicState, ...]
    readings: tuple[Reading, ...]
    dead_letters: Mapping[str, int]
    undecided: Undecided
    backlogs: tuple[Backlog, ...]
    branches: tuple[BranchBacklog, ...]
    sagas: SagaFigures
    held: tuple[HeldLocks, ...]
    last_round: LastRound | None
    dispatch: Dispatch

    @classmethod
    def of(cls, store: Store) -> Status:
        """Read the state of a store."""
        registry, overview = store.registry, store.overview
        return cls(
            store=registry.identity,
            rejects_transactions=registry.rejects_transactions,
            topics=tuple(topic_states(store)),
            readings=tuple(overview.readings()),
            dead_letters=overview.dead_letters(),
            undecided=overview.undecided(),
            backlogs=tuple(overview.backlogs()),
            branches=tuple(overview.branches()),
            sagas=store.work.saga_figures(),
            held=tuple(store.flows.held()),
            last_round=overview.last_round(CHECK_BACK),
            dispatch=overview.dispatch(),
        )

    def show(self) -> None:
        """Print it for people: parts without rows are left out."""
        fields(self._figures())
        answers = [(*backlog_row(each), *(each.answers.get(name, 0) for name in ANSWERS)) for each in self.backlogs]
        topics = [(each.topic.name, each.topic.type, len(each.bounds), each.messages) for each in self.topics]
        branches = [tuple(asdict(backlog).values()) for backlog in self.branches]
        for columns, rows in (
            (("topic", "type", "queues", "messages"), topics),
            ((*COLUMNS, *ANSWERS), answers),
            (("resource", "undecided branches", "waiting", "oldest", "heuristics"), branches),
            (("resource", "held by flows", "over budget", "oldest"), self.held),
            (GROUP, [group_row(each) for each in self.readings]),
            (("group", "dead letters"), list(self.dead_letters.items())),
        ):
            if rows:
                say()
                table(columns, rows)

    def _figures(self) -> dict[str, object]:
        last = self.last_round
        return {
            "store": self.store.uuid,
            "incarnation": self.store.incarnation,
            "rejects transactions": self.rejects_transactions,
            "undecided": self.undecided.count,
            "oldest undecided": self.undecided.oldest,
            "parked": self.undecided.parked,
            "being asked": sum(backlog.asked for backlog in self.backlogs),
            "last check round": None if last is None else f"{last.ago.total_seconds():.1f} s ago, led by {last.leader}",
            "sagas": ", ".join(f"{count} {what}" for what, count in asdict(self.sagas).items()),
            "scheduled": self.undecided.scheduled,
            "waiting for a tick": self.dispatch.waiting,
            "blocked queues": ", ".join(self.dispatch.blocked) or "none",
            "last tick": f"{self.dispatch.tick}, {self.dispatch.age.total_seconds():.1f} s ago",
        }

    def document(self) -> dict[str, object]:
        """Write it for programs."""
        undecided, dispatch, last = self.undecided, self.dispatch, self.last_round
        return {
            "store": {"uuid": self.store.uuid, "incarnation": self.store.incarnation},
            "rejects_transactions": self.rejects_transactions,
            "undecided": {
                "count": undecided.count,
                "parked": undecided.parked,
                "oldest_seconds": undecided.oldest,
                "asked": sum(backlog.asked for backlog in self.backlogs),
            },
            "last_round": None if last is None else {"leader": last.leader, "ago_seconds": last.ago},
            "producers": [backlog_document(backlog) for backlog in self.backlogs],
            "branches": [asdict(backlog) for backlog in self.branches],
            "sagas": asdict(self.sagas),
            "held": [each._asdict() for each in self.held],
            "scheduled": undecided.scheduled,
            "dispatcher": {
                "tick": dispatch.tick,
                "age_seconds": dispatch.age,
                "waiting": dispatch.waiting,
                "blocked": dispatch.blocked,
            },
            "topics": [topic_document(state) for state in self.topics],
            "groups": [group_document(each) for each in self.readings],
            "dead_letters": dict(self.dead_letters),
        }
