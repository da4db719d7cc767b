"""
The tables of a namespace in the current schema, each column and constraint named once, for people to read.

The migrations lead to them: `test_schema` compares the two, with the values of the program's enums. The program itself
has its statements in SQL files. Tables carry no schema name: the engine translates it to the namespace.
"""

from enum import StrEnum

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Float,
    ForeignKey,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOMAIN, JSONB
from sqlalchemy.types import UserDefinedType

from txsaga.consume.claim import Style
from txsaga.core.lifecycle import TxState
from txsaga.core.topic import TopicType
from txsaga.flows.ballot import Rule
from txsaga.flows.branch import BranchState
from txsaga.flows.step import Hold, Left, StepKind, StepState
from txsaga.resources.reservations import ReservationState
from txsaga.store.right import Right


class Xid8(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the type's name."""
        return "xid8"


class Snapshot(UserDefinedType[str]):
    """Which transactions were visible."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the type's name."""
        return "pg_snapshot"


def one_of(column: str, values: type[StrEnum]) -> str:
    """Return the constraint that limits a column to the values of an enum."""
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


def finite(column: str) -> str:
    """Return the constraint that a moment is finite: a row that waits for an infinite one would never be due."""
    return f"isfinite({column})"


def lifelong(column: str) -> str:
    """Return the constraint that an interval can be added to a moment: one that can't fails a whole statement."""
    return f"{column} BETWEEN interval '0' AND interval '36500 days'"


def readable(column: str, name: str) -> str:
    """Return the constraint that a JSON member is absent, or a number of seconds that can be added to a moment."""
    return (
        f"CASE WHEN {column} ->> '{name}' IS NULL THEN true WHEN jsonb_typeof({column} -> '{name}') = 'number' "
        f"THEN ({column} ->> '{name}')::float8 BETWEEN 0 AND 3153600000 ELSE false END"
    )


NOW = text("clock_timestamp()")
FALSE = text("false")
ZERO = text("0")
EMPTY, NONE = text("'{}'"), text("'[]'")
Moment = DateTime(timezone=True)

metadata = MetaData()

# A domain: every statement that writes a row would load a table's constraint again.
Decided = DOMAIN("tx_decision", SmallInteger(), check="VALUE IN (1, 2)", metadata=metadata)

tx_seq = Sequence("tx_seq", metadata=metadata, cache=1, data_type=BigInteger)  # the sweep relies on ascending numbers

store = Table(
    "store",
    metadata,
    Column("single", Boolean, CheckConstraint("single"), primary_key=True, server_default=text("true")),
    Column("uuid", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("incarnation", Integer, nullable=False, server_default=text("1")),
    Column("births", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),  # see StoreId
    Column("system_identifier", BigInteger, nullable=False),
    Column("timeline", String, nullable=False),
    Column("place", String, nullable=False),  # oids of database and namespace: a copy has other ones
    Column("token_inner", LargeBinary, nullable=False),  # HMAC pads of a random key, with the identity
    Column("token_outer", LargeBinary, nullable=False),
    Column("token_key", LargeBinary, nullable=False),
    Column("rejecting", Boolean, nullable=False, server_default=FALSE),
    Column("cluster", String),  # the cluster it belongs to
)

may = Table(  # has no rows: REFERENCES on a column is the right of that name, so only the catalog records rights
    "may", metadata, *(Column(right.value, Boolean) for right in Right)
)

topic = Table(
    "topic",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("type", String, CheckConstraint(one_of("type", TopicType)), nullable=False),
    Column("retention_seconds", BigInteger),
    Column("retention_bytes", BigInteger),
)

weight = Table(
    "weight",
    metadata,
    Column("low", BigInteger, nullable=False),  # lower bound of a full partition
    Column("topic", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("first", Moment),  # when the first message got its offset
    PrimaryKeyConstraint("low", "topic"),
)

queue = Table(
    "queue",
    metadata,
    Column("qid", Integer, primary_key=True),
    Column("topic", Integer, ForeignKey(topic.c.id), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("tail", BigInteger, nullable=False, server_default=ZERO),
    Column("head", BigInteger, nullable=False, server_default=ZERO),
    Column("reached", Snapshot),  # only while its log is blocked: it was dispatched up to here
    UniqueConstraint("topic", "idx"),
    postgresql_with={"fillfactor": 50},
)

producer_group = Table(
    "producer_group",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("transactional", Boolean),  # whether its producers are RocketMQ's; NULL: of any kind
    Column(  # overrides of the engine's settings; every sweep reads min_age, so that must be readable
        "checks", JSONB, CheckConstraint(readable("checks", "min_age")), nullable=False, server_default=EMPTY
    ),
    Column("role", String),  # the database role that may act for it; if NULL, every producer may
)

resource = Table(
    "resource",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("database", Uuid, nullable=False),
    Column("enlisted", Boolean, nullable=False, server_default=FALSE),  # branches may be prepared there
    UniqueConstraint("name", "database"),
)

half = Table(
    "half",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("born", Moment, nullable=False, server_default=NOW),
    Column("batch", BigInteger, nullable=False, server_default=ZERO),  # finds a batch whose COMMIT went unanswered
    Column("pgroup", Integer, nullable=False),
    Column("qid", Integer, nullable=False),
    Column("part", Integer, nullable=False, server_default=ZERO),
    Column("attempt", Integer, nullable=False, server_default=ZERO),
    Column("chunk", Integer, nullable=False),
    Column("n", Integer, nullable=False),
    Column("evidence", Integer),
    Column("immunity", Integer),
    Column("keyed", Boolean, nullable=False, server_default=FALSE),  # only keyed ones join part and tx
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("txid", "part", "attempt", "qid", "chunk"),
    postgresql_partition_by="RANGE (txid)",
)
# Compressing small bodies costs more than it saves, and substring reads need them uncompressed.
event.listen(
    half,
    "after_create",
    DDL("ALTER TABLE %(fullname)s ALTER body SET STORAGE EXTERNAL"),  # type: ignore[no-untyped-call]
)

op = Table(
    "op",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("xid", Xid8, nullable=False, server_default=text("pg_current_xact_id()")),
    Column("decision", Decided, nullable=False),
    Column("keyed", Boolean, nullable=False, server_default=FALSE),
    Column("from_check", Boolean, nullable=False, server_default=FALSE),
    Index("op_xid", "xid"),
    Index("op_rolled_back", "txid", postgresql_where=text("decision = 2")),
    postgresql_partition_by="RANGE (txid)",
)

log = Table(
    "log",
    metadata,
    Column("qid", Integer, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("n", Integer, nullable=False),
    Column("txid", BigInteger, nullable=False),
    Column("part", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("chunk", Integer, nullable=False),
    Column("at", Moment, nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("qid", "base"),
)

tick = Table(
    "tick",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("snap", Snapshot, nullable=False),
    Column("last_txid", BigInteger, nullable=False),
    Column("at", Moment, nullable=False, server_default=NOW),
)

tx = Table(
    "tx",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("pgroup", Integer, nullable=False),
    Column("key", String),
    Column("epoch", Integer, nullable=False),
    Column("owner", Integer, nullable=False, server_default=text("1")),
    Column("state", String, CheckConstraint(one_of("state", TxState)), nullable=False),
    Column("evidence", Integer),
    Column("opened", Moment, nullable=False, server_default=NOW),
    Column("touched", Moment, CheckConstraint(finite("touched")), nullable=False, server_default=NOW),
    Column("run", String),  # the flow it belongs to
    Column("coordinator", Uuid),  # the store that has it as a branch, until that is finished or forgotten
    Column("lease", Double),  # of a flow: seconds within which a process must touch it
    UniqueConstraint("pgroup", "key", "epoch"),  # one transaction per key and epoch
)
Index("tx_guest", tx.c.txid, postgresql_where=tx.c.coordinator.is_not(None))
Index("tx_run", tx.c.run, postgresql_where=tx.c.run.is_not(None))
Index("tx_open", tx.c.touched, postgresql_where=tx.c.state.in_(["active", "sealed", "prepared"]))

part = Table(
    "part",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("part", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),  # the one that counts
    PrimaryKeyConstraint("txid", "part"),
)

effect = Table(
    "effect",
    metadata,
    Column("txid", BigInteger, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("payload", JSONB, nullable=False),
    PrimaryKeyConstraint("txid", "seq"),
    Index(
        "effect_table",
        text(
            "(coalesce(payload ->> 'target', "
            "coalesce((payload -> 'name' ->> -2) || '.', '') || (payload -> 'name' ->> -1)))"
        ),
        "txid",
        postgresql_where=text("kind IN ('table', 'rows')"),
    ),
)
intent = Table(
    "intent",
    metadata,
    Column("grp", String, nullable=False),
    Column("qid", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("txid", BigInteger, nullable=False, index=True),
    Column("member", String, nullable=False),
    PrimaryKeyConstraint("grp", "qid"),  # one undecided transaction per queue and group
)

cursor = Table(
    "cursor",
    metadata,
    Column("grp", String, nullable=False),
    Column("qid", Integer, nullable=False),
    Column("off", BigInteger, nullable=False),
    Column("owner", String),
    Column("epoch", BigInteger, nullable=False, server_default=ZERO),
    PrimaryKeyConstraint("grp", "qid"),
    postgresql_with={"fillfactor": 50},
)

consumer_group = Table(
    "consumer_group",
    metadata,
    Column("name", String, primary_key=True),
    Column("style", String, CheckConstraint(one_of("style", Style)), nullable=False),
    Column("ordered", Boolean, nullable=False, server_default=FALSE),
    Column("max_attempts", Integer),
    Column("backout", String),
    Column("dead_letters", Boolean, nullable=False, server_default=text("true")),
    Column("first_retry", Interval, CheckConstraint(lifelong("first_retry")), nullable=False),
    Column("longest_retry", Interval, CheckConstraint(lifelong("longest_retry")), nullable=False),
    Column("expires", Interval, CheckConstraint(lifelong("expires"))),  # if NULL, the group never expires
    Column("paused", Boolean, nullable=False, server_default=FALSE),
    Column("seen", Moment, CheckConstraint(finite("seen")), nullable=False, server_default=NOW),
)

claim = Table(
    "claim",
    metadata,
    Column("grp", String, nullable=False),
    Column("qid", Integer, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("open", BigInteger, nullable=False),  # one bit for each message still to be processed
    Column("attempts", Integer, nullable=False),
    Column("until", Moment, nullable=False),  # from then on any member may take it
    Column("receipt", BigInteger),  # of the member that holds it
    Column("member", String),
    Column("key", BigInteger),  # in an ordered group: no later message with this key is delivered
    Column("txid", BigInteger),  # only this transaction's decision ends it
    Column("retry", Interval, CheckConstraint(lifelong("retry"))),  # delay of the next delivery if that rolls back
    Column("history", JSONB),  # the reason for each redelivery
    Column("message", String),  # of a replayed dead letter: id, time of birth and content
    Column("born", Moment),
    Column("body", LargeBinary),
    PrimaryKeyConstraint("grp", "qid", "base", "size"),
    postgresql_with={"fillfactor": 70},
)
Index("claim_due", claim.c.grp, claim.c.until)
Index("claim_tx", claim.c.txid, postgresql_where=claim.c.txid.is_not(None))
Index("claim_key", claim.c.grp, claim.c.qid, claim.c.key, claim.c.base, postgresql_where=claim.c.key.is_not(None))

dead_letter = Table(
    "dead_letter",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("grp", String, nullable=False),
    Column("topic", String, nullable=False),
    Column("qid", Integer, nullable=False),
    Column("off", BigInteger, nullable=False),
    Column("at", Moment, nullable=False, server_default=NOW),
    Column("attempts", Integer, nullable=False),
    Column("cause", String, nullable=False),
    Column("history", JSONB, nullable=False),
    Column("message", String, nullable=False),
    Column("born", Moment, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("grp", "qid", "off"),
)

lease = Table(
    "lease",
    metadata,
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("holder", String, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default=text("1")),
    Column("until", Moment, nullable=False),
    PrimaryKeyConstraint("kind", "name"),
)

moment = Table(
    "moment",
    metadata,
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("tick", BigInteger, nullable=False),
    Column("heads", JSONB, nullable=False),
    Column("tables", JSONB, nullable=False),
    Column("who", String, nullable=False),
    Column("at", Moment, nullable=False, server_default=NOW),
    Column("expires", Moment),
    Column("state", String),
    Column("asked", BigInteger),
    Column("published", JSONB),
    PrimaryKeyConstraint("kind", "name"),
)

client_command = Table(
    "client_command",
    metadata,
    Column("nonce", String, primary_key=True),
    Column("client", String),  # if NULL, every gateway says which clients it has
    Column("message", String),  # for its listener; if NULL, it is asked for its threads
    Column("asked", Moment, nullable=False, server_default=NOW),
)

client_answer = Table(
    "client_answer",
    metadata,
    Column("nonce", String, ForeignKey("client_command.nonce", ondelete="CASCADE"), nullable=False),
    Column("client", String, nullable=False),
    Column("about", JSONB, nullable=False),
    Column("done", Boolean),  # NULL until it answers, false if it was refused
    Column("said", String),
    PrimaryKeyConstraint("nonce", "client"),
)

doubt = Table(
    "doubt",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("pgroup", Integer, nullable=False),
    Column("keyed", Boolean, nullable=False, server_default=FALSE),
    Column("check_at", Moment, CheckConstraint(finite("check_at")), nullable=False, server_default=NOW),
    Column("resumed", Moment),  # its total time counts from here
    Column("checks", Integer, nullable=False, server_default=ZERO),
    Column("parked", String),  # why it is not checked any more
    Column("remarks", JSONB, nullable=False, server_default=NONE),  # results of the latest checks
)

Index("doubt_due", doubt.c.check_at, postgresql_where=doubt.c.parked.is_(None))

question = Table(
    "question",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),  # one at a time
    Column("pgroup", Integer, nullable=False),
    Column("member", String, nullable=False),
    Column("asked", Moment, nullable=False, server_default=NOW),
    Column("patience", Interval, CheckConstraint(lifelong("patience")), nullable=False),
    Column("until", Moment),  # set once its member took it up
)
Index("question_member", question.c.member, question.c.asked, postgresql_where=question.c.until.is_(None))

tally = Table(
    "tally",
    metadata,
    Column("pgroup", Integer, nullable=False),
    Column("answer", String, nullable=False),
    Column("n", BigInteger, nullable=False),
    PrimaryKeyConstraint("pgroup", "answer"),
)

scheduled = Table(
    "scheduled",
    metadata,
    Column("txid", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Moment, CheckConstraint(finite("at")), nullable=False),
    Column("pgroup", Integer, nullable=False),
)
Index("scheduled_due", scheduled.c.at, scheduled.c.txid)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("name", String, primary_key=True),
    Column("txid", BigInteger, nullable=False),
)

audit = Table(
    "event",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("txid", BigInteger, nullable=False, index=True),
    Column("at", Moment, nullable=False, server_default=NOW),
    Column("what", String, nullable=False),
    Column("who", String, nullable=False),
    Column("why", String, nullable=False),
    Column("login", String, server_default=text("SESSION_USER")),  # no role may write it
)

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
    Column("described_on", String),
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

# Those of any Iceberg JDBC catalog (V1). Other engines read and write the same rows: the columns must not change.
iceberg_tables = Table(
    "iceberg_tables",
    metadata,
    Column("catalog_name", String(255), nullable=False),
    Column("table_namespace", String(255), nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("metadata_location", String(1000)),
    Column("previous_metadata_location", String(1000)),
    Column("iceberg_type", String(5), server_default=text("'TABLE'")),
    PrimaryKeyConstraint("catalog_name", "table_namespace", "table_name"),
)

iceberg_namespace_properties = Table(
    "iceberg_namespace_properties",
    metadata,
    Column("catalog_name", String(255), nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("property_key", String(255), nullable=False),
    Column("property_value", String(1000)),
    PrimaryKeyConstraint("catalog_name", "namespace", "property_key"),
)

table_intent = Table(
    "table_intent",
    metadata,
    Column("catalog", String, nullable=False),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("part", String, nullable=False),  # of the table; '' is the whole table
    Column("txid", BigInteger, nullable=False, index=True),
    PrimaryKeyConstraint("catalog", "namespace", "name", "part"),
)
