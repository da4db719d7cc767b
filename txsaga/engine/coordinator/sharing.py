"""
Blocks that end at the same moment and only add rows share their branches: a group commit of journals.

Of the blocks of this process that work in the same resources the first to end goes by itself, and those that end
meanwhile go together next: ONE branch in each resource, the first's, with the journals of all of them, and one commit
of all their decisions, each with its own messages. So they stand together or not at all. Where something goes wrong
before that, all of it is taken back and each goes by itself: it hears what became of its own journal, and no other's
error. Nobody waits for a line that is held up. If this never runs, each block pays for branches of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga.engine.announce import Announcer
from txsaga.engine.batcher import Batcher
from txsaga.engine.coordinator.work import Told
from txsaga.errors import xa
from txsaga.model import facts
from txsaga.model.branch import Vote
from txsaga.model.decision import Decision
from txsaga.model.flow_step import Journalled
from txsaga.model.journal import is_plain
from txsaga.model.records import Row
from txsaga.ports.branches import Branches, Joint, Resolve

if TYPE_CHECKING:
    from txsaga.engine.coordinator.owner import Owner

MOST = 16
"""Blocks that share a branch."""
LINES = 64
"""Sets of resources that are looked after; blocks of one more go by themselves."""
FEW_STATEMENTS, FEW_BYTES = 16, 64 * 1024
"""What a block brings at most: others would wait for it."""
HELD_UP = 0.1
"""Seconds after which nobody joins a line any more."""


WHY = "the block ended"


class Ended(NamedTuple):
    """A block that came to its end."""

    owner: Owner
    rows: Sequence[Row]
    journals: Mapping[str, Sequence[Journalled]]
    close: Callable[[], None]  # from here on the answer may be lost: only the store knows


class Outcome(NamedTuple):
    """What stands of a block, and what its resources said to that."""

    standing: Decision
    told: Told


class Sharing:
    """The lines in which blocks end, one for each set of resources."""

    def __init__(self, branches: Branches, announce: Announcer) -> None:
        self._make = partial(_Line, branches, announce)
        self._lines: dict[tuple[object, ...], _Line] = {}

    def end(self, block: Ended) -> Outcome | None:
        """Let a block end, with others that do; None where it is to go by itself, and nothing of it was done."""
        if not _is_small(block):
            return None
        key = (*block.journals, block.owner.patience)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= LINES:
                return None
            line = self._lines.setdefault(key, self._make())
        return line.end(block)

    def close(self) -> None:
        """Finish what is in the lines; what comes later is refused."""
        for line in list(self._lines.values()):
            line.batcher.close()


class _Line:
    """Blocks that work in the same resources."""

    def __init__(self, branches: Branches, announce: Announcer) -> None:
        self._branches, self._announce = branches, announce
        self.batcher: Batcher[Ended, Outcome | None] = Batcher(
            "shared branches", self._run, limit=MOST, in_loops=True, gathers=True
        )
        self._since: float | None = None

    def end(self, block: Ended) -> Outcome | None:
        """Let a block end, unless this is held up."""
        since = self._since
        if since is not None and time.monotonic() - since > HELD_UP:
            return None
        return self.batcher.call(block)

    def _run(self, blocks: Sequence[Ended]) -> Sequence[Any]:
        self._since = time.monotonic()
        try:
            return [_by_itself(*blocks)] if len(blocks) == 1 else self._together(blocks)
        finally:
            self._since = None

    def _together(self, blocks: Sequence[Ended]) -> Sequence[Outcome | Exception | None]:
        """Let several end in the branches of the first; its resources are asked while the words of all are sent."""
        work, alone = blocks[0].owner.work, [None] * len(blocks)
        joint: Joint | None = None
        failed: Exception | None = None
        try:
            try:
                work.open_journals(_joined(blocks), besides=[block.owner.life.txid for block in blocks[1:]])
                joint = self._branches.begin_jointly(_words(blocks))
                votes = work.vote_at_once()
            except Exception as raised:  # noqa: BLE001  # each meets it again by itself
                failed = raised
            if failed is not None or joint is None or not _as_told(blocks, votes):
                # What may still be there by its name can't be done again under it.
                lost = not work.undo() or isinstance(failed, xa.CommunicationFailed)
                return [failed, *alone[1:]] if lost else alone
            for block in blocks:
                block.close()
            if not self._stand(joint, tuple(block.owner.life.txid for block in blocks)):
                work.undo()
                return alone
            return [_finished(blocks[0].owner, Decision.COMMIT)] * len(blocks)
        except Exception as unknown:  # noqa: BLE001  # nobody goes by itself any more: recovery knows what stands
            return [unknown] * len(blocks)
        finally:
            if joint is not None:
                joint.abandon()  # nothing is left of it where it was decided

    def _stand(self, joint: Joint, txids: tuple[int, ...]) -> bool:
        """Let their words stand; tell whether they do."""
        if self._announce:
            self._announce(facts.Deciding(txids))
        stand = joint.commit()
        if stand and self._announce:
            self._announce(facts.Decided(txids))
        return stand


def _by_itself(block: Ended) -> Outcome:
    """Let one end as every block does; those behind it go together."""
    owner = block.owner
    owner.work.open_journals(block.journals)
    votes = owner.work.named(owner.work.prepare())
    block.close()
    standing = owner.decide(Decision.COMMIT, WHY, block.rows, votes)
    return _finished(owner, standing)


def _as_told(blocks: Sequence[Ended], votes: Mapping[str, Vote]) -> bool:
    """Tell whether the votes are those of the words, and no thread of a user's works on in a block that ended."""
    late = any(block.owner.work.used for block in blocks[1:])
    return not late and set(votes.values()) == {Vote.PREPARED}


def _words(blocks: Sequence[Ended]) -> Sequence[Resolve]:
    """Say COMMIT of each; the first names the branches by the votes that they will give."""
    first, *others = blocks
    work = first.owner.work
    hoped = work.named(dict.fromkeys(work.used, Vote.PREPARED))
    whose = f"{WHY}; its journals were done in the branches of transaction {first.owner.life.txid}"
    return [
        first.owner.joint_word(WHY, first.rows, hoped),
        *(block.owner.joint_word(whose, block.rows) for block in others),
    ]


def _finished(owner: Owner, standing: Decision) -> Outcome:
    """Tell the resources what stands, and leave their sessions to whoever is next."""
    told = owner.finish(standing)
    for key in owner.work.used:
        owner.work.drop(key)
    return Outcome(standing, told)


def _joined(blocks: Sequence[Ended]) -> Mapping[str, Sequence[Journalled]]:
    return {key: [each for block in blocks for each in block.journals[key]] for key in blocks[0].journals}


def _is_small(block: Ended) -> bool:
    """Tell whether others can wait for it, and nothing in it could end a transaction of theirs."""
    statements = given = 0
    for journal in block.journals.values():
        for each in journal:
            if not is_plain(each.text):
                return False
            statements += 1
            given += len(each.text) + _size(each.parameters)
    for row in block.rows:
        given += len(row.body)
    return statements <= FEW_STATEMENTS and given <= FEW_BYTES


def _size(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return len(value) if isinstance(value, str) else 8
