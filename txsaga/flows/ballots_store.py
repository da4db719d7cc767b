"""Ballots on PostgreSQL: those of a locked transaction, and how rows of ballots are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from txsaga.flows.ballot import Ballot, CastVote, Polled, Rule, require_same
from txsaga.store import sql_files
from txsaga.store.connection import HomeTransaction

SQL = sql_files.read("flows/sql/ballot.sql")


class BallotLedger(HomeTransaction):
    """Ballots of transactions, inside one open database transaction."""

    def call(self, txid: int, ballot: Ballot) -> None:
        """Open a ballot on a locked record; repeating it changes nothing, a different one of its name is refused."""
        values = {"name": ballot.name, "rule": ballot.rule.value, "needed": ballot.needed}
        if self._run(SQL["call"], txid=txid, voters=list(ballot.voters), **values).scalar() is None:
            (known,) = [poll.ballot for poll in self.ballots(txid) if poll.ballot.name == ballot.name]
            require_same(known, ballot)

    def cast(self, txid: int, ballot: str, cast: CastVote) -> bool:
        """Cast a vote on a locked record; False if that voter already voted."""
        values = {"voter": cast.voter, "yes": cast.yes, "evidence": json.dumps(dict(cast.evidence))}
        return self._run(SQL["cast"], txid=txid, ballot=ballot, **values).scalar() is not None

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction and their votes."""
        return [poll for _, poll in polled(self._run(SQL["polled"], txid=txid))]


def polled(rows: Iterable[Any]) -> Iterator[tuple[int, Polled]]:
    """Read ballots with their votes, one row for each vote."""
    for (txid, name, rule, needed, voters), votes in groupby(rows, lambda row: row[:5]):
        called = Ballot(name=name, voters=tuple(voters), rule=Rule(rule), needed=needed)
        casts = [CastVote(voter=voter, yes=yes, evidence=said, at=at) for *_, voter, yes, said, at in votes if voter]
        yield txid, Polled(ballot=called, casts=tuple(casts))
