"""The kill matrix of sagas: which program dies, what is done after it, what must then be true."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import text

from tests.chaos import sagas
from tests.chaos.invariants import delivered
from tests.chaos.matrix import Check, Scenario, nothing_more
from tests.chaos.sagas import BOOKED, CALLED
from tests.chaos.scenarios import CREDITS
from tests.chaos.world import World, database

ROLES = "Publishing:1"
"""The news that the roles begin with: their own facts are those of another program."""
WRONG = {
    "a transaction that is not over": "SELECT txid, state FROM {s}.tx WHERE state NOT IN ('committed', 'rolled_back')",
    "a saga that is not over": "SELECT * FROM {s}.saga",
    "a step that is not undone": """
        SELECT n.* FROM {s}.step n JOIN {s}.tx t USING (txid)
         WHERE t.state = 'rolled_back' AND n.action IS NULL AND n.kind IS NOT NULL AND n.state <> 'compensated'""",
    "a step of which not exactly one attempt says what undoes it": """
        SELECT n.txid, n.number FROM {s}.step n JOIN {s}.tx t USING (txid)
         WHERE t.state = 'rolled_back' GROUP BY n.txid, n.number HAVING count(n.kind) <> 1""",
    "a step behind the point of no return that is not done": """
        SELECT n.* FROM {s}.step n JOIN {s}.tx t USING (txid)
         WHERE n.action IS NOT NULL AND (t.state <> 'committed' OR n.state <> 'done')""",
    "a step that was undone although its saga committed": """
        SELECT n.* FROM {s}.step n JOIN {s}.tx t USING (txid)
         WHERE t.state = 'committed' AND n.state NOT IN ('started', 'done')""",
}
COMMITTED = "SELECT txid FROM {s}.op WHERE decision = 1 AND keyed"
ALL = "SELECT DISTINCT txid FROM {s}.step"
LINES = "SELECT saga, step, what FROM line ORDER BY id"


def undone_or_done(world: World) -> None:
    """Every step is done and stays, or it is undone, once; in the reverse order of the start."""
    with database(world.home_database) as engine, engine.connect() as connection:
        wrong = {what: connection.execute(text(sql.format(s=world.name))).all() for what, sql in WRONG.items()}
        assert not any(wrong.values()), wrong
        committed = set(connection.execute(text(COMMITTED.format(s=world.name))).scalars())
        begun = set(connection.execute(text(ALL.format(s=world.name))).scalars())
    assert set(delivered(world, CREDITS)) == {str(txid) for txid in committed}
    assert {int(txid) for txid in world.notes("acknowledged")} <= committed
    counted = Counter(line for resource in set(BOOKED.values()) for line in lines(world, resource))
    assert all(number == 1 for number in counted.values()), counted
    for txid in begun:
        for step in BOOKED:
            did, undid = counted[txid, step, "do"], counted[txid, step, "undo"]
            assert (did, undid) in ([(1, 0)] if txid in committed else [(0, 0), (1, 1)]), (txid, step, counted)
    in_reverse(world)
    calls_follow(world, begun, committed)


def in_reverse(world: World) -> None:
    """What was undone in one database was undone in the reverse order of the start."""
    for resource in set(BOOKED.values()):
        undone: dict[int, list[int]] = {}
        for saga, step, what in lines(world, resource):
            if what == "undo":
                undone.setdefault(saga, []).append(step)
        assert all(steps == sorted(steps, reverse=True) for steps in undone.values()), undone


def calls_follow(world: World, begun: set[int], committed: set[int]) -> None:
    """What leaves no evidence was undone wherever it may have been done, and tried again only where somebody died."""
    said = Counter(world.notes("calls"))
    for txid in begun:
        did, undid, mailed = (said[f"{txid} {line}"] for line in (f"{CALLED} do", f"{CALLED} undo", "6 do"))
        assert did <= 1
        if txid in committed:
            assert (did, undid) == (1, 0) and 1 <= mailed <= 2, said
        else:
            assert did <= undid <= 2 and mailed == 0, said


def lines(world: World, resource: str) -> list[tuple[int, int, str]]:
    """Read what was done in a database, in order."""
    with database(world.resources[resource]) as engine, engine.connect() as connection:
        return [(saga, step, what) for saga, step, what in connection.execute(text(LINES))]


def committed_once(world: World) -> None:
    """The key was done, once."""
    assert len(delivered(world, CREDITS)) == 1


FOUND = ((sagas.found, None),)
CHECK: Check = undone_or_done

TRAVEL = Scenario(
    name="five steps forward, three beside each other",
    before=FOUND,
    roles_from=ROLES,
    sure=("Recorded:3", "Worked:2", "Acting:1", "Acted:1", "Deciding:1", "Decided:1", "Acting:2", "Acted:2"),
    run=sagas.travel,
    after=(sagas.recover,),
    copies=2,
    check=CHECK,
    end=nothing_more,
)
STAY = Scenario(
    name="five steps, the last one fails, and back",
    before=FOUND,
    roles_from=ROLES,
    sure=("Recorded:5", "Deciding:1", "Decided:1", "Compensating:3", "Compensated:3", "Marking:1", "Worked:5"),
    run=sagas.stay,
    after=(sagas.recover,),
    copies=2,
    check=CHECK,
    end=nothing_more,
)
BY_KEY = Scenario(
    name="the same under a key, tried again at once",
    before=FOUND,
    roles_from=ROLES,
    sure=("Opened:1", "Recorded:2", "Worked:3", "Deciding:1", "Decided:1"),
    run=sagas.travel_by_key,
    after=(sagas.travel_by_key,),
    check=CHECK,
    end=committed_once,
)
BY_KEY_LATER = Scenario(
    name="the same under a key, recovered, then tried again",
    before=FOUND,
    roles_from=ROLES,
    sure=("Opened:1", "Recorded:2", "Worked:3", "Deciding:1", "Decided:1"),
    run=sagas.travel_by_key,
    after=(sagas.recover, sagas.travel_by_key),
    check=CHECK,
    end=committed_once,
)
RECOVER = Scenario(
    name="an engine that undoes and does what others left",
    before=(
        *FOUND,
        (sagas.travel, "Recorded:2"),
        (sagas.travel, "Worked:3"),
        (sagas.travel, "Decided:1"),
        (sagas.stay, "Decided:1"),
        (sagas.stay, "Compensated:2"),
    ),
    sure=("Claimed:1", "Decided:1", "Fenced:1", "Compensating:4", "Compensated:4", "Marked:1", "Worked:3", "Acted:1"),
    run=sagas.recover,
    after=(sagas.recover,),
    copies=2,
    check=CHECK,
    end=nothing_more,
)
SAGAS = (TRAVEL, STAY, BY_KEY, BY_KEY_LATER, RECOVER)
