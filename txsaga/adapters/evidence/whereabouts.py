"""
Where one resource keeps its evidence: found with the first question, and the same from then on.

A name may lead elsewhere from one connection to the next: whoever believes an answer asks `require_same` on the very
connection that gave it.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, Engine, select

from txsaga.adapters.evidence.creation import Place, create, find, missing
from txsaga.adapters.evidence.schema import database_table
from txsaga.errors import EvidenceMissing


class Whereabouts:
    """The tables of evidence in the database that an engine leads to; they are created where that is allowed."""

    def __init__(self, engine: Engine, name: str, *, create: bool = True, database: UUID | None = None) -> None:
        self.may_create = create
        self._engine = engine
        self._name = name
        self._pinned = database
        self._found: Place | None = None

    @property
    def place(self) -> Place:
        """The tables and the uuid of their database."""
        found = self._found  # another thread may drop it meanwhile
        if found is None:
            found = self._found = self._agreed(find(self._engine, self._name) or self._created())
        return found

    def look(self) -> bool:
        """Tell whether the tables are there; nothing is created."""
        if self._found is None and (found := find(self._engine, self._name)) is not None:
            self._found = self._agreed(found)
        return self._found is not None

    def require_same(self, connection: Connection, place: Place) -> None:
        """Refuse an answer of another database than the one whose place this is."""
        self.refuse_other(connection.scalar(select(database_table(place.table.schema).c.uuid)), place)

    def refuse_other(self, uuid: str | None, place: Place) -> None:
        """Refuse the uuid that came with an answer, unless it is the one of this place."""
        if uuid is None or UUID(hex=uuid) != place.database:
            self._found = None  # whoever asks next looks where it leads now
            raise self._elsewhere()

    def _created(self) -> Place:
        if self.may_create and self._pinned is None:  # in the database that was recorded they were there
            create(self._engine, self._name)
        found = find(self._engine, self._name)
        if found is None:
            raise missing(self._engine, self._name)
        return found

    def _agreed(self, place: Place) -> Place:
        if self._pinned not in (None, place.database):
            raise self._elsewhere()
        return place

    def _elsewhere(self) -> EvidenceMissing:
        return EvidenceMissing(f"resource {self._name!r} leads to another database than before")
