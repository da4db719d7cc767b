"""
Leases on PostgreSQL, by the clock of the database.

A holder that slept past its time finds its epoch raised, or the row gone: writes under its old lead are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from txsaga.checkback.questions import Lead
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore, by_index

SQL = sql_files.read("store/sql/lease.sql")


class Leases(NamespaceStore):
    """The leases of one namespace."""

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a free lease, or extend one's own; None while another holder has it."""
        with self._open(by_index) as run:
            row = run(SQL["acquire"], kind=kind, name=name, holder=holder, ttl=ttl).one_or_none()
        return None if row is None else Lead(*row)

    def release(self, lead: Lead) -> None:
        """Give a lease back; one that was lost meanwhile stays with its new holder."""
        self._changed(SQL["release"], **lead._asdict())

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Mark a member of each of these kinds as alive, and delete those long gone."""
        with self._open() as run:
            run(SQL["mark"], kinds=sorted(kinds), name=name, ttl=ttl)
            run(SQL["end_others"], kinds=[*kinds], slack=ttl)

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Drop its leases: it has left."""
        self._changed(SQL["drop"], kinds=[*kinds], name=name)

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the live names, by kind."""
        found = defaultdict(list)
        for kind, name in self._rows(SQL["alive"], kinds=[*kinds]):
            found[kind].append(name)
        return found
