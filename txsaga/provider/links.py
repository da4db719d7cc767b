"""The link from a task to its transaction: by the number that the task handed on."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink


class TransactionLink(BaseOperatorLink):
    """A link to the transaction that a task began, decided or stored, among the XComs of that task."""

    name = "Transaction"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return where the transaction can be looked at; nothing before it is begun."""
        from airflow.sdk.execution_time.xcom import XCom

        found = XCom.get_value(ti_key=ti_key, key="return_value")
        txid = found.get("txid") if isinstance(found, dict) else None
        if txid is None:
            return ""
        mapped = getattr(ti_key, "map_index", None)
        part = "" if mapped is None or mapped < 0 else f"/mapped/{mapped}"
        return f"{_below()}/dags/{ti_key.dag_id}/runs/{ti_key.run_id}/tasks/{ti_key.task_id}{part}/xcom"


def _below() -> str:
    """Return the path below which this Airflow is, where it has its host for itself nothing."""
    from airflow.sdk.configuration import conf

    return urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
