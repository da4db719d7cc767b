"""
What each act would do, in order, as a person reads it before giving a reason: from what is stored, with nothing done.

An entry says what it `does`, and to `what`; some have a `number`, `where` it happens, or `by` what. Every act has a
plan: what would change nothing says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txsaga.console.queries import ConsoleQueries
from txsaga.console.subjects import letter_of, number_in, subject_of
from txsaga.core.identity import number_of
from txsaga.core.lifecycle import TxState
from txsaga.core.records import NO_WORK_OUTSIDE
from txsaga.errors import UnknownGroup, UnknownTransaction
from txsaga.flows.actions import Action
from txsaga.flows.branch import HEURISTIC
from txsaga.flows.step import STEP, StepEvent, StepState, last_attempts
from txsaga.inspect.preview import preview_of

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.flows.step import Step
    from txsaga.inspect.overview import Reading
    from txsaga.inspect.trace import Trace

Said = Mapping[str, Any]
"""What the form of an act holds: a reason, and what else it needs."""
Entry = dict[str, object]
Plan = Callable[["Broker", str, Said], Sequence[Entry]]
NOTHING = "change nothing"


def _entry(does: str, what: str, **more: object) -> list[Entry]:
    return [{"does": does, "what": what, **more}]


def together(entries: Iterable[Entry]) -> list[Entry]:
    """Return the plan of several acts: what differs only in its number is added up."""
    found = dict[object, Entry]()
    for at, each in enumerate(entries):
        rest = {name: value for name, value in each.items() if name != "number"}
        key = at if each.get("number") is None else repr(rest)
        kept = found.setdefault(key, {**each, "number": 0} if key != at else each)
        if key != at:
            kept["number"] = int(str(kept["number"])) + int(str(each["number"]))
    return [*found.values()]


def _trace(broker: Broker, id: str) -> Trace:
    txid = number_of(id, broker.identity)
    trace = broker.kernel.store.overview.trace(txid)
    if trace is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    return trace


def _final(trace: Trace) -> list[Entry]:
    """Say that a decided transaction stays as it is."""
    assert trace.decision is not None
    return _entry(NOTHING, f"of transaction {trace.txid}, which is decided: {trace.decision.name}")


def decision(*, undo: bool) -> Plan:
    """Return the plan of COMMIT or ROLLBACK."""

    def plan(broker: Broker, id: str, said: Said) -> list[Entry]:
        trace = _trace(broker, id)
        if found := [each._asdict() for each in preview_of(trace, undo=undo)]:
            return found
        word = "ROLLBACK" if undo else "COMMIT"
        decided = _entry("record", f"the decision {word} of transaction {trace.txid}, which holds nothing")
        return decided if trace.decision is None else _final(trace)

    return plan


def check(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of a check now."""
    trace = _trace(broker, id)
    name = f"transaction {trace.txid}"
    if trace.decision is not None:
        return _final(trace)
    if trace.due is not None:
        return _entry(NOTHING, f"of {name}, a delayed message: an engine commits it when it is due")
    if trace.life is not None and trace.life.state is TxState.ACTIVE:
        return _entry(NOTHING, f"of {name}, which is still open: only its owner ends it, or an engine if it is silent")
    if trace.resource is None and not _is_bare(broker, trace):
        return _asked(broker, trace)
    return _found(broker, trace)


def _asked(broker: Broker, trace: Trace) -> list[Entry]:
    group = broker.kernel.store.registry.group_by_id(trace.group).name
    if trace.listed is not None and trace.listed.parked is not None:
        return _entry(NOTHING, f"of transaction {trace.txid}, which is parked: resume it, and a checker is asked")
    what = f"the next check of transaction {trace.txid} to now; an engine then asks a checker of group {group}"
    return _entry("move", f"{what}, which commits it, rolls it back, or does not know; it counts as one of its checks")


def _found(broker: Broker, trace: Trace) -> list[Entry]:
    """Say what its evidence decides."""
    if trace.resource is None:
        return _entry("roll back", f"transaction {trace.txid}: its owner never decided it")
    where = trace.resource.name
    read = _entry("read", f"the evidence of transaction {trace.txid}", where=where)
    return read + _entry("commit", "it if its row is there, else roll it back unless its work still runs")


def _is_bare(broker: Broker, trace: Trace) -> bool:
    """Return whether it is known to have no work outside of the store."""
    doubt = broker.kernel.store.doubts.of(trace.txid)
    return doubt is not None and doubt.evidence == NO_WORK_OUTSIDE


