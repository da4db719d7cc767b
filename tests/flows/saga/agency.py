"""A travel agency: databases in which steps write lines, and what became of its sagas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from sqlalchemy import Connection, Engine, text

from tests.scene.stored import Stored
from txsaga import Broker
from txsaga.consume.dispatcher import Dispatcher
from txsaga.flows.actions import compensation
from txsaga.flows.saga import Saga
from txsaga.flows.saga_driver import SagaRecovery

BOOK = "insert into line (what) values (:what)"
CANCEL = "insert into line (what) values ('undo ' || :what)"
TRIPS = "trips"
LONG_AGO = 3_600.0

_readers = count()
done: list[str] = []
"""What functions without a resource did."""


class Stop(Exception):
    """What the user's code raises."""


def book(connection: Connection, what: str) -> None:
    """Do a step in a resource."""
    connection.execute(text(BOOK), {"what": what})


@compensation("agency-cancel")
def cancel(connection: Connection, what: str) -> None:
    """Undo it."""
    connection.execute(text(CANCEL), {"what": what})


@compensation("agency-call-off")
def call_off(what: str) -> None:
    """Undo what left no evidence."""
    done.append(f"undo {what}")


def call(what: str) -> str:
    """Do a step that leaves no evidence."""
    done.append(what)
    return f"reference of {what}"


@compensation("agency-mail")
def mail(what: str) -> str:
    """Do a step that only goes forward."""
    done.append(f"mail {what}")
    return f"mailed {what}"


@dataclass(slots=True)
class Agency:
    """Databases, and sagas over them."""

    broker: Broker
    engines: Mapping[str, Engine]
    stored: Stored
    facts: list[str] = field(default_factory=list)

    def open(self) -> Agency:
        """Create the tables and the topic."""
        done.clear()
        for engine in self.engines.values():
            with engine.begin() as connection:
                connection.exec_driver_sql("create table line (id serial primary key, what text unique)")
        self.broker.create_topic(TRIPS, "transaction", queues=1)
        return self

    def saga(self, key: str | None = None) -> Saga:
        """Open a saga."""
        return self.broker.saga("travel", key=key)

    def book(self, saga: Saga, *whats: str, on: str = "bank") -> None:
        """Do some steps in a resource."""
        for what in whats:
            saga.step(book, on=on, compensate=cancel, input={"what": what}, name=what)

    def lines(self, name: str = "bank") -> list[str]:
        """Return what was done in a database, in order."""
        with self.engines[name].connect() as connection:
            return list(connection.scalars(text("select what from line order by id")))

    def states(self, txid: int | None) -> list[str]:
        """Return where the steps of a saga stand."""
        assert txid is not None
        return [step.state.value for step in self.broker.kernel.store.work.steps(txid)]

    def open_sagas(self) -> int:
        """Count the sagas that are not over."""
        return len(self.broker.kernel.store.work.sagas())

    def told(self) -> list[str]:
        """Return the messages that everybody sees."""
        dispatcher = Dispatcher(self.broker.kernel)
        while dispatcher.run_once():
            pass
        stream = self.broker.stream(f"reader-{next(_readers)}", [TRIPS], member="anna")
        found: list[str] = []
        while (batch := stream.poll()) is not None:
            found += [message.text() for message in batch.messages()]
        stream.close()
        return found

    def let_pass(self) -> None:
        """Let every owner and driver be long silent."""
        self.stored.let_pass(LONG_AGO)
        self.stored.rows("UPDATE saga SET until = until - interval '1 hour'")

    def take_over(self) -> int:
        """See to sagas whose driver is gone, as an engine does."""
        self.let_pass()
        return SagaRecovery(self.broker.kernel, threads=1).run_once()
