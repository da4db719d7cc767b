"""
A mutation takes one rule out of the engine, as a careless change could.

`mutations.toml` lists them. The text before must be in its file exactly once: otherwise the code has changed, and the
mutation has to be written anew.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RULES = [f"R{number}" for number in range(1, 19)]


class Mutation(NamedTuple):
    """A fault, and the tests of which at least one must fail with it."""

    rule: str
    without: str
    file: str
    before: str
    after: str
    tests: list[str]

    def apply(self, root: Path) -> None:
        """Change the file below a root; `LookupError` unless the text is there exactly once."""
        path = root / self.file
        path.write_text(self.changed(path.read_text()))

    def changed(self, text: str) -> str:
        """Return the text of the file with the fault."""
        found = text.count(self.before)
        if found != 1:
            raise LookupError(f"{self.rule}, {self.without!r}: the text before is {found} times in {self.file}")
        return text.replace(self.before, self.after)


def mutations() -> list[Mutation]:
    """Return all mutations, by rule."""
    listed = tomllib.loads(Path(__file__).with_name("mutations.toml").read_text())["mutation"]
    return [Mutation(**each) for each in listed]
