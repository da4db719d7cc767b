"""A user's database with some local work in it, and the evidence that is kept beside it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from sqlalchemy import Connection, Engine, text

from txsaga.core.identity import StoreId
from txsaga.evidence.database import SqlEvidence


@dataclass(slots=True)
class Books:
    """One table of entries; local work is to write some."""

    engine: Engine
    store: StoreId = field(default_factory=lambda: StoreId(uuid4(), 1))
    evidence: SqlEvidence = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = SqlEvidence(self.engine, name="books")

    def open(self) -> "Books":
        """Create what local work needs."""
        self.run("create table entry (id int primary key)")
        return self

    def id(self, txid: int) -> str:
        """Name a transaction of the store."""
        return self.store.transaction(txid)

    def run(self, *statements: str) -> None:
        """Run statements and commit."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def entries(self) -> set[int]:
        """Return what local work has committed."""
        with self.engine.connect() as connection:
            return set(connection.scalars(text("select id from entry")))

    def outcomes(self) -> dict[int, int]:
        """Return the outcome that each transaction's row holds."""
        question = text("select txid, outcome from txsaga_evidence where branch = '' and store = :store")
        with self.engine.connect() as connection:
            return {txid: outcome for txid, outcome in connection.execute(question, {"store": self.store.uuid.hex})}

    def count_rows(self) -> int:
        """Count the rows of evidence, whoever they belong to."""
        with self.engine.connect() as connection:
            return int(connection.scalar(text("select count(*) from txsaga_evidence")))


def enter(connection: Connection, id: int) -> None:
    """Do local work: write one entry."""
    connection.execute(text("insert into entry (id) values (:id)"), {"id": id})


OpenEngine = Callable[..., Engine]
