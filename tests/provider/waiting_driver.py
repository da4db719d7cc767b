"""
A driver without Spark: it does a step as one with a session does, once it may.

    python -m tests.provider.waiting_driver TXID STEP FOLDER LINES

It notes in FOLDER when it begins, and goes on when there is a file `go`; with a file `fail` it fails.
"""

import os
import sys
import time
from argparse import Namespace
from pathlib import Path

import txsaga
from txsaga.flows.flow import Flow
from txsaga.spark.application import StepTaken, detached

TOPIC = "told"
STEP = "work"


def say(line: str) -> None:
    """Tell a line."""
    print(line, flush=True)


def main(txid: str, step: str, place: str, lines: str) -> int:
    """Do the step."""
    folder = Path(place)

    def program(flow: Flow) -> object:
        flow.send(TOPIC, str(os.getpid()).encode())
        with (folder / "begun").open("a") as begun:
            begun.write(f"{os.getpid()}\n")
        say(f"driver {os.getpid()} waits")
        while not (folder / "go").exists():
            if (folder / "fail").exists():
                raise RuntimeError("it was told to fail")
            time.sleep(0.02)
        say(f"driver {os.getpid()} goes on")
        return {"rows": 3}

    said = Namespace(step=step, detached=Path(lines), max_result=1000)
    with txsaga.connect(roles=False, answering=False) as broker, broker.flow(int(txid)) as flow:
        try:
            detached(flow, lambda: program(flow), said, f"app-{os.getpid()}", say)
        except StepTaken as taken:
            say(str(taken))
            return 75
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
