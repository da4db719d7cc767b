"""Flows that can't be kept: each with its refusal, what it is about, and words of its text."""

from __future__ import annotations

import pytest

from tests.provider.planning.declared import (
    flow,
    lane,
    local,
    resource,
    settles,
    step,
    works,
)
from txsaga.core.decision import Decision
from txsaga.flows.ballot import Ballot
from txsaga.flows.step import Hold
from txsaga.provider.planning.modes import Input, StepMode
from txsaga.provider.planning.refusals import Refusal

PG, PG2 = resource("current"), resource("mortgage", "mariadb")


def req(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.req(*ids)


REFUSED = [
    pytest.param(
        flow(resource("lite", "sqlite"), works("debit", "lite")),
        Refusal.NO_TWO_PHASE,
        "lite",
        "sqlite has no two-phase commit; use a resource that supports it, or make this one an auxiliary lane",
        marks=req("IBM-13", "IBM-57"),
    ),
    pytest.param(
        flow(resource("orders", "queue"), works("put", "orders")),
        Refusal.NO_TWO_PHASE,
        "orders",
        "queue has no two-phase commit",
        marks=req("IBM-13", "IBM-40", "IBM-57"),
    ),
    pytest.param(
        flow(resource("old", "db2"), works("debit", "old")),
        Refusal.UNDECLARED,
        "old",
        r"kind 'db2' is not known \(known: postgresql, mariadb",
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
            f"{kind} has no auxiliary transactions; use a database",
            marks=req("IBM-14", "IBM-40"),
        )
        for kind in ("http", "callable", "files")
    ),
    *(
        pytest.param(
            flow(local("orders", kind), works("put", "orders"), settles("keep", "orders", decision)),
            Refusal.QUEUE_LANE,
            "orders",
            f"asks for the {decision.name} of its lane, but {kind} has no lane; this is a limit of the queue system",
            marks=req("IBM-36", "IBM-37", "IBM-35"),
        )
        for kind in ("queue", "broker")
        for decision in Decision
    ),
    pytest.param(
        flow(lane("orders", "queue"), works("put", "orders")),
        Refusal.QUEUE_LANE,
        "orders",
        "queue has no auxiliary transactions; this is a limit of the queue system",
        marks=req("IBM-37"),
    ),
    pytest.param(
        flow(resource("db2", no_mix=True), works("debit", "db2"), works("note", "db2", mode=StepMode.COMMIT)),
        Refusal.NO_MIX,
        "db2",
        r"can't mix coordinated and uncoordinated work \(by db2\).*; use two instances, one for each kind of work",
        marks=req("IBM-31"),
    ),
    pytest.param(
        flow(resource("a", no_mix=True, instance="db2"), lane("b", instance="db2"), works("x", "a"), works("y", "b")),
        Refusal.NO_MIX,
        "db2",
        r"can't mix coordinated and uncoordinated work \(by a, b\)",
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
        "step 'call' is journalled",
    ),
    pytest.param(
        flow(lane("lite", "sqlite"), works("note", "lite", hold=Hold.PREPARED)),
        Refusal.HOLD_PREPARED,
        "lite",
        "step 'note' is held prepared, but sqlite has no two-phase commit; hold the work in the journal",
        marks=req("IBM-13"),
    ),
    pytest.param(
        flow(resource("api", "http"), works("call", "api", hold=Hold.JOURNAL)),
        Refusal.HOLD_JOURNAL,
        "api",
        "step 'call' is journalled, but http can't run statements in one transaction",
        marks=req("IBM-40"),
    ),
    pytest.param(
        flow(PG, step("read", "current", "UPDATE a", "SELECT 1", hold=Hold.JOURNAL)),
        Refusal.JOURNAL_READS,
        "current",
        "statement 2 of step 'read' is journalled and has a SELECT; the statement runs only at the decision",
        marks=pytest.mark.rule("R17"),
    ),
    pytest.param(
        flow(PG, step("read", "current", "INSERT INTO a VALUES (1) RETURNING id", hold=Hold.JOURNAL)),
        Refusal.JOURNAL_READS,
        "current",
        "statement 1 of step 'read' is journalled and has a RETURNING",
        marks=pytest.mark.rule("R17"),
    ),
    pytest.param(
        flow(PG, step("compute", "current", hold=Hold.JOURNAL)),
        Refusal.JOURNAL_BLIND,
        "current",
        "step 'compute' is journalled but has no statement; a journal takes only statements",
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
        "no open work at that point",
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
        flow(Input(name="orders", retries=2)),
        Refusal.RETRIES,
        "orders",
        "a rollback puts it back",
        marks=req("IBM-56"),
    ),
    pytest.param(
        flow(ballots=(Ballot(name="a", voters=("b",)),) * 2),
        Refusal.TWICE,
        "a",
        "two ballots of the flow have this name",
    ),
    pytest.param(flow(step("a"), step("a")), Refusal.TWICE, "a", "two steps of the flow have this name"),
    pytest.param(flow(step("a", "there")), Refusal.UNKNOWN, "a", "resource 'there', which is not declared; declare it"),
]
