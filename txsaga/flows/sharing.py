"""
Blocks that end at the same moment and only add rows share their branches: a group commit of journals.

Among the blocks of this process that work in the same resources the first to end starts a turn, and those that end
meanwhile share the next: ONE branch in each resource, the first block's, with the journals of all of them, and one
commit of all their decisions, each with its own messages. So they commit together or not at all. If something fails
before that, all of it is rolled back and each block goes on by itself: it gets the result of its own journal, and no
other's error. A turn never waits long for a lock, and no block joins a line that is held up; a block whose thread was
interrupted meanwhile is closed by its turn. If this never runs, each block pays for branches of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga.core import facts
from txsaga.core.announcer import Announcer
from txsaga.core.batcher import Batcher
from txsaga.core.decision import Decision
from txsaga.core.fibers import current_fiber
from txsaga.core.forking import this_process
from txsaga.core.records import Row
from txsaga.errors import BrokerClosed, OutcomeUnknown, RolledBack
from txsaga.flows.journal import is_plain
from txsaga.flows.journals import waited
from txsaga.flows.parts import PhaseTwoResult
from txsaga.flows.ports import BranchVote, DecisionRequest, Joint
from txsaga.flows.step_records import Journalled

if TYPE_CHECKING:
    from txsaga.core.kernel import Kernel
    from txsaga.flows.branches_store import BranchStore
    from txsaga.flows.owner import BlockOwner


def who() -> object:
    """Return the running task, or the thread's id."""
    return current_fiber() or get_ident()


class Hand:
    """Decides which of two threads has a block: the first to ask, however often they ask."""

    __slots__ = ("_first", "_own")

    def __init__(self) -> None:
        self._own = who()
        self._first: dict[str, object] = {}  # who began its turn, and who ended it

    def take(self, runner: object) -> bool:
        """Claim it for a turn; return whether its thread was still there."""
        return self._first.setdefault("began", (runner,)) is not self

    def give_back(self) -> bool:
        """End its turn; return whether its thread was still there."""
        return self._first.setdefault("ended", None) is not self

    def go(self) -> bool:
        """Leave without it; return whether another's turn has it, and is to close it. Idempotent."""
        runner = self._first.setdefault("began", self)
        if runner is self or runner == (self._own,):
            return False
        return self._first.setdefault("ended", self) is self

    @property
    def taken(self) -> bool:
        """Return whether it ever was in a turn."""
        return self._first.get("began", self) is not self

    @property
    def gone(self) -> bool:
        """Return whether its thread left while a turn had it."""
        return self._first.get("ended") is self


logger = logging.getLogger("txsaga")

MOST, MOST_BYTES = 16, 64 * 1024
"""Blocks that share a branch, and their bytes in all: MariaDB takes a journal as one message up to 128 K."""
FEW, FEW_BYTES = 16, 16 * 1024
"""Statements and bytes of a block that may share: others would wait for a larger one."""
LINES = 64
"""Sets of resources that have a line; blocks of one more go by themselves."""
HELD_UP = 0.1
"""Seconds after which no block joins a line any more."""
WHY = "the block ended"


class EndedBlock(NamedTuple):
    """A block that has ended."""

    owner: BlockOwner
    rows: Sequence[Row]
    journals: Mapping[str, Sequence[Journalled]]
    close: Callable[[], None]  # from here on the answer may be lost, and only the store knows
    reopen: Callable[[], None]  # the answer is known: nothing is decided
    hand: Hand
    since: float = 0.0
    size: int = 0


class SharedOutcome(NamedTuple):
    """The final decision of a block, and what its resources answered to it."""

    standing: Decision
    told: PhaseTwoResult


class Sharing:
    """The lines of blocks that end, one for each set of resources."""

    def __init__(self, branches: BranchStore, announce: Announcer) -> None:
        self._make, self._closed = partial(_Line, branches, announce), False
        self._lines: dict[tuple[object, ...], _Line] = {}

    @staticmethod
    def of(kernel: Kernel) -> Sharing:
        """Return the lines of a store."""
        return Sharing(kernel.store.branches, kernel.announce)

    def end(self, block: EndedBlock) -> SharedOutcome | None:
        """End a block together with others; None if it must go by itself, with nothing of it done."""
        size = _size_of(block)
        if self._closed or size is None:
            return None
        key = (*block.journals, *block.owner.ids)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= LINES:
                return None
            line = self._lines.setdefault(key, self._make())
        return line.end(block, size)

    def close(self) -> None:
        """Finish the blocks in the lines; later ones go by themselves."""
        self._closed = True
        for line in list(self._lines.values()):
            line.batcher.close()


