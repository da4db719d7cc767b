"""Questions in memory: how check-back asks the members of producer groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tests.oracle.doubts import MemoryDoubts
from tests.oracle.home import Home
from tests.oracle.leases import MemoryLeases
from tests.oracle.rows import Audit, Kept, Put
from txsaga.checkback.questions import TURNS, Ask, Lead, OpenQuestion, QuestionAnswer
from txsaga.checkback.questions_store import Questions
from txsaga.core.decision import LocalState
from txsaga.core.records import HalfView


class MemoryQuestions(Questions):
    """What members are asked."""

    def __init__(
        self, home: Home, doubts: MemoryDoubts, leases: MemoryLeases, views: Callable[[int], Sequence[HalfView]]
    ) -> None:
        self._home, self._doubts, self._leases, self._halves_of = home, doubts, leases, views

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        """Put questions and count their checks."""
        with self._home.writing() as kept:
            if not self._leases.holds(lead):
                return []
            asked = [each for each in asks if self._may_ask(kept, each.txid)]
            for each in asked:
                now, listed = self._home.now(), kept.doubts[each.txid]
                kept.doubts[each.txid] = listed._replace(checks=listed.checks + 1, due=now + each.interval)
                kept.questions[each.txid] = Put(each, now)
            return [each.txid for each in asked]

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""
        with self._home.lock:
            return Counter(put.ask.member for put in self._home.kept.questions.values())

    def take(self, member: str, limit: int) -> Sequence[OpenQuestion]:
        """Take up questions put to a member."""
        with self._home.writing() as kept:
            open = [p for p in kept.questions.values() if p.until is None and p.ask.txid not in kept.ops]
            mine = [p.ask for p in open if p.ask.member == member][:limit]
            for ask in mine:
                kept.questions[ask.txid] = kept.questions[ask.txid]._replace(until=self._home.now() + ask.patience)
            keys = {ask.txid: kept.lives[ask.txid].life.key for ask in mine if ask.txid in kept.lives}
            views = {ask.txid: tuple(self._halves_of(ask.txid)) for ask in mine}
            return [OpenQuestion(self._doubts.doubt(a.txid), keys.get(a.txid), views[a.txid], a.patience) for a in mine]

    def answered(self, member: str, answers: Sequence[QuestionAnswer]) -> None:
        """Take questions away."""
        with self._home.writing() as kept:
            for each in answers:
                put = kept.questions.get(each.txid)
                if put is None or put.ask.member != member:
                    continue
                del kept.questions[each.txid]
                answer = "NO_ANSWER" if each.state is None else each.state.value
                self._doubts.count(kept, put.ask.group, answer)
                if each.state in (None, LocalState.UNKNOWN):
                    self._doubts.remark(kept, each.txid, member, answer, each.why)
                else:
                    kept.unlist(each.txid)
                    why = each.why[:500]
                    kept.audits.append(Audit(each.txid, f"CHECK {answer}", member, why, self._home.now()))
                if each.state is None:
                    self._take_back(kept, each.txid)

    def collect(self) -> int:
        """Take away questions that nobody answers."""
        with self._home.writing() as kept:
            gone = [put for put in kept.questions.values() if self._is_over(kept, put)]
            for put in gone:
                self._collect(kept, put)
            return len(gone)

    def _collect(self, kept: Kept, put: Put) -> None:
        txid, late = put.ask.txid, put.until is not None
        del kept.questions[txid]
        absent = ("NO_ANSWER", "its member left or did not take it up")
        answer, why = ("UNKNOWN", "no answer in time") if late else absent
        if txid not in kept.ops:
            self._doubts.count(kept, put.ask.group, answer)
        self._doubts.remark(kept, txid, put.ask.member, answer, why)
        if not late:
            self._take_back(kept, txid)

    def _take_back(self, kept: Kept, txid: int) -> None:
        """Count a question no more, and let it be asked again at once."""
        listed = kept.doubts.get(txid)
        if listed is not None:
            kept.doubts[txid] = listed._replace(checks=listed.checks - 1, due=self._home.now())

    def _is_over(self, kept: Kept, put: Put) -> bool:
        kind = f"checker:{put.ask.group}"
        dead = put.ask.member not in self._leases.alive([kind])[kind]
        late = (put.until or put.at + TURNS * put.ask.patience) <= self._home.now()
        return late or dead or (put.until is None and put.ask.txid in kept.ops)

    def _may_ask(self, kept: Kept, txid: int) -> bool:
        listed = kept.doubts.get(txid)
        return listed is not None and listed.parked is None and txid not in kept.ops and txid not in kept.questions
