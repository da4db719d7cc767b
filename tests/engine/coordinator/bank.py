"""A bank: two databases with accounts and a home database that coordinates transfers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from sqlalchemy import Connection, Engine, text

from tests.engine.stored import Stored
from txsaga import Broker
from txsaga.engine.coordinator.recovery import Recovery
from txsaga.engine.producer import Producer
from txsaga.engine.roles import Dispatcher
from txsaga.model.branch import BranchEvent, BranchState
from txsaga.model.checks import CheckProfile
from txsaga.model.decision import LocalState
from txsaga.ports.branches import Noted
from txsaga.testing.checking import check_once

START = 100
TRANSFERS = "transfers"
LONG_AGO = 3_600.0

_readers = count()


@dataclass(slots=True)
class Bank:
    """Accounts in several databases, and what is told of transfers."""

    broker: Broker
    engines: Mapping[str, Engine]
    stored: Stored

    def open(self) -> Bank:
        """Create the accounts and the topic."""
        for engine in self.engines.values():
            with engine.begin() as connection:
                connection.exec_driver_sql("create table account (id int primary key, balance int not null)")
                connection.exec_driver_sql(f"insert into account values (1, {START})")
        self.broker.create_topic(TRANSFERS, "transaction", queues=1)
        return self

    @property
    def producer(self) -> Producer:
        """The producer of the bank; nobody can tell what became of its work but the coordinator."""
        return self.broker.producer("bank", checker=lambda _: LocalState.UNKNOWN)

    def balances(self) -> dict[str, int]:
        """Return what everybody sees."""
        found = {}
        for name, engine in self.engines.items():
            with engine.connect() as connection:
                found[name] = connection.execute(text("select balance from account where id = 1")).scalar_one()
        return found

    def told(self) -> list[str]:
        """Return the messages that everybody sees."""
        dispatcher = Dispatcher(self.broker.kernel)
        while dispatcher.run_once():
            pass
        stream = self.broker.stream(f"reader-{next(_readers)}", [TRANSFERS], member="anna")
        found: list[str] = []
        while (batch := stream.poll()) is not None:
            found += [message.text() for message in batch.messages()]
        stream.close()
        return found

    def states(self, txid: int) -> dict[str, BranchState]:
        """Return where the branches of a transaction stand, once everything noted before is written."""
        self.broker.kernel.branches.call(Noted(0, 0, 0, BranchEvent.FORGET))
        return {each.resource: each.state for each in self.broker.kernel.store.branches.of(txid)}

    def prepared(self) -> list[str]:
        """Return what is held in any of the databases."""
        found: list[str] = []
        for engine in self.engines.values():
            if engine.dialect.name == "postgresql":
                with engine.connect() as connection:
                    question = "select gid from pg_prepared_xacts where database = current_database()"
                    found += connection.execute(text(question)).scalars()
        return found

    def recover(self) -> int:
        """Let whoever is gone be found, and finish what is decided."""
        self.stored.let_pass(LONG_AGO)
        check_once(self.broker.kernel, CheckProfile(interval=timedelta(0)))
        self.stored.rows("UPDATE branch SET at = at - interval '1 hour'")
        return Recovery(self.broker.kernel).run_once()


def pay(connection: Connection, amount: int) -> None:
    """Change the balance of the account."""
    connection.execute(text("update account set balance = balance + :amount where id = 1"), {"amount": amount})
