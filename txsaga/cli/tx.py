"""`txsaga tx`: look at transactions, and settle those without a decision."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from txsaga import errors
from txsaga.cli.home import opened, reading
from txsaga.cli.options import (
    MOST,
    Id,
    Limit,
    OptionalId,
    Options,
    Reason,
    one_of,
    options_of,
    os_user,
    past_of,
    span_of,
)
from txsaga.cli.printing import document, fields, listing, result, say, say_timeline, table, tables
from txsaga.consume.dispatcher import dispatch
from txsaga.core import exits
from txsaga.core.decision import Decision
from txsaga.core.identity import number_of
from txsaga.core.records import LISTED, TxFilter
from txsaga.inspect import documents

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.core.records import TxView
    from txsaga.flows.ballot import CastVote, Polled
    from txsaga.inspect.overview import DoubtView
    from txsaga.inspect.trace import Trace
    from txsaga.messages.replay import ReplayResult
    from txsaga.store.store import Store

app = typer.Typer(help="List and show transactions, and decide them by hand.")
Group = Annotated[str | None, typer.Option(help="Only transactions of this producer group.")]
Force = Annotated[bool, typer.Option(help="Decide even against the evidence, or without it.")]


@app.command("list")
def list_transactions(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(parser=one_of(LISTED), metavar="STATE", help=f"May be repeated: {', '.join(LISTED)}."),
    ] = None,
    undecided: Annotated[bool, typer.Option("--undecided", help="Only undecided transactions.")] = False,
    group: Group = None,
    key: Annotated[str | None, typer.Option(help="Only transactions with this key.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only transactions that send to this topic.")] = None,
    table: Annotated[str | None, typer.Option(help="Only transactions that write this table: SCHEMA.TABLE.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=past_of, metavar="TIME", help="Only newer ones: 15m, 12h, or 2026-01-31T12:00:00Z."),
    ] = None,
    limit: Limit = 50,
) -> None:
    """List transactions, newest first."""
    options = options_of(context)
    only = TxFilter(frozenset(state) if state else None, group, key, topic, since, table)
    with reading(options) as store:
        require_group(store, group)
        if topic is not None:
            store.registry.topic(topic)
        views = store.overview.transactions(undecided=undecided, limit=limit, only=only)
    columns = ("number", "state", "group", "key", "resource", "born", "due", "id")
    rows = [(v.txid, v.state, v.group, v.key, v.resource, v.born, v.due, v.id) for v in views]
    listing(options, map(documents.transaction_document, views), columns, rows)


@app.command("pending")
def list_pending(
    context: typer.Context,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked transactions (they need attention).")] = False,
    group: Group = None,
    limit: Limit = 50,
) -> None:
    """List transactions that check-back has to settle, oldest first: their checks, and why they wait."""
    options = options_of(context)
    with reading(options) as store:
        require_group(store, group)
        found = store.overview.doubts(limit=limit, parked=parked, group=group)
    columns = ("number", "state", "group", "key", "checks", "next check", "age", "last remark")
    listing(options, map(documents.doubt_document, found), columns, map(doubt_row, found))


@app.command()
def resume(
    context: typer.Context,
    reason: Reason,
    id: OptionalId = None,
    group: Group = None,
    all: Annotated[bool, typer.Option("--all", help="All parked transactions of the group.")] = False,
) -> None:
    """Check a parked transaction again, starting from its first check. This decides nothing."""
    if all == (id is not None) or all != (group is not None):
        raise typer.BadParameter("name one transaction, or use --group with --all", param_hint="ID")
    options = options_of(context)
    with opened(options) as broker:
        if group is None:
            assert id is not None
            resumed = [number_of(id, broker.identity)]
            _resume(broker, resumed[0], reason)
        else:
            resumed = _resume_all(broker, group, reason)
    told = f"transaction {resumed[0]} is checked again" if group is None else f"{len(resumed)} resumed"
    result(options, {"resumed": resumed}, told)


def doubt_row(doubt: DoubtView) -> tuple[object, ...]:
    """Write a doubt for people."""
    checks = doubt.checks
    state = doubt.progress if doubt.member is None else f"{doubt.progress} ({doubt.member})"
    last = f"{checks.remarks[-1].answer}: {checks.remarks[-1].why}" if checks.remarks else None
    due = checks.due if checks.parked is None else None
    return doubt.txid, state, doubt.group, doubt.key, checks.asked, due, doubt.age, checks.parked or last


def require_group(store: Store, group: str | None) -> None:
    """Refuse the name of a producer group that does not exist."""
    if group is not None and store.registry.find_group(group) is None:
        raise errors.UnknownProducerGroup(group)


def _resume(broker: Broker, txid: int, reason: str) -> None:
    from txsaga.checkback.by_hand import ByHand

    ByHand(broker.kernel).resume(txid, who=os_user(), why=reason)


def _resume_all(broker: Broker, group: str, reason: str) -> list[int]:
    """Resume what a group has parked; what is settled or resumed elsewhere in the meantime is skipped."""
    store = broker.kernel.store
    require_group(store, group)
    seen, resumed = set[int](), list[int]()
    while new := {each.txid for each in store.overview.doubts(limit=MOST, parked=True, group=group)} - seen:
        seen |= new
        for txid in sorted(new):
            with suppress(errors.DecidedOtherwise, errors.NotParked):
                _resume(broker, txid, reason)
                resumed.append(txid)
    return resumed


@app.command()
def show(
    context: typer.Context,
    id: Id,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Also read the evidence, in databases set with TXSAGA_RESOURCE_….")
    ] = False,
) -> None:
    """Show one transaction: every durable step with its cause, and its half messages."""
    from txsaga.checkback.one_check import look
    from txsaga.inspect.timeline import documented
    from txsaga.inspect.timeline_steps import steps_of

    options = options_of(context)
    with opened(options) as broker:
        store, txid = broker.kernel.store, number_of(id, broker.identity)
        view, trace = _found(store, txid)
        checks, links = documents.checks_document(store.overview.checks(txid)), documents.links_document(trace)
        rows = documents.rows_document(store, view, trace)
        steps = steps_of(trace, look(broker.kernel, trace) if evidence else None)
    head = documents.transaction_document(view)
    if options.json:
        document(head | links | {"checks": checks or None} | rows | {"timeline": documented(steps)})
        return
    fields(head | {name: value for name, value in checks.items() if name != "remarks"} | links)
    say()
    say_timeline(steps)
    tables(rows["halves"], rows["work"], rows["branches"], rows["undo"])


@app.command()
def preview(
    context: typer.Context,
    id: Id,
    undo: Annotated[bool, typer.Option("--undo", help="Show what ROLLBACK would do instead of COMMIT.")] = False,
) -> None:
    """Show, in order, what COMMIT (or ROLLBACK) of a transaction would do. This decides nothing."""
    from txsaga.inspect.preview import Preview, preview_of

    options = options_of(context)
    with reading(options) as store:
        _, trace = _found(store, number_of(id, store.registry.identity))
    found = preview_of(trace, undo=undo)
    if options.json:
        document([each._asdict() for each in found])
    elif found:
        table(Preview._fields, found)
    else:
        say("nothing is left to do")


@app.command()
def commit(context: typer.Context, id: Id, reason: Reason, force: Force = False) -> None:
    """Commit an undecided transaction by hand."""
    _decide(context, id, Decision.COMMIT, reason, force)


@app.command()
def rollback(context: typer.Context, id: Id, reason: Reason, force: Force = False) -> None:
    """Roll an undecided transaction back by hand."""
    _decide(context, id, Decision.ROLLBACK, reason, force)


@app.command()
def settle(
    context: typer.Context,
    id: OptionalId = None,
    min_age: Annotated[
        timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Minimum age to be checked.")
    ] = None,
) -> None:
    """Check one transaction now, or run a round of check-back, with the resources set with TXSAGA_RESOURCE_…."""
    options = options_of(context)
    with opened(options) as broker:
        dispatch(broker.kernel)
        if id is None:
            _settle_all(options, broker, min_age)
        elif min_age is not None:
            raise typer.BadParameter("it is for rounds only; leave out the ID", param_hint="--min-age")
        else:
            _settle_one(options, broker, number_of(id, broker.identity))


def _settle_one(options: Options, broker: Broker, txid: int) -> None:
    from txsaga.checkback.one_check import OneCheck

    found = OneCheck(broker.kernel).ask(txid, who=os_user())
    dispatch(broker.kernel)
    decision = None if found.decision is None else found.decision.name
    told = f"transaction {txid} {'is not settled' if decision is None else f'is decided: {decision}'}: {found.why}"
    result(options, {"txid": txid, "decision": decision, "why": found.why}, told)
    if decision is None:
        raise typer.Exit(exits.CONFLICT)


def _settle_all(options: Options, broker: Broker, min_age: timedelta | None) -> None:
    from txsaga.checkback.profile import CheckProfile
    from txsaga.checkback.round import CheckBack

    check_back = CheckBack(broker.kernel, CheckProfile() if min_age is None else CheckProfile(min_age=min_age))
    check_back.run_once()
    settled, asked = (check_back.done[what] for what in ("settled", "asked"))
    left = broker.kernel.store.overview.undecided()
    dispatch(broker.kernel)
    found = {"settled": settled, "asked": asked, "undecided": left.count, "parked": left.parked}
    result(options, found, f"{settled} settled, {asked} asked, {left.count} undecided, {left.parked} of them parked")


def _found(store: Store, txid: int) -> tuple[TxView, Trace]:
    view, trace = store.overview.transaction(txid), store.overview.trace(txid)
    if view is None or trace is None:
        raise errors.UnknownTransaction(f"transaction {txid} is not in this store; `txsaga tx list` lists transactions")
    return view, trace


def _decide(context: typer.Context, id: str, decision: Decision, reason: str, force: bool) -> None:
    from txsaga.checkback.by_hand import ByHand

    options = options_of(context)
    with opened(options) as broker:
        txid = number_of(id, broker.identity)
        standing = ByHand(broker.kernel).decide(txid, decision, who=os_user(), why=reason, force=force)
        dispatch(broker.kernel)
    how = ("by force" if force else "by hand") if standing.won else "was already decided"
    told = f"transaction {txid}: {decision.name} {how}"
    result(options, {"txid": txid, "decision": decision.name, "by_hand": standing.won}, told)


@app.command()
def reject(
    context: typer.Context, switch: Annotated[Literal["on", "off"], typer.Argument(help="on: refuse new transactions.")]
) -> None:
    """Refuse new half messages and keyed transactions in this store, or accept them again."""
    options = options_of(context)
    rejects = switch == "on"
    with opened(options) as broker:
        broker.reject_transactions(rejects)
    told = f"new transactions are {'rejected' if rejects else 'accepted'}"
    result(options, {"rejects_transactions": rejects}, told)


@app.command()
def replay(
    context: typer.Context,
    id: Id,
    key: Annotated[str | None, typer.Option(help="Key of the new transaction. Default: the old key.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; recorded with your account. Required with --yes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send the messages; without it nothing is sent.")] = False,
) -> None:
    """Send the messages of a rolled-back transaction in a new one. Without --yes it only lists them."""
    if yes and reason is None:
        raise typer.BadParameter("give a reason; it is recorded with your account", param_hint="--reason")
    options = options_of(context)
    with opened(options) as broker:
        txid = number_of(id, broker.identity)
        done = broker.replay(txid, key=key, who=os_user(), why=reason or "-", dry_run=not yes)
        if yes:
            dispatch(broker.kernel)
    if options.json:
        document({**asdict(done), "messages": [each._asdict() for each in done.messages], "done": yes})
    else:
        _show_replay(done)


def _show_replay(done: ReplayResult) -> None:
    table(("topic", "queue", "messages"), done.messages)
    if done.left_out:
        say("\na replay does not do:")
        for what in done.left_out:
            say(f"  {what}")
    say()
    if done.replayed_as is None:
        say("nothing was sent; pass --yes --reason WHY to do it")
    else:
        words = "was replayed before," if done.again else "is replayed"
        say(f"transaction {done.txid} {words} as transaction {done.replayed_as}")


@app.command()
def vote(
    context: typer.Context,
    id: Id,
    ballot: Annotated[str, typer.Argument(metavar="BALLOT", help="Name of a ballot of the transaction.")],
    word: Annotated[Literal["yes", "no"], typer.Argument(metavar="yes|no", help="The vote.")],
    reason: Reason,
    voter: Annotated[str | None, typer.Option("--voter", help="The voter. Default: your system account.")] = None,
) -> None:
    """Cast a vote on an open transaction. The first vote of a voter is final."""
    if not reason.strip():
        raise errors.ConfigError("--reason is empty; give a reason, which is recorded with the vote")
    options = options_of(context)
    with opened(options) as broker:
        txid, who = number_of(id, broker.identity), voter or os_user().rpartition("@")[0]
        evidence = {"reason": reason, "by": os_user()}
        counted = broker.vote(txid, ballot, who, yes=word == "yes", evidence=evidence)
        polls = broker.ballots(txid)
    (poll,) = [each for each in polls if each.ballot.name == ballot]
    (cast,) = [each.yes for each in poll.casts if each.voter == who]
    if cast is not (word == "yes"):
        raise errors.TransactionError(
            f"{who!r} has voted the other way in ballot {ballot!r} of transaction {txid}; the first vote is final"
        )
    said = f"{who} {'voted' if counted else 'had voted'} {word} in ballot {ballot} of transaction {txid}"
    told = f"{said}: it is {poll.result.name.lower()}"
    result(options, {"counted": counted, **documents.ballot_document(txid, poll)}, told)


@app.command()
def ballots(
    context: typer.Context,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show all ballots of this transaction.")] = None,
    limit: Limit = 50,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report on one transaction.")] = None,
) -> None:
    """List the ballots of open transactions, or of one transaction, and the voters that have not voted."""
    options = options_of(context)
    if html is not None and id is None:
        raise errors.ConfigError("--html writes a report about one transaction; give its id")
    with opened(options) as broker:
        if id is None:
            polls = list(broker.kernel.store.overview.polls(limit))
        else:
            txid = number_of(id, broker.identity)
            polls = [(txid, poll) for poll in broker.ballots(txid)]
            if html is not None:
                from txsaga.gate import report

                html.write_text(report(broker, txid), "utf-8")
    columns = ("transaction", "ballot", "rule", "result", "yes", "no", "waits for")
    listing(options, starmap(documents.ballot_document, polls), columns, starmap(_ballot_row, polls))
    if html is not None and not options.json:
        say(f"\nthe report is in {html}")


def _ballot_row(txid: int, poll: Polled) -> tuple[object, ...]:
    yes, no = ([each for each in poll.casts if each.yes is way] for way in (True, False))
    voted = {each.voter for each in poll.casts}
    silent = [voter for voter in poll.ballot.voters if voter not in voted]
    rule = poll.ballot.rule if poll.ballot.needed is None else f"{poll.ballot.rule} {poll.ballot.needed}"
    named = [", ".join(each) or None for each in (map(_yes, yes), map(_voted, no), silent)]
    return (txid, poll.ballot.name, rule, poll.result.name.lower(), *named)


def _yes(cast: CastVote) -> str:
    """Name a voter, with the reason, or the number of expectations that failed and only warn."""
    results = cast.evidence.get("results")
    failed = sum(not each.get("success", True) for each in results) if isinstance(results, list) else 0
    return f"{cast.voter} ({failed} warning{'s' if failed > 1 else ''})" if failed else _voted(cast)


def _voted(cast: CastVote) -> str:
    why = cast.evidence.get("why", cast.evidence.get("reason"))
    return cast.voter if why is None else f"{cast.voter}: {why}"
