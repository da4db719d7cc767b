"""A bank: two databases with accounts and a home database that coordinates transfers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from sqlalchemy import Connection, Engine, text

from tests.scene.stored import Stored
from txsaga import Broker
from txsaga.checkback.profile import CheckProfile
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import TxRecord
from txsaga.flows.branch import BranchId, BranchState
from txsaga.flows.recovery import Recovery
from txsaga.messages.producer import Producer
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

    def balances(self, account: int = 1) -> dict[str, int | None]:
        """Return what everybody sees."""
        found: dict[str, int | None] = {}
        for name, engine in self.engines.items():
            with engine.connect() as connection:
                found[name] = connection.execute(text(f"select balance from account where id = {account}")).scalar()
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
        self.broker.kernel.notes.flush()
        return {each.resource: each.state for each in self.broker.kernel.store.work.branches(txid)}

    def prepared(self) -> list[str]:
        """Return what is held in any of the databases."""
        found: list[str] = []
        for engine in self.engines.values():
            if engine.dialect.name == "postgresql":
                with engine.connect() as connection:
                    question = "select gid from pg_prepared_xacts where database = current_database()"
                    found += connection.execute(text(question)).scalars()
        return found

    def left(self, *, decided: bool = True, account: int = 1, key: str | None = None) -> TxRecord:
        """Leave a transfer of ten as an owner does that dies behind the votes, or behind the decision."""
        tx = self.producer.coordinated("current", "mortgage", key=key).__enter__()
        for name, change in (("current", -10), ("mortgage", 10)):
            with tx.on(name) as connection:
                pay(connection, change, account)
        owner = tx._branches
        votes = owner.work.named(owner.work.prepare())
        if decided:
            owner.decide(Decision.COMMIT, "the block ended", votes=votes)
        owner.leave()
        return tx._owner.life

    def overrule(self, life: TxRecord, resource: str, decision: Decision) -> None:
        """Decide a prepared branch in its database, as an administrator may."""
        (number,) = [
            each.number for each in self.broker.kernel.store.work.branches(life.txid) if each.resource == resource
        ]
        gid = BranchId(self.broker.identity.transaction(life.txid), number).gid
        with self.engines[resource].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"{decision.name} PREPARED '{gid}'")

    def recover(self) -> int:
        """Let whoever is gone be found, and finish what is decided."""
        self.stored.let_pass(LONG_AGO)
        check_once(self.broker, CheckProfile(interval=timedelta(0)))
        self.stored.rows("UPDATE branch SET at = at - interval '1 hour'")
        return Recovery(self.broker.kernel).run_once()


def pay(connection: Connection, amount: int, account: int = 1) -> None:
    """Change the balance of an account; one that is not there yet is opened."""
    mysql = connection.dialect.name in ("mysql", "mariadb")
    again = (
        "on duplicate key update balance = balance"
        if mysql
        else "on conflict (id) do update set balance = account.balance"
    )
    change = f"insert into account values (:id, :amount) {again} + :amount"
    connection.execute(text(change), {"id": account, "amount": amount})
