"""
The gate process: it imports Great Expectations and answers questions one at a time.

A question is a folder whose path arrives as a line on standard input. The answer is a file in that folder and one byte
on standard output; all other output goes to standard error. The process ends with its parent, even in the middle of a
question, or after `IDLE` seconds without one.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import traceback
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

IDLE = 600.0
"""Seconds without a question after which the process ends, to free its memory."""


class GateJudge(Thread):
    """The thread that answers questions, while the main thread watches for the end of the parent."""

    def __init__(self, answers: int) -> None:
        super().__init__(daemon=True)
        self._answers = answers
        self.questions: SimpleQueue[Path] = SimpleQueue()
        self.busy = False

    def run(self) -> None:
        """Answer questions; on any error end the process, so that no caller waits for an answer."""
        try:
            self._answer()
        finally:
            traceback.print_exc()
            os._exit(1)  # the parent sees that the process has ended

    def _answer(self) -> None:
        from txsaga.gate.judging import answer

        while True:
            folder = self.questions.get()
            found = answer(pickle.loads((folder / "question").read_bytes()))
            (folder / "answer.json").write_text(json.dumps(found, default=str), "utf-8")
            self.busy = False
            os.write(self._answers, b".")


def main() -> None:
    """Read questions until the parent ends or none arrive."""
    judge = GateJudge(os.dup(1))
    os.dup2(2, 1)  # libraries print to standard output
    judge.start()
    held = b""
    while True:
        if not select.select([0], [], [], IDLE)[0]:
            if judge.busy:
                continue
            break
        said = os.read(0, 65_536)
        if not said:
            break
        held += said
        *lines, held = held.split(b"\n")
        for line in lines:
            judge.busy = True
            judge.questions.put(Path(line.decode()))
    os._exit(0)  # at once: nothing is left to read an answer


if __name__ == "__main__":
    main()
