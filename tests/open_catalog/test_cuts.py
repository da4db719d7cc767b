"""A cut that is kept: tables of one moment, served as a catalog of their own and kept by every engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.types import StringType

from tests.cli.program import environment, run
from tests.lake.books import LEDGER, POSTING, Books, rows
from tests.open_catalog.asking import SCHEMA, change, committed, created, refused
from tests.open_catalog.guide import shown
from txsaga.catalog.cuts import KeptCuts
from txsaga.errors import ConfigError
from txsaga.messages.transaction import Transaction

pytestmark = pytest.mark.postgres


def ids(catalog: RestCatalog, name: str) -> list[int]:
    """Return the ids in a table."""
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


def write(books: Books, number: int) -> None:
    """Write a row to two tables in one transaction."""
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(number))
        tx.table(POSTING).append(rows(number))


def cut_of(rest: httpx.Client, name: str) -> RestCatalog:
    """Return the catalog of a cut."""
    return RestCatalog(name, uri=str(rest.base_url), warehouse=f"cut-{name}")


@pytest.mark.rule("R7")
def test_a_cut_has_all_of_a_decision_or_nothing_while_others_write(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER, POSTING)
    write(books, 0)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(lambda: [*map(partial(write, books), range(1, 9))])
        for number in range(4):
            KeptCuts(books.broker).keep(f"n{number}", ["bank.*"], lease=None, who="anna")
        writing.result()
    for number in range(4):
        catalog = cut_of(rest, f"n{number}")
        assert ids(catalog, LEDGER) == ids(catalog, POSTING)
    assert books.ids() == list(range(9))


def test_a_cut_is_served_as_a_catalog_that_cannot_be_changed(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER, POSTING)
    write(books, 1)
    KeptCuts(books.broker).keep("monday", ["bank.ledger"], lease=None, who="anna")
    write(books, 2)
    created(rest, "later")
    catalog = cut_of(rest, "monday")
    assert catalog.list_tables("bank") == [("bank", "ledger")]
    assert ids(catalog, LEDGER) == [1]
    assert books.ids() == [1, 2]
    for path in ("bank/tables/posting", "bank/tables/later", "bank/views/seen"):
        assert rest.get(f"/v1/cut-monday/namespaces/{path}").status_code == 404
    answer = rest.post("/v1/cut-monday/transactions/commit", json={"table-changes": [change("ledger", n="1")]})
    assert refused(answer) == (406, "UnsupportedOperationException")
    assert refused(rest.delete("/v1/cut-monday/namespaces/bank/tables/ledger"))[0] == 406
    assert refused(rest.get("/v1/other/namespaces"))[0] == 404


def test_a_cut_keeps_its_snapshot_when_others_are_expired(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER, POSTING)
    write(books, 1)
    KeptCuts(books.broker).keep("monday", ["*"], lease=timedelta(days=7), who="anna")
    write(books, 2)
    table = RestCatalog("home", uri=str(rest.base_url)).load_table(LEDGER)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert ids(cut_of(rest, "monday"), LEDGER) == [1]
    (tag,) = [each for name, each in table.refresh().metadata.refs.items() if name == "cut-monday"]
    born = table.snapshot_by_id(tag.snapshot_id)
    assert born is not None and tag.max_ref_age_ms is not None
    left = (born.timestamp_ms + tag.max_ref_age_ms) / 1000 - datetime.now(UTC).timestamp()
    assert timedelta(days=7, minutes=-1) < timedelta(seconds=left) <= timedelta(days=7)


def test_a_cut_is_released(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER, POSTING)
    write(books, 1)
    KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")
    assert KeptCuts(books.broker).release("monday", "anna") == 2
    with pytest.raises(RESTError, match="there is no cut 'monday'"):
        cut_of(rest, "monday")
    with pytest.raises(ConfigError, match="there is no cut 'monday'"):
        KeptCuts(books.broker).release("monday", "anna")
    write(books, 2)
    KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")
    assert ids(cut_of(rest, "monday"), LEDGER) == [1, 2]
    with pytest.raises(ConfigError, match="there is a cut 'monday'; remove it first, or choose another name"):
        KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")


def test_a_commit_does_not_change_a_cut(rest: httpx.Client, books: Books) -> None:
    created(rest, "a")
    books.create(LEDGER)
    books.append(1)
    KeptCuts(books.broker).keep("monday", ["bank.ledger"], lease=None, who="anna")
    assert committed(rest, change("ledger", n="1"), change("a", n="1")).status_code == 204
    assert "n" in books.table().properties


@pytest.mark.parametrize("name", ["", "Monday", "a b", "../x", "x" * 101])
def test_a_name_that_makes_no_prefix_is_refused(books: Books, name: str) -> None:
    with pytest.raises(ConfigError, match="a cut can't be named"):
        KeptCuts(books.broker).keep(name, ["*"], lease=None, who="anna")


def test_the_snapshot_of_a_cut_is_not_removed(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    kept = books.table().metadata.current_snapshot_id
    KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")
    books.append(2)
    gone = {**change("ledger"), "updates": [{"action": "remove-snapshots", "snapshot-ids": [kept]}]}
    answer = committed(rest, gone)
    assert answer.status_code == 400 and "kept by tag cut-monday" in answer.text
    assert ids(cut_of(rest, "monday"), LEDGER) == [1]
    KeptCuts(books.broker).release("monday", "anna")
    assert committed(rest, gone).status_code == 204


def test_a_cut_that_would_be_expired_at_once_is_refused(books: Books) -> None:
    books.create(LEDGER)
    with pytest.raises(ConfigError, match="a cut with a lease of 0:00:00 is never kept"):
        KeptCuts(books.broker).keep("monday", ["*"], lease=timedelta(0), who="anna")
    assert not KeptCuts(books.broker).moments.all()


def test_a_cut_whose_keeper_was_interrupted_is_known_and_released(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    books.create(LEDGER)
    books.append(1)
    leave = Transaction.__exit__

    def interrupted(transaction: Transaction, *said: Any) -> None:
        leave(transaction, *said)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Transaction, "__exit__", interrupted)
        KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")
    assert "cut-monday" in books.table().refs()
    assert KeptCuts(books.broker).release("monday", "anna") == 1
    assert "cut-monday" not in books.table().refs()


def test_two_tables_of_one_name_are_in_no_cut_together(rest: httpx.Client, books: Books) -> None:
    created(rest, "a.b")
    assert rest.post("/v1/namespaces", json={"namespace": ["bank", "a"]}).status_code == 200
    answer = rest.post("/v1/namespaces/bank%1Fa/tables", json={"name": "b", "schema": SCHEMA})
    assert answer.status_code == 200
    with pytest.raises(ConfigError, match=r"bank\.a\.b names two tables, in two namespaces"):
        KeptCuts(books.broker).keep("monday", ["*"], lease=None, who="anna")
    assert not KeptCuts(books.broker).moments.all()


def test_a_cut_has_the_offsets_of_its_moment(books: Books) -> None:
    books.create(LEDGER)
    for number in (1, 2):
        with books.producer.transaction() as tx:
            tx.table(LEDGER).append(rows(number))
            tx.send("booked", b"%d" % number)
        if number == 1:
            found = KeptCuts(books.broker).keep("monday", ["bank.*"], lease=None, who="anna")
    assert sum(found.heads["booked"]) == 1
    ((table, then),) = found.tables.items()
    assert (str(table), then.snapshot) == (LEDGER, books.table().refs()["cut-monday"].snapshot_id)
    store = books.broker.kernel.store
    sql = shown("-- PostgreSQL").replace("sales.orders", LEDGER).replace("txsaga.", f"{store.namespace}.")
    with store.engine.connect() as connection:
        tables, queues = (connection.exec_driver_sql(each).all() for each in sql.split(";")[:2])
    assert tables == [(then.snapshot,)]
    assert sorted(queues) == [*enumerate(found.heads["booked"])]


def test_a_cut_of_topics_alone_is_kept(books: Books) -> None:
    with books.producer.transaction() as tx:
        tx.send("booked", b"1")
    kept = KeptCuts(books.broker)
    assert sum(kept.keep("monday", (), lease=None, who="anna").heads["booked"]) == 1
    assert [each.name for each in kept.moments.all()] == ["monday"]
    assert kept.release("monday", "anna") == 0
    assert kept.moments.all() == []


def test_a_pattern_that_matches_nothing_is_refused(books: Books) -> None:
    books.create(LEDGER)
    with pytest.raises(ConfigError, match=r"no table matches 'sales\.\*'"):
        KeptCuts(books.broker).keep("monday", ["*", "sales.*"], lease=None, who="anna")
    assert KeptCuts(books.broker).moments.all() == []


def test_a_cut_has_tables_of_all_namespaces_and_without_rows(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    for namespace in (["bank", "far"], ["bank", "far", "away"]):
        rest.post("/v1/namespaces", json={"namespace": namespace, "properties": {}})
        created(rest, "a-b", namespace="%1F".join(namespace))
    KeptCuts(books.broker).keep("monday", ["bank.*"], lease=None, who="anna")
    catalog = cut_of(rest, "monday")
    assert ids(catalog, "bank.far.a-b") == ids(catalog, "bank.far.away.a-b") == []
    assert ids(catalog, LEDGER) == [1]


def test_a_cut_shows_the_columns_of_its_moment(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    KeptCuts(books.broker).keep("monday", [LEDGER], lease=None, who="anna")
    table = RestCatalog("home", uri=str(rest.base_url)).load_table(LEDGER)
    with table.update_schema() as schema:
        schema.add_column("more", StringType())
    with table.update_spec() as spec:
        spec.add_identity("more")
    then = cut_of(rest, "monday").load_table(LEDGER)
    assert "more" not in then.schema().column_names
    assert [field.name for field in then.spec().fields] == ["day"]
    assert then.scan().to_arrow()["id"].to_pylist() == [1]


def test_files_that_a_cut_does_not_show_are_not_deleted_as_orphans(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    KeptCuts(books.broker).keep("monday", [LEDGER], lease=None, who="anna")
    assert cut_of(rest, "monday").load_table(LEDGER).properties["gc.enabled"] == "false"
    assert "gc.enabled" not in books.table().properties


def test_a_tag_of_a_cut_is_not_moved_and_its_table_not_purged(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    KeptCuts(books.broker).keep("monday", [LEDGER], lease=None, who="anna")
    books.append(2)
    tag = {"action": "set-snapshot-ref", "ref-name": "cut-monday", "type": "tag"}
    moved = {**tag, "snapshot-id": books.table().metadata.current_snapshot_id}
    gone = {"action": "remove-snapshot-ref", "ref-name": "cut-monday"}
    for update in (moved, {**moved, "action": "Set-Snapshot-Ref"}, gone):
        answer = rest.post("/v1/namespaces/bank/tables/ledger", json={"requirements": [], "updates": [update]})
        assert refused(answer) == (403, "ForbiddenException")
    purged = rest.delete("/v1/namespaces/bank/tables/ledger?purgeRequested=true")
    assert purged.status_code == 400 and "is in cut monday" in purged.text
    assert ids(cut_of(rest, "monday"), LEDGER) == [1]
    KeptCuts(books.broker).release("monday", "anna")
    assert rest.delete("/v1/namespaces/bank/tables/ledger?purgeRequested=true").status_code == 204


def test_another_table_of_the_same_name_is_not_in_a_cut(rest: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    books.append(1)
    KeptCuts(books.broker).keep("monday", [LEDGER], lease=None, who="anna")
    rest.delete("/v1/namespaces/bank/tables/ledger")
    books.create(LEDGER)
    assert rest.get("/v1/cut-monday/namespaces/bank/tables/ledger").status_code == 404


def test_the_command_line_keeps_and_releases_a_cut(
    rest: httpx.Client, books: Books, home_url: str, tmp_path: Path
) -> None:
    books.create(LEDGER, POSTING)
    write(books, 1)
    env = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path / "warehouse"))
    kept = run("--json", "cut", "keep", "monday", "--table", "bank.*", "--lease", "7d", env=env)
    assert kept.code == 0, kept.err
    assert sorted(kept.document["tables"]) == [LEDGER, POSTING]
    assert ids(cut_of(rest, "monday"), LEDGER) == [1]
    assert run("--json", "cut", "show", "monday", env=env).document == kept.document
    assert "monday" in run("cut", "list", env=env).out
    assert run("cut", "release", "monday", env=env).code == 0
    assert rest.get("/v1/config?warehouse=cut-monday").status_code == 404
