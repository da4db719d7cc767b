"""Named votes are part of the decision: without them there is no COMMIT, whoever decides."""

from __future__ import annotations

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from tests.scene.elsewhere import Elsewhere
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, DecidedOtherwise, NotCarried, TransactionClosed
from txsaga.flows.ballot import Ballot, CastVote, Polled, Result, Rule
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated

VOTERS = ("gate", "anna", "quota")


def polled(rule: Rule, needed: int | None, said: str) -> Polled:
    """Let three voters say y, n or nothing."""
    casts = tuple(
        CastVote(voter=voter, yes=each == "y") for voter, each in zip(VOTERS, said, strict=True) if each in "yn"
    )
    return Polled(ballot=Ballot(name="release", voters=VOTERS, rule=rule, needed=needed), casts=casts)


@pytest.mark.parametrize(
    ("rule", "needed", "said", "result"),
    [
        (Rule.ALL, None, "yyy", Result.CARRIED),
        (Rule.ALL, None, "yy-", Result.OPEN),
        (Rule.ALL, None, "yn-", Result.REFUSED),
        (Rule.QUORUM, 2, "yny", Result.CARRIED),
        (Rule.QUORUM, 2, "yn-", Result.OPEN),
        (Rule.QUORUM, 2, "nn-", Result.REFUSED),
        (Rule.QUORUM, 1, "nn-", Result.OPEN),
        (Rule.WARN, None, "nnn", Result.CARRIED),
        (Rule.WARN, None, "---", Result.CARRIED),
    ],
)
def test_the_rule_says_what_carries(rule: Rule, needed: int | None, said: str, result: Result) -> None:
    assert polled(rule, needed, said).result is result


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"voters": ()},
        {"voters": ("a", "a")},
        {"voters": ("",)},
        {"rule": Rule.QUORUM},
        {"needed": 1},
        {"rule": Rule.QUORUM, "needed": 0},
        {"rule": Rule.QUORUM, "needed": 2},
        {"name": 7},
        {"voters": (["a", "b"],)},
        {"voters": "ab"},
        {"rule": "most"},
        {"rule": Rule.QUORUM, "needed": "1"},
    ],
    ids=str,
)
def test_a_ballot_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Ballot(**{"name": "release", "voters": ("a",), **wrong})  # type: ignore[arg-type]


def transfer(tx: Coordinated) -> None:
    """Move ten, and tell."""
    for name, amount in (("current", -10), ("mortgage", 10)):
        with tx.on(name) as connection:
            pay(connection, amount)
    tx.send(TRANSFERS, b"ten")


@pytest.mark.postgres
def test_votes_from_anywhere_carry_the_decision_and_stay_with_it(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.ballot("release", "gate", "anna")
        assert tx.txid is not None
        assert bank.broker.vote(tx.txid, "release", "gate", yes=True, evidence={"rows": 100})
        assert not bank.broker.vote(tx.txid, "release", "gate", yes=False)  # the first stands
        assert tx.vote("release", "anna", yes=True)
        transfer(tx)
    assert bank.balances() == {"current": START - 10, "mortgage": START + 10}
    assert bank.told() == ["ten"]
    (poll,) = bank.broker.ballots(tx.txid)
    assert [(cast.voter, cast.yes, cast.evidence) for cast in poll.casts] == [
        ("gate", True, {"rows": 100}),
        ("anna", True, {}),
    ]


@pytest.mark.postgres
@pytest.mark.parametrize("votes", [(), (False,)], ids=["missing", "no"])
@pytest.mark.parametrize("resources", [("current", "mortgage"), ("current",)], ids=["two phases", "one phase"])
def test_what_is_not_carried_leaves_nothing(bank: Bank, votes: tuple[bool, ...], resources: tuple[str, ...]) -> None:
    with pytest.raises(NotCarried, match="gate"), bank.producer.coordinated(*resources) as tx:
        tx.ballot("release", "gate")
        for name in resources:
            with tx.on(name) as connection:
                pay(connection, 1)
        tx.send(TRANSFERS, b"never")
        for yes in votes:
            tx.vote("release", "gate", yes=yes)
    assert (bank.balances(), bank.told(), bank.prepared()) == ({"current": START, "mortgage": START}, [], [])
    assert tx.decision is Decision.ROLLBACK
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.ROLLED_BACK}


