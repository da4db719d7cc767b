"""
One attempt of a step, running in this process: held work as a block, or a call that commits on its own.

    with flow.step("debit", on="current") as connection:                     executed now, held prepared
    with flow.step("credit", on="mortgage", hold="journal") as journal:      recorded now, executed at the decision
    with flow.step("tell"): flow.send("transfers", b"…")                     only messages

Leaving it prepares the work and then records that the step is done: if a process dies between the two, the next attempt
rolls the prepared branch back. An exception rolls the work back, and propagates.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from txsaga import errors
from txsaga.checkback.heartbeat import Presence
from txsaga.consume.delivery import PendingConsumption, bind_all
from txsaga.core import facts
from txsaga.core.arguments import check_kind
from txsaga.core.decision import Decision
from txsaga.core.failure import report_failure
from txsaga.core.kernel import Kernel
from txsaga.core.records import Doubt, TxRecord
from txsaga.core.stored_json import as_json
from txsaga.core.topic import SendKind
from txsaga.flows.actions import Doing, RequestedStep, Undo, undoing
from txsaga.flows.batches import noted
from txsaga.flows.branch import BranchId, Finish, Vote
from txsaga.flows.flow_tables import FlowTables
from txsaga.flows.journal import Journal, taken
from txsaga.flows.requests import Start
from txsaga.flows.self_deadlock import SelfDeadlockDetector, held_by
from txsaga.flows.step import HOME, Application, Left, Step, StepKind
from txsaga.flows.step_attempts import Attempts, Begun, StepPlace, free
from txsaga.flows.step_execution import StepActions
from txsaga.messages.message_buffer import Outbox
from txsaga.resources.participant import EnlistedBranch, ShowsLocks

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger

logger = logging.getLogger("txsaga")


class FlowStepWork:
    """One attempt of a step, as a context manager; used once."""

    def __init__(
        self,
        kernel: Kernel,
        life: TxRecord,
        name: str,
        place: StepPlace | None,
        under_way: Callable[[FlowStepWork | None], None],
        declared: Start | None = None,
        application: Application | None = None,
    ) -> None:
        self._kernel, self._life, self._name, self._under_way = kernel, life, name, under_way
        self._application = application
        self._declared, self._leaving = declared, ExitStack()
        self._place, self._participant = place, None if place is None else place.participant
        self._attempts = Attempts(kernel, life)
        self._portions: list[PendingConsumption] = []
        self._branch: BranchId | None = None
        self._session: EnlistedBranch | None = None
        self._journal = Journal()
        self._watch = SelfDeadlockDetector(life.txid)
        self._begun: Begun | None = None
        self._tables: FlowTables | None = None
        self.outbox = Outbox(kernel.topics, SendKind.HALF)

    @property
    def tables(self) -> FlowTables:
        """What this attempt writes to tables."""
        if self._tables is None:
            self._tables = FlowTables(self._kernel, self._step, self._joined)
        return self._tables

    def hand_on(self, result: object) -> None:
        """Keep the result of the application until the step ends."""
        if self._application is None:
            raise errors.TransactionError(
                f"step {self._name!r} has no application; pass flow.step(…, application={{…}})"
            )
        kept = as_json(result, f"what step {self._name!r} returned")
        self._application = self._application._replace(result=kept)

    def take(self, portion: PendingConsumption) -> None:
        """Keep what was consumed: it becomes the flow's when this attempt is done."""
        self._portions.append(portion)

    def _joined(self, what: str) -> TxRecord:
        return self._life

    def _record(self, ledger: Ledger) -> None:
        """Record table writes and consumed messages in the commit that ends the step."""
        if self._tables is not None:
            self._tables.record(ledger)
        bind_all(self._portions, ledger, self._life)

    def __enter__(self) -> Any:  # for most resources, a SQLAlchemy connection; a journal; nothing
        """Begin the attempt, and the work of its branch."""
        if self._begun is not None:
            raise errors.TransactionClosed("a step's block is used once; make another one with flow.step(…)")
        with ExitStack() as leaving:
            who = None if self._application is None else self._name
            leaving.enter_context(Presence(self._kernel, self._life.txid, self._declared, who))
            begun = self._begun = self._attempts.begin(self._name, self._place, self._declared, self._mark())
            self._leaving = leaving.pop_all()
        self._under_way(self)
        self._kernel.running.begin(self, Doubt.of(self._life))
        try:
            handle = self._opened(begun, self._place)
        except BaseException as error:
            self._fail(error)
            self._over()
            raise
        return handle

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Prepare the work and record that the step is done, or roll it back."""
        self._watch.close()
        try:
            if (own_lock := self._watch.found(self._name)) is not None:
                self._fail(own_lock)
                raise own_lock from error
            if error is not None:
                self._fail(error)
            else:
                self._finish()
        finally:
            self._over()

    @property
    def _step(self) -> Step:
        assert self._begun is not None
        return self._begun.step

    def _opened(self, begun: Begun, place: StepPlace | None) -> object:
        if place is None:
            return None
        if self._participant is not None:
            here = [(each.branch or 0, each.attempt) for each in begun.earlier if each.resource == place.resource]
            free(self._kernel, self._life.txid, self._participant, here)
        if begun.step.branch is None or self._participant is None:
            return self._journal
        transaction = self._kernel.store.registry.identity.transaction(self._life.txid)
        self._branch = BranchId(transaction, begun.step.branch, begun.step.attempt)
        self._session, held = self._participant.enlist(self._branch), held_by(transaction, begun.held)
        self._watch.enter(self._name, self._participant, self._session, held=held, who=f"step {self._name!r}")
        return self._session.handle

    def _finish(self) -> None:
        step, vote = self._step._replace(mark=self._mark()), None
        if self._session is not None:
            with report_failure(self._fail):
                step, vote = self._prepared(self._session)
        try:
            entries, rows = taken(self._journal), self.outbox.take_whole()
            self._attempts.done(step, vote=vote, entries=entries, rows=rows, also=self._record)
        except (errors.OutcomeUnknown, errors.StoreUnavailable) as unknown:
            self._put_back(unknown)  # it may be done; if not, the next attempt rolls it back
            raise
        except Exception as no:
            self._fail(no)
            raise
        for portion in self._portions:
            portion.settle()

    def _prepared(self, session: EnlistedBranch) -> tuple[Step, Vote]:
        assert self._participant is not None
        step = self._step
        if isinstance(self._participant, ShowsLocks):
            step = step._replace(mark=self._participant.mark(session))
        with self._kernel.announce.around(facts.Voting, step.txid, about=self._participant.name):
            vote = session.prepare()()
        return step, vote

    def _fail(self, error: BaseException) -> None:
        """Roll the work back and record that the attempt failed; if that fails, the next attempt does it."""
        taken_back = self._take_back()  # first: no rows stay locked while messages are returned one by one
        self._put_back(error)
        left = Left.NOTHING if isinstance(error, errors.StepLeftOut) else Left.UNKNOWN
        if self._attempts.failed(self._step, error, left) and taken_back and self._branch is not None:
            self._kernel.notes.add([noted(self._life.txid, self._branch, Decision.ROLLBACK, Finish.DONE)])

    def _mark(self) -> str:
        return "" if self._application is None else self._application.written()

    def _put_back(self, error: BaseException) -> None:
        """Return consumed messages for redelivery; what is bound nevertheless stays the flow's."""
        portions, self._portions = self._portions, []
        for portion in reversed(portions):
            portion.go_back(error)

    def _take_back(self) -> bool:
        """Roll the open or prepared work back; return whether that is done."""
        if self._session is None or self._participant is None:
            return False
        try:
            with self._kernel.announce.around(facts.Finishing, self._life.txid, about=self._participant.name):
                self._session.finish(Decision.ROLLBACK)()
        except errors.TxSagaError as reason:
            logger.warning("step %r can't be rolled back here; recovery rolls it back: %s", self._name, reason)
            return False
        return True

    def _over(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.leave()
            except Exception:  # prepared work stays prepared; the resource rolls back the rest
                logger.warning("the session of step %r could not be released", self._name, exc_info=True)
        self._kernel.running.end(self)
        self._leaving.close()
        self._under_way(None)


class StepCall:
    """One attempt of a step that is not held work: a function, a statement, a call to a service, a message.

    In a resource it leaves a row in its own commit, and is done once, however often it is tried. Anywhere else it is
    done at least once: if a process dies before the step is written as done, it runs again. Its compensation is written
    before it runs. If the end is never written, the next attempt finds the row, or runs the step again.
    """

    def __init__(self, kernel: Kernel, life: TxRecord) -> None:
        self._kernel, self._life = kernel, life
        self._attempts, self._acting = Attempts(kernel, life), StepActions(kernel)

    def run(self, asked: RequestedStep) -> object:
        """Run it, and return its result; if it was done before, return the stored result."""
        if asked.action.resource is not None:
            self._kernel.resource(asked.action.resource)
        start = asked.start(0)
        with Presence(self._kernel, self._life.txid, start):
            try:
                step = self._attempts.begin(asked.name, None, start).step
            except errors.StepDone:
                return self._known(asked.name)
            self._kernel.running.begin(self, Doubt.of(self._life))
            try:
                failed = partial(self._attempts.failed, step)
                output, told = self._acting.run(self._life, step.number, asked, failed)
                self._attempts.done(step._replace(output=told))
                return output
            finally:
                self._kernel.running.end(self)

    def _known(self, name: str) -> object:
        steps = self._kernel.store.work.steps(self._life.txid)
        output = next((step.output for step in steps if step.name == name), None)
        return None if output is None else json.loads(output)


def declared(
    kernel: Kernel, name: str, where: str | None, compensate: Doing | Undo | None, input: Mapping[str, object] | None
) -> Start | None:
    """Check the compensation of a step; return what is to be written, None without one."""
    undo = undoing(compensate, where)
    if undo is None:
        if input is not None:
            raise errors.ConfigError(f"step {name!r} has input= but no compensation for it; give compensate= too")
        return None
    if where == HOME:
        raise errors.ConfigError(
            f"the rows of step {name!r} are only written by COMMIT, so nothing has to be undone; leave compensate= out"
        )
    if input is not None:
        check_kind(input, Mapping, "the input of a step", "give a mapping of names to JSON values")
    if undo.resource is not None:
        kernel.resource(undo.resource)
    kept = as_json(dict(input or {}), f"the input of step {name!r}")
    kind = StepKind.CALL if where is None else StepKind.HELD
    return Start(0, name, kind, where, kept, undo.written())
