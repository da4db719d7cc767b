"""A batch whose answer was lost: whatever goes wrong after the first loss, its outcome is unknown, not "no"."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

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
    TxSagaError,
)
from txsaga.messages import halves_store
from txsaga.messages.halves_store import HalfBatch
from txsaga.messages.hot_statements import Hot
from txsaga.store.pipeline import ConnectionLost, PipelineConnection
from txsaga.store.statement import StatementCall

HOT = Hot("s")
PREPARE, DECIDE = HOT.writers["prepare"].many.sql, HOT.writers["decide"].one.sql
STORED = [(7, b"token")]
Step = TxSagaError | ConnectionLost | list[list[tuple[Any, ...]]]


class ScriptedLine:
    """Answers as it was told, and remembers what it was sent."""

    patience = 30.0

    def __init__(self, exchanges: Sequence[Step], connects: Sequence[TxSagaError] = ()) -> None:
        self._exchanges, self._connects = deque(exchanges), deque(connects)
        self.sent: list[list[str]] = []

    def exchange(self, calls: Sequence[StatementCall]) -> list[list[tuple[Any, ...]]]:
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


def run(line: ScriptedLine, *ends: End) -> object:
    batch = HalfBatch(HOT, [Half(1, [row(1, "a")])] * 2, ends)
    return batch.answered(line, 0)  # type: ignore[arg-type]  # it acts like one


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
    assert sum(sql == PREPARE for (sql,) in line.sent) == 1 + halves_store.RESENDS


@pytest.mark.rule("R14")
def test_what_was_found_is_not_sent_again_and_its_decisions_are_asked_for() -> None:
    line = ScriptedLine([ConnectionLost(), [STORED], [[(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ([STORED], [(3,)])
    assert line.sent == [[PREPARE, DECIDE], [HOT.batch.sql], [DECIDE]]


@pytest.mark.rule("R14")
def test_what_was_not_found_is_sent_again_as_a_whole() -> None:
    line = ScriptedLine([ConnectionLost(), [[]], [STORED, [(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ([STORED], [(3,)])
    assert line.sent == [[PREPARE, DECIDE], [HOT.batch.sql], [PREPARE, DECIDE]]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("turned_away", [NotPrimary("standby"), IdentityChanged("another"), RightsMissing("no")])
def test_a_session_that_ended_before_anything_was_sent_leaves_no_doubt(turned_away: TxSagaError) -> None:
    with pytest.raises(type(turned_away)):
        EndedLine(turned_away).reopen()
    back = EndedLine(None)
    back.reopen()
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