@pytest.mark.postgres
def test_a_ballot_that_only_warns_stops_nothing(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.ballot("style", "gate", rule="warn")
        tx.vote("style", "gate", yes=False)
        transfer(tx)
    assert bank.told() == ["ten"]


@pytest.mark.postgres
@pytest.mark.rule("R3")
def test_nobody_votes_behind_the_decision_or_where_he_has_no_vote(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.ballot("release", "gate", "anna", rule="quorum", needed=1)
        assert tx.txid is not None
        for ballot, voter in (("release", "bert"), ("relaese", "gate")):
            with pytest.raises(ConfigError, match="its ballots and voters are release: gate, anna"):
                bank.broker.vote(tx.txid, ballot, voter, yes=True)
        with pytest.raises(ConfigError, match="use one of all, quorum, warn"):
            tx.ballot("other", "gate", rule="most")
        tx.vote("release", "gate", yes=True)
    with pytest.raises(DecidedOtherwise):
        bank.broker.vote(tx.txid, "release", "anna", yes=False)
    with pytest.raises(TransactionClosed):
        tx.ballot("late", "gate")


@pytest.mark.postgres
def test_a_vote_that_can_not_be_kept_is_refused_before_anything_is_written(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        for wrong, told in (
            ({"yes": "no"}, "yes of voter 'gate' is str; give True or False"),
            ({"yes": True, "evidence": ["x"]}, "the evidence of voter 'gate' is list; give a mapping"),
            ({"yes": True, "evidence": {"x": object()}}, "the evidence of voter 'gate' must be JSON"),
            ({"yes": True, "voter": 7}, "the voter is int; give its name"),
        ):
            with pytest.raises(ConfigError, match=told):
                tx.vote(**{"name": "release", "voter": "gate", **wrong})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a voter of ballot 'release' is list; give their names one by one"):
            tx.ballot("release", ["gate", "anna"])  # type: ignore[arg-type]
        assert bank.stored.rows("SELECT FROM ballot") == []
        tx.ballot("release", "gate")
        with pytest.raises(ConfigError, match="the name of a ballot is list; give"):
            bank.broker.vote(tx.txid or 0, ["release"], "gate", yes=True)  # type: ignore[arg-type]
        tx.vote("release", "gate", yes=True)


@pytest.mark.postgres
@pytest.mark.rule("R4")
def test_whoever_takes_a_key_over_calls_the_same_ballot_again(bank: Bank) -> None:
    first = Elsewhere(bank.producer.coordinated("current", key="loan")).__enter__()
    first.ballot("release", "gate", "anna")
    first.vote("release", "gate", yes=True)
    first._branches.leave()
    with bank.producer.coordinated("current", key="loan") as tx:
        tx.ballot("release", "gate", "anna")
        tx.vote("release", "anna", yes=True)
        with pytest.raises(ConfigError, match="ballot 'release' is already called in this transaction"):
            tx.ballot("release", "bert")
    assert (tx.txid, tx.decision) == (first.txid, Decision.COMMIT)


@pytest.mark.postgres
@pytest.mark.rule("R4", "R12")
def test_a_ballot_that_an_owner_before_has_called_is_looked_at_before_one_resource_commits(bank: Bank) -> None:
    first = Elsewhere(bank.producer.coordinated("current", key="loan")).__enter__()
    first.ballot("release", "gate")
    first._branches.leave()
    with pytest.raises(NotCarried, match="gate"), bank.producer.coordinated("current", key="loan") as tx:
        with tx.on("current") as connection:
            pay(connection, 1)
    assert bank.balances() == {"current": START, "mortgage": START}
    assert (tx.decision, bank.prepared()) == (Decision.ROLLBACK, [])
