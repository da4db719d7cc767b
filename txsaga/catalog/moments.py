"""
Moments of the whole store that are kept under a name: a row with the offsets of all topics, and what tables were.

A moment is the base of a cut and of a workspace. A ref in each table, named as the moment, keeps its snapshots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from txsaga.broker import Broker
from txsaga.catalog.requests import Json
from txsaga.catalog.store import CatalogStore
from txsaga.errors import ConfigError, InDoubt, OutcomeUnknown
from txsaga.iceberg.as_of import snapshot_of
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName, TableWrite, WriteMode

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
CUT, WORKSPACE = "cut", "workspace"


class TableThen(NamedTuple):
    """A table as it was."""

    name: TableName
    uuid: str
    snapshot: int | None
    """None if it had no rows."""
    schema: int
    spec: int
    order: int

    def document(self) -> Json:
        """Return it as JSON."""
        return {**self._asdict(), "name": [*self.name]}

    @classmethod
    def read(cls, document: Json) -> TableThen:
        """Read the result of `document`."""
        return cls(**{**document, "name": TableName(*document["name"])})


class KeptMoment(NamedTuple):
    """A moment with its name."""

    kind: str
    name: str
    tick: int
    heads: Mapping[str, Sequence[int]]
    """The end of each queue, by topic."""
    tables: Mapping[TableName, TableThen]
    who: str
    at: datetime
    expires: datetime | None
    state: str | None = None
    """What became of a workspace."""
    asked: int | None = None
    """The transaction that asks, or asked last, whether it is published."""
    published: Mapping[str, int] | None = None
    """The snapshots to which main was pointed, by table."""

    @property
    def ref(self) -> str:
        """The name of its branches or tags, and the prefix under which it is served."""
        return f"{self.kind}-{self.name}"


class Moments:
    """The moments of one kind that a store keeps."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self._broker, self._kind = broker, kind
        self._lake, self._catalog = broker.kernel.tables.lake, broker.kernel.tables.lake.catalog.name
        self.store = CatalogStore(broker.kernel.store.engine, broker.kernel.store.namespace)
        self.producer = broker.producer(f"{kind}s")

    @contextmanager
    def taken(
        self, name: str, patterns: Sequence[str], *, lease: timedelta | None = None, who: str
    ) -> Iterator[KeptMoment]:
        """Keep what is now, all topics and the tables that match; forget it if what follows is refused."""
        moment = self._take(name, patterns, lease, who)
        try:
            yield moment
        except (InDoubt, OutcomeUnknown):
            raise
        except Exception:  # an interrupt may have come after all was done
            self._forget(moment)
            raise

    def _take(self, name: str, patterns: Sequence[str], lease: timedelta | None, who: str) -> KeptMoment:
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"a {self._kind} can't be named {name!r}: write up to 100 small letters, digits, - and _")
        if lease is not None and lease <= timedelta(0):
            raise ConfigError(f"a {self._kind} with a lease of {lease} is never kept; give a longer one, or none")
        with self._broker.cut(tables=self._matching(patterns)) as cut:
            pass  # what it read stays readable
        found = [_then(table, Metadata.load(self._lake.storage, at)) for table, at in cut.pointers.items()]
        values = {
            "tick": cut.tick,
            "heads": json.dumps(cut.heads),
            "tables": json.dumps(_by_name(found)),
            "lease": None if lease is None else lease.total_seconds(),
        }
        if not self.store.keep_moment(kind=self._kind, name=name, who=who, **values):
            raise ConfigError(f"there is a {self._kind} {name!r}; remove it first, or choose another name")
        return self.find(name)

    def find(self, name: str) -> KeptMoment:
        """Return one by its name."""
        if not (rows := self.store.moments(self._kind, name)):
            raise ConfigError(f"there is no {self._kind} {name!r}; `txsaga {self._kind} list` shows all")
        return moment_of(rows[0])

    def all(self) -> Sequence[KeptMoment]:
        """Return all, the oldest first."""
        return [moment_of(row) for row in self.store.moments(self._kind)]

    def mark(self, seen: KeptMoment, now: KeptMoment) -> bool:
        """Record what became of a moment, longer than its transactions are kept; False if it is not as it was seen."""
        published = None if now.published is None else json.dumps(now.published)
        return self.store.mark_moment(**self._seen(seen), state=now.state, asked=now.asked, published=published)

    def remove(self, moment: KeptMoment, who: str) -> int:
        """Remove a moment and its refs; return of how many tables."""
        now = self.now(moment).items()
        refs = [(table, each) for table, each in now if snapshot_of(each.raw, moment.ref) is not None]
        self.change([change_of(table, each, without(moment.ref)) for table, each in refs], who)
        if not self._forget(moment):
            raise self.overtaken(moment)
        return len(moment.tables)

    def change(self, writes: Sequence[TableWrite], who: str) -> None:
        """Change tables by one decision, if there is anything to change."""
        if writes:
            with self.producer.transaction() as transaction:
                transaction.change(writes, who)

    def require_seen(self, moment: KeptMoment) -> None:
        """Refuse a moment that is not as it was seen."""
        if self.find(moment.name) != moment:
            raise self.overtaken(moment)

    def overtaken(self, moment: KeptMoment) -> ConfigError:
        """Return the error of whoever was too late."""
        return ConfigError(
            f"{self._kind} {moment.name!r} was changed by somebody else meanwhile; `txsaga {self._kind} list` shows "
            "what became of it"
        )

    def _forget(self, moment: KeptMoment) -> bool:
        return self.store.forget_moment(**self._seen(moment))

    def _seen(self, moment: KeptMoment) -> Json:
        at = {"kind": self._kind, "name": moment.name, "tick": moment.tick}
        return {**at, "seen_state": moment.state, "seen_asked": moment.asked}

    def now(self, moment: KeptMoment) -> Mapping[TableName, Metadata]:
        """Return the metadata of its tables as they are now; without those that are gone."""
        pointers = self._lake.catalog.pointers([*moment.tables])
        read = {table: Metadata.load(self._lake.storage, at) for table, at in sorted(pointers.items())}
        return {table: each for table, each in read.items() if each.uuid == moment.tables[table].uuid}

    def _matching(self, patterns: Sequence[str]) -> Sequence[TableName]:
        names = self.store.tables(self._catalog)
        for each in patterns:
            if not any(fnmatchcase(str(name), each) for name in names):
                raise ConfigError(f"no table matches {each!r}; give names such as sales.orders or sales.*")
        return [name for name in names if any(fnmatchcase(str(name), each) for each in patterns)]


