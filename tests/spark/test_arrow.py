"""Chunks as Arrow batches hold what a consumer reads, whatever is absent and wherever reading begins."""

from datetime import UTC, datetime

import pytest

from txsaga.core.layout import lay_out_columns
from txsaga.core.records import LogEntry
from txsaga.spark.stored import MOST, arrow_batches

BORN = datetime(2025, 3, 3, tzinfo=UTC)
Texts = list[str | None] | None


def entry(base: int, bodies: list[bytes], key: Texts = None, tag: Texts = None) -> LogEntry:
    return LogEntry(base, len(bodies), 1, 1, 1, 0, BORN, lay_out_columns(bodies, key=key, tag=tag))


ENTRIES = [
    entry(0, [b"a", b"", b"ccc"]),
    entry(3, [b"d", b"e"], key=["k", "ö"], tag=["t", "t"]),
    entry(5, [b"f", b"g", b"h"], key=[None, "", "x"], tag=[None, None, "even"]),
    entry(8, [bytes([number]) for number in range(20)], key=[None if n % 3 else str(n) for n in range(20)]),
]
ROWS = [
    (at, body, key, tag)
    for at, (body, key, tag) in enumerate(
        [
            (b"a", None, None),
            (b"", None, None),
            (b"ccc", None, None),
            (b"d", "k", "t"),
            (b"e", "ö", "t"),
            (b"f", None, None),
            (b"g", "", None),
            (b"h", "x", "even"),
            *((bytes([n]), None if n % 3 else str(n), None) for n in range(20)),
        ]
    )
]


@pytest.mark.parametrize("start", [0, 1, 4, 6, 15])
@pytest.mark.parametrize("end", [28, 27, 19, 17])
def test_a_batch_shows_the_messages_from_one_offset_up_to_another(start: int, end: int) -> None:
    entries = [each for each in ENTRIES if each.behind > start and each.base < end]
    (found,) = arrow_batches(entries, 5, start, end)
    assert found.column("queue").to_pylist() == [5] * (end - start)
    columns = [found.column(name).to_pylist() for name in ("offset", "body", "key", "tag")]
    assert list(zip(*columns, strict=True)) == ROWS[start:end]
    found.validate(full=True)


def test_batches_stay_small_enough() -> None:
    big = [entry(at, [bytes(MOST // 2)]) for at in range(5)]
    found = list(arrow_batches(big, 0, 0, 5))
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(5))
