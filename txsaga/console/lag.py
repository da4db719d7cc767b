"""
How far behind consumer groups were in the last hour, as far as this console has watched.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from txsaga.errors import TxSagaError

if TYPE_CHECKING:
    from txsaga.console.home import Home

PACE, KEPT = 10.0, 360
WIDTH, HEIGHT = 120, 24


class LagHistory:
    """Asks every ten seconds, in a thread of its own."""

    def __init__(self, home: Home) -> None:
        self._home, self._stop = home, threading.Event()
        self._kept: defaultdict[tuple[str, str], deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="txsaga-console-lag", daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()

    def look(self) -> None:
        """Note how far every group is behind now."""
        for reading in self._home.broker.kernel.store.overview.readings():
            self._kept[reading.group, reading.topic].append(reading.lag)

    def pictures(self) -> Mapping[tuple[str, str], str]:
        """Return a small picture for each group and topic."""
        return {place: spark(list(lags)) for place, lags in list(self._kept.items())}

    def _run(self) -> None:
        while not self._stop.wait(PACE):
            with suppress(TxSagaError):  # the store is away; the pages say so
                self.look()


def spark(values: Sequence[int]) -> str:
    """Draw values as a line, the newest at the right."""
    top = max(values, default=0) or 1
    step = WIDTH / max(len(values) - 1, 1)
    line = " ".join(f"{at * step:.1f},{HEIGHT - 2 - (HEIGHT - 4) * value / top:.1f}" for at, value in enumerate(values))
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="between {min(values, default=0)} and {max(values, default=0)}"><polyline points="{line}"/></svg>'
    )
