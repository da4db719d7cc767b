"""The namespace of one case: its tables, their counters, and the changes that a commit is made of."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

from txsaga.testing.catalog.client import CatalogClient, CatalogReply, Json, NoAnswer

COUNTER, OWNER = "kit.n", "kit.owner"
"""The properties that a commit of the kit sets: a number, and which client set it."""
NEWEST = -1
"""What the protocol calls the schema, the spec or the order that the same commit adds."""
Done = TypeVar("Done")
COLUMN = {"id": 1, "name": "number", "type": "long", "required": False}


class Violated(Exception):
    """What a case says does not hold; the text is the evidence."""


class NotSupported(Exception):
    """The server, or where it keeps its files, does not let a case be tried."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as one load showed it."""

    name: str
    reply: CatalogReply

    @property
    def metadata(self) -> Json:
        """The metadata of the table."""
        found: Json = self.reply.body["metadata"]
        return found

    @property
    def metadata_location(self) -> str:
        """Where the metadata file is."""
        return str(self.reply.body.get("metadata-location") or "")

    @property
    def uuid(self) -> str:
        """The id of the table."""
        return str(self.metadata["table-uuid"])

    @property
    def schema_id(self) -> int:
        """The id of the current schema; a guarded change moves it."""
        return int(self.metadata["current-schema-id"])

    @property
    def snapshot_id(self) -> int | None:
        """The id of the current snapshot."""
        number = self.metadata.get("current-snapshot-id")
        return None if number in (None, -1) else int(number)

    @property
    def properties(self) -> Json:
        """The properties of the table."""
        return self.metadata.get("properties") or {}

    @property
    def n(self) -> int:
        """The counter of the table."""
        return int(self.properties.get(COUNTER, 0))


class KitNamespace:
    """A fresh namespace, and what a case does in it."""

    def __init__(self, client: CatalogClient, *, seconds: float, patience: float, name: str | None = None) -> None:
        self.client, self.seconds, self.patience = client, seconds, patience
        self.name = name or f"txsaga_kit_{uuid4().hex[:12]}"
        self._path, self._made = f"/namespaces/{self.name}", list[str]()

    def open(self) -> None:
        """Create the namespace."""
        needed(self.client.call("post", "/namespaces", {"namespace": [self.name], "properties": {}}), "a namespace")

    def close(self) -> None:
        """Drop the tables and the namespace; what can't be dropped stays."""
        with suppress(NoAnswer):
            for table in dict.fromkeys(self._made):
                self.drop(table)
            self.client.call("delete", self._path)

    def create(self, *tables: str) -> None:
        """Create tables whose counter is 0."""
        for table in tables:
            needed(self._create(table, {COUNTER: "0"}), f"table {table}")

    def stage(self, table: str, owner: str) -> Json:
        """Return the change that creates a table, as a client makes it of a staged one."""
        reply = self._create(table, {COUNTER: "1", OWNER: owner}, staged=True)
        if not reply.ok:
            raise NotSupported(f"a staged create answers {reply}")
        return self.change(table, [{"type": "assert-create"}], _creation(reply.body["metadata"]))

    def _create(self, table: str, properties: Json, *, staged: bool = False) -> CatalogReply:
        self._made.append(table)
        schema = {"type": "struct", "schema-id": 0, "fields": [COLUMN]}
        asked = {"name": table, "schema": schema, "properties": properties, "stage-create": staged}
        return self.client.call("post", f"{self._path}/tables", asked)

    def drop(self, table: str) -> CatalogReply:
        """Drop a table with its files, or without them where a server does not delete files."""
        reply = self.client.call("delete", f"{self._path}/tables/{table}?purgeRequested=true")
        return reply if reply.ok or reply.status == 404 else self.client.call("delete", f"{self._path}/tables/{table}")

    def look(self, table: str, etag: str | None = None) -> CatalogReply:
        """Ask for a table; with an ETag only if it has changed."""
        headers = {} if etag is None else {"if-none-match": etag}
        return self.client.call("get", f"{self._path}/tables/{table}", headers=headers)

    def load(self, table: str) -> LoadedTable:
        """Load a table that exists."""
        reply = self.look(table)
        if not reply.ok:
            raise Violated(f"load of table {table} answers {reply}")
        return LoadedTable(table, reply)

    def exists(self, table: str) -> bool:
        """Return whether a table can be loaded."""
        return self.look(table).status != 404

    def counters(self, tables: Iterable[str]) -> dict[str, int]:
        """Return the counter of each table."""
        return {table: self.load(table).n for table in tables}

    def change(self, table: str, requirements: Sequence[Json], updates: Sequence[Json]) -> Json:
        """Return the change of one table, a part of a commit."""
        identifier = {"namespace": [self.name], "name": table}
        return {"identifier": identifier, "requirements": list(requirements), "updates": list(updates)}

    def plain(self, table: str, n: int, *requirements: Json, owner: str = "") -> Json:
        """Return the change that sets a counter, whatever it was."""
        return self.change(table, requirements, [set_counter(n, owner)])

    def guarded(self, base: LoadedTable, n: int, owner: str = "") -> Json:
        """Return the change that sets a counter only if nobody has since: it asserts and moves the schema."""
        required = [same_table(base), {"type": "assert-current-schema-id", "current-schema-id": base.schema_id}]
        return self.change(base.name, required, [set_counter(n, owner), *_new_column(base.metadata)])

    def commit(self, changes: Sequence[Json], key: str | None = None) -> CatalogReply:
        """Commit the changes of several tables in one request."""
        return self.client.call("post", "/transactions/commit", {"table-changes": list(changes)}, _keyed(key))

    def commit_and_cut(self, changes: Sequence[Json], key: str | None, after: float) -> None:
        """Commit, and cut the connection some seconds later without reading the answer."""
        self.client.send_and_cut("/transactions/commit", {"table-changes": list(changes)}, _keyed(key), after)

    def set_all(self, tables: Iterable[str], n: int) -> None:
        """Set the counters by one commit, which must be done."""
        reply = self.commit([self.plain(table, n) for table in tables])
        if not reply.ok:
            raise Violated(f"a commit that nothing forbids answers {reply}")
        self.require(tables, n, "after a commit that was answered with success")

    def require(self, tables: Iterable[str], n: int, when: str) -> None:
        """Check that each table shows a counter."""
        found = self.counters(tables)
        if wrong := {table: shown for table, shown in found.items() if shown != n}:
            raise Violated(f"{when} the counters are {found}, and must all be {n} ({len(wrong)} wrong)")

    def require_refused(self, reply: CatalogReply, tables: Iterable[str], n: int, what: str) -> None:
        """Check that a commit was refused for good, and left nothing."""
        self.require(tables, n, f"after {what}, answered {reply},")
        if not reply.refused:
            raise Violated(f"{what} answers {reply}, and must be refused by a 4xx")


