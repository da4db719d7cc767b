"""An owner, check-back, two recoveries and a later owner act on the same transaction, in any order: all agree."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos import child, coordinated
from tests.chaos.agreement import assert_agreed, booked
from tests.chaos.conftest import Worlds
from tests.chaos.coordinated import BOTH, move, teller
from tests.chaos.scenarios import AT_ONCE
from tests.chaos.world import BANK, MORTGAGE, database, fresh_world
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.checkback.round import CheckBack
from txsaga.core.facts import Fact
from txsaga.errors import TxSagaError
from txsaga.flows.recovery import Recovery

if TYPE_CHECKING:
    from tests.services.databases import DatabaseServer

pytestmark = [pytest.mark.postgres, pytest.mark.kill]

EXAMPLES = int(os.environ.get("TXSAGA_INTERLEAVINGS") or 3)


class Refused(Exception):
    """What the user's own code raises."""


class Act(Enum):
    """What others do while an owner stands still."""

    LAPSE = "time passes: the owner looks dead"
    CHECK = "check-back"
    RECOVER = "recovery"
    RECOVER_TOO = "another recovery"
    TAKE_OVER = "a later owner of the key"


class Moment(Enum):
    """Where an owner stands still."""

    NAMED = "Named:1"
    VOTING = "Voting:1"
    VOTED = "Voted:1"
    ALL_VOTED = "Voted:2"
    ENDING = "Ending:1"
    ENDED = "Ended:1"
    WORKED = "Worked:1"
    DECIDING = "Deciding:1"
    DECIDED = "Decided:1"
    FINISHING = "Finishing:1"
    FINISHED = "Finished:1"


class Stage:
    """Everybody who acts on the transactions of one world."""

    def __init__(self, worlds: Worlds, stack: ExitStack) -> None:
        self._worlds, self._stack = worlds, stack
        self._seen: Counter[str] = Counter()
        self._open()

    def _open(self) -> None:
        self.world = self._stack.enter_context(self._worlds())
        self.plan = dict[str, list[Act]]()
        self.key: str | None = None
        self.used: Sequence[str] = BOTH
        self.alone = set[str]()  # the numbers of transactions that worked in one database
        self.others = [self._stack.enter_context(child.opened(self.world, {})) for _ in range(2)]
        self.owner = self._stack.enter_context(child.opened(self.world, {}, self._observe))
        for broker in (self.owner, *self.others):
            teller(broker)

    @contextmanager
    def believed(self) -> Iterator[None]:
        """Play somewhere else after a failure: what is wrong there would spoil every plan that comes."""
        try:
            yield
        except BaseException:
            self._open()
            raise

    def play(self, plan: Mapping[Moment, list[Act]], key: str | None, used: Sequence[str], *, refuse: bool) -> None:
        """Let an owner move money while others act where he stands still; check what he is told."""
        self.plan = {moment.value: list(acts) for moment, acts in plan.items()}
        self._seen.clear()
        self._accounts = count()  # nobody waits for the rows of one who stands still
        self.key, self.used = key, used
        line = self._moved(self.owner, refuse=refuse)
        self.plan = {}
        for resource in used if line else ():
            with database(self.world.resources[resource]) as engine, engine.connect() as connection:
                assert line in booked(connection)

    def settle(self) -> None:
        """Recover what is left, and check that all agree."""
        self.world.let_leases_run_out()
        coordinated.recover(self.others[0], self.world)
        assert_agreed(self.world, lambda resource, line: resource == BANK or line.split()[1] not in self.alone)

    def act(self, act: Act) -> None:
        """Do what somebody else does."""
        first, second = self.others
        match act:
            case Act.LAPSE:
                self.world.let_leases_run_out()
            case Act.CHECK:
                CheckBack(first.kernel, AT_ONCE).run_once()
            case Act.RECOVER:
                Recovery(first.kernel).run_once()
            case Act.RECOVER_TOO:
                Recovery(second.kernel).run_once()
            case Act.TAKE_OVER:
                if self.key is not None:
                    self._moved(second)

    def _moved(self, broker: Broker, *, refuse: bool = False) -> str:
        """Move money; return what the caller believes to be there."""
        account = str(next(self._accounts))
        try:
            with teller(broker).coordinated(*BOTH, key=self.key) as tx:
                if len(self.used) == 1:
                    self.alone.add(str(tx.txid))
                move(tx, account, self.used)
                if refuse:
                    raise Refused
        except (TxSagaError, SQLAlchemyError, Refused):
            return ""
        line = f"{account} {tx.txid}"
        self.world.note("acknowledged", line)
        return line

    def _observe(self, fact: Fact) -> None:
        self._seen[fact.name] += 1
        for act in self.plan.pop(f"{fact.name}:{self._seen[fact.name]}", ()):
            self.act(act)


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    """Let roles say nothing of what they find."""
    caplog.set_level(logging.CRITICAL, "txsaga")


@pytest.fixture(scope="module")
def stage(
    server: DatabaseServer, home_database: str, bank_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Give one world for all plans: what they did is checked together."""
    server.database(MORTGAGE)
    folder, branches = tmp_path_factory.mktemp("worlds"), {MORTGAGE: server.url(MORTGAGE)}
    with ExitStack() as stack:
        yield Stage(lambda: fresh_world(home_database, bank_database, folder, branches), stack)


PLANS = st.dictionaries(
    st.sampled_from(Moment), st.lists(st.sampled_from(Act), min_size=1, max_size=4), min_size=1, max_size=3
)


@pytest.mark.req("IBM-67", "IBM-09")
@pytest.mark.rule("R4", "R9", "R12")
@settings(max_examples=EXAMPLES, deadline=None)
@given(plan=PLANS, keyed=st.booleans(), alone=st.booleans(), refuse=st.booleans())
@example(plan={Moment.ENDING: [Act.LAPSE, Act.CHECK]}, keyed=False, alone=True, refuse=False)
@example(plan={Moment.ALL_VOTED: [Act.TAKE_OVER, Act.RECOVER]}, keyed=True, alone=False, refuse=False)
@example(plan={Moment.VOTING: [Act.LAPSE, Act.CHECK, Act.RECOVER]}, keyed=False, alone=False, refuse=False)
def test_whoever_acts_while_an_owner_stands_still_all_agree(
    stage: Stage, plan: dict[Moment, list[Act]], keyed: bool, alone: bool, refuse: bool
) -> None:
    with stage.believed():
        stage.play(plan, fresh_name("key") if keyed else None, BOTH[:1] if alone else BOTH, refuse=refuse)
        stage.settle()
