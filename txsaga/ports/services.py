"""Services over HTTP, as steps of sagas call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Reply(NamedTuple):
    """What a service answered."""

    status: int
    body: bytes


class Services(Protocol):
    """Calls services."""

    def __call__(self, method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Reply:
        """Send one request and read its answer. `ConfigError` for an address that can't be called.

        An error of the connection comes out as `OSError`; `ConnectionRefusedError` says that nothing was sent.
        """
