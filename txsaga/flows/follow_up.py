"""
What a committed flow tells those who follow it: its number, its id, and the assets of its host that get an event.

It travels as the body of a message of the flow itself, so it is there exactly if the flow commits, whoever decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

TOPIC = "asset-events"
"""Where flows say it; of type `transaction`."""
SKEW = timedelta(hours=1)
"""Clocks differ: events are looked through from so long before they may have been made."""


class AssetName(NamedTuple):
    """What names an asset: both, or one of them."""

    name: str | None
    uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """The events that a commit is followed by."""

    run: str
    txid: int
    id: str
    assets: tuple[AssetName, ...]
    amends: str | None = None  # the id of what was committed before

    def extra(self) -> dict[str, object]:
        """Return what each event carries."""
        told: dict[str, object] = {"txid": self.txid, "id": self.id}
        return told | ({"amends": self.amends} if self.amends else {})

    def body(self) -> bytes:
        """Return it as the body of a message."""
        assets = [each._asdict() for each in self.assets]
        return json.dumps({"run": self.run, "assets": assets, **self.extra()}).encode()

    @classmethod
    def read(cls, body: bytes) -> FollowUp:
        """Read such a body; ValueError where it is none."""
        try:
            found = json.loads(body)
            assets = tuple(AssetName(_text(each.get("name")), _text(each.get("uri"))) for each in found["assets"])
            if (None, None) in assets:
                raise ValueError("an asset has no name")
            told = {name: str(found[name]) for name in ("run", "id")}
            return cls(txid=int(found["txid"]), assets=assets, amends=_text(found.get("amends")), **told)
        except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as strange:
            raise ValueError(f"{strange!r}") from strange


def carries(extra: object, id: str) -> bool:
    """Tell whether an event carries this transaction; its id names the store, whose numbers others have too."""
    return isinstance(extra, Mapping) and extra.get("id") == id


def _text(given: Any) -> str | None:  # of JSON
    if given is None:
        return None
    text = str(given)
    text.encode()  # what can't be written is asked for nowhere
    return text or None
