"""
The columnar layout of a chunk: up to some hundred records in one stored value.

    16 bytes  version u8, columns u8, reserved u16, records u32, CRC-32 u32, reserved u32
     8 bytes  one kind per column: 0 all absent, 1 all present, 2 some absent
    then per column that is not absent, each piece padded to 8 bytes:
              [validity bitmap, least significant bit first, kind 2 only]
              i32 offsets[records + 1], the joined bytes

The checksum covers the first 8 bytes and everything after the header. Everything is little-endian, so a plain Python
reader needs only `struct` and `memoryview`, and a columnar library wraps the same bytes without copying. If the
checksum were not verified, a torn page would be delivered as a message.

A correct checksum proves only that the bytes are what some writer wrote. So everything read here is verified first:
stored bytes yield the exact values or `ChunkDamaged`, nothing else.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from zlib import crc32

from txsaga.errors import ChunkDamaged, StoreError

VERSION = 1
COLUMNS = ("body", "key", "tag", "headers", "ordering_key", "deliver_at", "persistent", "unique_key")
BODY, KEY, TAG, HEADERS, ORDERING_KEY, DELIVER_AT, PERSISTENT, UNIQUE_KEY = range(len(COLUMNS))
MAX_RECORDS = 500
MAX_BYTES = 8 * 1024 * 1024
"""Of the records' values, in one chunk."""

_HEADER = struct.Struct("<BBHIII")
_SPAN = struct.Struct("<ii")  # the offsets of a column with one value
_PADDING = [bytes(size) for size in range(8)]
_COUNTS = struct.Struct("<BBHI")  # the part of the header that the checksum covers
_ABSENT, _ALL, _SOME = 0, 1, 2
WITHIN_A_LETTER = frozenset(range(0x80, 0xC0))
"""Bytes that never begin a character in UTF-8."""

Column = Sequence[bytes | None] | None
"""One value per record, or None where the whole column is absent."""


def encode(columns: Sequence[Column]) -> bytes:
    """Lay the columns out; the first one, the bodies, is required."""
    if (body := columns[BODY]) is None:
        raise ValueError("a chunk has bodies")
    kinds, pieces = bytearray(len(COLUMNS)), [b""]
    for at, column in enumerate(columns):
        if column is not None:
            if len(column) != len(body):
                raise ValueError(f"column {COLUMNS[at]} has {len(column)} values for {len(body)} bodies")
            kinds[at] = _write(column, pieces)
    return _sealed(len(body), kinds, pieces)


def encode_one(record: Sequence[bytes | None]) -> bytes:
    """Lay out a chunk of one record, as most chunks are."""
    kinds, pieces = bytearray(len(COLUMNS)), [b""]
    for at, value in enumerate(record):
        if value is not None:
            kinds[at] = _ALL
            pieces += (_SPAN.pack(0, len(value)), value, _PADDING[-len(value) % 8])
    return _sealed(1, kinds, pieces)


def encode_raw(count: int, columns: Mapping[int, tuple[bytes, bytes]]) -> bytes:
    """Lay out columns that have a value for each record, in a chunk's own form: offsets from 0, joined bytes."""
    kinds, pieces = bytearray(len(COLUMNS)), [b""]
    for at in sorted(columns):
        kinds[at] = _ALL
        pieces += map(_padded, columns[at])
    return _sealed(count, kinds, pieces)


def _sealed(count: int, kinds: bytearray, pieces: list[bytes]) -> bytes:
    pieces[0] = bytes(kinds)
    rest = b"".join(pieces)
    checksum = crc32(rest, crc32(_COUNTS.pack(VERSION, len(COLUMNS), 0, count)))
    return _HEADER.pack(VERSION, len(COLUMNS), 0, count, checksum, 0) + rest


