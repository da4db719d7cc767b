"""Random programs: what each of a program's processes does under one key, and how it ends.

A program is one transaction of one face. Each of its processes tries all of it, one process after the other: a process
may die at a fact, or stall at one until the next process is over, so that it goes on too late. Between two processes
time may pass, and the roles run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hypothesis import strategies as st

POSTGRES = ("left", "right")
LITE = "lite"


class Face(StrEnum):
    """How a program is written."""

    BLOCK = "block"
    FLOW = "flow"
    SAGA = "saga"


class What(StrEnum):
    """What one step does."""

    WORK = "work"  # held by the block's session, in a flow prepared
    JOURNAL = "journal"
    LANE = "lane"
    LANE_JOURNAL = "lane journal"
    SETTLE = "settle"  # commits the open unit of a lane
    DROP = "drop"  # rolls it back
    CALL = "call"  # commits at once, and has a compensation
    LATER = "later"  # runs after COMMIT
    SEND = "send"
    STUMBLE = "stumble"  # fails at first, then succeeds
    CARRIED = "carried"  # a ballot that is carried
    LOST = "lost"  # a ballot that is not
    DOOMED = "doomed"  # breaks a constraint that is checked at the end
    TORN = "torn"  # fails, and the program goes on as if it had not
    MISSED = "missed"  # a journal that changes fewer rows than it says
    FAILS = "fails"  # raises


UNDONE = frozenset({What.CALL, What.LANE, What.LANE_JOURNAL})
"""What has a compensation, in a flow."""
FATAL = frozenset({What.LOST, What.DOOMED, What.TORN, What.MISSED, What.FAILS})


class How(StrEnum):
    """How a process ends."""

    LIVES = "lives"
    DIES = "dies"
    STALLS = "stalls"


@dataclass(frozen=True, slots=True)
class Op:
    """One step."""

    what: What
    where: str = ""


@dataclass(frozen=True, slots=True)
class Fate:
    """How one process ends, at which of its facts, and whether the roles run before the next process begins."""

    how: How = How.LIVES
    fact: int = 0
    roles: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """One transaction, tried by one process after the other."""

    face: Face
    ops: tuple[Op, ...]
    fates: tuple[Fate, ...]
    raises: bool = False  # at its end
    keyed: bool = True

    @property
    def fails(self) -> bool:
        """Whether it can never commit."""
        return self.raises or any(op.what in FATAL for op in self.ops)

    @property
    def resources(self) -> list[str]:
        """Where its main work is done."""
        main = {What.WORK, What.JOURNAL, What.STUMBLE, What.DOOMED, What.TORN, What.MISSED}
        return sorted({op.where for op in self.ops if op.what in main}) or [POSTGRES[0]]

    @property
    def lanes(self) -> list[str]:
        """Where it has lanes."""
        return sorted({op.where for op in self.ops if op.what in (What.LANE, What.LANE_JOURNAL)})


LANES = (What.LANE, What.LANE, What.SETTLE, What.SETTLE, What.DROP)


def ops_of(where: str, *kinds: What) -> list[Op]:
    """Return one step of each kind in a place."""
    return [Op(kind, where) for kind in kinds]


FLOW, FLOW_FATAL = [Op(What.SEND), Op(What.CARRIED)], [Op(What.LOST)]
SAGA, SAGA_FATAL = [Op(What.SEND)], [Op(What.FAILS, "left"), Op(What.FAILS, "right")]
for _place in POSTGRES:
    FLOW += ops_of(_place, What.WORK, What.JOURNAL, What.CALL, What.CALL, What.STUMBLE, What.LANE_JOURNAL, *LANES)
    FLOW_FATAL += ops_of(_place, What.MISSED, What.DOOMED)
for _place in (*POSTGRES, LITE):
    SAGA += ops_of(_place, *[What.CALL] * 5, What.LATER)


@st.composite
def steps(draw: st.DrawFn, choices: list[Op], fatal: list[Op]) -> list[Op]:
    """Draw some steps, and seldom one among them that can't commit."""
    found = draw(st.lists(st.sampled_from(choices), min_size=2, max_size=6))
    if draw(st.integers(0, 4)) == 0:
        found.insert(draw(st.integers(1, len(found))), draw(st.sampled_from(fatal)))
    return usable(found)


@st.composite
def block_steps(draw: st.DrawFn, *, lite: bool) -> list[Op]:
    """Draw the steps of a block: it uses a resource by its session or by a journal, and a file as the last resource."""
    choices, fatal = [Op(What.SEND)], list[Op]()
    for where in POSTGRES:
        held = draw(st.booleans())
        choices += ops_of(where, *[What.WORK if held else What.JOURNAL] * 3, *LANES)
        fatal += ops_of(where, *([What.DOOMED, What.TORN] if held else [What.MISSED]))
    if lite:
        choices += ops_of(LITE, What.WORK, What.WORK, What.WORK)
    else:
        choices, fatal = [*choices, Op(What.CARRIED)], [*fatal, Op(What.LOST)]
    return draw(steps(choices, fatal))


def usable(ops: list[Op]) -> list[Op]:
    """Leave out what settles a lane that is nowhere used; run what comes after COMMIT last."""
    lanes = {op.where for op in ops if op.what in (What.LANE, What.LANE_JOURNAL)}
    kept = [op for op in ops if op.what not in (What.SETTLE, What.DROP) or op.where in lanes]
    return sorted(kept, key=lambda op: op.what is What.LATER) or [Op(What.SEND)]


@st.composite
def fates(draw: st.DrawFn, *, stalls: bool) -> list[Fate]:
    """Draw how the processes end; the last one mostly lives."""
    hows = [How.DIES, How.STALLS] if stalls else [How.DIES]
    ill = st.builds(
        Fate, st.sampled_from(hows), st.integers(1, 24), st.integers(0, 3).map(bool).map(lambda often: not often)
    )
    found = draw(st.lists(ill, max_size=2))
    left_alone = bool(found) and draw(st.integers(0, 3)) == 0
    return found if left_alone else [*found, Fate()]


@st.composite
def programs(draw: st.DrawFn, face: Face) -> Program:
    """Draw a program of one face."""
    lite = draw(st.booleans())
    ops = draw(
        {
            Face.BLOCK: block_steps(lite=lite),
            Face.FLOW: steps(FLOW, FLOW_FATAL),
            Face.SAGA: steps(SAGA, SAGA_FATAL),
        }[face]
    )
    stalls = all(op.where != LITE for op in ops)  # a stalled session in a file keeps everybody out of it
    keyed = face is Face.FLOW or draw(st.booleans())
    raises = draw(st.integers(0, 4)) == 0
    return Program(face, tuple(ops), tuple(draw(fates(stalls=stalls))), raises, keyed)


DAY = st.tuples(*(programs(face) for face in (*Face, *Face)))
"""Programs that are settled together, as many of each face."""
