"""A chunk gives back what was laid out, or says that it is damaged; it never gives back anything else."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_char
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.columns import CHUNKS
from txsaga.core.chunk import BODY, COLUMNS, KEY, MAX_BYTES, MAX_RECORDS, TAG, Chunk, Column, encode, pieces
from txsaga.errors import StoreError

Values = list[list[bytes | None] | None]


def laid_out(columns: Sequence[Column]) -> Values:
    """Return what a reader must find: a column without any value is as good as absent."""
    return [_some(column) for column in columns]


def found(chunk: Chunk) -> Values:
    return [None if (column := chunk.column(at)) is None else list(column) for at in range(len(COLUMNS))]


def _some(column: Column) -> list[bytes | None] | None:
    if column is None or (column and all(value is None for value in column)):
        return None
    return list(column)


@given(CHUNKS)
def test_every_column_comes_back_as_it_was(columns: list[Column]) -> None:
    chunk = Chunk(encode(columns))
    assert chunk.count == len(columns[BODY] or [])
    for at, column in enumerate(laid_out(columns)):
        if chunk.count or at == BODY:
            assert found(chunk)[at] == column


@given(CHUNKS)
def test_a_chunk_reads_the_same_from_any_buffer(columns: list[Column]) -> None:
    stored = encode(columns)
    held = bytearray(b"frame" + stored)
    assert found(Chunk(memoryview(held)[5:])) == found(Chunk(stored))


@given(CHUNKS)
def test_the_raw_buffers_hold_the_same_values(columns: list[Column]) -> None:
    chunk = Chunk(encode(columns))
    for at in range(len(COLUMNS)):
        raw, column = chunk.raw(at), chunk.column(at)
        assert (raw is None) == (column is None)
        if raw is not None and column is not None:
            assert values_of(*raw) == list(column)


def values_of(bitmap: memoryview | None, offsets: memoryview, data: memoryview) -> list[bytes | None]:
    """Read a column from its buffers alone, as a columnar library would."""
    ends = [int.from_bytes(offsets[at : at + 4], "little") for at in range(0, len(offsets), 4)]
    values = [bytes(data[a:b]) for a, b in pairwise(ends)]
    return [value if bitmap is None or bitmap[at // 8] >> at % 8 & 1 else None for at, value in enumerate(values)]


@given(CHUNKS)
def test_the_layout_is_a_function_of_the_values(columns: list[Column]) -> None:
    assert encode(columns) == encode([None if column is None else list(column) for column in columns])


@given(CHUNKS)
def test_every_buffer_starts_on_a_multiple_of_eight(columns: list[Column]) -> None:
    stored = bytearray(encode(columns))
    chunk, first = Chunk(memoryview(stored)), address(memoryview(stored))
    assert len(stored) % 8 == 0
    for at in range(len(COLUMNS)):
        for piece in chunk.raw(at) or ():
            assert not piece or (address(piece) - first) % 8 == 0


def address(piece: memoryview) -> int:
    """Return where a buffer lies in memory."""
    return addressof(c_char.from_buffer(piece))


@pytest.mark.parametrize("at", range(1, len(COLUMNS)))
def test_a_column_with_a_value_too_few_or_too_many_is_refused(at: int) -> None:
    for column in ([b"x"], [b"x"] * 3, []):
        columns: list[Column] = [None] * len(COLUMNS)
        columns[BODY], columns[at] = [b"a", b"b"], column
        with pytest.raises(ValueError, match=f"column {COLUMNS[at]} has {len(column)} values for 2 bodies"):
            encode(columns)


@settings(max_examples=300)
@given(CHUNKS, st.data())
def test_a_changed_byte_is_never_taken_for_a_message(columns: list[Column], data: st.DataObject) -> None:
    stored = bytearray(encode(columns))
    expected = found(Chunk(bytes(stored)))
    at = data.draw(st.integers(min_value=0, max_value=len(stored) - 1))
    stored[at] ^= data.draw(st.integers(min_value=1, max_value=255))
    assert read_or_refused(bytes(stored)) in (None, expected)


@given(CHUNKS, st.data())
def test_a_chunk_that_is_cut_short_or_too_long_is_refused(columns: list[Column], data: st.DataObject) -> None:
    stored = encode(columns)
    kept = data.draw(st.integers(min_value=0, max_value=len(stored) - 1))
    with pytest.raises(StoreError):
        Chunk(stored[:kept])
    with pytest.raises(StoreError):
        Chunk(stored + data.draw(st.binary(min_size=1, max_size=16)))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_chunk_are_refused(stored: bytes) -> None:
    with pytest.raises(StoreError):
        Chunk(stored)


def read_or_refused(stored: bytes) -> Values | None:
    """Return what a chunk holds, or None when it says that it is damaged."""
    try:
        return found(Chunk(stored))
    except StoreError:
        return None


@pytest.mark.parametrize("offset", [0, 1, 4, 5, 6, 7])
def test_damage_in_the_header_is_found(offset: int) -> None:
    stored = bytearray(encode([[b"a", b"b"], [b"k", None]]))
    stored[offset] ^= 1
    with pytest.raises(StoreError):
        Chunk(bytes(stored))


def test_a_chunk_of_a_newer_layout_is_told_apart_from_damage() -> None:
    stored = bytearray(encode([[b"a"]]))
    stored[0] += 1
    with pytest.raises(StoreError, match="newer txsaga"):
        Chunk(bytes(stored))


def test_bodies_are_required() -> None:
    with pytest.raises(ValueError, match="bodies"):
        encode([None, [b"k"]])


def test_a_full_chunk_comes_back() -> None:
    bodies = [f"body {n}".encode() * (n % 7) for n in range(MAX_RECORDS)]
    keys = [None if n % 3 else str(n).encode() for n in range(MAX_RECORDS)]
    chunk = Chunk(encode([bodies, keys]))
    assert chunk.column(BODY) == bodies
    assert chunk.column(KEY) == keys
    assert chunk.column(TAG) is None


@given(
    st.lists(st.integers(min_value=0, max_value=MAX_BYTES + 1), max_size=40), st.integers(min_value=0, max_value=1200)
)
def test_records_are_cut_into_runs_that_are_neither_too_many_nor_too_much(big: list[int], small: int) -> None:
    sizes = [*big, *[3] * small, *big]
    runs = list(pieces(sizes))
    assert [at for run in runs for at in run] == list(range(len(sizes)))
    for run in runs:
        assert 1 <= len(run) <= MAX_RECORDS
        assert len(run) == 1 or sum(sizes[at] for at in run) <= MAX_BYTES
    for run, after in pairwise(runs):  # none is shorter than it must be
        assert len(run) == MAX_RECORDS or sum(sizes[at] for at in run) + sizes[after[0]] > MAX_BYTES
