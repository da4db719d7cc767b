"""Participants that are no databases: which names they have, and where they are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.oracle import MemoryStore
from txsaga import Folder
from txsaga.config import Settings
from txsaga.errors import ConfigError, ResourceUnknown
from txsaga.resources.participant import HomeStore, Participant
from txsaga.wiring.connecting import open_store
from txsaga.wiring.resources import Participants, Resources

pytestmark = pytest.mark.core

REPORTS = Folder("reports")
PLACE = f"{__name__}:REPORTS"


def databases() -> Resources:
    return Resources({}, {"books": create_engine("sqlite://")})


class Closing(Folder):
    """A folder whose participant says that it was closed."""

    closed = 0

    def participant(self, name: str, store: HomeStore) -> Participant:  # type: ignore[override]
        participant = super().participant(name, store)
        participant.close = self.count  # type: ignore[method-assign]
        return participant

    def count(self) -> None:
        self.closed += 1


def test_a_participant_is_made_once_and_closed() -> None:
    reports = Closing("reports")
    participants = Participants(databases().participant, {"reports": reports})
    participants.store = MemoryStore()
    assert participants.find("reports") is participants.find("reports")
    participants.close()
    assert reports.closed == 1


def test_whatever_else_is_asked_for_is_a_database_or_unknown() -> None:
    participants = Participants(databases().participant, {"reports": REPORTS})
    assert participants.find("books").name == "books"
    with pytest.raises(ResourceUnknown):
        participants.find("letters")


@pytest.mark.parametrize("name", ["Reports", "", 5, "re\nports"])
def test_a_name_is_one_that_an_environment_can_say(name: str) -> None:
    with pytest.raises(ConfigError, match="lower case"):
        Participants(databases().participant, {name: REPORTS})


def test_the_environment_names_participants() -> None:
    settings = Settings.from_env({"TXSAGA_PARTICIPANT_REPORTS": PLACE})
    assert settings.participants == {"reports": PLACE}
    with pytest.raises(ConfigError, match="TXSAGA_PARTICIPANT_REPORTS is 'reports'; write module:callable"):
        Settings.from_env({"TXSAGA_PARTICIPANT_REPORTS": "reports"})


@pytest.mark.postgres
def test_a_participant_of_the_environment_is_found_and_one_that_is_passed_takes_its_place(
    home_url: str, tmp_path: Path
) -> None:
    open_store(home_url).close()
    env = {"TXSAGA_PARTICIPANT_REPORTS": PLACE}
    with txsaga.connect(home_url, roles=False, answering=False, env=env) as broker:
        with pytest.raises(ConfigError, match=r"is not a folder: .*/reports;"):
            broker.kernel.participant("reports")
    given = {"reports": Folder(tmp_path)}
    with txsaga.connect(home_url, participants=given, roles=False, answering=False, env=env) as broker:
        assert broker.kernel.participant("reports")[0].database
    with pytest.raises(ConfigError, match="can't be loaded"):
        txsaga.connect(home_url, env={"TXSAGA_PARTICIPANT_REPORTS": "nowhere:reports"})


@pytest.mark.postgres
def test_a_name_means_one_thing(home_url: str) -> None:
    books = create_engine("sqlite://")
    with pytest.raises(ConfigError, match="registered already"):
        txsaga.connect(home_url, resources={"books": books}, participants={"books": REPORTS}, env={})
