"""The lists of what must be shown: requirement rows by section, points beyond them, rules, conformance cases.

Only reads the two TOML files of this folder. What a test claims is none of its business.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
EXPECTED = {"IBM": 67, "WM": 48, "RMQ": 97, "CARD": 8, "BEYOND": 10, "R": 18, "H": 14}


class CatalogueError(ValueError):
    """A list contradicts itself; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One behaviour that must hold."""

    id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows that are shipped together."""

    id: str
    title: str
    shipped: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything a test may name."""

    sections: tuple[Section, ...]
    beyond: tuple[Row, ...]
    rules: tuple[Row, ...]
    cases: tuple[str, ...]
    decision_cases: tuple[str, ...]
    check_cases: tuple[str, ...] = ()
    holes: tuple[Row, ...] = ()

    @classmethod
    def load(cls, folder: Path = HERE) -> Self:
        """Read the lists of a folder."""
        rows = tomllib.loads((folder / "rows.toml").read_text("utf-8"))
        conformance = tomllib.loads((folder / "conformance.toml").read_text("utf-8"))
        return cls(
            sections=tuple(_sections(rows)),
            beyond=tuple(_rows(rows["beyond"])),
            rules=tuple(_rows(rows["rules"])),
            cases=tuple(_expanded(conformance["cases"])),
            decision_cases=tuple(_expanded(conformance["decision"])),
            check_cases=tuple(_expanded(conformance["checks"])),
            holes=tuple(_rows(rows["holes"])),
        )

    def ids(self) -> frozenset[str]:
        """Return every id that a test may carry."""
        rows = [row for section in self.sections for row in section.rows]
        return frozenset(row.id for row in (*rows, *self.beyond, *self.rules, *self.holes)) | frozenset(self.cases)

    def check(self) -> None:
        """Raise when an id stands twice, is missing, or a subset names an unknown case."""
        rows = [row.id for section in self.sections for row in section.rows]
        rows += [row.id for row in (*self.beyond, *self.rules, *self.holes)]
        wanted = [name for prefix, count in EXPECTED.items() for name in _numbered(prefix, count)]
        for complaint, names in (
            ("listed twice", _repeated((*rows, *self.cases))),
            ("missing from the rows", set(wanted) - set(rows)),
            ("not one of the rows", set(rows) - set(wanted)),
            ("in the subset `decision` but no case", set(self.decision_cases) - set(self.cases)),
            ("in the subset `checks` but no case", set(self.check_cases) - set(self.cases)),
        ):
            if names:
                raise CatalogueError(f"{complaint}: {', '.join(sorted(names))}")


def _sections(document: Mapping[str, Any]) -> Iterator[Section]:
    titles, shipped = document["sections"], set(document["shipped"])
    if titles.keys() != document["rows"].keys() or not shipped <= titles.keys():
        raise CatalogueError("sections, their rows and `shipped` must name the same sections")
    for name, title in titles.items():
        rows = tuple(_rows(document["rows"][name]))
        yield Section(id=name, title=title, shipped=name in shipped, rows=rows)


def _rows(table: Mapping[str, str]) -> Iterator[Row]:
    for name, title in table.items():
        yield Row(id=name, title=title)


def _expanded(names: Iterable[str]) -> Iterator[str]:
    """Yield single ids; `BRK-01..03` stands for three, written as wide as the first."""
    for name in names:
        if span := re.fullmatch(r"(.+?)(\d+)\.\.(\d+)", name):
            prefix, first, last = span.groups()
            yield from (f"{prefix}{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
        else:
            yield name


def _numbered(prefix: str, count: int) -> Iterator[str]:
    shape = {"BEYOND": "BEYOND-{}", "R": "R{}", "H": "H{}"}.get(prefix, prefix + "-{:02}")
    return (shape.format(number) for number in range(1, count + 1))


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}
