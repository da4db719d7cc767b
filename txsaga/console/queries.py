"""
What only the console asks of a store, or tells it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txsaga.checkback.heartbeat import MEMBERSHIP
from txsaga.inspect.overview import Audited
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore

if TYPE_CHECKING:
    from txsaga.inspect.trace import AssignedOffsets
    from txsaga.store.store import Store

WINDOW = 5_000
"""Records of the audit in which acts of people are looked for at once."""
SQL = sql_files.read("console/sql/console.sql")


class ConsoleQueries(NamespaceStore):
    """Queries over all transactions, and one that tells whether a page is still up to date."""

    @classmethod
    def of(cls, store: Store) -> ConsoleQueries:
        """Return those of a store."""
        return cls(store.engine, store.namespace)

    def audit(
        self, *, limit: int, before: int = 2**63 - 1, people: str | None = None
    ) -> Sequence[tuple[int, int, Audited]]:
        """Return audit rows of all transactions, newest first: number, transaction, and what was done.

        With a pattern for acts of people only these, among the last records.
        """
        window = WINDOW if people else limit
        asked = self._rows(SQL["audit"], limit=limit, before=before, people=people, window=window)
        found = [row._asdict() for row in asked]
        return [(row.pop("id"), row.pop("txid"), Audited(**row)) for row in found]

    def audit_from(self, before: int) -> int | None:
        """Return the first of the records in which acts of people were looked for; None if it is the first of all."""
        return next((id for (id,) in self._rows(SQL["audit_from"], before=before, window=WINDOW)), None)

    def letters(self) -> int:
        """Count the dead letters, up to a thousand."""
        return int(self._rows(SQL["letters"])[0][0])

    def engines(self) -> Sequence[Mapping[str, Any]]:
        """Return who leads, or led, the rounds of each role, and the processes that answer checks or work on steps."""
        return self._documents("engines")

    def tables(self, *, limit: int, after: str = "") -> Sequence[Mapping[str, Any]]:
        """Return tables by name, and the last transaction that published to each."""
        return self._documents("tables", limit=limit, after=after)

    def published(self, name: str, *, limit: int, before: int = 2**63 - 1) -> Sequence[Mapping[str, Any]]:
        """Return the last transactions that wrote to a table, newest first."""
        return self._documents("published", name=name, limit=limit, before=before)

    def written(self, *txids: int) -> Sequence[Mapping[str, Any]]:
        """Return what transactions wrote to tables."""
        return self._documents("written", txids=[*txids])

    def prepared(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the oldest prepared branch of each resource: its transaction and its age."""
        return {row.pop("name"): row for row in self._documents("prepared")}

    def _documents(self, statement: str, **values: object) -> list[dict[str, Any]]:
        return [dict(row._mapping) for row in self._rows(SQL[statement], **values)]

    def read_by(self, topics: Collection[str]) -> Sequence[Mapping[str, Any]]:
        """Return the groups that read some topics."""
        return self._documents("read_by", topics=[*topics])

    def letters_of(self, id: str, given: Sequence[AssignedOffsets]) -> Sequence[Mapping[str, Any]]:
        """Return the first dead letters that messages of a transaction became."""
        places = {"topics": [each.place.topic for each in given], "queues": [each.place.queue for each in given]}
        offsets = {"firsts": [each.first for each in given], "lasts": [each.last for each in given]}
        return self._documents("letters_of", id=id, **places, **offsets) if given else []

    def messages(self, txid: int, *, limit: int, after: int = 0) -> Sequence[Mapping[str, Any]]:
        """Return the chunks that hold some messages of a transaction, each with the number of messages before it."""
        return self._documents("messages", txid=txid, limit=limit, after=after)

    def answerers(self, group: str) -> Sequence[Mapping[str, Any]]:
        """Return the processes that answer checks for a producer group, with what they are asked now."""
        return self._documents("answerers", group=group, lasts=MEMBERSHIP)

    def readers(self, group: str) -> Sequence[Mapping[str, Any]]:
        """Return the members of a consumer group, by topic: their queues, and the messages that they hold."""
        return self._documents("readers", group=group)

    def seen(self, group: str) -> datetime:
        """Return when a consumer group had a member last; it is noted once a minute."""
        found: datetime = self._rows(SQL["seen"], group=group)[0][0]
        return found

    def attended(self, group: str) -> bool | None:
        """Tell whether a member of a group is alive; None if one may be."""
        return next((alive for (alive,) in self._rows(SQL["attended"], group=group)), False)

    def check_now(self, txid: int) -> None:
        """Move the next check of a transaction to now, unless its owner works on it, or it is parked."""
        self._changed(SQL["check_now"], txid=txid)

    def states(self) -> Mapping[str, int]:
        """Count the undecided transactions by state, delayed messages left out."""
        return dict(map(tuple, self._rows(SQL["states"])))

    def mark(self) -> str:
        """Return a text that differs from an earlier one if something that is listed has changed."""
        return str(self._rows(SQL["mark"])[0][0])
