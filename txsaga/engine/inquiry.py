"""
Finding out about many transactions in one round, each with an answer of its own.

Evidence is read together; barriers are written one by one, since one local transaction that still runs would hold up
all others (R10), by as many threads as the database stands. Only plain halves go there: of a keyed transaction its row
is read first, by the round itself. It decides nothing; what it fenced and nobody heard of is found by the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

from txsaga.engine.case import Case
from txsaga.engine.judge import Judge, Verdict
from txsaga.errors import StoreError
from txsaga.ports.store import Store

TOGETHER = 32
"""Cases that are fenced before the round looks at its time again."""


class Inquiry:
    """The questions of one round to evidence."""

    def __init__(self, store: Store, judge: Judge) -> None:
        self._store, self._judge = store, judge
        self._opened = ExitStack()
        self._threads: dict[int, ThreadPoolExecutor] = {}

    def __enter__(self) -> Self:
        """Use it for one round."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the fences that are under way finish."""
        self._opened.close()

    def verdicts(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Callable[[], Verdict]]]:
        """Read the evidence of all, and give each with a way to its verdict."""
        self._judge.look(cases)
        for start in range(0, len(cases), TOGETHER):
            some = cases[start : start + TOGETHER]
            self._show([case for case in some if case.seen is not None and not case.seen.committed])
            yield from [(case, self._begun(case)) for case in some]

    def _begun(self, case: Case) -> Callable[[], Verdict]:
        seen, know = case.seen, partial(self._judge.know, case)
        if case.doubt.keyed or seen is None or seen.outcome is not None or seen.unread is not None:
            return know
        at_once = self._judge.fences_at_once(seen.resource)
        if at_once == 1:
            return know
        if seen.resource not in self._threads:
            self._threads[seen.resource] = self._opened.enter_context(ThreadPoolExecutor(at_once, "txsaga-fence"))
        return self._threads[seen.resource].submit(know).result

    def _show(self, cases: Sequence[Case]) -> None:
        """Read the halves of those that will be told of, together."""
        if cases:
            with suppress(StoreError):  # then each is read when somebody needs it
                views = self._store.halves.views_of([case.doubt.txid for case in cases])
                for case in cases:
                    case.halves = views.get(case.doubt.txid, ())
