"""What shows a receipt, an end request or a life shows no token: it stands in logs and on screens."""

from __future__ import annotations

from txsaga.core.decision import LocalState
from txsaga.core.lifecycle import TxState
from txsaga.core.records import Receipt, TxRecord
from txsaga.rocketmq import EndRequest

TOKEN = b"a token"


def test_the_token_is_not_shown() -> None:
    life = TxRecord(txid=1, group=2, token=TOKEN, key=None, epoch=1, owner=1, state=TxState.ACTIVE)
    request = EndRequest(
        message_id="m",
        transaction_id="t",
        broker="b",
        group="g",
        state=LocalState.COMMIT,
        token=TOKEN,
        state_table_offset=1,
        commit_log_offset=1,
    )
    shown = [repr(each) for each in (Receipt(1, 2, TOKEN), life, request)]
    assert shown[0].startswith("Receipt(txid=1, group=2, ")
    assert not any("a token" in each for each in shown)
