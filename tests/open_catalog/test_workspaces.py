"""A workspace: many tables written by any engine, seen by nobody else, and published by one decision."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError, RESTError

from tests.cli.program import environment, run
from tests.gate.conftest import IDS, suite
from tests.lake.books import LEDGER, POSTING, Books, rows
from tests.open_catalog.asking import change, committed, refused
from tests.open_catalog.test_clients import OPEN
from tests.open_catalog.test_commits import arrow
from tests.open_catalog.test_cuts import ids, write
from txsaga.catalog.moments import KeptMoment, Moments
from txsaga.catalog.table_gates import GATE
from txsaga.catalog.workspaces import Workspaces
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.errors import ConfigError, NotCarried, TableMoved
from txsaga.flows.ballot import Result
from txsaga.flows.flow import Flow
from txsaga.gate import stop
from txsaga.messages.transaction import Transaction

__all__ = ["suite"]
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    stop()


@pytest.fixture
def workspaces(books: Books) -> Workspaces:
    books.create(LEDGER, POSTING)
    write(books, 1)
    return Workspaces(books.broker)


def within(rest: httpx.Client, name: str) -> RestCatalog:
    """Return the catalog of a workspace."""
    return RestCatalog(name, uri=str(rest.base_url), warehouse=f"workspace-{name}")


def append(catalog: RestCatalog, name: str, number: int) -> None:
    """Append a row."""
    table = catalog.load_table(name)
    table.append(arrow(table, number))


def test_what_is_written_in_a_workspace_becomes_visible_by_one_decision(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    catalog = within(rest, "april")
    append(catalog, LEDGER, 2)
    append(catalog, LEDGER, 3)
    append(catalog, POSTING, 2)
    assert (ids(catalog, LEDGER), ids(catalog, POSTING)) == ([1, 2, 3], [1, 2])
    assert (books.ids(), books.ids(POSTING)) == ([1], [1])
    assert [(str(each.table), each.added, each.removed, each.moved) for each in workspaces.diff("april")] == [
        (LEDGER, 2, 0, False),
        (POSTING, 1, 0, False),
    ]
    workspaces.publish("april", "anna")
    assert (books.ids(), books.ids(POSTING)) == ([1, 2, 3], [1, 2])
    assert "workspace-april" not in books.table().metadata.refs
    with pytest.raises(ConfigError, match="workspace 'april' is published; drop it, and create a new one"):
        workspaces.publish("april", "anna")
    with pytest.raises(NoSuchTableError, match="has no branch workspace-april"):
        catalog.load_table(LEDGER)


def test_a_table_that_changed_meanwhile_keeps_all_from_being_published(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    append(within(rest, "april"), POSTING, 2)
    books.append(9, table=POSTING)
    with pytest.raises(TableMoved, match=r"bank\.posting changed since workspace 'april' was begun"):
        workspaces.publish("april", "anna")
    assert (books.ids(), books.ids(POSTING)) == ([1], [1, 9])


def test_a_published_workspace_is_undone(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    workspaces.publish("april", "anna")
    assert books.ids() == [1, 2]
    assert [str(each) for each in workspaces.undo("april", "anna")] == [LEDGER]
    assert (books.ids(), books.ids(POSTING)) == ([1], [1])


def hurried(workspaces: Workspaces, method: str, *said: Any) -> Any:
    """Call a method; return its result, or its error."""
    try:
        return getattr(workspaces, method)("april", *said)
    except ConfigError as error:
        return str(error)


def question(workspaces: Workspaces) -> tuple[int, Sequence[str]] | None:
    """Return the question that is open about the only workspace."""
    ((_, _, found),) = workspaces.all()
    return found


FASTER = "workspace 'april' was changed by somebody else meanwhile; `txsaga workspace list` shows what became of it"


@pytest.mark.parametrize("method", ["publish", "undo"])
def test_a_workspace_that_two_publish_or_undo_at_once_is_published_and_undone_once(
    rest: httpx.Client, books: Books, workspaces: Workspaces, method: str
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    if method == "undo":
        workspaces.publish("april", "anna")
    two = [Workspaces(books.broker), Workspaces(books.broker)]
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda each: hurried(each, method, "anna"), two)]
    assert all(not isinstance(each, str) or each == FASTER or "workspace 'april' is" in each for each in found), found
    assert any(not isinstance(each, str) for each in found), found
    ((moment, state, _),) = workspaces.all()
    assert (books.ids(), state) == (([1, 2], "published") if method == "publish" else ([1], "undone"))
    assert [*(moment.published or ())] == [LEDGER]


def interrupted(monkeypatch: pytest.MonkeyPatch, where: type, name: str, call: Callable[[], object]) -> None:
    """Call something that is killed in there."""

    def die(*said: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(where, name, die)
        call()


def test_a_workspace_is_published_and_undone_though_its_process_was_killed_before_it_said_so(
    rest: httpx.Client, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    interrupted(monkeypatch, Moments, "mark", lambda: workspaces.publish("april", "anna"))
    assert [state for _, state, _ in workspaces.all()] == ["published"]
    with monkeypatch.context() as patched:
        patched.setattr(Workspaces, "_latest", lambda *said: None)  # as if its transaction were forgotten
        assert [state for _, state, _ in workspaces.all()] == ["published"]
    interrupted(monkeypatch, Moments, "mark", lambda: workspaces.undo("april", "anna"))
    assert books.ids() == [1]
    assert [state for _, state, _ in workspaces.all()] == ["undone"]
    assert workspaces.drop("april", "anna") == 2


def test_workspaces_are_listed_while_one_is_published(
    rest: httpx.Client, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    interrupted(monkeypatch, Transaction, "_leave", lambda: workspaces.publish("april", "anna"))
    store = books.broker.kernel.store
    with store.engine.begin() as connection, ThreadPoolExecutor(1) as pool:
        held = connection.exec_driver_sql(f"SELECT FROM \"{store.namespace}\".tx WHERE key LIKE 'publish%%' FOR UPDATE")
        assert held.rowcount == 1
        try:
            ((_, state, _),) = pool.submit(workspaces.all).result(timeout=20)
        finally:
            connection.rollback()
    assert state == "open"


def test_what_was_built_on_since_is_not_undone(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    workspaces.publish("april", "anna")
    books.append(3)
    with pytest.raises(TableMoved):
        workspaces.undo("april", "anna")
    assert books.ids() == [1, 2, 3]


def test_a_workspace_is_dropped(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    assert workspaces.drop("april", "anna") == 2
    with pytest.raises(RESTError, match="there is no workspace 'april'"):
        within(rest, "april")
    assert books.ids() == [1]
    workspaces.create("april", ["bank.*"], "anna")
    assert ids(within(rest, "april"), LEDGER) == [1]


def test_what_a_table_shares_is_not_changed_in_a_workspace(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.ledger"], "anna")
    path = "/v1/workspace-april/transactions/commit"
    for body in ({"table-changes": [change("ledger", n="1")]}, {"table-changes": [change("posting", n="1")]}):
        assert rest.post(path, json=body).status_code in (404, 406)
    assert refused(rest.delete("/v1/workspace-april/namespaces/bank/tables/ledger"))[0] == 406
    table = within(rest, "april").load_table(LEDGER)
    with pytest.raises(RESTError, match="UnsupportedOperationException"), table.update_schema() as update:
        update.rename_column("note", "remark")
    with pytest.raises(RESTError, match="UnsupportedOperationException"):
        table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "mine").commit()
    assert books.table().schema().find_field("note")


def test_a_workspace_is_named_once_and_has_tables(books: Books, workspaces: Workspaces) -> None:
    with pytest.raises(ConfigError, match=r"no table matches 'nothing\.\*'"):
        workspaces.create("april", ["bank.*", "nothing.*"], "anna")
    with pytest.raises(ConfigError, match="can't be named"):
        workspaces.create("April!", ["*"], "anna")
    workspaces.create("april", ["bank.ledger"], "anna")
    with pytest.raises(ConfigError, match="there is a workspace 'april'"):
        workspaces.create("april", ["bank.*"], "anna")


def test_a_table_without_rows_is_in_no_workspace(books: Books, workspaces: Workspaces) -> None:
    books.create("bank.empty")
    with pytest.raises(ConfigError, match=r"bank\.empty: a table without rows has no branch"):
        workspaces.create("april", ["bank.*"], "anna")
    assert workspaces.all() == []
    workspaces.create("april", [LEDGER], "anna")


def back(books: Books, snapshot: int | None) -> None:
    """Roll main back."""
    assert snapshot is not None
    with books.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(snapshot)


def test_rows_that_somebody_rolled_back_do_not_come_back(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    first = books.table().metadata.current_snapshot_id
    books.append(2)
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), POSTING, 3)
    back(books, first)
    workspaces.publish("april", "anna")  # nothing was written to the ledger there
    assert (books.ids(), books.ids(POSTING)) == ([1], [1, 3])
    workspaces.create("may", ["bank.*"], "anna")
    append(within(rest, "may"), LEDGER, 4)
    books.append(5)
    back(books, first)
    append(within(rest, "may"), POSTING, 4)
    workspaces.publish("may", "anna")  # main is where it was
    assert (books.ids(), books.ids(POSTING)) == ([1, 4], [1, 3, 4])


def test_a_commit_to_a_branch_while_it_is_published_is_not_lost(
    rest: httpx.Client, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    unmoved = workspaces._unmoved

    def overtaken(*said: Any) -> Any:
        found = unmoved(*said)
        append(within(rest, "april"), POSTING, 2)
        return found

    monkeypatch.setattr(workspaces, "_unmoved", overtaken)
    with pytest.raises(TableMoved, match=r"bank\.posting has changed meanwhile"):
        workspaces.publish("april", "anna")
    monkeypatch.undo()
    assert (books.ids(), books.ids(POSTING)) == ([1], [1])
    workspaces.publish("april", "anna")
    assert (books.ids(), books.ids(POSTING)) == ([1, 2], [1, 2])


@pytest.mark.parametrize("how", ["branch removed", "dropped", "created again"])
def test_a_workspace_that_lost_a_table_is_not_published_by_half(
    rest: httpx.Client, books: Books, workspaces: Workspaces, how: str
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    append(within(rest, "april"), POSTING, 2)
    if how == "branch removed":
        gone = {"action": "remove-snapshot-ref", "ref-name": "workspace-april"}
        body = {"requirements": [], "updates": [gone]}
        assert rest.post("/v1/namespaces/bank/tables/posting", json=body).is_success
    else:
        assert rest.delete("/v1/namespaces/bank/tables/posting").is_success
    if how == "created again":
        books.create(POSTING)
    with pytest.raises(TableMoved, match=r"bank\.posting was (removed|dropped or renamed) since workspace"):
        workspaces.publish("april", "anna")
    assert books.ids() == [1]
    workspaces.drop("april", "anna")
    assert "workspace-april" not in books.table().metadata.refs


def test_a_workspace_with_many_commits_is_published(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    assert committed(rest, change("ledger", **{"txsaga.snapshots.kept": "2"})).status_code == 204
    workspaces.create("april", ["bank.ledger"], "anna")
    for number in range(2, 9):
        append(within(rest, "april"), LEDGER, number)
    assert [(each.added, each.removed) for each in workspaces.diff("april")] == [(7, 0)]
    workspaces.publish("april", "anna")
    assert books.ids() == [*range(1, 9)]


def test_main_may_forget_where_an_unchanged_workspace_began(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    assert committed(rest, change("posting", **{"txsaga.snapshots.kept": "1"})).status_code == 204
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    for number in range(5):
        books.append(number, table=POSTING)
    workspaces.publish("april", "anna")
    assert books.ids() == [1, 2] and len(books.ids(POSTING)) == 6


def test_a_transaction_writes_to_a_workspace_twice(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.ledger"], "anna")
    with books.producer.transaction() as tx:
        headers = {"header.X-Txsaga-Transaction": tx.token()}
        joined = RestCatalog("t", uri=str(rest.base_url), warehouse="workspace-april", **headers)
        append(joined, LEDGER, 2)
        append(joined, LEDGER, 3)
        assert (ids(joined, LEDGER), ids(within(rest, "april"), LEDGER)) == ([1, 2, 3], [1])
    assert (ids(within(rest, "april"), LEDGER), books.ids()) == ([1, 2, 3], [1])


def test_duckdb_writes_to_a_workspace(rest: httpx.Client, books: Books, workspaces: Workspaces, duckdb: Any) -> None:
    workspaces.create("april", ["bank.ledger"], "anna")
    duckdb.execute(f"ATTACH 'workspace-april' AS april (ENDPOINT '{rest.base_url}', {OPEN})")
    for number in (2, 3):
        duckdb.execute(f"INSERT INTO april.bank.ledger (id, day) VALUES ({number}, date '2025-03-03')")
    duckdb.execute("DELETE FROM april.bank.ledger WHERE id = 1")
    assert sorted(duckdb.execute("SELECT id FROM april.bank.ledger").fetchall()) == [(2,), (3,)]
    assert (ids(within(rest, "april"), LEDGER), books.ids()) == ([2, 3], [1])
    workspaces.publish("april", "anna")
    assert books.ids() == [2, 3]


def vote(books: Books, txid: int, *, yes: bool) -> None:
    """Vote as the chief."""
    books.broker.vote(txid, "publish april", "chief", yes=yes, evidence={"reason": "seen"})


class TestApproval:
    """A publication that waits for somebody's vote."""

    @pytest.fixture
    def asked(self, rest: httpx.Client, workspaces: Workspaces) -> int:
        """Give the transaction that asks for it."""
        workspaces.create("april", ["bank.*"], "anna")
        append(within(rest, "april"), LEDGER, 2)
        txid, _ = workspaces.ask("april", ["chief"], "anna@home")
        return txid

    def test_a_yes_publishes_what_was_asked_for(self, books: Books, workspaces: Workspaces, asked: int) -> None:
        (poll,) = books.broker.ballots(asked)
        told = "rows of bank.ledger: 1 added, 0 removed"
        assert [(cast.voter, cast.yes, cast.evidence["reason"]) for cast in poll.casts] == [("anna", True, told)]
        assert question(workspaces) == (asked, ("chief",))
        with pytest.raises(ConfigError, match=f"transaction {asked} asks"):
            workspaces.publish("april", "anna")
        vote(books, asked, yes=True)
        assert books.ids() == [1]
        assert [each.added for each in workspaces.publish("april", "anna")] == [1, 0]
        assert books.ids() == [1, 2] and question(workspaces) is None
        assert [str(each) for each in workspaces.undo("april", "anna")] == [LEDGER]
        assert books.ids() == [1]

    def test_what_is_published_meanwhile_is_neither_withdrawn_nor_forgotten(
        self, books: Books, workspaces: Workspaces, asked: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vote(books, asked, yes=True)
        seen = workspaces._moments.find("april")
        workspaces.publish("april", "anna")
        with monkeypatch.context() as patched:
            patched.setattr(Workspaces, "_found", lambda *said: seen)  # as it was before
            for late in (workspaces.withdraw, workspaces.drop):
                with pytest.raises(ConfigError, match="was changed by somebody else meanwhile"):
                    late("april", "ben")
        assert [str(each) for each in workspaces.undo("april", "anna")] == [LEDGER]

    def test_what_was_approved_under_other_columns_is_not_published(
        self, rest: httpx.Client, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        with RestCatalog("home", uri=str(rest.base_url)).load_table(LEDGER).update_schema() as update:
            update.rename_column("amount", "sum")
        vote(books, asked, yes=True)
        with pytest.raises(TableMoved, match="current schema"):
            workspaces.publish("april", "anna")
        assert books.ids() == [1]

    def test_a_no_publishes_nothing_until_it_is_asked_again(
        self, rest: httpx.Client, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        vote(books, asked, yes=False)
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"not approved in transaction {asked}: chief voted against it; ask"):
                workspaces.publish("april", "anna")
        assert books.ids() == [1] and question(workspaces) is None
        with pytest.raises(ConfigError, match="workspace 'april' is not published: it is not approved"):
            workspaces.undo("april", "anna")
        append(within(rest, "april"), LEDGER, 3)
        txid, _ = workspaces.ask("april", ["chief"], "anna@home")
        assert txid != asked
        vote(books, txid, yes=True)
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2, 3]

    def test_it_is_asked_once_at_a_time_until_it_is_taken_back(
        self, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        for again in (
            lambda: workspaces.ask("april", ["chief"], "anna@home"),
            lambda: workspaces.publish("april", "anna"),
        ):
            with pytest.raises(ConfigError, match=rf"transaction {asked} asks .*: `txsaga workspace withdraw april`"):
                again()
        workspaces.withdraw("april", "anna")
        with pytest.raises(ConfigError, match="no question is open about workspace 'april': it is open"):
            workspaces.withdraw("april", "anna")
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def test_an_approval_that_ended_otherwise_is_no_approval(
        self, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        vote(books, asked, yes=True)
        ByHand(books.broker.kernel).decide(asked, Decision.ROLLBACK, who="an engine", why="30 days are over")
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"ask again .*, or take the question back"):
                workspaces.publish("april", "anna")
        assert books.ids() == [1]
        workspaces.withdraw("april", "anna")
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def test_a_table_that_changed_before_the_vote_is_not_overwritten(
        self, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        books.append(9)
        vote(books, asked, yes=True)
        with pytest.raises(TableMoved, match=r"table bank\.ledger has changed meanwhile"):
            workspaces.publish("april", "anna")
        assert books.ids() == [1, 9] and question(workspaces) is None
        with pytest.raises(TableMoved, match=r"bank\.ledger changed since workspace 'april' was begun"):
            workspaces.ask("april", ["chief"], "anna")

    @pytest.mark.parametrize("table", [LEDGER, POSTING])
    def test_what_nobody_has_seen_is_not_approved(
        self, rest: httpx.Client, books: Books, workspaces: Workspaces, asked: int, table: str
    ) -> None:
        append(within(rest, "april"), table, 3)
        vote(books, asked, yes=True)
        with pytest.raises(TableMoved, match="has changed meanwhile"):
            workspaces.publish("april", "anna")
        with pytest.raises(ConfigError, match=f"workspace 'april' was not approved in transaction {asked}; ask again"):
            workspaces.publish("april", "anna")
        assert books.ids() == [1]
        txid, _ = workspaces.ask("april", ["chief"], "anna@home")
        vote(books, txid, yes=True)
        workspaces.publish("april", "anna")
        assert books.ids(table)[-1] == 3

    def test_two_publish_what_was_approved_at_once_and_it_can_be_undone(
        self, books: Books, workspaces: Workspaces, asked: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vote(books, asked, yes=True)
        other, now = Workspaces(books.broker), workspaces._now

        def overtaken(moment: KeptMoment) -> Any:
            other.publish("april", "ben")
            return now(moment)

        monkeypatch.setattr(workspaces, "_now", overtaken)
        with pytest.raises(ConfigError, match="workspace 'april' is published"):
            workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]
        assert [str(each) for each in workspaces.undo("april", "anna")] == [LEDGER]
        assert books.ids() == [1]

    def test_a_table_that_is_gone_leaves_a_workspace_that_can_be_dropped(
        self, rest: httpx.Client, books: Books, workspaces: Workspaces, asked: int
    ) -> None:
        vote(books, asked, yes=True)
        assert rest.delete("/v1/namespaces/bank/tables/posting").is_success
        with pytest.raises(TableMoved, match=r"bank\.posting was dropped .*; drop the workspace"):
            workspaces.publish("april", "anna")
        assert workspaces.drop("april", "anna") == 2
        assert workspaces.all() == [] and "workspace-april" not in books.table().refs()
        assert books.broker.ballots(asked) and ended(books, asked) is TxState.ROLLED_BACK

    def test_whoever_asks_can_t_approve(self, workspaces: Workspaces) -> None:
        workspaces.create("april", ["bank.*"], "anna")
        with pytest.raises(ConfigError, match="somebody else has to approve"):
            workspaces.ask("april", ["anna"], "anna@home")
        assert question(workspaces) is None


def ended(books: Books, txid: int) -> TxState:
    """Return the state of a transaction."""
    with books.broker.kernel.store.ledgers.open() as ledger:
        found = ledger.lock(txid)
    assert found is not None
    return found.state


class TestAsking:
    """Questions that fail, are killed, or meet another."""

    @pytest.fixture(autouse=True)
    def april(self, rest: httpx.Client, workspaces: Workspaces) -> None:
        """Write to a workspace."""
        workspaces.create("april", ["bank.*"], "anna")
        append(within(rest, "april"), LEDGER, 2)

    @pytest.mark.parametrize("voters", [["chief", "chief"], [""], ["x\x00"]])
    def test_voters_that_nobody_has_leave_the_workspace_open(
        self, books: Books, workspaces: Workspaces, voters: list[str]
    ) -> None:
        with pytest.raises(ConfigError):
            workspaces.ask("april", voters, "anna")
        assert [state for _, state, _ in workspaces.all()] == ["open"]
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def asked_until(self, monkeypatch: pytest.MonkeyPatch, workspaces: Workspaces, where: type, name: str) -> None:
        """Ask in a process that is killed there: it undoes nothing."""
        monkeypatch.setattr(Workspaces, "_unask", lambda *said: None)
        interrupted(monkeypatch, where, name, lambda: workspaces.ask("april", ["chief"], "anna"))

    def test_a_question_that_was_killed_before_it_was_recorded_asks_nobody(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.asked_until(monkeypatch, workspaces, Moments, "mark")
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    @pytest.mark.parametrize("name", ["step", "ballot"])
    def test_a_question_that_was_killed_early_publishes_nothing(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        self.asked_until(monkeypatch, workspaces, Flow, name)
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"is about to ask .* if its process is gone, take the question back"):
                workspaces.publish("april", "anna")
        assert books.ids() == [1]
        workspaces.withdraw("april", "anna")
        txid, _ = workspaces.ask("april", ["chief"], "anna")
        vote(books, txid, yes=True)
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def test_a_question_that_was_killed_late_waits_for_all(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.asked_until(monkeypatch, workspaces, Flow, "vote")
        ((moment, _, _),) = workspaces.all()
        assert moment.asked is not None and question(workspaces) == (moment.asked, ("anna", "chief"))
        vote(books, moment.asked, yes=True)
        with pytest.raises(ConfigError, match=f"transaction {moment.asked} asks whether"):
            workspaces.publish("april", "anna")
        books.broker.vote(moment.asked, "publish april", "anna", yes=True)
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def test_it_is_asked_though_a_process_was_killed_while_it_published(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        interrupted(monkeypatch, Transaction, "_leave", lambda: workspaces.publish("april", "anna"))
        txid, _ = workspaces.ask("april", ["chief"], "anna")
        vote(books, txid, yes=True)
        workspaces.publish("april", "anna")
        assert books.ids() == [1, 2]

    def test_whoever_asks_between_the_checks_of_a_publication_and_its_key_is_faster(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other, end = Workspaces(books.broker), workspaces._end
        monkeypatch.setattr(workspaces, "_end", lambda *said: (end(*said), other.ask("april", ["chief"], "ben")))
        with pytest.raises(ConfigError, match=re.escape(FASTER)):
            workspaces.publish("april", "anna")
        ((moment, state, found),) = other.all()
        assert (state, found, books.ids()) == ("waits for approval", (moment.asked, ("chief",)), [1])

    def test_of_two_who_ask_at_once_one_asks(self, books: Books, workspaces: Workspaces) -> None:
        for _ in range(3):
            two = [Workspaces(books.broker), Workspaces(books.broker)]
            with ThreadPoolExecutor(2) as pool:
                found = [*pool.map(lambda each: hurried(each, "ask", ["chief"], "anna"), two)]
            (asked,) = [each for each in found if not isinstance(each, str)]
            waits = question(workspaces)
            assert waits == (asked[0], ("chief",))
            vote(books, asked[0], yes=False)

    @pytest.mark.parametrize("method", ["ask", "drop", "publish"])
    def test_nothing_is_published_while_somebody_asks(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        """Another process is at the same moment where it changes a workspace that was open."""
        other, said = Workspaces(books.broker), (["chief"], "ben") if method == "ask" else ("ben",)
        monkeypatch.setattr(workspaces, "_unmoved", meeting(workspaces, lambda: hurried(other, method, *said)))
        with pytest.raises(ConfigError, match=f"{FASTER}|there is no workspace"):
            workspaces.publish("april", "anna")
        assert books.ids() == ([1, 2] if method == "publish" else [1])
        assert [str(state) for _, state, _ in other.all()] == {
            "ask": ["waits for approval"],
            "drop": [],
            "publish": ["published"],
        }[method]

    def test_a_question_that_is_recorded_while_its_flow_is_ended_keeps_all_from_being_published(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ((moment, _, _),) = workspaces.all()
        asked = moment._replace(asked=1)
        monkeypatch.setattr(workspaces, "_end", lambda *said: workspaces._moments.mark(moment, asked))
        with pytest.raises(ConfigError, match=re.escape(FASTER)):
            workspaces.publish("april", "anna")
        assert books.ids() == [1]

    @pytest.mark.parametrize("method", ["drop", "publish"])
    def test_a_question_that_comes_too_late_is_told_so(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, method: str
    ) -> None:
        other = Workspaces(books.broker)
        monkeypatch.setattr(workspaces, "_unmoved", meeting(workspaces, lambda: hurried(other, method, "ben")))
        with pytest.raises(ConfigError, match=f"{FASTER}|there is no workspace"):
            workspaces.ask("april", ["chief"], "anna")
        assert [str(state) for _, state, _ in other.all()] == ([] if method == "drop" else ["published"])

    def test_a_question_about_a_workspace_that_is_gone_is_not_left_behind(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark, begun = workspaces._moments.mark, list[int]()

        def overtaken(seen: KeptMoment, asked: KeptMoment) -> bool:
            begun.append(asked.asked or 0)
            workspaces._moments._forget(seen)
            return mark(seen, asked)

        monkeypatch.setattr(workspaces._moments, "mark", overtaken)
        with pytest.raises(ConfigError, match=re.escape(FASTER)):
            workspaces.ask("april", ["chief"], "anna")
        assert ended(books, begun[0]) is TxState.ROLLED_BACK

    def test_a_workspace_that_is_asked_about_while_it_is_dropped_is_dropped_again(
        self, books: Books, workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other, asked = Workspaces(books.broker), list[int]()
        end = workspaces._end

        def met(*said: Any) -> None:
            end(*said)
            if not asked:
                asked.append(other.ask("april", ["chief"], "ben")[0])

        monkeypatch.setattr(workspaces, "_end", met)
        with pytest.raises(ConfigError, match=re.escape(FASTER)):
            workspaces.drop("april", "anna")
        assert workspaces.drop("april", "anna") == 2
        assert ended(books, asked[0]) is TxState.ROLLED_BACK


def meeting(workspaces: Workspaces, other: Callable[[], object]) -> Callable[..., Any]:
    """Return how tables are compared, while another process does something."""
    unmoved = workspaces._unmoved

    def met(*said: Any) -> Any:
        found = unmoved(*said)
        other()
        return found

    return met


class TestGates:
    """Gates of the tables in a workspace."""

    @pytest.fixture(autouse=True)
    def gated(self, rest: httpx.Client, books: Books, workspaces: Workspaces, suite: Callable[..., str]) -> None:
        """Let the ids of the ledger differ, and write one twice to the workspace."""
        assert committed(rest, change("ledger", **{GATE: suite("ledger", IDS)})).status_code == 204
        workspaces.create("april", ["bank.*"], "anna")
        append(within(rest, "april"), LEDGER, 1)
        append(within(rest, "april"), POSTING, 1)

    def test_what_main_would_become_is_judged(self, rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
        for publish in (
            lambda: workspaces.publish("april", "anna"),
            lambda: workspaces.ask("april", ["chief"], "anna@home"),
        ):
            with pytest.raises(NotCarried, match="ledger: expect_column_values_to_be_unique of id: 2 of 2 rows"):
                publish()
            assert question(workspaces) is None
        assert (books.ids(), books.ids(POSTING)) == ([1], [1])
        within(rest, "april").load_table(LEDGER).overwrite(rows(4).cast(books.table().schema().as_arrow()))
        txid, _ = workspaces.ask("april", ["chief"], "anna@home")
        found = {poll.ballot.name: poll.result for poll in books.broker.ballots(txid)}
        assert [*found.values()] == [Result.CARRIED, Result.OPEN] and "bank.ledger" in next(iter(found))
        vote(books, txid, yes=True)
        workspaces.publish("april", "anna")
        assert (books.ids(), books.ids(POSTING)) == ([4], [1, 1])


def test_the_command_line_asks_for_an_approval(
    rest: httpx.Client, books: Books, workspaces: Workspaces, home_url: str, tmp_path: Path
) -> None:
    settings = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path / "warehouse"))
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    assert run("workspace", "publish", "april", "--approval", "boss", env=settings).code == 0
    assert "is withdrawn" in run("workspace", "withdraw", "april", env=settings).out
    asked = run("workspace", "publish", "april", "--approval", "chief", env=settings)
    assert asked.code == 0, asked.err
    found = re.search(r"it waits for chief: txsaga (tx vote \d+ 'publish april' yes --voter chief) --reason", asked.out)
    assert found is not None, asked.out
    assert "chief" in run("workspace", "list", env=settings).out
    assert "rows of bank.ledger: 1 added, 0 removed" in run("tx", "ballots", env=settings).out
    voted = run(*shlex.split(found[1]), "--reason", "seen", env=settings)
    assert "it is carried" in voted.out, voted.err
    assert run("workspace", "publish", "april", env=settings).code == 0
    assert books.ids() == [1, 2]


def test_the_command_line_makes_shows_and_publishes_a_workspace(
    rest: httpx.Client, books: Books, workspaces: Workspaces, home_url: str, tmp_path: Path
) -> None:
    settings = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path / "warehouse"))

    def said(*words: str) -> Any:
        found = run("--json", "workspace", *words, env=settings)
        assert found.code == 0, found.err
        return json.loads(found.out)

    assert said("create", "april", "--table", "bank.*") == {"workspace": "april", "tables": [LEDGER, POSTING]}
    listed = {"workspace": "april", "tables": [LEDGER, POSTING], "transaction": None, "waits_for": None}
    assert said("list") == [{**listed, "state": "open"}]
    append(within(rest, "april"), LEDGER, 2)
    (ledger, posting) = said("diff", "april")
    assert (ledger["table"], ledger["added"], posting["added"]) == (LEDGER, 1, 0)
    assert len(said("publish", "april")) == 2
    assert books.ids() == [1, 2]
    assert said("undo", "april") == {"workspace": "april", "undone": [LEDGER]}
    assert said("list") == [{**listed, "state": "undone"}]
    assert said("drop", "april") == {"workspace": "april", "tables": 2}
    assert said("list") == []
