"""
What a person can do in the console: each act shows its plan first, wants a reason, and does what the command line does.

An act is refused where the command line refuses it, by the same functions. Its row in the audit names the person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from txsaga.checkback.by_hand import ByHand, require_reason
from txsaga.checkback.checkers import Question
from txsaga.checkback.heartbeat import checkers_of
from txsaga.checkback.one_check import OneCheck
from txsaga.console.people import Rank
from txsaga.console.queries import ConsoleQueries
from txsaga.console.subjects import letter_of, subject_of
from txsaga.core.arguments import read_number
from txsaga.core.decision import Decision
from txsaga.core.identity import number_of
from txsaga.errors import ConfigError, TxSagaError, UnknownTransaction
from txsaga.flows.by_hand import BranchesByHand, SagasByHand
from txsaga.inspect.preview import preview_of

if TYPE_CHECKING:
    from txsaga.broker import Broker

Said = Mapping[str, Any]
"""What the form of an act holds: a reason, and what else it needs."""


class ActResult(NamedTuple):
    """What was done, in a line."""

    told: str
    notice: bool = False  # it changed nothing
    group: str | None = None  # the one to look at now


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act: who may do it, on what, what it would do, and how it is done."""

    name: str
    label: str
    on: str  # transaction, step, branch, letter, topic, group
    does: Callable[[Broker, str, Said, str], str | ActResult]  # returns a line about what was done
    plan: Callable[[Broker, str, Said], list[dict[str, object]]] = lambda *_: []
    role: Rank = Rank.OPERATOR
    danger: bool = False
    forced: bool = False  # whether it can be forced
    title: str = "{label}: {subject}"


def _decide(decision: Decision) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        txid = number_of(id, broker.identity)
        force = said.get("force") in (True, "on", "true")
        found = ByHand(broker.kernel).decide(txid, decision, who=who, why=said["reason"], force=force)
        how = "by hand" if found.won else "already"
        return f"transaction {txid} is decided {how}: {found.decision.name}"

    return does


def _preview(*, undo: bool) -> Callable[[Broker, str, Said], list[dict[str, object]]]:
    def plan(broker: Broker, id: str, said: Said) -> list[dict[str, object]]:
        trace = broker.kernel.store.overview.trace(number_of(id, broker.identity))
        if trace is None:
            raise UnknownTransaction(f"transaction {id} is not in this store")
        return [each._asdict() for each in preview_of(trace, undo=undo)]

    return plan


def _resume(broker: Broker, id: str, said: Said, who: str) -> str:
    txid = number_of(id, broker.identity)
    ByHand(broker.kernel).resume(txid, who=who, why=said["reason"])
    return f"transaction {txid} is checked again"


def _settle(broker: Broker, id: str, said: Said, who: str) -> str | ActResult:
    txid = number_of(id, broker.identity)
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.record(txid, "CHECK NOW", who=who, why=said["reason"])
    asked = list[Question]()
    found = OneCheck(broker.kernel).ask(txid, asked.append, who=who)
    if found.decision is not None:
        return f"transaction {txid} is decided: {found.decision.name}: {found.why}"
    if not asked:  # only a checker is asked
        return ActResult(f"transaction {txid} is not settled: {found.why}", notice=True)
    group, kind = asked[0].group, checkers_of(asked[0].case.doubt.group)
    if any(broker.kernel.store.leases.alive([kind])[kind]):
        return ActResult(f"checked: only a checker of group {group} knows more; the next check asks one", notice=True)
    return ActResult(f"checked: no checker of group {group} is running, so nothing was found out", notice=True)


def _replay(broker: Broker, id: str, said: Said, who: str) -> str:
    done = broker.replay(number_of(id, broker.identity), key=said.get("key") or None, who=who, why=said["reason"])
    return f"transaction {done.txid} {'was' if done.again else 'is'} replayed as transaction {done.replayed_as}"


def _replayed(broker: Broker, id: str, said: Said) -> list[dict[str, object]]:
    planned = broker.replay(number_of(id, broker.identity), key=said.get("key") or None, why="plan", dry_run=True)
    sent: list[dict[str, object]] = [{"does": "send", **each._asdict()} for each in planned.messages]
    return sent + [{"does": "leave out", "what": what} for what in planned.left_out]


def _step(what: str) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        txid, step = number_of(id, broker.identity), _number(said, "step")
        hand = SagasByHand(broker.kernel)
        if what == "resume":
            hand.resume(txid, who=who, why=said["reason"], number=step)
        else:
            hand.skip(txid, step, who=who, why=said["reason"])
        return f"step {step} of transaction {txid} is {'retried' if what == 'resume' else 'skipped'}"

    return does


