"""
Cuts that are kept: a moment whose tables are tagged, so that engines keep their snapshots.

The catalog serves the tables of a cut as a catalog of their own, which cannot be changed. What it shows is recorded
with the moment: a tag that somebody moves or removes changes nothing, but its snapshot can then be expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from txsaga.broker import Broker
from txsaga.catalog.moments import CUT, KeptMoment, Moments, change_of, without
from txsaga.catalog.requests import Json
from txsaga.iceberg.as_of import snapshot_of
from txsaga.lake.table import TableWrite

GROUP = "cuts"


class KeptCuts:
    """The cuts that a store keeps."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self.moments = broker, Moments(broker, CUT)

    def keep(self, name: str, patterns: Sequence[str], *, lease: timedelta | None, who: str) -> KeptMoment:
        """Keep a cut of all topics and of the tables that match; engines may expire it after its lease."""
        with self.moments.taken(name, patterns, lease=lease, who=who) as moment:
            now = self.moments.now(moment)
            tags = {table: _tag(moment, moment.tables[table].snapshot, each.raw, lease) for table, each in now.items()}
            self._change([change_of(table, now[table], tag) for table, tag in tags.items() if tag], who)
        return moment

    def release(self, name: str, who: str) -> int:
        """Remove a cut and its tags; return of how many tables."""
        moment = self.moments.find(name)
        tagged = {table: each for table, each in self.moments.now(moment).items() if snapshot_of(each.raw, moment.ref)}
        self._change([change_of(table, each, without(moment.ref)) for table, each in tagged.items()], who)
        self.moments.forget(moment)
        return len(moment.tables)

    def _change(self, writes: Sequence[TableWrite], who: str) -> None:
        if writes:
            with self._broker.producer(GROUP).transaction() as transaction:
                transaction.change(writes, who)


def _tag(moment: KeptMoment, snapshot: int | None, raw: Json, lease: timedelta | None) -> Json | None:
    """Return the update that tags a snapshot; engines count the age of a tag from its snapshot, not from now."""
    if snapshot is None:
        return None
    tag = {"action": "set-snapshot-ref", "ref-name": moment.ref, "type": "tag", "snapshot-id": snapshot}
    if lease is None:
        return tag
    (born,) = [each["timestamp-ms"] for each in raw["snapshots"] if each["snapshot-id"] == snapshot]
    return {**tag, "max-ref-age-ms": int((moment.at + lease).timestamp() * 1000) - born}
