"""
A table's metadata as plain JSON: read, extended by one snapshot, written again.

Only what a snapshot changes is touched, so that no other engine's entries are lost, and the cost does not grow with
what PyIceberg would check in every old snapshot. Only format version 2 is written: version 1 has no sequence numbers,
and txsaga can't write version 3 manifests. A branch written by Spark may be version 3: it needs no manifest from us.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any
from uuid import uuid4

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from txsaga.core.clock import wall_clock
from txsaga.errors import FormatRefused
from txsaga.iceberg import table_metadata
from txsaga.lake.storage import Storage
from txsaga.lake.table import transaction_of

VERSION = re.compile(r"(\d+)-[^/]*\.metadata\.json$")
KEPT_FILES = "write.metadata.previous-versions-max"
KEPT_SNAPSHOTS = "txsaga.snapshots.kept"
"""The most snapshots that a table of ours names; all if it is not set."""

Json = dict[str, Any]


class Metadata:
    """One version of a table's metadata."""

    def __init__(self, location: str, raw: Json) -> None:
        self.location, self.raw = location, raw

    @classmethod
    def load(cls, storage: Storage, location: str) -> Metadata:
        """Read the metadata file of a pointer."""
        return cls(location, json.loads(storage.read(location)))

    @cached_property
    def parsed(self) -> TableMetadata:
        """The metadata parsed by PyIceberg, without history: schema, partition specs, sort orders."""
        empty: Json = {"snapshots": [], "refs": {}, "snapshot-log": [], "metadata-log": [], "statistics": []}
        bare = {key: value for key, value in self.raw.items() if key != "current-snapshot-id"}
        return TableMetadataUtil.parse_obj(deepcopy({**bare, **empty}))

    @property
    def uuid(self) -> str:
        """The id of the table."""
        return str(self.raw["table-uuid"])

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the table."""
        return self.raw.get("properties") or {}

    @property
    def current(self) -> Json | None:
        """The newest snapshot of the table; None if it is empty."""
        number = self.raw.get("current-snapshot-id")
        return None if number in (None, -1) else self.snapshot(number)

    @property
    def current_id(self) -> int | None:
        """The id of the newest snapshot."""
        return None if self.current is None else int(self.current["snapshot-id"])

    def snapshot(self, number: int) -> Json | None:
        """Return a snapshot by its id."""
        return next((each for each in self.raw.get("snapshots") or () if each["snapshot-id"] == number), None)

    @property
    def version(self) -> int:
        """The version of the format."""
        return int(self.raw["format-version"])

    def lineage(self, number: int | None) -> Iterator[int]:
        """Yield a snapshot and its known ancestors."""
        parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in self.raw.get("snapshots") or ()}
        while number is not None and number in parents:
            yield number
            number = parents.pop(number)  # each once, even in a circle

    def folder(self, kind: str) -> str:
        """Return the folder of the table's data, or of its metadata."""
        said = self.properties.get(f"write.{kind}.path")
        return (said or f"{self.raw['location'].rstrip('/')}/{kind}").rstrip("/")


