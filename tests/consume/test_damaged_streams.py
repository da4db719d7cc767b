"""A chunk that nobody can read holds up its own queue alone, and says where one may read on."""

from __future__ import annotations

import pytest

from tests.scene.shop import Shop
from txsaga.consume import queue_reader
from txsaga.core.layout import Batch
from txsaga.errors import ChunkDamaged


def test_the_neighbours_of_a_damaged_chunk_are_read_on(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    moody_shop.broker.create_topic("two", "normal", queues=2)
    producer = moody_shop.broker.producer("desk")
    for number in range(6):
        producer.send("two", b"%d" % number)
    moody_shop.deliver()
    stream = moody_shop.broker.stream("readers", ["two"], member="anna")
    damaged, other = sorted(moody_shop.store.registry.topic("two").qids)

    def unpacked(entry: object, **place: object) -> Batch:
        if (place["qid"], place["start"]) == (damaged, 0):
            raise ChunkDamaged("cut short; restore it from a backup")
        return Batch(entry, **place)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_reader, "Batch", unpacked)
    read = list[tuple[int, int]]()
    for _ in range(8):
        try:
            batch = stream.poll()
        except ChunkDamaged as told:
            assert f"seek({damaged}, 1)" in str(told)
        else:
            read += [] if batch is None else [(batch.qid, batch.offset)]
    assert read == [(other, 0), (other, 1), (other, 2)]
    stream.seek(damaged, 1)
    for _ in range(2):
        batch = stream.poll()
        assert batch is not None and batch.qid == damaged
    stream.close()
