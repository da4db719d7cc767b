"""Notes of what became of branches, which wait for each other."""

from __future__ import annotations

import time
from collections.abc import Sequence

from txsaga.flows import batches as notes
from txsaga.flows.batches import OutcomeWriter
from txsaga.flows.branch import BranchEvent
from txsaga.flows.requests import BranchOutcome


def note(txid: int) -> BranchOutcome:
    return BranchOutcome(txid, 1, 1, BranchEvent.COMMIT)


def numbers(batches: Sequence[Sequence[BranchOutcome]]) -> list[list[int]]:
    return [[each.txid for each in batch] for batch in batches]


def test_a_flush_writes_what_waited_when_it_began_and_leaves_the_rest_to_the_next() -> None:
    written: list[list[BranchOutcome]] = []

    def write(batch: Sequence[BranchOutcome]) -> None:
        written.append(list(batch))
        waiting.add([note(100 + len(written))])  # as others end meanwhile

    waiting = OutcomeWriter(write)
    waiting.add([note(1), note(2)])
    waiting.flush()
    assert numbers(written) == [[1, 2]]
    waiting.flush()
    assert numbers(written) == [[1, 2], [101]]
    waiting.close()


def test_many_are_written_so_many_at_a_time() -> None:
    written: list[list[BranchOutcome]] = []
    waiting = OutcomeWriter(lambda batch: written.append(list(batch)))
    waiting.add(map(note, range(notes.AT_ONCE + 3)))
    waiting.close()
    assert list(map(len, written)) == [notes.AT_ONCE, 3]


def test_they_are_written_in_a_moment_without_being_asked() -> None:
    written: list[list[BranchOutcome]] = []
    waiting = OutcomeWriter(lambda batch: written.append(list(batch)))
    waiting.add([note(1)])
    until = time.monotonic() + 20
    while not written and time.monotonic() < until:
        time.sleep(0.01)
    assert numbers(written) == [[1]]
