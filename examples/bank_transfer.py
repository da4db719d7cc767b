"""
A transfer between two databases: account A is debited in one, account B is credited in the other.

    python examples/bank_transfer.py        needs nothing but this package; it starts its own database

No transaction spans both databases. A's debit and the message "credit B" share one fate; B's side may get the
message twice, so it credits under a unique key. Three transfers are shown: one that goes well, one that the
bank refuses, and one whose process is killed between the debit and the decision.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

import txsaga
from txsaga import CheckProfile, EmbeddedServer, Producer, Stream

AMOUNT = 10_000
TABLES = (
    "CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0))",
    "CREATE TABLE IF NOT EXISTS credit (transfer text PRIMARY KEY, amount bigint NOT NULL)",
)
screen = Console(highlight=False)


# What a user of txsaga writes -----------------------------------------------------------------------------


def transfer(producer: Producer, id: str, account: str, amount: int) -> None:
    """Debit A and send the message, or neither."""
    with producer.transaction(key=id) as tx:
        tx.send(txsaga.Message.json("transfers", {"id": id, "to": f"B-{account}", "amount": amount}, key=id))
        with tx.local("bank_a") as bank_a:
            bank_a.execute(
                text("UPDATE account SET balance = balance - :amount WHERE name = :name"),
                {"amount": amount, "name": f"A-{account}"},
            )


def credit(stream: Stream, bank_b: Engine) -> None:
    """Credit B for every message that is there; one that comes twice changes nothing."""
    for message in stream.messages(wait=0):
        order: Any = message.json()
        with bank_b.begin() as connection:
            first = connection.execute(
                text("INSERT INTO credit VALUES (:id, :amount) ON CONFLICT DO NOTHING"), order
            ).rowcount
            if first:
                connection.execute(text("UPDATE account SET balance = balance + :amount WHERE name = :to"), order)


# The demonstration ----------------------------------------------------------------------------------------

SEEN = {"": "none", "sealed": "invisible, undecided", "committed": "visible", "rolled_back": "never visible"}


class Demo:
    """Two banks with accounts of this run alone, and the broker between them."""

    def __init__(self, server: EmbeddedServer, account: str) -> None:
        self.account = account
        # roles=False: the roles are run by hand, to show when they matter. Otherwise they run by themselves.
        self.broker = txsaga.connect(roles=False)
        self.banks = {name: create_engine(server.database(name).url(name)) for name in ("bank_a", "bank_b")}
        for name, engine in self.banks.items():
            self.broker.register(name, engine)
        self.broker.create_topic("transfers", "transaction")
        self.producer = self.broker.producer("bank-demo")

    def open_accounts(self) -> None:
        """Create what is missing and open one account in each bank."""
        for engine, name, balance in zip(self.banks.values(), "AB", (5 * AMOUNT, 0), strict=True):
            with engine.begin() as connection:
                for statement in TABLES:
                    connection.execute(text(statement))
                account = {"name": f"{name}-{self.account}", "balance": balance}
                connection.execute(text("INSERT INTO account VALUES (:name, :balance)"), account)

    def balances(self) -> tuple[int, int]:
        """Read what A and B have."""
        query = text("SELECT balance FROM account WHERE name LIKE :name")
        found = []
        for engine in self.banks.values():
            with engine.connect() as connection:
                found.append(int(connection.execute(query, {"name": f"_-{self.account}"}).scalar_one()))
        return found[0], found[1]

    def message(self, id: str) -> str:
        """Tell what became of a transfer's message."""
        views = self.broker.kernel.store.overview.transactions(undecided=False, limit=50)
        return SEEN[next((view.state for view in views if view.key == id), "")]

    def run(self, name: str) -> None:
        """Run a role once; `min_age` spares the six seconds that a check usually waits."""
        profile = CheckProfile(min_age=timedelta(0))
        next(role for role in self.broker.roles(profile) if role.name == name).run_once()

    def deliver(self) -> None:
        """Give committed messages their offsets, then read them as bank B does."""
        self.run("dispatcher")
        stream = self.broker.stream("demo-bank-b", ["transfers"])
        credit(stream, self.banks["bank_b"])
        stream.close()

    def close(self) -> None:
        """Give every connection back."""
        self.broker.close()
        for engine in self.banks.values():
            engine.dispose()


