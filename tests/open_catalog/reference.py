"""Iceberg's reference server of the REST protocol: Jetty before a JdbcCatalog in a SQLite file, in a folder of its own.

`python -m tests.open_catalog.reference` starts one, prints its URL and stops it when its input ends.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.open_catalog.kit import VERSION, env, java
from tests.services.free_port import free_port

START_SECONDS = 30


@contextmanager
def reference_server(version: str = VERSION, **settings: str) -> Iterator[str]:
    """Start a server, give its URL and stop it; `settings` are environment variables, as `CATALOG_IO__IMPL`."""
    with tempfile.TemporaryDirectory(prefix="txsaga-reference-", ignore_cleanup_errors=True) as home:
        port, folder = free_port(), Path(home)
        own = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": f"{folder}/warehouse"}
        own |= {"CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db", "CATALOG_NAME": "reference", **settings}
        command = [*java(version, f"-Djava.io.tmpdir={folder}"), "org.apache.iceberg.rest.RESTCatalogServer"]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**env(), **own}
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, folder / "output")
            yield url
        finally:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], output: Path) -> None:
    """Return once the server answers."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/v1/config", timeout=5).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the reference server did not start:\n{output.read_text()[-2000:]}") from None
            time.sleep(0.05)
        else:
            return


def main() -> None:
    """Start the version of the command line, and keep it until the input ends."""
    with reference_server(*sys.argv[1:2]) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
