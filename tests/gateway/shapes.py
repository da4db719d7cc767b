"""Requests of the protocol with anything in their fields, by its description, for hypothesis."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from txsaga.gateway import wire

STRANGE = st.sampled_from(["", "%R%", "a b", "\0", "ü", "(" * 99, "x" * 300])
EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["news", "orders", "lines", "later", "readers", "nowhere"]) | STRANGE,
    "resource_namespace": st.sampled_from([*[""] * 9, "here"]),
    "expression": st.sampled_from(["", "*", "a || b", "|", "a > 1 OR NOT b IS NULL", "a > 1 AND (b"]) | STRANGE,
    "seconds": st.sampled_from([0, 1, 30, *EDGES]),
    "nanos": st.sampled_from([0, 1, 999_999_999, -(2**31)]),
    "id": st.sampled_from([0, 0, 1, -1, 2**31 - 1]),
}
NEEDED = ("group", "message_queue", "topic")
"""What must often be right, or nothing behind it is reached."""
DEEPEST = 4
"""Messages within each other."""


@st.composite
def requests(draw: st.DrawFn, name: str) -> Any:
    """Return what makes messages of a type."""
    return wire.new(name, **draw(_fields(wire.new(name).DESCRIPTOR, DEEPEST)))


@cache
def _fields(descriptor: Descriptor, depth: int) -> st.SearchStrategy[Any]:
    found = {field.name: _value(field, depth) for field in descriptor.fields if depth or field.message_type is None}
    always = {name: made for name, made in found.items() if name in LIKELY or name in NEEDED}
    return st.fixed_dictionaries(always, optional={name: found[name] for name in found.keys() - always})


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(STRANGE, STRANGE, max_size=3)
    one = _one(field, depth)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _one(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return _fields(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([99, *(value.number for value in field.enum_type.values)])
    kinds: dict[int, st.SearchStrategy[Any]] = {FieldDescriptor.TYPE_STRING: STRANGE}
    kinds |= {FieldDescriptor.TYPE_BYTES: st.binary(max_size=20), FieldDescriptor.TYPE_BOOL: st.booleans()}
    bound = 2**31 if field.type == FieldDescriptor.TYPE_INT32 else 2**63
    edges = st.sampled_from([each for each in EDGES if -bound <= each < bound])
    return LIKELY.get(field.name, kinds.get(field.type, edges))
