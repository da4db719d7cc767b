"""What each right may NOT do, as raw SQL: the table that the tests of rights go through."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres

LEASE = "INSERT INTO lease (kind, name, holder, until) VALUES ('{kind}', 'x', 'y', now())"
P, C, OP, E = Right.PRODUCER, Right.CONSUMER, Right.OPERATOR, Right.ENGINE
DENIED, BROKEN, NOTHING, DONE = "42501", "23514", "nothing", "done"

PREPARE = "SELECT * FROM prepare(1::int8, true, {group}, {qid}, 0, {n}, {evidence}::int4, NULL::int4, {body})"
BODY = f"'\\x{lay_out_one(Message('orders', b'x')).hex()}'::bytea"
ONE = {"qid": "{qid}", "n": 1, "evidence": "NULL", "body": BODY}
PUBLISH = PREPARE.replace("prepare(", "publish(")
DECIDE = "SELECT * FROM decide({txid}::int8, {group}, {token}, 2, {check}, 6)"
RAW_HALF = "INSERT INTO half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body) VALUES "
RAW_TX = "INSERT INTO tx (txid, pgroup, key, epoch, state) VALUES ({plain}, {own}, 'a', 1, 'active')"
BEGIN_WORK = "SELECT * FROM begin_work(ARRAY[{theirs}]::int4[], '{{\"\"}}', '{{1}}'" + ", '{{}}'" * 12 + ")"
RESOLVE = (
    "SELECT * FROM resolve(ARRAY[{txid}]::int8[], '{{{{1}}}}', '{{{{2}}}}', '{{{{x}}}}', '{{{{x}}}}', '{{{{0}}}}'"
    + ", '{{{{}}}}'" * 9
    + ")"
)
RECALL = "SELECT * FROM recall({later}::int8, {later_group}, {later_token}, 2, true, 6)"
NOBODYS = "UPDATE producer_group SET role = NULL"
LOGGED = "INSERT INTO log VALUES ({qid}, 99, 1, {plain}, 0, 0, 0)"
EASY = (
    "UPDATE store SET token_outer = ''; CREATE OR REPLACE FUNCTION {s}.decide(int8, int4, bytea, int4, bool, int4) "
    "RETURNS TABLE (txid int8) LANGUAGE sql AS 'SELECT 1::int8'"
)
NO_RLS = "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"


class Row(NamedTuple):
    """One thing that somebody tries."""

    right: Right
    what: str
    sql: str
    refused: str = DENIED
    opened_by: str | None = None


def grant(what: str) -> str:
    return f"GRANT {what} TO {{me}}"


def unbound(table: str, also: str = "SELECT 1") -> str:
    return f"{NO_RLS.format(table=table)}; {also}"


NOBODY = [
    ("drop a partition", "DROP TABLE half_0", None),
    ("empty a table", "TRUNCATE log", grant("TRUNCATE ON log")),
    ("lift the policies", NO_RLS.format(table="half"), "ALTER TABLE half OWNER TO {me}"),
    ("change a policy", "ALTER POLICY seen ON half USING (true)", "ALTER TABLE half OWNER TO {me}"),
    ("create a table", "CREATE TABLE mine (a int)", grant("CREATE ON SCHEMA {s}")),
    ("put another function in place",
     "CREATE OR REPLACE FUNCTION mine(int) RETURNS bool AS 'SELECT true' LANGUAGE sql", None),
    ("grant itself a right", "INSERT INTO may VALUES (true)", grant("INSERT ON may")),
    ("delete halves", "DELETE FROM half", unbound("half", grant("SELECT, DELETE ON half"))),
    ("change a half", "UPDATE half SET body = 'x'", None),
    ("change a decision", "UPDATE op SET decision = 2", None),
    ("take a decision back", "DELETE FROM op", None),
    ("read a partition past the policies", "SELECT body FROM half_0", unbound("half_0", grant("SELECT ON half_0"))),
    ("read the token key", "SELECT token_key FROM store", grant("SELECT (token_key) ON store")),
    ("read the inner pad", "SELECT token_inner FROM store", grant("SELECT (token_inner) ON store")),
    ("read the outer pad", "SELECT token_outer FROM store", grant("SELECT (token_outer) ON store")),
    ("change the identity", "UPDATE store SET incarnation = 9", grant("UPDATE ON store")),
    ("change who a group belongs to", "UPDATE producer_group SET role = session_user", None),
    ("forge the audit", "UPDATE event SET who = 'anna'", None),
    ("write the audit as another login",
     "INSERT INTO event (txid, what, who, why, login) VALUES ({own_key}, 'a', 'b', 'c', 'anna')",
     grant("INSERT ON event") + "; GRANT USAGE ON SEQUENCE event_id_seq TO {me}; " + NO_RLS.format(table="event")),
    ("choose when it was decided",
     "INSERT INTO op (txid, xid, decision, keyed) VALUES ({own_key}, '9', 1, true)", None),
    ("act as the owner", "SET ROLE {owner}", None),
    ("set numbers back", "SELECT setval('tx_seq', last_value) FROM tx_seq", grant("SELECT, UPDATE ON SEQUENCE tx_seq")),
    ("forget a migration", "DELETE FROM alembic_version", grant("SELECT, DELETE ON alembic_version")),
    ("write offsets back", "UPDATE log SET base = base + 1", grant("SELECT, UPDATE ON log")),
    ("lock everybody out", "LOCK TABLE op IN ACCESS EXCLUSIVE MODE", None),
]  # fmt: skip

ROWS = [
    *(Row(right, *row[:2], opened_by=row[2]) for row in NOBODY for right in Right),
    # A consumer reads what is decided.
    Row(C, "read bodies of halves", "SELECT body FROM half", opened_by=unbound("half", grant("SELECT ON half"))),
    Row(C, "count halves", "SELECT count(*) FROM half", opened_by=grant("SELECT ON half")),
    Row(C, "fetch what is undecided", "SELECT * FROM {s}.fetch({qid}, 0, 99, 99) WHERE txid = {plain}", NOTHING,
        "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES ({qid}, 9, 1, {plain}, 0, 0, 0);"
        "UPDATE queue SET head = 10 WHERE qid = {qid}"),
    Row(C, "look at transactions", "SELECT * FROM tx", opened_by=unbound("tx", grant("SELECT ON tx"))),
    Row(C, "look at decisions", "SELECT * FROM op", opened_by=grant("SELECT ON op")),
    Row(C, "prepare", PREPARE.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(C, "send", PUBLISH.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(C, "join a send", "SELECT * FROM send({theirs}, {qid}, 1, {body})"),
    Row(C, "decide", DECIDE.format(txid="{plain}", group="{theirs}", token="{token}", check=False)),
    Row(C, "ask for a token", "SELECT token({theirs}, {plain})"),
    Row(C, "insert a half", RAW_HALF + "({key}, {theirs}, {qid}, 1, 1, 9, 1, true, {body})"),
    Row(C, "insert a decision", "INSERT INTO op (txid, decision) VALUES ({plain}, 1)",
        opened_by=unbound("op", grant("INSERT ON op"))),
    Row(C, "move the head of a queue", "UPDATE queue SET head = 99", opened_by=grant("UPDATE ON queue")),
    Row(C, "write the log", LOGGED, opened_by=grant("INSERT ON log")),
    Row(C, "tick", "INSERT INTO tick VALUES (99, '1:1:', 1)", opened_by=grant("INSERT ON tick")),
    Row(C, "make a group that backs out where it likes",
        "INSERT INTO consumer_group (name, style, backout, first_retry, longest_retry) "
        "VALUES ('sly', 'work', 'orders', '1s', '1s')", opened_by=NO_RLS.format(table="consumer_group")),
    Row(C, "alter a group", "UPDATE consumer_group SET backout = 'orders'",
        opened_by=grant("UPDATE ON consumer_group")),
    Row(C, "send by backing out where the group does not",
        "SELECT back_out('workers', {qid}, 0, 1, 1, {qid}, {body})",
        opened_by="UPDATE consumer_group SET backout = 'orders'"),
    Row(C, "back out what is no chunk of one", "SELECT back_out('workers', {qid}, 0, 1, 1, (SELECT q.qid FROM queue q "
        "JOIN topic t ON t.id = q.topic WHERE t.name = 'backout'), 'x')"),
    Row(C, "bind a claim to somebody's transaction", "UPDATE claim SET txid = {key}",
        opened_by=NO_RLS.format(table="claim")),
    Row(C, "bind offsets to somebody's transaction",
        "INSERT INTO intent VALUES ('workers', {qid}, 0, 1, 1, {key}, 'me')", opened_by=NO_RLS.format(table="intent")),
    Row(C, "purge dead letters", "DELETE FROM dead_letter", opened_by=grant("DELETE ON dead_letter")),
    Row(C, "create a topic", "INSERT INTO topic (name, type) VALUES ('x', 'normal')"),
    Row(C, "register a producer group",
        "INSERT INTO producer_group (name, transactional, role) VALUES ('x', true, session_user)"),
    # A producer decides what is its own, and only once it is stored as the library does it.
    Row(P, "read bodies, even its own", "SELECT body FROM half", opened_by=grant("SELECT ON half")),
    Row(P, "read bodies that nobody asks it about", "SELECT * FROM contents({plain})", NOTHING),
    Row(OP, "read bodies as if it was asked", "SELECT * FROM contents({plain})"),
    Row(P, "see halves of others", "SELECT txid FROM half WHERE txid = {plain}", NOTHING, NO_RLS.format(table="half")),
    Row(P, "see transactions of others", "SELECT txid FROM tx WHERE txid = {key}", NOTHING, NO_RLS.format(table="tx")),
    Row(P, "insert a plain half", RAW_HALF + "(nextval('tx_seq'), {own}, {qid}, 0, 0, 0, 1, false, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add to somebody's keyed transaction", RAW_HALF + "({key}, {own}, {qid}, 1, 1, 9, 1, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add to somebody's half", RAW_HALF + "({plain}, {own}, {qid}, 1, 1, 9, 1, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add in somebody's name", RAW_HALF + "({own_key}, {theirs}, {qid}, 1, 1, 9, 1, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add a chunk that stops the dispatcher", RAW_HALF + "({own_key}, {own}, {qid}, 1, 1, 9, 0, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "choose when a half was born", "INSERT INTO half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body, "
        "born) VALUES ({own_key}, {own}, {qid}, 1, 1, 9, 1, true, {body}, now())", opened_by=grant("INSERT ON half")),
    Row(P, "decide somebody's half", "INSERT INTO op (txid, decision) VALUES ({plain}, 2)",
        opened_by=NO_RLS.format(table="op")),
    Row(P, "decide somebody's half as keyed", "INSERT INTO op (txid, decision, keyed) VALUES ({plain}, 2, true)",
        opened_by=NO_RLS.format(table="op")),
    Row(P, "decide somebody's keyed transaction", "INSERT INTO op (txid, decision, keyed) VALUES ({key}, 2, true)",
        opened_by=NO_RLS.format(table="op")),
    Row(P, "open a life on somebody's number", f"SELECT nextval('tx_seq'); {RAW_TX}",
        opened_by=NO_RLS.format(table="tx")),
    Row(P, "open a life on a number that it never took", RAW_TX, "55000", NO_RLS.format(table="tx")),
    Row(P, "roll somebody's life back", "UPDATE tx SET state = 'rolled_back' WHERE txid = {key}", NOTHING,
        NO_RLS.format(table="tx")),
    Row(P, "give a life to another group", "UPDATE tx SET pgroup = {own}", opened_by=grant("UPDATE ON tx")),
    Row(P, "win a part of somebody's", "INSERT INTO part VALUES ({key}, 7, 9)", opened_by=NO_RLS.format(table="part")),
    Row(P, "reserve a place in somebody's", "INSERT INTO effect VALUES ({key}, 1, 'late', '{{}}')",
        opened_by=NO_RLS.format(table="effect")),
    Row(P, "take somebody's half off the doubts", "DELETE FROM doubt WHERE txid = {plain}",
        opened_by=unbound("doubt", grant("DELETE ON doubt"))),
    Row(P, "postpone somebody's check", "UPDATE doubt SET check_at = now() + interval '1 year'",
        opened_by=unbound("doubt", grant("UPDATE ON doubt"))),
    Row(P, "list somebody's transaction as its own group's",
        "INSERT INTO doubt (txid, pgroup, check_at) VALUES ({key}, {own}, now() + interval '1 year')",
        opened_by=grant("INSERT ON doubt")),
    Row(P, "list what is not there", "INSERT INTO doubt (txid, pgroup) VALUES (999999, {own})",
        opened_by=grant("INSERT ON doubt")),
    Row(P, "take somebody's question away", "DELETE FROM question",
        opened_by=unbound("question", grant("DELETE ON question"))),
    Row(P, "never let a question end", "UPDATE question SET until = now() + interval '1 year'",
        opened_by=unbound("question", grant("UPDATE ON question"))),
    Row(P, "count answers that nobody gave", "INSERT INTO tally VALUES ({own}, 'COMMIT', 9)",
        opened_by=grant("INSERT ON tally")),
    Row(P, "answer what is no answer", "SELECT answered('you', '{{1}}', '{{MAYBE}}', '{{x}}')"),
    Row(P, "take up somebody's question", "SELECT * FROM take('you', 9)", NOTHING, NOBODYS),
    Row(P, "have a check forgotten", "UPDATE doubt SET checks = 0, parked = NULL",
        opened_by=unbound("doubt", grant("UPDATE ON doubt"))),
    Row(P, "lead the rounds of check-back", LEASE.format(kind="round"),
        opened_by=NO_RLS.format(table="lease")),
    Row(P, "answer for somebody's group", LEASE.format(kind="checker:1"),
        opened_by=NO_RLS.format(table="lease")),
    Row(C, "answer for a producer group", LEASE.format(kind="checker:1"),
        opened_by=NO_RLS.format(table="lease")),
    Row(P, "write somebody's audit", "INSERT INTO event (txid, what, who, why) VALUES ({key}, 'a', 'b', 'c')",
        opened_by=NO_RLS.format(table="event")),
    Row(P, "unschedule", "DELETE FROM scheduled", opened_by=unbound("scheduled", grant("DELETE ON scheduled"))),
    Row(P, "see what others scheduled", "SELECT * FROM scheduled", NOTHING, NO_RLS.format(table="scheduled")),
    Row(P, "decide with somebody's own token", DECIDE.format(
        txid="{plain}", group="{theirs}", token="{token}", check=False), opened_by=NOBODYS),
    Row(P, "decide somebody's half for its own group", DECIDE.format(
        txid="{plain}", group="{own}", token="token({own}, {plain})", check=True), NOTHING,
        "UPDATE half SET pgroup = {own}"),
    Row(P, "decide with a forged token", DECIDE.format(
        txid="{own_plain}", group="{own}", token="'forged'", check=False), NOTHING, EASY),
    Row(P, "recall what others scheduled", RECALL,
        opened_by=NOBODYS),
    Row(P, "decide somebody's half as a transaction", RESOLVE.format(txid="{plain}")),
    Row(P, "decide somebody's transaction with its branches", RESOLVE.format(txid="{key}")),
    Row(P, "decide a transaction that is not there yet", RESOLVE.format(txid="999999")),
    Row(P, "begin work in somebody's name", BEGIN_WORK, opened_by=NOBODYS),
    *(Row(right, "begin work", BEGIN_WORK) for right in (C, OP, E)),
    *(Row(right, "decide as an owner", RESOLVE.format(txid="{key}")) for right in (C, OP)),
    Row(P, "learn somebody's token", "SELECT 1 WHERE token({theirs}, {plain}) IS NOT NULL", NOTHING,
        NOBODYS),
    Row(P, "prepare in somebody's name", PREPARE.format(**ONE | {'group': "{theirs}", 'n': 1}),
        opened_by=NOBODYS),
    Row(P, "prepare in nobody's name", PREPARE.format(**ONE | {'group': "0", 'n': 1})),
    Row(P, "send in somebody's name among its own",
        "SELECT * FROM publish(1::int8, '{{t,t}}'::bool[], '{{{own},{theirs}}}'::int4[], '{{{qid},{qid}}}'::int4[], "
        "'{{0,0}}'::int4[], '{{1,1}}'::int4[], '{{null,null}}'::int4[], '{{null,null}}'::int4[], "
        "ARRAY[{body}, {body}])",
        opened_by=NOBODYS),
    Row(P, "join a send in somebody's name", "SELECT * FROM send({theirs}, {qid}, 1, {body})",
        opened_by=NOBODYS),
    Row(P, "send a chunk that stops the dispatcher", PUBLISH.format(**ONE | {'group': "{own}", 'n': 0})),
    Row(P, "send fewer messages than none", "SELECT * FROM send({own}, {qid}, -1, {body})"),
    Row(P, "send another count than the chunk's", PUBLISH.format(**ONE | {"group": "{own}", "n": 2})),
    Row(P, "join a send of another count", "SELECT * FROM send({own}, {qid}, 2, {body})"),
    Row(P, "send what is no chunk", PUBLISH.format(**ONE | {"group": "{own}", "body": "'x'::bytea"})),
    Row(P, "send to no queue", PUBLISH.format(**ONE | {"group": "{own}", "qid": 99999})),
    Row(P, "name a resource that is not there", PREPARE.format(**ONE | {"group": "{own}", "evidence": 99999})),
    Row(P, "add another count than the chunk's", RAW_HALF + "({own_key}, {own}, {qid}, 1, 1, 9, 2, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add to no queue", RAW_HALF + "({own_key}, {own}, 99999, 1, 1, 9, 1, true, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(P, "add to what it decided", "UPDATE tx SET state = 'rolled_back' WHERE txid = {own_key}; "
        "INSERT INTO op (txid, decision, keyed) VALUES ({own_key}, 2, true); "
        + RAW_HALF + "({own_key}, {own}, {qid}, 1, 1, 9, 1, true, {body})", opened_by=NO_RLS.format(table="half")),
    Row(P, "decide beside its row", "INSERT INTO op (txid, decision, keyed) VALUES ({own_key}, 1, true)",
        opened_by=NO_RLS.format(table="op")),
    Row(OP, "commit what is not closed", "INSERT INTO op (txid, decision, keyed) VALUES ({key}, 1, true)",
        opened_by=NO_RLS.format(table="op")),
    Row(P, "send for never",
        "SELECT * FROM schedule(1::int8, true, {own}, {qid}, 0, 1, NULL::int4, NULL::int4, {body}, NULL::float8, "
        "'infinity'::float8)", BROKEN, "ALTER TABLE scheduled DROP CONSTRAINT scheduled_at_check"),
    Row(P, "work on something for ever", "UPDATE tx SET touched = 'infinity' WHERE txid = {own_key}", BROKEN,
        "ALTER TABLE tx DROP CONSTRAINT tx_touched_check"),
    Row(C, "make a group that expires beyond all time",
        "INSERT INTO consumer_group (name, style, first_retry, longest_retry, expires) "
        "VALUES ('sly', 'work', '1s', '1s', '300000 years')", BROKEN,
        "ALTER TABLE consumer_group DROP CONSTRAINT consumer_group_expires_check"),
    Row(C, "end a claim that is a transaction's", "DELETE FROM claim WHERE base = 77", NOTHING,
        NO_RLS.format(table="claim")),
    Row(C, "free a claim that is a transaction's", "UPDATE claim SET txid = NULL WHERE base = 77", NOTHING,
        NO_RLS.format(table="claim")),
    Row(C, "put a message of its own before a group",
        "INSERT INTO claim (grp, qid, base, size, open, attempts, until, message, born, body) "
        "VALUES ('workers', {qid}, 9, 64, 1, 0, now(), 'x', now(), {body})", opened_by=grant("INSERT ON claim")),
    Row(C, "put another message in the place of one", "UPDATE claim SET body = {body}",
        opened_by=unbound("claim", grant("UPDATE ON claim"))),
    Row(C, "keep messages for a group that is not there", "INSERT INTO cursor (grp, qid, off) VALUES ('x', {qid}, 0)",
        opened_by=NO_RLS.format(table="cursor")),
    Row(P, "register a group for somebody else",
        "INSERT INTO producer_group (name, transactional, role) VALUES ('x', true, '{rival}')",
        opened_by=NO_RLS.format(table="producer_group")),
    Row(P, "register a group for everybody", "INSERT INTO producer_group (name, transactional) VALUES ('x', true)",
        opened_by=NO_RLS.format(table="producer_group")),
    Row(P, "move a cursor", "UPDATE cursor SET off = 9", opened_by=grant("UPDATE ON cursor")),
    Row(P, "end a claim", "DELETE FROM claim", opened_by=grant("DELETE ON claim")),
    Row(P, "bind offsets of a group", "INSERT INTO intent VALUES ('workers', {qid}, 0, 1, 1, {own_key}, 'me')",
        opened_by=grant("INSERT ON intent")),
    Row(P, "read what is decided", "SELECT * FROM {s}.fetch({qid}, 0, 9, 9)"),
    Row(P, "read the log", "SELECT * FROM log", opened_by=grant("SELECT ON log")),
    Row(P, "read dead letters", "SELECT * FROM dead_letter"),
    Row(P, "move the head of a queue", "UPDATE queue SET head = 99", opened_by=grant("UPDATE ON queue")),
    Row(P, "write the log", LOGGED, opened_by=grant("INSERT ON log")),
    Row(P, "tick", "INSERT INTO tick VALUES (99, '1:1:', 1)", opened_by=grant("INSERT ON tick")),
    Row(P, "create a topic", "INSERT INTO topic (name, type) VALUES ('x', 'normal')"),
    Row(P, "reject transactions", "UPDATE store SET rejecting = true", opened_by=grant("UPDATE ON store")),
    # An operator decides by hand, and reads no undecided body.
    Row(OP, "read bodies of halves", "SELECT body FROM half", opened_by=grant("SELECT ON half")),
    Row(OP, "read by fetching", "SELECT * FROM {s}.fetch({qid}, 0, 9, 9)"),
    Row(OP, "insert a half", RAW_HALF + "({key}, {theirs}, {qid}, 1, 1, 9, 1, true, {body})",
        opened_by=unbound("half", grant("INSERT ON half"))),
    Row(OP, "prepare", PREPARE.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(OP, "send", PUBLISH.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(OP, "join a send", "SELECT * FROM send({theirs}, {qid}, 1, {body})"),
    Row(OP, "decide what is not there yet", "INSERT INTO op (txid, decision) VALUES (999999, 1)",
        opened_by=NO_RLS.format(table="op")),
    Row(OP, "delete the audit", "DELETE FROM event", opened_by=grant("DELETE ON event")),
    Row(OP, "write the log", LOGGED, opened_by=grant("INSERT ON log")),
    Row(OP, "drop a partition by its function", "SELECT drop_partition(0)"),
    Row(OP, "delete a topic", "DELETE FROM topic"),
    Row(OP, "learn somebody's token", "SELECT 1 WHERE token({theirs}, {plain}) IS NOT NULL", NOTHING),
    Row(OP, "recall with the token", RECALL),
    Row(OP, "decide with a forged token", DECIDE.format(
        txid="{plain}", group="{theirs}", token="'forged'", check=True), NOTHING),
    # An engine moves what is decided, and settles by what can be known.
    Row(E, "alter a group", "UPDATE consumer_group SET max_attempts = 1", opened_by=grant("UPDATE ON consumer_group")),
    Row(E, "insert a plain half", RAW_HALF + "(99, {theirs}, {qid}, 0, 0, 0, 1, false, {body})",
        opened_by=NO_RLS.format(table="half")),
    Row(E, "prepare", PREPARE.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(E, "send", PUBLISH.format(**ONE | {'group': "{theirs}", 'n': 1})),
    Row(E, "learn somebody's token", "SELECT 1 WHERE token({theirs}, {plain}) IS NOT NULL", NOTHING),
    Row(E, "decide with a forged token", DECIDE.format(
        txid="{plain}", group="{theirs}", token="'forged'", check=True), NOTHING),
    Row(E, "read bodies as if it was asked", "SELECT * FROM contents({plain})"),
    Row(E, "delete the log", "DELETE FROM log", opened_by=grant("DELETE ON log")),
    Row(E, "delete ticks", "DELETE FROM tick", opened_by=grant("DELETE ON tick")),
    Row(E, "drop a partition that is needed", "SELECT 1 WHERE drop_partition(0)", NOTHING),
    Row(E, "attach something else", "SELECT attach_partition('log', 0)"),
    Row(E, "drop a partition by a number below", "SELECT drop_partition(-999999)"),
    Row(E, "drop a partition by a number within", "SELECT drop_partition(7)"),
    Row(E, "drop what is not there", "SELECT drop_partition(90000000)"),
    Row(E, "attach where others are to come", "SELECT attach_partition('half', 90000000)"),
    Row(E, "attach what lies across others", "SELECT attach_partition('half', 10)"),
    Row(E, "create a topic", "INSERT INTO topic (name, type) VALUES ('x', 'normal')"),
    Row(E, "delete the audit", "DELETE FROM event", opened_by=grant("DELETE ON event")),
    Row(E, "delete dead letters", "DELETE FROM dead_letter", opened_by=grant("DELETE ON dead_letter")),
]  # fmt: skip
