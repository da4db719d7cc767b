"""Votes from a terminal: cast once, listed while they are missing, kept with who and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from txsaga.broker import Broker
from txsaga.cli.options import os_user
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.flows.ballot import Ballot, Rule
from txsaga.messages.decide import DecidedBy

pytestmark = pytest.mark.postgres

BY = DecidedBy(who="a test", why="it is over")
WHY = ("--reason", "looked at it")


@pytest.fixture
def life(broker: Broker) -> TxRecord:
    """Give an open transaction with a ballot of two voters."""
    group = broker.kernel.store.registry.group("bank", transactional=True)
    with broker.kernel.store.ledgers.open() as ledger:
        life = ledger.create(group.id, None, 1)
        assert life is not None
        ledger.call(life.txid, Ballot(name="release", voters=("anna", "rows", "quota"), rule=Rule.QUORUM, needed=2))
    return life


def test_a_ballot_is_listed_until_its_transaction_is_over(cli: Cli, broker: Broker, life: TxRecord) -> None:
    said = cli("tx", "vote", str(life.txid), "release", "yes", "--voter", "anna", *WHY)
    assert (said.code, said.err) == (0, "")
    assert said.out.strip() == f"anna voted yes in ballot release of transaction {life.txid}: it is open"
    (line,) = [line for line in cli("tx", "ballots").lines if line.split()[0] == str(life.txid)]
    voted = f"anna: {WHY[-1]}".split()
    assert line.split() == [str(life.txid), "release", "quorum", "2", "open", *voted, "-", "rows,", "quota"]
    (listed,) = [each for each in cli("tx", "ballots", "--json").documents if each["txid"] == life.txid]
    (vote,) = listed["votes"]
    assert (vote["voter"], vote["yes"]) == ("anna", True)
    assert vote["evidence"] == {"reason": "looked at it", "by": os_user()}
    broker.kernel.decider.decide(life.txid, Decision.ROLLBACK, BY)
    assert life.txid not in [each["txid"] for each in cli("tx", "ballots", "--json").documents]
    (kept,) = cli("tx", "ballots", str(life.txid), "--json").documents
    assert kept["votes"] == listed["votes"]


def test_the_first_vote_of_a_voter_stands(cli: Cli, life: TxRecord) -> None:
    words = ("tx", "vote", str(life.txid), "release")
    first, again = (cli(*words, "no", "--voter", "rows", *WHY, "--json") for _ in range(2))
    assert (first.document["counted"], again.document["counted"]) == (True, False)
    assert again.document["votes"] == first.document["votes"]
    other = cli(*words, "yes", "--voter", "rows", *WHY)
    assert other.code == 5
    assert "the first vote is final" in other.err
    (last,) = cli("tx", "ballots", str(life.txid), "--json").documents
    assert [each["yes"] for each in last["votes"]] == [False]
    assert "rows: looked at it" in cli("tx", "ballots", str(life.txid)).out


def test_expectations_that_only_warn_are_counted(cli: Cli, broker: Broker, life: TxRecord) -> None:
    results = [{"success": True}, {"success": False, "severity": "warning"}]
    for voter, found in (("anna", results), ("rows", [*results, results[1]]), ("quota", results[:1])):
        assert broker.vote(life.txid, "release", voter, yes=True, evidence={"results": found})
    said = cli("tx", "ballots", str(life.txid))
    assert "anna (1 warning), rows (2 warnings), quota " in said.out


def test_votes_carry_a_ballot_or_refuse_it(cli: Cli, life: TxRecord) -> None:
    words = ("tx", "vote", str(life.txid), "release")
    results = [
        cli(*words, word, "--voter", voter, *WHY, "--json").document["result"]
        for voter, word in (("anna", "no"), ("rows", "yes"), ("quota", "yes"))
    ]
    assert results == ["open", "open", "carried"]


def test_a_voter_is_the_account_unless_it_is_said(cli: Cli, broker: Broker, life: TxRecord) -> None:
    account = os_user().rpartition("@")[0]
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.call(life.txid, Ballot(name="own", voters=(account,)))
    assert cli("tx", "vote", str(life.txid), "own", "yes", *WHY).code == 0
    assert [poll.result.name for poll in broker.ballots(life.txid)] == ["CARRIED", "OPEN"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("release", "yes", "--voter", "berta", *WHY), 3),
        (("another", "yes", "--voter", "anna", *WHY), 3),
        (("release", "maybe", "--voter", "anna", *WHY), 2),
        (("release", "yes", "--voter", "anna"), 2),
        (("release", "yes", "--voter", "anna", "--reason", " "), 3),
    ],
)
def test_a_mistake_changes_nothing(cli: Cli, broker: Broker, life: TxRecord, words: tuple[str, ...], code: int) -> None:
    assert cli("tx", "vote", str(life.txid), *words).code == code
    (poll,) = broker.ballots(life.txid)
    assert poll.casts == ()


def test_nobody_votes_on_what_is_over_or_not_there(cli: Cli, broker: Broker, life: TxRecord) -> None:
    broker.kernel.decider.decide(life.txid, Decision.ROLLBACK, BY)
    words = ("release", "yes", "--voter", "anna", *WHY)
    assert cli("tx", "vote", str(life.txid), *words).code == 5
    assert cli("tx", "vote", str(life.txid + 1_000_000), *words).code == 4
    assert cli("tx", "ballots", str(life.txid + 1_000_000), "--json").documents == []


def test_the_votes_on_a_transaction_are_a_page(cli: Cli, life: TxRecord, tmp_path: Path) -> None:
    cli("tx", "vote", str(life.txid), "release", "no", "--voter", "anna", "--reason", "<b>wrong</b>")
    page = tmp_path / "votes.html"
    assert f"the report is in {page}" in cli("tx", "ballots", str(life.txid), "--html", str(page)).out
    told = page.read_text("utf-8")
    assert "<h2>release: open</h2>" in told and "&lt;b&gt;wrong&lt;/b&gt;" in told and "<b>" not in told
    refused = cli("tx", "ballots", "--html", str(page))
    assert refused.code == 3 and "give its id" in refused.err
