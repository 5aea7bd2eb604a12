"""Durable loops: what an iteration is, what is left when it is over, and where a replay picks the loop up.

An iteration is a world of its own. Everything in it (tasks, operations, numbers, randomness) is derived from its path,
such as `poll~17`, and from nothing that other iterations did; and when it ends, nothing of it is left but the next
state. So a replay need not repeat it: a `LoopState` record stands for it and all before it, and their records may be
deleted.

Who calls this: `run_loop` is behind `perdure.loop`; `Run` hands over records (`Loops`); the engine writes the states
that `take_saves` gives and deletes what `take_prunable` names, both in the turn's commit.

How a replay finds its way: a loop whose journal holds a `LoopState` begins by waiting (`LoopOperation`). Records of the
iterations before it are passed over. When the replay has passed record `after`, the loop goes on with the next
iteration, at the time and with the status that were then.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from perdure.errors import BadArgument, NoNextState
from perdure.kernel.eventloop.forgotten import reported
from perdure.kernel.eventloop.tasks import RunTask, path_of
from perdure.kernel.journal import Body, Record
from perdure.kernel.locations import Branch
from perdure.kernel.marks import forget_patches
from perdure.kernel.operations import loop as loop_operation
from perdure.kernel.operations.base import Operation
from perdure.kernel.operations.loop import LoopState
from perdure.kernel.randomness import SeededRandom
from perdure.kernel.values import ValueCodec
from perdure.kernel.values.digests import blake
from perdure.kernel.values.faults import summary

if TYPE_CHECKING:
    from perdure.kernel.run import Run

T_co = TypeVar("T_co", covariant=True)


class Break(msgspec.Struct, Generic[T_co], frozen=True):
    """Returned by the body of a `loop`: end the loop, with this as its result."""

    value: T_co = None  # type: ignore[assignment]


class Iteration:
    """One pass through a loop: the scope of everything that happens in it."""

    __slots__ = ("_draws", "_numbers", "_seed", "kept", "loop", "loose", "number", "path", "sheltered", "tasks")

    def __init__(self, loop: Loop, number: int, seed: int) -> None:
        self.loop = loop
        self.number = number
        self.path = f"{loop.location}~{number}"
        #: Whether something outside needs what happened in here, so that it must be repeated by every replay.
        self.kept = False
        #: Operations that no task may be waiting for: children, cancel requests, timers.
        self.loose: list[Operation] = []
        #: Tasks made in it, and those of them that end by themselves and must not be cancelled.
        self.tasks: list[RunTask] = []
        self.sheltered: set[RunTask] = set()
        self._seed = seed
        # As in RunLoop: hashes decide the order of sets, so they must not depend on iterations a replay leaves out.
        self._numbers = ((seed ^ zlib.crc32(self.path.encode())) & 0xFFFF_FFFF) << 20
        self._draws: SeededRandom | None = None

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def randomness(self) -> SeededRandom:
        if self._draws is None:
            self._draws = SeededRandom(self._seed, blake(self.path.encode(), size=12).hex())
        return self._draws

    def add_task(self, task: RunTask) -> None:
        self.tasks.append(task)
        if len(self.tasks) % 64 == 0:
            self.tasks = [one for one in self.tasks if not one.done()]

    def watch(self, operation: Operation) -> None:
        self.loose.append(operation)
        if len(self.loose) % 64 == 0:
            self.loose = [one for one in self.loose if not one.settled]

    def keep_up_to(self, outside: Iteration | None) -> None:
        """Something in `outside`, around this iteration, needs what happened here."""
        scope: Iteration | None = self
        while scope is not None and scope is not outside:
            scope.kept = True
            scope = scope.loop.scope


class Loop:
    """A loop under way. `records` holds the positions of the records of each iteration that is still in the journal."""

    __slots__ = ("commit_every", "is_saving", "keep", "location", "records", "scope")

    def __init__(self, location: str, scope: Iteration | None, keep: int, commit_every: int) -> None:
        self.location = location
        #: The iteration of another loop that this one runs in.
        self.scope = scope
        self.keep = keep
        self.commit_every = commit_every
        #: False once an iteration must be repeated by every replay, and so all that follow it.
        self.is_saving = True
        self.records: dict[int, list[int]] = {}

    def note(self, iteration: int, seq: int) -> None:
        if iteration not in self.records and self.records:
            iteration = max(iteration, *self.records)  # its own have gone: it goes with the newest
        self.records.setdefault(iteration, []).append(seq)


class Loops:
    """The loops of one run."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._active: dict[str, Loop] = {}
        self._saves: dict[str, LoopState] = {}
        self._prunable: list[int] = []
        #: While replaying: the newest state of each loop, and these in the order in which they are to go on.
        self._resume: dict[str, Record] = {}
        for record in records:
            if isinstance(record.body, LoopState):
                self._resume[record.location.rpartition("~")[0]] = record
        current = [record for record in self._resume.values() if not self.is_past(record)]
        self._points = sorted(current, key=lambda record: (_state(record).after, record.seq), reverse=True)

    # -- replay ----------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, records: Sequence[Record], kinds: set[type[Body]]) -> Loops | None:
        """What a replay of these records has to know of their loops; None if they have none."""
        return cls(records) if LoopState in kinds else None

    def passes_over(self, record: Record) -> bool:
        """Whether a record need not be delivered: an iteration that is not repeated, or what stands in for it."""
        if isinstance(record.body, LoopState):
            self.note_state(record.seq, record.location)
        elif self.is_past(record):
            self.note(record.seq, record.location)
        else:
            return False
        return True

    def resume_due(self, run: Run, seq: int) -> bool:
        """Let loops go on whose next iteration began before the record at `seq` was delivered. False if none did."""
        due = list(self.due(seq))
        for record in due:
            loop_operation.go_on(run, record, _state(record))
        return bool(due)

    def is_past(self, record: Record) -> bool:
        """Whether a record belongs to an iteration that is not repeated. It is only noted, to be deleted one day."""
        for location, iteration in _iterations(record.location):
            saved = self._resume.get(location)
            if saved is not None and saved is not record and iteration <= _state(saved).iteration:
                return True
        return False

    def due(self, seq: int) -> Iterator[Record]:
        """Loops that go on before the record at `seq` is delivered."""
        while self._points and _state(self._points[-1]).after < seq:
            yield self._points.pop()

    def saved_state(self, location: str) -> Record | None:
        """Where the loop at this location goes on, if the journal says so."""
        return self._resume.get(location)

    # -- records ---------------------------------------------------------------------------------------------

    def note(self, seq: int, location: str) -> None:
        """A record was written or delivered: the innermost loop under way that it is part of keeps its position."""
        for path, iteration in _iterations(location):
            loop = self._active.get(path)
            if loop is not None:
                loop.note(iteration, seq)
                return

    def note_state(self, seq: int, location: str) -> None:
        """The state after an iteration is the beginning of the next one, and stays as long as that does."""
        path, _, number = location.rpartition("~")
        loop = self._active.get(path)
        if loop is not None:
            loop.records.setdefault(int(number) + 1, []).append(seq)

    def take_saves(self) -> list[tuple[str, LoopState]]:
        """What is to be written with this turn, at most one for each loop; older iterations become prunable."""
        saves, self._saves = self._saves, {}
        for location, body in saves.items():
            loop = self._active[location]
            for iteration in [i for i in loop.records if i <= body.iteration - loop.keep]:
                self._prunable += loop.records.pop(iteration)
        return [(f"{location}~{body.iteration}", body) for location, body in saves.items()]

    def take_prunable(self, before: int) -> list[int]:
        """Positions of records that no replay needs any more. Those of the turn in the making wait for the next: a
        store recognises a turn that comes twice by its records."""
        if not self._prunable:
            return []
        pruned = sorted(seq for seq in self._prunable if seq < before)
        self._prunable = [seq for seq in self._prunable if seq >= before]
        return pruned

    # -- loops -----------------------------------------------------------------------------------------------

    def begin(self, loop: Loop) -> None:
        self._active[loop.location] = loop

    def save(self, loop: Loop, body: LoopState) -> None:
        self._saves[loop.location] = body

    def end(self, loop: Loop) -> None:
        """The loop is over. What is left of its records goes when the iteration around it does."""
        self._active.pop(loop.location, None)
        self._saves.pop(loop.location, None)
        if loop.scope is not None:
            around = loop.scope.loop.records.setdefault(loop.scope.number, [])
            for positions in loop.records.values():
                around += positions


