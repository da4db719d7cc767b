"""Flows that can't be kept: each with its refusal, what it is about, and words of its text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.provider.planning.declared import (
    CLUSTER,
    INPUT,
    flow,
    lane,
    local,
    marked,
    resource,
    settles,
    sql,
    step,
    works,
)
from txsaga.core.decision import Decision
from txsaga.flows.step import Hold
from txsaga.provider.planning.declaration import (
    BallotRule,
    Catch,
    DeclaredBallot,
    Input,
    InputKind,
    Output,
    StepMode,
    TransactionMode,
)
from txsaga.provider.planning.refusals import Refusal

PG, PG2 = resource("current"), resource("mortgage", "mariadb")
LITE = resource("lite", "sqlite", last=True)
OUT = Output(name="done", topic="transferred", cluster="shop")
BEST_EFFORT = replace(CLUSTER, policy="multisend-best-effort", xa=False)


def ballot(*voters: str, rule: BallotRule = BallotRule.ALL, quorum: int | None = None) -> DeclaredBallot:
    return DeclaredBallot(name="approval", voters=voters, rule=rule, quorum=quorum)


def req(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.req(*ids)


REFUSED = [
    pytest.param(flow(inputs=()), Refusal.NO_INPUT, "transfer", "no input; give it an input", marks=req("IBM-43")),
    pytest.param(
        flow(resource("lite", "sqlite"), works("debit", "lite")),
        Refusal.NO_TWO_PHASE,
        "lite",
        "a sqlite has no two-phase commit; use one that has it, make this one the last resource",
        marks=req("IBM-13", "IBM-57"),
    ),
    pytest.param(
        flow(resource("orders", "queue"), works("put", "orders")),
        Refusal.NO_TWO_PHASE,
        "orders",
        "a queue has no two-phase commit",
        marks=req("IBM-13", "IBM-40", "IBM-57"),
    ),
    pytest.param(
        flow(resource("old", "db2"), works("debit", "old")),
        Refusal.UNDECLARED,
        "old",
        r"nothing is known about kind 'db2' \(declared: postgresql, mariadb",
        marks=req("IBM-48", "IBM-13"),
    ),
    pytest.param(
        flow(lane("old", "db2"), works("note", "old")), Refusal.UNDECLARED, "old", "kind 'db2'", marks=req("IBM-48")
    ),
    *(
        pytest.param(
            flow(lane("other", kind), step("note", "other")),
            Refusal.NO_LANE,
            "other",
            f"a {kind} has no auxiliary transactions; use a database",
            marks=req("IBM-14", "IBM-40"),
        )
        for kind in ("http", "callable", "files")
    ),
    pytest.param(
        flow(resource("other", "files"), marked("note", "other")),
        Refusal.NO_LANE,
        "other",
        "a files has no auxiliary transactions",
        marks=req("IBM-14", "IBM-40"),
    ),
    *(
        pytest.param(
            flow(resource("orders", kind), marked("put", "orders"), settles("keep", "orders", decision)),
            Refusal.QUEUE_LANE,
            "orders",
            f"asks for the {decision.name} of its lane, and a {kind} has none; "
            "this is a limit of the queue system itself, no engine can lift it",
            marks=req("IBM-36", "IBM-37", "IBM-35"),
        )
        for kind in ("queue", "broker")
        for decision in Decision
    ),
    pytest.param(
        flow(lane("orders", "queue"), works("put", "orders")),
        Refusal.QUEUE_LANE,
        "orders",
        "a queue has no auxiliary transactions; this is a limit of the queue system",
        marks=req("IBM-37"),
    ),
    pytest.param(
        flow(resource("db2", no_mix=True), works("debit", "db2"), marked("note", "db2")),
        Refusal.NO_MIX,
        "db2",
        r"used both ways \(by db2\).*; use two instances, one for each kind of work",
        marks=req("IBM-31"),
    ),
    pytest.param(
        flow(resource("a", no_mix=True, instance="db2"), lane("b", instance="db2"), works("x", "a"), works("y", "b")),
        Refusal.NO_MIX,
        "db2",
        r"used both ways \(by a, b\)",
        marks=req("IBM-31"),
    ),
    pytest.param(
        flow(resource("db2", no_mix=True), works("x", "db2"), INPUT, Input(name="chatter", persistent=False)),
        Refusal.NO_MIX,
        "db2",
        "used both ways",
        marks=req("IBM-31"),
    ),
    pytest.param(
        flow(coordinators=()),
        Refusal.NO_COORDINATOR,
        "transfer",
        "names no coordinator; name one",
        marks=req("IBM-47", "WM-43"),
    ),
    pytest.param(
        flow(coordinators=("home", "away")),
        Refusal.COORDINATORS,
        "transfer",
        r"2 coordinators \(home, away\); keep one",
        marks=req("IBM-47"),
    ),
    pytest.param(
        flow(resource("other", "broker"), coordinators=("other",)),
        Refusal.BROKER_COORDINATES,
        "other",
        "it is a broker and can't coordinate the flow; a broker is a resource",
        marks=req("WM-43"),
    ),
    pytest.param(
        flow(CLUSTER, coordinators=("shop",)), Refusal.BROKER_COORDINATES, "shop", "is a broker", marks=req("WM-43")
    ),
    pytest.param(
        flow(
            resource("lite", "sqlite", last=True),
            resource("ledger", home=True),
            works("a", "lite"),
            works("b", "ledger"),
        ),
        Refusal.LAST_BESIDE_EFFECTS,
        "lite",
        r"beside work in the home database \(ledger\); its commit would be the decision",
        marks=pytest.mark.rule("R12"),
    ),
    pytest.param(
        flow(resource("a", "sqlite", last=True), resource("b", last=True), works("x", "a"), works("y", "b")),
        Refusal.TWO_LAST,
        "b",
        r"2 resources would be the last \(a, b\); keep one",
        marks=pytest.mark.rule("R12"),
    ),
    pytest.param(
        flow(resource("api", "http", last=True), step("call", "api")),
        Refusal.LAST_UNABLE,
        "api",
        "a http can't be the last resource",
        marks=pytest.mark.rule("R12"),
    ),
    pytest.param(
        flow(LITE, works("x", "lite"), coordinated=False),
        Refusal.LAST_IDLE,
        "lite",
        "no coordinated one; set coordinated=True",
    ),
    pytest.param(flow(lane("lite", "sqlite", last=True), works("x", "lite")), Refusal.LAST_IDLE, "lite", "no coord"),
    pytest.param(
        flow(resource("ledger", home=True, last=True), works("x", "ledger")),
        Refusal.LAST_IDLE,
        "ledger",
        "home database",
    ),
    pytest.param(
        flow(resource("last", last=True), works("x", "last", hold=Hold.PREPARED)),
        Refusal.LAST_IDLE,
        "last",
        "held prepared, so it votes like the others; hold it in the journal",
        marks=pytest.mark.rule("R12"),
    ),
    pytest.param(
        flow(local("old", "db2"), works("a", "old", mode=StepMode.COMMIT, propagates=("b",)), step("b")),
        Refusal.UNDECLARED,
        "old",
        "kind 'db2'",
        marks=req("IBM-48", "IBM-55"),
    ),
    pytest.param(
        flow(resource("api", "http", home=True), works("call", "api")),
        Refusal.HOLD_JOURNAL,
        "api",
        "step 'call' would be journalled",
    ),
    pytest.param(
        flow(lane("lite", "sqlite"), works("note", "lite", hold=Hold.PREPARED)),
        Refusal.HOLD_PREPARED,
        "lite",
        "step 'note' wants to be held prepared, and a sqlite has no two-phase commit; hold it in the journal",
        marks=req("IBM-13"),
    ),
    pytest.param(
        flow(resource("api", "http"), works("call", "api", hold=Hold.JOURNAL)),
        Refusal.HOLD_JOURNAL,
        "api",
        "step 'call' would be journalled, and a http can't do statements together",
        marks=req("IBM-40"),
    ),
    pytest.param(
        flow(PG, step("read", "current", *sql("UPDATE a", "SELECT 1"), hold=Hold.JOURNAL)),
        Refusal.JOURNAL_READS,
        "current",
        "statement 2 of step 'read' is journalled and has a SELECT; nobody is there",
        marks=pytest.mark.rule("R17"),
    ),
    pytest.param(
        flow(PG, step("read", "current", *sql("INSERT INTO a VALUES (1) RETURNING id"), hold=Hold.JOURNAL)),
        Refusal.JOURNAL_READS,
        "current",
        "statement 1 of step 'read' is journalled and has a RETURNING",
        marks=pytest.mark.rule("R17"),
    ),
    pytest.param(
        flow(PG, step("compute", "current", hold=Hold.JOURNAL)),
        Refusal.JOURNAL_BLIND,
        "current",
        "step 'compute' is journalled and gives no statement; only statements can be written down",
        marks=pytest.mark.rule("R17"),
    ),
    pytest.param(
        flow(local("orders", "queue"), works("put", "orders", mode=StepMode.COMMIT, propagates=("b",)), step("b")),
        Refusal.CANNOT_WAIT,
        "orders",
        r"step 'put' commits at once, not when the path below it \(b\) ends",
        marks=req("IBM-55"),
    ),
    pytest.param(
        flow(lane("audit"), settles("keep", "audit")),
        Refusal.NOTHING_TO_SETTLE,
        "audit",
        "no open work then",
        marks=req("IBM-29"),
    ),
    pytest.param(
        flow(lane("audit"), works("note", "audit"), settles("keep", "audit"), settles("again", "audit")),
        Refusal.NOTHING_TO_SETTLE,
        "audit",
        "step 'again' settles",
        marks=req("IBM-29"),
    ),
    pytest.param(
        flow(CLUSTER, replace(OUT, transaction=TransactionMode.YES), coordinated=False),
        Refusal.OUTPUT_ALONE,
        "shop",
        "output 'done' to 'transferred' takes part in the transaction, and nothing coordinates",
        marks=req("IBM-48"),
    ),
    pytest.param(
        flow(replace(CLUSTER, xa=False), OUT),
        Refusal.CLUSTER_NOT_XA,
        "shop",
        "not used under XA; set xa",
        marks=req("IBM-57", "IBM-48"),
    ),
    pytest.param(
        flow(BEST_EFFORT, OUT),
        Refusal.CLUSTER_BEST_EFFORT,
        "shop",
        "best effort takes part in none; choose multisend-guaranteed",
        marks=req("WM-30"),
    ),
    pytest.param(
        flow(replace(BEST_EFFORT, xa=True)),
        Refusal.CLUSTER,
        "cluster 'shop'",
        "sends by best effort under XA",
        marks=req("WM-30", "WM-33"),
    ),
    pytest.param(
        flow(replace(CLUSTER, name="both", brokers=(CLUSTER,), policy="weighted-round-robin")),
        Refusal.CLUSTER,
        "cluster 'both'",
        "weighs clusters; give the policy",
        marks=req("WM-33"),
    ),
    pytest.param(flow(ballots=(ballot(),)), Refusal.BALLOT, "approval", "no voters"),
    pytest.param(flow(ballots=(ballot("a", "a"),)), Refusal.BALLOT, "approval", "a would vote twice"),
    pytest.param(flow(ballots=(ballot("a", rule=BallotRule.QUORUM),)), Refusal.BALLOT, "approval", "None of 1 voters"),
    pytest.param(
        flow(ballots=(ballot("a", rule=BallotRule.QUORUM, quorum=2),)), Refusal.BALLOT, "approval", "2 of 1 voters"
    ),
    pytest.param(flow(ballots=(ballot("a", quorum=1),)), Refusal.BALLOT, "approval", "has a quorum and asks for all"),
    pytest.param(
        flow(Input(name="orders", retries=2)),
        Refusal.RETRIES,
        "orders",
        "a rollback puts a topic back",
        marks=req("IBM-56"),
    ),
    pytest.param(
        flow(Input(name="drop", kind=InputKind.FILES, retries=-1)),
        Refusal.RETRIES,
        "drop",
        "retries is -1; give a number",
    ),
    pytest.param(flow(step("a"), step("a")), Refusal.TWICE, "a", "two steps of the flow have this name"),
    pytest.param(flow(step("a", "there")), Refusal.UNKNOWN, "a", "resource 'there', which there is not; declare it"),
    pytest.param(flow(step("a", propagates=("b",))), Refusal.UNKNOWN, "a", "step 'b', which there is not"),
    pytest.param(flow(step("a", failure="b")), Refusal.UNKNOWN, "a", "step 'b'"),
    pytest.param(flow(step("a", catch=Catch(to="b"))), Refusal.UNKNOWN, "a", "step 'b'"),
    pytest.param(flow(OUT), Refusal.UNKNOWN, "done", "cluster 'shop', which there is not"),
    pytest.param(flow(step("a", settle=Decision.COMMIT)), Refusal.NO_RESOURCE, "a", "has work and names no resource"),
    pytest.param(flow(step("a", None, *sql())), Refusal.NO_RESOURCE, "a", "has work and names no resource"),
    pytest.param(flow(step("a", propagates=("a",))), Refusal.LOOP, "a", r"\(a → a\)"),
    pytest.param(
        flow(step("a", propagates=("b",)), step("b", failure="c"), step("c", catch=Catch(to="a"))),
        Refusal.LOOP,
        "a",
        r"comes back to it \(a → b → c → a\); let it end",
    ),
]
