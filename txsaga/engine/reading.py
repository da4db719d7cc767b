"""
What every reader of a group does first: register the group, and put its cursors where it begins.

A cursor that exists stays where it is. If a group were not registered, its messages could be read as a stream and
worked off at the same time, and each way would skip what the other took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txsaga.engine.groups import open_group
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import patiently
from txsaga.engine.start import Start, first_offset
from txsaga.errors import ConfigError
from txsaga.model import facts
from txsaga.model.arguments import list_of
from txsaga.model.claim import ConsumerGroup, Policy, Style
from txsaga.model.topic import Topic, check_name


def joined(
    kernel: Kernel, name: str, style: Style, topics: Iterable[str], start: Start
) -> tuple[ConsumerGroup, Mapping[int, tuple[Topic, int]]]:
    """Return the group of a new reader and the queues of its topics, with the group's cursors on them."""
    advice = f"write [{topics!r}]" if isinstance(topics, str) else "give a list of names"
    names = list_of(topics, "topics", advice)
    if not names:
        raise ConfigError("a group reads topics, and none was named; name at least one")
    for topic in names:
        check_name(topic)
    check_name(name, what="consumer group", known=lambda: kernel.store.groups.find(name) is not None)
    queues = patiently(lambda: kernel.topics.by_queue(list(dict.fromkeys(names))))
    group = patiently(lambda: _positioned(kernel, name, style, list(queues), start))
    return group, queues


def _positioned(kernel: Kernel, name: str, style: Style, qids: Sequence[int], start: Start) -> ConsumerGroup:
    starts = {qid: first_offset(kernel.store.log, qid, start) for qid in qids}
    group = open_group(kernel, name, style, Policy())
    with kernel.announce.around(facts.Positioning, about=name):
        kernel.store.queues.create_cursors(name, starts)
    return group
