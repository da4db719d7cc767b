"""Where programs run: one store, its resources, actors that die by SIGKILL, and the roles that settle what they leave.

The actors are forked from a warm server process and connected before they are needed: a kill costs no waiting.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from multiprocessing.process import BaseProcess
from typing import Any

from sqlalchemy import create_engine, text

import txsaga
from tests.chaos.child import warm
from tests.chaos.coordinated import is_quiet
from tests.flows.machine.acting import TOPIC, Place, Task, key_of, lines, main, name_of
from tests.flows.machine.model import Event, Seen, wrongs
from tests.flows.machine.programs import LITE, Program
from txsaga.checkback.profile import CheckProfile
from txsaga.store.connection import parse_url, session_name

AT_ONCE = CheckProfile(interval=timedelta(0), min_age=timedelta(0), reply_timeout=timedelta(0))
PATIENCE, BRIEFLY = 30.0, 2.0
"""Seconds until something hangs, and for which roles try to settle what a stalled process may still hold."""
SPARES = 2
TABLE = {
    "postgresql": """create table line (id serial primary key, program int, what text,
        doom int unique deferrable initially deferred, at timestamptz default clock_timestamp())""",
    "sqlite": "create table line (id integer primary key, program int, what text, doom int, at int)",
}
UNDONE = "select at, what from line where program = :n and what like 'undo %'"
UNDECIDED = "WHERE state NOT IN ('committed', 'rolled_back')"
PASS = {
    "tx": f"touched = touched - interval '1 hour', opened = opened - interval '1 hour' {UNDECIDED}",
    "lease": "until = until - interval '1 hour'",
    "doubt": "check_at = check_at - interval '1 hour'",
    "question": "asked = asked - interval '1 hour', until = until - interval '1 hour'",
    "branch": f"at = at - interval '1 hour' {UNDECIDED}",
    "saga": "until = until - interval '1 hour'",
}
"""How an hour passes for each table."""
ACTIVE = """SELECT wait_event_type, wait_event, query FROM pg_stat_activity
 WHERE state = 'active' AND (starts_with(application_name, %(actor)s) OR application_name = %(home)s)"""

WAITS = """SELECT EXISTS (SELECT FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) b (pid)
                 JOIN pg_stat_activity s ON s.pid = b.pid
                WHERE starts_with(a.application_name, %(actor)s) AND starts_with(s.application_name, %(stalled)s))"""

BUSY = """SELECT pid, application_name, state, wait_event, pg_blocking_pids(pid), left(query, 120)
  FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()"""


class Hangs(AssertionError):
    """A process neither reports nor dies."""


class Running:
    """One actor, at work or idle."""

    def __init__(self, place: Place) -> None:
        self._pipe, theirs = warm.Pipe()
        self._child: BaseProcess = warm.Process(target=main, args=(place, theirs), daemon=True)
        self._child.start()
        theirs.close()
        self._ready = False

    @property
    def name(self) -> str:
        """The name that its sessions have at the server."""
        return name_of(self._child.pid or 0)

    def start(self, task: Task) -> None:
        """Give it a task."""
        if not self._ready:
            self._heard()
            self._ready = True
        self.process = task.process
        self._pipe.send(task)

    def go_on(self) -> None:
        """Let it go on that stalled."""
        self._pipe.send("go on")

    def is_silent(self, seconds: float) -> bool:
        """Return whether it reports nothing in so many seconds."""
        return not self._pipe.poll(seconds)

    def next_event(self) -> Event:
        """Return what it reports next: it was killed, stalls, is done, or goes on."""
        try:
            return Event(self.process, *self._heard())
        except (EOFError, ConnectionResetError):
            self._child.join()
            return Event(self.process, "killed")

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.join()
        self._pipe.close()

    def _heard(self) -> tuple[str, object]:
        if self.is_silent(PATIENCE):
            raise Hangs(f"process {self._child.pid} is silent")
        found: tuple[str, object] = self._pipe.recv()
        return found


class Town:
    """A store, resources, and whoever works there."""

    def __init__(self, home_url: str, urls: dict[str, str]) -> None:
        self._place = Place(home_url, urls)
        address, self._namespace = parse_url(home_url)
        self._clock = create_engine(address)
        self._engines = {name: create_engine(url) for name, url in urls.items()}
        for engine in self._engines.values():
            with engine.begin() as connection:
                connection.exec_driver_sql(TABLE[engine.dialect.name])
        self._broker = txsaga.connect(home_url, resources=self._engines, roles=False, answering=False, env={})
        self._broker.create_topic(TOPIC, "transaction", queues=1)
        self._broker.create_topic("nudges", queues=1)
        self._stream = self._broker.stream("reader", [TOPIC], member="reader")
        self._numbers, self._lives = count(1), 0
        self._messages: dict[int, list[str]] = defaultdict(list)
        self._idle: list[Running] = []
        self._stalled: Running | None = None
        self._all: list[Running] = []

    def play(self, programs: Sequence[Program]) -> list[str]:
        """Run programs to their ends and then the roles to rest; return what is wrong with each, and what was seen."""
        played = [(program, *self._played(program)) for program in programs]
        left = [] if self.settle() else ["something that the roles did not settle"]
        store = self._broker.kernel.store
        views = store.overview.transactions(undecided=False, limit=500)
        mine = [view for view in views if view.txid > self._lives and view.group == "actors"]
        self._lives = max([self._lives, *(view.txid for view in mine)])
        self._read()
        found = []
        for program, number, log in played:
            entered = {event.about[0] for event in log if event.what == "entered"}
            states = {v.txid: v.state for v in mine if v.txid in entered or v.key == key_of(number)}
            found.append(explained(program, log, self._seen(number, states, left)))
        return [each for each in found if each]

    def _played(self, program: Program) -> tuple[int, list[Event]]:
        number, log = next(self._numbers), list[Event]()
        for process, fate in enumerate(program.fates, 1):
            actor = self._actor()
            actor.start(Task(program, number, process, fate, _done(log)))
            ended = self._followed(actor, log)
            self._release(log, actor if ended == "stalled" else None)
            if fate.roles:
                self.settle(BRIEFLY if ended == "stalled" else PATIENCE)
        self._release(log)
        return number, log

    def _release(self, log: list[Event], then: Running | None = None) -> None:
        """Let the process go on that stalled, if there is one, and follow it to its end; another one stalls then."""
        stalled, self._stalled = self._stalled, then
        if stalled is not None:
            stalled.go_on()
            self._followed(stalled, log)

    def settle(self, seconds: float = PATIENCE) -> bool:
        """Let time pass, and run the roles until they find nothing to do; return whether nothing is left."""
        self._broker.producer("nudger").send("nudges", b"")
        roles = [*self._broker.own_roles(), *self._broker.roles(AT_ONCE)]
        end = time.monotonic() + seconds
        self._let_pass()
        while sum(role.run_once() for role in roles) or not self._is_quiet():
            if time.monotonic() > end:
                return False
            self._let_pass()
        return True

    def close(self) -> None:
        """End everybody."""
        for actor in self._all:
            actor.close()
        self._stream.close()
        self._broker.close()
        for engine in (self._clock, *self._engines.values()):
            engine.dispose()

    def _let_pass(self) -> None:
        for table, moved in PASS.items():  # one by one, so that nobody waits for two of them in another order
            with self._clock.begin() as connection:
                connection.exec_driver_sql(f'SET LOCAL search_path = "{self._namespace}"')
                connection.exec_driver_sql(f"LOCK {table} IN SHARE ROW EXCLUSIVE MODE")
                connection.exec_driver_sql(f"UPDATE {table} SET {moved}")

    def _is_quiet(self) -> bool:
        with self._clock.connect() as connection:
            undone = connection.exec_driver_sql(f'SELECT EXISTS (SELECT FROM "{self._namespace}".saga)').scalar()
        return not undone and is_quiet(self._broker)

    def _actor(self) -> Running:
        while len(self._idle) <= SPARES:
            self._all.append(Running(self._place))
            self._idle.append(self._all[-1])
        return self._idle.pop(0)

    def _followed(self, actor: Running, log: list[Event]) -> str:
        ended = False
        while not ended:
            until = time.monotonic() + PATIENCE
            while self._stalled is not None and actor.is_silent(1.0) and time.monotonic() < until:
                if self._waits(actor, self._stalled):
                    self._release(log)
            event = self._next_event(actor)
            log.append(event)
            ended = event.what in ("killed", "stalled", "left")
        if event.what == "killed":
            self._all.remove(actor)
            self._await_end_of_sessions(actor.name)
        elif event.what == "left":
            self._idle.insert(0, actor)
        return event.what

    def _next_event(self, actor: Running) -> Event:
        try:
            return actor.next_event()
        except Hangs as silent:
            with self._clock.connect() as connection:
                busy = connection.exec_driver_sql(BUSY).all()
            raise Hangs("\n".join([f"{silent}, in {actor.name}", *map(str, busy)])) from None

    def _waits(self, actor: Running, stalled: Running) -> bool:
        """Return whether a process waits for a lock of the one that stalled."""
        with self._clock.connect() as connection:
            names = {"actor": actor.name, "stalled": stalled.name}
            return bool(connection.exec_driver_sql(WAITS, names).scalar())

    def _await_end_of_sessions(self, name: str) -> None:
        """Wait until the server has ended the sessions of one that was killed."""
        end = time.monotonic() + PATIENCE
        names = {"actor": name, "home": session_name(self._namespace)}
        while found := self._active(names):
            if time.monotonic() > end:
                raise Hangs(f"sessions go on without their process: {found}")
        time.sleep(0.005)

    def _active(self, names: dict[str, str]) -> Sequence[Any]:
        with self._clock.connect() as connection:  # in one transaction the view shows the same sessions for ever
            return connection.exec_driver_sql(ACTIVE, names).all()

    def _read(self) -> None:
        while (batch := self._stream.poll()) is not None:
            for message in batch.messages():
                of, _, what = message.text().partition(" ")
                self._messages[int(of)].append(what)

    def _seen(self, number: int, states: dict[int, str], left: list[str]) -> Seen:
        rows = {name: lines(engine, number) for name, engine in self._engines.items()}
        return Seen(states, rows, self._messages.pop(number, []), self._undone(number, rows), left)

    def _undone(self, number: int, rows: dict[str, list[str]]) -> list[list[str]]:
        """Return what was undone: in the databases of one server by its clock, in a file as it lies there."""
        found: list[tuple[Any, str]] = []
        for name, engine in self._engines.items():
            if name != LITE:
                with engine.connect() as connection:
                    found += [(at, what) for at, what in connection.execute(text(UNDONE), {"n": number})]
        lite = [line for line in rows[LITE] if line.startswith("undo ")]
        return [[line.removeprefix("undo ") for line in each] for each in ([what for _, what in sorted(found)], lite)]


def _done(log: Sequence[Event]) -> dict[int, set[int]]:
    """Return which steps are known to be done, by transaction."""
    found: dict[int, set[int]] = defaultdict(set)
    inside: dict[int, int] = {}
    for event in log:
        if event.what == "entered":
            inside[event.process] = event.about[0]
        elif event.what == "ok":
            found[inside[event.process]].add(event.about)
    return dict(found)


def explained(program: Program, log: Sequence[Event], seen: Seen) -> str:
    """Return what went wrong and what it was seen from, or nothing."""
    found = wrongs(program, log, seen)
    if not found:
        return ""
    said = "\n".join(f"  {event.process}: {event.what} {event.about}" for event in log)
    return "\n".join([*found, "", str(program), said, str(seen)])
