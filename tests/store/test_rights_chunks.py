"""What a producer calls with bytes of its own: the door refuses what is no chunk, and readers get past the rest."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from sqlalchemy import make_url

from tests.cli.conftest import Cli, bare
from tests.core.test_mutated_chunks import mutations, sealed
from tests.store.logins import Logins
from tests.store.opened_as import Open, engine, made, open_as, operator, run_roles
from txsaga.broker import Broker
from txsaga.core import chunk
from txsaga.core.layout import lay_out, lay_out_one
from txsaga.core.message import Message
from txsaga.errors import ChunkDamaged
from txsaga.store.right import Right

__all__ = ["bare", "engine", "made", "open_as", "operator"]

pytestmark = pytest.mark.postgres

ONE, TWO = lay_out_one(Message("news", b"one", key="k")), lay_out([Message("news", b"a"), Message("news", b"b")])
END = 24 + 4  # of the only body
SINGLE = "1::int8, true, {group}, {qid}, 0, %(n)s::int4, NULL::int4, NULL::int4, %(body)s::bytea"
KEYED = (
    "INSERT INTO half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body) "
    "VALUES ({life}, {group}, {qid}, 1, 1, 9, %(n)s, true, %(body)s)"
)
DOORS = {
    "prepare": f"SELECT * FROM prepare({SINGLE})",
    "publish": f"SELECT * FROM publish({SINGLE})",
    "schedule": f"SELECT * FROM schedule({SINGLE}, 1::float8, NULL::float8)",
    "send": "SELECT * FROM send({group}, {qid}, %(n)s::int4, %(body)s::bytea)",
    "half": KEYED,
}


def with_bytes(at: int, new: bytes, stored: bytes = ONE) -> bytes:
    """Change bytes of a chunk, under the right checksum."""
    return sealed(stored[:at] + new + stored[at + len(new) :])


WRONG = {
    "a newer layout": (1, b"\x02" + with_bytes(0, b"\x01")[1:]),
    "no layout": (1, with_bytes(0, b"\0")),
    "more columns": (1, with_bytes(1, b"\x09")),
    "no body": (1, with_bytes(16, b"\0")),
    "another kind of column": (1, with_bytes(17, b"\x03")),
    "another count": (2, ONE),
    "no messages": (0, ONE),
    "more messages than there is room for": (2**31 - 1, with_bytes(4, (2**31 - 1).to_bytes(4, "little"))),
    "an end beyond all": (1, with_bytes(END, (2**31 - 1).to_bytes(4, "little"))),
    "an end before the beginning": (1, with_bytes(END, b"\xff" * 4)),
    "an end behind the last byte": (2, with_bytes(24 + 8, b"\x09", TWO)),
    "too much": (1, sealed(ONE + bytes(8))),
    "too little": (1, sealed(ONE[:-8])),
    "the head alone": (1, ONE[:8]),
    "nothing": (1, b""),
}


class Door:
    """A session of a login that has the producer right alone, and what is its own."""

    def __init__(self, made: Logins, open_as: Open, operator: Broker) -> None:
        login = made.new(Right.PRODUCER)
        broker = open_as(url=made.url_of(login))
        producer = broker.producer("sly", checker=lambda _: None)
        life = producer.transaction(key="k").__enter__()
        life.prepare()
        (qid,) = operator.kernel.store.registry.topic("news").qids
        self.qid = qid
        self.names = {"group": producer.group.id, "qid": qid, "life": life.txid}
        address = make_url(made.url_of(login)).set(drivername="postgresql").difference_update_query(["namespace"])
        self.session = psycopg.connect(address.render_as_string(hide_password=False), autocommit=True)
        self.session.execute(f'SET search_path = "{made.namespace}"')

    def call(self, door: str, n: int, body: bytes) -> None:
        """Call a function, or insert a row."""
        self.session.execute(DOORS[door].format(**self.names), {"n": n, "body": body})


@pytest.fixture
def door(made: Logins, open_as: Open, operator: Broker) -> Door:
    return Door(made, open_as, operator)


def test_what_is_no_chunk_is_refused_at_every_door(door: Door) -> None:
    with closing(door.session):
        for where in DOORS:
            for n, body in WRONG.values():
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    door.call(where, n, body)
            door.call(where, 1, ONE)


def test_the_door_refuses_nothing_that_can_be_read(door: Door) -> None:
    with closing(door.session):
        passed = refused = 0
        for stored in mutations(1_000, seed=3):
            count = int.from_bytes(stored[4:8], "little")
            if count >= 2**31:
                continue
            cursor = door.session.execute("SELECT is_chunk(%s::int4, %s::bytea)", (count, stored))
            (sound,) = cursor.fetchone() or (None,)
            try:
                chunk.Chunk(stored)
            except ChunkDamaged:
                refused += not sound
            else:
                assert sound or not count, stored
                passed += 1
    assert passed > 200 and refused > 100


UNREADABLE = {
    "a key that is no text": chunk.encode_one([b"x", b"\xff", None, None, None, None, None, None]),
    "headers that are no JSON": chunk.encode_one([b"x", None, None, b"{", None, None, None, None]),
    "headers that are no texts": chunk.encode_one([b"x", None, None, b'{"a":1}', None, None, None, None]),
    "half of a letter": chunk.encode_one([b"x", None, None, rb'{"a":"\ud800"}', None, None, None, None]),
    "a checksum that is wrong": ONE[:-1] + b"\1",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_who_reads_gets_past_what_can_not_be_read(
    door: Door, made: Logins, open_as: Open, operator: Broker, engine: Broker, bare: Cli, what: str
) -> None:
    with closing(door.session):
        for body in (ONE, UNREADABLE[what], ONE):
            door.call("publish", 1, body)
    run_roles(engine)
    qid, consumer = door.qid, open_as(Right.CONSUMER)
    with closing(consumer.stream("readers", ["news"])) as stream:
        first = stream.poll()
        assert first is not None
        stream.commit(first)
        for _ in range(2):
            with pytest.raises(ChunkDamaged, match=rf"queue 0 of 'news', offsets 1 to 1: .*seek\({qid}, 2\)"):
                stream.poll()
        stream.seek(qid, 2)
        batch = stream.poll()
        assert batch is not None
        stream.commit(batch, upto=batch.offset)
        assert batch.bodies == [b"one"]
    operator.create_group("workers", ordered=True)
    with consumer.consumer("workers", ["news"]) as workers:
        for offset in (0, 2):
            (message,) = workers.receive(9)
            assert message.delivered.offset == offset
            message.ack()
    assert [(each.offset, each.copy.body) for each in operator.dead_letters.list()] == [(1, UNREADABLE[what])]
    said = bare("tail", "news", TXSAGA_URL=made.url)
    assert (said.code, len(said.lines)) == (7, 1)
    assert "queue 0 of 'news', offsets 1 to 1: " in said.complaint
    assert "txsaga tail 'news' --from 2" in said.complaint
    said = bare("tail", "news", "--from", "2", TXSAGA_URL=made.url)
    assert (said.code, len(said.lines)) == (0, 1)
