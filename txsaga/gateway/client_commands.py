"""
What operators ask of connected clients, on PostgreSQL: the gateway that has the client passes it on.

An operator talks to the store only, and nobody knows which gateway has a client. A command lives as long as its
operator waits, and the answers go with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from txsaga.errors import ClientSilent, ConfigError
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore

SQL = sql_files.read("gateway/sql/command.sql")
FIND, PATIENCE = 3.0, 10.0
"""Seconds in which gateways, which look each second, say which clients they have; and in which a client answers."""
PAUSE = 0.1


class ClientCommands(NamespaceStore):
    """The commands to clients of one namespace, for operators and for gateways."""

    def clients(self) -> Sequence[Mapping[str, Any]]:
        """Ask all gateways which clients they have."""
        with self._asked(None, None) as answers:
            time.sleep(FIND)
            return [each.about for each in answers()]

    def ask(self, client: str, message: str | None = None) -> str:
        """Return what a client's listener makes of a stored message, or without a message the client's threads."""
        begun = time.monotonic()
        with self._asked(client, message) as answers:
            while not (found := answers()) or found[0].done is None:
                waited = time.monotonic() - begun
                if not found and waited > FIND:
                    raise ClientSilent(f"no gateway has a client {client!r}; see `txsaga client list`")
                if waited > PATIENCE:
                    why = "it does not know the command, works on it, or hangs"
                    raise ClientSilent(f"client {client!r} has not answered within {PATIENCE:.0f} s: {why}")
                time.sleep(PAUSE)
        if not found[0].done:
            raise ConfigError(found[0].said)
        return str(found[0].said)

    def waiting(self) -> Sequence[Any]:
        """Return the commands whose operators still wait."""
        return self._rows(SQL["open"], patience=PATIENCE)

    def take(self, nonce: str, clients: Sequence[Mapping[str, Any]]) -> bool:
        """Say which clients are here; False if other gateways have said so of all of them."""
        return self._changed(SQL["take"], nonce=nonce, clients=json.dumps(clients)) > 0

    def answer(self, nonce: str, client: str, done: bool, said: str) -> None:
        """Write down what a client answers, or why it was not done."""
        self._changed(SQL["answer"], nonce=nonce, client=client, done=done, said=said.replace("\0", ""))

    @contextmanager
    def _asked(self, client: str | None, message: str | None) -> Iterator[Callable[[], Sequence[Any]]]:
        nonce = uuid4().hex
        self._changed(SQL["ask"], nonce=nonce, client=client, message=message)
        try:
            yield lambda: self._rows(SQL["answers"], nonce=nonce)
        finally:
            self._changed(SQL["drop"], nonce=nonce)
