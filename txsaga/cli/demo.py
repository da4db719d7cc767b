"""
`txsaga demo`: three bank transfers on a PostgreSQL of their own, two of them killed in the middle.

Each transfer is one transaction: a row in each of two databases, and a message. It runs in a process of its own, which
is killed at a fact; this process then does what an engine does. The user's own store is left alone. If the demo itself
is killed, its server runs until the next demo ends.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_data
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.options import options_of
from txsaga.cli.printing import fields, say, table
from txsaga.config import KILL, OBSERVERS, PG_HOME, RESOURCE, Settings
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError
from txsaga.inspect.drawing import picture
from txsaga.inspect.timeline import TimelineKind, TimelinePhase, TimelineStep, in_order
from txsaga.store import sql_files

if TYPE_CHECKING:
    from txsaga.embedded.server import EmbeddedServer

SQL = sql_files.read("cli/sql/demo.sql")
PAGE = Template((get_data("txsaga", "cli/demo.html") or b"").decode())
ABOUT = "Anna has 100.00 in bank_a. A transfer moves 25.00 to Bert in bank_b and sends a message, in one transaction."
COLUMNS = ("moment", "Anna in bank_a", "Bert in bank_b", "message")
TRANSFERS = (
    ("A transfer", "", "One row, the decision COMMIT, made both changes and the message visible."),
    ("Killed before the decision", "Closed:3", "There was no decision, so recovery rolled everything back."),
    ("Killed after the decision", "Decided:1", "The decision was COMMIT, so recovery finished the transfer."),
)
"""Title, the fact at which the process is killed, and why it ends as it does."""
BALANCES = {"bank_a": 10_000, "bank_b": 0}
STEPS = {"bank_a": ("debit", -2_500), "bank_b": ("credit", 2_500)}
LEASE = timedelta(seconds=1)  # a process that is silent for this long counts as dead; the default is an hour
ROUNDS = 500
SEEN = partial(TimelineStep, kind=TimelineKind.NONE, phase=TimelinePhase.AFTER)  # a step that no row shows


def demo(
    context: typer.Context,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page in a browser.")] = False,
    html: Annotated[Path, typer.Option(metavar="FILE", help="File for the page.")] = Path("txsaga-demo.html"),
    airflow: Annotated[bool, typer.Option("--airflow", help="Run transfers as an Airflow DAG instead.")] = False,
) -> None:
    """Run three bank transfers in databases of their own, kill two of them, and show the recovery."""
    from txsaga.embedded.server import EmbeddedServer

    options, place = options_of(context), html.resolve()
    if options.url is not None or options.namespace is not None or options.json:
        raise ConfigError("the demo runs in databases of its own; leave out --url, --namespace and --json")
    if airflow:
        raise typer.Exit(run_examples())
    if not options.debug:
        logging.getLogger("txsaga").setLevel(logging.ERROR)  # recovery is what is shown
    user = EmbeddedServer.from_env(Settings.from_env(os.environ).embedded)
    home = user.home.with_name(f"{user.home.name}-demo")
    server = EmbeddedServer(home=home, binaries=user.binaries, account=user.account)
    place.write_text(PAGE.substitute(about=escape(ABOUT), sections="\n".join(run_transfers(server))), "utf-8")
    folder = shlex.quote(str(home))
    there = f"{PG_HOME.name}={folder} txsaga"
    fields({"page": place.as_uri(), "look": f"{there} tx list", "remove": f"{there} db stop && rm -r {folder}"})
    if not no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(place.as_uri())


def run_examples() -> int:
    """Run transfers on the library, then as a DAG in an Airflow that keeps running; return the exit code."""
    examples = [Path("examples", name) for name in ("bank_transfer.py", "airflow_demo.py")]
    if not all(each.exists() for each in examples):
        raise ConfigError("--airflow runs examples of the source code; run it in a checkout of txsaga")
    if find_spec("airflow") is None:
        raise ConfigError("--airflow needs Airflow; pip install 'txsaga[airflow]'")
    codes = (subprocess.run([sys.executable, each], check=False).returncode for each in examples)
    return next(filter(None, codes), 0)


def run_transfers(server: EmbeddedServer) -> Iterator[str]:
    """Run and print the transfers one by one; yield the sections of the page. The server is stopped at the end."""
    say(f"{ABOUT}\n")
    try:
        banks = BankDemo(server.ensure())
        for title, kill, why in TRANSFERS:
            moments, steps = banks.run(kill)
            say(f"{title}\n")
            table(COLUMNS, moments)
            say(f"\n{why}\n")
            yield _section(title, why, COLUMNS, moments, steps)
        banks.broker.close()
    finally:
        server.stop()


def transfer(run: str, key: str) -> None:
    """Print the number of a transaction, and do it in three steps. This is the process that is killed."""
    from txsaga.wiring.connecting import connect

    with connect(roles=False) as broker, broker.producer("demo").begin_flow(*STEPS, key=key, lease=LEASE) as flow:
        os.write(1, str(flow.txid).encode())
        for bank, (name, cents) in STEPS.items():
            with flow.step(name, on=bank) as connection:
                connection.exec_driver_sql(SQL["change_account"], {"run": run, "cents": cents})
        with flow.step("message"):
            flow.send(f"transfers-{run}", b"25.00 from Anna to Bert", key=key)
        flow.end()


class BankDemo:
    """The banks of one run, and the broker between them; what a run names, it names after itself."""

    def __init__(self, server: EmbeddedServer) -> None:
        from sqlalchemy import NullPool, create_engine

        from txsaga.wiring.connecting import connect

        self._run = secrets.token_hex(3)
        urls = {bank: server.database(bank).url(bank) for bank in STEPS}
        self._env = {name: text for name, text in os.environ.items() if not name.startswith("TXSAGA_")}
        self._env |= {f"{RESOURCE}{bank.upper()}": url for bank, url in urls.items()} | {PG_HOME.name: str(server.home)}
        self.broker = connect(roles=False, env=self._env)
        topic = self.broker.create_topic(f"transfers-{self._run}", "transaction", queues=1)
        self._stream = self.broker.stream("demo", [topic.name])
        self._banks = {bank: create_engine(url, poolclass=NullPool) for bank, url in urls.items()}
        for bank, engine in self._banks.items():
            with engine.begin() as connection:
                connection.exec_driver_sql(SQL["create_account"])
                connection.exec_driver_sql(SQL["open_account"], {"run": self._run, "cents": BALANCES[bank]})

    def run(self, kill: str) -> tuple[Sequence[Sequence[str]], Sequence[TimelineStep]]:
        """Run a transfer and recover it if it is killed; return what a reader sees, and the durable steps."""
        moments, steps = [self._look("before", "none")], list[TimelineStep]()
        txid = self._start(kill)
        if kill:
            steps.append(SEEN("kill -9", lane="process", at=datetime.now(UTC)))
            moments.append(self._look("after kill -9", "hidden"))
            steps.append(SEEN("recovery begins", lane="process", at=datetime.now(UTC)))
        steps += self._settled(txid)
        moments.append(self._look("after recovery" if kill else "after", "dropped"))
        if moments[-1][-1] != "dropped":
            steps.append(SEEN("a consumer reads the message", lane="consumer", at=datetime.now(UTC)))
        return moments, in_order(steps)

    def _start(self, kill: str) -> int:
        """Run a process that does a transfer, to its end or until it is killed; return the transaction's number."""
        killing = {OBSERVERS.name: "txsaga.testing.kill:observer", KILL.name: kill} if kill else {}
        call = [sys.executable, "-m", __name__, self._run, f"transfer-{secrets.token_hex(3)}"]
        done = subprocess.run(call, env=self._env | killing, capture_output=True, text=True, check=False)
        if done.returncode != (-signal.SIGKILL if kill else 0):
            raise RuntimeError(f"a transfer ended with {done.returncode}: {done.stderr}")
        return int(done.stdout)

    def _settled(self, txid: int) -> Sequence[TimelineStep]:
        """Do an engine's work until a transaction is decided, finished in both banks, and delivered if it commits."""
        from txsaga.checkback.profile import CheckProfile
        from txsaga.inspect.timeline_steps import steps_of

        roles = self.broker.roles(CheckProfile(min_age=timedelta(0)))
        for _ in range(ROUNDS):
            for role in roles:
                role.run_once()
            trace = self.broker.kernel.store.overview.trace(txid)
            if trace and trace.decision and not any(branch.unfinished for branch in trace.branches):
                if trace.given or trace.decision is Decision.ROLLBACK:
                    return steps_of(trace)
            time.sleep(0.05)
        raise RuntimeError(f"transaction {txid} is not settled")

    def _look(self, moment: str, unread: str) -> Sequence[str]:
        """Return a row of what a reader sees: no moment shows half a transfer. `unread` is shown without a message."""
        cents = list[int]()
        for engine in self._banks.values():
            with engine.connect() as connection:
                cents.append(connection.exec_driver_sql(SQL["account"], {"run": self._run}).scalar_one())
        if sum(cents) != sum(BALANCES.values()):
            raise RuntimeError(f"the accounts hold {sum(cents)} cents instead of {sum(BALANCES.values())}")
        read = [message.text() for message in self._stream.messages(wait=0)]
        return (moment, *(f"{each / 100:.2f}" for each in cents), ", ".join(read) or unread)


if __name__ == "__main__":
    transfer(*sys.argv[1:])


def _section(
    title: str, why: str, columns: Sequence[str], rows: Sequence[Sequence[str]], steps: Sequence[TimelineStep]
) -> str:
    listed = [(str(number), each.what, each.why) for number, each in enumerate(steps, 1)]
    return (
        f"<h2>{escape(title)}</h2><p>{escape(why)}</p>{_html_table(columns, rows)}{picture(steps)}"
        f"<details open><summary>Steps</summary>{_html_table(('step', 'what', 'why'), listed)}</details>"
    )


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