class Draft:
    """The next version of a table's metadata, before it is written."""

    def __init__(self, old: Metadata) -> None:
        self.old, self._now, self.rebased = old, int(wall_clock().timestamp() * 1000), False
        self.raw: Json = {**old.raw}
        for key in ("snapshots", "snapshot-log", "metadata-log"):
            self.raw[key] = list(old.raw.get(key) or [])
        self.raw["refs"] = dict(old.raw.get("refs") or {})

    @property
    def current(self) -> Json | None:
        """The newest snapshot so far."""
        return Metadata("", self.raw).current

    @property
    def sequence(self) -> int:
        """The sequence number of the next snapshot."""
        return int(self.raw.get("last-sequence-number") or 0) + 1

    def change(self, wanted: Sequence[Json], updates: Sequence[Json]) -> None:
        """Apply what an Iceberg client asks for; `ValueError` if the metadata does not allow it."""
        table_metadata.require(self.raw, wanted)
        self.raw = table_metadata.updated(self.raw, updates, moment=self.moment())

    def name_snapshot(self, snapshot: int, manifest_list: str, summary: Mapping[str, str], *, schema: int) -> None:
        """Add a snapshot whose parent is the newest, without pointing a ref at it."""
        before, entry = self.current, {"snapshot-id": snapshot, "sequence-number": self.sequence}
        if before is not None:
            entry["parent-snapshot-id"] = before["snapshot-id"]
        said: Json = {"timestamp-ms": self.moment(), "manifest-list": manifest_list, "summary": dict(summary)}
        if self.old.version > 2:  # rows have ids: this snapshot adds none
            said |= {"first-row-id": self.raw.get("next-row-id", 0), "added-rows": 0}
        self.raw["last-sequence-number"] = self.sequence
        self.raw["snapshots"].append({**entry, **said, "schema-id": schema})

    def lead(self, snapshot: int) -> None:
        """Point main at a snapshot."""
        moment, main = self.moment(), self.raw["refs"].get("main", {"type": "branch"})
        self.raw["refs"]["main"] = {**main, "snapshot-id": snapshot}
        self.raw["current-snapshot-id"] = snapshot
        self.raw["last-updated-ms"] = moment
        self.raw["snapshot-log"].append({"timestamp-ms": moment, "snapshot-id": snapshot})

    def branch(self, name: str, snapshot: int) -> None:
        """Point a branch at a snapshot."""
        self.raw["refs"][name] = {"type": "branch", "snapshot-id": snapshot}
        self.raw["last-updated-ms"] = self.moment()

    def drop_branches(self, names: Iterable[str]) -> None:
        """Remove branches."""
        for name in names:
            if self.raw["refs"].pop(name, None) is not None:
                self.raw["last-updated-ms"] = self.moment()

    def moment(self) -> int:
        """Return the time in ms, later than that of any earlier change."""
        return max(self._now, int(self.raw["last-updated-ms"]) + 1)

    def encoded(self) -> bytes:
        """Log the previous metadata, drop old snapshots and logs, and return the whole as stored."""
        old, log = self.old, self.raw["metadata-log"]
        if old.location:
            log.append({"timestamp-ms": old.raw["last-updated-ms"], "metadata-file": old.location})
        properties = Metadata("", self.raw).properties
        kept = _number(properties.get(KEPT_FILES)) or 100
        self.raw["metadata-log"] = log[-kept:]
        if (most := _number(properties.get(KEPT_SNAPSHOTS))) is not None:
            self._name_fewer(max(1, most))
        return json.dumps(self.raw, separators=(",", ":")).encode()

    def next_location(self) -> str:
        """Return the location of the next version."""
        found = VERSION.search(self.old.location)
        number = int(found[1]) + 1 if found else 0
        return f"{self.old.folder('metadata')}/{number:05d}-{uuid4()}.metadata.json"

    def _name_fewer(self, kept: int) -> None:
        """Keep only the newest snapshots and those of refs: every commit reads and writes the metadata."""
        snapshots: Sequence[Json] = self.raw["snapshots"]
        if len(snapshots) <= 2 * kept:  # drop several at a time
            return
        stays = {each["snapshot-id"] for each in snapshots[-kept:]}
        stays |= {ref["snapshot-id"] for ref in self.raw["refs"].values()} | self._branched()
        self.raw["snapshots"] = [each for each in snapshots if each["snapshot-id"] in stays]
        log: Sequence[Json] = self.raw["snapshot-log"]
        gone = [at for at, each in enumerate(log) if each["snapshot-id"] not in stays]
        self.raw["snapshot-log"] = list(log[gone[-1] + 1 :] if gone else log)

    def _branched(self) -> set[int]:
        """Return the snapshots of our branches, back to where each left main: publishing compares with that."""
        whole, found = Metadata("", self.raw), set[int]()
        main = set(whole.lineage(self.raw.get("current-snapshot-id")))
        for name, ref in self.raw["refs"].items():
            if transaction_of(name) is not None:
                for number in whole.lineage(ref["snapshot-id"]):
                    found.add(number)
                    if number in main:
                        break
        return found


def _number(said: str | None) -> int | None:
    return int(said) if said is not None and said.isdecimal() else None  # other engines write what they like


def require_version(name: object, version: int | str) -> None:
    """Refuse every format version but 2."""
    if str(version) == "2":
        return
    upgrade = "upgrade it: ALTER TABLE … SET TBLPROPERTIES ('format-version'='2')"
    remedy = upgrade if str(version) == "1" else "write it by Spark on a branch, or create it with version 2"
    raise FormatRefused(f"table {name} has format version {version}, and only 2 can be staged; {remedy}")
