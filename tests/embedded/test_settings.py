"""The environment is read in one place and nowhere else."""

from pathlib import Path

import pytest

from tests.embedded.callers import IS_ROOT
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError


def test_the_three_variables_set_home_binaries_and_account() -> None:
    server = EmbeddedServer.from_env({"TXSAGA_PG_HOME": "/srv/pg", "TXSAGA_PG_BIN": "/srv/bin", "TXSAGA_PG_USER": "db"})
    assert (server.home, server.binaries, server.account) == (Path("/srv/pg"), Path("/srv/bin"), "db")


def test_an_empty_variable_counts_as_unset() -> None:
    server = EmbeddedServer.from_env({"TXSAGA_PG_HOME": "", "TXSAGA_PG_BIN": "", "TXSAGA_PG_USER": ""})
    assert server == EmbeddedServer.from_env({})


@pytest.mark.skipif(IS_ROOT, reason="root has one home for all")
def test_an_ordinary_user_keeps_the_home_where_their_data_is() -> None:
    assert EmbeddedServer.from_env({"HOME": "/srv/anna"}).home == Path("/srv/anna/.local/share/txsaga/pg")
    assert EmbeddedServer.from_env({"XDG_DATA_HOME": "/srv/data"}).home == Path("/srv/data/txsaga/pg")


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user may not write there")
def test_root_keeps_the_home_where_the_server_account_can_enter() -> None:
    assert EmbeddedServer.from_env({"HOME": "/srv/anna"}).home == Path("/var/lib/txsaga/pg")


@pytest.mark.parametrize("home", ["pg", "./pg", "~/pg"])
def test_a_relative_home_is_refused_since_each_working_directory_would_have_its_own(home: str) -> None:
    with pytest.raises(ConfigError, match=r"TXSAGA_PG_HOME is '.*pg'; write an absolute path"):
        EmbeddedServer.from_env({"TXSAGA_PG_HOME": home})
