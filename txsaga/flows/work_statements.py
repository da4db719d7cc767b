"""
The statements that write requests about branches, steps and sagas, and those requests as their parameters.

Each column of the requests of one kind is one array, in the order of the numbered parameters in `sql/branch.sql` and
`sql/step.sql`. A login that does not own the namespace calls functions that contain the same statements: see
`store/functions.py`. If both differed, such a login would write what no owner does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.flows.branch import BRANCH
from txsaga.flows.requests import VOTED, Begin, BranchOutcome, Close, Decide, Mark, RecordSteps, Release, Start
from txsaga.flows.step import STEP, TARGETS, StepEvent
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED, called, written
from txsaga.store import sql_files
from txsaga.store.statement import PreparedStatement, StatementCall

BRANCHES = sql_files.read("flows/sql/branch.sql")
STEPS = sql_files.read("flows/sql/step.sql")


def _leased(sql: str) -> str:
    return sql.replace("{lease}", str(LEASE.total_seconds()))


BEGIN, RECORD, SETTLE = _leased(BRANCHES["begin"]), _leased(STEPS["record"]), _leased(STEPS["settle"])

OWNED = ("int8[]", "int4[]")
"""The types of transactions and their owners."""
STEP_TYPES = ("int4[]", *["text[]"] * 6, "float8[]")
BEGIN_TYPES = ("int4[]", "text[]", "int8[]", *["int4[]"] * 4, *STEP_TYPES)
BEGIN_ANSWERS = "ord int8, txid int8, token bytea"
RESOLVE_TYPES = (
    *("int8[]", "int4[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
RESOLVE_ANSWERS = "txid int8"
NOTE_TYPES = ("int8[]", "int4[]", "int4[]", "text[]", "text[]")
NOTE_ANSWERS = "txid int8, number int4, attempt int4"

SEALED = 0
"""The decision column of a transaction that is sealed, not decided."""
BRANCH_STATES = {event: state for (_, event), state in BRANCH.moves.items()}
SOURCES = {event: ",".join(STEP.sources(event)) for event in TARGETS}
ANY = ",".join(dict.fromkeys(state for state, _ in STEP.moves))
"""A try without an event is recorded for a step in any unfinished state."""

Values = list[list[Any]]
"""The columns of a statement's parameters."""


