"""The link from a task to its transaction: by the number that the task handed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseOperatorLink

KEY = "return_value"


class TransactionLink(BaseOperatorLink):
    """A link to the transaction that a task began, decided or stored, among the XComs of that task.

    An end that rolled back hands nothing on: its link leads to the task that began the flow.
    """

    name = "Transaction"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return where the transaction can be looked at; nothing before it is begun."""
        from airflow.sdk.execution_time.xcom import XCom

        run = {"dag_id": ti_key.dag_id, "run_id": ti_key.run_id}
        if _names_one(XCom.get_value(ti_key=ti_key, key=KEY)):
            mapped = getattr(ti_key, "map_index", None)
            return _place(run, ti_key.task_id, "" if mapped is None or mapped < 0 else f"/mapped/{mapped}")
        begin = getattr(operator, "flow", None)
        if isinstance(begin, str) and _names_one(XCom.get_one(key=KEY, task_id=begin, **run)):
            return _place(run, begin)
        return ""


def _names_one(found: object) -> bool:
    return isinstance(found, dict) and found.get("txid") is not None


def _place(run: Mapping[str, str], task: str, part: str = "") -> str:
    return f"{_below()}/dags/{run['dag_id']}/runs/{run['run_id']}/tasks/{task}{part}/xcom"


def _below() -> str:
    """Return the path below which this Airflow is, where it has its host for itself nothing."""
    from airflow.sdk.configuration import conf

    return urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
