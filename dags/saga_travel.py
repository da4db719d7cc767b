"""
A trip: flight, hotel and car are booked in parallel, each in its own database, and cancelled if one booking fails.

It is an Airflow DAG file. The booking tasks create the tables.
"""

from airflow.sdk import Param

from txsaga.provider import local, message_flow, publish, step

TABLE = "CREATE TABLE IF NOT EXISTS booking (run text, what text, PRIMARY KEY (run, what))"
BOOK = "INSERT INTO booking VALUES (:run, :what)"
CANCEL = "DELETE FROM booking WHERE run = :run AND what = :what"
PAY = "INSERT INTO booking SELECT :run, :what WHERE 1 / CAST(:divisor AS int) = 1"
FAULTS = {"none": "nothing: everything is booked", "payment": "the payment fails: everything is cancelled"}

ABOUT = """
### A saga

Each booking is committed at once, in its own database. Its compensation is stored before it runs. If a task fails,
ROLLBACK is decided first. Then the task `end` cancels the bookings in reverse order, each once; if `end` dies too, the
engine does it.
"""


@message_flow(
    resources={"flight": local("travel_flight"), "hotel": local("travel_hotel"), "car": local("travel_car")},
    schedule=None,
    catchup=False,
    tags=["txsaga", "example"],
    doc_md=ABOUT,
    render_template_as_native_obj=True,
    params={"fault": Param("none", enum=list(FAULTS), values_display=FAULTS, title="What goes wrong")},
)
def saga_travel() -> None:
    """Book a trip, or nothing."""
    bookings = [
        step.sql(
            f"book_{what}", [TABLE, BOOK], on=what, parameters={"run": "{{ run_id }}", "what": what}, compensate=CANCEL
        )
        for what in ("flight", "hotel", "car")
    ]
    pay = step.sql(
        "pay",
        PAY,
        on="flight",
        parameters={
            "run": "{{ run_id }}",
            "what": "payment",
            "divisor": "{{ 0 if params.fault == 'payment' else 1 }}",
        },
    )
    bookings >> pay >> publish("trips", {"run": "{{ run_id }}"})


saga_travel()
