"""A store, databases behind Airflow connections, and DAGs that are run in this process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, text

import txsaga
from tests.services.databases import fresh_name
from txsaga.consume.dispatcher import Dispatcher

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.services.databases import DatabaseServer


def _nothing(name: str, **said: object) -> None:
    raise AssertionError(name)


@dataclass(slots=True)
class House:
    """What a test of the provider works with."""

    home_url: str
    folder: Path
    database: Callable[[str], str]
    connect: Callable[..., None] = _nothing
    engines: dict[str, Engine] = field(default_factory=dict)

    def postgres(self, name: str, *ddl: str) -> Engine:
        """Make a database behind a connection."""
        engine = create_engine(self.database(name))
        url = engine.url
        said = {"host": url.host, "login": url.username, "password": url.password, "port": url.port}
        if url.query or not url.host:
            extra = {"sqlalchemy_url": url.render_as_string(hide_password=False)}
            self.connect(name, conn_type="postgres", extra=extra)
        else:
            self.connect(name, conn_type="postgres", schema=url.database, **said)
        return self._open(name, engine, ddl)

    def sqlite(self, name: str, *ddl: str) -> Engine:
        """Make a SQLite file behind a connection."""
        place = self.folder / f"{fresh_name('file')}.db"
        self.connect(name, conn_type="sqlite", host=str(place))
        return self._open(name, create_engine(f"sqlite:///{place}"), ddl)

    def topic(self, name: str, type: str = "transaction") -> str:
        """Make a topic."""
        with txsaga.connect(self.home_url, roles=False, answering=False, env={}) as broker:
            broker.create_topic(name, type=type)
        return name

    def seen(self, topic: str) -> list[bytes]:
        """Return the messages of a topic that anybody can see."""
        with txsaga.connect(self.home_url, roles=False, answering=False, env={}) as broker:
            dispatcher = Dispatcher(broker.kernel)
            while dispatcher.run_once():
                pass
            stream, found = broker.stream(fresh_name("reader"), [topic]), list[bytes]()
            while (batch := stream.poll()) is not None:
                found += [bytes(each) for each in batch.bodies]
            stream.close()
            return found

    def state(self, txid: int) -> str:
        """Return what became of a transaction."""
        with txsaga.connect(self.home_url, roles=False, answering=False, env={}) as broker:
            return str(broker.flow(txid))

    def rows(self, name: str, question: str) -> list[tuple[Any, ...]]:
        """Ask a database."""
        with self.engines[name].connect() as connection:
            return [tuple(row) for row in connection.execute(text(question))]

    def execute(self, name: str, *statements: str) -> None:
        """Change a database."""
        with self.engines[name].begin() as connection:
            for each in statements:
                connection.execute(text(each))

    def run(self, dag: DAG, conf: Mapping[str, object] | None = None, **options: Any) -> Run:
        """Run a DAG in this process."""
        put(dag)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = dag.test(run_conf=dict(conf or {}), **options)
        return Run(found)

    def close(self) -> None:
        """Dispose of the engines."""
        for engine in self.engines.values():
            engine.dispose()

    def _open(self, name: str, engine: Engine, ddl: tuple[str, ...]) -> Engine:
        with engine.begin() as connection:
            for each in _emptied(ddl):
                connection.execute(text(each))
        self.engines[name] = engine
        return engine


class Databases:
    """Databases on one server by name, made when they are first asked for."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server, self._made = server, dict[str, str]()

    def url(self, name: str) -> str:
        """Return the URL of a database."""
        if name not in self._made:
            database = self._made[name] = fresh_name(name)
            self._server.database(database)
        return self._server.url(self._made[name])


def _emptied(ddl: tuple[str, ...]) -> Iterator[str]:
    """Yield the statements, with each table dropped before it is made."""
    for each in ddl:
        if each.startswith("CREATE TABLE "):
            yield f"DROP TABLE IF EXISTS {each.split()[2]}"
        yield each


class Run:
    """A run of a DAG that is over."""

    def __init__(self, found: Any) -> None:
        self.id, self.state = found.run_id, str(getattr(found.state, "value", found.state))
        instances = found.get_task_instances()
        self.tasks = {
            each.task_id if each.map_index < 0 else f"{each.task_id}[{each.map_index}]": str(each.state)
            for each in instances
        }
        self.found = found

    def tries(self) -> dict[str, int]:
        """Return how often each task was tried."""
        return {each.task_id: each.try_number for each in self.found.get_task_instances()}

    def xcom(self, task: str) -> Any:
        """Return what a task returned."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            asked = XComModel.get_many(
                run_id=self.id, key="return_value", task_ids=task, dag_ids=self.found.dag_id, limit=1
            )
            row = session.scalars(asked).first()
            return None if row is None else XComModel.deserialize_value(row)


def put(dag: DAG) -> None:
    """Write a DAG of a test where Airflow finds it."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
        bag = DagBag(os.devnull)
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
