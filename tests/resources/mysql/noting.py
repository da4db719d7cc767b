"""Journals for a shelf in MariaDB, and what a session is like that came back from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.flows.journal import written
from txsaga.flows.step_records import Journalled
from txsaga.resources.mysql import MysqlParticipant
from txsaga.resources.mysql_branch import MysqlBranch
from txsaga.resources.participant import LockPatience

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
PUT = "insert into item (id) values (:id)"


def journal(*texts: str, rows: int | None = None, **values: object) -> Sequence[Journalled]:
    return [Journalled(0, at, "shelf", 0, each, written(values), rows) for at, each in enumerate(texts, 1)]


def enlisted(participant: MysqlParticipant, branch: BranchId, *texts: str, **given: Any) -> MysqlBranch:
    return participant.enlist_journal(branch, journal(*texts, **given), waits=LockPatience.PATIENTLY)


def lent_again(engine: Engine) -> None:
    """Find the session that came back to the pool as it was: it takes one statement at a time, and nothing is open."""
    with engine.connect() as connection:
        with pytest.raises(ProgrammingError):
            connection.exec_driver_sql("select 1; select 2")
        connection.rollback()
        assert connection.scalar(text("select @@in_transaction")) == 0
