"""The scan for branches: what is prepared or heuristic, by resource, in pages, and never short without a word."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.coordinated.fakes import ROLLBACK, Desk, FakeResource, desk
from txsaga.core.identity import StoreId
from txsaga.errors import ResourceManagerFailed, StoreUnavailable
from txsaga.flows.branch import BranchId, BranchState
from txsaga.flows.search import Search


@pytest.fixture
def bank() -> Iterator[Desk]:
    with desk("current", "mortgage") as opened:
        yield opened


def found(bank: Desk) -> list[tuple[str, str, BranchState]]:
    return [(each.resource, each.gid, each.state) for page in Search(bank.kernel).pages() for each in page]


@pytest.mark.req("WM-21")
def test_what_is_prepared_and_what_is_heuristic_is_found_and_nothing_else(bank: Desk) -> None:
    active, over = bank.begun("current"), bank.decided("current")
    bank.resources["current"].held.discard(bank.id(active, 1))  # it has not voted yet
    kept = bank.decided("mortgage", decision=ROLLBACK)
    bank.resources["mortgage"].committed.add(bank.id(kept, 1))
    bank.recovery().run_once()
    assert bank.states(over) == [BranchState.COMMITTED]
    prepared = bank.begun("current", "mortgage")
    assert found(bank) == [
        ("current", bank.id(prepared, 1).gid, BranchState.PREPARED),
        ("mortgage", bank.id(kept, 1).gid, BranchState.HEURISTIC_COMMITTED),
        ("mortgage", bank.id(prepared, 2).gid, BranchState.PREPARED),
    ]


@pytest.mark.req("WM-21", "WM-45")
def test_what_is_held_and_heuristic_is_found_once(bank: Desk) -> None:
    life = bank.decided("current")
    bank.resources["current"].hazards.add(bank.id(life, 1))
    bank.recovery().run_once()
    assert found(bank) == [("current", bank.id(life, 1).gid, BranchState.HEURISTIC_HAZARD)]


@pytest.mark.req("WM-23")
def test_a_resource_that_can_not_be_searched_is_an_error_that_names_it_and_no_short_list(bank: Desk) -> None:
    bank.begun("current", "mortgage")
    bank.resources["mortgage"].failure = StoreUnavailable("nobody listens")
    with pytest.raises(ResourceManagerFailed, match="resource 'mortgage' can't be searched: nobody listens"):
        Search(bank.kernel).pages()


@pytest.mark.req("WM-23")
def test_a_name_that_leads_to_another_database_is_no_answer(bank: Desk) -> None:
    bank.begun("current")
    bank.resources["current"] = FakeResource("current")
    with pytest.raises(ResourceManagerFailed, match="another database"):
        Search(bank.kernel).pages()


@pytest.mark.req("WM-48")
def test_a_scan_goes_by_pages(bank: Desk) -> None:
    for _ in range(25):
        bank.begun("current")
    assert [len(page) for page in Search(bank.kernel).pages(10)] == [10, 10, 5]


@pytest.mark.rule("R8")
def test_what_an_earlier_life_prepared_is_found_without_a_transaction(bank: Desk) -> None:
    bank.begun("current")
    bank.resources["current"].held = {BranchId(StoreId(bank.store.registry.identity.uuid, 9).transaction(7), 1)}
    ((earlier,),) = Search(bank.kernel).pages()
    assert (earlier.resource, earlier.txid, earlier.state) == ("current", None, BranchState.PREPARED)
