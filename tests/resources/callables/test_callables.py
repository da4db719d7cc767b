"""A try is a vote; its confirm or its cancel is called until it answers, and nothing late counts."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.oracle import MemoryStore
from tests.resources.callables.tills import Till
from txsaga.core.decision import Decision
from txsaga.errors import (
    CommunicationFailed,
    ConfigError,
    OtherReason,
    ResourceManagerError,
    RolledBack,
    StoreUnavailable,
    TransactionClosed,
)
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.resources.reservations import ReservationState
from txsaga.resources.tcc import Callables, TccParticipant
from txsaga.testing.participant_contract import new_branch

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def participant(till: Till, store: MemoryStore) -> TccParticipant:
    return till.callables.participant("till", store)


def held(participant: TccParticipant) -> BranchId:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    enlisted.handle(item=1)
    assert enlisted.prepare()() is Vote.PREPARED
    enlisted.leave()
    return branch


def test_an_error_of_the_try_is_a_no_even_if_it_is_dropped(participant: TccParticipant, till: Till) -> None:
    till.refuses = True
    enlisted = participant.enlist(new_branch())
    with pytest.raises(ValueError, match="no money"):
        enlisted.handle(item=1)
    with pytest.raises(RolledBack, match="no money"):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    assert till.cancelled == [enlisted.handle.id]


def test_the_arguments_are_durable_before_the_try_runs(store: MemoryStore) -> None:
    def reserve(id: str, **_: object) -> None:
        found = store.reservations.find(BranchId.parse(id))
        assert found is not None
        assert (found.state, found.arguments) == (ReservationState.OPEN, {"item": 1})

    calls = Callables(try_=reserve, confirm=print, cancel=print)
    calls.participant("till", store).enlist(new_branch()).handle(item=1)


def test_what_a_dead_process_tried_is_cancelled_by_name(participant: TccParticipant, till: Till) -> None:
    branch = new_branch()
    participant.enlist(branch).handle(item=1)
    assert not participant.prepared(branch.store)
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
    assert (till.reserved, till.cancelled) == ({}, [branch.gid])


def test_a_cancel_without_a_try_calls_nothing_and_refuses_the_late_try(participant: TccParticipant, till: Till) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
    assert till.cancelled == []
    with pytest.raises(RolledBack, match="too late"):
        enlisted.handle(item=1)
    assert till.reserved == {}


def test_a_try_that_ends_behind_its_cancel_votes_no(participant: TccParticipant, till: Till) -> None:
    branch = new_branch()
    enlisted = participant.enlist(branch)
    enlisted.handle(item=1)
    participant.finish(branch, ROLLBACK)
    with pytest.raises(RolledBack, match="cancelled meanwhile"):
        enlisted.prepare()()
    assert participant.finish(branch, COMMIT) is Finish.ROLLED_BACK


@pytest.mark.parametrize("decision", list(Decision))
def test_a_second_phase_that_fails_is_asked_again(participant: TccParticipant, till: Till, decision: Decision) -> None:
    branch, till.broken = held(participant), 2
    for _ in range(2):
        with pytest.raises(ResourceManagerError, match="closed"):
            participant.finish(branch, decision)
        assert list(participant.prepared(branch.store)) == [branch]
    assert participant.finish(branch, decision) is Finish.DONE
    assert till.taken == ({branch.gid: 1} if decision is COMMIT else {})
    assert not participant.prepared(branch.store)


def test_one_transaction_tries_once(participant: TccParticipant) -> None:
    enlisted = participant.enlist(new_branch())
    enlisted.handle(item=1)
    with pytest.raises(TransactionClosed, match="one try"):
        enlisted.handle(item=2)


def test_nothing_is_tried_behind_the_vote(participant: TccParticipant) -> None:
    enlisted = participant.enlist(new_branch())
    enlisted.prepare()()
    with pytest.raises(TransactionClosed, match="too late"):
        enlisted.handle(item=1)


@pytest.mark.parametrize(
    "argument",
    [object(), b"bytes", float("nan"), "a\0b", ["\ud800"], {"\0": 1}],
    ids=["no JSON", "bytes", "no number", "NUL", "half a letter", "NUL in a name"],
)
def test_arguments_that_could_not_be_kept_are_refused(
    participant: TccParticipant, till: Till, argument: object
) -> None:
    with pytest.raises(ConfigError, match=r"the arguments of '.*' (must be JSON|holds a character).* at 'item'"):
        participant.enlist(new_branch()).handle(item=argument)
    assert till.reserved == {}


def test_a_store_that_is_away_is_a_no(
    participant: TccParticipant, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    enlisted = participant.enlist(new_branch())
    enlisted.handle(item=1)

    def hold(_: BranchId) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.reservations, "hold", hold)
    with pytest.raises(CommunicationFailed, match="away"):
        enlisted.prepare()()


@pytest.mark.req("IBM-48")
def test_what_can_not_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="confirm is str"):
        Callables(try_=print, confirm="print", cancel=print)  # type: ignore[arg-type]


async def later(id: str, **_: object) -> None:
    raise AssertionError("is never awaited it")


class Later:
    """An object whose call is async."""

    async def __call__(self, id: str, **_: object) -> None:
        raise AssertionError("is never awaited it")


@pytest.mark.parametrize("function", [later, partial(later, item=1), Later(), Later().__call__, partial(Later())])
@pytest.mark.parametrize("which", ["try_", "confirm", "cancel"])
def test_an_async_function_is_refused(which: str, function: Callable[..., object]) -> None:
    calls: dict[str, Callable[..., object]] = {"try_": print, "confirm": print, "cancel": print, which: function}
    with pytest.raises(ConfigError, match=f"^{which} is an async function, it would never run; .*without async$"):
        Callables(**calls)


def test_an_awaitable_from_the_try_is_a_no(store: MemoryStore, till: Till) -> None:
    calls = Callables(try_=lambda id, **_: later(id), confirm=till.confirm, cancel=till.cancel)
    enlisted = calls.participant("till", store).enlist(new_branch())
    with pytest.raises(OtherReason, match=r"try_ of branch .* returned coroutine, .* is never awaited"):
        enlisted.handle(item=1)
    with pytest.raises(RolledBack, match="is never awaited"):
        enlisted.prepare()()
    enlisted.finish(ROLLBACK)()
    assert till.cancelled == [enlisted.handle.id]


@pytest.mark.parametrize("decision", list(Decision))
def test_an_awaitable_from_the_second_phase_is_no_end(store: MemoryStore, till: Till, decision: Decision) -> None:
    calls = Callables(try_=till.reserve, confirm=lambda id, **_: later(id), cancel=lambda id, **_: later(id))
    branch = held(calls.participant("till", store))
    with pytest.raises(ResourceManagerError, match=r"returned coroutine, .* is never awaited"):
        calls.participant("till", store).finish(branch, decision)
    assert till.callables.participant("till", store).finish(branch, decision) is Finish.DONE
