"""What a person on call reads: what an act really does, what became of a message, and what happens next."""

from __future__ import annotations

import pytest

from tests.console.conftest import Enter
from tests.scene.shop import Shop
from tests.scene.stored import Stored
from txsaga.console.people import Rank


def text(page: str) -> str:
    return " ".join(page.split())


@pytest.fixture
def letter(shop: Shop) -> int:
    """Give the number of a dead letter of the group mailer, which has no member any more."""
    shop.broker.create_group("mailer", max_attempts=1)
    with shop.producer().transaction(key="order-7") as tx:
        tx.send("orders", b"a chair", key="inv-1")
    shop.deliver()
    consumer = shop.broker.consumer("mailer", ["orders"])
    (message,) = consumer.receive()
    message.nack(cause="no such address")
    consumer.close()
    (found,) = shop.store.dead_letters.list("mailer", 2)
    return found.id


def test_a_letter_that_no_member_reads_is_said_to_wait(shop: Shop, stored: Stored, enter: Enter, letter: int) -> None:
    client = enter(Rank.OPERATOR)
    page = text(client.get(f"/acts/replay-letter?id={letter}").text)
    assert f"<h2>Deliver letter {letter} (key inv-1) again</h2>" in page
    for words in ("orders", "no such address", "if none is running, nothing happens until one starts"):
        assert words in page
    stored.rows("UPDATE consumer_group SET seen = seen - interval '1 hour'")
    page = text(client.get(f"/acts/replay-letter?id={letter}").text)
    absent = "no member of mailer is running: nothing happens until one starts"
    assert f'N{absent[1:]}. <a href="/groups#group-mailer">' in page
    assert f"put back letter {letter} (key inv-1) for group mailer; it is delivered when a member reads" in page
    done = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "mended"}).json()
    assert done["told"].startswith(f"{absent}; letter {letter} is put back for group mailer")
    assert done["group"] == "mailer"
    assert 'id="group-mailer"' in client.get("/groups").text


def test_a_letter_that_a_member_reads_is_only_put_back(shop: Shop, enter: Enter, letter: int) -> None:
    shop.producer().send("news", b"a")
    with shop.producer().transaction() as tx:
        tx.send("orders", b"a table")
    shop.deliver()
    with shop.broker.consumer("mailer", ["orders"]) as consumer:
        assert consumer.receive()
        client = enter(Rank.OPERATOR)
        assert "no member" not in client.get(f"/acts/replay-letter?id={letter}").text.lower()
        done = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "mended"}).json()
        assert done["told"] == f"letter {letter} is put back for group mailer; it is delivered when a member reads"
    gone = client.post("/api/v1/acts/replay-letter", json={"id": str(letter), "reason": "again"})
    assert (gone.status_code, "there is no dead letter" in gone.json()["error"]) == (400, True)


def test_a_check_that_finds_nothing_is_a_notice(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer("crm").prepare_now("orders", b"a")
    shop.later(60)
    client = enter(Rank.OPERATOR)
    done = client.post("/api/v1/acts/settle", json={"id": str(receipt.txid), "reason": "slow"}).json()
    assert (done["told"], done["notice"]) == (
        "checked: no checker of group crm is running, so nothing was found out",
        True,
    )
    with shop.producer().transaction() as tx:
        tx.send("orders", b"b")
    done = client.post("/api/v1/acts/settle", json={"id": str(tx.txid), "reason": "slow"}).json()
    assert (done["told"], done["notice"]) == (f"transaction {tx.txid} is decided: COMMIT: it is decided", False)
