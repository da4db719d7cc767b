"""
What a committed flow reports to its followers: its number, its id, and the assets of its host that get an event.

It is the body of a message that the flow itself sends, so it exists exactly if the flow commits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

TOPIC = "asset-events"
"""The topic that flows report to; of type `transaction`."""
SKEW = timedelta(hours=1)
"""Clocks differ: events are searched from so long before they may have been made."""


class AssetName(NamedTuple):
    """The name of an asset, its URI, or both."""

    name: str | None
    uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """The events that follow a commit."""

    run: str
    txid: int
    id: str
    assets: tuple[AssetName, ...]
    amends: str | None = None  # the id of the transaction that it amends

    def extra(self) -> dict[str, object]:
        """Return the data that each event carries."""
        told: dict[str, object] = {"txid": self.txid, "id": self.id}
        return told | ({"amends": self.amends} if self.amends else {})

    def body(self) -> bytes:
        """Return the body of the message."""
        assets = [each._asdict() for each in self.assets]
        return json.dumps({"run": self.run, "assets": assets, **self.extra()}).encode()

    @classmethod
    def read(cls, body: bytes) -> FollowUp:
        """Parse such a body; raise `ValueError` if it is not one."""
        try:
            found = json.loads(body)
            assets = tuple(AssetName(_text(each.get("name")), _text(each.get("uri"))) for each in found["assets"])
            if (None, None) in assets:
                raise ValueError("an asset has no name")
            told = {name: str(found[name]) for name in ("run", "id")}
            return cls(txid=int(found["txid"]), assets=assets, amends=_text(found.get("amends")), **told)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as strange:
            raise ValueError(f"{strange!r}") from strange


class Followers(Protocol):
    """The followers of one host."""

    @property
    def name(self) -> str:
        """The name of the host; empty if it has none."""

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Notify them once; False if the run may still do it. `since`: none was notified before that moment."""


def carries(extra: object, id: str) -> bool:
    """Return whether an event carries this transaction; its id names the store, as others have the same numbers."""
    return isinstance(extra, Mapping) and extra.get("id") == id


def _text(given: Any) -> str | None:  # a JSON value
    if given is None:
        return None
    text = str(given)
    text.encode()  # raises `ValueError` for text that can't be encoded: no asset has it
    return text or None
