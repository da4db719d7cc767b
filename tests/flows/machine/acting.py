"""One process of a program: it works with the public interface, and reports each step before and after.

What it reports goes into a pipe at once, so that a kill loses nothing of it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, text

import txsaga
from tests.flows.machine.programs import UNDONE, Face, Fate, How, Op, Program, What
from txsaga.core.decision import LocalState
from txsaga.core.facts import Fact
from txsaga.errors import StepDone
from txsaga.wiring import connecting

if TYPE_CHECKING:
    from txsaga.flows.coordinated import Coordinated
    from txsaga.flows.flow import Flow
    from txsaga.flows.saga import Saga

TOPIC = "lines"
INSERT = "insert into line (program, what) values (:program, :what)"
DOOMED = "insert into line (program, what, doom) values (:program, :what, 1), (:program, :what, 1)"
NOBODY = "update line set what = 'changed' where program = -1"


class Refused(Exception):
    """What the user's own code raises."""


def key_of(number: int) -> str:
    """Return the key of a program."""
    return f"program-{number}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs work."""

    home: str
    resources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is asked to do."""

    program: Program
    number: int
    process: int
    fate: Fate
    done: Mapping[int, Set[int]]  # the steps of a flow that are known to be done, by transaction

    @property
    def key(self) -> str:
        """The key that all processes of the program share."""
        return key_of(self.number)

    def line(self, at: int, txid: int | None = None) -> dict[str, object]:
        """Return what a step leaves; what every attempt of a flow's step says alike names the flow."""
        return {"program": self.number, "what": f"{at}@{self.process}" if txid is None else f"{at}@t{txid}"}


def write(connection: Connection, program: int, what: str) -> None:
    """Leave a line."""
    connection.execute(text(INSERT), {"program": program, "what": what})


def refuse(connection: Connection, program: int, what: str) -> None:
    """Leave a line, and fail."""
    write(connection, program, what)
    raise Refused


@txsaga.compensation("machine-undo")
def undo(connection: Connection, program: int, what: str) -> None:
    """Undo a line, by a line."""
    write(connection, program, f"undo {what}")


@txsaga.compensation("machine-later")
def later(connection: Connection, program: int, what: str) -> None:
    """Leave a line after COMMIT."""
    write(connection, program, what)


def lines(engine: Engine, number: int) -> list[str]:
    """Return what a program left in a resource, in order."""
    with engine.connect() as connection:
        found = connection.execute(text("select what from line where program = :n order by id"), {"n": number})
        return list(found.scalars())


class Actor:
    """Runs one task after the other, until it is killed."""

    def __init__(self, place: Place, pipe: Pipe) -> None:
        self._pipe, self._turn = pipe, threading.Lock()
        self._count, self._fate = 0, Fate()
        self._engines = {name: create_engine(url) for name, url in place.resources.items()}
        self._looking = {name: create_engine(url) for name, url in place.resources.items()}  # no session of a block
        self._broker = txsaga.connect(
            place.home, resources=self._engines, observers=[self._observe], roles=False, answering=False, env={}
        )
        self._producer = self._broker.producer("actors", checker=lambda _: LocalState.UNKNOWN)

    def run(self, task: Task) -> None:
        """Run one process, and report how it ended."""
        self._task = task
        self._await(task.fate)
        ended = "committed"
        try:
            {Face.BLOCK: self._block, Face.FLOW: self._flow, Face.SAGA: self._saga}[task.program.face](task)
        except Exception as error:  # noqa: BLE001  # whatever a process raises is how it ends
            ended = f"{type(error).__name__}: {error}"
        self._await(Fate())
        self._say("left", ended)

    def _await(self, fate: Fate) -> None:
        with self._turn:
            self._count, self._fate = 0, fate

    def _observe(self, fact: Fact) -> None:
        if self._fate.how is How.STALLS and threading.current_thread() is not threading.main_thread():
            return  # only the thread that takes the next task can wait to go on
        with self._turn:
            self._count += 1
            if self._count != self._fate.fact or self._fate.how is How.LIVES:
                return
        if self._fate.how is How.DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        self._say("stalled", fact.name)
        self._pipe.recv()

    def _say(self, event: str, about: object) -> None:
        self._pipe.send((event, about))

    def _entered(self, txid: int | None) -> None:
        places = () if self._task.program.face is Face.BLOCK else self._looking.values()
        self._say("entered", (txid, [line for each in places for line in lines(each, self._task.number)]))

    @contextmanager
    def _telling(self, at: int) -> Iterator[None]:
        self._say("begun", at)
        yield
        self._say("ok", at)

    def _block(self, task: Task) -> None:
        program = task.program
        with self._producer.coordinated(*program.resources, key=task.key if program.keyed else None) as tx:
            self._entered(tx.txid)
            for at, op in enumerate(program.ops):
                with self._telling(at):
                    _in_block(tx, op, task.line(at))
            if program.raises:
                raise Refused

    def _flow(self, task: Task) -> None:
        program = task.program
        flow = self._producer.begin_flow(*program.resources, lanes=program.lanes, key=task.key)
        self._entered(flow.txid)
        for at, op in enumerate(program.ops):
            if at not in task.done.get(flow.txid, ()):
                with self._telling(at):
                    _in_flow(flow, at, op, task.line(at, flow.txid if op.what in UNDONE else None))
        with self._telling(len(program.ops)):
            flow.roll_back() if program.raises else flow.end()
        if program.raises:
            raise Refused

    def _saga(self, task: Task) -> None:
        program = task.program
        with self._producer.saga(key=task.key if program.keyed else None) as saga:
            self._entered(saga.join_life().txid)
            for at, op in enumerate(program.ops):
                with self._telling(at):
                    _in_saga(saga, at, op, task.line(at))
            if program.raises:
                raise Refused


