"""`txsaga tx vote` and `txsaga tx ballots`: say yes or no to a transaction that waits for it, and see which do."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import MOST, options_of, whole
from txsaga.cli.printing import document, say, table
from txsaga.cli.tx import Id, Reason, number_of, os_user
from txsaga.errors import ConfigError, VotedOtherwise
from txsaga.gate import report

if TYPE_CHECKING:
    from txsaga.flows.ballot import Polled


class Word(StrEnum):
    """What a voter can say."""

    YES = "yes"
    NO = "no"


def vote(
    context: typer.Context,
    id: Id,
    ballot: Annotated[str, typer.Argument(metavar="BALLOT", help="Name of a ballot of the transaction.")],
    word: Annotated[Word, typer.Argument(metavar="yes|no", help="The vote.")],
    reason: Reason,
    voter: Annotated[str | None, typer.Option("--voter", help="Who votes; else the account that you use.")] = None,
) -> None:
    """Cast a vote on an open transaction; the first vote of a voter stands."""
    if not reason.strip():
        raise ConfigError("say why with --reason; it is kept with the vote")
    options = options_of(context)
    with opened(options) as broker:
        txid, who = number_of(id, broker.identity), voter or os_user().rpartition("@")[0]
        evidence = {"reason": reason, "by": os_user()}
        counted = broker.vote(txid, ballot, who, yes=word is Word.YES, evidence=evidence)
        polls = broker.ballots(txid)
    (poll,) = [each for each in polls if each.ballot.name == ballot]
    (stands,) = [each.yes for each in poll.casts if each.voter == who]
    if stands is not (word is Word.YES):
        raise VotedOtherwise(txid, ballot, who)
    if options.json:
        document({"counted": counted, **ballot_document(txid, poll)})
    else:
        said = "voted" if counted else "had voted"
        say(f"{who} {said} {word} in ballot {ballot} of transaction {txid}: it is {poll.result.name.lower()}")


def ballots(
    context: typer.Context,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="All ballots of one transaction.")] = None,
    limit: Annotated[int, typer.Option(parser=whole(1, MOST), metavar="NUMBER", help="At most so many.")] = 50,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page about those of one transaction.")] = None,
) -> None:
    """List the ballots of open transactions, or of one transaction, and who has not voted."""
    options = options_of(context)
    if html is not None and id is None:
        raise ConfigError("a page is about one transaction; give its id")
    with opened(options) as broker:
        if id is None:
            polls = list(broker.kernel.store.overview.polls(limit))
        else:
            txid = number_of(id, broker.identity)
            polls = [(txid, poll) for poll in broker.ballots(txid)]
            if html is not None:
                html.write_text(report(broker, txid), "utf-8")
    if options.json:
        document([ballot_document(txid, poll) for txid, poll in polls])
    else:
        columns = ("transaction", "ballot", "rule", "result", "yes", "no", "waits for")
        table(columns, [_row(txid, poll) for txid, poll in polls])


def ballot_document(txid: int, poll: Polled) -> dict[str, object]:
    """Write a ballot with its votes for programs."""
    casts = [
        {"voter": each.voter, "yes": each.yes, "at": each.at, "evidence": dict(each.evidence)} for each in poll.casts
    ]
    said = poll.ballot
    rule = {"rule": said.rule, "needed": said.needed, "voters": list(said.voters)}
    return {"txid": txid, "ballot": said.name, **rule, "result": poll.result.name.lower(), "votes": casts}


def _row(txid: int, poll: Polled) -> tuple[object, ...]:
    yes, no = ([each.voter for each in poll.casts if each.yes is said] for said in (True, False))
    silent = [voter for voter in poll.ballot.voters if voter not in (*yes, *no)]
    rule = poll.ballot.rule if poll.ballot.needed is None else f"{poll.ballot.rule} {poll.ballot.needed}"
    named = [", ".join(each) or None for each in (yes, no, silent)]
    return (txid, poll.ballot.name, rule, poll.result.name.lower(), *named)
