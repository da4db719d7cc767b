"""What people look at in a store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from tests.oracle.doubts import MemoryDoubts
from tests.oracle.home import Home
from tests.oracle.leases import MemoryLeases
from tests.oracle.log import MemoryLog
from tests.oracle.names import Names
from tests.oracle.queues import MemoryQueues
from tests.oracle.rows import Kept
from tests.oracle.traces import trace
from txsaga.checkback.questions import Remark
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import EVERY, Doubt, Group, TxFilter, TxView
from txsaga.flows.ballot import Polled
from txsaga.flows.branch import HEURISTIC, OPEN
from txsaga.inspect.overview import (
    Audited,
    Backlog,
    BranchBacklog,
    Checks,
    Dispatch,
    DoubtView,
    LastRound,
    Position,
    Reading,
    Undecided,
)
from txsaga.inspect.overview_store import Overview
from txsaga.inspect.trace import Trace

DECIDED = {Decision.COMMIT: TxState.COMMITTED, Decision.ROLLBACK: TxState.ROLLED_BACK}


class MemoryOverview(Overview):
    """Figures and records for people."""

    def __init__(
        self,
        home: Home,
        names: Names,
        doubts: MemoryDoubts,
        log: MemoryLog,
        queues: MemoryQueues,
        leases: MemoryLeases,
    ) -> None:
        self._home, self._names, self._doubts, self._leases = home, names, doubts, leases
        self._memory_log, self._queues = log, queues

    def transactions(
        self, *, limit: int, undecided: bool = False, txid: int | None = None, only: TxFilter = EVERY
    ) -> Sequence[TxView]:
        """List transactions, newest first."""
        assert only is EVERY and txid is None
        with self._home.lock:
            kept = self._home.kept
            txids = sorted({*kept.halves, *kept.lives}, reverse=True)
            wanted = [txid for txid in txids if not (undecided and txid in kept.ops)]
            return [self._view(kept, txid) for txid in wanted[:limit]]

    def transaction(self, txid: int) -> TxView | None:
        """Show one transaction."""
        with self._home.lock:
            kept = self._home.kept
            return self._view(kept, txid) if txid in kept.halves or txid in kept.lives else None

    def _view(self, kept: Kept, txid: int) -> TxView:
        op, opened = kept.ops.get(txid), kept.lives.get(txid)
        if opened is not None:
            life, born, _ = opened
            group, key, epoch, state = life.group, life.key, life.epoch, life.state
            evidence = life.evidence
        else:
            first = kept.halves[txid][0]
            group, key, epoch, state = first.group, None, None, TxState.PREPARED
            evidence, born = first.evidence, first.born
        due = None if op else kept.scheduled.get(txid)
        if self._doubts.parked(txid):
            state = TxState.PARKED
        return TxView(
            txid=txid,
            id=self._home.identity.transaction(txid),
            group=self._names.group_name(group),
            key=key,
            epoch=epoch,
            state=DECIDED[op.decision] if op else state if due is None else "scheduled",
            resource=None if not evidence else self._names.resource_by_id(evidence).name,
            born=born,
            decision=op.decision if op else None,
            from_check=op is not None and op.from_check,
            due=due,
            run=None if opened is None else opened.life.run,
            topics=tuple(sorted({self._names.place(half.row.qid)[0] for half in kept.halves.get(txid, ())})),
        )

    def undecided(self) -> Undecided:
        """Count the transactions without a decision."""
        with self._home.lock:
            kept = self._home.kept
            scheduled = kept.scheduled.keys() - kept.ops.keys()
            txids = self._undecided()
            born = [kept.lives[t].born if t in kept.lives else kept.halves[t][0].born for t in txids]
            parked = sum(self._is_parked(txid) for txid in txids)
            oldest = self._home.now() - min(born) if born else None
            return Undecided(count=len(txids), parked=parked, oldest=oldest, scheduled=len(scheduled))

    def readings(self) -> Sequence[Reading]:
        """Tell how far each group has read each topic."""
        with self._home.lock:
            found: dict[tuple[str, str], list[Position]] = {}
            for (group, qid), cursor in sorted(self._home.kept.cursors.items()):
                topic, index = self._names.place(qid)
                found.setdefault((group, topic), []).append(self._position(group, qid, index, cursor.offset))
            return [
                Reading(group=group, topic=topic, members=self._members(group, topic), positions=tuple(positions))
                for (group, topic), positions in sorted(found.items())
            ]

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""
        with self._home.lock:
            return Counter(sorted(letter.row.group for letter in self._home.kept.letters.values()))

    def dispatch(self) -> Dispatch:
        """Tell of the last tick and of what waits for the next."""
        return self._memory_log.dispatch()

    def history(self, txid: int) -> Sequence[Audited]:
        """Return the audit rows of a transaction."""
        with self._home.lock:
            return [
                Audited(at=audit.at, what=audit.event, who=audit.who, why=audit.why)
                for audit in self._home.kept.audits
                if audit.txid == txid
            ]

    def checks(self, txid: int) -> Checks | None:
        """Tell how a transaction stands on the list of doubts."""
        with self._home.lock:
            listed = self._doubts.listed(txid)
            if listed is None or txid in self._home.kept.ops:
                return None
            return Checks(asked=listed.checks, due=listed.due, parked=listed.parked, remarks=listed.remarks)

    def remarks(self, txid: int) -> Sequence[Remark]:
        """Return what came of the checks of a transaction, the last ones."""
        checks = self.checks(txid)
        return () if checks is None else checks.remarks

    def backlogs(self) -> Sequence[Backlog]:
        """Tell what is undecided of each producer group that ever had something to decide."""
        with self._home.lock:
            found = [(group, self._backlog(group)) for group in self._names.groups()]
            return [backlog for group, backlog in found if group.transactional is not False or backlog.undecided]

    def doubts(self, *, limit: int, parked: bool = False, group: str | None = None) -> Sequence[DoubtView]:
        """Return what is on the list of doubts and undecided."""
        with self._home.lock:
            listed = sorted(self._home.kept.doubts.keys() - self._home.kept.ops.keys())
            views = [self._doubt(each) for each in listed]
            return [
                view for view in views if group in (None, view.group) and (view.checks.parked is not None or not parked)
            ][:limit]

    def polls(self, limit: int = 50) -> Sequence[tuple[int, Polled]]:
        """Return the ballots of open transactions with their votes."""
        with self._home.lock:
            lives, ballots = self._home.kept.lives, sorted(self._home.kept.ballots.items(), key=lambda kept: kept[0])
            found = [(txid, poll) for (txid, _), poll in ballots if lives[txid].life.state is TxState.ACTIVE]
        return found[:limit]

    def branches(self) -> Sequence[BranchBacklog]:
        """Tell what is unfinished in each resource."""
        with self._home.lock:
            return [self._branches(name) for name in sorted({each.name for each in self._names.enlisted()})]

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return what stands of transactions."""
        with self._home.lock:
            ops = self._home.kept.ops
            return {txid: ops[txid].decision for txid in txids if txid in ops}

    def last_round(self, role: str) -> LastRound | None:
        """Tell who led the last round of a role."""
        return self._leases.last_round(role)

    def _doubt(self, txid: int) -> DoubtView:
        kept, doubt, checks = self._home.kept, self._doubts.doubt(txid), self.checks(txid)
        assert checks is not None
        return DoubtView(
            txid=txid,
            id=self._home.identity.transaction(txid),
            group=self._names.group_name(doubt.group),
            key=kept.lives[txid].life.key if txid in kept.lives else None,
            age=self._open_for(doubt),
            member=kept.questions[txid].ask.member if txid in kept.questions else None,
            checks=checks,
        )

    def _branches(self, resource: str) -> BranchBacklog:
        kept, now = self._home.kept, self._home.now()
        named = {
            place: row
            for place, row in kept.branches.items()
            if self._names.resource_by_id(row.resource).name == resource
        }
        waiting = [row.at for place, row in named.items() if row.state in OPEN and place[0] in kept.ops]
        return BranchBacklog(
            resource=resource,
            undecided=sum(row.state in OPEN for row in named.values()) - len(waiting),
            waiting=len(waiting),
            oldest=now - min(waiting) if waiting else None,
            heuristics=sum(row.state in HEURISTIC for row in named.values()),
        )

    def _backlog(self, group: Group) -> Backlog:
        kept, kind = self._home.kept, f"checker:{group.id}"
        mine = [txid for txid in self._undecided() if self._doubts.doubt(txid).group == group.id]
        return Backlog(
            group=group.name,
            undecided=len(mine),
            parked=sum(map(self._is_parked, mine)),
            asked=len(kept.questions.keys() & set(mine)),
            oldest=max(map(self._age, mine), default=None),
            unproven=max(
                (self._open_for(self._doubts.doubt(txid)) for txid in mine if self._is_unproven(txid)), default=None
            ),
            members=len(self._leases.alive([kind])[kind]),
            answers={answer: n for (id, answer), n in sorted(kept.tally.items()) if id == group.id},
        )

    def _age(self, txid: int) -> timedelta:
        return self._open_for(self._doubts.doubt(txid))

    def _is_unproven(self, txid: int) -> bool:
        life = self._home.kept.lives.get(txid)
        closed = life is None or life.life.state is TxState.SEALED
        return closed and self._doubts.doubt(txid).evidence is None and not self._is_parked(txid)

    def _open_for(self, doubt: Doubt) -> timedelta:
        assert doubt.born is not None
        return self._home.now() - doubt.born

    def _undecided(self) -> set[int]:
        kept = self._home.kept
        return {*kept.halves, *kept.lives} - kept.ops.keys() - (kept.scheduled.keys() - kept.ops.keys())

    def trace(self, txid: int) -> Trace | None:
        """Return everything durable of a transaction."""
        with self._home.lock:
            return trace(self._home, self._names, self._doubts, self._memory_log, txid)

    def _position(self, group: str, qid: int, index: int, offset: int) -> Position:
        now, (tail, head) = self._home.now(), self._memory_log.bounds([qid])[qid]
        claims = [row for row in self._home.kept.claims.values() if (row.group, row.qid) == (group, qid)]
        lowest = min([row.base for row in claims if row.copy is None], default=offset)
        held = sum(row.open.bit_count() for row in claims if row.is_held(now))
        in_line = sum(row.open.bit_count() for row in claims if row.is_new)
        lowest = min(lowest, offset)
        since = self._memory_log.given_at(qid, max(lowest, tail)) if lowest < head else None
        return Position(
            queue=index,
            tail=tail,
            head=head,
            offset=offset,
            lowest=lowest,
            held=held,
            retrying=sum(row.open.bit_count() for row in claims) - held - in_line,
            in_line=in_line,
            oldest=None if since is None else now - since,
        )

    def _members(self, group: str, topic: str) -> int:
        """Count who reads a topic: leases of a stream, hands that hold its messages."""
        now, claims = self._home.now(), self._home.kept.claims.values()
        hands = {
            row.member
            for row in claims
            if row.group == group and self._names.place(row.qid)[0] == topic and row.is_held(now) and row.txid is None
        }
        return len(hands) or len(self._queues.members(group, topic))

    def _is_parked(self, txid: int) -> bool:
        opened = self._home.kept.lives.get(txid)
        return self._doubts.parked(txid) or (opened is not None and opened.life.state is TxState.PARKED)
