"""`txsaga doctor` through the entry point: each finding is made to happen, and says what helps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

import txsaga
from tests.cli.conftest import Cli
from tests.contracts.samples import park
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.pooler import pooled
from tests.store.logins import logins
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.clock import wall_clock
from txsaga.store import doctor, partitions
from txsaga.store.right import Right
from txsaga.testing.checking import check_once
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R18")]

Findings = dict[str, dict[str, Any]]
Examine = Callable[..., tuple[int, Findings]]


@pytest.fixture
def examine(bare: Cli) -> Examine:
    """Give a way to examine a database: the exit code, and what was found by its name."""

    def call(url: str) -> tuple[int, Findings]:
        said = bare("doctor", "--json", "--url", url)
        assert said.err == ""
        return said.code, {finding["what"]: finding for finding in said.documents}

    return call


@pytest.fixture
def home(foreign_databases: Callable[[], str]) -> str:
    """Give the URL of a store in a database of its own."""
    url = foreign_databases()
    open_store(url).close()
    return url


@pytest.fixture
def admin(home: str) -> Iterator[Engine]:
    """Give the owner's own way into that database."""
    engine = create_engine(home, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@pytest.fixture
def clerk(home: str, admin: Engine) -> Iterator[str]:
    """Give the URL of a second user of that database, who may not do a thing yet."""
    name = fresh_name("clerk")
    with admin.connect() as connection:
        connection.execute(text(f"create role {name} login password 'secret'"))
    yield make_url(home).set(username=name, password="secret").render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"drop owned by {name}"))
        connection.execute(text(f"drop role {name}"))


@pytest.fixture
def broker(home: str) -> Iterator[Broker]:
    with txsaga.connect(home, roles=False, answering=False, env={}) as broker:
        yield broker


def run(engine: Engine, statement: str, **names: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(statement.format(**names)))


def bad(found: Findings) -> dict[str, str]:
    """Return what is not as it should be; whatever is not must say what helps."""
    worse = {what: finding for what, finding in found.items() if finding["severity"] != "ok"}
    assert all(finding["remedy"] for finding in worse.values())
    return {what: finding["severity"] for what, finding in worse.items()}


def test_a_healthy_store_has_nothing_to_complain_of(bare: Cli, examine: Examine, home: str) -> None:
    code, found = examine(home)
    assert (code, bad(found)) == (0, {})
    assert list(found) == [
        *("connection", "version", "clock", "two-phase", "durability", "settings", "disk", "old transactions"),
        *("pooler", "schema", "identity", "rights", "partitions", "dispatcher", "log", "decisions", "keys"),
        *("check-back", "undecided", "producers", "tables", "out of checks", "groups", "dead letters"),
        *("branches", "heuristics", "flows"),
    ]
    said = bare("doctor", "--url", home)
    assert (said.code, said.out, said.err) == (0, f"{len(found)} checks, no problems\n", "")
    assert all(line.startswith("ok") for line in bare("doctor", "--all", "--url", home).lines[1:])


def test_nothing_is_changed(examine: Examine, home: str) -> None:
    stored = Stored(home)
    tables = [
        name
        for (name,) in stored.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'txsaga'::regnamespace AND relkind = 'r'"
        )
    ]
    before = {name: stored.rows(f"SELECT xmin::text, t::text FROM {name} t") for name in tables}
    examine(home)
    assert before["store"]
    assert before == {name: stored.rows(f"SELECT xmin::text, t::text FROM {name} t") for name in tables}


def test_a_database_of_a_flow_that_is_down_is_named(bare: Cli, home: str) -> None:
    names = {"TXSAGA_RESOURCE_BANK_A": home, "TXSAGA_RESOURCE_FILE": "sqlite:////nowhere/at/all.db"}
    said = bare("doctor", "--url", home, "--all", **names)
    assert (said.code, said.lines[-1].split()) == (0, ["ok", "resources", "reachable", "from", "here:", "bank_a", "-"])
    said = bare("doctor", "--url", home, **names, TXSAGA_RESOURCE_BANK_B="postgresql+psycopg://127.0.0.1:1/away")
    assert (said.code, len(said.lines)) == (0, 2)
    assert said.lines[1].startswith("warning  resources  resource 'bank_b' does not answer: ")
    assert "bank_a" not in said.lines[1]


def test_an_address_that_is_none_is_named(bare: Cli, home: str) -> None:
    said = bare("doctor", "--url", home, TXSAGA_RESOURCE_BANK_B="nowhere")
    assert said.code == 0 and "TXSAGA_RESOURCE_BANK_B is not a database URL" in said.out


