"""
The supervisor process. `txsaga airflow up` puts everything it needs into its environment.

When the database comes back on another port, the addresses given to the parts are wrong: the supervisor stops the
parts and restarts itself with the right ones.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from txsaga.airflow_host.environment import EMBEDDED, STORE_OF_HOST
from txsaga.airflow_host.home import AirflowHome
from txsaga.airflow_host.parts import AirflowPart
from txsaga.airflow_host.running import METADATA, Host
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError
from txsaga.provider.host import parent
from txsaga.provider.host.supervisor import Supervisor

logger = logging.getLogger("txsaga")
LOOKS = 2.0
"""Seconds between two checks of the database."""
CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


class Database:
    """The embedded database that all parts use, restarted when it dies."""

    def __init__(self, home: AirflowHome, supervisor: Supervisor) -> None:
        self._home, self._supervisor = home, supervisor
        self._server = EmbeddedServer.from_env(os.environ)
        self._next = time.monotonic() + LOOKS

    def look(self) -> None:
        """Restart the database if it died; restart the supervisor if its address has changed."""
        if time.monotonic() < self._next:
            return
        try:
            self._server.ensure(timeout=30)
        except EmbeddedDatabaseError as failure:
            logger.error("the database does not run: %s", failure)
        else:
            if self._address() != os.environ[CONNECTION]:
                self._begin_anew()
        self._next = time.monotonic() + LOOKS

    def _address(self) -> str:
        return self._server.url(METADATA)

    def _begin_anew(self) -> None:
        logger.warning("the database came back at another address; all parts are started again")
        self._supervisor.end()
        keys = self._home.keys()
        assert keys is not None
        embedded = os.environ.get(STORE_OF_HOST) == EMBEDDED
        store = None if embedded else os.environ.get("TXSAGA_URL")
        settings = Host(self._home, self._server).settings(store, keys, os.environ)
        os.execve(sys.executable, [sys.executable, "-m", "txsaga.provider.host"], settings)


def run(part: AirflowPart) -> int:
    """Run a part until it ends."""
    if part.is_airflow:
        return parent.become(part)
    os.execv(sys.executable, [sys.executable, "-m", "txsaga.cli", *part.command[1:]])


def main() -> int:
    """Import Airflow, migrate its database, run the parts."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    home = AirflowHome.from_env({**os.environ, "TXSAGA_AIRFLOW_HOME": os.environ["AIRFLOW_HOME"]})
    supervisor = Supervisor(home, run)
    supervisor.tell("importing Airflow")
    parent.load()
    if not parent.is_migrated(os.environ[CONNECTION]):
        supervisor.tell("preparing Airflow's database")
        parent.migrate()
    supervisor.watch(Database(home, supervisor).look)
    return 0


if __name__ == "__main__":
    sys.exit(main())
