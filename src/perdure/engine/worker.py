"""The worker: pumps resident runs, commits their turns, and lets loose what they asked for once it is durable.

The path of one step's result:
    step code returns -> `StepRunner` keeps it for the end of the burst, or queues an outcome -> `_pump` (outside of any
    task of the host) hands it to the kernel and builds a turn -> `store.commit` -> `_committed` starts what the code
    asked for.
One turn of a run is in flight at a time; what arrives meanwhile goes into the next one, so a fan-out of a thousand
steps needs few commits. Turns of all runs that are ready share one commit.

Over 600 lines, and still one thing: the ways into memory, through a commit and out again, which hold only together.
What they consist of (turns, attempts, deadlines, who is in memory, what to ask of the sweep) has modules of its own.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
from asyncio.futures import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.engine.clock import Timekeeper
from perdure.engine.coordinator import Coordinator
from perdure.engine.errands import Errands
from perdure.engine.host import has_other_work, outside
from perdure.engine.linting import Linter
from perdure.engine.outages import Outages
from perdure.engine.probation import Probation
from perdure.engine.reporting import log_end, log_failed_attempts, log_parked
from perdure.engine.resident import Inbox, Resident, as_judged
from perdure.engine.settings import Settings
from perdure.engine.steps import StepRunner, call_retry_hooks
from perdure.engine.timers import Deadlines
from perdure.engine.turns import TurnBuilder, started_record
from perdure.engine.watchdog import Watchdog
from perdure.errors import (
    CorruptRecord,
    EngineNotOpen,
    PerdureError,
    StoreError,
    StoreLost,
    StoreUnavailable,
    describe,
    describe_line,
    written_out,
)
from perdure.kernel.commands import CancelStep, Command, Log, RunStep, Warn
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import Record, from_row, to_row
from perdure.kernel.loop import Post, batch
from perdure.kernel.operation import decode_frontier
from perdure.kernel.run import Run
from perdure.store.base import (
    CLAIMABLE,
    PLAIN,
    Acquittal,
    CommitResult,
    Committed,
    Created,
    Delivery,
    Existing,
    ItemKind,
    Loaded,
    NewRun,
    NextGeneration,
    Rejected,
    Release,
    RunKey,
    Spawn,
    Status,
    Store,
    Turn,
)
from perdure.store.items import decode_journal, input_digest

A = TypeVar("A")
T = TypeVar("T")

logger = logging.getLogger("perdure.worker")
run_logger = logging.getLogger("perdure.run")

#: Looked at for every turn: a member of an enum is found by a search.
_COMPLETED = Status.COMPLETED
#: Runs given a turn in one callback, so that a burst does not keep the host loop from other work.
_RUNS_PER_PUMP = 500
#: How often a turn that raises by itself is tried again before its run is parked: a lack of memory passes.
_LONE_TRIES = 2
#: What is waited at least for results to be stored and runs to be given back, however short the grace.
_LEAVING_SECONDS_MIN = 0.5
#: How far ahead runs are loaded whose time is near, in intervals of the sweep; these vary by a fifth.
_HORIZON_SWEEPS = 1.5


#: What came of starting a run, and its last record if its first turn has completed it.
Stored: TypeAlias = tuple[Created | Existing, Record | None]


class Newcomer(msgspec.Struct, frozen=True, eq=False):
    """A run that somebody wants to start, and who waits to hear that it is stored."""

    spec: WorkflowSpec
    data: bytes
    id: str
    answer: asyncio.Future[Stored]


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """A new run whose first turn was already taken, waiting to be stored."""

    resident: Resident
    new: NewRun
    turn: Turn
    answer: asyncio.Future[Stored]


class Worker:
    """Everything a process does for the runs it owns. `finished` hears the last record of each that ends or parks, and
    `lost` that the files of the store are gone."""

    def __init__(
        self,
        worker_id: str,
        store: Store,
        registry: Registry,
        settings: Settings,
        clock: Timekeeper,
        rng: random.Random,
        finished: Callable[[str, Record | None], None],
        lost: Callable[[StoreLost], None],
    ) -> None:
        self.id = worker_id
        self._store = store
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._finished = finished
        self._lost = lost
        #: What the sweep should do besides its round: see `Recovery`.
        self.errands = Errands()
        self._loop = asyncio.get_running_loop()
        self._pump_wanted = False
        self._closed = False
        #: Items up to this id were told by the store's news; moved by `Recovery`.
        self.cursor = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._newcomers: list[Newcomer] = []
        #: New runs on their way into the store, batch by batch.
        self._creating: list[Sequence[Prepared]] = []
        self._releases: list[Release] = []
        self._releasing: dict[RunKey, int] = {}
        self._outages = Outages(logger)
        self._unknown: set[tuple[str, str]] = set()
        #: Runs that may have killed their workers.
        self.probation = Probation(settings.recoveries_max, self._loop.time)
        #: Runs that were claimed and turned out to have nothing to do.
        self._acquittals: list[Acquittal] = []
        self.coordinator = Coordinator(settings.residents_max, self._schedule_pump)
        self._builder = TurnBuilder(worker_id, settings, self.draw_seed)
        self._steps = StepRunner(
            clock, settings.steps_max, settings.step_threads, settings.step_processes, rng,
            self.coordinator.mark_ready, self._pump_if_wanted, self._park_if_here,
        )  # fmt: skip
        self._deadlines = Deadlines(clock, settings.timer_resolution, self._deadline_reached)
        self._linter = Linter(registry, active=settings.lint == "warn")
        self._post = Post()
        self._watchdog = Watchdog(self._post, settings.turn_warning, settings.turn_limit)
        #: What runs are made from; tests have another.
        self.run_class: type[Run] = Run

    def swept_by(self, task: asyncio.Task[None]) -> None:
        """The task of the engine that shows whether somebody cancels everything on the loop."""
        self._steps.sweeper = task

    def place_of(self, key: RunKey, location: str) -> str | None:
        """What keeps a step from beginning: see `Attempt.waits_for`. None: nobody here knows of an attempt."""
        resident = self.coordinator.find(key)
        attempt = None if resident is None else resident.attempts.get(location)
        return None if attempt is None else attempt.waits_for

    def draw_seed(self) -> int:
        return self._rng.getrandbits(63)

    # -- new runs ----------------------------------------------------------------------------------------------

    def start(self, spec: WorkflowSpec, data: bytes, run_id: str) -> asyncio.Future[Stored]:
        """Start a run here. Resolves when it is stored, together with its first turn, which the next pump takes; runs
        of one moment are stored together. One that is alone may be stored when this returns."""
        self._linter.read(spec.name, spec.version)
        answer: asyncio.Future[Stored] = self._loop.create_future()
        self._newcomers.append(Newcomer(spec, data, run_id, answer))
        if self._pump_wanted:
            return answer  # it comes with the others
        task = asyncio.current_task(self._loop)
        if task is None or self._steps.is_serving or has_other_work(self._loop):
            self._schedule_pump()
        else:  # it is alone, so there is nothing to gather: the rounds of the loop until it is stored are saved
            with outside(self._loop, task):
                self._pump()
        return answer

    def _prepare_all(self, now: int) -> list[Prepared]:
        """Take the first turns of new runs, in memory only. One that cannot is refused, with nothing written."""
        prepared: list[Prepared] = []
        newcomers, self._newcomers = self._newcomers[:_RUNS_PER_PUMP], self._newcomers[_RUNS_PER_PUMP:]
        for newcomer in newcomers:
            if newcomer.answer.done():  # whoever asked was cancelled
                continue
            try:
                prepared.append(self._prepare(newcomer, now))
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    newcomer.answer.set_exception(error)
                    raise
                self._spawn_task(functools.partial(self._refuse_unless_it_exists, newcomer, error))
        return prepared

    async def _refuse_unless_it_exists(self, newcomer: Newcomer, error: BaseException) -> None:
        """The first turn was only a try: a run of this id that exists has taken its own, perhaps with other code, and
        is what the caller gets (tests/lifecycle/test_starting_an_existing_run.py)."""
        try:
            row = await self._store.get(newcomer.id)
        except Exception as failure:
            logger.debug("whether run %r exists could not be read: %s", newcomer.id, describe(failure))
            row = None
        if not newcomer.answer.done():
            if row is None:
                newcomer.answer.set_exception(error)
            else:
                newcomer.answer.set_result((Existing(row=row), None))

    def _prepare(self, newcomer: Newcomer, now: int) -> Prepared:
        spec, data, run_id = newcomer.spec, newcomer.data, newcomer.id
        started = started_record(spec, data, self.draw_seed(), now)
        digest = input_digest(spec.name, data)
        new = NewRun(run_id, spec.name, spec.version, digest, to_row(started), now, None, self.id)
        resident = Resident(0, 1, self._new_run(spec, run_id, 1), 2, None, Inbox())
        try:
            resident.commands = resident.run.deliver(started)
            turn = self._builder.first_turn(resident, now)
        except BaseException:
            resident.run.close()
            raise
        return Prepared(resident, new, turn, newcomer.answer)

    def _create(self, prepared: Sequence[Prepared], again: bool = False) -> None:
        cursor = self.cursor
        self._creating.append(prepared)
        future = self._asked(self._store.create_all, [(one.new, one.turn) for one in prepared])
        if future.done():
            self._created(prepared, future, cursor, again)
        else:
            future.add_done_callback(lambda done: self._created(prepared, done, cursor, again))

    def _created(
        self,
        prepared: Sequence[Prepared],
        done: asyncio.Future[Sequence[Created | Existing]],
        cursor: int,
        again: bool,
    ) -> None:
        self._creating.remove(prepared)
        error = _error_of(done)
        if error is not None:
            self._creation_failed(prepared, error)
            return
        for one, result in zip(prepared, done.result(), strict=True):
            if isinstance(result, Existing):
                one.resident.run.close()
                if result.row.owner == self.id:
                    self.errands.adopt_run(one.new.id)
                if again and (result.row.created_at, result.row.input_digest) == (
                    one.new.created_at,
                    one.new.input_digest,
                ):
                    # Stored by the call that raised: this caller's own run, not an earlier one of the same id.
                    result = Created(key=result.row.key, epoch=result.row.epoch, committed=None)
            else:
                self._adopt(one, result, cursor)
            if not one.answer.done():
                # Only success is for ever: a failed run may be resumed.
                ended = isinstance(result, Created) and one.turn.status is Status.COMPLETED
                one.answer.set_result((result, one.resident.last if ended else None))

    def _creation_failed(self, prepared: Sequence[Prepared], error: BaseException) -> None:
        """Nothing or everything was stored. If the fault may be of one run, the others are tried without it, half of
        them at a time; otherwise, and for that one, the callers are told."""
        if not _is_outage(error) and len(prepared) > 1 and not self._closed:
            half = len(prepared) // 2
            self._create(prepared[:half], True)
            self._create(prepared[half:], True)
            return
        for one in prepared:
            # If it was stored, it belongs to this worker, which no longer has it.
            one.resident.run.close()
            self.errands.adopt_run(one.new.id)
            self._adopt_children(one.turn)
            if not one.answer.done():
                one.answer.set_exception(error)

    def _adopt(self, prepared: Prepared, created: Created, cursor: int) -> None:
        """The prepared run is stored and belongs to this worker."""
        resident = prepared.resident
        if prepared.turn.status is Status.COMPLETED and created.committed is PLAIN and not resident.commands:
            # Ended with its first turn, and that is all: no need to enter memory in order to leave it.
            resident.run.close()
            self._finished(resident.id, resident.last)
            return
        if self._closed or self.coordinator.find(created.key) is not None:  # closed, or the sweep found it first
            resident.run.close()
            return
        resident.key = created.key
        self._enter(resident, cursor)
        following = resident.following
        if following is not None and created.committed is PLAIN:
            resident.following = None
            self._steps.start(resident, following, True)
            if resident.inbox.unread:
                self._settle(resident)
        else:
            self._follow_with_the_rest(resident)
            self._after_commit(resident, prepared.turn, created.committed or PLAIN, cursor)

    def _enter(self, resident: Resident, cursor: int) -> None:
        """A run that was just created enters memory. News read since `cursor` could not reach it yet."""
        self.coordinator.register(resident)
        if self.cursor != cursor:
            self.errands.reread_news(cursor)

    def _known_run(self, spec: WorkflowSpec, run_id: str, generation: int) -> Run:
        """For a run that is under way: nobody may have read its code here yet."""
        self._linter.read_quietly(spec.name, spec.version)
        return self._new_run(spec, run_id, generation)

    def _new_run(self, spec: WorkflowSpec, run_id: str, generation: int) -> Run:
        return self.run_class(
            spec,
            run_id,
            generation,
            latest=self._registry.latest,
            arguments_check=self._settings.arguments_check,
            io_check=self._settings.io_check,
            post=self._post,
        )

    # -- runs from the store -----------------------------------------------------------------------------------

    def admit(self, loaded: Loaded) -> None:
        """Rebuild a claimed run from its journal. Must be called from a plain loop callback."""
        row = loaded.run
        if row.status not in CLAIMABLE or row.owner != self.id:
            # Paused, ended or taken by another worker between the claim and the load. Its epoch is in the row: without
            # this look two workers would commit under one (tests/races/test_claim_vs_load.py).
            return
        if self._closed or self._releasing.get(row.key) == row.epoch:
            return  # being given back at this very moment: it will be due when that is done
        stale = self.coordinator.find(row.key)
        if stale is not None:
            if stale.epoch >= row.epoch:
                return
            self._drop(stale)  # it was given back and claimed anew: what is in memory has lost its right to commit
        if row.recoveries > self._settings.recoveries_max:
            reason = (
                f"poisoned: the worker died {row.recoveries - 1} times in a row while running it, without progress. "
                f"Look at what its next step does, then `perdure resume {row.id}`."
            )
            self._park_stored(row.key, row.epoch, row.id, reason)
            return
        spec = self._registry.workflow(row.workflow, row.version)
        if spec is None:
            self._release_unknown(loaded)
            return
        run = self._known_run(spec, row.id, row.generation)
        try:
            records = decode_journal(loaded)
            frontier = decode_frontier(row.frontier) if row.frontier is not None else None
            with self._watchdog:
                commands = run.replay(records, frontier)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._park_stored(row.key, row.epoch, row.id, _reason(error))
            run.close()
            return
        resident = Resident(row.key, row.epoch, run, row.next_seq, row.parent, Inbox.of(loaded.inbox, row.last_item))
        resident.commands = commands
        run.is_plain = False
        resident.pruned = row.pruned
        resident.saved_status, resident.saved_state = row.custom_status, row.state
        resident.saved_wake, resident.saved_run_status = row.wake_at, row.status
        if frontier is not None:
            resident.saved_count, resident.saved_digest = frontier.count, frontier.digest
        self.coordinator.register(resident)
        resident.claimed_seq = row.next_seq
        if self.probation.is_suspect(row):
            self.probation.begin(row)
        self.coordinator.mark_ready(resident)

    def expects(self, run_id: str) -> bool:
        """Whether a call is under way whose answer brings this run into memory. Until then nobody else may: the run
        could end before the answer comes, and begin again with it (tests/races/test_sweep_vs_answer.py)."""
        if any(one.new.id == run_id for one in itertools.chain.from_iterable(self._creating)):
            return True
        turns = (resident.in_flight for resident in self.coordinator if resident.in_flight is not None)
        effects = (entry.effect for turn in turns for entry in turn.entries)
        return any(isinstance(effect, Spawn) and effect.new.id == run_id for effect in effects)

    def _cleared(self, resident: Resident) -> None:
        if self.probation.clear(resident.key):
            self.errands.claim()

    def _rests(self, resident: Resident) -> None:
        """A run waits, and has not moved since it was claimed: if this worker dies, another one is to blame."""
        resident.claimed_seq = 0
        self._cleared(resident)
        self._acquittals.append(Acquittal(resident.key, resident.epoch, 0))
        if len(self._acquittals) == 1:
            self._loop.call_soon(self._send_acquittals)  # those of the same moment go together

    def _send_acquittals(self) -> None:
        acquittals, self._acquittals = self._acquittals, []
        if acquittals:
            self._spawn_task(functools.partial(self._acquit, acquittals))

    async def _acquit(self, acquittals: Sequence[Acquittal]) -> None:
        await self._outages.persist(lambda: self._store.acquit(self.id, acquittals))

    def _release_unknown(self, loaded: Loaded) -> None:
        row = loaded.run
        self._unknown.add((row.workflow, row.version))
        reason = f"no worker knows workflow {row.workflow!r} version {row.version!r}"
        self._outages.say(reason, "run %r waits: %s", row.id, reason)
        self._give_back(
            Release(key=row.key, epoch=row.epoch, seen_item=row.last_item, ready_at=limits.AT_ONCE, reason=reason)
        )

    def unknown_workflows(self) -> list[tuple[str, str]]:
        """Workflows and versions that were met here and that nobody has registered since: left for other workers."""
        self._unknown = {pair for pair in self._unknown if self._registry.workflow(*pair) is None}
        return sorted(self._unknown)

    def _spawned(self, parent: Turn, committed: Committed, cursor: int) -> None:
        """Children created by a turn belong to this worker from their first moment: no claim, no read."""
        for entry in parent.entries:
            if isinstance(entry.effect, Spawn):
                new = entry.effect.new
                key = committed.spawned.get(new.id)
                if key is not None and new.owner == self.id and self.coordinator.find(key) is None:
                    self._begin_child(key, new, cursor)

    def _adopt_children(self, turn: Turn) -> None:
        """The turn may be durable, and nobody here will go on from its answer: the children it created are stored as
        this worker's, and no other would ever look at them (tests/children/test_lost_answers.py)."""
        for entry in turn.entries:
            if isinstance(entry.effect, Spawn):
                self.errands.adopt_run(entry.effect.new.id)

    def _begin_child(self, key: RunKey, new: NewRun, cursor: int) -> None:
        spec = self._registry.workflow(new.workflow, new.version)
        if spec is None:  # described by a workflow object that is not registered here any more
            return
        run = self._known_run(spec, new.id, 1)
        resident = Resident(key, 1, run, 2, new.parent, Inbox())
        resident.written = (from_row(new.started),)
        self._enter(resident, cursor)
        self.coordinator.mark_ready(resident)

    # -- the pump ------------------------------------------------------------------------------------------------

    def _schedule_pump(self) -> None:
        if not self._pump_wanted and not self._closed:
            self._pump_wanted = True
            if not self._steps.is_serving:  # otherwise it comes as soon as that burst of steps is over
                self._loop.call_soon(self._pump_if_wanted)

    def _pump_if_wanted(self) -> None:
        if self._pump_wanted or self._steps.ended:
            self._pump()

    def _pump(self) -> None:
        """Give a turn to every run that has something to do, and commit them together."""
        self._pump_wanted = False
        if self._closed:
            return
        now = self._clock.now()
        moved: list[Resident] = []
        turns: list[Turn] = []
        unmoved: list[Resident] = []
        take_turn = self._builder.take_turn
        with self._watchdog, batch():
            if self._steps.ended:
                self._take_results(now, moved, turns)
            for resident in self.coordinator.take_ready(_RUNS_PER_PUMP):
                if not resident.is_current:
                    continue
                try:
                    turn = take_turn(resident, now)
                except BaseException as error:
                    self._give_up(resident, error)
                    continue
                if turn is None:
                    unmoved.append(resident)
                else:
                    resident.in_flight = turn
                    moved.append(resident)
                    turns.append(turn)
            prepared = self._prepare_all(now) if self._newcomers else ()
        for resident in unmoved:
            # Nothing new to store: every record the code has seen is durable, so what it asked for may go.
            if resident.is_current:
                self._let_loose(resident)
                self._settle(resident)
        if prepared:
            self._create(prepared)
        if turns:
            self._commit(moved, turns)
        if self.coordinator.has_ready or self._newcomers:
            self._schedule_pump()

    def _take_results(self, now: int, moved: list[Resident], turns: list[Turn]) -> None:
        """Make turns of what a burst of steps has brought, as far as it is as simple as most of them are."""
        ended, take_results = self._steps.ended, self._builder.take_results
        while ended:
            try:
                take_results(ended, now, moved, turns)
            except BaseException as error:
                if not ended:
                    raise  # of no run: the process was interrupted after the last one
                self._give_up(ended.popleft()[0].resident, error)
            else:
                if ended:
                    self._steps.returned(*ended.popleft())

    def _give_up(self, resident: Resident, error: BaseException) -> None:
        """A turn ended with an error: the run is parked. Raises what is not about the run but about the process."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._drop(resident)
            self.errands.adopt_run(resident.id)  # should this process go on all the same, as notebooks do
            raise error
        self._park(resident, error)

    # -- committing ------------------------------------------------------------------------------------------------

    def _asked(self, call: Callable[[A], Awaitable[T]], argument: A) -> asyncio.Future[T]:
        """The answer of the store, or the error that it raised. Whether at the call or later makes no difference to
        whoever waits for it (tests/lifecycle/test_store_raises_at_the_call.py)."""
        try:
            answer = call(argument)
            return answer if isinstance(answer, Future) else asyncio.ensure_future(answer)
        except Exception as error:
            failed: asyncio.Future[T] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _commit(self, moved: Sequence[Resident], turns: Sequence[Turn], tries: int = 0) -> None:
        cursor = self.cursor
        future = self._asked(self._store.commit, turns)
        if future.done():  # stored on the spot: another round of the event loop would only cost time
            self._committed(moved, turns, future, cursor, tries)
        else:
            future.add_done_callback(lambda done: self._committed(moved, turns, done, cursor, tries))

    def _committed(
        self,
        moved: Sequence[Resident],
        turns: Sequence[Turn],
        done: asyncio.Future[Sequence[CommitResult]],
        cursor: int,
        tries: int,
    ) -> None:
        error = _error_of(done)
        if error is not None:
            self._commit_failed(moved, turns, error, tries)
            return
        self._outages.over()
        results = done.result()
        left: Iterable[tuple[Resident, Turn, CommitResult]] = (
            zip(moved, turns, results, strict=True)
            if self.probation.members
            else self._steps.start_all(moved, turns, results)
        )
        for resident, turn, result in left:
            if not resident.is_current:
                self._adopt_children(turn)
            elif isinstance(result, Rejected):
                self._outages.say("lease", "run %r was let go: %s", resident.id, result.reason)
                self._drop(resident)
                # In case it is still ours, and only what we had in memory was wrong.
                self.errands.adopt_run(resident.id)
                self._adopt_children(turn)
            elif result is PLAIN and turn.status is _COMPLETED and not (resident.commands or resident.hooks):
                self._end(resident, turn)  # and that is all
            else:
                self._follow_with_the_rest(resident)
                self._after_commit(resident, turn, result, cursor)

    def _commit_failed(
        self, moved: Sequence[Resident], turns: Sequence[Turn], error: BaseException, tries: int
    ) -> None:
        """The outcome is unknown. The same turns are sent again: the store recognises what it already has."""
        if self._closed:
            return
        if isinstance(error, StoreLost):
            self.store_lost(error)
        elif _is_outage(error):
            self._loop.call_later(self._outages.failed(error), self._commit_again, moved, turns)
        elif len(turns) > 1:
            # The fault of one of them, or of the store with all: half of them at a time finds out, and the others go on
            # (tests/lifecycle/test_commits_that_raise.py).
            half = len(turns) // 2
            self._commit_again(moved[:half], turns[:half])
            self._commit_again(moved[half:], turns[half:])
        elif tries < _LONE_TRIES:
            self._loop.call_later(self._outages.failed(error), self._commit_again, moved, turns, tries + 1)
        else:
            (resident,), (turn,) = moved, turns
            logger.error("a turn of run %r cannot be stored", resident.id, exc_info=error)
            self._adopt_children(turn)
            if resident.is_current:
                self._drop(resident)
                self._park_stored(resident.key, resident.epoch, resident.id, _refused(error))

    def _commit_again(self, moved: Sequence[Resident], turns: Sequence[Turn], tries: int = 0) -> None:
        left = [(r, t) for r, t in zip(moved, turns, strict=True) if r.is_current]
        for resident, turn in zip(moved, turns, strict=True):
            if not resident.is_current:
                self._adopt_children(turn)
        if left and not self._closed:
            self._commit([r for r, _ in left], [t for _, t in left], tries)

    def _follow_with_the_rest(self, resident: Resident) -> None:
        """There is more to do after the commit: the step that follows becomes one of the commands."""
        if resident.following is not None:
            resident.commands.append(RunStep(resident.following))
            resident.following = None

    def _after_commit(self, resident: Resident, turn: Turn, committed: Committed, cursor: int) -> None:
        resident.in_flight = None
        if self.probation.members and turn.entries:
            self._cleared(resident)
        resident.next_seq = turn.expected_seq + len(turn.entries)
        before = turn.expected_seq - resident.pruned
        resident.pruned += len(turn.pruned)
        if before <= limits.JOURNAL_RECORDS_WARN < resident.next_seq - resident.pruned:
            logger.warning(
                "the journal of run %r has %d records, all of them replayed at every recovery. "
                "Time for `loop` or `continue_as`.",
                resident.id,
                resident.next_seq - 1 - resident.pruned,
            )
        if committed is not PLAIN:
            resident.written = (*resident.written, *map(from_row, committed.effects))
            for delivery in committed.deliveries:
                self.deliver(delivery)
        if resident.hooks:
            log_failed_attempts(resident, resident.hooks)
            for hook in call_retry_hooks(resident):
                task = self._loop.create_task(hook)  # not repeated if a stranger cancels it: a hook is told once
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if committed.more:
            self.errands.spread_published()
        if committed.replied:
            self._finished(resident.id, None)  # whoever asked looks again
        if turn.continued is not None:
            self._continue(resident, turn.continued)
        elif turn.status.terminal:
            self._end(resident, turn)
        if resident.commands:
            self._let_loose(resident)
        if committed.spawned:
            self._spawned(turn, committed, cursor)
        self._settle(resident)

    def _continue(self, resident: Resident, following: NextGeneration) -> None:
        """The next generation takes the place of the one that ended; whatever that one still had going is void."""
        ended = resident.run
        self._say(resident, [c for c in resident.commands if isinstance(c, (Log, Warn))])
        self._steps.cancel_all(resident)
        resident.commands, resident.outcomes = [], []
        ended.close()
        spec = self._registry.workflow(following.workflow, following.version)
        if spec is None:
            raise AssertionError("a run continued as a workflow that was registered a moment ago")
        resident.run = self._known_run(spec, ended.id, ended.generation + 1)
        resident.next_seq, resident.pruned = 2, 0
        resident.saved_count = resident.saved_digest = -1
        resident.saved_wake = None
        resident.written = (from_row(following.started),)

    def _end(self, resident: Resident, turn: Turn) -> None:
        self._say(resident, [c for c in resident.commands if isinstance(c, (Log, Warn))])
        resident.commands = []
        last = resident.last or from_row(turn.entries[-1].row)
        self._drop(resident, last)
        if turn.status is not _COMPLETED:
            log_end(resident.id, last)

    def _let_loose(self, resident: Resident) -> None:
        """Carry out what the code asked for: everything it has seen is durable."""
        commands, resident.commands = resident.commands, []
        for command in commands:
            if type(command) is RunStep:
                self._steps.start(resident, command.operation)
                continue
            match command:
                case CancelStep(location):
                    self._steps.cancel(resident, location)
                case Log() | Warn():
                    self._say(resident, [command])
                case _:
                    raise AssertionError("effects belong to the turn")

    def _say(self, resident: Resident, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Log):
                try:
                    run_logger.log(command.level, command.message, *command.args, extra={"run_id": resident.id})
                except Exception as error:  # of an argument's class or a filter; the run must not wait for it for ever
                    run_logger.warning("a line of run %s could not be logged: %s", resident.id, describe_line(error))
            elif isinstance(command, Warn):
                run_logger.warning("%s", command.message, extra={"run_id": resident.id})

    def _settle(self, resident: Resident) -> None:
        """After a turn: go on if there is more, else wait."""
        if not resident.is_current:
            return
        run, inbox = resident.run, resident.inbox
        deadline = run.pending.next_deadline()
        more = resident.written or resident.outcomes or inbox.others
        if deadline is None and resident.attempts and not more and not inbox.unread:
            self._deadlines.set(resident.key, None)  # the common case: steps run, nothing else is going on
            return
        now = self._clock.now()
        due = deadline is not None and deadline <= now
        if more or due or inbox.match(run.pending.receives.values(), as_judged) is not None:
            self.coordinator.mark_ready(resident)
            return
        self._deadlines.set(resident.key, deadline)
        if resident.claimed_seq == resident.next_seq and not resident.attempts and self._is_far(deadline, now):
            self._rests(resident)
        self.coordinator.mark_waiting(resident)
        for evicted in self.coordinator.evict(self.horizon(now)):
            self._evict(evicted)

    def horizon(self, now: int) -> int:
        """Whatever is due before this is better kept in memory: the next sweep might come too late to load it."""
        return now + round(self._settings.sweep_interval * _HORIZON_SWEEPS * 1_000_000)

    def _is_far(self, deadline: int | None, now: int) -> bool:
        """Whether a run will wait for some time. One that moves before long shows more than one that rests."""
        return deadline is None or deadline > self.horizon(now)

    def _deadline_reached(self, key: RunKey) -> None:
        resident = self.coordinator.find(key)
        if resident is not None:
            self.coordinator.mark_ready(resident)

    # -- hints from the store --------------------------------------------------------------------------------------

    def deliver(self, delivery: Delivery) -> None:
        """An item arrived for some run."""
        if delivery.item.kind is ItemKind.PAUSE:
            if delivery.owner == self.id:
                resident = self.coordinator.find(delivery.key)
                self.ended(delivery.key)
                if resident is not None:  # in case it was unpaused and is ours again, and this came late
                    self.errands.adopt_run(resident.id)
        elif delivery.owner == self.id:
            if not self.coordinator.deliver(delivery.key, delivery.item):
                self.errands.reread_inbox(delivery.key)
        elif delivery.owner is None:
            self.errands.claim()

    def ended(self, key: RunKey) -> None:
        """Somebody else ended or paused a run of ours: its attempts are cancelled, and it leaves memory."""
        resident = self.coordinator.find(key)
        if resident is not None:
            self._drop(resident)
        self._give_back(Release(key=key, epoch=0, seen_item=limits.NEVER, ready_at=limits.NEVER))

    # -- leaving memory ----------------------------------------------------------------------------------------------

    def _drop(self, resident: Resident, last: Record | None = None) -> None:
        """Out of memory, for whatever reason; whoever waits for it here is told, with its last record if it ended."""
        self.coordinator.forget(resident)
        if self.probation.members:
            self._cleared(resident)
        self._deadlines.set(resident.key, None)
        if resident.attempts:
            self._steps.cancel_all(resident)
        resident.run.close()
        self._finished(resident.id, last)

    def _evict(self, resident: Resident) -> None:
        deadline = resident.run.pending.next_deadline()
        if resident.run.pending.has_active_steps():
            # A worker that drains begins no more steps, so the run only looks idle: somebody else has to work on it
            # (tests/lifecycle/test_evicted_while_draining.py).
            deadline = limits.AT_ONCE
        self._drop(resident)
        self._give_back(
            Release(
                key=resident.key,
                epoch=resident.epoch,
                seen_item=resident.inbox.last,
                ready_at=deadline if deadline is not None else limits.NEVER,
            )
        )

    def _park(self, resident: Resident, error: BaseException) -> None:
        self._drop(resident)
        self._park_stored(resident.key, resident.epoch, resident.id, _reason(error))

    def _park_if_here(self, resident: Resident, error: BaseException) -> None:
        if resident.is_current:
            self._park(resident, error)

    def _park_stored(self, key: RunKey, epoch: int, run_id: str, reason: str) -> None:
        reason = written_out(reason)
        self._spawn_task(lambda: self._park_until_done(key, epoch, run_id, reason))

    async def _park_until_done(self, key: RunKey, epoch: int, run_id: str, reason: str) -> None:
        if await self._outages.persist(lambda: self._store.park(key, epoch, reason, self._clock.now())):
            log_parked(run_id, reason)
        self._finished(run_id, None)
        self.errands.claim()  # what it held may be for another run here

    def _give_back(self, release: Release) -> None:
        self._releases.append(release)
        self._releasing[release.key] = release.epoch
        if len(self._releases) == 1:
            self._loop.call_soon(self._send_releases)  # those of the same moment go together

    def _send_releases(self) -> None:
        releases, self._releases = self._releases, []
        if releases:
            self._spawn_task(lambda: self._release(releases))

    async def _release(self, releases: Sequence[Release]) -> None:
        try:
            await self._outages.insist(lambda: self._store.release(self.id, releases))
        except Exception as error:
            logger.critical("%d runs could not be given back, trying again one by one", len(releases), exc_info=error)
            for release in releases:
                await self._outages.persist(functools.partial(self._store.release, self.id, [release]))
        for release in releases:
            if self._releasing.get(release.key) == release.epoch:
                del self._releasing[release.key]
        self.errands.claim()  # something may have arrived for them meanwhile

    def _spawn_task(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something that is safe to repeat, to its end: also if a stranger cancels its task and the loop goes on."""

        def again() -> None:
            if not self._closed:
                self._spawn_task(work)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, again)

        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(ended)

    def begin_nothing_more(self) -> None:
        """From now on no step is started; those under way go on. What closing begins with."""
        self._steps.accepting = False

    async def close(self, grace: float) -> None:
        """Let running steps finish and their results be stored, within the grace; then let go of every run."""
        await self._steps.drain(grace)
        # By the clock: on a busy machine a sleep of 10 ms may take a second (tests/lifecycle/test_close_is_bounded.py).
        until = self._loop.time() + max(grace, _LEAVING_SECONDS_MIN)
        while self._steps.ended or any(r.in_flight or r.outcomes or r.queued for r in self.coordinator):
            if self._loop.time() >= until:
                break
            await asyncio.sleep(0.01)
        self._closed = True
        self._watchdog.close()
        self._deadlines.close()
        self._turn_away()
        for resident in self.coordinator:
            self._drop(resident)
        self._send_acquittals()
        self._send_releases()
        if self._tasks:
            left = max(until - self._loop.time(), _LEAVING_SECONDS_MIN)
            await asyncio.wait(set(self._tasks), timeout=left)
        for task in self._tasks:  # the store does not answer; the next worker finds out by itself
            task.cancel()

    def _turn_away(self) -> None:
        """Whoever wanted to start a run in the last moment is told that nothing came of it."""
        newcomers, self._newcomers = self._newcomers, []
        for newcomer in newcomers:
            if not newcomer.answer.done():
                newcomer.answer.set_exception(
                    EngineNotOpen(f"the engine was closed before run {newcomer.id!r} started.")
                )

    def store_lost(self, error: StoreLost) -> None:
        """The files of the store are gone or others: nothing that is done here could ever be recorded. Said once; the
        runs are let go of as by a crash, for the next worker on the right files."""
        if self._closed:
            return
        logger.critical("this worker stops: %s", describe(error))
        self._lost(error)
        for newcomer in self._newcomers:
            if not newcomer.answer.done():
                newcomer.answer.set_exception(StoreLost(error.message))
        self.abandon()

    def abandon(self) -> None:
        """Forget everything at once, as a crash would; nothing more is written."""
        self._closed = True
        self._watchdog.close()
        self._turn_away()
        for one in itertools.chain.from_iterable(self._creating):
            one.resident.run.close()
        self._deadlines.close()
        self._steps.abandon()
        for resident in self.coordinator:
            self._drop(resident)
        for task in self._tasks:
            task.cancel()


def _error_of(done: asyncio.Future[Any]) -> BaseException | None:
    """What a call of the store ended with, if not with an answer."""
    if done.cancelled():  # by a host that cancels all tasks there are: nobody knows what came of it
        return StoreUnavailable("the call of the store was cancelled before its answer came.")
    return done.exception()


def _is_outage(error: BaseException) -> bool:
    """Whether the fault is of the store as a whole, to be waited for, and not of what it was given."""
    return isinstance(error, StoreError) and not isinstance(error, CorruptRecord)


def _refused(error: BaseException) -> str:
    return (
        f"what it did in its last turn cannot be stored: {describe(error)}. Nothing of that turn was kept. "
        "Look for what its code passes on there, then resume it."
    )


def _reason(error: BaseException) -> str:
    return written_out(f"{type(error).__name__}: {error}") if isinstance(error, PerdureError) else describe(error)
