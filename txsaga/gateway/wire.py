"""
The protocol's messages, in a descriptor pool of their own.

They are made from the published description in `rocketmq.binpb`. The default pool is left alone: the official Python
client registers the same names there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
_POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(files("txsaga.gateway").joinpath("rocketmq.binpb").read_bytes()).file:
    _POOL.AddSerializedFile(_file.SerializeToString())

SERVICE: ServiceDescriptor = _POOL.FindServiceByName(f"{PACKAGE}.MessagingService")


def new(name: str, **fields: object) -> Any:  # generated at run time: its fields have no static type
    """Make a message."""
    return _class(name)(**fields)


def read(name: str, written: bytes) -> Any:
    """Read a message; `DecodeError` for bytes that are none."""
    return _class(name).FromString(written)


@cache
def _class(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def number(enum: str, name: str) -> int:
    """Return the number of a value of an enumeration."""
    return int(_POOL.FindEnumTypeByName(f"{PACKAGE}.{enum}").values_by_name[name].number)


def name(enum: str, number: int) -> str:
    """Return the name of a value of an enumeration, or its number if it is not known here."""
    known = _POOL.FindEnumTypeByName(f"{PACKAGE}.{enum}").values_by_number
    return str(known[number].name) if number in known else str(number)


def span(duration: Any) -> timedelta:
    """Read a duration; one that is too long for us is our longest."""
    try:
        return timedelta(seconds=duration.seconds, microseconds=duration.nanos // 1000)
    except OverflowError:
        return timedelta.max if duration.seconds > 0 else timedelta.min


def moment(timestamp: Any) -> datetime:
    """Read a point in time; `ValueError` for one that no calendar has."""
    try:
        return datetime.fromtimestamp(timestamp.seconds, UTC) + timedelta(microseconds=timestamp.nanos // 1000)
    except (OverflowError, OSError) as odd:
        raise ValueError("it is no point in time") from odd


def in_parts(seconds: float) -> dict[str, int]:
    """Return seconds as the fields of a duration, or of a point in time."""
    whole = int(seconds // 1)
    return {"seconds": whole, "nanos": round((seconds - whole) * 1_000_000) * 1000}
