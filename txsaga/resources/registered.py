"""
Every participant by its name: registered databases, and registered participants other than databases.

A name means one thing in a process. If it means another thing in the next process, the uuid recorded with each branch
reveals it, and nothing is finished there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from txsaga.errors import ConfigError
from txsaga.resources.participant import Enlistable, Participant

if TYPE_CHECKING:
    from txsaga.store.store import Store


class Participants:
    """The participants of one broker."""

    def __init__(
        self, database: Callable[[str], Participant], enlisted: Mapping[str, Enlistable | Participant]
    ) -> None:
        self.store: Store  # set when the broker opens it
        self._database = database
        self._given: dict[str, Enlistable] = {}
        self._made: dict[str, Participant] = {}
        for name, given in enlisted.items():
            self.enlist(name, given)

    def enlist(self, name: str, given: Enlistable | Participant) -> None:
        """Register a participant that is no database; a user's own participant may replace another."""
        if not isinstance(name, str) or not name or name != name.lower() or not name.isprintable():
            raise ConfigError(f"participant {name!r} must be named in lower case, as databases are")
        if callable(getattr(given, "enlist", None)):  # no other attribute is read: that would connect
            self._made[name] = cast(Participant, given)
            return
        if not callable(getattr(given, "participant", None)):
            raise ConfigError(
                f"participant {name!r} is {type(given).__name__}; give a Folder, Callables, an HttpService, "
                "or a participant of your own"
            )
        given = cast(Enlistable, given)
        if self._given.get(name, given) is not given:
            raise ConfigError(f"participant {name!r} is registered already; choose another name")
        self._given[name] = given

    def require_free(self, name: str) -> None:
        """Refuse a name for a database if a participant has it."""
        if name in self._given or name in self._made:
            raise ConfigError(f"resource {name!r} is registered already, as no database; choose another name")

    def find(self, name: str) -> Participant:
        """Return a participant; a name that is not registered here is looked up among the databases."""
        if name not in self._given and name not in self._made:
            return self._database(name)
        if name not in self._made:
            self._made[name] = self._given[name].participant(name, self.store)
        return self._made[name]

    def close(self) -> None:
        """Close the participants."""
        for participant in self._made.values():
            participant.close()
