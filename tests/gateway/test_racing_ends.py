"""Ends and checks that race, by RocketMQ's official Go client: the first decision is the only one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.beside import built, ran
from tests.gateway.calling import listening
from tests.gateway.test_checks import answering
from tests.gateway.test_official import fetched
from txsaga.broker import Broker

pytestmark = pytest.mark.postgres
NUMBER = 120


@pytest.mark.timeout(180)
def test_nothing_is_lost_doubled_or_back_from_a_rollback(broker: Broker, tmp_path: Path) -> None:
    fetched("official-go", "go", "Go")
    program = built("checks", tmp_path)
    with listening(broker) as address, answering(broker):
        said = ran(program, address, NUMBER, NUMBER)
    found = re.match(rf"outcomes {NUMBER} delivered (\d+) lost 0 twice 0 rolled back and delivered 0 ", said)
    assert found is not None, said
    assert int(found[1]) >= NUMBER // 2
