"""A row of the log that no tick wrote blocks its own queue only; behind it nothing is lost, doubled or out of order."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from threading import Event

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

import txsaga
from tests.contracts.samples import COMMIT, decided, drain, end_of, new_group, new_queues, prepared, published, row
from tests.scene.stored import Stored
from tests.store.logins import logins
from txsaga.consume.dispatcher import Dispatcher
from txsaga.core.chunk import BODY, Chunk
from txsaga.errors import ConfigError, StoreError, StoreUnavailable
from txsaga.lake.cuts_store import PostgresCuts
from txsaga.store import founding
from txsaga.store.connection import make_engine, parse_url, transaction
from txsaga.store.right import Right
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R7")]

STRAY = "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES (:qid, :base, 1, :txid, 0, 0, 0)"
MEND = "DELETE FROM log WHERE qid = :qid AND base >= (SELECT head FROM queue WHERE qid = :qid)"


class Scene:
    """A store with two queues, and no dispatcher but the test's."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self.store, self.stored, self.group = store, stored, new_group(store)
        (self.orders,), (self.news,) = new_queues(store), new_queues(store, "news")

    def send(self, *bodies: str) -> None:
        """Send each body to its queue, all in one transaction: those with an `o` to `orders`, the others to `news`."""
        rows = [row(self.orders if body.startswith("o") else self.news, body) for body in bodies]
        published(self.store, self.group, *rows)

    def stray(self, qid: int, *, ahead: int = 0, txid: int = 999_999) -> None:
        """Insert a row that no tick wrote."""
        self.stored.rows(STRAY, qid=qid, base=self.store.log.bounds([qid])[qid].head + ahead, txid=txid)

    def mend(self, qid: int) -> None:
        """Do what `doctor` says."""
        self.stored.rows(MEND, qid=qid)

    def tick(self) -> list[int]:
        """Tick once; return which queues are blocked."""
        ticked = self.store.log.tick(1000)
        assert ticked is not None
        return list(ticked.blocked)

    def read(self, qid: int) -> list[str]:
        """Return what readers see of a queue: its offsets have no gap."""
        bodies: list[str] = []
        for entry in self.store.log.fetch(qid, 0, 10_000):
            assert entry.base == len(bodies)
            bodies += [body.decode() for body in Chunk(entry.body).column(BODY) or [] if body is not None]
        assert self.store.log.bounds([qid])[qid].head == len(bodies)
        return bodies


@pytest.fixture
def scene(store: Store, stored: Stored) -> Scene:
    return Scene(store, stored)


@pytest.mark.parametrize("ahead", [0, 1, 40])
def test_other_queues_go_on_and_the_blocked_one_catches_up_in_order(scene: Scene, ahead: int) -> None:
    scene.send("o0", "n0")
    assert scene.tick() == []
    scene.stray(scene.orders, ahead=ahead)
    for turn in range(1, 4):
        scene.send(f"o{turn}", f"n{turn}")
        scene.send(f"n{turn}b")
        assert scene.tick() == [scene.orders]
    assert scene.read(scene.news) == ["n0", "n1", "n1b", "n2", "n2b", "n3", "n3b"]
    assert scene.read(scene.orders) == ["o0"]
    scene.mend(scene.orders)
    scene.send("o4", "n4")
    assert scene.tick() == []
    assert scene.read(scene.orders) == ["o0", "o1", "o2", "o3", "o4"]
    assert scene.read(scene.news)[-1] == "n4"
    before = scene.stored.value("SELECT count(*) FROM tick")
    assert scene.tick() == []
    assert scene.stored.value("SELECT count(*) FROM tick") == before, "an idle tick writes nothing"


def test_what_waits_is_dispatched_without_anything_new(scene: Scene) -> None:
    scene.stray(scene.orders)
    scene.send("o0")
    assert scene.tick() == [scene.orders]
    assert scene.tick() == [scene.orders]
    scene.mend(scene.orders)
    assert scene.tick() == []
    assert scene.read(scene.orders) == ["o0"]


