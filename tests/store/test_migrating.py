"""A store of an older program comes to the newest schema with all that it holds."""

from collections.abc import Callable, Iterator

import pytest
from alembic import command
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from tests.scene.stored import Stored
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.errors import StoreError
from txsaga.messages.decide import DecidedBy
from txsaga.store import migrate
from txsaga.store.connection import make_engine, parse_url
from txsaga.wiring.connecting import connect, open_store

pytestmark = [pytest.mark.postgres, pytest.mark.core]

POLICIES = "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = current_schema"
FILES = "SELECT relname, relfilenode FROM pg_class WHERE oid IN ('op_0'::regclass, 'branch'::regclass)"


@pytest.fixture
def engine(home_url: str) -> Iterator[Engine]:
    engine = make_engine(*parse_url(home_url))
    yield engine
    engine.dispose()


@pytest.fixture
def bring_to(engine: Engine, home_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give what migrates the store to a revision that is not the newest one."""
    upgrade = command.upgrade

    def to(revision: str) -> None:
        with monkeypatch.context() as before:
            before.setattr(command, "upgrade", lambda config, _: upgrade(config, revision))
            migrate.migrate(engine, Stored(home_url).namespace)

    return to


@pytest.fixture
def older(bring_to: Callable[[str], None], home_url: str) -> Stored:
    """Give a store whose decisions are numbers with a constraint in each table."""
    stored = Stored(home_url)
    bring_to("0014")
    stored.rows("INSERT INTO op (txid, decision) VALUES (1, 1), (2, 2)")
    return stored


def test_decisions_stay_where_they_lie_and_as_they_are(bring_to: Callable[[str], None], older: Stored) -> None:
    before = set(older.rows(POLICIES)), set(older.rows(FILES))
    bring_to("0015")
    assert (set(older.rows(POLICIES)), set(older.rows(FILES))) == before
    assert older.rows("SELECT txid, decision FROM op ORDER BY txid") == [(1, 1), (2, 2)]


def test_a_view_of_the_users_is_named_and_nothing_is_changed(home_url: str, older: Stored) -> None:
    older.rows("CREATE VIEW mine AS SELECT decision FROM op")
    with pytest.raises(StoreError, match=r"view mine .*drop that view, run `txsaga db migrate`, and create it again"):
        open_store(home_url)
    assert older.value("SELECT version_num FROM alembic_version") == "0014"
    older.rows("DROP VIEW mine")
    open_store(home_url).close()
    assert older.value("SELECT version_num FROM alembic_version") == migrate.newest()


@pytest.mark.parametrize("table", ["op", "branch", "flow_unit"])
def test_what_is_no_decision_is_still_refused(home_url: str, older: Stored, table: str) -> None:
    open_store(home_url).close()
    with pytest.raises(IntegrityError, match="decision_check"):
        older.rows(f"INSERT INTO {table} (decision) VALUES (3)")


def test_a_transaction_that_was_closed_before_is_sealed_and_can_be_decided(
    bring_to: Callable[[str], None], home_url: str
) -> None:
    stored = Stored(home_url)
    bring_to("0017")
    stored.rows("INSERT INTO tx (txid, pgroup, key, epoch, state) VALUES (7, 1, 'order-7', 1, 'ended')")
    open_store(home_url).close()
    with connect(home_url, roles=False, env={}) as broker:
        assert stored.rows("SELECT state FROM tx") == [("sealed",)]
        by = DecidedBy(who="a test", why="its work is done", from_check=True, found=TxState.SEALED)
        assert broker.kernel.decider.decide(7, Decision.COMMIT, by).won
    assert stored.rows("SELECT state, (SELECT decision FROM op) FROM tx") == [("committed", 1)]


def test_a_check_without_an_answer_keeps_its_result_under_the_new_name(
    bring_to: Callable[[str], None], home_url: str
) -> None:
    stored = Stored(home_url)
    bring_to("0020")
    remark = '[{"at": "2026-01-01", "why": "it is \\"NOBODY\\"", "who": "anna", "answer": "NOBODY"}]'
    stored.rows(f"INSERT INTO doubt (txid, pgroup, check_at, remarks) VALUES (7, 1, now(), '{remark}')")
    stored.rows("INSERT INTO tally (pgroup, answer, n) VALUES (1, 'NOBODY', 3), (1, 'UNKNOWN', 2)")
    stored.rows("INSERT INTO event (txid, what, who, why) VALUES (7, 'CHECK NOBODY', 'anna', '')")
    open_store(home_url).close()
    assert stored.rows("SELECT answer, n FROM tally ORDER BY n") == [("UNKNOWN", 2), ("NO_ANSWER", 3)]
    assert stored.rows("SELECT what FROM event") == [("CHECK NO_ANSWER",)]
    found = stored.rows("SELECT remarks -> 0 ->> 'answer', remarks -> 0 ->> 'why' FROM doubt")
    assert found == [("NO_ANSWER", 'it is "NOBODY"')]
