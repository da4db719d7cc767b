"""
The gate's own process: it imports Great Expectations, and answers one question after the other.

A question is a folder, named by a line of the standard input; its answer is a file in there, and one byte. Whatever
else is said goes to the error stream. It ends with its parent, whatever it is at, or when nobody asks any more.
"""

from __future__ import annotations

import json
import os
import select
import traceback
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

IDLE = 600.0
"""Seconds after which it is not worth its memory."""


class GateJudge(Thread):
    """Judges beside the thread that watches for the parent."""

    def __init__(self, answers: int) -> None:
        super().__init__(daemon=True)
        self._answers = answers
        self.questions: SimpleQueue[Path] = SimpleQueue()
        self.busy = False

    def run(self) -> None:
        """Answer what is asked; without an answer nobody must be kept waiting."""
        try:
            self._answer()
        except BaseException:  # noqa: BLE001  # its parent is told by the end of the process
            traceback.print_exc()
            os._exit(1)

    def _answer(self) -> None:
        from txsaga.gate.judging import answer

        while True:
            folder = self.questions.get()
            found = answer(json.loads((folder / "question.json").read_text("utf-8")))
            (folder / "answer.json").write_text(json.dumps(found, default=str), "utf-8")
            self.busy = False
            os.write(self._answers, b".")


def main() -> None:
    """Take questions until nobody asks."""
    judge = GateJudge(os.dup(1))
    os.dup2(2, 1)  # libraries print
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
    os._exit(0)  # at once: nobody is there to read an answer


if __name__ == "__main__":
    main()
