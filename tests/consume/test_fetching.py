"""How a consumer reads what it took: a chunk once, however it is worked off; what can't be read is given up."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from tests.scene.shop import NEWS, Shop
from tests.scene.worker import GROUP, letters, told, worker
from txsaga.core.records import LogEntry
from txsaga.errors import ChunkDamaged, StoreError


class Watched:
    """A log that counts what is read of it, and damages the chunk at one offset."""

    def __init__(self, shop: Shop, damaged: int | None = None, damage: bytes = b"\xff") -> None:
        self._log, self._damaged, self._damage = shop.store.log, damaged, damage
        self.fetched = 0

    def fetch(self, qid: int, offset: int, limit: int, end: int = 2**62) -> Sequence[LogEntry]:
        found = self._log.fetch(qid, offset, limit, end)
        self.fetched += len(found)
        return [self._damage_of(entry) if entry.base == self._damaged else entry for entry in found]

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def _damage_of(self, entry: LogEntry) -> LogEntry:
        return entry._replace(body=entry.body[: -len(self._damage)] + self._damage)


def chunk(shop: Shop, *texts: str, key: str | None = None) -> None:
    """Send messages that lie in one chunk."""
    keys = None if key is None else [key] * len(texts)
    shop.broker.producer("desk").send_many(NEWS, [text.encode() for text in texts], keys=keys)
    shop.deliver()


def watched(shop: Shop, patch: pytest.MonkeyPatch, damaged: int | None = None) -> Watched:
    """Watch what is read of the log."""
    log = Watched(shop, damaged)
    patch.setattr(shop.store, "log", log)
    return log


def test_a_chunk_is_read_once_by_a_member_that_takes_it_message_by_message(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk(moody_shop, *map(str, range(20)))
    chunk(moody_shop, *map(str, range(20, 40)))
    log, consumer = watched(moody_shop, monkeypatch), worker(moody_shop)
    seen = []
    while found := consumer.receive(1):
        seen += [message.text() for message in found]
        consumer.ack(found)
    assert seen == [*map(str, range(40))]
    assert log.fetched == 2


def test_chunks_that_are_kept_have_a_bound(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.consume.fetching.KEPT", 10)  # bytes: less than a chunk
    chunk(moody_shop, *map(str, range(5)))
    log, consumer = watched(moody_shop, monkeypatch), worker(moody_shop)
    assert [consumer.receive(1)[0].text() for _ in range(5)] == [*map(str, range(5))]
    assert log.fetched == 5


@pytest.mark.req("IBM-62")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("policy", [{}, {"dead_letters": False}, {"backout": NEWS}])
def test_a_chunk_that_is_damaged_is_given_up_with_its_bytes_and_its_neighbours_come(
    moody_shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    policy: dict[str, object],
    ordered: bool,
) -> None:
    moody_shop.broker.create_group(GROUP, ordered=ordered, **policy)  # type: ignore[arg-type]
    chunk(moody_shop, "a", key="k")
    chunk(moody_shop, "b", "c", "d", key="k")
    chunk(moody_shop, "e", key="k")
    ids = [message.id for message in moody_shop.read(NEWS)]
    watched(moody_shop, monkeypatch, damaged=1)
    consumer, seen = worker(moody_shop), []
    for message in consumer.messages(wait=0):
        with message:
            seen.append(message.text())
    assert seen == ["a", "e"]
    found = sorted(letters(moody_shop), key=lambda letter: letter.offset)
    assert [(letter.offset, letter.copy.message, letter.topic) for letter in found] == [
        (offset, ids[offset], NEWS) for offset in (1, 2, 3)
    ]
    assert all("does not match its checksum" in letter.cause for letter in found)
    assert [letter.copy.body[-1:] for letter in found] == [b"\xff", b"", b""]  # once, however many messages it holds
    assert "offset 1" in found[1].cause
    with pytest.raises(ChunkDamaged):
        _ = found[0].message
    assert told(caplog, logging.ERROR, "does not match its checksum")


def test_a_damaged_letter_that_is_replayed_is_given_up_again(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk(moody_shop, "a")
    watched(moody_shop, monkeypatch, damaged=0)
    consumer = worker(moody_shop)
    assert consumer.receive() == []
    (letter,) = letters(moody_shop)
    moody_shop.broker.dead_letters.replay([letter.id])
    assert consumer.receive() == []
    (again,) = letters(moody_shop)
    assert (again.copy, again.id != letter.id) == (letter.copy, True)


def test_a_chunk_of_a_newer_layout_waits_for_a_newer_program(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk(moody_shop, "a")
    worker(moody_shop)
    moody_shop.store.groups.alter(GROUP, {"max_attempts": 1})
    monkeypatch.setattr("txsaga.core.chunk.VERSION", 0)
    with pytest.raises(StoreError, match="newer txsaga"):
        worker(moody_shop).receive()
    assert letters(moody_shop) == []
