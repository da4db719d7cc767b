"""MariaDB servers that fall silent together: who waits for all of them waits no longer than for one."""

import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from tests.resources.conftest import MakeEngine
from tests.resources.maria_shelf import MariaShelf
from txsaga.core.decision import Decision
from txsaga.errors import ResourceManagerFailed
from txsaga.flows.branch import Finish, Vote
from txsaga.resources.mysql import MysqlBranch, MysqlParticipant
from txsaga.testing.participant_contract import begun, new_branch

pytestmark = [pytest.mark.mariadb, pytest.mark.req("WM-46"), pytest.mark.rule("R9")]

PATIENCE = 0.6
"""Seconds."""


def session(hasty: MysqlParticipant, shelf: MariaShelf, item: int) -> MysqlBranch:
    return cast(MysqlBranch, begun(hasty, shelf, new_branch(), item))


@pytest.fixture
def branches(url: str, shelf: MariaShelf, make_engine: MakeEngine) -> Iterator[list[MysqlBranch]]:
    """Give branches of a server that answers no vote."""
    hasty = MysqlParticipant(make_engine(url), name="shelf", patience=PATIENCE)
    assert hasty.database
    opened = [session(hasty, shelf, item) for item in (1, 2, 3)]
    numbers = [each.number for each in opened]
    with shelf.silence():
        yield opened
        for each in opened:
            each.leave()
    for number in numbers:
        shelf.wait_until_gone(number)


def until_refused(vote: Callable[[], object]) -> float:
    started = time.monotonic()
    with pytest.raises(ResourceManagerFailed, match=r"no answer|timed out"):
        vote()
    return time.monotonic() - started


def test_three_are_waited_for_at_once(branches: list[MysqlBranch]) -> None:
    first, *others = [each.prepare() for each in branches]
    until_refused(first)
    assert sum(map(until_refused, others)) < PATIENCE


def test_an_answer_that_its_thread_has_not_read_yet_is_waited_for(
    url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> None:
    patient = MysqlParticipant(make_engine(url), name="shelf", patience=0.0)
    assert patient.database
    branch = session(patient, shelf, 1)
    assert branch.prepare()() is Vote.PREPARED  # no time is left from the beginning on
    assert branch.finish(Decision.ROLLBACK)() is Finish.DONE
    branch.leave()


def test_an_answer_that_is_there_is_heard_however_late(url: str, shelf: MariaShelf, make_engine: MakeEngine) -> None:
    patient = MysqlParticipant(make_engine(url), name="shelf", patience=1.0)
    assert patient.database
    branch = session(patient, shelf, 1)
    vote = branch.prepare()
    time.sleep(1.2)
    assert vote() is Vote.PREPARED
    assert branch.finish(Decision.COMMIT)() is Finish.DONE
    branch.leave()
    assert shelf.items() == {1}
