"""`python -m tests.requirements`: print which test shows which requirement.

Exit status: 0 all shipped rows are shown; 1 some are not, or an id is unknown; 2 tests cannot be collected.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

import pytest

from tests.requirements.catalogue import Catalogue
from tests.requirements.claims import Claim, ClaimCollector
from tests.requirements.ledger import Ledger
from tests.requirements.table import lines

NOT_COLLECTED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect, print, judge."""
    options = _parsed(arguments)
    catalogue = Catalogue.load()
    catalogue.check()
    if options.lists_only:
        print(f"{len(catalogue.ids())} ids, no contradiction")
        return 0
    claims = _collected(options.paths)
    if claims is None:
        return NOT_COLLECTED
    ledger = Ledger.of(catalogue, claims)
    print("\n".join(lines(ledger, with_tests=options.tests)))
    complaints = ledger.complaints()
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.requirements", description=__doc__)
    parser.add_argument("paths", nargs="*", default=["tests"], help="where the tests are")
    parser.add_argument("--tests", action="store_true", help="name the tests below each row")
    parser.add_argument("--lists-only", action="store_true", help="check the lists, collect nothing")
    return parser.parse_args(arguments)


def _collected(paths: Sequence[str]) -> list[Claim] | None:
    """Return what the tests claim, or None (with pytest's words on stderr) when one cannot be imported."""
    collector, said = ClaimCollector(), io.StringIO()
    with redirect_stdout(said):
        status = pytest.main(["--collect-only", "-q", *paths], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(said.getvalue(), file=sys.stderr)
        return None
    return collector.claims


if __name__ == "__main__":
    sys.exit(main())
