"""`txsaga tx replay` and `tx show` through the entry point: a failure is looked at, replayed once, and linked."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from tests.cli.conftest import Cli
from txsaga.broker import Broker
from txsaga.cli.options import os_user
from txsaga.core.records import Receipt
from txsaga.messages.producer import Producer

YES = ("--yes", "--reason", "the shop called")


@pytest.fixture
def producer(broker: Broker) -> Producer:
    """Give a producer whose checker never knows."""
    return broker.producer("shop", checker=lambda question: None)


@pytest.fixture
def failed(producer: Producer, flow: str) -> Receipt:
    """Give a half that was rolled back."""
    receipt = producer.prepare_now(flow, b"half")
    producer.roll_back(receipt)
    return receipt


@pytest.mark.req("IBM-65")
def test_what_failed_is_found_looked_at_and_sent_again(cli: Cli, failed: Receipt, flow: str) -> None:
    listed = cli("tx", "list", "--json").documents
    assert failed.txid in [view["txid"] for view in listed if view["state"] == "rolled_back"]
    looked = cli("tx", "replay", str(failed.txid))
    assert (looked.code, looked.err) == (0, "")
    assert looked.lines[1].split() == [flow, "0", "1"]
    assert looked.lines[-1] == "nothing was sent; pass --yes --reason WHY to do it"
    assert cli("tail", flow, "--json").documents == []
    done = cli("tx", "replay", str(failed.txid), *YES)
    found = re.search(rf"^transaction {failed.txid} is replayed as transaction (\d+)$", done.out, re.M)
    assert (done.code, bool(found)) == (0, True)
    (message,) = cli("tail", flow, "--json").documents
    assert message["body"] == "half"


@pytest.mark.req("IBM-65")
def test_either_transaction_shows_the_other_and_who_linked_them(cli: Cli, failed: Receipt) -> None:
    done = cli("tx", "replay", str(failed.txid), "--json", *YES).document
    assert (done["done"], done["again"], done["txid"]) == (True, False, failed.txid)
    old, new = (cli("tx", "show", str(txid), "--json").document for txid in (failed.txid, done["replayed_as"]))
    assert (old["replayed_as"], new["replays"]) == (new["txid"], old["txid"])
    (link,) = [step for step in old["timeline"]["steps"] if step["what"] == f"replayed as transaction {new['txid']}"]
    assert (link["who"], link["why"]) == (os_user(), "the shop called")
    assert f"replays transaction {failed.txid}" in cli("tx", "show", str(new["txid"])).out


@pytest.mark.req("IBM-65")
def test_a_second_call_tells_of_the_first(cli: Cli, failed: Receipt, flow: str) -> None:
    first = cli("tx", "replay", str(failed.txid), "--json", *YES).document
    again = cli("tx", "replay", str(failed.txid), *YES)
    told = f"transaction {failed.txid} was replayed before, as transaction {first['replayed_as']}"
    assert (again.code, again.lines[-1]) == (0, told)
    assert cli("tx", "replay", str(failed.txid)).lines[-1] == told
    assert len(cli("tail", flow, "--json").documents) == 1


@pytest.mark.req("IBM-65")
def test_what_was_not_rolled_back_is_refused_in_one_line(cli: Cli, producer: Producer, flow: str) -> None:
    good, half = (producer.prepare_now(flow, body) for body in (b"good", b"half"))
    producer.commit(good)
    for txid, why in ((good.txid, "was committed: its messages are delivered"), (half.txid, "is undecided")):
        for words in ((), YES):
            said = cli("tx", "replay", str(txid), *words)
            assert (said.code, said.out) == (5, "")
            assert said.complaint == f"txsaga: transaction {txid} {why}; only rolled-back transactions can be replayed"
    assert cli("tx", "replay", "999999999").code == 4


def test_a_replay_is_kept_with_a_reason(cli: Cli, failed: Receipt) -> None:
    said = cli("tx", "replay", str(failed.txid), "--yes")
    assert (said.code, "--reason" in said.complaint) == (2, True)
    assert cli("tx", "replay", str(failed.txid), "--yes", "--reason", " ").code == 3
    assert cli("tx", "replay", str(failed.txid), "--json").document["replayed_as"] is None


@pytest.mark.req("IBM-65")
def test_a_replay_may_have_a_key_of_its_own(cli: Cli, failed: Receipt) -> None:
    done = cli("tx", "replay", str(failed.txid), "--key", f"by-hand-{failed.txid}", "--json", *YES).document
    assert cli("tx", "show", str(done["replayed_as"]), "--json").document["key"] == f"by-hand-{failed.txid}"


@pytest.mark.req("IBM-42")
def test_show_draws_the_lanes_and_tells_each_step(cli: Cli, failed: Receipt, flow: str) -> None:
    lines = cli("tx", "show", str(failed.txid)).lines
    at = lines.index("MAIN  x -")
    assert lines[at - 1 : at + 2] == ["      1 2", "MAIN  x -", "x change   = undo data held   - none"]
    assert lines[at + 3].split() == ["step", "at", "lane", "what", "who", "why"]
    assert lines[at + 4].endswith(f"MAIN  1 message to {flow}/0")
    assert lines[at + 5].endswith("MAIN  ROLLBACK")


@pytest.mark.req("IBM-42")
def test_show_gives_programs_the_same_timeline(cli: Cli, producer: Producer, flow: str) -> None:
    tx = producer.transaction(key=flow)
    with tx:
        tx.send(flow, b"x")
    cli("tail", flow)
    told = cli("tx", "show", str(tx.txid), "--json").document["timeline"]
    (lane,) = told["lanes"]
    assert (lane, told["legend"]["x"]) == ({"lane": "MAIN", "marks": "xx=--"}, "change")
    moments = [step["at"] for step in told["steps"] if step["at"]]
    assert moments == sorted(moments, key=datetime.fromisoformat)
    said = [step["what"] for step in told["steps"]]
    assert said[:2] == [f"opened under key {flow}, attempt 1", f"1 message to {flow}/0"]
    assert said[2:] == ["sealed by its owner", "COMMIT", f"offset 0 of {flow}/0 assigned"]


def test_a_name_can_not_move_the_cursor_of_who_looks(cli: Cli, producer: Producer, flow: str) -> None:
    tx = producer.transaction(key=f"{flow}\x1b[2J\n")
    tx.__enter__()
    said = cli("tx", "show", str(tx.txid))
    assert f"opened under key {flow}\\x1b[2J\\n, attempt 1" in said.out
    assert "\x1b[2J" not in said.out