def test_a_stray_row_for_a_stored_message_shows_it_to_nobody(scene: Scene) -> None:
    half = prepared(scene.store, scene.group, row(scene.orders, "o0"))
    scene.stray(scene.orders, txid=half.txid)
    assert scene.store.log.fetch(scene.orders, 0, 10) == []
    decided(scene.store, end_of(half, COMMIT))
    assert scene.tick() == [scene.orders]
    assert scene.store.log.fetch(scene.orders, 0, 10) == []
    scene.mend(scene.orders)
    scene.tick()
    assert scene.read(scene.orders) == ["o0"]


def test_two_blocked_queues_are_each_dispatched_from_where_they_were(scene: Scene) -> None:
    scene.stray(scene.orders)
    scene.send("o0", "n0")
    assert scene.tick() == [scene.orders]
    scene.stray(scene.news)
    scene.send("o1", "n1")
    assert scene.tick() == sorted([scene.orders, scene.news])
    scene.mend(scene.orders)
    assert scene.tick() == [scene.news]
    scene.stray(scene.orders)
    scene.send("o2", "n2")
    assert scene.tick() == sorted([scene.orders, scene.news])
    scene.mend(scene.news)
    scene.mend(scene.orders)
    assert scene.tick() == []
    assert (scene.read(scene.orders), scene.read(scene.news)) == (["o0", "o1", "o2"], ["n0", "n1", "n2"])


def test_a_head_that_was_set_back_loses_nothing(scene: Scene) -> None:
    scene.send("o0")
    scene.send("o1")
    drain(scene.store)
    scene.stored.rows("UPDATE queue SET head = 1 WHERE qid = :qid", qid=scene.orders)
    scene.send("o2", "n2")
    assert scene.tick() == [scene.orders]
    scene.stored.rows("UPDATE queue SET head = 2 WHERE qid = :qid", qid=scene.orders)
    assert scene.tick() == []
    assert (scene.read(scene.orders), scene.read(scene.news)) == (["o0", "o1", "o2"], ["n2"])


def test_a_sweep_and_a_drop_of_old_ticks_keep_what_a_blocked_queue_needs(scene: Scene) -> None:
    scene.stray(scene.orders)
    scene.send("o0")
    for turn in range(3):
        scene.send(f"n{turn}")
        assert scene.tick() == [scene.orders]
    scene.stored.let_pass(3600)
    scene.store.doubts.sweep(timedelta(0))
    scene.store.log.drop_partitions()
    assert scene.stored.value("SELECT count(*) FROM tick") == 1
    scene.mend(scene.orders)
    assert scene.tick() == []
    assert scene.read(scene.orders) == ["o0"]


def test_a_store_that_is_adopted_dispatches_what_waited_once(home_url: str, scene: Scene) -> None:
    scene.stray(scene.orders)
    scene.send("o0", "n0")
    assert scene.tick() == [scene.orders]
    with closing(scene.store):  # an adoption ends the sessions of others
        pass
    engine = make_engine(*parse_url(home_url))
    with pytest.raises(ConfigError, match=r"`DELETE FROM .*`, then adopt again"), transaction(engine) as connection:
        founding.adopt(connection, scene.stored.namespace)
    scene.mend(scene.orders)
    with transaction(engine) as connection:
        founding.adopt(connection, scene.stored.namespace)
    engine.dispose()
    with closing(open_store(home_url)) as store:
        anew = Scene(store, scene.stored)
        anew.send("o1", "n1")
        assert anew.tick() == []
        assert (anew.read(anew.orders), anew.read(anew.news)) == (["o0", "o1"], ["n0", "n1"])


def test_a_cut_is_refused_while_a_queue_is_blocked(scene: Scene) -> None:
    scene.stray(scene.orders)
    scene.send("o0", "n0")
    scene.tick()
    cuts = PostgresCuts(scene.store.engine, scene.store.log, scene.stored.namespace)
    with pytest.raises(StoreUnavailable, match="txsaga doctor"), cuts.cut():
        pass
    scene.mend(scene.orders)
    with cuts.cut() as cut:
        assert (cut.heads["orders"], cut.heads["news"]) == ((1,), (1,))


