"""Ballots of a locked transaction on PostgreSQL, and all ballots still open; the caller commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.dialects.postgresql import insert as upsert

from txsaga.core.lifecycle import TxState
from txsaga.flows.ballot import Ballot, CastVote, Polled, Rule, require_same
from txsaga.store import schema
from txsaga.store.connection import translating

ballot, vote, tx = schema.ballot, schema.vote, schema.tx


def call(connection: Connection, txid: int, called: Ballot) -> None:
    """Open a ballot; opening the same one again changes nothing."""
    values = {"rule": called.rule.value, "needed": called.needed, "voters": list(called.voters)}
    statement = upsert(ballot).values(txid=txid, name=called.name, **values).on_conflict_do_nothing()
    with translating():
        is_new = connection.execute(statement.returning(ballot.c.name)).scalar() is not None
    if not is_new:
        (known,) = [poll.ballot for poll in polled(connection, txid) if poll.ballot.name == called.name]
        require_same(known, called)


def cast(connection: Connection, txid: int, name: str, said: CastVote) -> bool:
    """Cast a vote; False if this voter has already voted."""
    values = {"voter": said.voter, "yes": said.yes, "evidence": dict(said.evidence)}
    statement = upsert(vote).values(txid=txid, ballot=name, **values).on_conflict_do_nothing().returning(vote.c.voter)
    with translating():
        return connection.execute(statement).scalar() is not None


def polled(connection: Connection, txid: int) -> Sequence[Polled]:
    """Return the ballots of a transaction with their votes."""
    return [poll for _, poll in _read(connection, select(ballot).where(ballot.c.txid == txid))]


def open_ones(connection: Connection, limit: int) -> Sequence[tuple[int, Polled]]:
    """Return the ballots of open transactions, by transaction and name."""
    query = select(ballot).join(tx, tx.c.txid == ballot.c.txid).where(tx.c.state == TxState.ACTIVE.value)
    return _read(connection, query.limit(limit))


def _read(connection: Connection, query: Select[Any]) -> Sequence[tuple[int, Polled]]:
    casts: defaultdict[tuple[int, str], list[CastVote]] = defaultdict(list)
    with translating():
        ballots = connection.execute(query.order_by(ballot.c.txid, ballot.c.name)).all()
        cast_in = select(vote).where(vote.c.txid.in_({row.txid for row in ballots})).order_by(vote.c.at)
        votes = connection.execute(cast_in).all() if ballots else []
    for row in votes:
        casts[row.txid, row.ballot].append(CastVote(voter=row.voter, yes=row.yes, evidence=row.evidence, at=row.at))
    found: list[tuple[int, Polled]] = []
    for row in ballots:
        called = Ballot(name=row.name, voters=tuple(row.voters), rule=Rule(row.rule), needed=row.needed)
        found.append((row.txid, Polled(ballot=called, casts=tuple(casts[row.txid, row.name]))))
    return found
