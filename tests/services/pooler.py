"""A PgBouncer of its own in front of a test database: what stands between programs and servers in many places.

Own folder, own port; runs as `nobody` when the tests run as root. It is gone with its block.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from tests.services.absent import ci_or_skip
from tests.services.free_port import free_port

INSTALL_LINE = "apt-get install -y --no-install-recommends pgbouncer"
START_SECONDS = 30


@contextmanager
def pooled(url: str, mode: str, *, passing: str = "") -> Iterator[str]:
    """Give a URL that leads to a database through a pooler; start-up parameters in `passing` are dropped by it."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        ci_or_skip("PgBouncer", INSTALL_LINE)
    server, port = make_url(url), free_port()
    account = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="txsaga-pooler-") as folder:
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n{server.database} = host={server.host} port={server.port} user={server.username}"
            f" password={server.password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"auth_type = any\nunix_socket_dir =\npool_mode = {mode}\nignore_startup_parameters = {passing}\n"
        )
        if account:
            for path in (folder, config):
                shutil.chown(path, account)
        log = Path(folder) / "log"
        with (
            log.open("wb") as out,
            subprocess.Popen([program, str(config)], stdout=out, stderr=out, user=account) as process,
        ):
            try:
                _await(process, port, log)
                yield server.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
            finally:
                process.kill()


def _await(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PgBouncer did not start:\n{log.read_text('utf-8', errors='replace')}") from None
        time.sleep(0.05)