def _forget(broker: Broker, id: str, said: Said, who: str) -> str:
    txid = number_of(id, broker.identity)
    number, attempt = _number(said, "branch"), _number(said, "attempt")
    done = list(BranchesByHand(broker.kernel).forget(txid, number, attempt, who=who, why=said["reason"]))
    return f"{len(done)} branches of transaction {txid} are forgotten"


def _deliver(broker: Broker, id: str, said: Said, who: str) -> ActResult:
    letter = letter_of(broker, id)
    waiting = _unattended(broker, letter.group)
    if not broker.dead_letters.replay([letter.id]):
        raise ConfigError(f"dead letter {letter.id} stays: it is gone, waits already, or its group does not read it")
    told = f"letter {letter.id} is put back for group {letter.group}; it is delivered when a member reads"
    return ActResult(f"{waiting}; {told}" if waiting else told, group=letter.group)


def _delivered(broker: Broker, id: str, said: Said) -> list[dict[str, object]]:
    letter = letter_of(broker, id)
    what = f"{subject_of(broker, 'letter', id).name} for group {letter.group}; it is delivered when a member reads"
    waiting = _unattended(broker, letter.group)
    warning: dict[str, object] = {"does": "warn", "what": waiting, "group": letter.group}
    return [*([warning] if waiting else []), {"does": "put back", "what": what}]


def _unattended(broker: Broker, group: str) -> str:
    """Say that no member of a group is alive, as far as that is known."""
    alive = ConsoleQueries.of(broker.kernel.store).attended(group)
    if alive is None:
        return f"no member of {group} holds a message now: if none is running, nothing happens until one starts"
    return "" if alive else f"no member of {group} is running: nothing happens until one starts"


def _delete_letter(broker: Broker, id: str, said: Said, who: str) -> str:
    letter = letter_of(broker, id)
    broker.dead_letters.purge([letter.id])
    return f"letter {letter.id} is deleted"


def _purge(broker: Broker, id: str, said: Said, who: str) -> str:
    return f"messages dropped from {id}: {broker.purge_topic(id)}"


def _delete_topic(broker: Broker, id: str, said: Said, who: str) -> str:
    return f"topic {id} is deleted, with {broker.delete_topic(id)} messages"


def _paused(paused: bool) -> Callable[[Broker, str, Said, str], str]:
    def does(broker: Broker, id: str, said: Said, who: str) -> str:
        broker.alter_group(id, paused=paused)
        return f"group {id} {'takes no more messages' if paused else 'takes messages again'}, within seconds"

    return does


def _delete_group(broker: Broker, id: str, said: Said, who: str) -> str:
    broker.delete_group(id)
    return f"group {id} is deleted"


def _stored(broker: Broker, id: str, said: Said) -> list[dict[str, object]]:
    store = broker.kernel.store
    bounds = store.log.bounds(store.registry.topic(id).qids)
    return [{"does": "drop", "what": f"messages of {id}", "number": sum(b.head - b.tail for b in bounds.values())}]


def _missed(broker: Broker, id: str, said: Said) -> list[dict[str, object]]:
    overview = broker.kernel.store.overview
    found: list[dict[str, object]] = [
        {
            "does": "miss",
            "what": f"messages of {each.topic}: {each.lag} unread, {each.retrying} waiting for a retry, "
            f"{each.held} claimed",
            "number": each.lag + each.retrying + each.held,
        }
        for each in overview.readings()
        if each.group == id
    ]
    letters = overview.dead_letters().get(id)
    kept: dict[str, object] = {
        "does": "keep",
        "what": "of its dead letters, which can't be delivered again",
        "number": letters,
    }
    return [*found, *([kept] if letters else [])]


def _number(said: Said, name: str) -> int:
    number = read_number(str(said.get(name, "")))
    if number is None:
        raise ConfigError(f"{name} is {said.get(name)!r}; give its number")
    return number


