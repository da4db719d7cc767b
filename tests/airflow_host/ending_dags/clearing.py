"""An airflow dag that may be run again once it is committed, and one that may not."""

from __future__ import annotations

from airflow.sdk import DAG

from txsaga.provider import message_flow, publish


def telling(name: str, *, allow_amend: bool) -> DAG:
    """Make a flow that tells what it amends."""

    @message_flow(dag_id=name, schedule=None, allow_amend=allow_amend)
    def flow() -> None:
        publish("cleared", name + " amends {{ ti.xcom_pull('begin')['amends'] }}")

    return flow()


kept = telling("kept", allow_amend=False)
amended = telling("amended", allow_amend=True)
