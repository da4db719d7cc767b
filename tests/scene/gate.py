"""A place in the database where statements wait until the test lets them go on.

A trigger asks for an advisory lock that the test holds. The statement has done all that came before it, and
nothing of what comes after: this is how a test stops a client between its check and its write.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text

from tests.scene.patience import eventually
from tests.scene.probe import Probe

WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = :key"


class Gate:
    """A gate that is shut until it is opened."""

    def __init__(self, probe: Probe, key: int) -> None:
        self._probe, self._key = probe, key
        self._holding = probe.session()
        self._keeper = self._holding.__enter__()
        self._keeper.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})
        self._shut = True

    def wait(self, count: int = 1) -> list[int]:
        """Wait until so many statements stand before the gate; return their sessions."""
        return eventually(lambda: self.waiting() if len(self.waiting()) >= count else [], "statements before the gate")

    def waiting(self) -> list[int]:
        """Return the sessions before the gate."""
        return [row[0] for row in self._probe.rows(WAITING, key=self._key)]

    def open(self) -> None:
        """Let everybody pass, for good."""
        if self._shut:
            self._shut = False
            self._keeper.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
            self._holding.__exit__(None, None, None)


@contextmanager
def gate(probe: Probe, before: str, table: str, *, when: str = "true", first: bool = True) -> Iterator[Gate]:
    """Shut a gate before the writes to a table; `first=False` lets the first row of a session pass."""
    key = random.getrandbits(30)
    name = f"gate_{key}"
    lock = f"PERFORM pg_advisory_xact_lock_shared({key});"
    if not first:
        seen = f"'test.{name}'"
        lock = f"IF current_setting({seen}, true) = 'on' THEN {lock} END IF; PERFORM set_config({seen}, 'on', true);"
    probe.run(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {lock} RETURN NEW; END $$")
    shut = Gate(probe, key)
    try:
        probe.run(
            f"CREATE TRIGGER {name} BEFORE {before} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {name}()"
        )
        yield shut
    finally:
        shut.open()
