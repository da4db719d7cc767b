"""Commands about branches, on real databases whose administrators decide over our head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine, make_url

import txsaga
from tests.cli.conftest import Cli
from tests.cli.program import Said
from tests.flows.coordinated.bank import START, TRANSFERS, Bank
from tests.scene.stored import Stored
from tests.services.free_port import free_port
from tests.store.logins import logins
from txsaga.cli.options import os_user
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.errors import ConfigError, ResourceManagerFailed
from txsaga.flows.branch import BranchState
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres
PAID = {"current": START - 10, "mortgage": START + 10}


@dataclass(slots=True)
class Desk:
    """A bank, and the commands on its store."""

    bank: Bank
    call: Cli
    url: str

    def __call__(self, *words: str, **env: str) -> Said:
        """Call a command that knows both databases."""
        return self.call(*words, **({"TXSAGA_URL": self.url} | self.known | env))

    @property
    def known(self) -> dict[str, str]:
        """The settings that name the databases."""
        urls = {name: engine.url.render_as_string(hide_password=False) for name, engine in self.bank.engines.items()}
        return {f"TXSAGA_RESOURCE_{name.upper()}": url for name, url in urls.items()}

    @property
    def away(self) -> dict[str, str]:
        """The settings when nobody listens where one database was."""
        port = free_port()
        return {"TXSAGA_RESOURCE_MORTGAGE": str(make_url(self.known["TXSAGA_RESOURCE_MORTGAGE"]).set(port=port))}

    def left(self, *, account: int = 1, overruled: bool = False) -> TxRecord:
        """Leave a decided transfer behind; its mortgage may be rolled back by hand."""
        life = self.bank.left(account=account)
        if overruled:
            self.bank.overrule(life, "mortgage", Decision.ROLLBACK)
        return life


@pytest.fixture
def desk(bare: Cli, own_url: str, foreign_databases: Callable[[], str]) -> Iterator[Desk]:
    engines = {name: create_engine(foreign_databases()) for name in ("current", "mortgage")}
    with txsaga.connect(own_url, resources=engines, roles=False, answering=False, env={}) as broker:
        yield Desk(Bank(broker, engines, Stored(own_url)).open(), bare, own_url)
    for engine in engines.values():
        engine.dispose()


@pytest.mark.req("WM-22", "WM-23")
def test_what_is_decided_is_told_now_and_a_resource_that_is_away_is_named(desk: Desk) -> None:
    life = desk.left()
    (listed, other) = desk("branch", "list", "--json").documents
    assert (listed["branch"], listed["resource"], listed["state"]) == (f"{life.txid}.1.1", "current", "prepared")
    assert listed["gid"] in desk.bank.prepared()
    assert other["resource"] == "mortgage"
    said = desk("branch", "recover", "--json", **desk.away)
    assert said.code == 6
    current, mortgage = said.documents
    assert (current["resource"], current["told"], current["waiting"], current["why"]) == ("current", 1, 0, None)
    assert (mortgage["resource"], mortgage["told"], mortgage["waiting"]) == ("mortgage", 0, 1)
    assert mortgage["away"]
    assert "'mortgage' does not answer" in mortgage["why"]
    assert len(desk.bank.prepared()) == 1
    assert [each["resource"] for each in desk("branch", "list", "--json").documents] == ["mortgage"]
    said = desk("branch", "recover")
    assert (said.code, said.lines[2].split()) == (0, ["mortgage", "1", "0", "0", "-"])
    assert (desk.bank.balances(), desk.bank.prepared()) == (PAID, [])
    assert desk("branch", "list", "--json").documents == []


def test_a_resource_without_a_setting_is_named_too(desk: Desk) -> None:
    desk.left()
    said = desk.call("branch", "recover", "--json", TXSAGA_URL=desk.url)
    assert said.code == 6
    assert [(each["resource"], each["away"], each["waiting"]) for each in said.documents] == [
        ("current", False, 1),
        ("mortgage", False, 1),
    ]
    assert "'current' is not registered" in said.documents[0]["why"]
    assert "set TXSAGA_RESOURCE_CURRENT to its URL" in said.documents[0]["why"]
    said = desk.call("branch", "list", "--held", TXSAGA_URL=desk.url)
    assert "set TXSAGA_RESOURCE_CURRENT to its URL" in said.complaint
    assert "TXSAGA_PARTICIPANT_CURRENT for a participant that is not a database" in said.complaint


@pytest.mark.req("WM-21", "WM-24", "WM-45", "WM-48")
def test_a_heuristic_is_listed_and_forgotten_with_who_and_why(desk: Desk) -> None:
    life = desk.left(overruled=True)
    prepared = desk.left(account=2)
    txid = str(life.txid)
    assert desk("branch", "forget", txid, "--reason", "r").code == 5  # nobody has found out yet
    desk("branch", "recover")
    waiting = desk.left(account=3)
    (found,) = desk("branch", "heuristics", "--json").documents
    assert (found["txid"], found["number"], found["resource"]) == (life.txid, 2, "mortgage")
    assert (found["state"], found["why"]) == ("heuristic_rolled_back", "found rolled_back while COMMIT was decided")
    assert found["since"]
    assert found["look"] == (f"branch {found['gid']} was rolled back in 'mortgage': apply its changes there by hand")
    shown = desk("branch", "heuristics").lines
    assert "heuristic_rolled_back" in shown[1]
    assert shown[-2] == f"{txid}.2.1: {found['look']}"
    assert shown[-1] == "then run `txsaga branch forget ID BRANCH --reason WHY`; `txsaga tx show ID` shows the decision"
    assert desk("branch", "heuristics", "--resource", "current", "--json").documents == []
    held = desk("branch", "list", "--held", "--json").documents
    assert [(each["resource"], each["txid"], each["state"]) for each in held] == [
        ("current", waiting.txid, "prepared"),
        ("mortgage", life.txid, "heuristic_rolled_back"),
        ("mortgage", waiting.txid, "prepared"),
    ]
    said = desk("branch", "forget", str(waiting.txid), "1", "--reason", "r")
    assert (said.code, "1.1 prepared" in said.complaint) == (5, True)
    said = desk("branch", "forget", txid, "2", "--reason", "paid by hand", "--json")
    told = {"branch": f"{txid}.2.1", "resource": "mortgage", "state": "heuristic_rolled_back", "left": None}
    assert (said.code, said.document) == (0, {"forgotten": [told]})
    record = desk("tx", "show", txid, "--json").document["history"][-1]
    assert (record["what"], record["who"]) == ("BRANCH 2.1 FORGOTTEN", os_user())
    assert record["why"] == "paid by hand (it was heuristic_rolled_back)"
    assert desk("branch", "heuristics", "--json").documents == []
    assert len(desk("branch", "heuristics").lines) == 1
    states = [each["state"] for each in desk("branch", "list", "--tx", txid, "--json").documents]
    assert states == ["committed", "forgotten"]
    assert set(desk.bank.states(prepared.txid).values()) == {BranchState.COMMITTED}
    assert desk("branch", "forget", "--all", "--reason", "r").out == "0 forgotten\n"


@pytest.mark.req("WM-45", "BEYOND-6")
def test_what_was_not_told_and_what_stands_against_its_decision_is_seen_at_a_glance(desk: Desk) -> None:
    def findings() -> dict[str, str]:
        said = desk("doctor", "--json").documents
        return {each["what"]: each["severity"] for each in said if each["what"] in ("branches", "heuristics")}

    assert findings() == {"branches": "ok", "heuristics": "ok"}
    desk.left(overruled=True)
    desk.bank.stored.rows("UPDATE branch SET at = at - interval '1 hour'")
    (current, mortgage) = desk("status", "--json").document["branches"]
    assert (current["resource"], current["undecided"], current["waiting"], current["heuristics"]) == (
        "current",
        0,
        1,
        0,
    )
    assert 3_600 <= current["oldest"] < 4_200
    assert "current" in [line.split()[0] for line in desk("status").lines if line]
    assert findings() == {"branches": "warning", "heuristics": "ok"}
    desk("branch", "recover")
    (current, mortgage) = desk("status", "--json").document["branches"]
    assert (current["waiting"], current["oldest"]) == (0, None)
    assert (mortgage["waiting"], mortgage["heuristics"]) == (0, 1)
    assert findings() == {"branches": "ok", "heuristics": "error"}


@pytest.mark.rule("R10")
def test_an_engine_login_recovers_and_an_operator_forgets(desk: Desk) -> None:
    life = desk.left(overruled=True)
    with logins(desk.url) as made:
        assert desk("branch", "recover", TXSAGA_URL=made.url_with(Right.ENGINE)).code == 0
        operator = made.url_with(Right.OPERATOR)
        (found,) = desk("branch", "heuristics", "--json", TXSAGA_URL=operator).documents
        assert found["resource"] == "mortgage"
        assert desk("branch", "forget", str(life.txid), "--reason", "paid", TXSAGA_URL=operator).out == "1 forgotten\n"
        assert desk("branch", "heuristics", "--json", TXSAGA_URL=operator).documents == []


@pytest.mark.req("WM-48")
def test_branches_go_by_pages_and_by_state(desk: Desk) -> None:
    lives = [desk.left(account=account) for account in (1, 2, 3)]
    pages, after = list[list[str]](), list[str]()
    while page := [each["branch"] for each in desk("branch", "list", "--limit", "4", "--json", *after).documents]:
        pages.append(page)
        after = ["--after", page[-1]]
    assert [len(page) for page in pages] == [4, 2]
    listed = [branch for page in pages for branch in page]
    assert listed == [f"{life.txid}.{number}.1" for life in lives for number in (1, 2)]
    assert desk("branch", "list", "--state", "committed", "--json").documents == []
    (one,) = desk("branch", "list", "--tx", str(lives[1].txid), "--resource", "mortgage", "--json").documents
    assert one["branch"] == f"{lives[1].txid}.2.1"
    assert len(desk("branch", "list", "--limit", "2").lines) == 3


@pytest.mark.req("WM-23", "WM-41")
def test_a_producer_finds_what_its_own_group_left_or_what_everybody_did(desk: Desk) -> None:
    life = desk.left()
    bank, broker = desk.bank, desk.bank.broker
    shop = broker.producer("shop", checker=lambda _: None)
    assert list(shop.recover()) == []
    assert [len(page) for page in shop.recover("global")] == [2]
    assert [each.txid for page in bank.producer.recover(page=1) for each in page] == [life.txid, life.txid]
    with pytest.raises(ConfigError, match="use 'restricted' or 'global'"):
        shop.recover("mine")
    assert [each["txid"] for each in desk("branch", "list", "--held", "--group", "bank", "--json").documents] == [
        life.txid
    ] * 2
    assert desk("branch", "list", "--held", "--group", "shop", "--json").documents == []
    said = desk("branch", "list", "--held", **desk.away)
    assert (said.code, said.out) == (6, "")
    assert "resource 'mortgage' can't be searched" in said.complaint
    bank.engines["mortgage"].dispose()
    with txsaga.connect(desk.url, roles=False, answering=False, env=desk.known | desk.away) as elsewhere:
        with pytest.raises(ResourceManagerFailed, match="mortgage"):
            elsewhere.producer("bank", checker=lambda _: None).recover("global")


@pytest.mark.req("IBM-06", "IBM-41")
def test_what_can_be_undone_is_listed_until_it_can_not(desk: Desk) -> None:
    bank, counts = desk.bank, list[int]()

    def undo(txid: int | None) -> list[dict[str, object]]:
        found: list[dict[str, object]] = desk("tx", "show", str(txid), "--json").document["undo"]
        counts.append(len(found))
        return found

    with bank.producer.coordinated("current", key="transfer-7") as tx:
        tx.send(TRANSFERS, b"10 from current")
        tx._owner.add(tx._outbox.take())
        (branch,) = [each for each in undo(tx.txid) if each["where"] == "current"]
        assert branch["reference"] == f"txsaga:{tx.id}:1.1"
        tx.send(TRANSFERS, b"and a fee")
        tx._owner.add(tx._outbox.take())
        (branch, first) = sorted(undo(tx.txid), key=lambda each: str(each["where"]))
        assert (first["where"], first["what"]) == ("home", f"2 messages to {TRANSFERS}/0, not visible yet")
    bank.broker.kernel.notes.flush()
    assert undo(tx.txid) == []
    life = bank.left()
    assert undo(life.txid) == []  # it is committed: there is no way back, though a resource may not know yet
    other = bank.left(decided=False, account=2, key="transfer-8")
    assert [each["where"] for each in undo(other.txid)] == ["current", "mortgage"]
    lines = desk("tx", "show", str(other.txid)).lines
    assert any("the resource rolls it back" in line for line in lines)
    assert [line.split()[0] for line in lines if "branch 1 named" in line] == ["3"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("branch", "forget", "--reason", "r"), 2, "name one transaction"),
        (("branch", "forget", "1", "--all", "--reason", "r"), 2, "name one transaction"),
        (("branch", "forget", "1"), 2, "--reason"),
        (("branch", "forget", "1", "x", "--reason", "r"), 2, "'x' is not a branch"),
        (("branch", "forget", "1", "1.y", "--reason", "r"), 2, "'1.y' is not a branch"),
        (("branch", "forget", "1", "9" * 5_000, "--reason", "r"), 2, "is not a branch"),
        (("branch", "forget", "999", "--reason", "r"), 4, "999 is not in this store"),
        (("branch", "forget", "--all", "--reason", " "), 3, "give a reason"),
        (("branch", "list", "--after", "7"), 2, "'7' is not a branch"),
        (("branch", "list", "--state", "lost"), 2, "--state"),
        (("branch", "list", "--limit", "0"), 2, "--limit"),
        (("branch", "list", "--group", "shop"), 2, "it needs --held"),
        (("branch", "list", "--held", "--group", "nobody"), 4, "producer group 'nobody' does not exist"),
        (("branch", "heuristics", "--after", "x.y.z"), 2, "'x.y.z' is not a branch"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (code, "")
    assert told in said.complaint