# Where the store can't be opened


def test_a_database_that_is_not_migrated_says_so(examine: Examine, foreign_databases: Callable[[], str]) -> None:
    code, found = examine(foreign_databases())
    assert (code, found["schema"]["severity"]) == (7, "error")
    assert found["schema"]["remedy"] == "run `txsaga db migrate`"
    assert "rights" not in found


def test_a_namespace_without_a_schema_is_one_finding_with_its_command(bare: Cli, home: str) -> None:
    said = bare("doctor", "--url", home, "--namespace", "nowhere")
    assert (said.code, len(said.lines)) == (7, 2)
    assert said.lines[1].startswith("error  schema  namespace 'nowhere' has schema none, needs ")
    assert said.lines[1].endswith("run `txsaga --namespace nowhere db migrate`")


def test_a_wrong_identity_says_so_and_the_rest_is_looked_at(examine: Examine, home: str) -> None:
    Stored(home).rows("UPDATE store SET system_identifier = 1")
    code, found = examine(home)
    assert (code, bad(found)) == (7, {"identity": "error"})
    assert "txsaga db adopt" in found["identity"]["remedy"]
    assert "partitions" in found
    assert "dispatcher" not in found


@pytest.mark.parametrize("change", ["secret:guess", "role", "port"])
def test_a_database_that_can_not_be_reached_says_so(examine: Examine, home: str, clerk: str, change: str) -> None:
    url = make_url(clerk)
    wrong = {
        "secret:guess": url.set(password="guess"),
        "role": url.set(username="nobody_at_all"),
        "port": url.set(host="127.0.0.1", port=1, query={}),
    }[change]
    code, found = examine(wrong.render_as_string(hide_password=False))
    assert (code, bad(found)) == (7, {"connection": "error"})


def test_a_schema_that_is_newer_says_so(examine: Examine, home: str) -> None:
    Stored(home).rows("UPDATE alembic_version SET version_num = '9999'")
    code, found = examine(home)
    assert (code, found["schema"]["severity"]) == (7, "error")
    assert found["schema"]["remedy"] == "upgrade txsaga"


# Rights


def test_a_user_without_rights_is_told(examine: Examine, clerk: str) -> None:
    code, found = examine(clerk)
    assert (code, found["schema"]["severity"]) == (7, "error")
    assert "grant the right" in found["schema"]["remedy"]


def test_a_user_with_privileges_but_no_right_is_told_the_command(
    bare: Cli, examine: Examine, admin: Engine, home: str, clerk: str
) -> None:
    name = make_url(clerk).username
    assert name
    run(admin, "GRANT USAGE ON SCHEMA txsaga TO {name}", name=name)
    run(admin, "GRANT SELECT ON txsaga.alembic_version, txsaga.store TO {name}", name=name)
    code, found = examine(clerk)
    assert (code, found["rights"]["severity"]) == (7, "error")
    assert found["rights"]["found"] == f"{name} has no right in namespace txsaga"
    assert f"`txsaga db grant producer|consumer|operator|engine --to {name}`" in found["rights"]["remedy"]


@pytest.mark.parametrize("right", [*Right])
def test_a_user_is_told_the_rights_that_it_has_and_the_command_for_the_others(
    examine: Examine, home: str, right: Right
) -> None:
    with logins(home) as made:
        code, found = examine(made.url_with(right))
        assert (code, bad(found)) == (0, {})
        assert found["rights"]["found"] == f"{made.made[0]} has the rights {right}"
        assert "txsaga db grant" in found["rights"]["remedy"]
        assert found["dead letters"]["found"] in (
            "there are no dead letters",
            "not checked: this login lacks the right",
        )


def test_a_right_that_was_taken_apart_is_told(examine: Examine, home: str) -> None:
    with logins(home) as made:
        clerk = made.url_with(Right.PRODUCER)
        made.run("REVOKE INSERT ON op FROM txsaga_producer")
        code, found = examine(clerk)
    assert (code, found["rights"]["severity"]) == (7, "error")
    assert found["rights"]["found"] == f'{made.made[0]} may not INSERT "txsaga"."op"'
    assert "txsaga db migrate" in found["rights"]["remedy"]


# Settings


