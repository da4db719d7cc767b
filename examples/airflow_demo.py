"""
The bank transfer as an Airflow DAG: one that goes well, one that fails, one whose task is killed in the middle.

    python examples/airflow_demo.py         starts an Airflow of its own, leaves it running for you to look at

Three databases take part: a current account, a mortgage, and an audit whose lane commits while the flow is still open.
Whatever happens, both accounts and the message share one fate, and no cent is lost. Stop it with `make demo-stop`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import Engine, create_engine, text

import txsaga
from txsaga import EmbeddedServer
from txsaga.airflow_host import processes
from txsaga.airflow_host.home import LOGIN, AirflowHome, Keys
from txsaga.airflow_host.rest import Airflow
from txsaga.errors import HostFailed

DAGS = Path(__file__).parents[1] / "dags"
BANKS = ("bank_current", "bank_mortgage", "bank_audit")
TXSAGA = (sys.executable, "-m", "txsaga.cli")
PATIENCE = 180.0
TASK = re.compile(r"airflow worker -- (?!LocalExecutor)")
"""How Airflow names a process that runs a task."""
SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = 'bank_current'"
screen = Console(highlight=False)


class Demo:
    """A running Airflow, and the databases of the bank."""

    def __init__(self) -> None:
        self.server = EmbeddedServer.from_env(os.environ).ensure()
        self.banks: dict[str, Engine] = {}
        for name in BANKS:
            url = self.server.database(name).url(name)
            os.environ[f"TXSAGA_RESOURCE_{name.upper()}"] = url  # for the tasks, and for whoever recovers
            self.banks[name] = create_engine(url)
        with txsaga.connect(roles=False, answering=False) as broker:
            broker.create_topic("transfers", "transaction")
        self.home = AirflowHome.from_env()
        self.keys = self._up()
        self.api = Airflow(self.keys.url(login=True))

    def _up(self) -> Keys:
        subprocess.run([*TXSAGA, "airflow", "up", "--dags", str(DAGS)], check=True, stdout=subprocess.DEVNULL)
        keys = self.home.keys()
        assert keys is not None
        return keys

    def start(self, dag: str, **params: object) -> str:
        """Trigger a run as soon as its DAG is known."""
        body = {"logical_date": None, "conf": params}
        return str(until(lambda: self.api.ask("POST", f"dags/{dag}/dagRuns", body))["dag_run_id"])

    def end_of(self, dag: str, run: str) -> str:
        """Wait for the end of a run."""

        def ended() -> str | None:
            found = self.api.run(dag, run) or {}
            return found["state"] if found.get("state") in ("success", "failed") else None

        return str(until(ended))

    def cents(self) -> int:
        """Count what both banks hold."""
        return sum(int(self.ask(bank, "SELECT coalesce(sum(cents), 0) FROM account") or 0) for bank in BANKS[:2])

    def ask(self, bank: str, question: str) -> Any:  # whatever a column holds
        """Ask a database of the bank."""
        with self.banks[bank].connect() as connection:
            return connection.execute(text(question)).scalar()


def until(found: Callable[[], Any]) -> Any:  # what is found
    """Look until there is something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if what := found():
                return what
        except HostFailed:
            pass
        if time.monotonic() > deadline:
            raise SystemExit("Airflow did not get on with it: look at `txsaga airflow status`")
        time.sleep(0.2)


def show(run: str, title: str, state: str) -> None:
    """Show what became of the transaction of a run."""
    views = json.loads(subprocess.run([*TXSAGA, "tx", "list", "--json"], check=True, capture_output=True).stdout)
    txid = next((view["txid"] for view in views if view["key"] == run), None)
    screen.rule(f"{title}: run {state}")
    if txid is not None:
        subprocess.run([*TXSAGA, "tx", "show", str(txid)], check=True)


def good(demo: Demo) -> None:
    """Show a transfer that goes well."""
    run = demo.start("bank_transfer", cents=2500)
    show(run, "1. A good transfer", demo.end_of("bank_transfer", run))


def failing(demo: Demo) -> None:
    """Show a transfer that fails after its audit was committed."""
    run = demo.start("bank_transfer", cents=2500, fault="after the audit")
    show(run, "2. A step fails: the audit stays, nothing else", demo.end_of("bank_transfer", run))


def killed(demo: Demo) -> None:
    """Show a transfer whose task is killed while it works."""
    run = demo.start("bank_transfer", cents=2500, pause=30)
    until(lambda: demo.ask("bank_current", SLEEPING))
    victims = [found.pid for found in processes.processes(demo.home) if TASK.match(command(found.pid))]
    for pid in victims:
        processes.tell(pid, signal.SIGKILL)
    screen.print(f"kill -9 {' '.join(map(str, victims))}: the debit was under way")
    show(run, "3. kill -9 in the middle of the debit", demo.end_of("bank_transfer", run))


def command(pid: int) -> str:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def main() -> int:
    """Run the three transfers; 0 when no cent is lost."""
    os.environ.pop("TXSAGA_URL", None)  # the demo brings its own database
    demo = Demo()
    demo.end_of("bank_open", demo.start("bank_open"))
    before = demo.cents()
    for part in (good, failing, killed):
        part(demo)
    fees = before - demo.cents()
    screen.rule()
    screen.print(f"of {before} cents {fees} went for fees: one transfer of three is there, and all of it")
    screen.print(f"look at it: {demo.keys.url()}  login: {LOGIN}  password: {demo.keys.password}")
    screen.print("stop it: make demo-stop")
    return 0 if fees == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
