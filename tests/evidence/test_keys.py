"""Ids of transactions, taken apart."""

from uuid import UUID

import pytest

from txsaga.core.identity import StoreId
from txsaga.errors import UnknownTransaction
from txsaga.evidence.schema import EvidenceKey

STORE = StoreId(UUID("5f0c7e2a-91d4-4b36-8a57-3c1be0d46f92"), 3)


@pytest.mark.parametrize("txid", [0, 1, 10, 255, 2**63 - 1])
@pytest.mark.rule("R8")
def test_an_id_names_store_incarnation_and_transaction(txid: int) -> None:
    assert EvidenceKey.parse(STORE.transaction(txid)) == (STORE.uuid.hex, 3, txid)


@pytest.mark.parametrize(
    "id",
    [
        "",
        "17",
        "not an id",
        f"{STORE.uuid}-3-11",
        f"{STORE.uuid.hex}-3",
        f"{STORE.uuid.hex}-3-",
        f"{STORE.uuid.hex}-3-11-0-0-0-0-0",
        f"{STORE.uuid.hex}-3-11\n",
        f"{STORE.uuid.hex.upper()}A-3-11",
        f"{STORE.uuid.hex}-80000000-11",
        f"{STORE.uuid.hex}-3-8000000000000000",
    ],
)
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(UnknownTransaction, match="is not the id of a transaction"):
        EvidenceKey.parse(id)
