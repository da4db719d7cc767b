"""
The gateway beside RocketMQ, by the same programs of the official Go client: `python -m tests.gateway.beside`.

`speed` commits transactions with 1, 16 and 64 callers, `checks` lets ends and checks race. Each is run on two gateways
and an engine, and on a RocketMQ that flushes each write; speed alternates between the two, and medians are printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import txsaga
from tests.services.embedded import embedded_server
from tests.services.free_port import free_port
from tests.services.rocketmq import rocketmq_server
from txsaga.wiring.connecting import open_store

PROGRAMS = Path(__file__).parent / "clients"
TOPIC = "orders"
CALLERS = (1, 16, 64)
CHECKED = {"transactionCheckInterval": 1000, "transactionTimeOut": 2000, "transactionCheckMax": 1000}
SECONDS = 600


def built(program: str, folder: Path) -> Path:
    """Build a Go program; its modules are those that `.ci/clients` fetched."""
    subprocess.run(["go", "build", "-C", PROGRAMS, "-mod=readonly", "-o", folder / program, f"./{program}"], check=True)
    return folder / program


def ran(program: Path, address: str, *words: object) -> str:
    """Run a program on an address, and return what it prints."""
    command = [str(program), address, TOPIC, *map(str, words)]
    home = {**os.environ, "HOME": str(program.parent)}  # the client logs there
    return subprocess.run(command, env=home, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()


@contextmanager
def ours() -> Iterator[str]:
    """Start a store, two gateways on one port, and an engine that checks after two seconds."""
    with embedded_server() as server, ExitStack() as parts:
        server.database("home")
        url, port = server.url("home"), free_port()
        open_store(url).close()
        with txsaga.connect(url, roles=False, env={}) as broker:
            broker.create_topic(TOPIC, "transaction", queues=4)
        gateway = ["gateway", "--port", str(port), "--share-port"]
        engine = ["engine", "--check-interval", "1", "--max-checks", "1000", "--min-age", "2"]
        for words in (gateway, gateway, engine):
            command = [sys.executable, "-m", "txsaga.cli", *words]
            process = subprocess.Popen(command, env={**os.environ, "TXSAGA_URL": url}, stdout=subprocess.DEVNULL)
            parts.callback(process.wait)
            parts.callback(process.kill)
        time.sleep(6)
        yield f"127.0.0.1:{port}"


def measure_speed(program: Path, addresses: dict[str, str], rounds: int) -> None:
    """Print transactions a second, and their 50th and 99th percentile in milliseconds."""
    found = defaultdict[tuple[int, str], list[list[float]]](list)
    for _ in range(rounds):
        for callers in CALLERS:
            for name, address in addresses.items():
                found[callers, name].append([float(each) for each in ran(program, address, callers, 5).split()])
    for (callers, name), each in found.items():
        print(f"{callers} callers, {name}: {[round(median(column), 1) for column in zip(*each, strict=True)]}")


def main() -> None:
    """Compare."""
    words = argparse.ArgumentParser()
    words.add_argument("program", choices=("speed", "checks"))
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--number", type=int, default=10_000)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder, ours() as here, rocketmq_server(**CHECKED) as there:
        there.topic(TOPIC, "TRANSACTION")
        program, addresses = built(given.program, Path(folder)), {"txsaga": here, "RocketMQ": there.endpoint}
        if given.program == "speed":
            measure_speed(program, addresses, given.rounds)
        else:
            for name, address in addresses.items():
                print(f"{name}: {ran(program, address, given.number, 256)}")


if __name__ == "__main__":
    main()