class WorkStatements:
    """The statements of one namespace, each called with the requests that it writes."""

    def __init__(self, s: str, *, owner: bool) -> None:
        def plain(sql: str, *types: str) -> PreparedStatement:
            return PreparedStatement.of(sql.format(s=s), types)

        def shared(function: str, sql: str, types: Sequence[str]) -> PreparedStatement:
            return PreparedStatement.of(sql if owner else called(s, function, types), types)

        begun = written(BRANCHES["begun"], s, "tx.pgroup", "tx.txid", token=TOKEN if owner else TOKEN_ASKED)
        self._begin = shared("begin_work", written(BEGIN, s, "x.pgroup", "x.txid"), BEGIN_TYPES)
        self._resolve = shared("resolve", BRANCHES["resolve"].format(s=s), RESOLVE_TYPES)
        self._note = shared("note_branches", BRANCHES["note"].format(s=s), NOTE_TYPES)
        self._begun = PreparedStatement.of(begun, ("int4[]", "int8[]"))
        self._lock, self._standing = (plain(BRANCHES[name], "int8[]") for name in ("lock", "standing"))
        self._record = plain(RECORD, *OWNED, *STEP_TYPES)
        self._mark = plain(STEPS["mark"], *OWNED, "int4[]", *["text[]"] * 5, "int4[]")
        self._settle = plain(SETTLE, *OWNED, "text[]", "int8[]", *STEP_TYPES)
        self._rest = plain(STEPS["rest"], *OWNED, "float8[]", "text[]", "bool[]")
        self._close = plain(STEPS["close"], *OWNED)

    def begin(self, begins: Sequence[Begin], tickets: Sequence[int]) -> StatementCall:
        """Write begins; a ticket finds one with steps again, and is 0 for one without."""
        branches = [(at, n, it) for at, begin in enumerate(begins, 1) for n, it in enumerate(begin.resources, 1)]
        steps = [(at, step) for at, begin in enumerate(begins, 1) for step in begin.steps]
        return self._begin.call(
            [begin.group for begin in begins],
            [begin.run or "" for begin in begins],
            list(tickets),
            *_columns(branches, 3),
            [at for at, _ in steps],
            *_steps([step for _, step in steps]),
        )

    def begun(self, begins: Sequence[Begin], tickets: Sequence[int]) -> StatementCall:
        """Find begins by their tickets."""
        return self._begun.call([begin.group for begin in begins], list(tickets))

    def lock(self, decisions: Sequence[Decide]) -> StatementCall:
        """Lock what is to be decided."""
        return self._lock.call(sorted(each.life.txid for each in decisions))

    def record(self, records: Sequence[RecordSteps]) -> StatementCall:
        """Write further steps."""
        steps = [(each.life, step) for each in records for step in each.steps]
        owned = _columns([(life.txid, life.owner) for life, _ in steps], 2)
        return self._record.call(*owned, *_steps([step for _, step in steps]))

    def mark(self, marks: Sequence[Mark]) -> StatementCall:
        """Write what became of steps, with the states that each event may leave."""
        rows = [
            (
                *(mark.txid, mark.owner, mark.number, TARGETS[mark.event].value if mark.event else ""),
                *(SOURCES[mark.event] if mark.event else ANY, mark.left.value if mark.left else ""),
                *(mark.output or "", kept(mark.error), -1 if mark.event is StepEvent.RESUME else mark.tries),
            )
            for mark in marks
        ]
        return self._mark.call(*_columns(rows, 9))

    def resolve(self, decisions: Sequence[Decide]) -> StatementCall:
        """Write decisions and seals."""
        rows = [(each.life.txid, row) for each in decisions for row in each.rows]
        votes = [(each.life.txid, vote) for each in decisions for vote in each.votes]
        return self._resolve.call(
            [each.life.txid for each in decisions],
            [each.life.owner for each in decisions],
            [int(each.decision or SEALED) for each in decisions],
            [each.who for each in decisions],
            [kept(each.why) for each in decisions],
            [each.evidence or 0 for each in decisions],
            *_columns([(txid, row.qid, row.chunk, row.count, row.body) for txid, row in rows], 5),
            *_columns([(txid, vote.number, vote.attempt, VOTED[vote.vote].value) for txid, vote in votes], 4),
        )

    def settle(self, decisions: Sequence[Decide]) -> StatementCall:
        """Give decided steps a driver, and write those after the decision."""
        steps = [(each.life.txid, step) for each in decisions for step in each.steps]
        return self._settle.call(
            *_columns([(each.life.txid, each.life.owner, each.driver or "") for each in decisions], 3),
            [txid for txid, _ in steps],
            *_steps([step for _, step in steps]),
        )

    def note(self, outcomes: Sequence[BranchOutcome]) -> StatementCall:
        """Write what became of branches."""
        rows = [
            (each.txid, each.number, each.attempt, BRANCH_STATES[each.event].value, kept(each.why)) for each in outcomes
        ]
        return self._note.call(*_columns(rows, 5))

    def release(self, releases: Sequence[Release]) -> StatementCall:
        """Release sagas."""
        rows = [(each.txid, each.owner, each.by.total_seconds(), kept(each.why), each.stalled) for each in releases]
        return self._rest.call(*_columns(rows, 5))

    def close(self, closes: Sequence[Close]) -> StatementCall:
        """End sagas."""
        return self._close.call(*_columns([(each.txid, each.owner) for each in closes], 2))

    def standing(self, txids: Sequence[int]) -> StatementCall:
        """Ask why requests of owners changed nothing."""
        return self._standing.call(list(txids))


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> Values:
    return [[row[at] for row in rows] for at in range(count)]


def _steps(starts: Sequence[Start]) -> Values:
    rows = [
        (
            *(each.number, each.name, each.kind.value, each.resource or "", each.input),
            *(each.compensation or "", each.action or ""),
            -1.0 if each.expires is None else each.expires.total_seconds(),
        )
        for each in starts
    ]
    return _columns(rows, 8)