def open_loops(run: Run) -> Loops:
    if run.loops is None:
        run.loops = Loops()
    return run.loops


def _state(record: Record) -> LoopState:
    body = record.body
    if not isinstance(body, LoopState):
        raise AssertionError(f"record {record.seq} is no state of a loop")
    return body


def _iterations(location: str) -> Iterator[tuple[str, int]]:
    """The loops and iterations a location lies in, the innermost first: `a~2/b~7/c` gives `a~2/b`, 7 and `a`, 2."""
    position = location.rfind("~")
    while position >= 0:
        number = location[position + 1 :].partition("/")[0]
        if number.isdecimal():
            yield location[:position], int(number)
        position = location.rfind("~", 0, position)


# -- running a loop --------------------------------------------------------------------------------------------


async def run_loop(
    run: Run,
    name: str,
    body: Callable[..., Awaitable[Any]],
    first: tuple[Any, ...],
    codec: ValueCodec[Any],
    keep: int,
    commit_every: int,
) -> Any:
    """Behind `perdure.loop`. `first` holds the first state, or nothing for a loop without."""
    branch = run.loop.branch()
    loops = open_loops(run)
    loop = Loop(branch.locate(name), branch.scope, keep, commit_every)
    loops.begin(loop)
    what = f"the state of loop {loop.location!r}"
    data = codec.encode(first[0], what) if first else b"null"
    number = 1
    try:
        saved = loops.saved_state(loop.location)
        if saved is not None:
            state = await _wait_for_state(run, saved)
            number, data = state.iteration + 1, bytes(state.state)
        while True:
            # Through the codec every time: the body sees the same whether the state was just made or read back.
            arguments = (codec.decode(data, what),) if first else ()
            result = await _iterate(run, loop, number, body, arguments)
            if isinstance(result, Break):
                return result.value
            if first:
                if result is None and data != b"null":
                    raise NoNextState(
                        f"the body of loop {loop.location!r} returned nothing in iteration {number}, although the loop "
                        "has state. Return the next state, or Break(value) to end the loop."
                    )
                data = codec.encode(result, what)
            elif result is not None:
                raise BadArgument(
                    f"the body of loop {loop.location!r} returned {type(result).__name__}, but the loop has no state. "
                    "Give it one, loop(body, state), or return None or Break(value)."
                )
            if loop.is_saving and number % commit_every == 0 and not run.replaying:
                loops.save(loop, loop_operation.state_after(run, number, data))
            number += 1
    finally:
        loops.end(loop)


