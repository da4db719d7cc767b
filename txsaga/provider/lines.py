"""
The lines of a driver as they come into its file, told in the log of whichever task waits for it.

A task that joins a driver tells them from the first. Without it the driver works all the same, and nobody sees how far
it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Lines:
    """One file that is written to."""

    def __init__(self, place: Path, log: Any) -> None:
        self.place, self.last = place, ""
        self._log, self._begun = log, ""
        self._file = place.open(encoding="utf-8", errors="replace")

    def show(self, *, rest: bool = False) -> None:
        """Tell what was added; with `rest` a line that has no end too."""
        *whole, self._begun = (self._begun + self._file.read()).split("\n")
        if rest and self._begun:
            whole, self._begun = [*whole, self._begun], ""
        for line in whole:
            self.last = line.rstrip() or self.last
            self._log.info("%s", line.rstrip())

    def close(self) -> None:
        """Read no more."""
        self._file.close()