ACTS: Mapping[str, Act] = {
    act.name: act
    for act in (
        Act(name="settle", label="Check now", on="transaction", does=_settle),
        Act(name="resume", label="Resume", on="transaction", does=_resume),
        Act(
            name="commit",
            label="Commit",
            on="transaction",
            does=_decide(Decision.COMMIT),
            plan=_preview(undo=False),
            forced=True,
        ),
        Act(
            name="rollback",
            label="Roll back",
            on="transaction",
            does=_decide(Decision.ROLLBACK),
            plan=_preview(undo=True),
            danger=True,
            forced=True,
        ),
        Act(name="replay", label="Replay", on="transaction", does=_replay, plan=_replayed),
        Act(
            name="resume-step",
            label="Retry step",
            on="step",
            does=_step("resume"),
            title="Retry step {step} of {subject}",
        ),
        Act(
            name="skip-step",
            label="Skip step",
            on="step",
            does=_step("skip"),
            danger=True,
            title="Skip step {step} of {subject}",
        ),
        Act(
            name="forget",
            label="Forget",
            on="branch",
            does=_forget,
            danger=True,
            title="Forget branch {branch} of {subject}",
        ),
        Act(
            name="replay-letter",
            label="Deliver again",
            on="letter",
            does=_deliver,
            plan=_delivered,
            title="Deliver {subject} again",
        ),
        Act(
            name="purge-letter",
            label="Delete",
            on="letter",
            does=_delete_letter,
            role=Rank.ADMIN,
            danger=True,
            title="Delete {subject}",
        ),
        Act(name="purge-topic", label="Purge", on="topic", does=_purge, plan=_stored, role=Rank.ADMIN, danger=True),
        Act(
            name="delete-topic",
            label="Delete",
            on="topic",
            does=_delete_topic,
            plan=_stored,
            role=Rank.ADMIN,
            danger=True,
        ),
        Act(name="pause-group", label="Pause", on="group", does=_paused(True)),
        Act(name="resume-group", label="Resume", on="group", does=_paused(False)),
        Act(
            name="delete-group",
            label="Delete",
            on="group",
            does=_delete_group,
            plan=_missed,
            role=Rank.ADMIN,
            danger=True,
        ),
    )
}


LONGEST, MOST = 500, 500
"""Letters of a reason, and transactions that one act takes."""
WITHOUT = ("letter", "topic", "group")
"""What an act is on without a transaction: its audit row names number 0."""


def act_named(name: str, role: Rank) -> Act | None:
    """Return the act that a person with this role may do."""
    act = ACTS.get(name)
    return act if act is not None and role >= act.role else None


def do(act: Act, broker: Broker, id: str, said: Said, who: str) -> ActResult:
    """Do it; return a line about what was done. What has no transaction is recorded before it is done."""
    reason = _reason(said)
    what = f"{act.name.upper().replace('-', ' ')} {''.join(c if c.isprintable() else '?' for c in id[:LONGEST])}"
    if act.on in WITHOUT:
        _record(broker, what, who, reason)
    try:
        done = act.does(broker, id, said, who)
    except TxSagaError as refused:
        with suppress(TxSagaError):  # a store that is away, or a login without the right, records nothing
            _record(broker, f"REFUSED: {what}", who, f"{reason} (refused: {refused})", _known(act, broker, id, refused))
        raise
    return done if isinstance(done, ActResult) else ActResult(done)


def _known(act: Act, broker: Broker, id: str, refused: TxSagaError) -> int:
    """Return the number of the transaction of a refused act; 0 if there is none."""
    if act.on not in WITHOUT and not isinstance(refused, UnknownTransaction):
        with suppress(TxSagaError):
            return number_of(id, broker.identity)
    return 0


def _reason(said: Said) -> str:
    reason = said.get("reason")
    if not isinstance(reason, str):
        raise ConfigError("give a reason: it is recorded with the action")
    require_reason(reason)
    if len(reason) > LONGEST or not reason.isprintable():
        raise ConfigError(f"the reason can't be recorded; write one line of at most {LONGEST} letters")
    return reason


def _record(broker: Broker, what: str, who: str, why: str, txid: int = 0) -> None:
    with broker.kernel.store.ledgers.open() as ledger:
        ledger.record(txid, what, who=who, why=why)


def offered(document: Mapping[str, Any], role: Rank) -> list[Act]:
    """Return the acts that make sense for a transaction in its present state."""
    state = document["state"]
    if document["decision"] is None:
        names = ["settle", *(["resume"] if state == "parked" else []), *(["commit"] if state != "active" else [])]
        names.append("rollback")
    else:
        names = ["replay"] if state == "rolled_back" else []
    return [act for name in names if (act := act_named(name, role))]


def each_of(act: Act, broker: Broker, ids: list[str], said: Said, who: str) -> list[dict[str, object]]:
    """Do an act for several; one that is refused does not stop the others."""
    if len(ids) > MOST:
        raise ConfigError(f"{len(ids)} transactions are too many at once; select at most {MOST}")
    done: list[dict[str, object]] = []
    for id in ids:
        try:
            done.append({"id": id, "done": True, **do(act, broker, id, said, who)._asdict()})
        except TxSagaError as refused:
            done.append({"id": id, "done": False, "told": str(refused)})
    return done
