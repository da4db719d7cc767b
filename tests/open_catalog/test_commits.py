"""A commit of several tables is one decision: whole or absent, once, and in the transaction that it joins."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table

from tests.lake.books import COLUMNS, LEDGER, POSTING, Books, rows
from tests.open_catalog.asking import SCHEMA, VIEW, change, committed, created, loaded, property_of, refused
from tests.open_catalog.conftest import Serve
from txsaga import Folder, errors
from txsaga.catalog.access import Clients
from txsaga.catalog.routes import TOKEN
from txsaga.iceberg.appends import ON_TOP
from txsaga.messages.decide import Decider
from txsaga.messages.tx_records import TxRecords

pytestmark = pytest.mark.postgres
STALE = {"type": "assert-table-uuid", "uuid": str(uuid4())}


def arrow(table: Table, *ids: int) -> pa.Table:
    """Lay out entries as PyIceberg takes them."""
    return rows(*ids).cast(table.schema().as_arrow())


def append_only(books: Books, **properties: str) -> None:
    """Create a table whose appends are put on top of what is newer."""
    with books.producer.transaction() as tx:
        tx.table(LEDGER).create(COLUMNS, properties={ON_TOP: "true", **properties})


def joined(rest: httpx.Client, token: str) -> RestCatalog:
    """Return the catalog as a client sees it in a transaction."""
    return RestCatalog("home", uri=str(rest.base_url), **{f"header.{TOKEN}": token})


def test_several_tables_are_committed_together(rest: httpx.Client) -> None:
    created(rest, "a", "b", "c")
    assert committed(rest, *(change(name, n="1") for name in "abc")).status_code == 204
    assert [property_of(rest, name) for name in "abc"] == ["1", "1", "1"]


def test_what_a_client_that_left_has_sent_joins_as_a_whole(rest: httpx.Client, books: Books) -> None:
    created(rest, "a", "b")
    store, changes = books.broker.kernel.store, [change(name, n="1") for name in "ab"]
    with books.producer.transaction() as tx:
        token = tx.token()
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f'SELECT FROM "{store.namespace}".tx WHERE txid = {tx.txid} FOR UPDATE')
            with pytest.raises(httpx.ReadTimeout):
                rest.post("/v1/transactions/commit", json={"table-changes": changes}, headers={TOKEN: token}, timeout=3)
        deadline = time.monotonic() + 20
        while property_of(rest, "a", token=token) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [property_of(rest, name, token=token) for name in "ab"] == ["1", "1"]
        assert property_of(rest, "a") is None
    assert [property_of(rest, name) for name in "ab"] == ["1", "1"]


@pytest.mark.parametrize("at", range(3))
def test_a_table_that_is_not_as_required_keeps_the_others_from_changing(rest: httpx.Client, at: int) -> None:
    created(rest, "a", "b", "c")
    changes = [change(name, *([STALE] if at == number else []), n="1") for number, name in enumerate("abc")]
    assert refused(committed(rest, *changes)) == (409, "CommitFailedException")
    assert [property_of(rest, name) for name in "abc"] == [None, None, None]


def test_what_makes_no_sense_is_refused_whole(rest: httpx.Client) -> None:
    created(rest, "a")
    assert refused(committed(rest, change("a", n="1"), change("nothing", n="1"))) == (404, "NoSuchTableException")
    assert refused(committed(rest, change("a", n="1"), change("a", n="2"))) == (400, "BadRequestException")
    assert refused(committed(rest)) == (400, "BadRequestException")
    wrong = {**change("a"), "updates": [{"action": "set-current-schema", "schema-id": 7}]}
    assert refused(committed(rest, wrong)) == (400, "IllegalArgumentException")
    assert property_of(rest, "a") is None


def test_null_is_as_good_as_no_field(rest: httpx.Client) -> None:
    assert rest.post("/v1/namespaces", json={"namespace": ["bank"], "properties": None}).status_code == 200
    new = {"name": "a", "schema": SCHEMA, "stage-create": None, "properties": None, "location": None}
    assert rest.post("/v1/namespaces/bank/tables", json=new).status_code == 200
    changes = {"removals": None, "updates": {"a": "b"}}
    assert rest.post("/v1/namespaces/bank/properties", json=changes).json()["updated"] == ["a"]
    assert refused(rest.post("/v1/namespaces", json={"namespace": None})) == (400, "BadRequestException")


def test_a_table_is_created_and_another_one_changed_in_one_commit(rest: httpx.Client) -> None:
    created(rest, "a", "model")
    first = rest.post(
        "/v1/namespaces/bank/tables",
        json={"name": "b", "schema": loaded(rest, "a")["schemas"][0], "stage-create": True},
    ).json()["metadata"]
    making = {
        "identifier": {"namespace": ["bank"], "name": "b"},
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": first["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": first["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": first["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": first["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": first["location"]},
        ],
    }
    assert refused(committed(rest, making, change("a", STALE, n="1"))) == (409, "CommitFailedException")
    assert rest.head("/v1/namespaces/bank/tables/b").status_code == 404
    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda n: committed(rest, making, change("a", n=str(n))).status_code, range(4)))
    assert sorted(answers) == [204, 409, 409, 409]
    assert property_of(rest, "a") == str(answers.index(204))
    assert loaded(rest, "b")["table-uuid"] == first["table-uuid"]


def test_commits_in_opposite_orders_do_not_wait_for_each_other(rest: httpx.Client) -> None:
    created(rest, "a", "b")

    def commits(number: int) -> None:
        names = "ab" if number % 2 else "ba"
        for _ in range(5):
            answer = committed(rest, *(change(name, **{f"n{number}": "1"}) for name in names))
            assert answer.status_code == 204, answer.text

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(commits, range(4)))
    assert all(property_of(rest, name, f"n{number}") == "1" for name in "ab" for number in range(4))


def test_one_of_many_with_the_same_base_wins(rest: httpx.Client) -> None:
    created(rest, "a", "b")
    base = {"type": "assert-current-schema-id", "current-schema-id": 0}

    def evolve(number: int) -> int:
        field = {"id": 2, "name": f"c{number}", "type": "int", "required": False}
        schema = {**loaded(rest, "a")["schemas"][0], "schema-id": 1}
        updates = [
            {"action": "add-schema", "schema": {**schema, "fields": [*schema["fields"], field]}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        return committed(rest, {**change("a", base), "updates": updates}, change("b", n=str(number))).status_code

    with ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(evolve, range(4)))
    assert sorted(answers) == [204, 409, 409, 409]
    assert property_of(rest, "b") == str(answers.index(204))


@pytest.mark.parametrize("lone", [True, False])
def test_a_repeated_request_is_answered_again_and_done_once(rest: httpx.Client, lone: bool) -> None:
    created(rest, "a", "b")
    key = str(uuid4())

    def again(**properties: str) -> httpx.Response:
        if not lone:
            return committed(rest, change("a", **properties), change("b", **properties), key=key)
        body = {key: value for key, value in change("a", **properties).items() if key != "identifier"}
        return rest.post("/v1/namespaces/bank/tables/a", json=body, headers={"idempotency-key": key})

    first = again(n="1")
    assert first.is_success
    assert committed(rest, change("a", n="2")).status_code == 204
    assert again(n="1").status_code == first.status_code
    assert property_of(rest, "a") == "2"
    assert refused(again(n="3")) == (422, "UnprocessableEntityException")
    assert property_of(rest, "a") == "2"


def test_a_drop_that_is_repeated_leaves_the_table_that_was_created_since(rest: httpx.Client) -> None:
    created(rest, "a")
    path, headers = "/v1/namespaces/bank/tables/a", {"idempotency-key": "k"}
    assert rest.delete(path, headers=headers).status_code == 204
    created(rest, "a")
    assert rest.delete(path, headers=headers).status_code == 204
    assert rest.head(path).status_code == 204


def test_a_table_that_was_created_is_not_created_again_under_its_key(rest: httpx.Client) -> None:
    created(rest)
    body = {"name": "a", "schema": {"type": "struct", "fields": []}}
    asked = [rest.post("/v1/namespaces/bank/tables", json=body, headers={"idempotency-key": "k"}) for _ in range(2)]
    assert [each.status_code for each in asked] == [200, 200]
    assert len({each.json()["metadata"]["table-uuid"] for each in asked}) == 1


def once(name: str) -> dict[str, Any]:
    """Return a change that can't be applied twice."""
    field = {"id": 2, "name": "more", "type": "int", "required": False}
    added = {"action": "add-schema", "schema": {**SCHEMA, "fields": [*SCHEMA["fields"], field]}}
    require = {"type": "assert-current-schema-id", "current-schema-id": 0}
    chosen = {"action": "set-current-schema", "schema-id": -1}
    return {**change(name, require), "updates": [added, chosen]}


