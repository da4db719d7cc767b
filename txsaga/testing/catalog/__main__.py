"""
The command line of the kit.

It exits with 0 if nothing is violated, with 1 if something is, and with 2 if the catalog can't be tested.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing

from txsaga.testing.catalog.client import CatalogClient, CatalogUnreachable
from txsaga.testing.catalog.running import CASES, CaseResult, CaseVerdict, run_cases

PROGRAM = "python -m txsaga.testing.catalog"


def main(words: Sequence[str] | None = None) -> int:
    """Run the kit; return its exit code."""
    given = _arguments().parse_args(words)
    results = []
    try:
        for result in _results(given):
            results.append(result)
            if not given.json:
                _show(result)
    except CatalogUnreachable as failure:
        sys.stderr.write(f"{PROGRAM}: {failure}\n")
        return 2
    if given.json:
        sys.stdout.write(json.dumps([_plain(result) for result in results], indent=2) + "\n")
    return int(any(result.verdict is CaseVerdict.VIOLATED for result in results))


def _results(given: argparse.Namespace) -> Iterator[CaseResult]:
    with closing(CatalogClient(given.url, _headers(given), timeout=given.patience)) as client:
        client.configure(given.prefix, given.warehouse)
        yield from run_cases(client, given.only, seconds=given.seconds, patience=given.patience)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Check what several tables in one commit mean.")
    parser.add_argument("url", metavar="URL", help="where the catalog is, without /v1")
    parser.add_argument("--prefix", help="prefix of the paths; default: what the catalog's configuration says")
    parser.add_argument("--warehouse", help="warehouse that the configuration is asked for")
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="header of every request")
    parser.add_argument("--only", action="append", default=[], choices=list(CASES), metavar="CASE", help=_names())
    parser.add_argument("--seconds", type=float, default=3.0, help="how long readers look while writers work (3)")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds after which an answer is missed (20)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _names() -> str:
    return f"run only this case, may be repeated: {', '.join(CASES)}"


def _headers(given: argparse.Namespace) -> dict[str, str]:
    token = {"authorization": f"Bearer {given.token}"} if given.token else {}
    pairs = (each.partition("=") for each in given.header)
    return {**token, **{name.strip().lower(): value for name, _, value in pairs}}


def _show(result: CaseResult) -> None:
    sys.stdout.write(f"{result.case:<20} {result.verdict.value:<14} {result.evidence}\n")
    sys.stdout.flush()


def _plain(result: CaseResult) -> dict[str, str]:
    return {"case": result.case, "must": result.must, "result": result.verdict.value, "evidence": result.evidence}


if __name__ == "__main__":
    sys.exit(main())