def _in_block(tx: Coordinated, op: Op, line: dict[str, Any]) -> None:
    match op.what:
        case What.WORK | What.DOOMED:
            with tx.on(op.where) as connection:
                connection.execute(text(DOOMED if op.what is What.DOOMED else INSERT), line)
        case What.TORN:
            with suppress(Exception), tx.on(op.where) as connection:
                connection.exec_driver_sql("select 1 / 0")
        case What.JOURNAL:
            tx.journal(op.where).execute(INSERT, line, rows=1)
        case What.MISSED:
            tx.journal(op.where).execute(NOBODY, rows=1)
        case What.LANE:
            with tx.lane(op.where) as connection:
                connection.execute(text(INSERT), line)
        case What.SETTLE:
            tx.lane(op.where).commit()
        case What.DROP:
            tx.lane(op.where).roll_back()
        case _:
            _anywhere(tx, op, line)


def _in_flow(flow: Flow, at: int, op: Op, line: dict[str, Any]) -> None:
    match op.what:
        case What.CALL:
            flow.call(str(at), write, on=op.where, input=line, compensate=undo)
        case What.SETTLE:
            flow.lane(op.where).commit()
        case What.DROP:
            flow.lane(op.where).roll_back()
        case What.SEND:
            with suppress(StepDone), flow.step(str(at)):
                _anywhere(flow, op, line)
        case What.CARRIED | What.LOST:
            _anywhere(flow, op, line)
        case _:
            if op.what is What.STUMBLE:
                with suppress(StepDone, Refused), flow.step(str(at), on=op.where) as connection:
                    refuse(connection, **line)
            with suppress(StepDone):
                _held(flow, at, op, line)


def _held(flow: Flow, at: int, op: Op, line: dict[str, Any]) -> None:
    if op.what in (What.LANE, What.LANE_JOURNAL):
        place: dict[str, Any] = {"lane": op.where, "compensate": undo, "input": line}
    else:
        place = {"on": op.where}
    journalled = op.what in (What.JOURNAL, What.LANE_JOURNAL, What.MISSED)
    with flow.step(str(at), hold="journal" if journalled else "prepared", **place) as work:
        if op.what is What.MISSED:
            work.execute(NOBODY, rows=1)
        elif journalled:
            work.execute(INSERT, line, rows=1)
        else:
            work.execute(text(DOOMED if op.what is What.DOOMED else INSERT), line)


def _in_saga(saga: Saga, at: int, op: Op, line: dict[str, Any]) -> None:
    match op.what:
        case What.LATER:
            saga.no_return()
            saga.step(later, on=op.where, name=str(at), input=line)
        case What.CALL | What.FAILS:
            do = write if op.what is What.CALL else refuse
            saga.step(do, on=op.where, name=str(at), input=line, compensate=undo)
        case _:
            _anywhere(saga, op, line)


def _anywhere(tx: Any, op: Op, line: dict[str, Any]) -> None:
    if op.what is What.SEND:
        tx.send(TOPIC, f"{line['program']} {line['what']}".encode())
        return
    assert op.what in (What.CARRIED, What.LOST)
    name = str(line["what"]).partition("@")[0]  # the same in each attempt
    tx.ballot(name, "judge")
    tx.vote(name, "judge", yes=op.what is What.CARRIED)


def name_of(process: int) -> str:
    """Return the name that the sessions of an actor have at the server."""
    return f"actor {process}"


def main(place: Place, pipe: Pipe) -> None:
    """Do tasks until there are no more."""
    os.environ["PGAPPNAME"] = name_of(os.getpid())
    logging.getLogger("txsaga").setLevel(logging.CRITICAL)
    connecting.HEARTBEAT = False
    actor = Actor(place, pipe)
    pipe.send(("ready", os.getpid()))
    while (task := pipe.recv()) is not None:
        actor.run(task)
