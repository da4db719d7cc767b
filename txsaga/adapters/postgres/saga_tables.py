"""The tables of steps, and of the sagas that somebody has to see to."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from txsaga.adapters.postgres.columns import FALSE, NOW, ZERO, Moment, metadata
from txsaga.adapters.postgres.types import finite, one_of
from txsaga.model.step import Left, StepKind, StepState

step = Table(
    "step",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),  # in the order of their start: they are undone in the reverse one
    Column("name", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String, CheckConstraint(one_of("state", StepState)), nullable=False),
    Column("kind", String, CheckConstraint(one_of("kind", StepKind)), nullable=False),
    Column("resource", String),
    Column("input", JSONB, nullable=False),
    Column("compensation", JSONB),
    Column("action", JSONB),  # of a step behind the point of no return
    Column("output", JSONB),
    Column("left", String, CheckConstraint(one_of('"left"', Left)), nullable=False, server_default=text("'unknown'")),
    Column("error", String),
    Column("attempts", Integer, nullable=False, server_default=ZERO),
    Column("due", Moment),
    Column("at", Moment, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("txid", "number"),
)

saga = Table(  # only those that are not over: whoever looks for work reads all of it
    "saga",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("ticket", BigInteger, nullable=False),  # finds one whose COMMIT was not answered
    Column("until", Moment, CheckConstraint(finite("until")), nullable=False),  # nobody else takes it up before
    Column("driver", String),
    Column("stalled", Boolean, nullable=False, server_default=FALSE),
    Column("why", String),
)