class _Line:
    """Blocks that work in the same resources."""

    def __init__(self, branches: BranchStore, announce: Announcer) -> None:
        self._branches, self._announce = branches, announce
        self.batcher: Batcher[EndedBlock, SharedOutcome | None] = Batcher(
            "shared branches",
            self._run,
            limit=MOST,
            weigh=_weight,
            weight=MOST_BYTES,
            in_loops=True,
            gathers=True,
            once=True,
        )
        self._turns: dict[object, float] = {}
        self._released = 0.0  # when the last turn ended that was held up
        self._process = this_process()

    def end(self, block: EndedBlock, size: int) -> SharedOutcome | None:
        """End a block, unless this line is held up."""
        if self._is_held_up():
            return None
        try:
            return self.batcher.call(block._replace(since=time.monotonic(), size=size))
        except BrokerClosed:
            if block.hand.taken:
                raise
            return None

    def _is_held_up(self) -> bool:
        if self._process != this_process():  # these are the turns of a forked child's parent
            self._turns, self._process = {}, this_process()
        if not self._turns:
            return False
        before = time.monotonic() - HELD_UP
        return any(since < before for since in list(self._turns.values()))

    def _run(self, blocks: Sequence[EndedBlock]) -> Sequence[Any]:
        if blocks[0].since < self._released:
            return [None] * len(blocks)  # they were held up once
        there, runner = list[EndedBlock](), who()
        try:
            there += [block for block in blocks if block.hand.take(runner)]
            answers = self._run_turn(there) if there else ()
            heard = dict(zip(map(id, there), answers, strict=True))
            return [heard.get(id(block)) for block in blocks]  # a block that left gets no answer
        finally:
            for block in [each for each in blocks if not each.hand.give_back()]:
                _leave(block)

    def _run_turn(self, blocks: Sequence[EndedBlock]) -> Sequence[Any]:
        turn, begun = object(), time.monotonic()
        self._turns[turn] = begun
        try:
            return _by_itself(*blocks) if len(blocks) == 1 else self._together(blocks)
        finally:
            self._turns.pop(turn, None)
            if time.monotonic() - begun > HELD_UP:
                self._released = time.monotonic()

    def _together(self, blocks: Sequence[EndedBlock]) -> Sequence[SharedOutcome | Exception | None]:
        """End blocks in the first one's branches; all decision requests are sent while its resources vote."""
        first, alone = blocks[0].owner, [None] * len(blocks)
        txids = tuple(block.owner.life.txid for block in blocks)
        joint: Joint | None = None
        try:
            try:
                first.work.open_journals(_joined(blocks), shared_by=txids)
                hoped = first.work.hoped()
                joint = self._branches.joint(_words(blocks, hoped))
                stand = _voted(joint, blocks) == hoped and not _works_on(blocks[1:])
            except Exception:  # noqa: BLE001  # an error of a resource is its vote
                stand = False
            if not (stand and joint is not None and self._stand(joint, txids)):
                if joint is not None:
                    joint.recall()  # the requests' locks wait for no resource, and no resource for them
                for block in blocks:
                    block.reopen()
                return [_undone(first), *alone[1:]]  # the others meet the error again, by themselves
            told = _told(first, Decision.COMMIT)
            return [SharedOutcome(Decision.COMMIT, _of_its_own(told)) for _ in blocks]
        except Exception as unknown:  # noqa: BLE001  # none goes by itself now: recovery knows what is decided
            return [unknown, *(OutcomeUnknown(str(unknown)) for _ in blocks[1:])]
        finally:
            if joint is not None:
                joint.abandon()

    def _stand(self, joint: Joint, txids: tuple[int, ...]) -> bool:
        """Commit their requests; return whether they are written."""
        if self._announce:
            self._announce(facts.Deciding(txids))
        stand = joint.commit()
        if stand and self._announce:
            self._announce(facts.Decided(txids))
        return stand


