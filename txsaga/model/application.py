"""
The application that does a step: a process that may outlive whoever waits for it, and what it returned.

It lies with the attempt of the step, in the commits that begin and end it. If it were kept later, a process could be at
work that nobody finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from txsaga.errors import ConfigError
from txsaga.model.keeping import as_json


class Application(NamedTuple):
    """Who does an attempt of a step."""

    member: str  # its process, by the name of its leases
    about: Mapping[str, object]  # what it is called where it runs; JSON
    result: str | None = None  # JSON, once the attempt is done

    def written(self) -> str:
        """Write it down as the mark of its attempt."""
        return json.dumps(self._asdict())

    @property
    def name(self) -> str:
        """The name by which its own system knows it."""
        return str(self.about.get("id") or self.member)


def read_application(mark: str) -> Application | None:
    """Read the mark of an attempt; None where no application does it."""
    if not mark.startswith("{"):
        return None
    found = json.loads(mark)
    return Application(found["member"], found["about"], found.get("result"))


def require_application(about: object) -> None:
    """Refuse what could not be read again."""
    if not isinstance(about, Mapping) or not isinstance(about.get("id"), str) or not about["id"]:
        raise ConfigError(f"application is {about!r}; give a mapping that names it by 'id', like {{'id': 'app-1'}}")
    as_json(dict(about), "what describes the application")
