"""
The description of the protocol, as the official Python client publishes it: `python -m tests.gateway.published`.

It writes `txsaga/gateway/rocketmq.binpb`; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from rocketmq.grpc_protocol import definition_pb2, service_pb2

PLACE = Path(__file__).parents[2] / "txsaga" / "gateway" / "rocketmq.binpb"


def published() -> bytes:
    """Return the files of the description, each after those that it uses."""
    found = FileDescriptorSet()
    for module in (duration_pb2, timestamp_pb2, definition_pb2, service_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.file.append(file)
    return bytes(found.SerializeToString(deterministic=True))


if __name__ == "__main__":
    PLACE.write_bytes(published())
