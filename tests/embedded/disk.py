"""A program that fills a small disk around a server and prints, as JSON, what it was told.

It mounts a tmpfs over the given folder, so it must run in a mount namespace of its own (`unshare -m`).
"""

import json
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.embedded.statements import execute
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError

FILLER = "filler"


def mount(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    options = f"size={megabytes}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "txsaga-test", folder], check=True)


def complaint_of(server: EmbeddedServer) -> str:
    try:
        server.ensure()
    except EmbeddedDatabaseError as error:
        return str(error)
    return "started"


def fill(folder: Path) -> None:
    with (folder / FILLER).open("wb", buffering=0) as filler:
        try:
            while filler.write(b"\0" * 65536):
                pass
        except OSError:
            return


def silence(log: Path) -> None:
    """Fill the log's last block, so that it can't even tell why nothing works."""
    with log.open("ab", buffering=0) as file:
        try:
            while file.write(b"\n"):
                pass
        except OSError:
            return


def first_start(folder: Path) -> dict[str, object]:
    """Have no room for a data folder."""
    mount(folder, 20)
    line = complaint_of(EmbeddedServer(home=folder))
    return {"line": line, "left": sorted(path.name for path in folder.glob("data*"))}


def later_start(folder: Path) -> dict[str, object]:
    """Have no room when the server comes back, then have room again."""
    mount(folder, 150)
    server = EmbeddedServer(home=folder).ensure()
    try:
        execute(server, "create table kept as select 42 as n")
        server.stop()
        fill(folder)
        silence(folder / "log")
        line = complaint_of(server)
        (folder / FILLER).unlink()
        return {"line": line, "rows": execute(server.ensure(), "select n from kept")}
    finally:
        server.stop()


def move_to_another_port(folder: Path) -> dict[str, object]:
    """Have no room to write the new port down."""
    mount(folder, 150)
    server = EmbeddedServer(home=folder).ensure()
    try:
        execute(server, "create table kept as select 42 as n")
        server.stop()
        fill(folder)
        before = (folder / "pgpass").read_text()
        with socket.socket() as taken:
            with suppress(OSError):  # somebody else on this machine has it already
                taken.bind(("127.0.0.1", server.status().port or 0))
            line = complaint_of(server)
        assert (folder / "pgpass").read_text() == before
        (folder / FILLER).unlink()
        return {"line": line, "rows": execute(server.ensure(), "select n from kept")}
    finally:
        server.stop()


def running_server(folder: Path) -> dict[str, object]:
    """Run out of room while the server works, then have room again."""
    mount(folder, 150)
    server = EmbeddedServer(home=folder).ensure()
    try:
        execute(server, "create table kept as select 42 as n")
        fill(folder)
        server.stop("immediate")
        line = complaint_of(server)
        (folder / FILLER).unlink()
        return {"line": line, "rows": execute(server.ensure(), "select n from kept")}
    finally:
        server.stop()


SCENES = {scene.__name__: scene for scene in (first_start, later_start, move_to_another_port, running_server)}

if __name__ == "__main__":
    print(json.dumps(SCENES[sys.argv[1]](Path(sys.argv[2]))))
