"""What a group says of its checks can be written by hand: what can't be read stops nobody else's."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from tests.scene.members import QUICK, Member, age
from tests.scene.shop import ORDERS, Shop, says
from tests.scene.stored import Stored
from txsaga import COMMIT

pytestmark = [pytest.mark.postgres, pytest.mark.core]
SAY = "UPDATE producer_group SET checks = CAST(:said AS jsonb) WHERE name = 'odd'"


@pytest.mark.hole("H5")
@pytest.mark.parametrize("age", ['"soon"', '"NaN"', "-1", "1e300", "[6]", "true"])
def test_a_least_age_that_nobody_can_read_is_refused_by_the_store(shop: Shop, stored: Stored, age: str) -> None:
    shop.producer("odd")
    with pytest.raises(IntegrityError, match="check constraint"):
        stored.rows(SAY, said=f'{{"min_age": {age}}}')


@pytest.mark.hole("H5")
def test_what_else_can_not_be_read_counts_as_not_said(shop: Shop, stored: Stored) -> None:
    member = Member(shop)
    txid = member.producer("odd", checker=says(COMMIT)).prepare_now(ORDERS, b"").txid
    stored.rows(SAY, said='{"interval": "soon", "max_checks": "many"}')
    age(shop)
    member.beat()
    member.lead(QUICK)
    member.answer()
    assert shop.state(txid) == "committed"
