"""
Requests that a client may repeat: under an `Idempotency-Key`, which is the key of a transaction.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from txsaga.catalog.refusals import CatalogRefusal
from txsaga.lake.table import TableWrite

Staged = Sequence[TableWrite]
LONGEST_WAIT = 10.0
BODY = "txsaga.catalog.request"
"""The property of a write that holds the digest of its request."""
KEY = "txsaga.catalog.key"
"""The property of a write that holds the key of its request."""


class CommitScope(NamedTuple):
    """What a commit belongs to: the transaction of a token, or one of its own, perhaps with a key."""

    token: str | None = None
    key: str | None = None
    client: str = "anybody"
    limited: bool = False
    """Whether the client must not reach files of other tables."""

    @property
    def who(self) -> str:
        """The client as the audit names it."""
        return f"{self.client}@catalog"


class Keyed:
    """A request in its scope, with a digest that tells it from others under the same key."""

    def __init__(self, scope: CommitScope, *said: object) -> None:
        self.scope = scope
        self.digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def added_to(self, staged: Staged, writes_after: Callable[[Staged], Staged]) -> Staged:
        """Return its writes, marked as its own; none if they are staged already."""
        before = [each for each in staged if self.scope.key and each.properties.get(KEY) == self.scope.key]
        self.require_same([each.properties.get(BODY) for each in before])
        mark = {BODY: self.digest, KEY: self.scope.key or ""}
        return () if before else [replace(each, properties=mark) for each in writes_after(staged)]

    def require_same(self, digests: Sequence[str | None]) -> None:
        """Refuse another request under the same key."""
        if any(each != self.digest for each in digests):
            what = f"Idempotency-Key {self.scope.key!r} was used for another request"
            raise CatalogRefusal(422, "UnprocessableEntityException", what)


class KeysUnderWay:
    """Lets one request of a key in at a time: a repeat waits for the first, and does not take it over."""

    def __init__(self) -> None:
        self._keys, self._left = set[str](), threading.Condition()

    @contextmanager
    def alone(self, key: str | None) -> Iterator[None]:
        """Wait until no other request of the key is under way, and keep others waiting."""
        if key is None:
            yield
            return
        with self._left:
            if not self._left.wait_for(lambda: key not in self._keys, LONGEST_WAIT):
                what = f"another request with Idempotency-Key {key!r} is under way; repeat it later"
                raise CatalogRefusal(503, "ServiceUnavailableException", what)
            self._keys.add(key)
        try:
            yield
        finally:
            with self._left:
                self._keys.remove(key)
                self._left.notify_all()
