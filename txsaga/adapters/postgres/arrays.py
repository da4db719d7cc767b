"""
Arrays for the hot path, laid out in PostgreSQL's binary form by one `struct` call each.

The driver's own list dumper walks every element in Python; these values carry finished bytes, so a batch of
hundreds of bodies costs one join.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

INT4, INT8, BOOL, BYTEA = 23, 20, 16, 17
_HEADER = struct.Struct(">iiiii")


class _Array(bytes):
    """Finished bytes of an array value."""


class Int4Array(_Array):
    """Finished bytes of int4[]."""


class Int8Array(_Array):
    """Finished bytes of int8[]."""


class BoolArray(_Array):
    """Finished bytes of bool[]."""


class BytesArray(_Array):
    """Finished bytes of bytea[]."""


def int4s(values: Sequence[int]) -> Int4Array:
    """Lay out int4[]."""
    return Int4Array(_fixed(INT4, "i", 4, values))


def int4s_or_null(values: Iterable[int | None]) -> Int4Array:
    """Lay out int4[] that may hold NULL."""
    pieces = [b"\xff\xff\xff\xff" if v is None else struct.pack(">ii", 4, v) for v in values]
    return Int4Array(_HEADER.pack(1, 1, INT4, len(pieces), 1) + b"".join(pieces))


def int8s(values: Sequence[int]) -> Int8Array:
    """Lay out int8[]."""
    return Int8Array(_fixed(INT8, "q", 8, values))


def bools(values: Sequence[bool]) -> BoolArray:
    """Lay out bool[]."""
    return BoolArray(_fixed(BOOL, "?", 1, values))


def byteas(values: Sequence[bytes]) -> BytesArray:
    """Lay out bytea[]."""
    pieces = [_HEADER.pack(1, 0, BYTEA, len(values), 1)]
    for value in values:
        pieces += (len(value).to_bytes(4, "big"), value)
    return BytesArray(b"".join(pieces))


def _fixed(oid: int, code: str, size: int, values: Sequence[int]) -> bytes:
    flat = [size] * (2 * len(values))
    flat[1::2] = values
    return struct.pack(f">iiiii{('i' + code) * len(values)}", 1, 0, oid, len(values), 1, *flat)


class _Finished(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        return bytes(obj)


def _dumper(array_oid: int) -> type[_Finished]:
    return type("FinishedArray", (_Finished,), {"oid": array_oid})


_DUMPERS = {
    Int4Array: _dumper(1007),
    Int8Array: _dumper(1016),
    BoolArray: _dumper(1000),
    BytesArray: _dumper(1001),
}


def register(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection these arrays."""
    for kind, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)
