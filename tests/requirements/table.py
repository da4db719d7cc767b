"""The ledger as lines of text. Decides nothing."""

from collections.abc import Iterator, Sequence

from tests.requirements.catalogue import Row
from tests.requirements.ledger import Ledger

TITLE_WIDTH = 76


def lines(ledger: Ledger, *, with_tests: bool = False) -> Iterator[str]:
    """Yield the whole table: sections, the points beyond them, rules, conformance cases, totals."""
    catalogue = ledger.catalogue
    for section in catalogue.sections:
        state = "shipped" if section.shipped else "to come"
        yield from _group(ledger, f"{section.id}  {section.title} ({state})", section.rows, with_tests)
    yield from _group(ledger, "Beyond the rows", catalogue.beyond, with_tests)
    yield from _group(ledger, "Rules of the protocol", catalogue.rules, with_tests)
    yield from _group(ledger, "Weaknesses of half messages elsewhere, closed here", catalogue.holes, with_tests)
    yield from _cases(ledger)
    rows = [row.id for section in catalogue.sections for row in section.rows]
    shipped = [row.id for section in catalogue.sections if section.shipped for row in section.rows]
    yield ""
    yield f"rows: {_count(ledger, rows)}, of them in shipped sections: {_count(ledger, shipped)}"


def _group(ledger: Ledger, title: str, rows: Sequence[Row], with_tests: bool) -> Iterator[str]:
    yield ""
    yield f"{title}: {_count(ledger, [row.id for row in rows])}"
    for row in rows:
        tests = ledger.tests(row.id)
        number = f"{len(tests):>3} test{'s' if len(tests) != 1 else ''}" if tests else "  open"
        yield f"  {row.id:<10} {row.title:<{TITLE_WIDTH}} {number}"
        yield from (f"             {test}" for test in tests if with_tests)


def _cases(ledger: Ledger) -> Iterator[str]:
    catalogue = ledger.catalogue
    yield ""
    yield f"Conformance cases: {_count(ledger, catalogue.cases)}"
    yield from _subset(ledger, "sending, halves and the decision", catalogue.decision_cases)
    yield from _subset(ledger, "check-back and resuming", catalogue.check_cases)


def _subset(ledger: Ledger, about: str, now: Sequence[str]) -> Iterator[str]:
    yield f"  about {about}: {_count(ledger, now)}"
    still_open = [name for name in now if not ledger.tests(name)]
    for start in range(0, len(still_open), 12):
        yield ("    open: " if start == 0 else "          ") + " ".join(still_open[start : start + 12])


def _count(ledger: Ledger, names: Sequence[str]) -> str:
    return f"{ledger.shown(names)} of {len(names)}"
