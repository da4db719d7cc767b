"""The tables of flows: where they may work, their steps, the units of their lanes, their journals."""

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
from sqlalchemy.dialects.postgresql import JSONB

from txsaga.adapters.postgres.columns import FALSE, NOW, Decided, Moment, metadata
from txsaga.adapters.postgres.types import one_of
from txsaga.model.flow import Hold
from txsaga.model.flow_step import StepState

flow_resource = Table(
    "flow_resource",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("resource", String, nullable=False),
    Column("lane", Boolean, nullable=False),
    Column("budget", Float, nullable=False),  # seconds
    PrimaryKeyConstraint("txid", "resource", "lane"),
)

flow_step = Table(
    "flow_step",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String, CheckConstraint(one_of("state", StepState)), nullable=False),
    Column("resource", String),
    Column("hold", String, CheckConstraint(one_of("hold", Hold))),
    Column("lane", Boolean, nullable=False),
    Column("unit", Integer, nullable=False),
    Column("branch", Integer),
    Column("started", Moment, nullable=False, server_default=NOW),
    Column("ended", Moment),
    Column("mark", String, nullable=False, server_default=text("''")),
    Column("why", String, nullable=False, server_default=text("''")),
    Column("late", Boolean, nullable=False, server_default=FALSE),
    PrimaryKeyConstraint("txid", "number", "attempt"),
)
Index(
    "flow_step_held",
    flow_step.c.txid,
    postgresql_where=flow_step.c.branch.is_not(None) & (flow_step.c.state == StepState.DONE.value),
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

flow_statement = Table(
    "flow_statement",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("step", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("resource", String, nullable=False),
    Column("unit", Integer, nullable=False),
    Column("text", String, nullable=False),
    Column("parameters", JSONB, nullable=False),
    Column("rows", Integer),
    PrimaryKeyConstraint("txid", "step", "seq"),
)