def needed(reply: CatalogReply, what: str) -> None:
    """Check that something a case needs could be made."""
    if not reply.ok:
        raise Violated(f"{what} can't be created: {reply}")


def set_counter(n: int, owner: str = "") -> Json:
    """Return the update that sets a counter."""
    return {"action": "set-properties", "updates": {COUNTER: str(n), OWNER: owner}}


def same_table(base: LoadedTable) -> Json:
    """Return the requirement that a table is the one that was loaded."""
    return {"type": "assert-table-uuid", "uuid": base.uuid}


def new_key() -> str:
    """Return a new idempotency key, a UUID of version 7 as the protocol asks."""
    moment = time.time_ns() // 1_000_000  # wall clock, as the format has it
    number = moment << 80 | 7 << 76 | random.getrandbits(12) << 64 | 2 << 62 | random.getrandbits(62)
    return str(UUID(int=number))


def at_once(works: Collection[Callable[[], Done]]) -> list[Done]:
    """Run each in a thread of its own, all let go at the same moment; return what they return."""
    gate = threading.Barrier(len(works))

    def let_go(work: Callable[[], Done]) -> Done:
        gate.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(let_go, works))


@contextmanager
def in_background(work: Callable[[threading.Event], None], count: int = 1) -> Iterator[threading.Event]:
    """Run something in threads until the block ends or one of them sets the event; what they raise is raised."""
    over = threading.Event()
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(work, over) for _ in range(count)]
        try:
            yield over
        finally:
            over.set()
    for each in running:
        each.result()


def _keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency-key": key}


def _schema(metadata: Json) -> Json:
    current = metadata["current-schema-id"]
    found: Json = next(each for each in metadata["schemas"] if each["schema-id"] == current)
    return found


def _new_column(metadata: Json) -> list[Json]:
    number = int(metadata["last-column-id"]) + 1
    column = {"id": number, "name": f"c{number}_{uuid4().hex[:8]}", "type": "long", "required": False}
    following = 1 + max(each["schema-id"] for each in metadata["schemas"])
    schema = {"type": "struct", "schema-id": following, "fields": [*_schema(metadata)["fields"], column]}
    added: Any = {"action": "add-schema", "schema": schema, "last-column-id": number}
    return [added, {"action": "set-current-schema", "schema-id": NEWEST}]


def _creation(metadata: Json) -> list[Json]:
    """Return the updates that make a table of the metadata of a staged one."""
    spec, order = metadata["partition-specs"][0], metadata["sort-orders"][0]
    last = metadata["last-column-id"]
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": _schema(metadata), "last-column-id": last},
        {"action": "set-current-schema", "schema-id": NEWEST},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": NEWEST},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": NEWEST},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": dict(metadata.get("properties") or {})},
    ]
