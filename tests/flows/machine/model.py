"""The model: what must be there once a program is over and the roles are at rest.

It knows a program, what its processes reported until they were killed, and what is seen; it knows nothing of txsaga.

A scope is what one decision is about: the work of one process in a transaction, or of all processes in a flow. All of a
scope's main work is there if its decision is COMMIT, else none of it. A unit of a lane follows its own decision. What
committed by itself is undone after ROLLBACK, in reverse order, once; nothing is undone after COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.flows.machine.programs import FATAL, UNDONE, Face, How, Program, What

MAIN = frozenset({What.WORK, What.JOURNAL, What.STUMBLE, What.LATER, What.SEND})
"""What is there exactly if its scope's decision is COMMIT."""
LANES = frozenset({What.LANE, What.LANE_JOURNAL})
COMMITTED, ROLLED_BACK = "committed", "rolled_back"


class Event(NamedTuple):
    """What a process reported."""

    process: int
    what: str  # entered, begun, ok, stalled, killed, left
    about: Any = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What everybody sees at the end."""

    states: Mapping[int, str]
    """The states of the program's transactions."""
    rows: Mapping[str, Sequence[str]]
    messages: Sequence[str]
    undone: Sequence[Sequence[str]]
    """What was undone, each list in its order."""
    left: Sequence[str]
    """What should be over, and is not."""


@dataclass(slots=True)
class Scope:
    """The work that one decision is about."""

    program: Program
    txid: int
    processes: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def labels(self, at: int) -> set[str]:
        """Return the names that the line of a step may have."""
        return {f"{at}@{process}" for process in self.processes} | {f"{at}@t{self.txid}"}

    def count(self, at: int, seen: Seen) -> int:
        """Count the lines of a step that are seen."""
        op = self.program.ops[at]
        lines = seen.messages if op.what is What.SEND else seen.rows[op.where]
        return sum(line in self.labels(at) for line in lines)

    def wrong(self, seen: Seen, *, won: bool) -> Iterator[str]:
        """Yield what should not be so, if its decision was COMMIT, or not."""
        if won and (missing := set(range(len(self.program.ops))) - self.begun):
            yield f"{self.txid} committed without steps {missing}"
        for at, op in enumerate(self.program.ops):
            if op.what in MAIN and self.count(at, seen) != int(won):
                yield f"step {at} of {self.txid} ({op.what}) is there {self.count(at, seen)} times, not {int(won)}"
            if op.what is What.CALL and (count := self.count(at, seen)) not in self._calls(at, won=won):
                yield f"step {at} of {self.txid} is there {count} times, not {self._calls(at, won=won)}"
            if op.what in FATAL and (won or (op.where and self.count(at, seen))):
                yield f"step {at} of {self.txid} ({op.what}) can't commit"
        for where in self.program.lanes:
            yield from self._wrong_units(where, seen, won=won)
        yield from self._wrongly_undone(seen, won=won)

    def _calls(self, at: int, *, won: bool) -> set[int]:
        return {1} if won or at in self.done else {0, 1} if at in self.begun else {0}

    def _units(self, where: str) -> Iterator[tuple[list[int], int | None]]:
        """Yield the steps of each unit of a lane, and the one that settles it."""
        unit: list[int] = []
        for at, op in enumerate(self.program.ops):
            if op.where == where and op.what in LANES:
                unit.append(at)
            elif op.where == where and op.what in (What.SETTLE, What.DROP):
                yield unit, at
                unit = []
        yield unit, None

    def _wrong_units(self, where: str, seen: Seen, *, won: bool) -> Iterator[str]:
        for unit, settled in self._units(where):
            counts = {self.count(at, seen) for at in unit}
            if unit and counts not in [{may} for may in self._unit_may(settled, won=won)]:
                yield f"unit {unit} of lane {where} in {self.txid} is there {counts} times"

    def _unit_may(self, settled: int | None, *, won: bool) -> set[int]:
        if settled is None or settled not in self.begun:
            return {int(won)}
        if self.program.ops[settled].what is What.DROP:
            return {0}
        return {1} if settled in self.done else {0, 1}

    def _wrongly_undone(self, seen: Seen, *, won: bool) -> Iterator[str]:
        undoable = UNDONE if self.program.face is Face.FLOW else {What.CALL}
        steps = [at for at, op in enumerate(self.program.ops) if op.what in undoable and self.count(at, seen)]
        due = [] if won else steps[::-1]
        found = [
            (undone, [int(line.split("@")[0]) for line in undone if self._is_mine(line)]) for undone in seen.undone
        ]
        if sorted(at for _, ats in found for at in ats) != sorted(due):
            yield f"undone in {self.txid}: {found}, not {due}"
        for _, ats in found:
            if ats != [at for at in due if at in ats]:
                yield f"undone in {self.txid} in the order {ats}, not {due}"

    def _is_mine(self, line: str) -> bool:
        return line in self.labels(int(line.split("@")[0]))


