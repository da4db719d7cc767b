"""`txsaga db rights`, `grant` and `revoke` through the entry point, and what commands say to who lacks a right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import txsaga
from tests.cli.conftest import Cli
from tests.contracts.samples import park
from tests.store.logins import Logins, logins
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


@pytest.fixture
def made(home_url: str) -> Iterator[Logins]:
    open_store(home_url).close()
    with logins(home_url) as made:
        yield made


def test_rights_are_granted_shown_and_taken_back(bare: Cli, made: Logins) -> None:
    anna, url = made.new(), made.url
    assert bare("db", "rights", "--json", "--url", url).documents == []
    with txsaga.connect(url, roles=False, env={}) as owner:
        owner.create_topic("news")
        owner.producer("daily")
    said = bare("db", "grant", "producer", "--to", anna, "--group", "daily", "--url", url)
    assert (said.code, said.out) == (0, f"done in namespace {made.namespace}; see `txsaga db rights`\n")
    group = f"{made.namespace}_producer"
    assert bare("db", "rights", "--json", "--url", url).documents == [
        {"role": anna, "right": "producer", "through": group, "groups": ["daily"]},
        {"role": group, "right": "producer", "through": None, "groups": []},
    ]
    shown = bare("db", "rights", "--url", url).lines
    assert [line.split() for line in shown] == [
        ["role", "right", "through", "producer", "groups"],
        [anna, "producer", group, "daily"],
        [group, "producer", "-"],
    ]
    assert bare("send", "news", "hello", "--group", "daily", "--url", made.url_of(anna)).code == 0
    assert bare("db", "revoke", "producer", "--from", anna, "--json", "--url", url).document["done"] is True
    said = bare("send", "news", "hello", "--group", "daily", "--url", made.url_of(anna))
    assert (said.code, said.out) == (7, "")
    assert "`txsaga db grant`" in said.complaint


def test_the_sql_is_printed_for_somebody_else_to_run(bare: Cli, made: Logins) -> None:
    anna = made.new()
    said = bare("db", "grant", "consumer", "--to", anna, "--print", "--url", made.url)
    assert said.lines[0] == f'CREATE ROLE "{made.namespace}_consumer" NOLOGIN;'
    assert bare("db", "rights", "--json", "--url", made.url).documents == []
    for line in said.lines:
        made.run(line)
    assert bare("tail", "news", "--from", "earliest", "--url", made.url_of(anna)).code != 7
    assert {holder["role"] for holder in bare("db", "rights", "--json", "--url", made.url).documents} >= {anna}


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["grant", "consumer", "--to", "{anna}", "--group", "x"], 2, "only the right producer takes producer groups"),
        (["grant", "producer", "--to", "{anna}", "--group", "x"], 3, "producer group 'x' is not registered yet"),
        (["grant", "king", "--to", "{anna}"], 2, "'king'"),
        (["grant", "producer", "--to", "no_such_role"], 3, "create it first: CREATE ROLE no_such_role LOGIN"),
        (["revoke", "engine", "--from", "{anna}"], 3, "has no engine right here"),
    ],
)
def test_mistakes_are_told_in_one_line(bare: Cli, made: Logins, words: list[str], code: int, complaint: str) -> None:
    anna = made.new(Right.PRODUCER)
    said = bare("db", *(word.format(anna=anna) for word in words), "--url", made.url)
    assert (said.code, said.out) == (code, "")
    assert complaint in said.complaint


def test_only_the_owner_changes_rights(bare: Cli, made: Logins) -> None:
    anna = made.new(*Right)
    said = bare("db", "grant", "operator", "--to", anna, "--url", made.url_of(anna))
    assert (said.code, said.out) == (7, "")
    assert "connect as its owner" in said.complaint
    assert bare("db", "rights", "--url", made.url_of(anna)).code == 0


def test_an_engine_without_its_right_leaves_at_once_and_says_what_helps(bare: Cli, made: Logins) -> None:
    for once in ([], ["--once"]):
        said = bare("engine", *once, "--url", made.url_with(Right.OPERATOR))
        assert (said.code, said.out) == (7, "")
        assert "txsaga db grant engine --to" in said.err


def test_an_engine_with_its_right_runs_each_role(bare: Cli, made: Logins) -> None:
    said = bare("engine", "--once", "--json", "--url", made.url_with(Right.ENGINE))
    assert (said.code, said.err) == (0, "")
    assert set(said.document) == {"dispatcher", "scheduler", "check-back", "recovery", "partitions", "budgets"}


def test_an_operator_sees_status_and_decides_by_hand(bare: Cli, made: Logins) -> None:
    operator, producer = made.url_with(Right.OPERATOR), made.url_with(Right.PRODUCER)
    assert bare("topic", "create", "orders", "--type", "transaction", "--url", operator).code == 0
    with txsaga.connect(producer, roles=False, env={}) as broker:
        receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
    assert bare("status", "--url", operator).code == 0
    for command in (["list", "--undecided"], ["show", str(receipt.txid)]):
        assert bare("tx", *command, "--url", operator).code == 0
    said = bare("tx", "commit", str(receipt.txid), "--reason", "seen on paper", "--url", operator)
    assert (said.code, said.err) == (0, "")
    assert bare("db", "rights", "--url", operator).code == 0


def test_an_operator_sees_what_is_in_doubt_and_resumes_it(bare: Cli, made: Logins) -> None:
    operator = made.url_with(Right.OPERATOR)
    with txsaga.connect(made.url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction", queues=1)
        receipt = broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
        park(broker.kernel.store, receipt.txid, "out of checks")
    for command in (
        ["tx", "pending", "--parked"],
        ["tx", "show", str(receipt.txid)],
        ["tx", "resume", str(receipt.txid), "--reason", "the shop is back"],
        ["producer", "list"],
        ["producer", "alter", "shop", "--max-checks", "3"],
    ):
        said = bare(*command, "--url", operator)
        assert (said.code, said.err) == (0, ""), command
    assert bare("tx", "pending", "--parked", "--json", "--url", operator).documents == []