def _write(column: Sequence[bytes | None], pieces: list[bytes]) -> int:
    kind, values = _ALL, column
    if None in column:
        if not any(value is not None for value in column):
            return _ABSENT
        kind, values = _SOME, [value or b"" for value in column]
        pieces.append(_padded(_bitmap(column)))
    offsets = array("i", accumulate(map(len, values), initial=0))  # type: ignore[arg-type]  # no None is left
    if sys.byteorder == "big":
        offsets.byteswap()
    pieces += [_padded(offsets.tobytes()), _padded(b"".join(values))]  # type: ignore[arg-type]
    return kind


def _bitmap(column: Sequence[bytes | None]) -> bytes:
    bits = sum(1 << at for at, value in enumerate(column) if value is not None)
    return bits.to_bytes((len(column) + 7) // 8, "little")


def _padded(piece: bytes) -> bytes:
    return piece + _PADDING[-len(piece) % 8]


def pieces(sizes: Sequence[int]) -> Iterator[range]:
    """Split records of these sizes into runs that fit one chunk each, by count and by size."""
    if sum(sizes) <= MAX_BYTES:
        yield from (range(at, min(at + MAX_RECORDS, len(sizes))) for at in range(0, len(sizes), MAX_RECORDS))
        return
    first = held = 0
    for at, size in enumerate(sizes):
        if at > first and (at - first == MAX_RECORDS or held + size > MAX_BYTES):
            yield range(first, at)
            first, held = at, 0
        held += size
    yield range(first, len(sizes))


def written_wrong(what: str) -> ChunkDamaged:
    """Return the error for bytes that are intact but hold no valid messages."""
    return ChunkDamaged(f"a stored chunk was written wrong: {what}; have its messages sent again")


def _checked(view: memoryview) -> int:
    """Verify that a chunk is what was written; return the number of its records."""
    if len(view) < _HEADER.size + 8:
        raise ChunkDamaged("a stored chunk is cut short; restore it from a backup")
    version, columns, _, count, checksum, _ = _HEADER.unpack_from(view)
    if version > VERSION:
        raise StoreError(f"a stored chunk has layout {version}/{columns}; a newer txsaga wrote it")
    if crc32(view[_HEADER.size :], crc32(view[: _COUNTS.size])) != checksum:
        raise ChunkDamaged("a stored chunk does not match its checksum; restore it from a backup")
    if version != VERSION or columns != len(COLUMNS):
        raise written_wrong(f"unknown layout {version}/{columns}")
    return int(count)


def only_record(stored: bytes) -> list[bytes | None]:
    """Return the columns of a chunk of one record, the common case: a message sent alone has its own chunk."""
    count, columns = _checked(memoryview(stored)), _present(stored[_HEADER.size : _HEADER.size + len(COLUMNS)])
    if count != 1:
        raise written_wrong(f"it holds {count} messages, and its place is for 1")
    if columns is None:  # another writer may use kind 2 for a single record
        return [None if column is None else column[0] for column in map(Chunk(stored).column, range(len(COLUMNS)))]
    values: list[bytes | None] = [None] * len(COLUMNS)
    end = _HEADER.size + len(COLUMNS)
    try:
        for column in columns:
            first, size = _SPAN.unpack_from(stored, end)
            begin = end + _SPAN.size
            end = begin + size + -size % 8
            if first or size < 0:
                raise written_wrong(f"the offsets of column {COLUMNS[column]} do not rise from 0")
            values[column] = stored[begin : begin + size]
    except struct.error:
        raise written_wrong(CUT) from None
    if end != len(stored):
        raise written_wrong(CUT)
    return values


CUT = "its columns do not fill it"


@cache
def _present(kinds: bytes) -> tuple[int, ...] | None:
    """Return the columns that are present; None if one may lack values, or without bodies."""
    if max(kinds) > _ALL or kinds[BODY] == _ABSENT:
        return None
    return tuple(column for column, kind in enumerate(kinds) if kind != _ABSENT)


@cache
def _texts(kinds: bytes) -> tuple[int, ...]:
    return tuple(at for at in (KEY, TAG, ORDERING_KEY, UNIQUE_KEY) if kinds[at] != _ABSENT)


class Chunk:
    """A stored chunk, read column by column."""

    __slots__ = ("_at", "_kinds", "_offsets", "_view", "count")

    def __init__(self, stored: bytes | memoryview) -> None:
        self._view = memoryview(stored)
        self.count = _checked(self._view)
        self._kinds = bytes(self._view[_HEADER.size : _HEADER.size + len(COLUMNS)])
        self._at: list[int] = []  # where each column's offsets begin
        self._offsets: list[list[int]] = []
        self._look_through()
        if self._kinds[BODY] == _ABSENT or (self._kinds[BODY] == _SOME and None in (self.column(BODY) or ())):
            raise written_wrong("a message has no body")

    def column(self, at: int, first: int = 0, last: int | None = None) -> list[bytes] | list[bytes | None] | None:
        """Return a column, or its records from `first` up to `last`, as a list of bytes; None where it is absent."""
        kind, start = self._kinds[at], self._at[at]
        if kind == _ABSENT:
            return None
        offsets = self._offsets[at][first : (self.count if last is None else last) + 1]
        before, data = offsets[0], start + _room(4 * (self.count + 1))
        joined = bytes(self._view[data + before : data + offsets[-1]])
        values = [joined[a - before : b - before] for a, b in pairwise(offsets)]
        if kind == _ALL:
            return values
        size = _room((self.count + 7) // 8)
        bits = int.from_bytes(self._view[start - size : start], "little") >> first
        return [value if bits >> n & 1 else None for n, value in enumerate(values)]

    def raw(self, at: int) -> tuple[memoryview | None, memoryview, memoryview] | None:
        """Return validity, offsets and data of a column without copying; None where it is absent."""
        kind, start = self._kinds[at], self._at[at]
        if kind == _ABSENT:
            return None
        room = _room(4 * (self.count + 1))
        end = self._offsets[at][-1]
        bitmap = self._view[start - _room((self.count + 7) // 8) : start] if kind == _SOME else None
        return bitmap, self._view[start : start + 4 * (self.count + 1)], self._view[start + room :][:end]

    def require_texts(self) -> None:
        """Verify that each text is UTF-8: each column as a whole decodes, and no value begins within a character."""
        for at in _texts(self._kinds):
            start = self._at[at] + _room(4 * (self.count + 1))
            joined = bytes(self._view[start : start + self._offsets[at][-1]])
            if joined.isascii():
                continue
            try:
                joined.decode()
            except UnicodeDecodeError as reason:
                raise written_wrong(f"column {COLUMNS[at]} is not UTF-8, {reason.reason}") from None
            if not WITHIN_A_LETTER.isdisjoint(map((joined + b" ").__getitem__, self._offsets[at])):
                raise written_wrong(f"column {COLUMNS[at]} is not UTF-8, a value begins within a letter")

    def _look_through(self) -> None:
        """Find the columns, and verify that each lies within the chunk, with offsets that rise from 0."""
        at, size = _HEADER.size + len(COLUMNS), 4 * (self.count + 1)
        for name, kind in zip(COLUMNS, self._kinds, strict=True):
            if kind > _SOME:
                raise written_wrong(f"column {name} is of kind {kind}")
            if kind == _SOME:
                at += _room((self.count + 7) // 8)
            self._at.append(at)
            if kind == _ABSENT:
                self._offsets.append([])
                continue
            if at + size > len(self._view):
                raise written_wrong(CUT)
            offsets = _numbers(bytes(self._view[at : at + size]))
            if offsets[0] or offsets != sorted(offsets):
                raise written_wrong(f"the offsets of column {name} do not rise from 0")
            self._offsets.append(offsets)
            at += _room(size) + _room(offsets[-1])
        if at != len(self._view):
            raise written_wrong(CUT)


def _numbers(stored: bytes) -> list[int]:
    numbers = array("i", stored)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _room(size: int) -> int:
    return size + -size % 8
