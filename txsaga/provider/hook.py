"""
The hook: opens a broker from an Airflow connection of type `txsaga`.

    broker = TxSagaHook("txsaga_default").get_conn()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from txsaga.errors import TxSagaError
from txsaga.provider.addresses import store_url
from txsaga.provider.ambient import AMBIENT, connection_of
from txsaga.provider.options import CONN_ID, store_of

if TYPE_CHECKING:
    from txsaga.broker import Broker


class TxSagaHook(BaseHook):
    """A txsaga store as an Airflow connection."""

    conn_name_attr = "txsaga_conn_id"
    default_conn_name = CONN_ID.default
    conn_type = "txsaga"
    hook_name = "TxSaga store"

    def __init__(self, txsaga_conn_id: str | None = None, *, resources: Iterable[str] = ()) -> None:
        super().__init__()
        self.txsaga_conn_id, self.resources = store_of(txsaga_conn_id), tuple(resources)

    def get_conn(self) -> Broker:
        """Return the broker of this process; it stays open, so do not close it."""
        return AMBIENT.broker(self.txsaga_conn_id, self.resources)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the store can be reached, and its identity or the error."""
        import txsaga

        try:
            url = store_url(connection_of(self.txsaga_conn_id))
            with txsaga.connect(url, roles=False, answering=False, patience=2.0) as broker:
                return True, f"this is store {broker.identity.uuid}, incarnation {broker.identity.incarnation}"
        except TxSagaError as reason:
            return False, f"{type(reason).__name__}: {reason}"
