"""Journals for a shelf in MariaDB, and what a session is like that came back from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from txsaga.adapters.xa import MysqlParticipant
from txsaga.adapters.xa.mysql_journal import MysqlJournal
from txsaga.model.branch import BranchId
from txsaga.model.decision import Decision
from txsaga.model.flow_step import Journalled
from txsaga.model.journal import written
from txsaga.ports.participants import Waits

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
PUT = "insert into item (id) values (:id)"


def journal(*texts: str, rows: int | None = None, **values: object) -> Sequence[Journalled]:
    return [Journalled(0, at, "shelf", 0, each, written(values), rows) for at, each in enumerate(texts, 1)]


def enlisted(participant: MysqlParticipant, branch: BranchId, *texts: str, **given: Any) -> MysqlJournal:  # noqa: ANN401
    return participant.enlist_journal(branch, journal(*texts, **given), waits=Waits.PATIENTLY)


def lent_again(engine: Engine) -> None:
    """Find the session that came back to the pool as it was: it takes one statement at a time, and nothing is open."""
    with engine.connect() as connection:
        with pytest.raises(ProgrammingError):
            connection.exec_driver_sql("select 1; select 2")
        connection.rollback()
        assert connection.scalar(text("select @@in_transaction")) == 0
