"""The transfer on the page, in Java and in Go, by the official clients."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.gateway.calling import listening
from tests.gateway.test_official import fetched
from tests.services.absent import ci_or_skip
from txsaga.broker import Broker
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxFilter
from txsaga.store.connection import parse_url

pytestmark = pytest.mark.postgres
JARS = Path(__file__).parents[2] / ".jars"
CLIENTS = Path(__file__).parent / "clients"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rocketmq-clients.md"


def java(home: Path) -> tuple[str, list[object]]:
    drivers = sorted(JARS.glob("postgresql-*.jar"))
    if not drivers:
        ci_or_skip("the PostgreSQL driver of Java", "run make jars")
    path = f"{fetched('rocketmq-client-java-*.jar', 'java', 'Maven and a JDK')}{os.pathsep}{drivers[-1]}"
    program = CLIENTS / "Transfer.java"
    return "jdbc:postgresql", ["java", f"-Duser.home={home}", "-XX:TieredStopAtLevel=1", "-cp", path, program]


def go(_home: Path) -> tuple[str, list[object]]:
    return "postgresql", [fetched("transfer-go", "go", "Go")]


def test_the_page_shows_what_is_tested() -> None:
    shown = dict(re.findall(r"^```(java|go)\n(.*?)^```", PAGE.read_text("utf-8").partition("## Join")[0], re.M | re.S))
    assert shown["java"] == (CLIENTS / "Transfer.java").read_text("utf-8")
    assert shown["go"] == (CLIENTS / "transfer" / "transfer.go").read_text("utf-8")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("program", [java, go])
def test_money_and_message_go_together(
    broker: Broker, home_url: str, program: Callable[[Path], tuple[str, list[object]]], tmp_path: Path
) -> None:
    kind, command = program(tmp_path)
    url = parse_url(home_url)[0]
    login = f"user={url.username}&password={url.password}"
    place = f"{kind}://{url.host}:{url.port}/{url.database}?{login}&sslmode=disable"
    broker.create_topic("transfers", "transaction", queues=1)
    bank = create_engine(url, poolclass=NullPool)
    with bank.begin() as connection:
        for statement in re.findall(r"^```sql\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)[0].split(";")[:-1]:
            connection.exec_driver_sql(statement)
    with listening(broker) as address:
        for expected in (True, False):  # the second time the transfer is there already
            said = [str(each) for each in [*command, address, place, "7"]]
            env = {**os.environ, "HOME": str(tmp_path)}
            ran = subprocess.run(said, env=env, capture_output=True, text=True, timeout=60)
            assert (ran.returncode == 0) is expected, ran.stdout + ran.stderr[-2000:]
    with bank.begin() as connection:
        assert connection.exec_driver_sql("SELECT balance FROM account").scalar() == 400
        connection.exec_driver_sql("DROP TABLE account, transfer")
    with broker.stream("readers", ["transfers"]) as stream:
        received = [*stream.messages(wait=2)]
    states = [each.state for each in broker.kernel.store.overview.transactions(limit=9, only=TxFilter())]
    assert sorted(states) == [TxState.COMMITTED, TxState.ROLLED_BACK]
    assert [(each.text(), each.key) for each in received] == [("100 to ben", "7")]