def _voted(joint: Joint, blocks: Sequence[EndedBlock]) -> Sequence[BranchVote]:
    """Ask the first one's branches for their votes, and send all requests meanwhile."""
    work = blocks[0].owner.work
    votes = work.ask_at_once()
    try:
        joint.say()
    except Exception:
        with suppress(Exception):
            votes()  # a branch that has not answered can't be rolled back
        raise
    heard = votes()
    for block in blocks:
        block.close()
    return work.named(heard)


def _by_itself(block: EndedBlock) -> Sequence[SharedOutcome | Exception | None]:
    """End a block that no other joined; if it has to wait, it does so outside of the line."""
    owner = block.owner
    try:
        owner.work.open_journals(block.journals, shared_by=[owner.life.txid])
        votes = owner.work.named(owner.work.ask_at_once()())
    except Exception as failed:  # noqa: BLE001  # any error of a resource is its vote
        return [_undone(owner, failed) if waited([failed]) else failed]
    block.close()
    try:
        standing = owner.decide(Decision.COMMIT, WHY, block.rows, votes)
        return [SharedOutcome(standing, _told(owner, standing))]
    except Exception as failed:  # noqa: BLE001  # its own, whichever blocks were to share the turn
        return [failed]


def _leave(block: EndedBlock) -> None:
    """Close a block whose thread was interrupted: a decision is final, recovery does what is left."""
    block.close()  # its thread may have left while this opened it again
    try:
        block.owner.leave()
    except Exception:
        logger.exception("what transaction %s has open could not be given back", block.owner.txid)


def _works_on(blocks: Sequence[EndedBlock]) -> bool:
    """Return whether a user's thread still works in an ended block: by itself, that raises an error."""
    return any(block.owner.work.used for block in blocks)


def _undone(first: BlockOwner, failed: Exception | None = None) -> Exception | None:
    """Roll back what it holds for all; return an error if some may be left: it can't be redone under its name."""
    if first.work.undo():
        return None
    return failed or RolledBack(  # the reason may concern another's journal
        "the branch that it shared could not be taken back at once; nothing of it stands: try again"
    )


def _words(blocks: Sequence[EndedBlock], votes: Sequence[BranchVote]) -> Sequence[DecisionRequest]:
    """Return a COMMIT request for each; the first names the branches."""
    first, *others = blocks
    whose = f"{WHY}; its journals were done in the branches of transaction {first.owner.life.txid}"
    return [
        first.owner.joint_word(WHY, first.rows, votes),
        *(block.owner.carried_word(whose, block.rows) for block in others),
    ]


def _told(owner: BlockOwner, standing: Decision) -> PhaseTwoResult:
    """Finish the branches by the decision, and release their sessions."""
    told = owner.finish(standing)
    for key in owner.work.used:
        owner.work.drop(key)
    return told


def _of_its_own(told: PhaseTwoResult) -> PhaseTwoResult:
    """Give each block errors of its own to raise."""
    return told._replace(against=[type(each)(str(each)) for each in told.against]) if told.against else told


def _joined(blocks: Sequence[EndedBlock]) -> Mapping[str, Sequence[Journalled]]:
    return {key: [each for block in blocks for each in block.journals[key]] for key in blocks[0].journals}


def _weight(block: EndedBlock) -> int:
    return block.size


def _size_of(block: EndedBlock) -> int | None:
    """Return a block's size; None if others can't wait for it, or if it could end a transaction of theirs."""
    if sum(map(len, block.journals.values())) > FEW:
        return None
    size = 0
    for row in block.rows:
        size += len(row.body)
    for journal in block.journals.values():
        for each in journal:
            size += len(each.text)
            if size > FEW_BYTES or not is_plain(each.text):
                return None
            for name, value in each.parameters.items():
                size += _size(value) * each.text.count(f":{name}")
    return size if size <= FEW_BYTES else None


def _size(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return len(value) if isinstance(value, str) else 8
