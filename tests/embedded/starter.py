"""A program that makes sure the server of a home runs and prints what came of it, as JSON.

Started as root with `--user` it becomes that user after its imports: the interpreter itself may lie below a
folder that only root can enter.
"""

import argparse
import json
import os
from pathlib import Path

from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import EmbeddedDatabaseError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--user", type=int)
    parser.add_argument("--binaries", type=Path)
    wanted = parser.parse_args()
    if wanted.user is not None:
        become(wanted.user)
    print(json.dumps(outcome(EmbeddedServer(home=wanted.home, binaries=wanted.binaries))))


def become(user: int) -> None:
    os.chdir("/")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def outcome(server: EmbeddedServer) -> dict[str, object]:
    """Start the server; an error that is not one of ours ends the program with its traceback."""
    try:
        status = server.ensure(timeout=60).status()
    except EmbeddedDatabaseError as error:
        return {"error": str(error)}
    return {"pid": status.pid, "port": status.port}


if __name__ == "__main__":
    main()