async def _wait_for_state(run: Run, saved: Record) -> LoopState:
    """Stand still until the replay has passed the iterations that are not repeated."""
    found: list[LoopState] = []
    waiter: list[asyncio.Future[None]] = []

    def resume(state: LoopState) -> None:
        found.append(state)
        if not waiter[0].done():
            waiter[0].set_result(None)

    loop_operation.ask(run, saved.location, resume)
    while not found:
        # Not a RunFuture: it must not take a number, which the run that did the iterations did not take either.
        waiter[:] = [asyncio.Future(loop=run.loop)]
        try:
            await waiter[0]
        except asyncio.CancelledError:
            # The request reached an iteration that is not repeated. The loop went on after it, or there would be no
            # later state: so it was swallowed there, and is here.
            continue
    return found[0]


async def _iterate(run: Run, loop: Loop, number: int, body: Callable[..., Awaitable[Any]], arguments: Any) -> Any:
    """One iteration, in a task of its own: context variables that it sets stay in it, as everything else does."""
    iteration = Iteration(loop, number, run.seed)
    loop.records.setdefault(number, [])
    run.loop.iterations += 1
    try:
        branch = Branch(iteration.path, scope=iteration, names_no_tasks=run.loop.branch().names_no_tasks)
        return await run.loop.spawn(_body(run, iteration, body, arguments), branch)
    finally:
        run.loop.iterations -= 1
        forget_patches(run, iteration.path)
        if loop.scope is not None:  # nothing is left, unless the loop was cancelled while it waited for that
            loop.scope.tasks += [task for task in iteration.tasks if not task.done()]
        loop.is_saving = loop.is_saving and not iteration.kept


async def _body(run: Run, iteration: Iteration, body: Callable[..., Awaitable[Any]], arguments: Any) -> Any:
    asked: Any = body(*arguments)
    if not isinstance(asked, Awaitable):
        raise BadArgument(
            f"the body of loop {iteration.loop.location!r} is an async function, and this one returned "
            f"{type(asked).__name__}. Write `async def`."
        )
    try:
        return await asked
    finally:
        if not run.closed:
            await _tidy(run, iteration)


async def _tidy(run: Run, iteration: Iteration) -> None:
    """Wait until nothing of the iteration is left. Tasks and children that still run are cancelled, and reported."""
    left_over: list[str] = []
    own = asyncio.current_task()
    while True:
        left = [task for task in iteration.tasks if task is not own and not task.done()]
        loose = [operation for operation in iteration.loose if not operation.settled]
        if not left and not loose and not _close_generators(run, iteration):
            break
        for task in left:
            if not task.cancelling() and task not in iteration.sheltered:  # losers of a race are on their way out
                left_over.append(path_of(task))
                task.cancel("the iteration ended")
        for task in left:
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                run.complain(
                    f"a task left by {iteration.path!r} of run {run.id!r} ended with an error: {summary(error)}"
                )
        for operation in loose:
            if not operation.settled and await operation.let_go(run):
                left_over.append(operation.location)
    for text in reported([task for task in iteration.tasks if task.done()]):  # a replay leaves the iteration out
        run.complain_of(text)
    if left_over:
        names = ", ".join(repr(name) for name in left_over)
        run.complain(
            f"iteration {iteration.path!r} of run {run.id!r} ended while this was still running; it was cancelled: "
            f"{names}."
        )


def _close_generators(run: Run, iteration: Iteration) -> bool:
    """Async generators that were begun in an iteration and left open end with it: a replay that leaves the iteration
    out does not have them. True if there were any."""
    generators = run.loop.generators
    closing = run.loop.close_generators(generators.to_close(iteration)) if generators is not None else []
    iteration.sheltered.update(closing)
    return bool(closing)
