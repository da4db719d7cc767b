"""
Prepared statements with numbered parameters, and calls of them with values in PostgreSQL's binary format.

A statement for many rows takes an array per column. For a single row it takes plain values: they cost the server less.
An array takes one `struct` call; the driver's own list dumper would handle every element in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

_HEADER = struct.Struct(">iiiii")


class Value(bytes):
    """The encoded bytes of a value of some type."""

    oid: ClassVar[int]


class Encoder(NamedTuple):
    """How values of one type are encoded."""

    kind: type[Value]
    dump: Callable[[Any], bytes]
    empty: Value | None = None  # an array without elements


def _array(oid: int, dump: Callable[[Any], bytes], code: str, values: Sequence[Any]) -> bytes:
    """Encode an array of any length: `code` is the layout of an element, empty if its length varies."""
    header, size = _HEADER.pack(1, None in values, oid, len(values), 1), struct.calcsize(f">{code}")
    if code and None not in values:
        flat: list[Any] = [size] * (2 * len(values))
        flat[1::2] = values
        return header + struct.pack(f">{('i' + code) * len(values)}", *flat)
    pieces = [header]
    for value in values:
        body = None if value is None else dump(value)
        pieces += (b"\xff\xff\xff\xff",) if body is None else (len(body).to_bytes(4, "big"), body)
    return b"".join(pieces)


def _encoders() -> dict[str, Encoder]:
    found = {}
    scalars: dict[str, tuple[int, int, Callable[[Any], bytes], str]] = {
        "bool": (16, 1000, struct.Struct("?").pack, "?"),
        "bytea": (17, 1001, bytes, ""),
        "int8": (20, 1016, struct.Struct(">q").pack, "q"),
        "int4": (23, 1007, struct.Struct(">i").pack, "i"),
        "text": (25, 1009, str.encode, ""),
        "float8": (701, 1022, struct.Struct(">d").pack, "d"),
        "uuid": (2950, 2951, attrgetter("bytes"), ""),
    }
    for name, (oid, array, dump, code) in scalars.items():
        found[name] = Encoder(type(name, (Value,), {"oid": oid}), dump)
        kind, dump_all = type(f"{name}s", (Value,), {"oid": array}), partial(_array, oid, dump, code)
        found[f"{name}[]"] = Encoder(kind, dump_all, kind(dump_all(())))
    return found


ENCODERS = _encoders()


class StatementCall(NamedTuple):
    """A statement with the values of its numbered parameters."""

    sql: str
    values: Sequence[Value | None] = ()


class PreparedStatement(NamedTuple):
    """A statement and the encoders of its parameters."""

    sql: str
    encoders: Sequence[Encoder]

    @classmethod
    def of(cls, sql: str, types: Sequence[str]) -> Self:
        """Return a statement whose parameters have these types."""
        return cls(sql, [ENCODERS[type] for type in types])

    def call(self, *values: object) -> StatementCall:
        """Return a call with these values."""
        return StatementCall(
            self.sql,
            [
                None if value is None else empty if empty and not value else kind(dump(value))
                for (kind, dump, empty), value in zip(self.encoders, values, strict=True)
            ],
        )


class BatchStatement(NamedTuple):
    """A statement for the rows of a batch: its form for one row and for many."""

    one: PreparedStatement
    many: PreparedStatement

    @classmethod
    def of(
        cls,
        write: Callable[[str], str],
        types: Sequence[str],
        *,
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        write_one: Callable[[str], str] | None = None,
    ) -> Self:
        """Return both forms: `write` is given the SQL of the rows, whose columns have these types.

        Their parameters are numbered after those that come before them.
        """
        numbered = list(enumerate(types, len(before) + 1))
        row = f"(VALUES ({', '.join(f'${number}::{type}' for number, type in numbered)}))"
        rows = f"unnest({', '.join(f'${number}' for number, _ in numbered)})"
        return cls(
            PreparedStatement.of((write_one or write)(row), [*before, *types, *after]),
            PreparedStatement.of(write(rows), [*before, *(f"{type}[]" for type in types), *after]),
        )

    def call(
        self, rows: Sequence[Sequence[object]], before: Sequence[object] = (), after: Sequence[object] = ()
    ) -> StatementCall:
        """Return a call for these rows."""
        if len(rows) == 1:
            return self.one.call(*before, *rows[0], *after)
        return self.many.call(*before, *zip(*rows, strict=True), *after)
