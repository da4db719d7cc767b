"""The catalogue against the claims: what is shown, what is open, which ids nobody knows. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from tests.requirements.catalogue import Catalogue, Row
from tests.requirements.claims import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who shows what."""

    catalogue: Catalogue
    shown_by: Mapping[str, tuple[str, ...]]
    unknown: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, catalogue: Catalogue, claims: Iterable[Claim]) -> Self:
        """Enter every claim; an idle test shows nothing, but its ids must exist all the same."""
        known, shown_by, unknown = catalogue.ids(), defaultdict[str, list[str]](list), set[tuple[str, str]]()
        for claim in claims:
            unknown |= {(claim.test, name) for name in claim.ids - known}
            for name in claim.ids & known if not claim.idle else ():
                shown_by[name].append(claim.test)
        return cls(
            catalogue=catalogue,
            shown_by={name: tuple(tests) for name, tests in shown_by.items()},
            unknown=tuple(sorted(unknown)),
        )

    def tests(self, name: str) -> tuple[str, ...]:
        """Return the tests that show an id."""
        return self.shown_by.get(name, ())

    def shown(self, names: Iterable[str]) -> int:
        """Count the ids that some test shows."""
        return sum(1 for name in names if self.tests(name))

    def missing(self) -> tuple[Row, ...]:
        """Return the rows of shipped sections, and the closed holes, that no test shows."""
        shipped = (section for section in self.catalogue.sections if section.shipped)
        rows = [row for section in shipped for row in section.rows]
        return tuple(row for row in (*rows, *self.catalogue.holes) if not self.tests(row.id))

    def complaints(self) -> list[str]:
        """Return what makes the list fail, one line each."""
        unknown = [f"{test} carries {name}, which no list knows" for test, name in self.unknown]
        return unknown + [f"{row.id} is shipped and no test shows it: {row.title}" for row in self.missing()]
