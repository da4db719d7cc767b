"""What PostgreSQL servers refuse, or answer wrongly, and how a participant says so."""

from collections.abc import Callable, Iterator
from typing import cast
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_mock_engine, inspect, text

from tests.contracts.samples import start
from tests.evidence.clerks import clerk
from tests.resources.conftest import MakeEngine
from tests.resources.postgres_shelf import PostgresShelf
from tests.services.embedded import embedded_server
from txsaga.core.decision import Decision
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError, EvidenceMissing, RetryLater, RightsMissing, TransientFailure, VotedNo
from txsaga.evidence.location import create
from txsaga.flows.branch import Finish
from txsaga.resources.postgres import PostgresParticipant
from txsaga.testing.participant_contract import begun, new_branch, patiently, voted
from txsaga.wiring.resources import participant_for

pytestmark = pytest.mark.postgres

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK


@pytest.fixture
def engine(url: str, make_engine: MakeEngine) -> Engine:
    return make_engine(url)


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    with embedded_server(getattr(request, "param", None)) as server:
        server.database("shelf")
        yield server


@pytest.mark.req("IBM-13", "IBM-57")
@pytest.mark.parametrize("own_server", [{"max_prepared_transactions": "0"}], indirect=True)
def test_a_server_without_prepared_transactions_is_refused_and_never_commits_a_part(
    own_server: EmbeddedServer, make_engine: MakeEngine
) -> None:
    engine = make_engine(own_server.url("shelf"))
    participant, shelf = PostgresParticipant(engine, name="billing"), PostgresShelf(engine).open()
    with pytest.raises(ConfigError, match=r"'billing'.*max_prepared_transactions = 0.*restart"):
        participant.probe()
    enlisted = begun(participant, shelf, new_branch())
    with pytest.raises(VotedNo, match="prepared transactions are disabled"):
        enlisted.prepare()()
    assert enlisted.finish(ROLLBACK)() is Finish.DONE
    enlisted.leave()
    assert shelf.items() == set()


