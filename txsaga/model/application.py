"""
The application that does a step: a process that may outlive whoever waits for it, and what it returned.

It lies with the attempt of the step, in the commits that begin and end it. If it were kept later, a process could be at
work that nobody finds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple


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
    return Application(**json.loads(mark)) if mark.startswith("{") else None
