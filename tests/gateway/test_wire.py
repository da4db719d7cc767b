"""The description of the protocol is the published one, and strange bytes on the wire get an answer."""

from __future__ import annotations

import gc
from functools import partial

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.calling import SERVICE, RawClient
from tests.gateway.published import PLACE, published
from txsaga.gateway import wire
from txsaga.gateway.status import Code


def test_the_description_is_the_published_one() -> None:
    assert PLACE.read_bytes() == published()


def test_each_code_has_the_number_of_the_protocol() -> None:
    assert {each.name: wire.number("Code", each.name) for each in Code} == {each.name: each.value for each in Code}


def _written(fields: list[tuple[int, int, bytes]]) -> bytes:
    """Write fields as the wire has them, with any bytes inside."""
    found = b""
    for number, kind, inner in fields:
        found += _varint(number << 3 | kind)
        found += {
            0: _varint(len(inner) << 7),
            1: inner[:8].ljust(8),
            2: _varint(len(inner)) + inner,
            5: inner[:4].ljust(4),
        }[kind]
    return found


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


FIELDS = st.recursive(
    st.binary(max_size=40),
    lambda inner: st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0, 1, 2, 5]), inner), max_size=4).map(
        _written
    ),
    max_leaves=12,
)


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # roles in other threads use it
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(sorted(m.name for m in wire.SERVICE.methods if not m.server_streaming)), body=FIELDS)
def test_any_bytes_get_an_answer_of_one_line(
    gateway: str, caplog: pytest.LogCaptureFixture, name: str, body: bytes
) -> None:
    with grpc.insecure_channel(gateway) as channel:
        answer = partial(wire.read, wire.SERVICE.methods_by_name[name].output_type.name)
        call = channel.unary_unary(f"{SERVICE}/{name}", response_deserializer=answer)
        status = call(body, metadata=[("x-mq-client-id", "fuzz@1")], timeout=30).status
    assert status.code not in (Code.INTERNAL_SERVER_ERROR, 0), status
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.postgres
def test_a_client_that_goes_away_leaves_nothing(gateway: str) -> None:
    for _ in range(20):
        with RawClient(gateway) as client, client.connected("orders") as told:
            told.get(timeout=20)
    gc.collect()
    from txsaga.gateway.clients import ConnectedClient

    assert sum(isinstance(each, ConnectedClient) for each in gc.get_objects()) <= 2
