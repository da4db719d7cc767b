"""A letter that is replayed while its group is moved or expires is a letter, or comes: never lost, nor stranded."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import event

from tests.contracts.claiming import GROUP, buried, filled, taken
from tests.contracts.samples import PATIENCE
from tests.scene.stored import Stored
from txsaga.consume.claim import Policy, Style
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.req("IBM-63")]
BLOCKED = 0.3
"""Seconds behind which whoever replays waits for a lock."""
STATEMENTS = 9

Work = Callable[[Store, int], object]
WORKS: dict[str, Work] = {
    "reset": lambda store, qid: store.queues.reset(GROUP, {qid: 1}),
    "leave": lambda store, qid: store.queues.forget(GROUP, [qid]),
    "expire": lambda store, _: store.groups.expire(),
}


@pytest.mark.parametrize("nth", range(1, STATEMENTS))
@pytest.mark.parametrize("name", WORKS)
def test_a_letter_is_replayed_behind_each_statement_of_what_empties_its_group(
    store: Store, stored: Stored, home_url: str, name: str, nth: int
) -> None:
    qid = filled(store, "a")
    store.groups.open(GROUP, Style.WORK, Policy(expires=timedelta(hours=1)))
    buried(store, taken(store, qid))
    (letter,) = store.dead_letters.list(GROUP, 10)
    stored.rows("UPDATE consumer_group SET seen = now() - interval '1 day'")
    replays: list[Future[int]] = []
    with ThreadPoolExecutor(1) as thread, closing(open_store(home_url)) as rival:

        def replay() -> None:
            replays.append(thread.submit(rival.dead_letters.replay, [letter.id]))
            try:
                replays[0].result(BLOCKED)
            except TimeoutError:
                return

        with behind(store, nth, replay):
            WORKS[name](store, qid)
        replayed = [each.result(PATIENCE) for each in replays]
    letters, claims = (int(stored.value(f"SELECT count(*) FROM {table}")) for table in ("dead_letter", "claim"))
    assert letters + claims == 1
    assert claims == 0 or store.groups.find(GROUP) is not None
    assert replayed in ([], [0], [1])
    assert replayed != [1] or claims == 1 or name != "expire"


class behind:
    """Do something behind the nth statement of a store."""

    def __init__(self, store: Store, nth: int, work: Callable[[], None]) -> None:
        self._engine, self._left, self._work = store.engine, nth, work

    def __enter__(self) -> None:
        event.listen(self._engine, "after_cursor_execute", self._count)

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "after_cursor_execute", self._count)

    def _count(self, *_: object) -> None:
        self._left -= 1
        if not self._left:
            self._work()
