"""
The table of rights: which privileges each right needs on each object of a namespace.

It names every table for every right, even if the right needs nothing there, so that a new table can't be forgotten; a
test checks that. Policies hide rows that a right must not reach in a table that it may use (see the migrations), and
functions do what neither can express.

A grant on `may` is the mark of a right. Without it no policy admits a role, even with other grants made by hand.
The mark is REFERENCES, which has no effect of its own: a role that may read everything does not get every right by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from txsaga.store.right import SIGN, Right

WORD = re.compile(r"[A-Z]+")


class Needs(NamedTuple):
    """What each right needs on one object, in GRANT syntax."""

    producer: str = ""
    consumer: str = ""
    operator: str = ""
    engine: str = ""


# Not token_inner, token_outer and token_key: the keys of tokens are the owner's.
STORE = "SELECT (single, uuid, incarnation, births, system_identifier, timeline, place, rejecting, cluster)"
TOPIC = "SELECT, INSERT (name, type, retention_seconds, retention_bytes), UPDATE (retention_seconds, retention_bytes)"
WITHOUT_BODY = "SELECT (txid, born, batch, pgroup, qid, part, attempt, chunk, n, evidence, immunity, keyed)"
NEW_HALF = "INSERT (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)"
NEW_OP = "INSERT (txid, decision, keyed, from_check)"
MOVE_TX = "SELECT, UPDATE (owner, state, evidence, touched, coordinator)"
NEW_TX = f"{MOVE_TX}, INSERT (txid, pgroup, key, epoch, state, run, coordinator, lease)"
NOTE = "INSERT (txid, what, who, why)"
TOLD = "INSERT (txid, at, what, who, why)"
NEW_STEP = (
    'INSERT (txid, number, attempt, name, state, hold, kind, resource, input, compensation, action, due, "left"), '
    'UPDATE (state, "left", output, error, tries, at)'
)
ATTEMPT = "INSERT (described_on, lane, unit, branch, mark), UPDATE (kind, input, compensation, mark, journal)"
SAGA = "SELECT, INSERT (txid, ticket, until, driver), UPDATE (until, driver, stalled, why), DELETE"
SETTLE = "SELECT, INSERT, UPDATE (state, arguments), DELETE"
NEW_VOTE = "SELECT, INSERT (txid, ballot, voter, yes, evidence)"
NEW_GROUP = "SELECT, INSERT (name, transactional, role)"
READ = "SELECT"
CHANGE = "SELECT, INSERT, UPDATE, DELETE"
# Not message, born, body: with these copies for a replay a login could forge messages to a group.
CLAIMED = (
    "SELECT, INSERT (grp, qid, base, size, open, attempts, until, receipt, member, key, history), "
    "UPDATE (open, attempts, until, receipt, member, txid, retry, history), DELETE"
)
CLIENT_ANSWER = "SELECT (nonce, client), INSERT (nonce, client, about), UPDATE (done, said)"
POLICY = "style, ordered, max_attempts, backout, dead_letters, first_retry, longest_retry, expires, paused"

TABLES = {
    "alembic_version": Needs(READ, READ, READ, READ),
    SIGN: Needs(*(f"REFERENCES ({right})" for right in Right)),
    "store": Needs(STORE, STORE, f"{STORE}, UPDATE (rejecting, cluster)", STORE),
    "topic": Needs(READ, READ, TOPIC, READ),
    "queue": Needs(READ, READ, "SELECT, INSERT (topic, idx), UPDATE (tail)", READ),
    "weight": Needs(operator=READ, engine="SELECT, INSERT"),
    "producer_group": Needs(NEW_GROUP, READ, "SELECT, UPDATE (transactional, checks)", READ),
    "resource": Needs("SELECT, INSERT (name, database), UPDATE (enlisted)", "", READ, READ),
    "half": Needs(f"{WITHOUT_BODY}, {NEW_HALF}", "", WITHOUT_BODY, f"SELECT, {NEW_HALF}"),
    "op": Needs(f"SELECT, {NEW_OP}", "", f"SELECT, {NEW_OP}", f"SELECT, {NEW_OP}"),
    "log": Needs("", READ, READ, READ),
    "tick": Needs("", "", READ, READ),
    "tx": Needs(NEW_TX, "", MOVE_TX, MOVE_TX),
    "branch": Needs(
        "SELECT, INSERT (txid, number, attempt, resource, state, aux), UPDATE (state, at, why, decision)",
        "",
        "SELECT, UPDATE (state, at, why)",
        "SELECT, UPDATE (state, at, why)",
    ),
    "flow_resource": Needs("SELECT, INSERT", "", READ, READ),
    "flow_unit": Needs("SELECT, INSERT, UPDATE (branch, attempt, decision, at)", "", READ, READ),
    "ballot": Needs("SELECT, INSERT", "", READ, READ),
    "vote": Needs(NEW_VOTE, "", NEW_VOTE, READ),
    "step": Needs(
        f"SELECT, {NEW_STEP}, {ATTEMPT}",
        "",
        "SELECT, UPDATE (state, error, tries, at)",
        f"SELECT, {NEW_STEP}, UPDATE (late)",
    ),
    "saga": Needs(SAGA, "", "SELECT, UPDATE (until, stalled, why)", SAGA),
    "reservation": Needs("SELECT, INSERT, UPDATE (state, tried, arguments), DELETE", "", SETTLE, SETTLE),
    "part": Needs("SELECT, INSERT, UPDATE (attempt)", "", READ, "SELECT, INSERT, UPDATE (attempt)"),
    "effect": Needs("SELECT, INSERT, DELETE", "", "SELECT, DELETE", "SELECT, DELETE"),
    "iceberg_tables": Needs("SELECT, INSERT, UPDATE, DELETE", READ, CHANGE, "SELECT, INSERT, UPDATE"),
    "iceberg_namespace_properties": Needs(CHANGE, READ, CHANGE, "SELECT, INSERT"),
    "moment": Needs(CHANGE, READ, CHANGE, READ),
    "table_intent": Needs("SELECT, INSERT, UPDATE (txid)", "", READ, READ),
    "intent": Needs("SELECT (txid)", CHANGE, "SELECT, DELETE", "SELECT, DELETE"),
    "cursor": Needs("", "SELECT, INSERT, UPDATE", "SELECT, UPDATE, DELETE", "SELECT, UPDATE, DELETE"),
    "consumer_group": Needs(
        "",
        f"SELECT, INSERT (name, {POLICY}), UPDATE (seen)",
        f"SELECT, INSERT (name, {POLICY}), UPDATE ({POLICY}, seen), DELETE",
        "SELECT, UPDATE (seen), DELETE",
    ),
    "claim": Needs("SELECT (txid)", CLAIMED, CHANGE, "SELECT, UPDATE, DELETE"),
    "dead_letter": Needs("", "SELECT, INSERT, UPDATE", CHANGE, "SELECT, INSERT"),
    "lease": Needs(CHANGE, CHANGE, "SELECT, DELETE", CHANGE),
    "doubt": Needs(READ, "", CHANGE, CHANGE),
    "question": Needs(READ, "", READ, CHANGE),
    "client_command": Needs(READ, READ, "SELECT, INSERT (nonce, client, message), DELETE"),
    "client_answer": Needs(CLIENT_ANSWER, CLIENT_ANSWER, READ),
    "tally": Needs("", "", READ, "SELECT, INSERT, UPDATE (n)"),
    "scheduled": Needs(READ, "", READ, "SELECT, DELETE"),
    "checkpoint": Needs("", "", READ, "SELECT, INSERT, UPDATE"),
    "event": Needs(f"SELECT, {NOTE}", "", f"SELECT, {NOTE}", f"SELECT, {TOLD}"),
}

SEQUENCES = {
    "tx_seq": Needs("USAGE, SELECT", "", READ, READ),
    "topic_id_seq": Needs(operator="USAGE"),
    "queue_qid_seq": Needs(operator="USAGE"),
    "producer_group_id_seq": Needs(producer="USAGE"),
    "resource_id_seq": Needs(producer="USAGE"),
    "event_id_seq": Needs(producer="USAGE", operator="USAGE", engine="USAGE"),
    "dead_letter_id_seq": Needs(consumer="USAGE", operator="USAGE", engine="USAGE"),
}

FUNCTIONS = {
    "everywhere": Needs("EXECUTE", "EXECUTE", "EXECUTE", "EXECUTE"),
    "mine": Needs("EXECUTE", "EXECUTE", "EXECUTE", "EXECUTE"),
    "ours": Needs("EXECUTE", "EXECUTE", "EXECUTE", "EXECUTE"),
    "is_chunk": Needs("EXECUTE", "", "", "EXECUTE"),
    "keep_step": Needs(),
    "token": Needs("EXECUTE", "", "EXECUTE", "EXECUTE"),
    "prepare": Needs(producer="EXECUTE"),
    "publish": Needs(producer="EXECUTE"),
    "schedule": Needs(producer="EXECUTE"),
    "send": Needs(producer="EXECUTE"),
    "join": Needs(producer="EXECUTE"),
    "crc32": Needs(),
    "decide": Needs("EXECUTE", "", "EXECUTE", "EXECUTE"),
    "recall": Needs(producer="EXECUTE"),
    "contents": Needs(producer="EXECUTE"),
    "fetch": Needs(consumer="EXECUTE"),
    "back_out": Needs(consumer="EXECUTE"),
    "hold": Needs(producer="EXECUTE", engine="EXECUTE"),
    "begin_work": Needs(producer="EXECUTE"),
    "resolve": Needs(producer="EXECUTE", engine="EXECUTE"),
    "note_branches": Needs("EXECUTE", "", "EXECUTE", "EXECUTE"),
    "take": Needs(producer="EXECUTE", engine="EXECUTE"),
    "answered": Needs(producer="EXECUTE", engine="EXECUTE"),
    "unlist": Needs("EXECUTE", "", "EXECUTE", "EXECUTE"),
    "refuse_queue": Needs(),
    "delete_topic": Needs(operator="EXECUTE"),
    "tick": Needs(engine="EXECUTE"),
    "attach_partition": Needs(engine="EXECUTE"),
    "drop_ticks": Needs(engine="EXECUTE"),
    "drop_partition": Needs(engine="EXECUTE"),
}


def privileges(right: Right, s: str, functions: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the privileges of a right in a (quoted) namespace, each with its object; `functions` are full names."""
    yield "USAGE", f"SCHEMA {s}"
    for kind, objects in (("TABLE", TABLES), ("SEQUENCE", SEQUENCES)):
        for name, needs in objects.items():
            if wanted := getattr(needs, right):
                yield wanted, f'{kind} {s}."{name}"'
    for full in functions:
        if wanted := getattr(FUNCTIONS[full.removeprefix(f"{s}.").partition("(")[0]], right):
            yield wanted, f"FUNCTION {full}"


def needed(right: Right, s: str, functions: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the objects that a right needs, once for each privilege."""
    for wanted, on in privileges(right, s, functions):
        kind, _, name = on.partition(" ")
        if kind != "SCHEMA":
            yield from ((name, word) for word in WORD.findall(re.sub(r"\(.*?\)", "", wanted)))