def test_the_dispatcher_names_blocked_queues_once(
    home_url: str, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.stray(scene.orders)
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        dispatcher = Dispatcher(broker.kernel)
        for turn in range(3):
            scene.send(f"o{turn}", f"n{turn}")
            dispatcher.run_once()
        (told,) = caplog.records
        assert told.levelno == logging.ERROR
        assert told.getMessage().startswith("blocked queues: orders/0; ")
        assert scene.store.overview.dispatch().blocked == ("orders/0",)
        caplog.clear()
        scene.mend(scene.orders)
        dispatcher.run_once()
    assert [told.getMessage() for told in caplog.records] == ["no queue is blocked any longer"]
    assert scene.store.overview.dispatch().blocked == ()


def test_the_login_of_an_engine_ticks_and_writes_nothing_of_a_tick_itself(home_url: str, scene: Scene) -> None:
    with logins(home_url) as made, closing(Store.open(made.url_with(Right.ENGINE))) as engine:
        for write in (
            f"INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES ({scene.orders}, 0, 1, 9, 0, 0, 0)",
            "UPDATE queue SET head = 9",
            "UPDATE queue SET reached = '1:1:'",
            "INSERT INTO tick (id, snap, last_txid) VALUES (99, '1:1:', 0)",
        ):
            with pytest.raises(ProgrammingError, match="permission denied"), engine.engine.begin() as connection:
                connection.execute(text(f'SET LOCAL search_path = "{made.namespace}"'))
                connection.execute(text(write))
        scene.stray(scene.orders)
        scene.send("o0", "n0")
        ticked = engine.log.tick(10)
        assert ticked is not None
        assert ticked.blocked == (scene.orders,)
        scene.mend(scene.orders)
        drain(engine)
    assert (scene.read(scene.orders), scene.read(scene.news)) == (["o0"], ["n0"])


def test_a_tick_outside_of_one_snapshot_is_refused(scene: Scene) -> None:
    with pytest.raises(DBAPIError, match="REPEATABLE READ"):
        scene.stored.rows("SELECT * FROM tick(10)")


def test_a_tick_behind_a_write_of_its_own_transaction_is_refused(scene: Scene) -> None:
    engine = scene.store.engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection, pytest.raises(DBAPIError, match="a tick comes first"):
        connection.exec_driver_sql("SELECT pg_current_xact_id()")
        connection.exec_driver_sql(f'SELECT * FROM "{scene.store.namespace}".tick(10)')


def test_a_decision_that_names_two_attempts_of_a_part_gives_each_an_offset(scene: Scene) -> None:
    half = prepared(scene.store, scene.group, row(scene.orders, "o0"))
    scene.stored.rows(
        "INSERT INTO half (txid, pgroup, qid, part, attempt, chunk, n, body) "
        "SELECT txid, pgroup, qid, part, attempt + 1, chunk, n, body FROM half WHERE txid = :txid",
        txid=half.txid,
    )
    decided(scene.store, end_of(half, COMMIT))
    scene.send("n0")
    assert scene.tick() == []
    assert (scene.read(scene.orders), scene.read(scene.news)) == (["o0", "o0"], ["n0"])


def test_rival_dispatchers_lose_and_double_nothing_while_a_queue_is_blocked_and_freed(
    home_url: str, scene: Scene
) -> None:
    stop = Event()

    def dispatch(seed: int) -> None:
        with closing(open_store(home_url)) as store:
            while not stop.is_set():
                with suppress(StoreError):  # the stray row came after its snapshot: the next tick goes on
                    store.log.tick((1, 3, 1000)[seed])
                stop.wait(0.002)

    with ThreadPoolExecutor(3) as dispatchers:
        running = [dispatchers.submit(dispatch, seed) for seed in range(3)]
        for turn in range(120):
            scene.send(f"o{turn}", f"n{turn}")
            if turn % 20 == 5:
                with suppress(IntegrityError):  # a tick was first
                    scene.stray(scene.orders)
            if turn % 20 == 15:
                scene.mend(scene.orders)
        stop.set()
        for each in running:
            each.result()
    scene.mend(scene.orders)
    drain(scene.store)
    assert scene.read(scene.orders) == [f"o{turn}" for turn in range(120)]
    assert scene.read(scene.news) == [f"n{turn}" for turn in range(120)]
