"""
What a branch sends to PostgreSQL besides its user's own statements: the mark, the evidence row, the decision's row.

The mark distinguishes the branch's transaction from one that was opened after a commit by the user: without the mark
the statement that writes the row fails. Both are prepared once per session, when the database is checked to be the
recorded one; a session that keeps no prepared statements, as with some poolers, is sent plain text that checks it each
time. Without the mark, a row could vouch for work that was committed before it.
"""

from __future__ import annotations

from zlib import crc32

from sqlalchemy import Engine

from txsaga.core.decision import Decision
from txsaga.evidence.location import EvidenceTables
from txsaga.evidence.schema import EvidenceKey, database_table
from txsaga.evidence.statements import DURABLE
from txsaga.flows.branch import BranchId

MARK = "txsaga.branch"
ELSEWHERE = "not where the branch began: "
"""The server's error for a session that is in another transaction, or in another database."""
COMMITTED = int(Decision.COMMIT)

# The row's key waits for another holder of the same name, and so may constraints that are checked at PREPARE.
_ROW = """insert into {table} (store, incarnation, txid, branch, outcome)
  select {store}, {incarnation}, {txid}, {branch}, {outcome}
   where case when current_setting('{mark}', true) = {gid}
              then set_config('lock_timeout', '5s', true) is not null and pg_current_xact_id_if_assigned() is not null
              else ('{elsewhere}' || coalesce(current_setting('{mark}', true), ''))::int > 0 end
  returning {durable}"""
_MAIN = """insert into {table} (store, incarnation, txid, branch, outcome)
  values ('{store}', {incarnation}, {txid}, '', {outcome})"""
_HERE = "(select count(*) from {places} where uuid = '{uuid}')"
# If the check fails, the error message says so.
_ONLY_HERE = "{outcome} / (select case {here} when 1 then 1 else ('{elsewhere}' || {here})::int end)"
_MAIN_HERE = """{outcome} / (select case when {here} = 1 and current_setting('{mark}', true) = '{gid}' then 1
   else ('{elsewhere}' || {here})::int end)"""


class Texts:
    """The statements of the branches in one database."""

    def __init__(self, engine: Engine, place: EvidenceTables) -> None:
        quoted = engine.dialect.identifier_preparer
        places = quoted.format_table(database_table(place.table.schema))
        here = _HERE.format(places=places, uuid=place.database.hex)
        self._named = {
            **{"table": quoted.format_table(place.table), "mark": MARK, "elsewhere": ELSEWHERE},
            **{"here": here, "durable": DURABLE},
        }
        self._only_here = _ONLY_HERE.format(outcome=COMMITTED, here=here, elsewhere=ELSEWHERE)
        values = {"store": "$1", "incarnation": "$2", "txid": "$3", "branch": "$4", "outcome": COMMITTED}
        row = _ROW.format(**self._named, **values, gid="$5")
        name = f"txsaga_{crc32(row.encode()):08x}"
        self._mark, self._row = f"{name}_mark", f"{name}_row"
        self.name = name
        self.question = f"select {here}"
        self.preparing = (
            f"prepare {self._mark}(text) as select set_config('{MARK}', $1, true); "
            f"prepare {self._row}(text, int, bigint, text, text) as {row}"
        )

    def mark(self, branch: BranchId, *, prepared: bool) -> str:
        """Build the statement that marks a transaction as a branch's."""
        return f"execute {self._mark}('{branch.gid}')" if prepared else f"set local {MARK} = '{branch.gid}'"

    def row(self, branch: BranchId, *, prepared: bool) -> str:
        """Build the statement for a branch's row: it inserts none if nothing was written, so that is read only."""
        store, incarnation, txid = EvidenceKey.parse(branch.transaction)
        gid, evidence = branch.gid, branch.evidence
        if prepared:
            return f"execute {self._row}('{store}', {incarnation}, {txid}, '{evidence}', '{gid}')"
        given = {"store": f"'{store}'", "branch": f"'{evidence}'", "gid": f"'{gid}'", "outcome": self._only_here}
        return _ROW.format(**self._named, **given, incarnation=incarnation, txid=txid)

    def main(self, branch: BranchId) -> str:
        """Build the statement for the transaction's own row."""
        key = EvidenceKey.parse(branch.transaction)
        outcome = _MAIN_HERE.format(**self._named, outcome=COMMITTED, gid=branch.gid)
        return _MAIN.format(**self._named, **key._asdict(), outcome=outcome)
