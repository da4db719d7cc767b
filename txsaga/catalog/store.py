"""
The rows of the catalog: namespaces, tables and views. Other engines read and write the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

from txsaga.catalog.refusals import CatalogRefusal, bad, conflict, missing, taken
from txsaga.lake.table import TableName, TableWrite
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore, Run, transaction

SQL = sql_files.read("catalog/sql/catalog.sql")
EXISTS = "exists"
"""The property that every namespace has, and that no client sees."""
MOST_IN_KEY, MOST_IN_VALUE = 255, 1000


class Listed(NamedTuple):
    """A page of names, and where the next one begins."""

    names: Sequence[str]
    next: str | None


class CatalogStore(NamespaceStore):
    """Reads and changes the rows of one catalog."""

    _connection: Connection | None = None

    def within(self, connection: Connection) -> CatalogStore:
        """Return it for an open database transaction, which another commits."""
        found = copy(self)
        found._connection = connection
        return found

    @contextmanager
    def _open(self, way: Callable[[Engine], AbstractContextManager[Connection]] = transaction) -> Iterator[Run]:
        given = self._connection
        with super()._open(way if given is None else lambda _: nullcontext(given)) as run:
            yield run

    def acted(self, txid: int) -> Sequence[str]:
        """Return the digest of the request that a transaction has done at once."""
        return [row[0] for row in self._rows(SQL["acted"], txid=txid)]

    def found(self, name: TableName) -> tuple[str, str] | None:
        """Return the kind of a table or view, and the location of its metadata."""
        row = self._row(SQL["found"], **name._asdict())
        return None if row is None else (row.kind, row.metadata_location)

    def pointer(self, name: TableName, kind: str) -> str:
        """Return the location of the metadata of a table or view."""
        found = self.found(name)
        if found is None or found[0] != kind.upper():
            raise missing(kind, name)
        return found[1]

    def listed(self, catalog: str, namespace: str, kind: str, after: str, most: int | None) -> Listed:
        """Return a page of the tables or views of a namespace."""
        self.require_namespace(catalog, namespace)
        values = {"catalog": catalog, "namespace": namespace, "kind": kind, "after": after}
        return _page([row[0] for row in self._rows(SQL["listed"], **values, most=_one_more(most))], most)

    def staged(self, txid: int, part: int, attempt: int) -> Sequence[TableWrite]:
        """Return what a contribution of an open transaction changes in tables."""
        rows = self._rows(SQL["staged"], txid=txid, part=part, attempt=attempt)
        return [TableWrite.read({k: v for k, v in row[0].items() if k not in ("part", "attempt")}) for row in rows]

    def tables(self, catalog: str) -> Sequence[TableName]:
        """Return the names of all tables."""
        return [TableName(catalog, *row) for row in self._rows(SQL["tables"], catalog=catalog)]

    def moments(self, kind: str, name: str | None = None) -> Sequence[Any]:
        """Return the moments of a kind, or the one of a name."""
        return self._rows(SQL["moments"], kind=kind, name=name)

    def keep_moment(self, **values: object) -> bool:
        """Add a moment; return False if its name is taken."""
        return bool(self._changed(SQL["keep_moment"], **values))

    def mark_moment(self, **values: object) -> bool:
        """Record what became of a moment, if it is as it was seen."""
        return bool(self._changed(SQL["mark_moment"], **values))

    def forget_moment(self, **values: object) -> bool:
        """Remove a moment, if it is as it was seen."""
        return bool(self._changed(SQL["forget_moment"], **values))

    def is_kept(self, kind: str, name: str) -> bool:
        """Return whether there is such a moment, and its lease has not ended."""
        return bool(self._row(SQL["is_kept"], kind=kind, name=name)[0])

    def holds_others(self, place: str, name: TableName) -> bool:
        """Return whether the metadata of another table or view is below a place."""
        return bool(self._row(SQL["holds_others"], place=f"{place.rstrip('/')}/", **name._asdict())[0])

    def cuts_of(self, uuid: str) -> Sequence[str]:
        """Return the cuts that still keep a table."""
        return [row[0] for row in self._rows(SQL["cuts_of"], uuid=uuid)]

    def drop_view(self, name: TableName) -> None:
        """Remove a view."""
        if not self._changed(SQL["drop_view"], **name._asdict()):
            raise missing("View", name)

    def rename_view(self, name: TableName, new: TableName) -> None:
        """Rename a view."""
        self.pointer(name, "View")
        self.require_free_to_rename(name, new)
        values = {**name._asdict(), "new_namespace": new.namespace, "new_table": new.table}
        if not self._changed(SQL["rename_view"], **values):
            raise conflict(f"{name} or {new} was changed meanwhile; rename it again")

    def require_free_to_rename(self, name: TableName, new: TableName) -> None:
        """Refuse a new name that is taken, or in a namespace that does not exist."""
        self.require_namespace(new.catalog, new.namespace)
        if (found := self.found(new)) is not None:
            raise taken(f"Cannot rename {name} to {new}. {found[0].capitalize()} already exists")

    def create_view(self, name: TableName, location: str) -> None:
        """Add a view."""
        if not self._changed(SQL["create_view"], **name._asdict(), new=location):
            raise _taken(name, "View", "View")

    def locked_view(self, name: TableName) -> str:
        """Return the location of the metadata of a view, which no other transaction can change until this one ends."""
        if (row := self._row(SQL["lock_view"], **name._asdict())) is None:
            raise missing("View", name)
        return str(row[0])

    def move_view(self, name: TableName, new: str) -> None:
        """Point a view that is locked at other metadata."""
        self._changed(SQL["move_view"], **name._asdict(), new=new)

    def require_free(self, name: TableName, wanted: str) -> None:
        """Refuse to create a table or view of a name that is taken, or in a namespace that does not exist."""
        self.require_namespace(name.catalog, name.namespace)
        found = self.found(name)
        if found is not None:
            raise _taken(name, wanted, found[0].capitalize())

    def namespaces(self, catalog: str, parent: str, after: str, most: int | None) -> Listed:
        """Return a page of the namespaces of a parent: their last levels."""
        if parent:
            self.require_namespace(catalog, parent)
        values = {"catalog": catalog, "parent": parent and f"{parent}.", "after": after}
        return _page([row[0] for row in self._rows(SQL["namespaces"], **values, most=_one_more(most))], most)

    def require_namespace(self, catalog: str, namespace: str) -> None:
        """Refuse a namespace that does not exist."""
        if not self._row(SQL["has_namespace"], catalog=catalog, namespace=namespace)[0]:
            raise missing("Namespace", namespace)

    def properties(self, catalog: str, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        self.require_namespace(catalog, namespace)
        rows = self._rows(SQL["properties"], catalog=catalog, namespace=namespace)
        return {key: value for key, value in rows if key != EXISTS}

    def create_namespace(self, catalog: str, namespace: str, properties: Mapping[str, str]) -> None:
        """Add a namespace."""
        where = {"catalog": catalog, "namespace": namespace}
        with self._open() as run:
            run(SQL["lock"], **where)
            if run(SQL["has_namespace"], **where).scalar():
                raise taken(f"Namespace already exists: {namespace}")
            _set(run, where, {EXISTS: "true", **properties})

    def change_properties(
        self, catalog: str, namespace: str, removals: Sequence[str], updates: Mapping[str, str]
    ) -> Sequence[str]:
        """Set and remove properties; return those that were to be removed and were missing."""
        where = {"catalog": catalog, "namespace": namespace}
        with self._open() as run:
            run(SQL["lock"], **where)
            if not run(SQL["has_namespace"], **where).scalar():
                raise missing("Namespace", namespace)
            _set(run, where, {EXISTS: "true", **updates})
            return [key for key in removals if not run(SQL["remove_property"], **where, key=key).rowcount]

    def drop_namespace(self, catalog: str, namespace: str) -> None:
        """Remove a namespace that holds nothing."""
        where = {"catalog": catalog, "namespace": namespace}
        with self._open() as run:
            run(SQL["lock"], **where)
            if run(SQL["holds"], **where).scalar():
                raise CatalogRefusal(409, "NamespaceNotEmptyException", f"Namespace is not empty: {namespace}")
            if not run(SQL["drop_namespace"], **where).rowcount:
                raise missing("Namespace", namespace)


def _taken(name: TableName, wanted: str, kind: str) -> CatalogRefusal:
    return taken(
        f"{kind} already exists: {name}" if kind == wanted else f"{kind} with same name already exists: {name}"
    )


def _set(run: Run, where: Mapping[str, str], properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if len(key) > MOST_IN_KEY or len(value) > MOST_IN_VALUE:
            raise bad(
                f"property {key[:99]!r} is too long: at most {MOST_IN_KEY} characters = {MOST_IN_VALUE} are stored"
            )
        run(SQL["set_property"], **where, key=key, value=value)


def _one_more(most: int | None) -> int | None:
    return None if most is None else most + 1


def _page(names: Sequence[str], most: int | None) -> Listed:
    if most is None or len(names) <= most:
        return Listed(names, None)
    return Listed(names[:most], names[most - 1])