def scopes_of(program: Program, log: Sequence[Event]) -> list[Scope]:
    """Return the scopes of a program, from what its processes reported."""
    found: dict[tuple[int, int], Scope] = {}
    inside: dict[int, Scope] = {}
    for event in log:
        if event.what == "entered":
            txid = event.about[0]
            name = (txid, 0 if program.face is Face.FLOW else event.process)
            scope = inside[event.process] = found.setdefault(name, Scope(program, txid))
            scope.processes.add(event.process)
        elif event.what == "begun":
            inside[event.process].begun.add(event.about)
        elif event.what == "ok":
            inside[event.process].done.add(event.about)
    return list(found.values())


def wrongs(program: Program, log: Sequence[Event], seen: Seen) -> list[str]:
    """Return everything that is seen and should not be, or should be seen and is not."""
    scopes = scopes_of(program, log)
    told = {event.process for event in log if event.what == "left" and event.about == COMMITTED}
    found = [f"left over: {each}" for each in seen.left]
    found += [f"{txid} is {state}" for txid, state in seen.states.items() if state not in (COMMITTED, ROLLED_BACK)]
    won = 0
    for txid in dict.fromkeys([*seen.states, *(scope.txid for scope in scopes)]):
        mine = [scope for scope in scopes if scope.txid == txid]
        sure = any(scope.processes & told for scope in mine)
        committed = seen.states.get(txid, COMMITTED if sure else ROLLED_BACK) == COMMITTED
        won += committed
        found += _wrong_in(mine, seen, told if committed else set(), committed=committed)
        if sure and not committed:
            found.append(f"{txid} was told to be committed, and is not")
    known = {label for scope in scopes for at in scope.begun if at < len(program.ops) for label in scope.labels(at)}
    every = [line for lines in [*seen.rows.values(), seen.messages] for line in lines if not line.startswith("undo ")]
    found += [f"nobody wrote {line}" for line in every if line not in known]
    found += _wrong_at_entry(program, log, seen)
    return found + _wrong_outcome(program, log, won)


def _wrong_in(scopes: Sequence[Scope], seen: Seen, told: set[int], *, committed: bool) -> list[str]:
    """Return what is wrong in one transaction; which of its scopes won is open unless it was told so."""
    if not committed:
        return [why for scope in scopes for why in scope.wrong(seen, won=False)]
    may = [scope for scope in scopes if scope.processes & told] or scopes
    ways = [[why for each in scopes for why in each.wrong(seen, won=each is winner)] for winner in may]
    return min(ways, key=len, default=["it committed, and nobody was in it"])


def _wrong_at_entry(program: Program, log: Sequence[Event], seen: Seen) -> list[str]:
    """Return what an earlier life of a key had not undone yet when the next one was entered."""
    if program.face is Face.BLOCK or not program.keyed:
        return []
    entries = [(e.about[0], e.process) for e in log if e.what == "entered"]
    lives = {f"{process}": (txid, process) for txid, process in entries}
    lives |= {f"t{txid}": (txid, process) for txid, process in reversed(entries)}  # its first process
    found = []
    for event in log:
        if event.what == "entered":
            txid, lines = event.about
            earlier = [line for line in lines if not line.startswith("undo ") and not line.endswith(f"@t{txid}")]
            mine = (txid, event.process)  # what a later life left is not its concern
            earlier = [line for line in earlier if lives.get(line.rpartition("@")[2], mine) <= mine]
            undoable = [line for line in earlier if program.ops[int(line.split("@")[0])].what in UNDONE]
            found += [
                f"{txid} was entered before {line} was undone" for line in undoable if f"undo {line}" not in lines
            ]
    return found


def _may_be_undoing(program: Program, log: Sequence[Event]) -> bool:
    """Return whether the work of the process before the last one can't be undone yet.

    Its lease still ran, or it stalled in a call: as long as that runs, nothing is known of its end.
    """
    if not program.keyed or len(program.fates) < 2:
        return False
    before, process = program.fates[-2], len(program.fates) - 1
    done = [event.what for event in log if event.process == process and event.what in ("begun", "ok", "stalled")]
    return (before.how is How.DIES and not before.roles) or done[-2:] == ["begun", "stalled"]


def _wrong_outcome(program: Program, log: Sequence[Event], won: int) -> list[str]:
    """Return what is wrong with the number of commits: a program that lives to its end commits, under a key once."""
    if program.fails:
        return [f"{won} commits of what can't commit"] if won else []
    if program.keyed and won > 1:
        return [f"{won} commits under one key"]
    if program.fates[-1].how is How.LIVES:
        last = next(e.about for e in reversed(log) if e.what == "left" and e.process == len(program.fates))
        if won == 0 and last.startswith("NotCompensated") and _may_be_undoing(program, log):
            return []  # it is to retry later
        if won == 0 or not (last == COMMITTED or (program.keyed and last.startswith("AlreadyCommitted"))):
            return [f"the last process did not commit: {last}"]
    return []
