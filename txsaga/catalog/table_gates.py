"""
Gates that tables name: a suite judges what a commit makes of main, before the commit is recorded.

The property `txsaga.gate` holds the name of a suite. An append is judged by its own rows, anything else by the table as
it would look afterwards. A commit to another branch is judged when main is pointed at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from txsaga.catalog.refusals import CatalogRefusal, bad
from txsaga.catalog.requests import Json, place_of, places_in
from txsaga.gate.expecting import SuiteGate, expect
from txsaga.iceberg.appends import append_in
from txsaga.lake import differences
from txsaga.lake.branches import only_appends
from txsaga.lake.gates import Subject
from txsaga.lake.lake import Lake
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName

GATE = "txsaga.gate"
"""The property of a table that names the suite of its gate."""
JUDGING = Lock()
"""Held while a gate judges: commits of a server take turns in one warm process instead of starting one each."""
LONGEST_WAIT = 20.0
"""Seconds that a commit waits for its turn: meanwhile it keeps a thread of the server."""
SUITE = re.compile(r"\w[\w-]{0,99}")


def gate_of(properties: Mapping[str, str] | None) -> SuiteGate | None:
    """Return the gate of a table."""
    suite = (properties or {}).get(GATE)
    if suite and SUITE.fullmatch(suite) is None:
        raise bad(f"{GATE} is {suite!r}; give the name of a suite, without its folder and .json")
    return expect(suite) if suite else None


def require_gate(properties: Mapping[str, str] | None) -> None:
    """Refuse a gate without a suite when a table names it, and not at the next commit of anybody."""
    if (gate := gate_of(properties)) is not None:
        gate.warm()


def same_gate(properties: Mapping[str, str] | None) -> Json:
    """Return the requirement that a table still has the gate by which a commit was judged, or none."""
    return {"type": "assert-property", "key": GATE, "value": (properties or {}).get(GATE)}


def same_columns(raw: Json) -> Json:
    """Return the requirement that a table still has the columns by which its rows were judged."""
    return {"type": "assert-current-schema-id", "current-schema-id": raw.get("current-schema-id", 0)}


def as_judged(before: Json, requirements: Sequence[Json], updates: Sequence[Json]) -> Iterator[Json]:
    """Yield the requirements that a table is as it was judged; an append may be put on top of others."""
    yield same_columns(before)
    if append_in(requirements, updates) is None:
        yield {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": Metadata("", before).current_id}


def sets_gate(updates: Sequence[Json]) -> bool:
    """Return whether a commit sets or removes the gate of a table."""
    said = [each[key] for each in updates for key in ("updates", "updated", "removals", "removed") if key in each]
    return any(isinstance(each, dict | list) and GATE in each for each in said)


class GatedChange(NamedTuple):
    """A commit that changes main of a table with a gate."""

    name: TableName
    gate: SuiteGate
    before: Metadata
    after: Metadata
    sent: Mapping[int, Json]
    """The snapshots as the client sent them: on the snapshot that it has seen."""

    def subject(self, lake: Lake, *, own: bool) -> Subject | None:
        """Return the rows to be judged, if wanted only from `own` files of the table; None for an append of none."""
        try:
            return self._subject(lake, own=own)
        except (OSError, EOFError, ValueError) as wrong:
            raise bad(f"a snapshot of table {self.name} can't be read: {wrong}") from None

    def _subject(self, lake: Lake, *, own: bool) -> Subject | None:
        if own:
            self._require_own_files(differences.between(lake.storage, self.before.current, self.after.current).added)
        new = [*self._new()]
        first = self.after.snapshot(new[-1]) if new else None
        if first is not None and first.get("parent-snapshot-id") == self.before.current_id:
            seen = self.sent[new[-1]].get("parent-snapshot-id")
            known = None if seen is None else self.before.snapshot(seen)
            found = differences.between(lake.storage, known, self.sent[new[0]])
            if self._is_on_main(seen) and only_appends(self.after, new, found):
                count = sum(each.record_count for each in found.added.values())
                return lake.of_files(self.name, self.after, found.added.values(), count) if found.added else None
        if own:
            whole = differences.between(lake.storage, None, self.after.current)
            self._require_own_files([*whole.added, *whole.deletes])
        return lake.whole(self.name, self.after, self.after.current)

    def _require_own_files(self, added: Iterable[str]) -> None:
        """Refuse files of other tables: the refusal of a gate quotes what is in them."""
        places = places_in(self.after.properties, self.after.raw["location"])
        folders = tuple(f"{place_of(each).rstrip('/')}/" for each in places)
        if foreign := [each for each in added if not place_of(each).startswith(folders) or "/.." in each]:
            raise CatalogRefusal(403, "ForbiddenException", f"{foreign[0]} is not in a folder of table {self.name}")

    def _is_on_main(self, seen: int | None) -> bool:
        """Return whether what a commit is based on was published: what a branch has besides was judged by nobody."""
        return seen is None or seen in self.before.lineage(self.before.current_id)

    def _new(self) -> Iterator[int]:
        """Yield the snapshots that the commit adds to main, the newest first."""
        for number in self.after.lineage(self.after.current_id):
            if number not in self.sent:
                return
            yield number


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other commit is judged."""
    if not JUDGING.acquire(timeout=LONGEST_WAIT):
        line = f"other commits have been judged for {LONGEST_WAIT:g} s; repeat the request later"
        raise CatalogRefusal(503, "ServiceUnavailableException", line, {"retry-after": f"{LONGEST_WAIT:g}"})
    try:
        yield
    finally:
        JUDGING.release()


def gated(name: TableName, before: Json, after: Json, updates: Sequence[Json]) -> Iterator[GatedChange]:
    """Yield the change of main that the gate of its table has to judge, if there is one."""
    gate, old, new = gate_of(after.get("properties")), Metadata("", before), Metadata("", after)
    if gate is None:
        return
    if old.properties.get(GATE) != new.properties[GATE]:
        gate.warm()
    key = "current-schema-id"
    if (old.current, before.get(key)) != (new.current, after.get(key)):
        sent: list[Json] = [each["snapshot"] for each in updates if each.get("action") == "add-snapshot"]
        yield GatedChange(name, gate, old, new, {each["snapshot-id"]: each for each in sent})
