"""A batch whose answer was lost: whatever goes wrong behind the first loss, its fate is unknown, not "no"."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.contracts.samples import row
from txsaga.core.decision import Decision
from txsaga.core.records import End, Half
from txsaga.errors import (
    ConfigError,
    IdentityChanged,
    NotPrimary,
    OutcomeUnknown,
    RightsMissing,
    StoreError,
    TxSagaError,
)
from txsaga.messages import halves_store
from txsaga.messages.halves_store import CallKind, HotBatch
from txsaga.messages.hot_statements import Hot, StatementForm
from txsaga.store.pipeline import ConnectionLost, PipelineConnection
from txsaga.store.values import int4, uuid
from txsaga.store.wire import Call

HOT = Hot.of("s")
OWN = StatementForm("own one", "own many")
HERE = (uuid(UUID(int=7)), int4(1))
STORED = [(7, b"token")]
Step = TxSagaError | ConnectionLost | list[list[tuple[Any, ...]]]


class ScriptedLine:
    """Answers as it was told, and remembers what it was sent."""

    patience = 30.0

    def __init__(self, exchanges: Sequence[Step], connects: Sequence[TxSagaError] = ()) -> None:
        self._exchanges, self._connects = deque(exchanges), deque(connects)
        self.sent: list[list[str]] = []

    def exchange(self, calls: Sequence[Call], *, alone: bool = False) -> list[list[tuple[Any, ...]]]:
        assert not alone, "two halves and a decision of different callers"
        self.sent.append([call.sql for call in calls])
        step = self._exchanges.popleft()
        if isinstance(step, Exception):
            raise step
        return step

    def connection(self) -> None:
        if self._connects:
            raise self._connects.popleft()

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves_store, "PATIENCE", 0.0)


def run_own(line: ScriptedLine) -> object:
    return run(line, End(3, 1, b"", Decision.COMMIT), own=OWN)


def run(line: ScriptedLine, *ends: End, own: StatementForm | None = None) -> object:
    batch = HotBatch(HOT, [Half(1, [row(1, "a")], immunity=at) for at in range(2)], ends, own)  # not alike
    return batch.answered(line, 0, HERE)  # type: ignore[arg-type]  # it acts like one


@pytest.mark.rule("R14")
@pytest.mark.parametrize(
    "turned_away", [RightsMissing("no"), ConfigError("no database"), IdentityChanged("another"), NotPrimary("standby")]
)
def test_being_turned_away_behind_a_lost_answer_is_unknown(turned_away: TxSagaError) -> None:
    with pytest.raises(OutcomeUnknown):
        run(ScriptedLine([ConnectionLost()], [turned_away]))


@pytest.mark.rule("R14")
@pytest.mark.parametrize("steps", [[NotPrimary("standby")], [[[]], NotPrimary("standby")]])
def test_an_error_of_the_look_up_or_of_the_second_try_is_unknown(steps: Sequence[Step]) -> None:
    with pytest.raises(OutcomeUnknown):
        run(ScriptedLine([ConnectionLost(), *steps]))


@pytest.mark.rule("R14")
def test_a_batch_that_breaks_every_connection_is_not_sent_for_ever() -> None:
    lost: Sequence[Step] = [ConnectionLost(), [[]]]
    line = ScriptedLine([*lost] * 9)
    with pytest.raises(OutcomeUnknown):
        run(line)
    assert sum(sql == HOT.prepare.many for (sql,) in line.sent) == 1 + halves_store.RESENDS


@pytest.mark.rule("R14")
def test_what_was_found_is_not_sent_again_and_its_decisions_are_asked_for() -> None:
    line = ScriptedLine([ConnectionLost(), [STORED], [[(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ({CallKind.HELD: STORED}, [(3,)])
    assert line.sent == [[HOT.prepare.many, HOT.decide.one], [HOT.batch], [HOT.decide.one]]


@pytest.mark.rule("R14")
def test_what_was_not_found_is_sent_again_as_a_whole() -> None:
    line = ScriptedLine([ConnectionLost(), [[]], [STORED, [(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ({CallKind.HELD: STORED}, [(3,)])
    assert line.sent == [[HOT.prepare.many, HOT.decide.one], [HOT.batch], [HOT.prepare.many, HOT.decide.one]]


@pytest.mark.rule("R14")
def test_own_ends_are_those_of_anybody_in_another_session() -> None:
    line = ScriptedLine([ConnectionLost(), [[]], [STORED, [(3,)]]])
    assert run_own(line) == ({CallKind.HELD: STORED}, [(3,)])
    assert line.sent == [[HOT.prepare.many, OWN.one], [HOT.batch], [HOT.prepare.many, HOT.decide.one]]


@pytest.mark.rule("R14")
def test_own_ends_that_others_decided_go_the_long_way_with_their_batch() -> None:
    refused = StoreError("duplicate")
    refused.__cause__ = psycopg.errors.UniqueViolation()
    line = ScriptedLine([refused, [STORED, []]])
    assert run_own(line) == ({CallKind.HELD: STORED}, [])
    assert line.sent == [[HOT.prepare.many, OWN.one], [HOT.prepare.many, HOT.decide.one]]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("turned_away", [NotPrimary("standby"), IdentityChanged("another"), RightsMissing("no")])
def test_a_session_that_ended_before_anything_was_sent_leaves_no_doubt(turned_away: TxSagaError) -> None:
    with pytest.raises(type(turned_away)):
        EndedLine(turned_away).session()
    back = EndedLine(None)
    assert back.session() is back.wire
    assert back.opened == 1


class EndedLine(PipelineConnection):
    """Its session ended while nothing was under way."""

    class Ended:
        """What it says of itself."""

        def hung_up(self) -> bool:
            return True

    def __init__(self, turned_away: TxSagaError | None) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # it opens no connection
        self._turned_away, self.opened = turned_away, 0
        self._connection = self  # type: ignore[assignment]
        self.wire = self.Ended()  # type: ignore[assignment]

    def connection(self) -> Any:  # nobody looks at it
        if self._connection is None:
            self.opened += 1
            if self._turned_away is not None:
                raise self._turned_away
            self._connection, self.wire = self, object()  # type: ignore[assignment]
        return self._connection

    def close(self) -> None:
        self._connection = None
