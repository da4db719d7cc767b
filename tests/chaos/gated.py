"""A program whose writes into tables have gates, one of which says no to an entry, whatever the program makes of that.

Each gate reads the rows that nobody sees yet. What is published passed every gate, whoever died when.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow.parquet as pq

from tests.chaos.invariants import decisions
from tests.chaos.lake_programs import LEDGER, POSTING, clerk, entry, open_tables, read, recover, tables_agree
from tests.chaos.scenarios import CREDITS
from tests.chaos.world import World
from txsaga.broker import Broker
from txsaga.core.decision import Decision
from txsaga.errors import AlreadyCommitted, NotCarried
from txsaga.flows.ballot import Ballot, CastVote, Result
from txsaga.lake.gates import Subject

REFUSED, ENTRIES = 1, (1, 2)
FACTS = ("Staging", "Staged", "Filing", "Filed")
SURE = (*(f"{fact}:{number}" for fact in FACTS for number in range(4, 8)), "Branching:1", "Branched:1")


class Reader:
    """A gate that reads what lies in files, and says no to one entry."""

    def warm(self) -> None:
        """Nothing takes long."""

    def ballot(self, name: str) -> Ballot:
        """Return the ballot of one voter."""
        return Ballot(name=name, voters=("reader",))

    def judge(self, subject: Subject) -> Sequence[CastVote]:
        """Read the rows."""
        found = [id for file in subject.files for id in ids_in(file.file_path)]
        yes = len(found) == subject.count and REFUSED not in found
        return [CastVote(voter="reader", yes=yes, evidence={"ids": found} if yes else {"why": f"there is {found}"})]


def ids_in(file: str) -> list[int]:
    """Read the entries of a file."""
    return [int(id) for id in pq.read_table(file.removeprefix("file://"), columns=["id"]).column("id").to_pylist()]


def write(broker: Broker, world: World) -> None:
    """Write two entries under keys, one of which no gate lets pass, as often as it takes."""
    producer = clerk(broker)
    open_tables(producer)
    catalog = broker.kernel.tables.lake.catalog
    for id in ENTRIES:
        with suppress(AlreadyCommitted, NotCarried):
            with producer.transaction(key=str(id)) as tx:
                with suppress(NotCarried):  # its no stands, whoever drops it
                    tx.table(LEDGER).append(entry(id), gate=Reader())
                with suppress(NotCarried), tx.table(POSTING).branch(gate=Reader()) as branch:
                    table = catalog.load_table(POSTING)
                    table.append(entry(id).cast(table.schema().as_arrow()), branch=branch.branch)
                tx.send(CREDITS, str(id).encode(), key=str(id))
            world.note("acknowledged", str(id))
    recover(broker, world)


def gates_agree(world: World) -> None:
    """Nothing of the entry is published, and what is committed passed the gates of both its tables."""
    import txsaga

    tables_agree(world)
    found = read(world)
    assert REFUSED not in found[LEDGER]
    passed = list[int]()  # how many gates each transaction has passed
    with txsaga.connect(world.home, roles=False, answering=False, env={}) as broker:
        for txid, decision in decisions(world).items():
            polls = broker.ballots(txid)
            if decision == Decision.COMMIT:
                assert all(poll.result is Result.CARRIED for poll in polls), txid
                passed.append(len(polls))
    assert [gates for gates in passed if gates] == [2] * len(found[LEDGER])


def the_others_are_there(world: World) -> None:
    """In the end the other entry is there."""
    assert read(world)[LEDGER] == [id for id in ENTRIES if id != REFUSED]
