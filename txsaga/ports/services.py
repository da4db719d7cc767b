"""Services over HTTP, as steps of sagas call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

SAID = 200
"""Characters of an answer that an error repeats."""


class Reply(NamedTuple):
    """What a service answered."""

    status: int
    body: bytes
    cut: str = ""
    """Where the body is not all of the answer: how much it was."""

    @property
    def is_yes(self) -> bool:
        """Tell whether the service says that it did it."""
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status} {' '.join(self.body.decode(errors='replace').split())[:SAID]}".rstrip()


class Services(Protocol):
    """Calls services."""

    def __call__(self, method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Reply:
        """Send one request and read its answer, all of it within the time-out.

        `ConfigError` for an address that can't be called. An error of the connection comes out as `OSError`;
        `ConnectionRefusedError` says that nothing was sent.
        """
