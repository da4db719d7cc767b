"""The tables of coordinated transactions (branches, ballots, votes), of flows, steps and sagas."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from txsaga.flows.ballot import Rule
from txsaga.flows.branch import BranchState
from txsaga.flows.step import Hold, Left, StepKind, StepState
from txsaga.resources.reservations import ReservationState
from txsaga.store.types import FALSE, NOW, ZERO, Decided, Moment, finite, metadata, one_of

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
    Column("decision", Decided),  # its own, not the transaction's
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
    PrimaryKeyConstraint("txid", "ballot", "voter"),  # the first vote of a voter is final
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


flow_resource = Table(
    "flow_resource",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("resource", String, nullable=False),
    Column("lane", Boolean, nullable=False),
    Column("budget", Float, nullable=False),  # seconds
    PrimaryKeyConstraint("txid", "resource", "lane"),
)

flow_unit = Table(
    "flow_unit",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("resource", String, nullable=False),
    Column("number", Integer, nullable=False),
    Column("branch", Integer),
    Column("attempt", Integer, nullable=False),
    Column("decision", Decided),
    Column("at", Moment, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("txid", "resource", "number"),
)

step = Table(
    "step",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),  # in the order of their start: they are undone in reverse
    Column("attempt", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("state", String, CheckConstraint(one_of("state", StepState)), nullable=False),
    Column("hold", String, CheckConstraint(one_of("hold", Hold))),
    Column("kind", String, CheckConstraint(one_of("kind", StepKind))),  # at most one attempt has one
    Column("resource", String),
    Column("lane", Boolean, nullable=False, server_default=FALSE),
    Column("unit", Integer, nullable=False, server_default=ZERO),
    Column("branch", Integer),
    Column("mark", String, nullable=False, server_default=text("''")),
    Column("input", JSONB),
    Column("compensation", JSONB),
    Column("action", JSONB),  # of a step after the point of no return
    Column("output", JSONB),
    Column("journal", JSONB),  # the statements of a step that is done
    Column("left", String, CheckConstraint(one_of('"left"', Left)), nullable=False, server_default=text("'unknown'")),
    Column("error", String),
    Column("tries", Integer, nullable=False, server_default=ZERO),
    Column("due", Moment),
    Column("started", Moment, nullable=False, server_default=NOW),
    Column("at", Moment, nullable=False, server_default=NOW),
    Column("late", Boolean, nullable=False, server_default=FALSE),
    PrimaryKeyConstraint("txid", "number", "attempt"),
)

saga = Table(  # only unfinished ones: a search for work reads all of it
    "saga",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("ticket", BigInteger, nullable=False),  # finds one whose COMMIT was not answered
    Column("until", Moment, CheckConstraint(finite("until")), nullable=False),  # no other process claims it before
    Column("driver", String),
    Column("stalled", Boolean, nullable=False, server_default=FALSE),
    Column("why", String),
)
