"""The end of a half by request: what it carries, which half it finds, and what it is refused for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest

import txsaga
from tests.scene.shop import ORDERS, Shop, closing, order, says
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga import COMMIT, ROLLBACK, UNKNOWN, LocalState
from txsaga.core.decision import ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.records import DecisionOutcome
from txsaga.errors import EndRefused, UnknownTransaction
from txsaga.rocketmq import EndRequest, EndRequestHandler
from txsaga.wiring.connecting import open_store


def captured(shop: Shop, group: str = "shop") -> EndRequest:
    """Send a half that stays pending, and return its end request as it went out."""
    ends: list[EndRequest] = []
    shop.mq_producer(group, end_hooks=[ends.append]).send_message_in_transaction(
        order(key="42"), executor=says(UNKNOWN)
    )
    return ends[-1]


def end(shop: Shop, request: EndRequest) -> DecisionOutcome | None:
    """Run an end request."""
    pending = EndRequestHandler(shop.broker.kernel).submit(request)
    return None if pending is None else pending.result(10)


@pytest.fixture
def other_shop(home_database: str) -> Iterator[Shop]:
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('other')}"
    open_store(url).close()
    with closing(Shop(txsaga.connect(url, roles=False, env={}), Stored(url).let_pass)) as shop:
        yield shop


@pytest.mark.req("RMQ-47")
@pytest.mark.conf("SCH-01")
def test_an_end_request_fits_its_half(shop: Shop) -> None:
    request = captured(shop)
    (listed,) = shop.listed()
    view = shop.view(listed.txid)
    assert (request.message_id, request.transaction_id, request.topic) == (view.id, listed.id, ORDERS)
    assert (request.commit_log_offset, request.state_table_offset) == (listed.txid, listed.txid)
    assert (request.broker, request.group) == (str(shop.broker.identity), "shop")
    assert (request.state, request.from_check, request.remark) == (UNKNOWN, False, "")
    names = "message_id transaction_id broker group state token state_table_offset commit_log_offset"
    assert [f.name for f in fields(EndRequest)] == [
        *names.split(),
        "from_check",
        "remark",
        "topic",
        "message",
    ]


@pytest.mark.req("RMQ-15")
@pytest.mark.conf("BRK-01", "BRK-02", "BRK-03", "BRK-04", "BRK-08", "BRK-09")
@pytest.mark.parametrize("from_check", [False, True])
@pytest.mark.parametrize(("state", "stands"), [(COMMIT, "committed"), (ROLLBACK, "rolled_back"), (UNKNOWN, None)])
def test_an_end_decides_or_is_no_decision(shop: Shop, state: LocalState, stands: str | None, from_check: bool) -> None:
    """The null answer of the cases to UNKNOWN is no future here: nothing is asked of the store."""
    request = captured(shop)
    standing = end(shop, replace(request, state=state, from_check=from_check))
    view = shop.transaction(request.commit_log_offset)
    if stands is None:
        assert (standing, view.state) == (None, "prepared")
    else:
        assert standing is not None
        assert (standing.code, standing.won, standing.decision) == (ReplyCode.SUCCESS, True, state.decision)
        assert (view.state, view.from_check) == (stands, from_check)
    assert len(shop.read()) == (state is COMMIT)


@pytest.mark.req("RMQ-46")
def test_an_end_goes_to_the_store_that_holds_the_half(shop: Shop, other_shop: Shop) -> None:
    requests = [captured(shop), captured(other_shop)]
    assert requests[0].commit_log_offset == requests[1].commit_log_offset  # only the store tells them apart
    for request, home, wrong in zip(requests, (shop, other_shop), (other_shop, shop), strict=True):
        half = HalfId.decode(request.message_id)
        assert (half.store, half.txid) == (home.broker.identity, request.commit_log_offset)
        with pytest.raises(EndRefused, match=f"it belongs to store {home.broker.identity}") as refused:
            end(wrong, replace(request, state=COMMIT))
        assert refused.value.code == "SYSTEM_ERROR"
    assert end(other_shop, replace(requests[1], state=COMMIT)) is not None
    assert (other_shop.bodies(), shop.bodies()) == (["a chair"], [])
    assert shop.state(requests[0].commit_log_offset) == "prepared"


Spoil = Callable[[Shop, EndRequest], EndRequest]
WRONG: dict[str, tuple[Spoil, str]] = {
    "the producer group": (
        lambda shop, request: replace(request, group=shop.producer("bank").group.name),
        "producer group wrong",
    ),
    "a group that nobody registered": (
        lambda _, request: replace(request, group="nobody"),
        "producer group wrong: 'nobody' is not registered",
    ),
    "the state table offset": (
        lambda _, request: replace(request, state_table_offset=request.state_table_offset + 1),
        "transaction state table offset wrong",
    ),
    "the log offset": (
        lambda _, request: replace(request, commit_log_offset=request.commit_log_offset - 1),
        "commit log offset wrong",
    ),
    "a half that is not there": (
        lambda _, request: for_number(request, request.commit_log_offset + 1000),
        "half not found",
    ),
    "a message id of somebody else": (
        lambda _, request: replace(request, message_id="AC11000100002A9F0000000000000000"),
        "Find prepared transaction message failed",
    ),
}


def for_number(request: EndRequest, txid: int) -> EndRequest:
    half = replace(HalfId.decode(request.message_id), txid=txid)
    return replace(request, message_id=half.encode(), state_table_offset=txid, commit_log_offset=txid)


@pytest.mark.req("RMQ-88", "RMQ-54", "RMQ-56")
@pytest.mark.conf("RC-J4", "RC-C4")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(("spoil", "reason"), WRONG.values(), ids=WRONG)
def test_an_end_that_does_not_fit_its_half_is_refused(shop: Shop, spoil: Spoil, reason: str, state: LocalState) -> None:
    request = captured(shop)
    with pytest.raises(EndRefused, match=f"(?i){reason}") as refused:
        end(shop, spoil(shop, replace(request, state=state)))
    assert refused.value.code == "SYSTEM_ERROR"
    assert shop.state(request.commit_log_offset) == "prepared"
    assert shop.bodies() == []


@pytest.mark.conf("AUT-03")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_request_with_nothing_to_authorise_is_refused(shop: Shop, state: LocalState) -> None:
    """The case lets an end without a topic through unchecked; here the stored half is the authority."""
    request = replace(captured(shop), state=state)
    bare = [
        replace(request, message_id=""),
        replace(request, token=b""),
        replace(request, group=""),
        replace(request, topic="", token=b"guess"),
    ]
    for attempt in bare:
        with pytest.raises((EndRefused, UnknownTransaction)):
            end(shop, attempt)
    assert shop.state(request.commit_log_offset) == "prepared"


@pytest.mark.req("RMQ-92", "RMQ-54", "RMQ-56")
@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT), (COMMIT, COMMIT)])
def test_the_first_decision_stands_whoever_comes_later(shop: Shop, first: LocalState, second: LocalState) -> None:
    request = captured(shop)
    assert end(shop, replace(request, state=first)) is not None
    late = end(shop, replace(request, state=second, from_check=True))
    assert late is not None
    assert (late.decision, late.won) == (first.decision, False)
    assert len(shop.read()) == (first is COMMIT)


@pytest.mark.parametrize("answer", [True, False, "commit"])
def test_local_work_that_returns_no_answer_is_unknown_and_says_so(shop: Shop, answer: object) -> None:
    ends: list[EndRequest] = []
    sent = shop.mq_producer(end_hooks=[ends.append]).send_message_in_transaction(order(), executor=lambda *_: answer)  # type: ignore[arg-type]
    (request,) = ends
    assert (sent.local_state, request.state) == (UNKNOWN, UNKNOWN)
    told = f"the local work returned {answer!r}, not an answer; return COMMIT, ROLLBACK or UNKNOWN"
    assert request.remark == told