@pytest.mark.parametrize(
    ("setting", "what", "severity", "code"),
    [
        ("statement_timeout = '30s'", "settings", "warning", 0),
        ("idle_in_transaction_session_timeout = '5s'", "settings", "warning", 0),
        ("default_transaction_isolation = 'serializable'", "settings", "error", 7),
        ("default_transaction_read_only = on", "settings", "error", 7),
        ("search_path = public, pg_catalog", "settings", "warning", 0),
        ("synchronous_commit = off", "durability", "warning", 0),
    ],
)
@pytest.mark.parametrize("owner", ["DATABASE", "ROLE"])
def test_a_setting_that_breaks_us_is_named_with_its_reset(
    examine: Examine,
    home: str,
    admin: Engine,
    clerk: str,
    owner: str,
    setting: str,
    what: str,
    severity: str,
    code: int,
) -> None:
    url, of = make_url(clerk), {"DATABASE": make_url(home).database, "ROLE": make_url(clerk).username}[owner]
    with admin.connect() as connection:
        connection.execute(text(f"GRANT ALL ON SCHEMA txsaga TO {url.username}"))
        connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA txsaga TO {url.username}"))
        connection.execute(text(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA txsaga TO {url.username}"))
        connection.execute(text(f"ALTER {owner} {of} SET {setting}"))
    _, found = examine(clerk)
    assert found[what]["severity"] == severity
    name = setting.partition(" ")[0]
    assert found[what]["remedy"] == f"ALTER {owner} {of} RESET {name}"
    with create_engine(home, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        connection.execute(text(found[what]["remedy"]))
    assert examine(clerk)[1][what]["severity"] == "ok"


def test_clocks_that_differ_are_told(examine: Examine, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for ahead, way in ((5, "behind"), (-5, "ahead of")):
        monkeypatch.setattr(doctor, "wall_clock", lambda by=timedelta(seconds=ahead): wall_clock() + by)
        code, found = examine(home)
        assert (code, bad(found)) == (0, {"clock": "warning"})
        assert f"{way} this machine" in found["clock"]["found"]


@pytest.mark.parametrize(
    ("mode", "passing", "severities"),
    [
        ("transaction", "", {"pooler": "error", "schema": "error"}),
        ("transaction", "options", {"pooler": "error"}),
        ("session", "", {"pooler": "error", "schema": "error"}),
        ("session", "options", {"pooler": "error"}),
    ],
)
def test_a_pooler_that_breaks_sessions_is_found(
    examine: Examine, home: str, mode: str, passing: str, severities: dict[str, str]
) -> None:
    with pooled(home, mode, passing=passing) as url:
        code, found = examine(url)
    assert (code, bad(found)) == (7, severities)
    assert found["pooler"]["remedy"].startswith("connect to the server itself")
    assert ("another backend" in found["pooler"]["found"]) is (mode == "transaction")


def test_a_full_disk_is_told(examine: Examine, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "GiB are free" in examine(home)[1]["disk"]["found"]
    monkeypatch.setattr(doctor, "LITTLE", shutil.disk_usage("/").total * 1_000)
    code, found = examine(home)
    assert (code, bad(found)) == (0, {"disk": "warning"})


def test_a_transaction_that_holds_back_the_clean_up_is_named(
    examine: Examine, home: str, admin: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LONG", 0.0)
    with create_engine(home, poolclass=NullPool, isolation_level="REPEATABLE READ").connect() as reader:
        pid = reader.execute(text("SELECT pg_backend_pid()")).scalar_one()
        code, found = examine(home)
        assert (code, found["old transactions"]["severity"]) == (0, "warning")
        with admin.connect() as connection:
            named = connection.execute(text(doctor.SQL["holders"]), {"long": 0.0}).scalars().all()
        assert any(who.startswith(f"session {pid} ") for who in named)


# The state of the store


def test_numbers_that_run_out_are_told(examine: Examine, home: str) -> None:
    stored = Stored(home)
    for last, severity, code in ((2 * partitions.SPAN - 1_000, "warning", 0), (2 * partitions.SPAN - 1, "error", 7)):
        stored.rows("SELECT setval('tx_seq', :last)", last=last)
        got, found = examine(home)
        assert (got, bad(found)) == (code, {"partitions": severity})


def test_what_waits_for_a_tick_says_that_no_dispatcher_runs(examine: Examine, home: str, broker: Broker) -> None:
    broker.create_topic("news")
    broker.producer("plain").send("news", b"a")
    assert examine(home)[0] == 0
    Stored(home).let_pass(60)
    code, found = examine(home)
    assert (code, bad(found)) == (7, {"dispatcher": "error"})
    Dispatcher(broker.kernel).run_once()
    assert examine(home)[0] == 0


def test_what_nobody_decided_and_what_is_parked_is_told(examine: Examine, home: str, broker: Broker) -> None:
    broker.create_topic("orders", "transaction")
    receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
    Dispatcher(broker.kernel).run_once()
    assert examine(home)[1]["undecided"]["found"] == "1 transactions are in progress"
    Stored(home).let_pass(7200)
    Dispatcher(broker.kernel).run_once()
    found = examine(home)[1]["undecided"]
    assert (found["severity"], "the oldest for 2 h 0 min" in found["found"]) == ("warning", True)
    Stored(home).let_pass(60)
    assert broker.kernel.store.doubts.sweep(timedelta(seconds=6)) == 1
    park(broker.kernel.store, receipt.txid, "out of checks")
    found = examine(home)[1]["undecided"]
    assert found["found"].startswith("1 transactions are parked")
    assert "txsaga tx pending --parked" in found["remedy"]


@pytest.mark.req("RMQ-30")
def test_who_leads_the_rounds_is_told_and_that_nobody_does(examine: Examine, home: str, broker: Broker) -> None:
    broker.create_topic("orders", "transaction")
    broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
    Stored(home).let_pass(60)
    Dispatcher(broker.kernel).run_once()
    assert examine(home)[1]["check-back"]["found"] == "no round of check-back has run yet"
    Stored(home).let_pass(60)
    code, all_found = examine(home)
    told = all_found["check-back"]
    assert (code, told["severity"], told["remedy"]) == (0, "warning", "run `txsaga engine`")
    check_once(broker)
    found = examine(home)[1]["check-back"]
    assert (found["severity"], f"led by {broker.kernel.member}" in found["found"]) == ("ok", True)
    Stored(home).rows("UPDATE lease SET until = until - interval '1 hour' WHERE kind = 'round'")
    assert examine(home)[1]["check-back"]["severity"] == "ok"  # nothing is due
    Stored(home).let_pass(60)
    found = examine(home)[1]["check-back"]
    assert (found["severity"], "and transactions are due for a check" in found["found"]) == ("warning", True)


@pytest.mark.req("RMQ-85", "RMQ-70")
def test_a_group_that_nobody_answers_for_is_named(examine: Examine, home: str, broker: Broker) -> None:
    broker.create_topic("orders", "transaction")
    receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
    Heartbeat(broker.kernel).run_once()
    Stored(home).rows("UPDATE half SET born = born - interval '30 minutes'")
    assert examine(home)[1]["producers"]["severity"] == "ok"
    Stored(home).rows("DELETE FROM lease")
    code, found = examine(home)
    assert (code, bad(found)) == (0, {"producers": "warning"})
    assert found["producers"]["found"].endswith("transactions of shop")
    park(broker.kernel.store, receipt.txid, "out of checks")
    assert bad(examine(home)[1]) == {"undecided": "warning"}


@pytest.mark.req("RMQ-67")
def test_a_group_that_is_rolled_back_when_nobody_knows_is_named(examine: Examine, home: str, broker: Broker) -> None:
    broker.producer("shop", checker=lambda _: None)
    broker.set_checks("shop", on_exhausted="rollback")
    code, found = examine(home)
    assert (code, bad(found)) == (0, {"out of checks": "warning"})
    assert found["out of checks"]["remedy"] == "`txsaga producer alter shop --reset on-exhausted`"
    broker.set_checks("shop", on_exhausted=None)
    assert bad(examine(home)[1]) == {}


def test_groups_that_lose_and_dead_letters_are_told(examine: Examine, home: str, broker: Broker) -> None:
    broker.create_topic("news", queues=1)
    broker.create_group("careless", dead_letters=False)
    broker.create_group("careful", max_attempts=1)
    broker.producer("plain").send("news", b"a")
    Dispatcher(broker.kernel).run_once()
    with broker.consumer("careful", ["news"]) as consumer:
        (message,) = consumer.receive()
        message.nack("broken")
    code, found = examine(home)
    assert (code, bad(found)) == (0, {"groups": "warning", "dead letters": "warning"})
    assert "careless" in found["groups"]["found"]
    assert found["dead letters"]["found"] == "1 messages are dead letters of careful"


def test_a_question_that_is_not_answered_does_not_stop_the_others(
    examine: Examine, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SQL", {**doctor.SQL, "who": "SELECT no_such_thing()"})
    code, found = examine(home)
    assert (code, bad(found)) == (7, {"rights": "error"})
    assert found["rights"]["found"].startswith("can't be checked: ")
    assert "dead letters" in found
