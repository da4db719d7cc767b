"""The kill matrix: which program dies, what is done after it, and what must then be true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.chaos import child, looping, scenarios
from tests.chaos.child import Stage
from tests.chaos.invariants import (
    assert_sound,
    by_queue,
    decisions,
    delivered,
    left_over,
    old_halves,
    parked,
    positions,
)
from tests.chaos.world import World
from txsaga.testing.kill import KillPoint

Check = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A program to kill at each of its points."""

    name: str
    run: Stage
    after: tuple[Stage, ...]
    """Programs that run after the kill, each to its end; the check holds after each of them."""
    check: Check
    end: Check
    """What holds after the last of them, and after a run that nobody killed."""
    before: tuple[tuple[Stage, str | None], ...] = ()
    """Programs that ran before, to their end or to their own kill."""
    copies: int = 1
    """In how many processes at once each program runs after the kill."""
    roles_from: str | None = None
    """The point from which on only roles are at work, which other programs kill."""
    sure: tuple[str, ...] = ()
    """Points that it is known to pass: a sample needs no run before that finds them."""

    def prepare(self, world: World) -> None:
        """Run what comes before."""
        for stage, point in self.before:
            if point is None:
                child.finish(stage, world)
            else:
                assert child.kill(stage, world, KillPoint.parse(point)), f"{stage.__name__} never came to {point}"

    def record(self, world: World) -> list[KillPoint]:
        """Run the program unharmed and return its points."""
        self.prepare(world)
        points = child.record(self.run, world)
        self._assert_all(world, {})
        self.end(world)
        names = [str(point) for point in points]
        return points[: names.index(self.roles_from)] if self.roles_from else points

    def kill(self, world: World, point: KillPoint) -> bool:
        """Kill the program at a point, go on as a user would, and check; tell whether it was killed."""
        self.prepare(world)
        killed = child.kill(self.run, world, point)
        stood = decisions(world)
        for stage in self.after:
            child.finish(stage, world, self.copies)
            self._assert_all(world, stood)
            stood = decisions(world)
        self.end(world)
        return killed

    def _assert_all(self, world: World, stood: Mapping[int, int]) -> None:
        assert_sound(world, stood)
        self.check(world)


def debits_are_credits(world: World) -> None:
    """Each debit was delivered as a credit, each once; what was acknowledged is among them."""
    debits = world.debits()
    assert debits == credits(world)
    assert set(world.notes("acknowledged")) <= set(debits)


def credits(world: World) -> list[str]:
    """Read the credits, their receipts left out."""
    return [body for body in delivered(world, scenarios.CREDITS) if not body.endswith("receipt")]


def receipts_follow(world: World) -> None:
    """The late message shares the fate of the one before it."""
    debits_are_credits(world)
    receipts = [body for body in delivered(world, scenarios.CREDITS) if body.endswith("receipt")]
    assert receipts == [f"{id} receipt" for id in credits(world)]


def cursor_follows_decisions(world: World) -> None:
    """The cursors stand behind exactly those orders whose credits are visible."""
    debits_are_credits(world)
    orders, offsets = by_queue(world, scenarios.ORDERS), positions(world, "bank")
    done = [id for qid, ids in orders.items() for id in ids[: offsets.get(qid, 0)]]
    assert sorted(done) == credits(world)


def nothing_acknowledged_is_lost(world: World) -> None:
    """Every message that was acknowledged is there once; none that was never sent."""
    sent = delivered(world, scenarios.CREDITS)
    assert set(world.notes("acknowledged")) <= set(sent) <= set(world.notes("tried"))
    assert len(sent) == len(set(sent))


def what_was_due_came(world: World) -> None:
    """Every message for later that was acknowledged is there once, and none that was recalled."""
    came = delivered(world, scenarios.REMINDERS)
    assert set(came) <= set(world.notes("tried")) - set(world.notes("recalled"))
    assert set(world.notes("acknowledged")) <= set(came)
    assert len(came) == len(set(came))


def nothing_is_parked(world: World) -> None:
    """Nothing waits for a checker that does not exist."""
    assert parked(world) == 0


def everything_was_read(world: World) -> None:
    """Readers saw each message, at least once."""
    assert set(world.notes("read")) == set(delivered(world, scenarios.CREDITS))


def all_that_can_be_known_is_settled(world: World) -> None:
    """The one transfer without evidence is undone, the others are done; the secretive ones stay invisible."""
    seen = delivered(world, scenarios.CREDITS)
    orders = sum(positions(world, "bank").values())
    assert orders >= 1
    assert len(seen) == len(("keyed transfer", "its receipt", "half")) + orders


def debits_are_credits_but_for_the_secretive(world: World) -> None:
    """Nobody is debited here."""
    assert world.debits() == []
    assert set(credits(world)) <= {"never", "never either"}


def the_secretive_are_delivered(world: World) -> None:
    """What was parked came in the end, each once."""
    assert credits(world) == ["never", "never either"]


def only_the_secretive_are_left(world: World) -> None:
    """They were delivered, and of all that was as old nothing else is there."""
    the_secretive_are_delivered(world)
    assert old_halves(world) == 2


def everything_was_worked_off(world: World) -> None:
    """Each order was worked on at least once, the consumed one exactly once; nothing waits and nothing is dead."""
    assert set(world.notes("worked")) == {"1", "2", "3"}
    assert world.debits() == ["4"]
    assert left_over(world) == {"claims": 0, "letters": 0, "unread": 0}


def replayed_once(world: World) -> None:
    """Whoever died when: every failure that was replayed was so in one transaction, and its credit came once."""
    debits_are_credits(world)
    replays = {line.split()[0]: set[str]() for line in world.notes("replayed")}
    for line in world.notes("replayed"):
        old, new = line.split()
        replays[old].add(new)
    assert all(len(found) == 1 for found in replays.values())
    assert len(replays) == len(world.debits())