@pytest.mark.req("WM-46")
@pytest.mark.parametrize("own_server", [{"max_prepared_transactions": "1"}], indirect=True)
def test_no_room_for_another_is_worth_another_try_and_a_busy_one_too(
    own_server: EmbeddedServer, make_engine: MakeEngine
) -> None:
    engine = make_engine(own_server.url("shelf"))
    participant, shelf, branch = PostgresParticipant(engine, name="shelf"), PostgresShelf(engine).open(), new_branch()
    voted(participant, shelf, branch, 1).leave()
    second = begun(participant, shelf, new_branch(), 2)
    with pytest.raises(TransientFailure, match="maximum number of prepared transactions") as full:
        second.prepare()()
    second.leave()
    assert full.value.retryable
    shelf.outside("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
    await_reload(shelf, "synchronous_standby_names", "nobody")
    slow = start(lambda: shelf.overrule(branch, COMMIT))  # it waits for a standby that never comes
    wait_for(shelf, "SyncRep")
    with pytest.raises(RetryLater, match="another session"):
        participant.finish(branch, COMMIT)
    shelf.outside("alter system reset synchronous_standby_names", "select pg_reload_conf()")
    slow.result(20)
    assert participant.finish(branch, COMMIT) is Finish.DONE
    assert shelf.items() == {1}


@pytest.mark.req("IBM-13")
def test_a_standby_or_a_read_only_server_is_refused(url: str, make_engine: MakeEngine) -> None:
    engine = make_engine(url, connect_args={"options": "-c default_transaction_read_only=on"})
    with pytest.raises(ConfigError, match="read only or a standby"):
        PostgresParticipant(engine, name="billing").probe()


def test_probing_writes_nothing(engine: Engine) -> None:
    PostgresParticipant(engine, name="billing").probe()
    assert not inspect(engine).get_table_names()


def test_evidence_that_can_not_be_created_is_missed_at_the_probe(engine: Engine) -> None:
    with clerk(engine) as clerks:
        with pytest.raises(EvidenceMissing, match="txsaga barrier ddl postgresql"):
            PostgresParticipant(clerks, name="billing").probe()
        with pytest.raises(EvidenceMissing, match="txsaga barrier ddl postgresql"):
            PostgresParticipant(engine, name="billing", create=False).probe()
        create(engine)
        with engine.begin() as owner:
            owner.exec_driver_sql("grant select on txsaga_database to public")
        PostgresParticipant(clerks, name="billing").probe()


@pytest.mark.rule("R10")
def test_a_database_that_is_not_the_recorded_one_is_not_believed(
    engine: Engine, foreign_databases: Callable[[], str], make_engine: MakeEngine
) -> None:
    recorded, branch = create(engine), new_branch()
    elsewhere = make_engine(foreign_databases())
    create(elsewhere)
    wrong = PostgresParticipant(elsewhere, name="billing", database=recorded)
    for call in (
        lambda: wrong.finish(branch, COMMIT),
        lambda: wrong.prepared(branch.store),
        lambda: wrong.enlist(branch),
    ):
        with pytest.raises(EvidenceMissing, match="'billing' points to another database"):
            call()
    assert PostgresParticipant(engine, name="billing", database=recorded).database == recorded


@pytest.mark.rule("R10")
def test_a_recorded_database_is_never_given_a_new_identity(engine: Engine) -> None:
    with pytest.raises(EvidenceMissing):
        PostgresParticipant(engine, name="billing", database=uuid4()).prepared("0" * 32)
    assert not inspect(engine).get_table_names()


@pytest.mark.rule("R10")
def test_a_name_that_leads_elsewhere_meanwhile_is_not_believed(engine: Engine) -> None:
    participant, branch = PostgresParticipant(engine, name="billing"), new_branch()
    assert participant.finish(branch, ROLLBACK) is Finish.DONE
    with engine.begin() as connection:
        connection.execute(text("update txsaga_database set uuid = :uuid"), {"uuid": uuid4().hex})
    with pytest.raises(EvidenceMissing, match="another database"):
        participant.finish(branch, ROLLBACK)


@pytest.mark.rule("R10")
def test_a_branch_that_another_database_of_the_server_holds_is_left_alone(
    engine: Engine, foreign_databases: Callable[[], str], make_engine: MakeEngine
) -> None:
    beside = make_engine(foreign_databases())
    neighbour, shelf = PostgresParticipant(beside, name="beside"), PostgresShelf(beside).open()
    branch = new_branch()
    voted(neighbour, shelf, branch).leave()
    with pytest.raises(EvidenceMissing, match="another database"):
        PostgresParticipant(engine, name="billing").finish(branch, COMMIT)
    assert list(neighbour.prepared(branch.store)) == [branch]
    assert neighbour.finish(branch, COMMIT) is Finish.DONE


def test_who_may_not_finish_or_forget_a_branch_is_told_what_is_missing(engine: Engine) -> None:
    shelf, branch = PostgresShelf(engine).open(), new_branch()
    voted(PostgresParticipant(engine, name="billing"), shelf, branch).leave()
    with clerk(engine) as clerks:
        shelf.outside("grant select on txsaga_database, txsaga_evidence to public")
        participant = PostgresParticipant(clerks, name="billing")
        with pytest.raises(RightsMissing, match=r"only the user that prepared .* or a superuser"):
            participant.finish(branch, COMMIT)
        with pytest.raises(RightsMissing, match="grant DELETE on txsaga_evidence"):
            participant.forget(branch)
    assert PostgresParticipant(engine, name="billing").finish(branch, ROLLBACK) is Finish.DONE


@pytest.mark.req("IBM-13", "IBM-48")
def test_a_database_that_takes_no_part_is_refused_by_name() -> None:
    engine = create_mock_engine("oracle://", lambda *_: None)
    with pytest.raises(ConfigError, match=r"'books' is of kind 'oracle'.*postgresql"):
        participant_for(cast(Engine, engine), "books")


@pytest.mark.req("IBM-13")
def test_a_driver_that_can_not_do_it_is_refused_by_name() -> None:
    engine = cast(Engine, create_mock_engine("postgresql+psycopg2://", lambda *_: None))
    with pytest.raises(ConfigError, match=r"'books' can't vote through psycopg2; .*postgresql\+psycopg"):
        participant_for(engine, "books")


def await_reload(shelf: PostgresShelf, setting: str, value: str) -> None:
    """Wait until the server goes by a setting; its checkpointer, which says who waits for standbys, is the last."""

    def look() -> None:
        with shelf.engine.connect() as connection:
            if connection.exec_driver_sql(f"show {setting}").scalar_one() != value:
                raise RetryLater("it is not read yet")

    patiently(look)
    shelf.outside("checkpoint", "checkpoint")


def wait_for(shelf: PostgresShelf, event: str) -> None:
    """Wait until a session of the server waits for something."""
    waiting = text("select count(*) from pg_stat_activity where wait_event = :event")

    def look() -> None:
        with shelf.engine.connect() as connection:
            if not connection.scalar(waiting, {"event": event}):
                raise RetryLater("nobody waits yet")

    patiently(look)