def test_a_request_is_not_refused_for_what_it_has_done_itself(
    rest: httpx.Client, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(rest, "a", "b")
    elsewhere = serve(Clients())
    asked, enter, earlier = (once("a"), once("b")), TxRecords.enter, []

    def overtaken(records: TxRecords, *values: Any, **options: Any) -> Any:
        monkeypatch.undo()
        earlier.append(committed(elsewhere, *asked, key="k").status_code)
        return enter(records, *values, **options)

    monkeypatch.setattr(TxRecords, "enter", overtaken)
    assert committed(rest, *asked, key="k").status_code == 204
    assert earlier == [204]
    assert len(loaded(rest, "a")["schemas"]) == len(loaded(rest, "b")["schemas"]) == 2


def test_a_request_that_a_repeated_one_overtakes_is_answered_as_that_one(
    rest: httpx.Client, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(rest, "a", "b")
    elsewhere = serve(Clients())
    asked, decide, repeated = (once("a"), once("b")), Decider.decide, []

    def overtaken(decider: Decider, *values: Any, **options: Any) -> Any:
        monkeypatch.undo()
        repeated.append(committed(elsewhere, *asked, key="k").status_code)
        return decide(decider, *values, **options)

    monkeypatch.setattr(Decider, "decide", overtaken)
    assert committed(rest, *asked, key="k").status_code == 204
    assert repeated == [204]
    assert len(loaded(rest, "a")["schemas"]) == len(loaded(rest, "b")["schemas"]) == 2


def test_a_new_table_keeps_its_metadata_when_the_answer_of_its_decision_is_lost(
    rest: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Decider.decide

    def silent(*values: Any, **options: Any) -> None:
        decide(*values, **options)
        raise errors.OutcomeUnknown("the connection broke")

    created(rest)
    monkeypatch.setattr(Decider, "decide", silent)
    answer = rest.post("/v1/namespaces/bank/tables", json={"name": "a", "schema": SCHEMA})
    assert refused(answer) == (500, "CommitStateUnknownException")
    assert loaded(rest, "a")["format-version"] == 2


class TestJoined:
    """Commits in the transaction of a token."""

    def test_commits_become_visible_with_the_messages_and_rows_of_their_transaction(
        self, rest: httpx.Client, books: Books
    ) -> None:
        created(rest, "a", "b")
        books.create(LEDGER)
        with books.producer.transaction() as tx:
            tx.send("posted", b"1")
            tx.table(LEDGER).append(rows(1))
            answer = committed(rest, change("a", n="1"), change("b", n="1"), token=tx.token())
            assert answer.status_code == 204, answer.text
            assert (property_of(rest, "a"), property_of(rest, "b"), books.ids()) == (None, None, [])
        assert (property_of(rest, "a"), property_of(rest, "b"), books.ids()) == ("1", "1", [1])

    def test_nothing_of_a_transaction_that_rolls_back_is_ever_visible(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
            token = tx.token()
            assert committed(rest, change("a", n="1"), token=token).status_code == 204
            raise ZeroDivisionError
        assert property_of(rest, "a") is None
        assert refused(committed(rest, change("a", n="2"), token=token)) == (400, "BadRequestException")

    def test_a_transaction_sees_what_it_has_changed(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        with books.producer.transaction() as tx:
            token = tx.token()
            assert committed(rest, change("a", n="1"), token=token).status_code == 204
            seen = rest.get("/v1/namespaces/bank/tables/a", headers={TOKEN: token}).json()
            assert seen["metadata"]["properties"]["n"] == "1"
            assert seen["metadata-location"] != rest.get("/v1/namespaces/bank/tables/a").json()["metadata-location"]
            assert committed(rest, change("a", m="2"), token=token).status_code == 204
            assert property_of(rest, "a", "m", token=token) == "2"
            created_in = rest.post(
                "/v1/namespaces/bank/tables",
                json={"name": "new", "schema": loaded(rest, "a")["schemas"][0]},
                headers={TOKEN: token},
            )
            assert created_in.status_code == 200, created_in.text
            assert committed(rest, change("new", n="3"), token=token).status_code == 204
            assert property_of(rest, "new", token=token) == "3"
            assert rest.head("/v1/namespaces/bank/tables/new").status_code == 404
        assert [property_of(rest, *each) for each in (("a",), ("a", "m"), ("new",))] == ["1", "2", "3"]

    def test_a_repeated_request_is_staged_once(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a", "b")
        with books.producer.transaction() as tx:
            token = tx.token()
            for _ in range(2):
                assert committed(rest, once("a"), once("b"), token=token, key="k").status_code == 204
            assert refused(committed(rest, change("a", n="1"), token=token, key="k"))[0] == 422
            assert refused(committed(rest, once("a"), token=token, key="other"))[0] == 409
        assert len(loaded(rest, "a")["schemas"]) == len(loaded(rest, "b")["schemas"]) == 2

    def test_a_table_that_changed_meanwhile_rolls_the_transaction_back(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a", "b")
        uuid = loaded(rest, "a")["table-uuid"]
        with pytest.raises(errors.TableMoved), books.producer.transaction() as tx:
            tx.send("posted", b"1")
            same = {"type": "assert-table-uuid", "uuid": uuid}
            assert committed(rest, change("a", same, n="1"), change("b", n="1"), token=tx.token()).status_code == 204
            rest.delete("/v1/namespaces/bank/tables/a")
            created(rest, "a")
        assert (property_of(rest, "a"), property_of(rest, "b")) == (None, None)

    def test_a_block_over_several_resources_can_be_joined(
        self, rest: httpx.Client, books: Books, tmp_path: Path
    ) -> None:
        created(rest, "a")
        (tmp_path / "reports").mkdir()
        books.broker.enlist("reports", Folder(tmp_path / "reports"))
        with books.producer.coordinated("reports") as tx:
            assert committed(rest, change("a", n="1"), token=tx.token()).status_code == 204
            assert property_of(rest, "a") is None
        assert property_of(rest, "a") == "1"

    def test_only_what_the_last_attempt_of_a_step_committed_counts(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a", "b")
        flow = books.producer.begin_flow(key="monday")
        with pytest.raises(ZeroDivisionError), flow.step("post"):
            abandoned = flow.token()
            assert committed(rest, change("a", n="1"), token=abandoned).status_code == 204
            raise ZeroDivisionError
        assert refused(committed(rest, change("a", n="1"), token=abandoned)) == (400, "BadRequestException")
        with flow.step("post"):
            token = flow.token()
            assert committed(rest, change("b", n="2"), token=token).status_code == 204
        assert refused(committed(rest, change("a", n="1"), token=token)) == (400, "BadRequestException")
        assert property_of(rest, "b") is None
        flow.end()
        assert (property_of(rest, "a"), property_of(rest, "b")) == (None, "2")

    def test_appends_on_each_other_keep_what_was_published_meanwhile(self, rest: httpx.Client, books: Books) -> None:
        append_only(books)
        books.append(1)
        with books.producer.transaction() as tx:
            table = joined(rest, tx.token()).load_table(LEDGER)
            table.append(arrow(table, 2))
            books.append(3)
            table.append(arrow(table, 4))
            again = joined(rest, tx.token()).load_table(LEDGER)
            again.append(arrow(again, 5))
            assert books.ids() == [1, 3]
        assert books.ids() == [1, 2, 3, 4, 5]
        newest = books.table().current_snapshot()
        assert newest is not None and newest.summary is not None
        assert newest.summary["total-records"] == "5"

    def test_an_overwrite_on_an_append_is_refused_if_another_one_was_published(
        self, rest: httpx.Client, books: Books
    ) -> None:
        books.create(LEDGER)
        books.append(1)
        with pytest.raises(errors.TableMoved), books.producer.transaction() as tx:
            table = joined(rest, tx.token()).load_table(LEDGER)
            table.append(arrow(table, 2))
            table.overwrite(arrow(table, 4))
            books.append(3)
        assert books.ids() == [1, 3]

    def test_a_token_is_good_for_what_it_was_made_for(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        flow = books.producer.begin_flow(key="monday")
        with flow.step("post"):
            *head, owner, part, attempt, step = flow.token().split(".")
        for numbers in ((owner, part, attempt, "0"), (owner, "1", owner, "0"), (owner, part, attempt, step)):
            wrong = ".".join([*head, *numbers])
            assert refused(committed(rest, change("a", n="late"), token=wrong)) == (400, "BadRequestException")
        flow.end()
        assert property_of(rest, "a") is None

    def test_what_acts_at_once_is_refused_in_a_transaction(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        name = {"namespace": ["bank"], "name": "a"}
        renaming = {"source": name, "destination": {**name, "name": "b"}}
        with books.producer.transaction() as tx:
            headers = {TOKEN: tx.token()}
            for method, path, body in (
                ("DELETE", "namespaces/bank/tables/a?purgeRequested=true", None),
                ("POST", "views/rename", renaming),
                ("POST", "namespaces", {"namespace": ["new"]}),
                ("POST", "namespaces/bank/properties", {"updates": {"a": "b"}}),
                ("DELETE", "namespaces/bank/views/a", None),
            ):
                answer = rest.request(method, f"/v1/{path}", json=body, headers=headers)
                assert refused(answer) == (400, "BadRequestException"), path
        assert property_of(rest, "a") is None

    @pytest.mark.parametrize("commits", [True, False])
    def test_a_table_is_dropped_and_another_one_renamed_with_their_transaction(
        self, rest: httpx.Client, books: Books, commits: bool
    ) -> None:
        created(rest, "a", "b")
        uuid = loaded(rest, "b")["table-uuid"]
        b, c = ({"namespace": ["bank"], "name": name} for name in "bc")
        with nullcontext() if commits else pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
            headers = {TOKEN: tx.token()}
            assert rest.delete("/v1/namespaces/bank/tables/a", headers=headers).status_code == 204
            assert refused(rest.delete("/v1/namespaces/bank/tables/a", headers=headers))[0] == 404
            renaming = {"source": b, "destination": c}
            assert rest.post("/v1/tables/rename", json=renaming, headers=headers).status_code == 204
            there = {
                name: rest.head(f"/v1/namespaces/bank/tables/{name}", headers=headers).status_code for name in "abc"
            }
            assert there == {"a": 404, "b": 404, "c": 204}
            assert committed(rest, change("c", n="1"), token=tx.token()).status_code == 204
            assert [rest.head(f"/v1/namespaces/bank/tables/{name}").status_code for name in "abc"] == [204, 204, 404]
            if not commits:
                raise ZeroDivisionError
        there = {name: rest.head(f"/v1/namespaces/bank/tables/{name}").status_code for name in "abc"}
        assert there == ({"a": 404, "b": 404, "c": 204} if commits else {"a": 204, "b": 204, "c": 404})
        found = loaded(rest, "c" if commits else "b")
        assert (found["table-uuid"], found["properties"].get("n")) == (uuid, "1" if commits else None)

    def test_a_table_is_dropped_and_created_again_in_one_transaction(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        uuid = loaded(rest, "a")["table-uuid"]
        with books.producer.transaction() as tx:
            headers = {TOKEN: tx.token()}
            assert rest.delete("/v1/namespaces/bank/tables/a", headers=headers).status_code == 204
            body = {"name": "a", "schema": SCHEMA}
            assert rest.post("/v1/namespaces/bank/tables", json=body, headers=headers).status_code == 200
            assert loaded(rest, "a")["table-uuid"] == uuid
        assert loaded(rest, "a")["table-uuid"] != uuid

    def test_a_table_that_was_created_again_is_not_dropped_for_the_old_one(
        self, rest: httpx.Client, books: Books
    ) -> None:
        created(rest, "a")
        with pytest.raises(errors.TableMoved), books.producer.transaction() as tx:
            rest.delete("/v1/namespaces/bank/tables/a", headers={TOKEN: tx.token()})
            rest.delete("/v1/namespaces/bank/tables/a")
            created(rest, "a")
        assert property_of(rest, "a") is None

    def test_a_table_is_created_once_in_a_transaction(self, rest: httpx.Client, books: Books) -> None:
        created(rest)
        with books.producer.transaction() as tx:
            asked = [
                rest.post(
                    "/v1/namespaces/bank/tables", json={"name": "a", "schema": SCHEMA}, headers={TOKEN: tx.token()}
                )
                for _ in range(2)
            ]
            assert asked[0].status_code == 200
            assert refused(asked[1]) == (409, "AlreadyExistsException")
        assert property_of(rest, "a") is None

    def test_a_view_that_takes_the_name_rolls_the_transaction_back(self, rest: httpx.Client, books: Books) -> None:
        created(rest)
        with pytest.raises(errors.TableMoved, match="as a view"), books.producer.transaction() as tx:
            body = {"name": "seen", "schema": SCHEMA}
            rest.post("/v1/namespaces/bank/tables", json=body, headers={TOKEN: tx.token()})
            assert rest.post("/v1/namespaces/bank/views", json=VIEW).status_code == 200

    def test_what_one_transaction_has_staged_is_not_taken_for_that_of_another(
        self, rest: httpx.Client, books: Books
    ) -> None:
        created(rest, "a")
        tags: list[str] = []
        for number in range(2):
            with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
                committed(rest, change("a", n=str(number)), token=tx.token())
                headers = {TOKEN: tx.token(), "if-none-match": ", ".join(tags)}
                answer = rest.get("/v1/namespaces/bank/tables/a", headers=headers)
                assert answer.json()["metadata"]["properties"]["n"] == str(number)
                tags.append(answer.headers["etag"])
                raise ZeroDivisionError

    def test_a_token_of_another_transaction_opens_nothing(self, rest: httpx.Client, books: Books) -> None:
        created(rest, "a")
        with books.producer.transaction() as tx, books.producer.transaction() as other:
            mine, theirs = tx.token().split("."), other.token().split(".")
            for wrong in (".".join([mine[0], *theirs[1:]]), "nonsense", ".".join([*mine[:2], "9", *mine[3:]])):
                assert refused(committed(rest, change("a", n="1"), token=wrong)) == (400, "BadRequestException")
            assert committed(rest, change("a", n="1"), token=tx.token()).status_code == 204
        assert property_of(rest, "a") == "1"


def test_pyiceberg_reads_and_writes_the_same_tables_on_both_ways(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER, POSTING)
    books.append(1)
    catalog = RestCatalog("home", uri=str(rest.base_url))
    table = catalog.load_table(LEDGER)
    table.append(arrow(table, 2))
    assert books.ids() == [1, 2]
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(3))
        posting = joined(rest, tx.token()).load_table(POSTING)
        posting.append(arrow(posting, 4))
        assert (books.ids(), books.ids(POSTING)) == ([1, 2], [])
    assert (books.ids(), books.ids(POSTING)) == ([1, 2, 3], [4])
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_an_append_on_an_old_snapshot_is_put_on_top_of_the_newest(rest: httpx.Client, books: Books) -> None:
    append_only(books)
    books.append(1)
    catalog = RestCatalog("home", uri=str(rest.base_url))
    stale = catalog.load_table(LEDGER)
    books.append(2)
    sent = []

    def commit(*asked: Any) -> Any:
        sent.append(asked)
        return RestCatalog.commit_table(catalog, *asked)

    catalog.commit_table = commit
    stale.append(arrow(stale, 3))
    assert len(sent) == 1
    assert books.ids() == [1, 2, 3]
    newest = books.table().current_snapshot()
    assert newest is not None and newest.summary is not None and newest.parent_snapshot_id is not None
    assert (newest.summary["total-records"], newest.summary["total-data-files"]) == ("3", "3")
    books.append(4)
    assert books.ids() == [1, 2, 3, 4]


def test_what_looked_for_rows_is_not_put_on_top_though_it_says_that_it_appends(
    rest: httpx.Client, books: Books
) -> None:
    with books.producer.transaction() as tx:  # PyIceberg's own retries would not look again
        tx.table(LEDGER).create(COLUMNS, properties={"commit.retry.num-retries": "0"})
    catalog = RestCatalog("home", uri=str(rest.base_url))
    first, second = (catalog.load_table(LEDGER) for _ in range(2))
    first.upsert(arrow(first, 7), join_cols=["id"])
    with pytest.raises(CommitFailedException):
        second.upsert(arrow(second, 7), join_cols=["id"])
    assert books.ids() == [7]


def test_an_append_that_is_sent_again_much_later_is_refused(rest: httpx.Client, books: Books) -> None:
    append_only(books, **{"txsaga.snapshots.kept": "1"})
    catalog = RestCatalog("home", uri=str(rest.base_url))
    table, sent = catalog.load_table(LEDGER), list[Any]()

    def commit(*asked: Any) -> Any:
        sent.append(asked)
        return RestCatalog.commit_table(catalog, *asked)

    catalog.commit_table = commit
    table.append(arrow(table, 50))
    for number in range(4):
        books.append(number)
    with pytest.raises(CommitFailedException):
        RestCatalog.commit_table(catalog, *sent[0])
    assert books.ids() == [0, 1, 2, 3, 50]


@pytest.mark.parametrize("key", ["txsaga.snapshots.kept", "write.metadata.previous-versions-max"])
def test_a_property_that_is_no_number_breaks_no_table(rest: httpx.Client, books: Books, key: str) -> None:
    books.create(LEDGER)
    asked = {**change("ledger"), "updates": [{"action": "set-properties", "updates": {key: "many"}}]}
    committed(rest, asked)
    books.append(1)
    assert books.ids() == [1]


def test_a_table_that_has_not_changed_is_not_sent_again(rest: httpx.Client) -> None:
    created(rest, "a")
    path = "/v1/namespaces/bank/tables/a"
    tag = rest.get(path).headers["etag"]
    for said in (tag, f"W/{tag}", f'"other", W/{tag}', "*"):  # a proxy that compresses makes a tag weak
        assert rest.get(path, headers={"if-none-match": said}).status_code == 304, said
    assert rest.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_a_table_of_many_snapshots_is_expired_at_once(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    old = books.table().metadata.current_snapshot_id
    books.append(2)
    gone = [{"action": "remove-snapshots", "snapshot-ids": [number]} for number in (old, *range(600))]
    assert committed(rest, {**change("ledger"), "updates": gone}).status_code == 204
    assert old not in [each.snapshot_id for each in books.table().snapshots()]
    assert books.ids() == [1, 2]


def test_a_number_that_json_does_not_have_is_refused(rest: httpx.Client) -> None:
    created(rest)
    schema = {"type": "struct", "fields": [{**SCHEMA["fields"][0], "initial-default": float("nan")}]}
    body = json.dumps({"name": "a", "schema": schema, "properties": {"format-version": "3"}})
    answer = rest.post("/v1/namespaces/bank/tables", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text


def test_an_overwrite_of_an_old_snapshot_is_refused(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    catalog = RestCatalog("home", uri=str(rest.base_url))
    stale = catalog.load_table(LEDGER)
    books.append(2)
    with pytest.raises((CommitFailedException, ValidationException)):
        stale.overwrite(arrow(stale, 3))
    assert books.ids() == [1, 2]


def test_appends_of_many_clients_are_all_there(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    lock = threading.Lock()

    def append(number: int) -> None:
        with lock:
            catalog = RestCatalog("home", uri=str(rest.base_url))
            table = catalog.load_table(LEDGER)
        table.append(arrow(table, number))

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(append, range(8)))
    assert books.ids() == list(range(8))


def test_a_view_is_no_table(rest: httpx.Client, books: Books) -> None:
    created(rest, "a")
    assert rest.post("/v1/namespaces/bank/views", json=VIEW).status_code == 200
    names = [books.lake.name(f"bank.{each}") for each in ("a", "seen")]
    assert list(books.lake.catalog.pointers(names)) == names[:1]
    assert rest.head("/v1/namespaces/bank/tables/seen").status_code == 404


def test_the_log_of_metadata_has_a_limit(rest: httpx.Client) -> None:
    created(rest, "a")
    for number in range(4):
        commits = {"n": str(number), "write.metadata.previous-versions-max": "2"}
        assert committed(rest, change("a", **commits)).status_code == 204
        before = rest.get("/v1/namespaces/bank/tables/a").json()["metadata-location"]
    assert committed(rest, change("a", n="5")).status_code == 204
    log = loaded(rest, "a")["metadata-log"]
    assert len(log) == 2 and log[-1]["metadata-file"] == before


def test_old_metadata_stays_for_cuts_that_read_it(rest: httpx.Client, books: Books) -> None:
    created(rest, "a")
    limits = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    assert committed(rest, change("a", **limits)).status_code == 204
    with books.broker.cut(tables=["bank.a"]) as cut:
        for number in range(3):
            assert committed(rest, change("a", n=str(number))).status_code == 204
    named = {each["metadata-file"] for each in loaded(rest, "a")["metadata-log"]}
    assert cut.tables["bank.a"] not in named
    assert cut.scan("bank.a").to_arrow().num_rows == 0
