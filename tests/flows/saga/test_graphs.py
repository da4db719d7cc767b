"""Random sagas, failures and kills: what became of every step is what the model says, whoever died where."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.flows.saga.shelves import Killed, Shelf, Town
from txsaga import Decision, Undo
from txsaga.core.kernel import Kernel
from txsaga.errors import ServiceRefused, TxSagaError
from txsaga.flows.actions import compensation
from txsaga.flows.saga import Saga
from txsaga.flows.saga_driver import SagaRecovery

HOUR = 3_600.0
_shelf: list[Shelf] = []


class Stop(Exception):
    """What the user's code raises."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a random saga."""

    inside: bool  # in the resource
    undoable: bool
    beside: bool  # it runs beside the one before it
    fails: bool
    caught: bool  # its failure is


@compensation("graphs-undo")
def undo(staged: list[tuple[str, str]], name: str) -> None:
    """Undo in the resource."""
    staged.append((name, "undo"))


@compensation("graphs-call-off")
def call_off(name: str) -> None:
    """Undo outside."""
    _shelf[-1].effects.append((name, "undo"))


@compensation("graphs-forward")
def forward(staged: list[tuple[str, str]], name: str) -> None:
    """Go forward in the resource."""
    staged.append((name, "do"))


def inside(staged: list[tuple[str, str]], name: str, fails: bool) -> None:
    """Do a step in the resource."""
    staged.append((name, "do"))
    if fails:
        raise Stop


def outside(name: str, fails: bool) -> None:
    """Do a step outside; it fails only with a sure no."""
    if fails:
        raise ServiceRefused("no")
    _shelf[-1].effects.append((name, "do"))


STEPS = st.lists(
    st.builds(Planned, *[st.booleans()] * 3, st.sampled_from([False] * 4 + [True]), st.booleans()), max_size=6
)
KILLS = st.lists(st.integers(1, 60), max_size=3)


def groups(plan: list[Planned]) -> list[list[int]]:
    """Return the numbers of the steps that run beside each other."""
    found: list[list[int]] = []
    for at, step in enumerate(plan):
        if step.beside and found:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def run(saga: Saga, plan: list[Planned], *, raises: bool, behind: int) -> None:
    """Run a random saga."""
    with saga:
        for group in groups(plan):
            caught = [Stop, ServiceRefused] if all(plan[at].caught for at in group) else []
            with suppress(*caught):
                if len(group) == 1:
                    saga.step(**asked(group[0], plan[group[0]]))
                    continue
                with saga.parallel(threads=3) as together:
                    for at in group:
                        together.step(**asked(at, plan[at]))
        if raises:
            raise Stop
        saga.no_return()
        for at in range(behind):
            saga.step(forward, on="bank", input={"name": f"later {at}"})


def asked(at: int, step: Planned) -> dict[str, Any]:
    """Ask for a step by its plan."""
    said: dict[str, Any] = {"input": {"name": f"step {at}", "fails": step.fails}, "name": f"step {at}"}
    if step.inside:
        return said | {"do": inside, "on": "bank", "compensate": undoing(undo, at) if step.undoable else None}
    return said | {"do": outside, "compensate": undoing(call_off, at) if step.undoable else None}


def undoing(function: Any, at: int) -> Any:
    return Undo(function, input={"name": f"step {at}"})


def engine(town: Town, dies_at: int | None) -> None:
    """Let an engine see to what is left."""
    town.clock.advance(HOUR)
    kernel, _ = town.process(dies_at)
    with suppress(Killed):
        while SagaRecovery(kernel, threads=1).run_once():
            pass


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans(), st.integers(0, 2), KILLS)
@pytest.mark.rule("R1", "R6")
@pytest.mark.req("CARD-06")
def test_every_step_stays_or_is_undone_once_in_reverse_order(
    plan: list[Planned], raises: bool, behind: int, kills: list[int]
) -> None:
    town = Town()
    _shelf[:] = [town.shelf]
    kernel, mortal = town.process(kills[0] if kills else None)
    saga = Saga(kernel, town.store.registry.group("travel", transactional=True), key=None, run=None)
    with suppress(Killed, Stop, TxSagaError):
        run(saga, plan, raises=raises, behind=behind)
    died = mortal.dead
    for dies_at in [*kills[1:], None]:
        engine(town, dies_at)
    assert town.store.work.sagas() == []
    decision = decided(kernel, saga) if saga.txid is not None else None
    event(f"{decision and decision.name}, {'killed' if died else 'alive'}, {len(kills)} kills")
    if not died and saga.txid is not None:
        fails = [any(plan[at].fails for at in group) for group in groups(plan)]
        caught = [all(plan[at].caught for at in group) for group in groups(plan)]
        failed = raises or any(f and not c for f, c in zip(fails, caught, strict=True))
        assert decision is (Decision.ROLLBACK if failed else Decision.COMMIT)
    follows(plan, behind, decision, len(kills), town.shelf.effects)


def decided(kernel: Kernel, saga: Saga) -> Decision | None:
    """Return the decision that stands."""
    assert saga.txid is not None
    with kernel.store.ledgers.open() as ledger:
        return ledger.standing(saga.txid)


def follows(
    plan: list[Planned], behind: int, decision: Decision | None, kills: int, effects: list[tuple[str, str]]
) -> None:
    """Check what happened against the plan and the decision."""
    counted = Counter(effects)
    for at, step in enumerate(plan):
        did, undid = counted[f"step {at}", "do"], counted[f"step {at}", "undo"]
        assert did <= 1
        if decision is Decision.COMMIT or not step.undoable:
            assert undid == 0
        elif step.inside:
            assert undid == did
        else:
            assert did <= undid <= 1 + kills
        if decision is Decision.COMMIT and not step.fails:
            assert did == 1 or any(other.fails for other in plan)
    for at in range(behind):
        assert counted[f"later {at}", "do"] == (1 if decision is Decision.COMMIT else 0)
    undone = list(dict.fromkeys(int(name.split()[1]) for name, what in effects if what == "undo"))
    assert undone == sorted(undone, reverse=True)
    for name, what in counted:
        if what == "do" and (name, "undo") in counted:
            assert effects.index((name, "do")) < effects.index((name, "undo"))
