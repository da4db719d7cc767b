"""
A flow as one of its processes sees it: the process joins, runs its steps, and leaves; the last one ends the flow.

    flow = producer.begin_flow("current", "mortgage", lanes=["audit"], key="transfer-7")   once, or repeated
    with producer.flow("transfer-7") as flow:                                              in any process
        with flow.step("debit", on="current") as connection: …
        flow.end()                                                                         in the last one

Leaving the block decides nothing: the flow waits for its next process until its lease expires. A process that dies
loses only the step that it was in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack

from txsaga.consume.dead_letter import short_cause
from txsaga.consume.delivery import Consumed, Delivery, PendingConsumption, consume
from txsaga.core import facts
from txsaga.core.arguments import check_duration, check_kind, check_text, list_of
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.core.kernel import Kernel
from txsaga.core.layout import Batch
from txsaga.core.message import Message, SendOptions, as_message
from txsaga.core.records import TxRecord
from txsaga.core.role_loop import Pace
from txsaga.errors import BrokerClosed, ConfigError, NotCompensated, StoreUnavailable, TransactionError, TxSagaError
from txsaga.flows.actions import FIRST_PAUSE, OUTLIVES, Doing, Undo, asked, elsewhere
from txsaga.flows.ballot import Ballot, CastVote, Rule, rule_of
from txsaga.flows.ballots import call_ballot, vote
from txsaga.flows.flow_begin import entered, opened
from txsaga.flows.flow_end import FlowEnding
from txsaga.flows.flow_step import FlowStepWork, StepCall, declared
from txsaga.flows.flow_tables import FlowTables
from txsaga.flows.lane import FlowLane, able
from txsaga.flows.requests import Entered
from txsaga.flows.saga_driver import undo, undo_after
from txsaga.flows.step import (
    BUDGET,
    HOME,
    Application,
    Enrolled,
    Hold,
    Overdue,
    StepState,
    read_hold,
    require_application,
)
from txsaga.flows.step_attempts import Attempted, StepPlace, attempted
from txsaga.lake.gates import Gate, Judged
from txsaga.lake.table_writes import HomeTable, Table
from txsaga.resources.participant import Journals, Participant

logger = logging.getLogger("txsaga")

AMENDS = "__amends__"
"""The header of a message that names the transaction whose messages it replaces."""
NO_OTHER_INPUT = "that flow's message is done, and another message can't amend it; begin a separate flow for it"
BUDGETS = "budgets"
OVER = "OVER BUDGET"
"""The audit row of a step that holds its locks for too long."""


class Flow:
    """A flow as used by one process."""

    def __init__(self, kernel: Kernel, found: Entered) -> None:
        self._kernel, self._life = kernel, found.life
        self._amended = found.amendment and found.amendment.of
        self._enrolled = {(each.resource, each.lane) for each in found.enrolled}
        self._step: FlowStepWork | None = None
        self._listeners: list[Callable[[Decision], None]] = []
        self.decision: Decision | None = None

    def __repr__(self) -> str:
        return f"<Flow {self.txid}, {'undecided' if self.decision is None else self.decision.name.lower()}>"

    @property
    def txid(self) -> int:
        """The number of its transaction."""
        return self._life.txid

    @property
    def id(self) -> str:
        """The id that names store and transaction."""
        return self._kernel.store.registry.identity.transaction(self.txid)

    @property
    def amends(self) -> str | None:
        """The id of the committed transaction that it amends: what it publishes replaces that one's."""
        return None if self._amended is None else self._kernel.store.registry.identity.transaction(self._amended)

    if not TYPE_CHECKING:  # which finds a wrong name by itself
        __getattr__ = elsewhere(OUTLIVES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the flow to its next process."""

    def step(
        self,
        name: str,
        *,
        on: str | None = None,
        lane: str | None = None,
        hold: Hold | str | None = None,
        compensate: Doing | Undo | None = None,
        input: Mapping[str, object] | None = None,
        application: Mapping[str, object] | None = None,
    ) -> AbstractContextManager[Any]:
        """Run a step: work on a resource or in a lane, or only sending; raise `StepDone` if it is already done.

        `hold` is "prepared" (executed now, locks held until the decision) or "journal" (statements executed at the
        decision); by default, what the resource supports. After a ROLLBACK, `compensate` runs with `input` if the step
        may have left something: held work is gone, what a lane committed is there, a step without a resource is
        unknown. `application` names what works here, for others that wait for it: `attempt(name)` returns it.
        """
        _check_name(name)
        self._require_no_step()
        place = self._place(on, lane, read_hold(hold))
        start = declared(self._kernel, name, on or lane, compensate, input)
        who = None
        if application is not None:
            require_application(application)
            if place is not None:
                raise TransactionError(
                    f"step {name!r} has an application and works on {on or lane!r}; "
                    "an application works without on= and lane="
                )
            who = Application(self._kernel.member, application)
        return FlowStepWork(self._kernel, self._life, name, place, self._under_way, start, who)

    def call(
        self,
        name: str,
        do: Doing,
        *,
        input: Mapping[str, object] | None = None,
        compensate: Doing | Undo | None = None,
        on: str | None = None,
        retries: int = 0,
        timeout: float | None = None,
        pause: float = FIRST_PAUSE,
    ) -> Any:  # what the step returns
        """Run a step that commits at once, and return its result, or the earlier one if it is done already.

        `do` is as for a saga's step: a function, a statement, an `Http`, a `Send`. In a resource it is done once,
        elsewhere at least once. After a ROLLBACK, `compensate` runs with `input`.
        """
        _check_name(name)
        self._require_no_step()
        times = {"retries": retries, "timeout": timeout, "pause": pause}
        wanted = asked(do, compensate=compensate, on=on, name=name, input=input, **times)  # type: ignore[arg-type]
        return StepCall(self._kernel, self._life).run(wanted)

    def is_done(self, name: str) -> bool:
        """Return whether the last attempt of a step is done."""
        _check_name(name)
        with self._kernel.store.ledgers.open() as ledger:
            steps = ledger.flows.steps(self.txid, name)
        return bool(steps) and steps[-1].state is StepState.DONE

    def attempt(self, name: str) -> Attempted | None:
        """Return the last attempt of a step, with its application and whether that is alive."""
        _check_name(name)
        return attempted(self._kernel, self.txid, name)

    def hand_on(self, result: object) -> None:
        """Store the result of the open step when it ends: `attempt(name)` returns it."""
        self._open_step("hands results on").hand_on(result)

    def lane(self, resource: str) -> FlowLane:
        """Return the lane of a resource: its open unit can be committed or rolled back by itself, from here too."""
        self._require_enrolled(resource, lane=True)
        return FlowLane(self._kernel, self._life, resource)

    def send(self, topic: str | Message, body: bytes | None = None, **options: Unpack[SendOptions]) -> None:
        """Add a message in the open step; it counts when the step is done."""
        step, message = self._open_step("sends"), as_message(topic, body, options)
        step.outbox.add(message if self.amends is None else _amending(message, self.amends))

    def table(self, name: str) -> Table:
        """Return a table of the home catalog, in the open step; what is written counts when the step is done."""
        return self._open_step("writes to tables").tables.table(name)

    def token(self) -> str:
        """Return the token by which Iceberg clients join the open step: what they commit counts when it is done."""
        return self._open_step("is joined").tables.token()

    def rows(self, table: str) -> HomeTable:
        """Return a table of the home database, in the open step; its rows are written when the flow commits."""
        return self._open_step("writes rows").tables.rows(table)

    def check(self, about: str, rows: object, gate: Gate) -> Judged:
        """Let a gate check rows or messages in the open step; if it rejects them, the flow can't commit."""
        return self._open_step("has gates").tables.check(about, rows, gate)

    def check_staged(self, name: str, gate: Gate) -> Judged:
        """Let a gate check what earlier steps have staged for a table."""
        return self._open_step("has gates").tables.check_staged(name, gate)

    def frames(self) -> FlowTables:
        """Return where the open step records which frames of messages count."""
        return self._open_step("sends frames").tables

    def _open_step(self, what: str) -> FlowStepWork:
        if self._step is None:
            raise TransactionError(f"a flow {what} in its steps; write `with flow.step(…):` around it")
        return self._step

    def consume(self, consumed: Consumed | Delivery, batch: Batch | None = None) -> None:
        """Consume a message, or move a cursor past a chunk, with the decision, once the open step is done.

        If the step is never done, the message is delivered again. Until then it is held for its consumer's invisible
        time.
        """
        consume(self, consumed, batch)

    def take(self, portion: PendingConsumption) -> None:
        """Keep what was consumed until the open step ends."""
        step = self._open_step("consumes")
        if self._amended is not None:
            raise ConfigError(f"flow {self.txid} amends transaction {self._amended}, and {NO_OTHER_INPUT}")
        ours = self._kernel.store.registry.identity
        if portion.store.uuid != ours.uuid:
            raise TransactionError(f"it is in another store than flow {self.txid}: {portion.store}, not {ours}")
        step.take(portion)

    def join_life(self) -> TxRecord:
        """Return the transaction record, to bind other work to it."""
        return self._life

    def when_decided(self, listener: Callable[[Decision], None]) -> None:
        """Call a listener with the decision, if it is made here."""
        self._listeners.append(listener)

    def ballot(self, name: str, *voters: str, rule: Rule | str = Rule.ALL, needed: int | None = None) -> None:
        """Open a ballot: unless it is carried, the flow can only roll back."""
        called = Ballot(name=name, voters=voters, rule=rule_of(rule), needed=needed)
        call_ballot(self._kernel, self._life, called, opened)

    def vote(self, name: str, voter: str, *, yes: bool, evidence: Mapping[str, object] | None = None) -> bool:
        """Cast a vote in one of its ballots; False if this voter has already voted."""
        return vote(self._kernel, self.txid, name, CastVote(voter=voter, yes=yes, evidence=evidence or {}))

    def touch(self) -> None:
        """Renew the lease of the flow: a process still waits for it."""
        with self._kernel.announce.around(facts.Touching, self.txid), self._kernel.store.ledgers.open() as ledger:
            entered(ledger, self._life)

    def end(self, *, handled: Collection[str] = ()) -> None:
        """Commit the flow, or roll it back and raise why; every step must be done, or its failure handled."""
        ending = self._ending(handled=list_of(handled, "handled", "give a list of the names of steps"))

        def follow(error: BaseException) -> None:
            if ending.decision is Decision.ROLLBACK:
                undo_after(self._kernel, ending.life, error)
            elif ending.decision is None and isinstance(error, StoreUnavailable):
                with suppress(TxSagaError), self._kernel.store.ledgers.open() as ledger:  # it may be unavailable itself
                    ledger.record(self.txid, "END FAILED", who=self._kernel.member, why=short_cause(str(error)))

        with report_failure(follow), ending:
            self._listen(ending)
            ending.do_journals()

    def roll_back(self, why: str = "the flow was rolled back") -> None:
        """Roll the flow back and undo what committed by itself; raise `NotCompensated` if that is not done yet."""
        check_kind(why, str, "why", "give a text")
        ending = self._ending(journals=False)
        with ending:
            self._listen(ending)
            ending.give_up(why)
        if ending.decision is Decision.ROLLBACK:
            try:
                undo(self._kernel, ending.life)
            except BrokerClosed as closed:
                raise NotCompensated(self.txid, f"{closed}; an engine continues") from closed

    def _ending(self, *, handled: Collection[str] = (), journals: bool = True) -> FlowEnding:
        self._require_no_step()
        for name, aux in sorted(self._enrolled):
            if aux:
                self.lane(name).hear_out()
        group = self._kernel.store.registry.group_by_id(self._life.group)  # which only the end needs
        return FlowEnding(self._kernel, group, self._life, handled=handled, journals=journals)

    def _listen(self, ending: FlowEnding) -> None:
        for listener in (self._decided, *self._listeners):
            ending.when_decided(listener)

    def _decided(self, decision: Decision) -> None:
        self.decision = decision

    def _under_way(self, step: FlowStepWork | None) -> None:
        if step is not None:
            self._require_no_step()
        self._step = step

    def _place(self, on: str | None, lane: str | None, hold: Hold | None) -> StepPlace | None:
        if on is None and lane is None:
            return None
        if on is not None and lane is not None:
            raise ConfigError("a step has on= or lane=, not both; make two steps")
        if on == HOME:
            return _home(hold)
        name = on or lane or ""
        self._require_enrolled(name, lane=on is None)
        if hold is Hold.JOURNAL and lane is None:  # executed later, by the process that ends the flow
            recorded, participant = None, self._kernel.reach(name)
        else:
            known, participant = able(self._kernel, name) if on is None else self._kernel.participant(name)
            recorded = known.id
        hold = hold or (Hold.PREPARED if participant.capabilities.two_phase else Hold.JOURNAL)
        _require_able(participant, hold)
        return StepPlace(resource=name, hold=hold, participant=participant, recorded=recorded, lane=on is None)

    def _require_enrolled(self, resource: str, *, lane: bool) -> None:
        check_text(resource, "the resource", "give the name of one that the flow was begun with")
        if (resource, lane) not in self._enrolled:
            known = ", ".join(sorted(name for name, each in self._enrolled if each is lane)) or "none"
            what = "lane" if lane else "resource"
            raise ConfigError(
                f"{resource!r} is not a {what} of flow {self.txid}, which has {known}; name it in begin_flow(…)"
            )

    def _require_no_step(self) -> None:
        if self._step is not None:
            raise TransactionError("a step of this flow is open in this process; leave it first")


def enrolled(
    kernel: Kernel, resources: Sequence[str], lanes: Sequence[str], budget: timedelta | Mapping[str, timedelta]
) -> list[Enrolled]:
    """Return what a flow is begun with; refuse what is not registered, or can't have a lane."""
    lanes = list_of(lanes, "lanes", "give a list of the names of resources")
    named = [*((name, False) for name in resources), *((name, True) for name in lanes)]
    for name, _ in named:
        check_text(name, "a resource of a flow", "give the name of a registered one")
    if len(set(named)) != len(named) or HOME in {name for name, _ in named}:
        raise ConfigError(f"name each resource and each lane of a flow once; {HOME!r} is always included, leave it out")
    budgets = budget if isinstance(budget, Mapping) else dict.fromkeys((name for name, _ in named), budget)
    for each in budgets.values():
        check_duration(each, "budget", timedelta(days=365))
    for name, lane in named:
        able(kernel, name) if lane else kernel.participant(name)
    return [Enrolled(name, lane, budgets.get(name, BUDGET)) for name, lane in named]


def _amending(message: Message, transaction: str) -> Message:
    """Add a header with the transaction whose messages this one replaces; wrong headers are refused later."""
    headers = message.headers or {}
    return replace(message, headers={**headers, AMENDS: transaction}) if isinstance(headers, Mapping) else message


def _check_name(name: object) -> None:
    check_text(name, "the name of a step", "give a name, the same one in each of its attempts")


def _home(hold: Hold | None) -> StepPlace:
    if hold is Hold.PREPARED:
        raise ConfigError('rows of the home database are part of the decision\'s own commit; hold them with "journal"')
    return StepPlace(resource=HOME, hold=Hold.JOURNAL)


def _require_able(participant: Participant, hold: Hold) -> None:
    kind = participant.capabilities.kind
    if hold is Hold.PREPARED and not participant.capabilities.two_phase:
        raise ConfigError(f'{participant.name!r} can\'t vote, as no {kind} can: hold its work with "journal"')
    if hold is Hold.JOURNAL and not isinstance(participant, Journals):
        raise ConfigError(f'{participant.name!r} takes no statements, as no {kind} does: hold its work "prepared"')


class Budgets:
    """Reports once, and logs, locks that flows hold for longer than their budget.

    Nothing is stopped: people judge whether a flow waits for a good reason. If this never runs, locks are held all the
    same; the metrics of the store still count them.
    """

    name = BUDGETS
    pace = Pace(5.0, 15.0)

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def run_once(self) -> int:
        """Report each step that holds its locks for longer than its budget; return how many there are."""
        return sum(self._tell(each) for each in self._kernel.store.flows.overdue())

    def _tell(self, step: Overdue) -> bool:
        where = f"the lane of {step.resource!r}" if step.lane else repr(step.resource)
        held, budget = step.held.total_seconds(), step.budget.total_seconds()
        why = f"step {step.name!r} has held its locks in {where} for {held:.0f} s, its budget is {budget:g} s"
        with self._kernel.announce.around(facts.Alarming, step.txid, about=step.resource):
            with self._kernel.store.ledgers.open() as ledger:
                ledger.lock(step.txid)
                if told := ledger.flows.alarm(step.txid, step.number, step.attempt):
                    ledger.record(step.txid, OVER, who=BUDGETS, why=why)
        if told:
            logger.warning("flow %d: %s", step.txid, why, extra={"txid": step.txid})
        return told
