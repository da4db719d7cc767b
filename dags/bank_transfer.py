"""
A transfer from a current account to a mortgage, each in its own database, with an audit that is kept after a failure.

It is an Airflow DAG file. The DAG `bank_open` creates the tables; the topic is `transfers`.
"""

from airflow.sdk import Param

from txsaga.provider import lane, message_flow, publish, step

MOVE = "UPDATE account SET cents = cents + :cents WHERE id = :id"
NOTE = "INSERT INTO audit (run, what) VALUES (:run, :what)"
FAULTS = {
    "none": "nothing: everything becomes visible",
    "overdrawn": "the current account refuses the debit",
    "no mortgage": "the credit finds no row; the flow notices it at its end",
    "after the audit": "a step fails after the audit was committed",
}

ABOUT = """
### One transfer, two databases, one decision

| event | task | where | settled |
|---|---|---|---|
| 1 | `begin` | | |
| 2 | `debit` | current account, held prepared | with the flow |
| 3 | `audit_begun` | audit lane | by the lane |
| 4, 5 | `credit`, `fee` | mortgage, in the journal | with the flow |
| 6 | `audit_booked` | audit lane | by the lane |
| 7 | `commit_audit` | audit lane | **committed here, whatever happens later** |
| 8 | `publish_transfers` | topic `transfers` | with the flow |
| 9 | `end` | | decides |

Trigger it with a *fault*: only the audit stays. `txsaga tx show` shows every step in order.
"""


@message_flow(
    coordinated=True,
    resources={"current": "bank_current", "mortgage": "bank_mortgage", "audit": lane("bank_audit")},
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={
        "account": Param(1, type="integer", minimum=1, title="Account"),
        "cents": Param(2500, type="integer", minimum=1, title="Cents to move"),
        "fault": Param("none", enum=list(FAULTS), values_display=FAULTS, title="What goes wrong"),
        "pause": Param(0, type="integer", minimum=0, maximum=600, title="Seconds that the debit takes"),
    },
)
def bank_transfer() -> None:
    """Move cents from a current account to a mortgage."""
    debit = step.sql(
        "debit",
        ["SELECT pg_sleep(:pause)", MOVE],
        on="current",
        rows=1,
        parameters={
            "pause": "{{ params.pause }}",
            "cents": "{{ -params.cents * (1000000 if params.fault == 'overdrawn' else 1) }}",
            "id": "{{ params.account }}",
        },
    )
    audit_begun = step.sql("audit_begun", NOTE, on="audit", parameters={"run": "{{ run_id }}", "what": "begun"})
    credit = step.sql(
        "credit",
        MOVE,
        on="mortgage",
        hold="journal",
        rows=1,
        parameters={
            "cents": "{{ params.cents }}",
            "id": "{{ 0 if params.fault == 'no mortgage' else params.account }}",
        },
    )
    fee = step.sql(
        "fee", MOVE, on="mortgage", hold="journal", rows=1, parameters={"cents": -1, "id": "{{ params.account }}"}
    )
    audit_booked = step.sql("audit_booked", NOTE, on="audit", parameters={"run": "{{ run_id }}", "what": "booked"})
    check = step.sql(
        "check",
        "SELECT 1 / CAST(:divisor AS int) AS checked",
        on="current",
        parameters={"divisor": "{{ 0 if params.fault == 'after the audit' else 1 }}"},
    )
    tell = publish(
        "transfers",
        {"account": "{{ params.account }}", "cents": "{{ params.cents }}", "run": "{{ run_id }}"},
        key="{{ run_id }}",
    )
    debit >> audit_begun >> credit >> fee >> audit_booked >> lane.commit("audit") >> check >> tell


bank_transfer()