def nothing_more(world: World) -> None:
    """The other checks said it all."""


def booked(*ids: str) -> Check:
    """These and no others are booked in the end."""

    def check(world: World) -> None:
        assert world.debits() == sorted(ids)

    return check


TRANSFER = Scenario(
    name="transfer",
    run=scenarios.transfer,
    after=(scenarios.check_back,),
    check=debits_are_credits,
    end=nothing_more,
)
NO_CHECKER = Scenario(
    name="messages of a group without a checker",
    run=scenarios.send_without_checker,
    after=(scenarios.check_back,),
    check=nothing_acknowledged_is_lost,
    end=nothing_is_parked,
)
IN_LOOP = Scenario(
    name="transfer within an event loop",
    run=looping.transfer_in_loop,
    after=(scenarios.check_back,),
    check=debits_are_credits,
    end=nothing_more,
)
KEYED = Scenario(
    name="keyed transfer with a late body, checked, then tried again",
    run=scenarios.keyed_transfer,
    after=(scenarios.check_back, scenarios.keyed_transfer),
    check=receipts_follow,
    end=booked("1"),
)
KEYED_AT_ONCE = Scenario(
    name="keyed transfer with a late body, tried again at once",
    run=scenarios.keyed_transfer,
    after=(scenarios.keyed_transfer,),
    check=receipts_follow,
    end=booked("1"),
)
CONSUME = Scenario(
    name="consume, book, produce",
    before=((scenarios.place_orders, None),),
    run=scenarios.pass_on,
    after=(scenarios.check_back, scenarios.pass_on),
    check=cursor_follows_decisions,
    end=booked("1", "2", "3", "4"),
)
CONSUME_BY_KEY = Scenario(
    name="consume, book, produce under keys, started again at once",
    before=((scenarios.place_orders, None),),
    run=scenarios.pass_on_by_key,
    after=(scenarios.pass_on_by_key,),
    check=cursor_follows_decisions,
    end=booked("1", "2", "3", "4"),
)
HALF = Scenario(
    name="send in transaction",
    run=scenarios.send_message_in_transaction,
    after=(scenarios.check_back,),
    check=debits_are_credits,
    end=nothing_more,
)
PLAIN = Scenario(
    name="plain send and read",
    run=scenarios.send_and_read,
    after=(scenarios.read,),
    check=nothing_acknowledged_is_lost,
    end=everything_was_read,
)
LATER = Scenario(
    name="send for later and recall",
    run=scenarios.send_for_later,
    after=(scenarios.come_due,),
    check=what_was_due_came,
    end=nothing_more,
)
REPLAY = Scenario(
    name="replay of what failed",
    run=scenarios.replay,
    after=(scenarios.replay_by_hand, scenarios.replay_by_hand),
    check=nothing_more,
    end=replayed_once,
)
CHECK_BACK = Scenario(
    name="check-back of what others left",
    before=(
        (scenarios.place_orders, None),
        (scenarios.transfer, "Prepared:1"),
        (scenarios.keyed_transfer, "Worked:1"),
        (scenarios.pass_on, "Worked:1"),
        (scenarios.send_message_in_transaction, "Deciding:1"),
        (scenarios.leave_in_doubt, None),
        (scenarios.check_back, "Heard:1"),
    ),
    run=scenarios.check_back,
    after=(scenarios.check_back,),
    check=debits_are_credits,
    end=all_that_can_be_known_is_settled,
)
RESUME = Scenario(
    name="resume what was parked, and check again",
    before=((scenarios.leave_in_doubt, None), (scenarios.check_back, None)),
    run=scenarios.resume,
    after=(scenarios.resume,),
    check=debits_are_credits_but_for_the_secretive,
    end=the_secretive_are_delivered,
)
BY_HAND = Scenario(
    name="decide by hand what was parked",
    before=((scenarios.leave_in_doubt, None), (scenarios.check_back, None)),
    run=scenarios.decide_by_hand,
    after=(scenarios.decide_by_hand,),
    check=debits_are_credits_but_for_the_secretive,
    end=the_secretive_are_delivered,
)
ROOM = Scenario(
    name="drop the partition of what was parked, then decide by hand",
    before=((scenarios.leave_in_doubt, None), (scenarios.check_back, None), (scenarios.chat, None)),
    run=scenarios.make_room,
    after=(scenarios.make_room,),
    check=debits_are_credits_but_for_the_secretive,
    end=only_the_secretive_are_left,
)
LONG = Scenario(
    name="work for longer than a lease",
    run=scenarios.work_for_long,
    after=(scenarios.check_back,),
    check=debits_are_credits,
    end=nothing_more,
)
WORK = Scenario(
    name="work off, put back, bury, consume, replay",
    before=((scenarios.place_orders, None),),
    run=scenarios.work_off,
    after=(scenarios.work_on,),
    check=debits_are_credits,
    end=everything_was_worked_off,
)
WORK_IN_ORDER = Scenario(
    name="the same in the order of keys",
    before=((scenarios.place_orders, None),),
    run=scenarios.work_off_in_order,
    after=(scenarios.work_on,),
    check=debits_are_credits,
    end=everything_was_worked_off,
)
SCENARIOS = (
    TRANSFER,
    NO_CHECKER,
    IN_LOOP,
    KEYED,
    KEYED_AT_ONCE,
    CONSUME,
    CONSUME_BY_KEY,
    HALF,
    PLAIN,
    LATER,
    REPLAY,
    CHECK_BACK,
    RESUME,
    BY_HAND,
    ROOM,
    LONG,
    WORK,
    WORK_IN_ORDER,
)
