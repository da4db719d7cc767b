"""What programs in any language call in their own transactions: `send` and `join`, as functions of the namespace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import Engine, NullPool, create_engine, make_url

import txsaga
from tests.contracts.samples import drain
from tests.gateway.test_official import fetched
from tests.services.absent import ci_or_skip
from tests.store.logins import logins
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.core.message import MAX_BODY, MAX_HEADERS, MAX_KEY, MAX_TAG, Delivered
from txsaga.core.records import End, Half, Receipt
from txsaga.core.topic import SYSTEM_TOPICS, SendKind
from txsaga.gateway.handles import transaction_id
from txsaga.messages.message_buffer import Outbox
from txsaga.store.connection import parse_url
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres
PROGRAMS = Path(__file__).parent / "programs"
MODULES = Path(__file__).parents[1] / "gateway" / "clients"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "send-from-sql.md"
JARS = Path(__file__).parents[2] / ".jars"


def plain(url: str) -> str:
    """Return a URL as programs without txsaga take it."""
    return parse_url(url)[0].set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def home(home_url: str) -> Iterator[Engine]:
    """Give the home database, as a resource that keeps evidence."""
    engine = create_engine(parse_url(home_url)[0], poolclass=NullPool)
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS payment")
    engine.dispose()


@pytest.fixture
def broker(home_url: str, home: Engine) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, resources={"shop": home}, roles=False, answering=False, env={}) as broker:
        broker.create_topic("paid", queues=4)
        broker.create_topic("orders", "transaction", queues=1)
        broker.create_topic("lines", "fifo", queues=1)
        yield broker


@pytest.fixture
def program(broker: Broker, home_url: str) -> Iterator[psycopg.Connection]:
    """Give the connection of a program that knows nothing of txsaga, and has a table of its own."""
    with psycopg.connect(plain(home_url)) as program:
        program.execute("CREATE TEMPORARY TABLE payment (id int PRIMARY KEY)")
        program.execute(f'SET search_path = public, "{broker.kernel.store.namespace}"')  # here `txsaga` has this name
        program.commit()
        yield program


def messages(broker: Broker, topic: str = "paid") -> list[Delivered]:
    drain(broker.kernel.store)
    with broker.stream("readers", [topic]) as stream:
        return list(stream.messages(wait=0))


def checked(broker: Broker, receipt: Receipt) -> Decision | None:
    """Check a transaction as a round of check-back does; return its decision."""
    doubt = broker.kernel.store.doubts.of(receipt.txid)
    assert doubt is not None
    return broker.kernel.settler.check(doubt).decision


def prepared(broker: Broker, evidence: str | None = "shop") -> tuple[Receipt, str]:
    """Store a half message as another program does; return what that program tells the one that works."""
    kernel, outbox = broker.kernel, Outbox(broker.kernel.topics, SendKind.HALF)
    outbox.add(txsaga.Message("orders", b"order 7"))
    resource = None if evidence is None else kernel.resource(evidence)[0].id
    receipt = kernel.stores.call(Half(broker.producer("shop").group.id, outbox.take(), resource))
    return receipt, transaction_id(broker.identity, receipt)


@pytest.mark.req("RMQ-01")
def test_a_message_and_a_row_share_the_commit(broker: Broker, program: psycopg.Connection) -> None:
    program.execute("INSERT INTO payment VALUES (7)")
    sent = program.execute("SELECT send('shop', 'paid', 'payment 7', key => '7')").fetchone()
    assert messages(broker) == []
    program.commit()
    (found,) = messages(broker)
    assert sent == (found.half.txid,)
    assert (found.text(), found.key) == ("payment 7", "7")


@pytest.mark.req("RMQ-01")
def test_a_caller_that_rolls_back_leaves_nothing(broker: Broker, program: psycopg.Connection) -> None:
    program.execute("SELECT send('fresh', 'paid', 'x')")
    program.rollback()
    assert messages(broker) == []
    assert program.execute("SELECT count(*) FROM half").fetchone() == (0,)
    assert broker.kernel.store.registry.find_group("fresh") is None


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000, 1001, 100_000])
def test_every_part_arrives_as_it_was_sent(broker: Broker, program: psycopg.Connection, size: int) -> None:
    body, headers = bytes(at * 7 % 256 for at in range(size)), {"colour": "blåu", "quote": '"\\'}
    program.execute("SELECT send('shop', 'paid', %b, 'clé', 'tåg', %s)", [body, Jsonb(headers)])
    program.commit()
    (found,) = messages(broker)
    assert (found.body, found.key, found.tag, found.headers) == (body, "clé", "tåg", headers)


def test_a_key_has_the_queue_that_python_gives_it(broker: Broker, program: psycopg.Connection) -> None:
    shop = broker.producer("shop")
    for at in range(20):
        program.execute("SELECT send('shop', 'paid', 'sql', key => %s)", [f"k{at}"])
        shop.send("paid", b"python", key=f"k{at}")
    program.execute("SELECT send('shop', 'paid', 'sql') FROM generate_series(1, 40)")
    program.commit()
    found = messages(broker)
    queues = {
        body: {each.key: each.queue for each in found if each.key and each.body == body} for body in (b"sql", b"python")
    }
    assert queues[b"sql"] == queues[b"python"]
    assert {each.queue for each in found if each.key is None} == {0, 1, 2, 3}


REFUSED = {
    "send('shop', 'nothing', 'x')": ("42704", "topic 'nothing' does not exist"),
    "send('shop', NULL, 'x')": ("42704", "topic NULL does not exist"),
    "send('shop', 'lines', 'x')": ("22023", "topic 'lines' is of type fifo"),
    "send('shop', 'paid', NULL::text)": ("22004", "the body is NULL"),
    "send(NULL, 'paid', 'x')": ("42939", "NULL is a system name, or no name"),
    "send('a b', 'paid', 'x')": ("42939", "'a b' is a system name, or no name"),
    **{f"send('{name}', 'paid', 'x')": ("42939", "is a system name") for name in sorted(SYSTEM_TOPICS)},
    "send('shop', 'paid', 'x', headers => '[]')": ("22023", "no JSON object of texts"),
    "send('shop', 'paid', 'x', headers => 'null')": ("22023", "no JSON object of texts"),
    """send('shop', 'paid', 'x', headers => '{"a": ["b"]}')""": ("22023", "no JSON object of texts"),
    f"send('shop', 'paid', repeat('x', {MAX_BODY + 1}))": ("54000", "the body has 4194305 bytes"),
    f"send('shop', 'paid', 'x', repeat('x', {MAX_KEY + 1}))": ("54000", f"at most {MAX_KEY} are"),
    f"send('shop', 'paid', 'x', tag => repeat('x', {MAX_TAG + 1}))": ("54000", f"at most {MAX_TAG} are"),
    f"send('shop', 'paid', 'x', headers => jsonb_build_object('a', repeat('x', {MAX_HEADERS})))":
        ("54000", f"at most {MAX_HEADERS} are"),
    "join('x')": ("42704", "'x' is no transaction of this store"),
    "join(NULL)": ("42704", "NULL is no transaction of this store"),
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_wrong_is_refused_in_one_line(broker: Broker, program: psycopg.Connection, call: str) -> None:
    with pytest.raises(psycopg.Error) as refused:
        program.execute(f"SELECT {call}")
    assert (refused.value.sqlstate, REFUSED[call][1] in str(refused.value)) == (REFUSED[call][0], True), refused.value
    program.rollback()
    assert program.execute("SELECT count(*) FROM half").fetchone() == (0,)


def test_the_largest_body_is_stored(broker: Broker, program: psycopg.Connection) -> None:
    program.execute("SELECT send('shop', 'paid', %b)", [b"x" * MAX_BODY])
    program.commit()
    assert [len(each.body) for each in messages(broker)] == [MAX_BODY]


@pytest.mark.req("RMQ-01")
def test_a_commit_that_acknowledges_a_message_is_durable(broker: Broker, program: psycopg.Connection) -> None:
    _, token = prepared(broker)
    for call in ("send('shop', 'paid', 'x')", f"join('{token}')"):
        program.execute("SET synchronous_commit = off")
        program.execute(f"SELECT {call}")
        assert program.execute("SHOW synchronous_commit").fetchone() == ("on",)
        program.rollback()


@pytest.mark.req("RMQ-01")
def test_psql_runs_the_page(broker: Broker, home_url: str) -> None:
    if shutil.which("psql") is None:
        ci_or_skip("psql", "install the package postgresql-client")
    receipt, token = prepared(broker)
    shown = {info: body for info, body in re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)}
    assert shown["java"] == (PROGRAMS / "Pay.java").read_text("utf-8")
    assert shown["go"] == (PROGRAMS / "pay.go").read_text("utf-8")
    script = "".join(re.findall(r"^```sql\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S))
    command = ["psql", "-v", "ON_ERROR_STOP=1", "-v", f"transaction={token}", plain(home_url)]
    here = script.replace("txsaga.", f'"{broker.kernel.store.namespace}".')
    ran = subprocess.run(command, input=here, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [(each.text(), each.key) for each in messages(broker)] == [("payment 7", "7")]
    assert checked(broker, receipt) is Decision.COMMIT


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_hook_of_dbt_sends_with_its_model(broker: Broker, program: psycopg.Connection, end: str) -> None:
    broker.create_topic("models", queues=1)
    (hook,) = re.findall(r'post_hook="(.*?)"', PAGE.read_text("utf-8"))
    program.autocommit = True  # dbt sends BEGIN and COMMIT itself
    create = "CREATE TEMPORARY TABLE orders__dbt_tmp AS (SELECT 1 AS id)"
    rename = "ALTER TABLE orders__dbt_tmp RENAME TO orders"
    for statement in ("BEGIN", create, rename, hook.replace("txsaga.", ""), end):
        program.execute(statement)
    assert [each.text() for each in messages(broker, "models")] == ["orders are new"] * (end == "COMMIT")


def java(program: Path) -> tuple[str, list[object]]:
    drivers = sorted(JARS.glob("postgresql-*.jar"))
    if not drivers or shutil.which("java") is None:
        ci_or_skip("the PostgreSQL driver of Java", "install a JDK, and run make jars")
    return "jdbc:postgresql", ["java", "-XX:TieredStopAtLevel=1", "-cp", drivers[-1], program]


def go(program: Path) -> tuple[str, list[object]]:
    fetched("transfer-go", "go", "Go")  # with the driver of PostgreSQL
    subprocess.run(["go", "build", "-C", MODULES, "-o", program.with_suffix(""), program], timeout=150, check=True)
    return "postgresql", [program.with_suffix("")]


@pytest.mark.timeout(300)  # Go may have to compile the driver of PostgreSQL first
@pytest.mark.parametrize(("name", "command"), [("Pay.java", java), ("pay.go", go)])
def test_a_program_sends(
    broker: Broker,
    home: Engine,
    home_url: str,
    name: str,
    command: Callable[[Path], tuple[str, list[object]]],
    tmp_path: Path,
) -> None:
    url, shown = parse_url(home_url)[0], (PROGRAMS / name).read_text("utf-8")
    (tmp_path / name).write_text(shown.replace("txsaga.", f'\\"{broker.kernel.store.namespace}\\".'), "utf-8")
    kind, words = command(tmp_path / name)
    login = f"user={url.username}&password={url.password}"
    said = [str(each) for each in [*words, f"{kind}://{url.host}:{url.port}/{url.database}?{login}"]]
    with home.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE payment (id int PRIMARY KEY)")
    for expected in (True, False):  # the second one meets the row of the first one, and rolls back
        ran = subprocess.run(said, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode == 0) is expected, ran.stderr
    assert [(each.text(), each.key) for each in messages(broker)] == [('{"payment": 7}', "7")]


class TestRights:
    def test_a_restricted_login_sends_for_its_own_groups(self, broker: Broker, home_url: str) -> None:
        with logins(home_url) as made:
            mine, other, consumer = made.new(Right.PRODUCER), made.new(Right.PRODUCER), made.new(Right.CONSUMER)
            send = f"SELECT \"{made.namespace}\".send('mine', 'paid', 'x')"
            with psycopg.connect(plain(made.url_of(mine))) as program:
                program.execute(send)
            for login in (other, consumer):
                with psycopg.connect(plain(made.url_of(login))) as program, pytest.raises(psycopg.Error) as refused:
                    program.execute(send)
                assert refused.value.sqlstate == "42501"
            assert len(messages(broker)) == 1

    def test_a_restricted_login_joins_for_its_own_groups(self, broker: Broker, home_url: str) -> None:
        _, open_to_all = prepared(broker)
        with logins(home_url) as made:
            mine, other = made.new(Right.PRODUCER), made.new(Right.PRODUCER)
            made.run(f"UPDATE producer_group SET role = '{mine}'")
            join = f"SELECT \"{made.namespace}\".join('{open_to_all}')"
            with psycopg.connect(plain(made.url_of(other))) as program, pytest.raises(psycopg.Error) as refused:
                program.execute(join)
            assert refused.value.sqlstate == "42501"
            with psycopg.connect(plain(made.url_of(mine))) as program:
                program.execute(join)

    def test_evidence_tables_of_others_are_not_trusted(
        self, broker: Broker, home_url: str, program: psycopg.Connection, foreign_databases: Callable[[], str]
    ) -> None:
        broker.register("bank", bank := create_engine(foreign_databases(), poolclass=NullPool))
        prepared(broker)  # makes the tables that the trap is like
        _, token = prepared(broker, "bank")
        uuid = broker.kernel.resource("bank")[0].database.hex
        with logins(home_url) as made:
            sly = made.new()
            program.execute(f"""
                CREATE SCHEMA trap; CREATE TABLE trap.txsaga_evidence (LIKE public.txsaga_evidence);
                CREATE TABLE trap.txsaga_database (uuid text); INSERT INTO trap.txsaga_database VALUES ('{uuid}')""")
            for table in ("evidence", "database"):
                program.execute(f"ALTER TABLE trap.txsaga_{table} OWNER TO {sly}")
            with pytest.raises(psycopg.Error, match="resource 'bank', which is not in this database"):
                program.execute("SELECT join(%s)", [token])
            program.rollback()
        bank.dispose()

    @pytest.mark.parametrize("committed", [True, False], ids=["before", "meanwhile"])
    def test_a_trigger_of_others_does_not_run(self, broker: Broker, home_url: str, *, committed: bool) -> None:
        _, token = prepared(broker)
        with logins(home_url) as made, psycopg.connect(plain(home_url), autocommit=True) as admin:
            mine = made.new(Right.PRODUCER)
            admin.execute(f"CREATE SCHEMA sly AUTHORIZATION {mine}")
            admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {mine}")
            join = f"SELECT \"{made.namespace}\".join('{token}')"
            try:
                with ThreadPoolExecutor(1) as pool, psycopg.connect(plain(made.url_of(mine))) as trap:
                    trap.execute(
                        "CREATE FUNCTION sly.run() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''it ran''; END'"
                    )
                    trap.execute("""CREATE TRIGGER sly BEFORE INSERT ON public.txsaga_evidence
                                    FOR EACH ROW EXECUTE FUNCTION sly.run()""")
                    if committed:
                        trap.commit()
                    waiting = pool.submit(attempted, made.url_of(mine), join)
                    wait([waiting], 0.5)
                    trap.commit()
                    assert "public.txsaga_evidence has a trigger, or others may make one" in waiting.result()
            finally:
                admin.execute("DROP SCHEMA sly CASCADE")  # with the trigger
            serializable = f"BEGIN ISOLATION LEVEL SERIALIZABLE; {join}"  # its snapshot might be older than a trigger
            assert "or others may make one" in attempted(made.url_of(mine), serializable)
            admin.execute(f"REVOKE TRIGGER ON ALL TABLES IN SCHEMA public FROM {mine}")
            assert attempted(made.url_of(mine), serializable) == ""

    def test_tables_that_it_can_not_read_are_passed_over(
        self, broker: Broker, foreign_databases: Callable[[], str]
    ) -> None:
        url = foreign_databases()
        with logins(url) as admin:
            owner = admin.new()
            for statement in (
                f'GRANT CREATE ON DATABASE "{make_url(url).database}" TO {owner}',
                "CREATE SCHEMA hidden",
                "CREATE TABLE hidden.txsaga_evidence (a int); CREATE TABLE hidden.txsaga_database (uuid text)",
                "CREATE SCHEMA strange",
                "CREATE TABLE strange.txsaga_evidence (a int); CREATE TABLE strange.txsaga_database (a int)",
                f"GRANT USAGE ON SCHEMA strange TO {owner}",
                f"GRANT ALL ON ALL TABLES IN SCHEMA strange TO {owner}",
            ):
                admin.run(statement)
            own = admin.url_of(owner)
            open_store(own).close()
            here = create_engine(foreign_databases(), poolclass=NullPool)
            with txsaga.connect(own, resources={"shop": here}, roles=False, answering=False, env={}) as its:
                its.create_topic("orders", "transaction", queues=1)
                _, token = prepared(its)
            assert "belongs to resource 'shop', which is not in this database" in attempted(
                own, f"SELECT \"{admin.namespace}\".join('{token}')"
            )
            here.dispose()


def attempted(url: str, statement: str) -> str:
    """Run a statement in a transaction that is rolled back; return the error."""
    with psycopg.connect(plain(url)) as program:
        try:
            program.execute(statement)
        except psycopg.Error as refused:
            return str(refused)
        finally:
            program.rollback()
    return ""


@pytest.mark.req("RMQ-01")
class TestJoin:
    def test_the_commit_of_a_caller_that_vanished_decides(self, broker: Broker, program: psycopg.Connection) -> None:
        receipt, token = prepared(broker)
        program.execute("INSERT INTO payment VALUES (7)")
        program.execute("SELECT join(%s)", [token])
        assert checked(broker, receipt) is None  # it still works
        program.commit()
        assert checked(broker, receipt) is Decision.COMMIT
        assert [each.text() for each in messages(broker, "orders")] == ["order 7"]

    def test_a_caller_that_rolls_back_has_the_message_dropped(
        self, broker: Broker, program: psycopg.Connection
    ) -> None:
        receipt, token = prepared(broker)
        program.execute("SELECT join(%s)", [token])
        program.rollback()
        assert checked(broker, receipt) is Decision.ROLLBACK
        with pytest.raises(psycopg.Error, match=f"transaction {receipt.txid} is already decided: ROLLBACK"):
            program.execute("SELECT join(%s)", [token])

    def test_a_transaction_is_joined_once(self, broker: Broker, program: psycopg.Connection) -> None:
        receipt, token = prepared(broker)
        program.execute("SELECT join(%s)", [token])
        program.commit()
        with pytest.raises(psycopg.Error, match=f"{receipt.txid} is rolled back, or another database transaction"):
            program.execute("SELECT join(%s)", [token])

    def test_it_names_what_it_can_not_join(
        self, broker: Broker, program: psycopg.Connection, foreign_databases: Callable[[], str]
    ) -> None:
        _, token = prepared(broker)
        bare, unproven = prepared(broker, None)
        broker.register("bank", bank := create_engine(foreign_databases(), poolclass=NullPool))
        _, elsewhere = prepared(broker, "bank")
        store, life, rest = token.split("-", 2)
        wrong = {
            "was prepared without evidence": unproven,
            "belongs to resource 'bank', which is not in this database": elsewhere,
            "is no transaction of this store; give": f"{token[:-1]}{'1' if token[-1] == '0' else '0'}",
            "is no transaction of this store": f"{store}-{int(life, 16) + 1:x}-{rest}",
            "no transaction of this store": f"{'0' * 32}-{life}-{rest}",
        }
        for told, given in wrong.items():
            with pytest.raises(psycopg.Error, match=told):
                program.execute("SELECT join(%s)", [given])
            program.rollback()
        broker.kernel.decides.call(End(bare.txid, bare.group, bare.token, Decision.COMMIT))
        with pytest.raises(psycopg.Error, match="already decided: COMMIT"):
            program.execute("SELECT join(%s)", [unproven])
        bank.dispose()
