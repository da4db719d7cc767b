"""A batch whose answer was lost: whatever goes wrong behind the first loss, its fate is unknown, not "no"."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from txsaga.adapters.postgres import batch
from txsaga.adapters.postgres.batch import Batch, Kind
from txsaga.adapters.postgres.hot import Hot
from txsaga.adapters.postgres.line import ConnectionLost
from txsaga.adapters.postgres.wire import Call
from txsaga.errors import ConfigError, IdentityChanged, NotPrimary, OutcomeUnknown, RightsMissing, TxSagaError
from txsaga.model.decision import Decision
from txsaga.model.records import End, Half
from txsaga.testing.samples import row

HOT = Hot.of("s")
STORED = [(7, b"token")]
Step = TxSagaError | ConnectionLost | list[list[tuple[Any, ...]]]


class ScriptedLine:
    """Answers as it was told, and remembers what it was sent."""

    patience = 30.0

    def __init__(
        self, exchanges: Sequence[Step], connects: Sequence[TxSagaError] = (), *, hung_up: bool = False
    ) -> None:
        self._hung_up = hung_up
        self._exchanges, self._connects = deque(exchanges), deque(connects)
        self.sent: list[list[str]] = []

    def exchange(self, calls: Sequence[Call]) -> list[list[tuple[Any, ...]]]:
        self.sent.append([call.sql for call in calls])
        step = self._exchanges.popleft()
        if isinstance(step, Exception):
            raise step
        return step

    def hung_up(self) -> bool:
        return self._hung_up

    def connection(self) -> None:
        if self._connects:
            raise self._connects.popleft()

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PATIENCE", 0.0)


def run(line: ScriptedLine, *ends: End) -> object:
    return Batch(HOT, [Half(1, [row(1, "a")])], ends).answered(line, 0)  # type: ignore[arg-type]  # it acts like one


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
    assert sum(sql == HOT.prepare.one for (sql,) in line.sent) == 1 + batch.RESENDS


@pytest.mark.rule("R14")
def test_what_was_found_is_not_sent_again_and_its_decisions_are_asked_for() -> None:
    line = ScriptedLine([ConnectionLost(), [STORED], [[(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ({Kind.HELD: STORED}, [(3,)])
    assert line.sent == [[HOT.prepare.one, HOT.decide.one], [HOT.batch], [HOT.decide.one]]


@pytest.mark.rule("R14")
def test_what_was_not_found_is_sent_again_as_a_whole() -> None:
    line = ScriptedLine([ConnectionLost(), [[]], [STORED, [(3,)]]])
    assert run(line, End(3, 1, b"", Decision.COMMIT)) == ({Kind.HELD: STORED}, [(3,)])
    assert line.sent == [[HOT.prepare.one, HOT.decide.one], [HOT.batch], [HOT.prepare.one, HOT.decide.one]]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("turned_away", [NotPrimary("standby"), IdentityChanged("another"), RightsMissing("no")])
def test_a_session_that_ended_before_anything_was_sent_leaves_no_doubt(turned_away: TxSagaError) -> None:
    line = ScriptedLine([], [turned_away], hung_up=True)
    with pytest.raises(type(turned_away)):
        run(line)
    assert line.sent == []
    back = ScriptedLine([[STORED]], hung_up=True)
    assert run(back) == ({Kind.HELD: STORED}, [])
