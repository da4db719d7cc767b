"""A password is not shown, however malformed the address around it is and wherever it was given."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial

import pytest

import txsaga
from tests.cli.conftest import Cli
from txsaga.airflow_host.rest import Airflow
from txsaga.config import Settings
from txsaga.core.redacting import redacted
from txsaga.errors import ConfigError, TxSagaError
from txsaga.wiring.resources import resource_engine

pytestmark = pytest.mark.core

SECRET = "".join(("s3", "cr3", "t"))  # no line of this file holds it: tracebacks show lines
WRONG = [
    "user:{}@127.0.0.1/db",
    "postgres//u:{}@127.0.0.1",
    "postgresql:/u:{}@127.0.0.1/db",
    "postgresql//u:{}@127.0.0.1:1/db",
    "postgresql+u:{}@127.0.0.1://127.0.0.1/db",
    "u:{}@127.0.0.1://x",
    " postgresql://u:{}@127.0.0.1/db",
    "postgresql://u:{}@127.0.0.1",
    "postgresql://u:{}@127.0.0.1:x/db",
    "postgresql://u:{}@127.0.0.1:1/db?namespace=A",
    "postgresql://u:{}@127.0.0.1:1/db?namespace=a&namespace=b",
    "postgresql://u:{}@127.0.0.1:1/db?password=a&password={}",
    "postgresql://u:{}@127.0.0.1:1/db?port=x",
    "postgresql://u:{}@127.0.0.1:1/db?nonsense=1",
    "postgresql://u:a@{}@127.0.0.1:1/db",
    "postgresql://u:a/{}@127.0.0.1:1/db",
    "postgresql://u:a@{}/x@127.0.0.1:1/db",
    "postgresql://u:a?{}@127.0.0.1:1/db",
    "postgresql://u:a#{}@127.0.0.1:1/db",
    "postgresql://u:[{}@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1?password={}",
    "host=127.0.0.1 password={}",
    "mysql://u:{}@127.0.0.1/db",
    "http://u:{}",
    "http://u:1/{}@127.0.0.1",
    "http://[u:{}@127.0.0.1",
    "s3://key:{}@bucket/tables",
    "s3://bucket/tables?secret={}",
    "zz://key:{}@bucket/tables",
]
SETTINGS = [
    "TXSAGA_PARTICIPANT_OTHER",
    "TXSAGA_OBSERVERS",
    "TXSAGA_SAGAS",
    "TXSAGA_AUTO_CREATE",
    "TXSAGA_CATALOG",
    "TXSAGA_AIRFLOW_NAME",
    "TXSAGA_SPARK_MASTER",
    "TXSAGA_AIRFLOW_HOME",
    "TXSAGA_PG_HOME",
    "TXSAGA_KILL",
    "TXSAGA_FACTS",
]
ENTRANCES: dict[str, Callable[[str], object]] = {
    "connect": lambda url: txsaga.connect(url, roles=False, answering=False, patience=0, env={}).close(),
    "resource": lambda url: resource_engine(url, "TXSAGA_RESOURCE_BILLING"),
    "airflow": Airflow,
    **{name: partial(lambda name, url: Settings.from_env({name: url}), name) for name in SETTINGS},
}
wrong = pytest.mark.parametrize("url", [url.format(SECRET, SECRET) for url in WRONG], ids=WRONG)


@wrong
def test_no_setting_and_no_option_shows_a_password(cli: Cli, url: str) -> None:
    for said in (
        *(cli("topic", "list", "--debug", **{f"TXSAGA_{name}": url}) for name in ("URL", "RESOURCE_A", "AIRFLOW_URL")),
        cli("topic", "list", "--debug", "--url", url, "--namespace", "n"),
        cli("topic", "list", TXSAGA_WAREHOUSE=url),
        cli("barrier", "create", url, "--debug"),
    ):
        assert SECRET not in said.out + said.err
        assert "unexpected" not in said.err


@wrong
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_no_error_carries_a_password(entrance: str, url: str) -> None:
    try:
        ENTRANCES[entrance](url)
    except TxSagaError as error:
        assert SECRET not in f"{error}{error!r}{''.join(traceback.format_exception(error))}"


def test_settings_can_be_shown() -> None:
    url = f"postgresql://u:{SECRET}@host/db"
    named = {name: url for name in ("TXSAGA_URL", "TXSAGA_RESOURCE_A", "TXSAGA_BROKER_B")}
    settings = Settings.from_env(named | {"TXSAGA_AIRFLOW_URL": f"http://u:{SECRET}@host"})
    assert settings.url == settings.resources["a"] == settings.brokers["b"] == url
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:p@h:1/db", "postgresql://***@h:1/db"),
        ("postgresql://h/db?password=p&sslmode=require", "postgresql://h/db?***"),
        ("u:p@h/db", "***@h/db"),
        ("postgres//u:p@h", "***@h"),
        ("postgresql://u:p@q@h/db", "postgresql://***@h/db"),
        ("postgresql://h/db?password=p@q", "postgresql://***@"),
        ("postgresql://u:a?b@h/db", "postgresql://***@"),
        ("http://u:p", "http://u:***"),
        ("host=h password=p", "host=***"),
        ("orders", "orders"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    assert redacted(address) == shown


def test_an_at_sign_in_a_password_is_to_be_written_otherwise() -> None:
    for entrance in ("connect", "resource"):
        with pytest.raises(ConfigError, match="write it as %40"):
            ENTRANCES[entrance]("postgresql://u:a@b@127.0.0.1:1/db")
