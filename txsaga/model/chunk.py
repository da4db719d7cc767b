"""
The columnar layout of a chunk: up to some hundred records in one stored value.

    16 bytes  version u8, columns u8, reserved u16, records u32, CRC-32 u32, reserved u32
     8 bytes  one kind per column: 0 all absent, 1 all present, 2 some absent
    then per column that is not absent, each piece padded to 8 bytes:
              [validity bitmap, least significant bit first, kind 2 only]
              i32 offsets[records + 1], the joined bytes

The checksum covers the first 8 bytes and all that follows the header. Everything is little-endian, so a
plain Python reader needs `struct` and `memoryview` alone and a columnar library wraps the same bytes
without copying. If the checksum were not verified, a torn page would be delivered as a message.
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
"""Of what the records hold, in one chunk."""

_HEADER = struct.Struct("<BBHIII")
_SIZE = struct.Struct("<i")
_SPAN = struct.Struct("<ii")  # the offsets of a column of one
_PADDING = [bytes(size) for size in range(8)]
_COUNTS = struct.Struct("<BBHI")  # the part of the header that the checksum covers
_ABSENT, _ALL, _SOME = 0, 1, 2

Column = Sequence[bytes | None] | None
"""One value per record, or None where the whole column is absent."""


def encode(columns: Sequence[Column]) -> bytes:
    """Lay the columns out; the first one, the bodies, is always there."""
    body = columns[BODY]
    if body is None:
        raise ValueError("a chunk has bodies")
    kinds, pieces = bytearray(len(COLUMNS)), [b""]
    for at, column in enumerate(columns):
        if column is not None:
            if len(column) != len(body):
                raise ValueError(f"column {COLUMNS[at]} has {len(column)} values for {len(body)} bodies")
            kinds[at] = _write(column, pieces)
    return _sealed(len(body), kinds, pieces)


def encode_one(record: Sequence[bytes | None]) -> bytes:
    """Lay out a chunk of one record: most chunks are."""
    kinds, pieces = bytearray(len(COLUMNS)), [b""]
    for at, value in enumerate(record):
        if value is not None:
            kinds[at] = _ALL
            pieces += (_SPAN.pack(0, len(value)), value, _PADDING[-len(value) % 8])
    return _sealed(1, kinds, pieces)


def encode_raw(count: int, columns: Mapping[int, tuple[bytes, bytes]]) -> bytes:
    """Lay out columns that have a value for each record and lie as a chunk keeps them: offsets from 0, joined bytes."""
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
    """Cut records of these sizes into runs that one chunk each may hold: not too many, not too much."""
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


def _checked(view: memoryview) -> int:
    """Make sure that a chunk is what was written; return the number of its records."""
    if len(view) < _HEADER.size + 8:
        raise ChunkDamaged("a stored chunk is cut short; restore it from a backup")
    version, columns, _, count, checksum, _ = _HEADER.unpack_from(view)
    if version != VERSION or columns != len(COLUMNS):
        raise StoreError(f"a stored chunk has layout {version}/{columns}; a newer txsaga wrote it")
    if crc32(view[_HEADER.size :], crc32(view[: _COUNTS.size])) != checksum:
        raise ChunkDamaged("a stored chunk does not match its checksum; restore it from a backup")
    return int(count)


def only_record(stored: bytes) -> list[bytes | None]:
    """Read the columns of a chunk of one record: what was sent alone lies alone, and readers read little else."""
    _checked(memoryview(stored))
    kinds = stored[_HEADER.size : _HEADER.size + len(COLUMNS)]
    if _SOME in kinds:  # of one record, only another writer may say so
        return [None if column is None else column[0] for column in map(Chunk(stored).column, range(len(COLUMNS)))]
    values: list[bytes | None] = [None] * len(COLUMNS)
    begin = _HEADER.size + len(COLUMNS) + 8
    for column in _present(kinds):
        end = begin + _SIZE.unpack_from(stored, begin - 4)[0]
        values[column] = stored[begin:end]
        begin = end + -(end - begin) % 8 + 8  # behind the padding, and the offsets of the next one
    return values


@cache
def _present(kinds: bytes) -> tuple[int, ...]:
    return tuple(column for column, kind in enumerate(kinds) if kind != _ABSENT)


class Chunk:
    """A stored chunk, read column by column."""

    __slots__ = ("_at", "_kinds", "_view", "count")

    def __init__(self, stored: bytes | memoryview) -> None:
        self._view = memoryview(stored)
        self.count = _checked(self._view)
        self._kinds = bytes(self._view[_HEADER.size : _HEADER.size + len(COLUMNS)])
        self._at = self._starts()

    def column(self, at: int, first: int = 0, last: int | None = None) -> list[bytes] | list[bytes | None] | None:
        """Read a column, or its records from `first` up to `last`, as a list of bytes; None where it is absent."""
        kind, start = self._kinds[at], self._at[at]
        if kind == _ABSENT:
            return None
        offsets = self._offsets(at, first, self.count if last is None else last)
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
        end = self._offsets(at, 0, self.count)[-1]
        bitmap = self._view[start - _room((self.count + 7) // 8) : start] if kind == _SOME else None
        return bitmap, self._view[start : start + 4 * (self.count + 1)], self._view[start + room :][:end]

    def _offsets(self, at: int, first: int, last: int) -> array[int]:
        start = self._at[at]
        offsets = array("i", bytes(self._view[start + 4 * first : start + 4 * (last + 1)]))
        if sys.byteorder == "big":
            offsets.byteswap()
        return offsets

    def _starts(self) -> list[int]:
        """Where each column's offsets begin."""
        starts, at = [], _HEADER.size + _room(len(COLUMNS))
        for kind in self._kinds:
            if kind == _SOME:
                at += _room((self.count + 7) // 8)
            starts.append(at)
            if kind != _ABSENT:
                (end,) = struct.unpack_from("<i", self._view, at + 4 * self.count)
                at += _room(4 * (self.count + 1)) + _room(end)
        return starts


def _room(size: int) -> int:
    return size + -size % 8
