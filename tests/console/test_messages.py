"""`/api/v1/messages`: what programs send, decide and receive over HTTP is the same as by Python."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import NullPool, create_engine

import txsaga
from tests.console.conftest import Enter
from tests.console.listening import listening
from tests.scene.shop import Shop
from tests.scene.stored import Stored
from tests.services.absent import ci_or_skip
from tests.store.logins import logins
from txsaga.console.access import OwnGuard
from txsaga.console.app import LARGEST, create_app
from txsaga.console.home import Home
from txsaga.console.people import Credential, Rank
from txsaga.consume.dead_letter import CAUSE
from txsaga.core.message import MAX_BODY
from txsaga.core.topic import HALF_TOPIC
from txsaga.store.connection import parse_url
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rest-messages.md"
PROGRAMS = Path(__file__).parent / "programs"
KEY = "till.a-key"
HALF = {"messages": [{"topic": "orders", "text": "a chair"}]}


class Api:
    """The messages of one console, as a program with a key calls them."""

    def __init__(self, address: str, client: httpx.Client) -> None:
        self.address, self.client = address, client

    def asked(self, name: str, **fields: Any) -> httpx.Response:
        """Send a request."""
        return self.client.post(f"/api/v1/messages{name}", json=fields)

    def __call__(self, name: str, **fields: Any) -> Any:
        """Send a request that is not refused; return its answer."""
        answer = self.asked(name, **fields)
        assert answer.is_success, answer.text
        return answer.json()

    def receive(self, topic: str = "orders", **fields: Any) -> list[Any]:
        """Receive messages for a group."""
        found: list[Any] = self("/receive", topic=topic, group="packing", **fields)["messages"]
        return found


@pytest.fixture
def open_api(home_url: str, shop: Shop) -> Iterator[Callable[[], Api]]:
    """Give a way to start consoles of one store, each with a broker of its own."""
    guard = OwnGuard(accounts={"till": Credential.made("till", Rank.CLIENT, "a-key", key=True)})
    engine = create_engine(parse_url(home_url)[0], poolclass=NullPool)
    with ExitStack() as opened:

        def open_api() -> Api:
            home = Home(lambda: txsaga.connect(home_url, resources={"bank": engine}, roles=False, env={}), env={})
            address = opened.enter_context(listening(create_app(home, guard)))
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
            return Api(address, opened.enter_context(httpx.Client(base_url=address, headers=headers, timeout=40)))

        yield open_api
    engine.dispose()


@pytest.fixture
def api(open_api: Callable[[], Api]) -> Api:
    return open_api()


def test_a_transaction_is_committed_by_another_console(shop: Shop, api: Api, open_api: Callable[[], Api]) -> None:
    id = api("/prepare", **HALF)["transaction"]
    assert shop.read() == []
    for _ in range(2):
        assert open_api()("/commit", transaction=id) == {"decision": "COMMIT"}
    assert [each.text() for each in shop.read()] == ["a chair"]


def test_messages_of_one_transaction_share_its_decision(shop: Shop, api: Api) -> None:
    two = [{"topic": "orders", "text": "a chair", "key": "1"}, {"topic": "orders", "text": "a table", "key": "2"}]
    first, second = (api("/prepare", messages=two, group="till")["transaction"] for _ in range(2))
    assert api("/rollback", transaction=first) == {"decision": "ROLLBACK"}
    assert api("/commit", transaction=second) == {"decision": "COMMIT"}
    assert sorted(each.text() for each in shop.read()) == ["a chair", "a table"]


@pytest.mark.req("RMQ-16")
def test_it_is_the_same_row_as_one_of_python(shop: Shop, api: Api, stored: Stored) -> None:
    api("/prepare", **HALF, group="shop", immunity=60)
    shop.producer().prepare_now("orders", text="a chair", immunity=60)
    columns = "pgroup, part, attempt, chunk, n, evidence, immunity, keyed, body"
    one, other = stored.rows(f"SELECT {columns} FROM half ORDER BY txid")
    assert one == other
    assert {(each.topic, each.queue, each.flag) for each in map(shop.view, shop.pending())} == {(HALF_TOPIC, 0, "NOT")}
    views = [shop.transaction(txid) for txid in shop.pending()]
    assert [(each.state, each.group) for each in views] == [(views[0].state, "shop")] * 2


def test_a_member_of_its_group_is_asked_about_it(shop: Shop, api: Api) -> None:
    api("/prepare", **HALF, group="shop")
    asked: list[bytes] = []

    def answer(question: txsaga.Question) -> txsaga.LocalState:
        asked.append(question.messages[0].body)
        return txsaga.COMMIT

    shop.producer(checker=answer)
    shop.check()
    assert (asked, shop.bodies()) == ([b"a chair"], ["a chair"])


def test_an_operator_settles_it(shop: Shop, api: Api, enter: Enter) -> None:
    id = api("/prepare", **HALF)["transaction"]
    said = {"id": id.partition(".")[0], "reason": "the till is gone"}
    assert enter(Rank.OPERATOR).post("/api/v1/acts/rollback", json=said).json()["told"].endswith("ROLLBACK")
    refused = api.asked("/commit", transaction=id)
    assert (refused.status_code, refused.json()["error"].endswith("already decided: ROLLBACK")) == (409, True)


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_joins_the_transaction_of_another_program(shop: Shop, api: Api, commits: bool) -> None:
    joins = {"x-txsaga-transaction": ""}
    with suppress(LookupError), shop.producer().transaction() as tx:
        joins["x-txsaga-transaction"] = tx.token()
        sent = {"topic": "orders", "text": "a chair"}
        answer = api.client.post("/api/v1/messages", json=sent, headers=joins)
        assert (answer.status_code, answer.json()) == (
            201,
            {"transaction": shop.broker.identity.transaction(tx.txid or 0)},
        )
        assert shop.read() == []
        if not commits:
            raise LookupError
    assert [each.text() for each in shop.read()] == ["a chair"] * commits
    late = api.client.post("/api/v1/messages", json=sent, headers=joins)
    assert (late.status_code, "already decided" in late.json()["error"]) == (409, True)


class TestEvidence:
    def test_the_database_transaction_that_joined_it_decides(self, shop: Shop, api: Api, stored: Stored) -> None:
        id = api("/prepare", **HALF, evidence="bank")["transaction"]
        early = api.asked("/commit", transaction=id)
        assert (early.status_code, "there is no evidence row" in early.json()["error"]) == (409, True)
        stored.rows(f'SELECT "{stored.namespace}".join(:id)', id=id)
        late = api.asked("/rollback", transaction=id)
        assert (late.status_code, late.json()["error"].endswith("already decided: COMMIT")) == (409, True)
        assert api("/commit", transaction=id) == {"decision": "COMMIT"}
        assert [each.text() for each in shop.read()] == ["a chair"]

    def test_a_rollback_keeps_later_work_out(self, shop: Shop, api: Api, stored: Stored) -> None:
        id = api("/prepare", **HALF, evidence="bank")["transaction"]
        assert api("/rollback", transaction=id) == {"decision": "ROLLBACK"}
        with pytest.raises(Exception, match="already decided: ROLLBACK"):
            stored.rows(f'SELECT "{stored.namespace}".join(:id)', id=id)
        assert api.asked("/commit", transaction=id).status_code == 409


BODIES = [{"text": "blå"}, {"json": {"a": [1, None]}}, {"json": None}, {"base64": base64.b64encode(b"\0\xff").decode()}]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_a_body_comes_as_it_was_sent(shop: Shop, api: Api, body: dict[str, object]) -> None:
    api("", topic="news", key="k", tag="t", headers={"a": "b"}, **body)
    shop.deliver()
    (found,) = api.receive("news")
    expected = {"text": json.dumps(body["json"], separators=(",", ":"))} if "json" in body else body
    assert expected.items() <= found.items()
    assert (found["key"], found["tag"], found["headers"], found["attempts"]) == ("k", "t", {"a": "b"}, 1)


class TestReceiving:
    def test_another_console_acknowledges(self, shop: Shop, api: Api, open_api: Callable[[], Api]) -> None:
        for at in range(3):
            api("", topic="news", text=str(at))
        shop.deliver()
        found = api.receive("news", count=3)
        other = open_api()
        for each in found:
            other("/ack", group="packing", receipt=each["receipt"])
        assert [each["text"] for each in found] == ["0", "1", "2"]
        again = other.asked("/ack", group="packing", receipt=found[0]["receipt"])
        assert (again.status_code, "done already, or it ran out" in again.json()["error"]) == (409, True)
        assert other.receive("news") == []

    def test_a_message_is_put_back_held_and_given_up(self, shop: Shop, api: Api, open_api: Callable[[], Api]) -> None:
        api("", topic="news", text="x")
        shop.deliver()
        (first,) = api.receive("news")
        open_api()("/extend", group="packing", receipt=first["receipt"], seconds=0)
        (second,) = api.receive("news", wait=5)
        held = api("/extend", group="packing", receipt=second["receipt"], seconds=60)["receipt"]
        assert (second["attempts"], held != second["receipt"]) == (2, True)
        api("/bury", group="packing", receipt=held, topic="news", reason="torn")
        (letter,) = shop.broker.dead_letters.list()
        assert (letter.group, letter.cause) == ("packing", "torn")

    def test_a_request_waits_for_a_message(self, shop: Shop, api: Api) -> None:
        assert api.receive("news") == []
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(api.receive, "news", wait=20)
            shop.producer().send("news", b"late")
            while not waiting.done():
                shop.deliver()
        assert [each["text"] for each in waiting.result()] == ["late"]

    @pytest.mark.parametrize("wish", [{"tag": "red"}, {"filter": "TAGS = 'red' AND size > 3"}])
    def test_a_group_gets_what_it_wants(self, shop: Shop, api: Api, wish: dict[str, str]) -> None:
        for tag, size in (("red", "4"), ("blue", "9")):
            api("", topic="news", text=tag, tag=tag, headers={"size": size})
        shop.deliver()
        assert [each["text"] for each in api.receive("news", count=9, **wish)] == ["red"]

    def test_members_with_other_filters_are_others(self, shop: Shop, api: Api) -> None:
        assert api.receive("news") == []
        api("", topic="news", text="x")
        shop.deliver()
        assert api.receive("news", filter="None") == []  # a header of this name

    def test_a_reason_is_kept_as_a_text(self, shop: Shop, api: Api) -> None:
        api("", topic="news", text="x")
        shop.deliver()
        (found,) = api.receive("news")
        said = {"group": "packing", "receipt": found["receipt"], "topic": "news", "reason": "\ud800\0" + "x" * 100_000}
        assert api.client.post("/api/v1/messages/bury", content=json.dumps(said)).status_code == 200
        (letter,) = shop.broker.dead_letters.list()
        assert (letter.cause[:3], len(letter.cause)) == ("?\ufffdx", CAUSE)


ENDS: dict[str, dict[str, Any]] = {"/ack": {}, "/extend": {"seconds": 1}, "/bury": {"topic": "news", "reason": "x"}}
WRONG: dict[str, tuple[int, str, str, dict[str, Any]]] = {
    "unknown topic": (404, "topic 'nothing' does not exist", "", {"topic": "nothing", "text": "x"}),
    "unknown topic of a half": (404, "'nothing' does not exist", "/prepare",
                                {"messages": [*HALF["messages"], {"topic": "nothing", "text": "x"}]}),
    "unknown topic to read": (404, "'nothing' does not exist", "/receive", {"topic": "nothing"}),
    "type": (422, "is of type transaction", "", {"topic": "orders", "text": "x"}),
    "type of a half": (422, "is of type normal", "/prepare", {"messages": [{"topic": "news", "text": "x"}]}),
    "no body": (422, "give text, json or base64", "", {"topic": "news"}),
    "two bodies": (422, "give text, json or base64", "", {"topic": "news", "text": "x", "json": 1}),
    "no base64": (422, "is not base64", "", {"topic": "news", "base64": "x"}),
    "half a letter": (422, "can't be stored as UTF-8", "", {"topic": "news", "text": "\ud800"}),
    "too large": (413, f"at most {MAX_BODY} are stored", "", {"topic": "news", "text": "x" * (MAX_BODY + 1)}),
    "no messages": (422, "without messages", "/prepare", {"messages": []}),
    "another field": (400, "colour", "", {"topic": "news", "text": "x", "colour": "red"}),
    "no topic": (400, "topic", "", {"text": "x"}),
    "a delay": (422, "are for a plain send to one of type delay", "", {"topic": "news", "text": "x", "delay": 5}),
    "group": (422, "may hold letters", "", {"topic": "news", "text": "x", "group": "a b"}),
    "system group": (400, "system name", "", {"topic": "news", "text": "x", "group": "rmq_sys_x"}),
    "evidence": (400, "resource 'shed' is not registered", "/prepare", {**HALF, "evidence": "shed"}),
    "immunity": (422, "immunity", "/prepare", {**HALF, "immunity": -1}),
    "no transaction": (404, "is no transaction id", "/commit", {"transaction": "x"}),
    "another transaction": (404, "belongs to another store", "/rollback", {"transaction": f"{'0' * 32}-1-1.1.ff"}),
    "no receipt": (409, "is no receipt handle", "/ack", {"receipt": "x"}),
    "count": (400, "give a count from 1 to 60", "/receive", {"topic": "news", "count": 61}),
    "wait": (400, "a wait from 0 to 30 seconds", "/receive", {"topic": "news", "wait": 31}),
    "invisible": (400, "invisible is 0.0", "/receive", {"topic": "news", "invisible": 0}),
    "tags": (400, "give one tag", "/receive", {"topic": "news", "tag": "a || b"}),
    "half a letter in a tag": (400, "give one tag", "/receive", {"topic": "news", "tag": "\ud800"}),
    "long tag": (400, "give one tag", "/receive", {"topic": "news", "tag": "a" * 100_000}),
    "tag and filter": (400, "not both", "/receive", {"topic": "news", "tag": "a", "filter": "b = 'c'"}),
    "NaN": (422, "can't be written as JSON", "", {"topic": "news", "json": float("nan")}),
    "null as a body": (422, "give text, json or base64", "", {"topic": "news", "text": "x", "json": None}),
    **{f"{name} for {group!r}": (422, "group name", name, {"receipt": "5.0.1.1.1.1", "group": group, **fields})
       for name, fields in ENDS.items()
       for group in ("\0", "\ud800")},
    "topic that is buried": (422, "topic name", "/bury", {"receipt": "5.0.1.1.1.1", "topic": "\0", "reason": "x"}),
    "filter": (400, "filter 'AND'", "/receive", {"topic": "news", "filter": "AND"}),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line_and_does_nothing(shop: Shop, api: Api, stored: Stored, case: str) -> None:
    status, told, name, fields = WRONG[case]
    answer = api.client.post(f"/api/v1/messages{name}", content=json.dumps(fields))
    assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
    assert "\n" not in answer.json()["error"]
    assert stored.rows("SELECT count(*) FROM half") == [(0,)]


@pytest.mark.parametrize(
    "content",
    [b'{"text":"\xff"}', b'{"json":' + b"[" * 100_000, b'{"json":%s}' % (b"9" * 5000)],
    ids=["not UTF-8", "too deep", "long number"],
)
def test_what_is_no_json_is_refused_in_the_same_way(api: Api, content: bytes) -> None:
    answer = api.client.post("/api/v1/messages", content=content)
    assert (answer.status_code, [*answer.json()]) == (400, ["error"])


@pytest.mark.parametrize("evidence", [None, "bank"])
def test_a_token_that_was_changed_ends_nothing(shop: Shop, api: Api, evidence: str | None) -> None:
    id = api("/prepare", **HALF, evidence=evidence)["transaction"]
    other = f"{id[:-1]}{'0' if id[-1] != '0' else '1'}"
    assert api.asked("/rollback", transaction=other).status_code == 404
    assert len(shop.pending()) == 1


def test_a_request_that_is_too_large_is_not_read(api: Api) -> None:
    answer = api.client.post("/api/v1/messages", content=b"x" * (LARGEST + 1))
    assert (answer.status_code, answer.json()["error"].startswith("the request has more")) == (413, True)
    parts = (part for part in [b"x"] * 3)
    assert api.client.post("/api/v1/messages", content=parts).status_code == 411


def test_a_client_sees_nothing_else_and_no_other_role_sends(shop: Shop, api: Api, enter: Enter) -> None:
    assert api.client.get("/api/v1/transactions").status_code == 403
    assert api.client.get("/api/v1/openapi.json").status_code == 200
    for role in (Rank.VIEWER, Rank.OPERATOR, Rank.ADMIN):
        refused = enter(role).post("/api/v1/messages", json={"topic": "news", "text": "x"})
        assert (refused.status_code, refused.json()["error"]) == (
            403,
            "this needs the role client; ask an administrator",
        )


def ran_while_delivering(shop: Shop, api: Api, command: list[str]) -> str:
    """Run a program that waits for messages; return what it prints."""
    if shutil.which(command[0]) is None:
        ci_or_skip(command[0], "install Node.js, Go and curl")
    env = {**os.environ, "TXSAGA_API": f"{api.address}/api/v1", "TXSAGA_KEY": KEY}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as running:
        while running.poll() is None:
            shop.deliver()
            time.sleep(0.05)
        out, told = running.communicate(timeout=5)
    assert running.returncode == 0, told
    return out


@pytest.mark.timeout(180)
@pytest.mark.parametrize("program", [["node", "pay.mjs"], ["go", "run", "pay.go"]], ids=["node", "go"])
def test_an_example_sends_and_receives(shop: Shop, api: Api, program: list[str]) -> None:
    file = PROGRAMS / program[-1]
    assert len(file.read_text("utf-8").splitlines()) <= 20
    out = ran_while_delivering(shop, api, [*program[:-1], str(file)])
    assert out.split() == (["7", "7"] if program[0] == "node" else ['{"order":7}', "7"])
    assert shop.broker.consumer("packing", ["orders"]).receive() == []


def test_the_page_shows_the_examples_and_its_own_runs(shop: Shop, api: Api) -> None:
    shown = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert {info: body for info, body in shown if info in ("js", "go")} == {
        "js": (PROGRAMS / "pay.mjs").read_text("utf-8"),
        "go": (PROGRAMS / "pay.go").read_text("utf-8"),
    }
    (script,) = (body for info, body in shown if info == "sh" and "curl" in body)
    out = ran_while_delivering(shop, api, ["sh", "-ec", script])
    assert out.startswith('{"decision":"COMMIT"}')
    assert shop.broker.consumer("packing", ["orders"]).receive() == []


def test_a_client_that_has_left_takes_no_message(shop: Shop, api: Api) -> None:
    assert api.receive("news") == []
    with pytest.raises(httpx.ReadTimeout):
        api.client.post("/api/v1/messages/receive", json={"topic": "news", "group": "packing", "wait": 20}, timeout=0.5)
    api("", topic="news", text="x")
    shop.deliver()
    assert [(each["text"], each["attempts"]) for each in api.receive("news", wait=5)] == [("x", 1)]


def test_the_login_of_the_console_sets_the_limit(shop: Shop, home_url: str) -> None:
    guard = OwnGuard(accounts={"till": Credential.made("till", Rank.CLIENT, "a-key", key=True)})
    with logins(home_url) as made:
        home = Home(lambda: txsaga.connect(made.url_with(Right.PRODUCER), roles=False, answering=False, env={}), env={})
        with listening(create_app(home, guard)) as address, httpx.Client(base_url=address) as client:
            client.headers["authorization"] = f"Bearer {KEY}"
            api = Api(address, client)
            id = api("/prepare", **HALF)["transaction"]
            assert api("/commit", transaction=id) == {"decision": "COMMIT"}
            refused = api.asked("/receive", topic="news")
            assert (refused.status_code, "permission denied" in refused.json()["error"]) == (403, True)


def test_the_description_names_every_field(api: Api) -> None:
    described = api.client.get("/api/v1/openapi.json").json()
    paths = [path for path in described["paths"] if path.startswith("/api/v1/messages")]
    assert len(paths) == 8
    refused = described["paths"]["/api/v1/messages/ack"]["post"]["responses"]["409"]["content"]["application/json"]
    assert [*refused["schema"]["properties"]] == ["error"]
    fields = described["components"]["schemas"]["NewMessage"]
    assert {"topic", "text", "json", "base64", "delay"} <= fields["properties"].keys()
    assert (fields["required"], fields["additionalProperties"]) == (["topic"], False)
