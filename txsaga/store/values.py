"""
Values of the hot path in PostgreSQL's binary format; an array takes one `struct` call.

The driver's own list dumper handles every element in Python; these values are encoded already, so a batch of
hundreds of bodies costs one join.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar
from uuid import UUID

_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _FLOAT8 = 16, 17, 20, 21, 23, 25, 701
_HEADER = struct.Struct(">iiiii")


class Value(bytes):
    """The encoded bytes of a value of some type."""

    oid: ClassVar[int]


class Int4(Value):
    """One int4."""

    oid = _INT4


class Int8(Value):
    """One int8."""

    oid = _INT8


class Bool(Value):
    """One bool."""

    oid = _BOOL


class Bytes(Value):
    """One bytea."""

    oid = _BYTEA


class Uuid(Value):
    """One uuid."""

    oid = 2950


class Int4Array(Value):
    """One int4[]."""

    oid = 1007


class Int8Array(Value):
    """One int8[]."""

    oid = 1016


class Text(Value):
    """One text."""

    oid = _TEXT


class TextArray(Value):
    """One text[]."""

    oid = 1009


class Float8(Value):
    """One float8."""

    oid = _FLOAT8


class Float8Array(Value):
    """One float8[]."""

    oid = 1022


class BoolArray(Value):
    """One bool[]."""

    oid = 1000


class BytesArray(Value):
    """One bytea[]."""

    oid = 1001


@lru_cache(maxsize=1024)  # groups, queues, decisions: the same few values recur
def int4(value: int) -> Int4:
    """Encode int4."""
    return Int4(value.to_bytes(4, "big", signed=True))


def int4_or_null(value: int | None) -> Int4 | None:
    """Encode int4 or NULL."""
    return None if value is None else int4(value)


def int8(value: int) -> Int8:
    """Encode int8."""
    return Int8(value.to_bytes(8, "big", signed=True))


def uuid(value: UUID) -> Uuid:
    """Encode uuid."""
    return Uuid(value.bytes)


def text(value: str) -> Text:
    """Encode text."""
    return Text(value.encode())


def float8(value: float) -> Float8:
    """Encode float8."""
    return Float8(struct.pack(">d", value))


def int4_array(values: Sequence[int]) -> Int4Array:
    """Encode int4[] of any length."""
    return Int4Array(_fixed(_INT4, "i", 4, values))


def int8_array(values: Sequence[int]) -> Int8Array:
    """Encode int8[] of any length."""
    return Int8Array(_fixed(_INT8, "q", 8, values))


def text_array(values: Sequence[str]) -> TextArray:
    """Encode text[] of any length."""
    return TextArray(_varying(_TEXT, [value.encode() for value in values]))


def bytea_array(values: Sequence[bytes]) -> BytesArray:
    """Encode bytea[] of any length."""
    return BytesArray(_varying(_BYTEA, values))


def float8_array(values: Sequence[float]) -> Float8Array:
    """Encode float8[] of any length."""
    return Float8Array(_fixed(_FLOAT8, "d", 8, values))


def bool_array(values: Sequence[bool]) -> BoolArray:
    """Encode bool[] of any length."""
    return BoolArray(_fixed(_BOOL, "?", 1, values))


def texts(values: Sequence[str]) -> Text | TextArray:
    """Encode a column of text."""
    if len(values) == 1:
        return text(values[0])
    return text_array(values)


def int4s(values: Sequence[int]) -> Int4 | Int4Array:
    """Encode a column of int4: a plain value if it has one row."""
    return int4(values[0]) if len(values) == 1 else int4_array(values)


def int4s_or_null(values: Sequence[int | None]) -> Int4 | Int4Array | None:
    """Encode a column of int4 that may hold NULL."""
    if len(values) == 1:
        return int4_or_null(values[0])
    return Int4Array(_nullable(_INT4, ">ii", 4, values))


def float8s_or_null(values: Sequence[float | None]) -> Float8 | Float8Array | None:
    """Encode a column of float8 that may hold NULL."""
    if len(values) == 1:
        return None if values[0] is None else float8(values[0])
    return Float8Array(_nullable(_FLOAT8, ">id", 8, values))


def int8s(values: Sequence[int]) -> Int8 | Int8Array:
    """Encode a column of int8."""
    return int8(values[0]) if len(values) == 1 else int8_array(values)


def bools(values: Sequence[bool]) -> Bool | BoolArray:
    """Encode a column of bool."""
    return Bool(b"\x01" if values[0] else b"\x00") if len(values) == 1 else BoolArray(_fixed(_BOOL, "?", 1, values))


def byteas(values: Sequence[bytes]) -> Bytes | BytesArray:
    """Encode a column of bytea."""
    return Bytes(values[0]) if len(values) == 1 else bytea_array(values)


def _varying(oid: int, values: Sequence[bytes]) -> bytes:
    pieces = [_HEADER.pack(1, 0, oid, len(values), 1)]
    for value in values:
        pieces += (len(value).to_bytes(4, "big"), value)
    return b"".join(pieces)


def _nullable(oid: int, layout: str, size: int, values: Sequence[float | None]) -> bytes:
    pieces = [b"\xff\xff\xff\xff" if value is None else struct.pack(layout, size, value) for value in values]
    return _HEADER.pack(1, 1, oid, len(pieces), 1) + b"".join(pieces)


def _fixed(oid: int, code: str, size: int, values: Sequence[float]) -> bytes:
    flat: list[float] = [size] * (2 * len(values))
    flat[1::2] = values
    return struct.pack(f">iiiii{('i' + code) * len(values)}", 1, 0, oid, len(values), 1, *flat)
