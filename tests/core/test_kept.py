"""What no store can keep, or no transaction can be named by, is refused at the door in one line of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.scene.shop import Shop
from txsaga.core.arguments import kind_of
from txsaga.core.identity import LAST
from txsaga.core.stored_json import as_json
from txsaga.errors import ConfigError, UnknownTransaction
from txsaga.flows.ballot import Ballot, CastVote
from txsaga.flows.coordinated import Coordinated
from txsaga.resources.tcc import Callables

BEHIND_ALL = (LAST + 1, 2**70, -(2**70), 10**5000)
IN_RANGE = f"numbers are between 1 and {LAST}"
DOORS: dict[str, Callable[[Any, Any], object]] = {
    "vote": lambda broker, txid: broker.vote(txid, "release", "anna", yes=True),
    "ballots": lambda broker, txid: broker.ballots(txid),
    "replay": lambda broker, txid: broker.replay(txid),
    "dry replay": lambda broker, txid: broker.replay(txid, dry_run=True),
    "flow": lambda broker, txid: broker.flow(txid),
}


@pytest.mark.rule("R8")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_number_that_no_transaction_has_is_unknown(any_shop: Shop, door: Callable[[Any, Any], object]) -> None:
    for txid in BEHIND_ALL:
        with pytest.raises(UnknownTransaction, match=IN_RANGE) as refusal:
            door(any_shop.broker, txid)
        assert "\n" not in str(refusal.value)


@pytest.mark.rule("R8")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_what_is_no_number_names_no_transaction(any_shop: Shop, door: Callable[[Any, Any], object]) -> None:
    wrongs: tuple[object, ...] = (None, [], True, 1.5)
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=rf"is {kind_of(wrong)}; give the number of a"):
            door(any_shop.broker, wrong)


@pytest.mark.rule("R8")
def test_an_id_with_such_a_number_is_unknown(any_shop: Shop) -> None:
    with pytest.raises(UnknownTransaction, match=IN_RANGE):
        any_shop.broker.flow(any_shop.broker.identity.transaction(2**70))


HALF = r"holds a character that can't be kept \(U\+%s\)%s; leave it out"
KEPT_BY_NOBODY: dict[str, tuple[Mapping[str, object], str]] = {
    "a NUL": ({"fine": 1, "note": "a\0b"}, HALF % ("0000", " at 'note'")),
    "a NUL behind a backslash": ({"note": ["\\\0"]}, HALF % ("0000", " at 'note'")),
    "a NUL in a name": ({"a\0b": 1}, HALF % ("0000", "")),
    "half a letter": ({"note": ["\ud800"]}, HALF % ("D800", " at 'note'")),
    "half a letter in a name": ({"deep": {"\udcff": 1}}, HALF % ("DCFF", " at 'deep'")),
    "an object": (
        {"fine": 1, "note": object()},
        "must be JSON, so that another process can continue with it: .* at 'note'",
    ),
    "no number": ({"note": float("nan")}, "must be JSON, so that another process can continue with it: .* at 'note'"),
}
KEPT = {"note": "\\u0000 is a \\ud800 text, \U0001f600"}


def an_open_one(shop: Shop, tried: list[Mapping[str, object]]) -> Coordinated:
    """Open a transaction with a service that notes what it was asked for."""
    calls = Callables(try_=lambda _, **said: tried.append(said), confirm=lambda _, **__: None, cancel=lambda _: None)
    shop.broker.enlist("pay", calls)
    return shop.producer().coordinated("pay")


@pytest.mark.postgres
@pytest.mark.parametrize(("evidence", "advice"), KEPT_BY_NOBODY.values(), ids=KEPT_BY_NOBODY)
def test_evidence_that_can_not_be_kept_is_refused(shop: Shop, evidence: Mapping[str, object], advice: str) -> None:
    with an_open_one(shop, []) as tx:
        tx.ballot("release", "anna")
        txid = tx.txid
        assert txid is not None
        for vote in (tx.vote, partial(shop.broker.vote, txid)):
            with pytest.raises(ConfigError, match=f"the evidence of voter 'anna' {advice}") as refusal:
                vote("release", "anna", yes=True, evidence=evidence)
            assert "\n" not in str(refusal.value)
        assert not shop.broker.ballots(txid)[0].casts
        tx.vote("release", "anna", yes=True, evidence=KEPT)
    (poll,) = shop.broker.ballots(txid)
    assert poll.casts[0].evidence == KEPT


@pytest.mark.parametrize(("evidence", "advice"), KEPT_BY_NOBODY.values(), ids=KEPT_BY_NOBODY)
def test_no_store_is_asked_to_keep_such_evidence(evidence: Mapping[str, object], advice: str) -> None:
    with pytest.raises(ConfigError, match=f"the evidence of voter 'anna' {advice}"):
        CastVote(voter="anna", yes=True, evidence=evidence)


@pytest.mark.postgres
@pytest.mark.parametrize(("arguments", "advice"), KEPT_BY_NOBODY.values(), ids=KEPT_BY_NOBODY)
def test_arguments_that_can_not_be_kept_are_refused(shop: Shop, arguments: Mapping[str, object], advice: str) -> None:
    tried = list[Mapping[str, object]]()
    with an_open_one(shop, tried) as tx, tx.on("pay") as pay:
        with pytest.raises(ConfigError, match=f"the arguments of 'pay' {advice}") as refusal:
            pay(**arguments)
        assert "\n" not in str(refusal.value)
        assert not tried
        pay(**KEPT)
    assert tried == [KEPT]


@pytest.mark.parametrize("names", [("rel\ud800", "anna"), ("release", "anna\udcff"), ("rel\0", "anna")], ids=ascii)
def test_a_ballot_has_names_that_can_be_kept(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs a name, and a list of different voters"):
        Ballot(name=names[0], voters=names[1:])


def test_what_is_nested_without_an_end_is_no_json() -> None:
    deep: list[object] = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="the input must be JSON"):
        as_json({"deep": deep}, "the input")
