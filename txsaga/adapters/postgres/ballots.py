"""Ballots of a locked life on PostgreSQL; whoever opened the block commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.connection import translating
from txsaga.model.ballot import Ballot, Cast, Polled, Rule

ballot, vote = schema.ballot, schema.vote


def call(connection: Connection, txid: int, called: Ballot) -> None:
    """Call a ballot."""
    values = {"rule": called.rule.value, "needed": called.needed, "voters": list(called.voters)}
    with translating():
        connection.execute(insert(ballot).values(txid=txid, name=called.name, **values))


def cast(connection: Connection, txid: int, name: str, said: Cast) -> bool:
    """Cast a vote; False when this voter has voted."""
    values = {"voter": said.voter, "yes": said.yes, "evidence": dict(said.evidence)}
    statement = upsert(vote).values(txid=txid, ballot=name, **values).on_conflict_do_nothing().returning(vote.c.voter)
    with translating():
        return connection.execute(statement).scalar() is not None


def polled(connection: Connection, txid: int) -> Sequence[Polled]:
    """Return the ballots of a transaction with their votes."""
    casts: defaultdict[str, list[Cast]] = defaultdict(list)
    with translating():
        ballots = connection.execute(select(ballot).where(ballot.c.txid == txid).order_by(ballot.c.name)).all()
        votes = connection.execute(select(vote).where(vote.c.txid == txid).order_by(vote.c.at)).all() if ballots else []
    for row in votes:
        casts[row.ballot].append(Cast(voter=row.voter, yes=row.yes, evidence=row.evidence, at=row.at))
    return [
        Polled(
            ballot=Ballot(name=row.name, voters=tuple(row.voters), rule=Rule(row.rule), needed=row.needed),
            casts=tuple(casts[row.name]),
        )
        for row in ballots
    ]
