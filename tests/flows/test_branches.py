"""Who writes about branches: only one caller that nobody waits beside looks out for the answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from txsaga.flows.branch import BranchEvent
from txsaga.flows.calls import BranchOutcome, Fence
from txsaga.store.pipeline import PipelineConnection
from txsaga.store.store import Store
from txsaga.store.wire import Call, Rows

pytestmark = pytest.mark.postgres


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Tell of each exchange whether its caller was alone."""
    seen, exchange = list[bool](), PipelineConnection.exchange

    def noted(line: PipelineConnection, calls: Sequence[Call], *, alone: bool = False) -> list[Rows]:
        seen.append(alone)
        return exchange(line, calls, alone=alone)

    monkeypatch.setattr(PipelineConnection, "exchange", noted)
    return seen


def test_one_caller_is_alone(store: Store, told: list[bool]) -> None:
    store.branches.write([Fence(1, "recovery", "its owner is gone")])
    assert told[0] is True


def test_callers_of_one_statement_are_not_alone(store: Store, told: list[bool]) -> None:
    store.branches.write([Fence(number, "recovery", "its owner is gone") for number in (1, 2)])
    assert told[0] is False


def test_nobody_waits_for_a_note(store: Store, told: list[bool]) -> None:
    store.branches.write([BranchOutcome(1, 1, 1, BranchEvent.COMMIT, "")])
    assert told == [False]