def moment_of(row: Any) -> KeptMoment:
    """Read a row."""
    then = (TableThen.read(each) for each in row.tables.values())
    return KeptMoment(**{**row._mapping, "tables": {each.name: each for each in then}})


def _by_name(tables: Sequence[TableThen]) -> Json:
    found = {str(each.name): each.document() for each in tables}
    if twice := [name for name in found if [str(each.name) for each in tables].count(name) > 1]:
        raise ConfigError(f"{twice[0]} names two tables, in two namespaces; rename one, or leave them out")
    return found


def _then(table: TableName, now: Metadata) -> TableThen:
    ids = (now.raw.get(key, 0) for key in ("current-schema-id", "default-spec-id", "default-sort-order-id"))
    return TableThen(table, now.uuid, now.current_id, *ids)


def change_of(
    table: TableName, now: Metadata, *updates: Json, required: Sequence[Json] = (), rows: int = 0
) -> TableWrite:
    """Return the write that makes updates of a table's metadata, if it is as required."""
    return TableWrite(
        name=table,
        uuid=now.uuid,
        mode=WriteMode.CHANGE,
        snapshot=0,
        manifest=None,
        schema=now.raw.get("current-schema-id", 0),
        spec=now.raw.get("default-spec-id", 0),
        rows=rows,
        change={"requirements": [*required], "updates": [*updates]},
    )


def is_at(ref: str, snapshot: int | None) -> Json:
    """Return the requirement that a ref is at a snapshot; None if it must not exist."""
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot}


def without(ref: str) -> Json:
    """Return the update that removes a ref."""
    return {"action": "remove-snapshot-ref", "ref-name": ref}