class Story:
    """What one transfer looked like, moment by moment."""

    def __init__(self, demo: Demo, id: str, title: str) -> None:
        self.demo, self.id = demo, f"{id}-{demo.account}"
        self.table = Table("moment", "A in bank_a", "B in bank_b", "message", title=title, title_justify="left")
        self.moment("before")

    def moment(self, what: str) -> None:
        """Write down what is to be seen now."""
        balances = (f"{balance:,}" for balance in self.demo.balances())
        self.table.add_row(what, *balances, self.demo.message(self.id))

    def end(self, why: str) -> None:
        """Deliver, show all of it, and say why it is right."""
        self.demo.deliver()
        self.moment("delivered")
        screen.print(self.table)
        screen.print(f"{why}\n")


def good_transfer(demo: Demo) -> None:
    """Show a transfer that goes well."""
    story = Story(demo, "good", "1. A good transfer")
    transfer(demo.producer, story.id, demo.account, AMOUNT)
    story.moment("decided")
    story.end("The debit left evidence in its own commit, one decision made the message visible, B was credited.")


def refused_transfer(demo: Demo) -> None:
    """Show a transfer whose local work raises."""
    story = Story(demo, "refused", "2. The bank refuses: A has not that much money")
    try:
        transfer(demo.producer, story.id, demo.account, 10 * AMOUNT)
    except IntegrityError:
        story.moment("refused")
    story.end("The debit raised, so the decision is ROLLBACK: the message is stored, but nobody will ever see it.")


def killed_transfer(demo: Demo) -> None:
    """Show a transfer whose process is killed between its local commit and the decision."""
    story = Story(demo, "killed", "3. kill -9 between the debit and the decision")
    kill_behind_local_commit = {"TXSAGA_OBSERVERS": "txsaga.testing.kill:observer", "TXSAGA_KILL": "Worked:1"}
    child = [sys.executable, __file__, "--transfer", story.id, demo.account]
    ended = subprocess.run(child, env=os.environ | kill_behind_local_commit, check=False).returncode
    if ended != -signal.SIGKILL:
        raise SystemExit(f"the child was to be killed, but it ended with {ended}")
    demo.deliver()
    story.moment("killed")
    demo.run("check-back")
    story.moment("checked back")
    story.end("Nobody was left to decide. Check-back found the evidence in bank_a and committed: nothing is lost.")


@contextmanager
def embedded_database() -> Iterator[EmbeddedServer]:
    """Give the embedded database, and stop it only if it did not run before."""
    server = EmbeddedServer.from_env(os.environ)
    was_running = server.status().running
    try:
        yield server.ensure()
    finally:
        if not was_running:
            server.stop()


def main() -> int:
    """Run the three transfers; 0 when debits equal credits."""
    os.environ.pop("TXSAGA_URL", None)  # the demo brings its own database
    logging.getLogger("txsaga").setLevel(logging.ERROR)  # the tables tell it
    with embedded_database() as server:
        demo = Demo(server, secrets.token_hex(3))
        demo.open_accounts()
        for show in (good_transfer, refused_transfer, killed_transfer):
            show(demo)
        a, b = demo.balances()
        demo.close()
    debits, credits = 5 * AMOUNT - a, b
    equal = debits == credits == 2 * AMOUNT
    screen.print(f"debits {debits:,} {'=' if equal else '≠'} credits {credits:,}", style="green" if equal else "red")
    return 0 if equal else 1


def transfer_alone(id: str, account: str) -> None:
    """Be the process that is killed."""
    transfer(Demo(EmbeddedServer.from_env(os.environ), account).producer, id, account, AMOUNT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--transfer"]:
        transfer_alone(*sys.argv[2:])
    else:
        sys.exit(main())
