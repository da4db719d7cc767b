"""Ids leave the store as text and come back as they were, or are refused."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.core.identity import HalfId, StoreId
from txsaga.errors import UnknownTransaction

NUMBERS = st.integers(min_value=0, max_value=2**63 - 1)
STORES = st.builds(StoreId, st.uuids(), st.integers(min_value=1, max_value=2**31))
HALVES = st.builds(HalfId, STORES, *[NUMBERS] * 6)
ID = HalfId(StoreId(UUID(int=7), 1), 42, 1, 2, 3, 4, 5)


@pytest.mark.req("RMQ-46")
@given(HALVES)
def test_a_half_is_found_by_its_id(half: HalfId) -> None:
    assert HalfId.decode(half.encode()) == half
    assert half.encode().startswith(half.transaction)


@given(HALVES, HALVES)
def test_two_halves_never_share_an_id(one: HalfId, other: HalfId) -> None:
    assert (one.encode() == other.encode()) == (one == other)


@pytest.mark.rule("R8")
@given(STORES, NUMBERS)
def test_a_transaction_is_found_by_its_id(store: StoreId, txid: int) -> None:
    assert store.own(store.transaction(txid)) == txid


@pytest.mark.rule("R8")
@given(STORES, STORES, NUMBERS)
def test_a_transaction_of_another_store_or_incarnation_is_refused(one: StoreId, other: StoreId, txid: int) -> None:
    later = StoreId(one.uuid, one.incarnation + 1)
    for stranger in {other, later} - {one}:
        with pytest.raises(UnknownTransaction, match="another store"):
            one.own(stranger.transaction(txid))


@given(st.text(max_size=60))
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(UnknownTransaction):
        HalfId.decode(text)
    with pytest.raises(UnknownTransaction):
        ID.store.own(text)


@pytest.mark.parametrize(
    "text",
    [
        ID.encode().upper(),
        ID.encode() + "-0",
        ID.encode().rpartition("-")[0],
        ID.encode()[1:],
        ID.encode().replace("-2a-", "--"),
        ID.encode().replace("-2a-", "-2_a-"),
        ID.encode().replace("-2a-", "- 2a-"),
        ID.encode() + "\n",
        "",
    ],
)
def test_an_id_that_was_tampered_with_is_refused(text: str) -> None:
    with pytest.raises(UnknownTransaction):
        HalfId.decode(text)


def test_a_store_is_written_as_its_ids_begin() -> None:
    store = StoreId(UUID(int=7), 17)
    assert store.transaction(3) == f"{store}-3"
    with pytest.raises(UnknownTransaction, match=f"another store; this one is {store}$"):
        store.own(ID.transaction)


@pytest.mark.rule("R8")
def test_a_transaction_keeps_the_incarnation_that_it_was_made_in() -> None:
    first = StoreId(UUID(int=7), 1)
    third = StoreId(UUID(int=7), 3, births=(10, 20))
    assert [third.incarnation_of(txid) for txid in (10, 11, 20, 21)] == [1, 2, 2, 3]
    assert third.own(first.transaction(10)) == 10
    with pytest.raises(UnknownTransaction):
        third.own(first.transaction(11))
