"""The tables of coordinated transactions: their branches, and the votes that are no resource's."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from txsaga.adapters.postgres.columns import FALSE, NOW, Decided, Moment, metadata
from txsaga.adapters.postgres.types import one_of
from txsaga.model.ballot import Rule
from txsaga.model.branch import BranchState
from txsaga.model.reservation import ReservationState

branch = Table(
    "branch",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("resource", Integer, nullable=False),
    Column("state", String, CheckConstraint(one_of("state", BranchState)), nullable=False),
    Column("at", Moment, nullable=False, server_default=NOW),
    Column("why", String),
    Column("aux", Boolean, nullable=False, server_default=FALSE),  # a unit of an auxiliary lane
    Column("decision", Decided),  # its own, whatever its transaction's is
    PrimaryKeyConstraint("txid", "number", "attempt"),
)
OVER = ["committed", "rolled_back", "forgotten"]
Index("branch_open", *branch.primary_key, postgresql_where=branch.c.state.not_in(OVER))

ballot = Table(
    "ballot",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("name", String, nullable=False),
    Column("rule", String, CheckConstraint(one_of("rule", Rule)), nullable=False),
    Column("needed", Integer),
    Column("voters", ARRAY(String), nullable=False),
    PrimaryKeyConstraint("txid", "name"),
)

vote = Table(
    "vote",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("ballot", String, nullable=False),
    Column("voter", String, nullable=False),
    Column("yes", Boolean, nullable=False),
    Column("evidence", JSONB, nullable=False),
    Column("at", Moment, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("txid", "ballot", "voter"),  # the first vote of a voter stands
)

reservation = Table(
    "reservation",
    metadata,
    Column("gid", String, primary_key=True),
    Column("txid", BigInteger, nullable=False),
    Column("resource", String, nullable=False),
    Column("state", String, CheckConstraint(one_of("state", ReservationState)), nullable=False),
    Column("tried", Boolean, nullable=False, server_default=FALSE),
    Column("arguments", JSONB, nullable=False),
)
Index("reservation_txid", reservation.c.txid)
Index("reservation_held", reservation.c.resource, postgresql_where=reservation.c.state.in_(["held", "cancelling"]))
