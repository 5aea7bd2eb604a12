"""Driving a run by hand: no engine, no store, no clock. A test makes the records and delivers them one at a time.

`Drive(fulfil("o-1"))` starts a run; `finish`, `fail`, `fire`, `receive` settle what it waits for; `rebuilt(n)` is a
second run made from the first n records, through their stored form, as a load from a store would.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from msgspec import Raw

from perdure.authoring.registry import registry
from perdure.kernel import journal
from perdure.kernel.commands import Command, RunStep
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Body, Record, Row, from_row, to_row
from perdure.kernel.operations.receive import EventReceived
from perdure.kernel.operations.step import StepDone, StepFailed, StepOperation, StepRetry
from perdure.kernel.operations.timer import TimerFired, TimerOperation
from perdure.kernel.run import Run
from perdure.kernel.values.faults import encode_error
from perdure.kernel.verbs.checks import event_spec
from perdure.types import Invocation

START = 1_700_000_000_000_000


class Drive:
    """One run and the journal it has so far."""

    def __init__(self, invocation: Invocation[Any], *, seed: int = 7, run_id: str = "run") -> None:
        self.spec = invocation.spec
        self.run_id = run_id
        self.now = START
        self.records: list[Record] = []
        self.next_seq = 1
        self.commands: list[Command] = []
        self._opened: list[Run] = []
        self.run = self._new()
        started = journal.Started(self.spec.name, self.spec.version, Raw(invocation.data), seed)
        self.deliver("", started)

    # -- delivering ----------------------------------------------------------------------------------------

    def deliver(self, location: str, body: Body, *, after: int = 1_000) -> list[Command]:
        """One more record, `after` microseconds later; returns what the code asked for."""
        self.now = max(self.now + after, self.run.now)
        first = self.next_seq
        record = self._append(location, body)
        commands = self.run.deliver(record)
        self.commands += commands
        self._save_loops(first)
        return commands

    def _append(self, location: str, body: Body) -> Record:
        record = Record(self.next_seq, self.now, location, body)
        self.records.append(record)
        self.next_seq += 1
        return record

    def _save_loops(self, first: int) -> None:
        """What the engine does at the end of a turn: write the states of loops, delete what is not needed any more."""
        loops = self.run.loops
        if loops is None or self.run.outcome is not None:
            return
        for location, body in loops.take_saves():
            loops.note_state(self._append(location, body).seq, location)
        gone = set(loops.take_prunable(first))
        self.records = [record for record in self.records if record.seq not in gone]

    def finish(self, location: str, value: Any = None) -> list[Command]:
        """The step at this location returned `value`."""
        step = self.step(location)
        data = step.spec.result.encode(value, "a test value")
        return self.deliver(location, StepDone(Raw(data), 1, Raw(step.data), step.arguments_digest(), step.site))

    def fail(self, location: str, error: BaseException) -> list[Command]:
        step = self.step(location)
        return self.deliver(
            location,
            StepFailed(1, encode_error(error), Raw(step.data), step.arguments_digest(), step.site),
        )

    def retry(self, location: str, error: BaseException, *, after: int = 1_000) -> list[Command]:
        step = self.step(location)
        body = StepRetry(step.attempts + 1, encode_error(error), self.now + after, digest=step.arguments_digest())
        return self.deliver(location, body)

    def fire(self, location: str) -> list[Command]:
        timer = self.run.pending.get(location)
        assert isinstance(timer, TimerOperation), f"no timer at {location!r}, only {self.pending()}"
        self.now = max(self.now, timer.at)
        return self.deliver(location, TimerFired(timer.site), after=0)

    def receive(self, location: str, event: Any) -> list[Command]:
        spec = event_spec(type(event))
        value = Raw(spec.codec.encode(event, "a test event"))
        return self.deliver(location, EventReceived(self.next_seq, spec.name, value, self.now))

    def step(self, location: str) -> StepOperation:
        operation = self.run.pending.get(location)
        assert isinstance(operation, StepOperation), f"no step at {location!r}, only {self.pending()}"
        return operation

    # -- looking -------------------------------------------------------------------------------------------

    def pending(self) -> list[str]:
        """What the run waits for, in the order it was asked."""
        return waiting_for(self.run)

    def frontier(self) -> Frontier:
        return decode_frontier(self.run.frontier())

    # -- rebuilding ----------------------------------------------------------------------------------------

    def rebuilt(
        self, count: int | None = None, frontier: Frontier | None = None, **options: Any
    ) -> tuple[Run, list[Command]]:
        """A run made from the first `count` records, and the commands it still wants carried out."""
        run = self._new(**options)
        return run, run.replay(stored(self.records[:count]), frontier)

    def _new(self, **options: Any) -> Run:
        run = Run(self.spec, self.run_id, 1, latest=registry.latest, **options)
        self._opened.append(run)
        return run

    def close(self) -> None:
        for run in self._opened:
            run.close()

    def __enter__(self) -> Drive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def stored(records: Sequence[Record]) -> list[Record]:
    """The records as they come back from a store."""
    return [from_row(to_row(record)) for record in records]


def waiting_for(run: Run) -> list[str]:
    return [f"{operation.kind} {operation.location}" for operation in run.pending]


def steps_asked(commands: Sequence[Command]) -> list[str]:
    return [command.operation.location for command in commands if isinstance(command, RunStep)]


#: What a record says about source code: it changes with the lines of the program and the folder it is in.
_PLACES = re.compile(rb'"(?:site|traceback)":"(?:[^"\\]|\\.)*"')


def without_lines(data: bytes) -> bytes:
    return _PLACES.sub(b"", data)


def without_places(row: Row) -> tuple[object, ...]:
    """A row without what it says about source code, and so without its checksum."""
    seq, at, kind, location, data, _ = row
    return seq, at, kind, location, without_lines(data)
