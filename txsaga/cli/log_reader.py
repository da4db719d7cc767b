"""
Looking at topics: without a group nothing is kept, with one each message counts as read once it was taken.

    Tail              reads the log by offsets; no cursor, nobody else notices
    taken(stream)     reads as a member of a group; the cursor follows message by message

If whoever looks dies, a group reads the message again that was at hand: at least once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from txsaga.engine.kernel import Kernel
from txsaga.engine.queue_reader import QueueReader
from txsaga.engine.start import Start, first_offset
from txsaga.engine.stream import Stream
from txsaga.model.layout import Batch
from txsaga.model.message import Delivered
from txsaga.model.topic import check_name

IDLE = 0.5
"""Seconds between two looks when no tick announces news."""


class Tail:
    """Reads topics from a start on, without a group."""

    def __init__(self, kernel: Kernel, topics: Sequence[str], *, start: Start = "earliest") -> None:
        for name in topics:
            check_name(name)
        self._log = kernel.store.log
        places = kernel.topics.by_queue(list(dict.fromkeys(topics)))
        self._heads = {qid: bounds.head for qid, bounds in self._log.bounds(list(places)).items()}
        self._readers = {
            qid: QueueReader(
                self._log,
                qid,
                topic.name,
                index,
                kernel.store.registry.identity,
                first_offset(self._log, qid, start),
                past="txsaga tail '{topic}' --from {behind}",
            )
            for qid, (topic, index) in places.items()
        }

    def messages(self, *, follow: bool = False) -> Generator[Delivered]:
        """Yield what is there now, queue by queue in turns; with `follow`, go on with what comes."""
        while True:
            news = False
            for qid, reader in list(self._readers.items()):
                batch = reader.next()
                if batch is not None:
                    news = True
                    yield from self._wanted(batch, follow)
                elif not follow:
                    del self._readers[qid]
            if not self._readers:
                return
            if not news:
                self._log.wait(IDLE)

    def _wanted(self, batch: Batch, follow: bool) -> Iterator[Delivered]:
        head = self._heads[batch.qid]
        if not follow and batch.end >= head:
            self._readers.pop(batch.qid, None)
        return (message for message in batch.messages() if follow or message.offset < head)


def taken(
    stream: Stream, *, wait: float | None, tag: str | None = None, count: int | None = None
) -> Generator[Delivered]:
    """Yield a group's messages, at most `count`; each is committed when the next one is asked for."""
    left = count
    for batch in stream.batches(wait=wait):
        done = batch.offset
        try:
            for message in batch.messages():
                if tag is None or message.tag == tag:
                    yield message
                    left = None if left is None else left - 1
                done = message.offset + 1
                if left == 0:
                    return
        finally:
            if done > batch.offset:
                stream.commit(batch, upto=done)
