"""Reads rows of evidence as outcomes."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from txsaga.adapters.evidence.key import EvidenceKey
from txsaga.adapters.evidence.schema import MAIN
from txsaga.adapters.evidence.statements import SLOT
from txsaga.model.decision import Decision
from txsaga.model.records import Outcome


def outcomes(rows: Iterable[Row[*tuple[Any, ...]]]) -> dict[EvidenceKey, Outcome]:
    """Return the outcome of each transaction whose own row is among these, with its late bodies.

    The rows of branches under two-phase commit lie beside them and say nothing here.
    """
    standing: dict[EvidenceKey, Decision] = {}
    bodies: dict[EvidenceKey, dict[int, bytes]] = defaultdict(dict)
    for store, incarnation, txid, branch, outcome, body in rows:
        key = EvidenceKey(store, incarnation, txid)
        if branch == MAIN:
            standing[key] = Decision(outcome)
        elif branch.startswith(SLOT):
            bodies[key][int(branch.removeprefix(SLOT))] = bytes(body)
    return {key: Outcome(said is Decision.COMMIT, bodies.get(key, {})) for key, said in standing.items()}


def slots(branches: Iterable[str]) -> frozenset[int]:
    """Return the numbers of the slots among these branches."""
    return frozenset(int(branch.removeprefix(SLOT)) for branch in branches if branch.startswith(SLOT))
