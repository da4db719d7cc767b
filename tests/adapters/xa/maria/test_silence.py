"""MariaDB servers that fall silent together: who waits for all of them waits no longer than for one."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.adapters.xa.conftest import MakeEngine
from tests.adapters.xa.maria.noting import PUT, enlisted
from tests.adapters.xa.maria_shelf import MariaShelf
from txsaga.adapters.xa import MysqlParticipant
from txsaga.errors import xa
from txsaga.ports.participants import Enlisted
from txsaga.testing.participant_contract import begun, new_branch

pytestmark = [pytest.mark.mariadb, pytest.mark.req("WM-46"), pytest.mark.rule("R9")]

PATIENCE, AT_ONCE = 0.6, 0.3
"""Seconds."""
Open = Callable[[MysqlParticipant, MariaShelf, int], Enlisted]


def session(hasty: MysqlParticipant, shelf: MariaShelf, item: int) -> Enlisted:
    return begun(hasty, shelf, new_branch(), item)


def journal(hasty: MysqlParticipant, _: MariaShelf, item: int) -> Enlisted:
    return enlisted(hasty, new_branch(), PUT, id=item)


@pytest.fixture(params=[session, journal])
def branches(
    request: pytest.FixtureRequest, url: str, shelf: MariaShelf, make_engine: MakeEngine
) -> Iterator[list[Enlisted]]:
    """Give branches of a server that answers no vote."""
    hasty = MysqlParticipant(make_engine(url), name="shelf", patience=PATIENCE)
    assert hasty.database
    opened = [request.param(hasty, shelf, item) for item in (1, 2, 3)]
    with shelf.silence():
        yield opened
        for each in opened:
            each.leave()


def until_refused(vote: Callable[[], object]) -> float:
    started = time.monotonic()
    with pytest.raises(xa.ResourceManagerFailed, match=r"no answer|timed out"):
        vote()
    return time.monotonic() - started


def test_three_are_waited_for_at_once(branches: list[Enlisted]) -> None:
    first, *others = [each.prepare() for each in branches]
    assert AT_ONCE < until_refused(first) < PATIENCE + AT_ONCE
    assert sum(map(until_refused, others)) < AT_ONCE
