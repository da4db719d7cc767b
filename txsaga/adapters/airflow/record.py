"""
What a supervisor writes down about the parts it runs, for whoever asks from another process.

It is a hint: whether a process lives is asked of the system. If the supervisor is killed, its last word stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from txsaga.adapters.airflow.home import AirflowHome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPart:
    """One part, as it was started last."""

    pid: int
    since: float
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The supervisor and its parts."""

    pid: int
    started: float
    doing: str = ""
    parts: Mapping[str, RunningPart] = field(default_factory=dict)

    @classmethod
    def read(cls, home: AirflowHome) -> Record | None:
        """Read what the last supervisor wrote; None where there is nothing that can be read."""
        try:
            found = json.loads(home.record_file.read_text("utf-8"))
            parts = {name: RunningPart(**part) for name, part in found.pop("parts").items()}
            return cls(parts=parts, **found)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, home: AirflowHome) -> None:
        """Replace what stands there."""
        home.write(home.record_file, asdict(self))
