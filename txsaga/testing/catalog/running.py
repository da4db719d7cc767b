"""Runs the cases of the kit against a catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from txsaga.testing.catalog import conflicts, files, repeats, visibility
from txsaga.testing.catalog.client import CatalogClient, CatalogUnreachable, NoAnswer
from txsaga.testing.catalog.namespace import KitNamespace, NotSupported, Violated

CASES: dict[str, Callable[[KitNamespace], str]] = {
    case.__name__.replace("_", "-"): case
    for case in (*visibility.CASES, *repeats.CASES, *files.CASES, *conflicts.CASES)
}
"""Every case by its name on the command line."""


class CaseVerdict(Enum):
    """What a case found."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_SUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, what it found, and a line of evidence."""

    case: str
    must: str
    verdict: CaseVerdict
    evidence: str


def run_cases(
    client: CatalogClient, names: Collection[str] = (), *, seconds: float = 3.0, patience: float = 20.0
) -> Iterator[CaseResult]:
    """Run some cases, or all, each in a namespace of its own."""
    for name, case in CASES.items():
        if not names or name in names:
            verdict, evidence = _tried(case, KitNamespace(client, seconds=seconds, patience=patience))
            yield CaseResult(name, must(case), verdict, " ".join(evidence.split()))


def _tried(case: Callable[[KitNamespace], str], space: KitNamespace) -> tuple[CaseVerdict, str]:
    try:
        space.open()
        return CaseVerdict.HELD, case(space)
    except NotSupported as reason:
        return CaseVerdict.NOT_SUPPORTED, str(reason)
    except Violated as evidence:
        return CaseVerdict.VIOLATED, str(evidence)
    except NoAnswer as failure:
        if not space.client.alive():
            raise CatalogUnreachable(f"{space.client.url} does not answer any more: {failure}") from failure
        return CaseVerdict.VIOLATED, f"a request has no answer: {failure}"
    except (LookupError, TypeError, ValueError) as failure:
        return CaseVerdict.VIOLATED, f"an answer is not as the protocol has it: {failure!r}"
    finally:
        space.close()


def must(case: Callable[[KitNamespace], str]) -> str:
    """Return what a case says must hold."""
    return (case.__doc__ or "").strip().splitlines()[0]