def resumed(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of resuming a parked transaction."""
    trace = _trace(broker, id)
    if trace.decision is not None:
        return _final(trace)
    if trace.listed is None or trace.listed.parked is None:
        return _entry(NOTHING, f"of transaction {trace.txid}: it is not parked")
    group = broker.kernel.store.registry.group_by_id(trace.group).name
    asks = f"reads its evidence in {trace.resource.name}" if trace.resource else f"asks a checker of group {group}"
    what = (
        f"the checks of transaction {trace.txid} from 0 on; an engine {asks}, and commits it, rolls it back, or waits"
    )
    return _entry("count", what)


def replayed(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of sending the messages of a transaction that was rolled back again."""
    planned = broker.replay(number_of(id, broker.identity), key=said.get("key") or None, why="plan", dry_run=True)
    sent: list[Entry] = [{"does": "send", **each._asdict()} for each in planned.messages]
    left = [each for what in planned.left_out for each in _entry("leave out", what)]
    return sent + left or _entry(NOTHING, "since no message is left of it")


def retried(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of trying the compensation of a step again."""
    step, name = _step(broker, id, said)
    if step is None or step.state is not StepState.COMPENSATION_FAILED or step.compensation is None:
        return _entry(NOTHING, f"of {name}, which is not out of retries")
    undo = Action.read(step.compensation)
    what = f"{name} again, after {step.tries} tries; an engine does it"
    return _entry("compensate", what, where=undo.resource, by=undo.what)


def skipped(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of leaving the work of a step as it is."""
    step, name = _step(broker, id, said)
    if step is None or (step.state, StepEvent.SKIP) not in STEP.moves:
        return _entry(NOTHING, f"of {name}, which has nothing to be undone")
    stays = f"its work stays in {step.resource}" if step.resource else "its work stays as it is"
    return _entry("mark", f"{name} as settled without doing anything; {stays}, and the saga goes on")


def _step(broker: Broker, id: str, said: Said) -> tuple[Step | None, str]:
    """Return the step that is said, if it is there, and its name."""
    number = number_in(said, "step")
    steps = last_attempts(broker.kernel.store.work.steps(number_of(id, broker.identity)))
    found = next((step for step in steps if step.number == number), None)
    return found, f"step {number} {found.name}" if found else f"step {number}"


def forgotten(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of forgetting a branch that a resource decided by itself."""
    trace, number, attempt = _trace(broker, id), number_in(said, "branch"), number_in(said, "attempt")
    name = f"branch {number}.{attempt}"
    found = [each for each in trace.branches if (each.number, each.attempt) == (number, attempt)]
    if not found or found[0].state not in HEURISTIC or trace.decision is None:
        return _entry(NOTHING, f"of {name}: only one that a resource decided by itself can be forgotten")
    against = f"{found[0].state.replace('_', ' ')} though transaction {trace.txid} is decided: {trace.decision.name}"
    return _entry("forget", f"that {name} is {against}; no data of {found[0].resource} changes")


def delivered(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of delivering a dead letter again."""
    letter = letter_of(broker, id)
    what = f"{subject_of(broker, 'letter', id).name} for group {letter.group}; it is delivered when a member reads"
    waiting = unattended(broker, letter.group)
    warning = _entry("warn", waiting, group=letter.group) if waiting else []
    return warning + _entry("put back", what)


def unattended(broker: Broker, group: str) -> str:
    """Say that no member of a group is alive, as far as that is known."""
    alive = ConsoleQueries.of(broker.kernel.store).attended(group)
    if alive is None:
        return f"no member of {group} holds a message now: if none is running, nothing happens until one starts"
    return "" if alive else f"no member of {group} is running: nothing happens until one starts"


def deleted_letter(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of deleting a dead letter."""
    letter = letter_of(broker, id)
    return _entry("delete", f"{subject_of(broker, 'letter', id).name}; group {letter.group} never gets it")


def stored(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of dropping the messages of a topic."""
    store = broker.kernel.store
    bounds = store.log.bounds(store.registry.topic(id).qids)
    return _entry("drop", f"messages of {id}", number=sum(b.head - b.tail for b in bounds.values()))


def deleted_topic(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of deleting a topic."""
    dropped, (read,) = stored(broker, id, said), ConsoleQueries.of(broker.kernel.store).read_by([id])
    if read["groups"]:
        return _entry(
            NOTHING, f"of topic {id} while it is read by {', '.join(read['groups'])}: delete each group first"
        )
    return dropped + _entry("delete", f"the topic {id}")


def paused(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of pausing a group."""
    unread = _number(sum(each.lag for each in _readings(broker, id)))
    return _entry("stop", f"group {id} from taking messages; {unread} wait, and what is claimed is still processed")


def unpaused(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of letting a group go on."""
    unread = _number(sum(each.lag for each in _readings(broker, id)))
    return _entry("let", f"group {id} take messages again; {unread} wait")


def _number(unread: int) -> str:
    return f"{unread} unread message{'' if unread == 1 else 's'}"


def _readings(broker: Broker, group: str) -> Sequence[Reading]:
    store = broker.kernel.store
    if store.groups.find(group) is None:
        raise UnknownGroup(group)
    return [each for each in store.overview.readings() if each.group == group]


def deleted_group(broker: Broker, id: str, said: Said) -> list[Entry]:
    """Return the plan of deleting a group."""
    plan = list[Entry]()
    for each in _readings(broker, id):
        waiting = f"{each.lag} unread, {each.retrying} waiting for a retry, {each.held} claimed"
        number = each.lag + each.retrying + each.held
        plan += _entry("miss", f"messages of {each.topic}: {waiting}", number=number)
    if letters := broker.kernel.store.overview.dead_letters().get(id):
        plan += _entry("keep", "of its dead letters, which can't be delivered again", number=letters)
    return plan + _entry("delete", f"group {id}, and how far it has read")
