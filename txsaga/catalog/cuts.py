"""
Cuts that are kept: a moment whose tables are tagged, so that engines keep their snapshots.

The catalog serves the tables of a cut as a catalog of their own, which cannot be changed. What it shows is recorded
with the moment: a tag that somebody moves or removes changes nothing, but its snapshot can then be expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from txsaga.broker import Broker
from txsaga.catalog.moments import CUT, KeptMoment, Moments, change_of
from txsaga.catalog.requests import Json


class KeptCuts:
    """The cuts that a store keeps."""

    def __init__(self, broker: Broker) -> None:
        self.moments = Moments(broker, CUT)

    def keep(self, name: str, patterns: Sequence[str], *, lease: timedelta | None, who: str) -> KeptMoment:
        """Keep a cut of all topics and of the tables that match; engines may expire it after its lease."""
        with self.moments.taken(name, patterns, lease=lease, who=who) as moment:
            now = self.moments.now(moment)
            tags = {table: _tag(moment, moment.tables[table].snapshot, each.raw, lease) for table, each in now.items()}
            self.moments.change([change_of(table, now[table], tag) for table, tag in tags.items() if tag], who)
        return moment

    def release(self, name: str, who: str) -> int:
        """Remove a cut and its tags; return of how many tables."""
        return self.moments.remove(self.moments.find(name), who)


def _tag(moment: KeptMoment, snapshot: int | None, raw: Json, lease: timedelta | None) -> Json | None:
    """Return the update that tags a snapshot; engines count the age of a tag from its snapshot, not from now."""
    if snapshot is None:
        return None
    tag = {"action": "set-snapshot-ref", "ref-name": moment.ref, "type": "tag", "snapshot-id": snapshot}
    if lease is None:
        return tag
    (born,) = [each["timestamp-ms"] for each in raw["snapshots"] if each["snapshot-id"] == snapshot]
    return {**tag, "max-ref-age-ms": int((moment.at + lease).timestamp() * 1000) - born}
