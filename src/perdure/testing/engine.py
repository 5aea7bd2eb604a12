"""`VirtualEngine`: an engine in memory whose time jumps, whose steps can be replaced, and that can be looked into.

    async def test_reminder(engine):              # the fixture of perdure's pytest plugin
        engine.mock(remind, result=None)
        run = await engine.start(invoice("i-1"))
        await engine.wait_until(run, waiting_for=Paid)
        await engine.send(run.id, Paid())
        assert await run.result() == "paid"

It is an `Engine`: everything a program does with one works here. It opens itself when first used, on whatever event
loop runs the test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, TypeVar, overload

from perdure.authoring.workflow import Invocation
from perdure.engine.attempts import Attempt
from perdure.engine.client import OnConflict
from perdure.engine.engine import Engine, RunHandle
from perdure.engine.worker import Worker
from perdure.errors import BadArgument, Deadlocked, NeverWaits
from perdure.kernel.verbs.durations import Duration, seconds_of
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.testing.memory import memory_below
from perdure.testing.mocks import UNSET, Mock, Mocks, Target, make_mock
from perdure.testing.rehearsed import rehearse
from perdure.testing.strict import StrictGuard
from perdure.testing.text import Names, journal_text
from perdure.testing.time import START, Background, VirtualClock, VirtualTime, microseconds
from perdure.testing.waits import Wanted, describe_waits, matches, wanted_text

R = TypeVar("R")
T = TypeVar("T")

Guard = Callable[[], AbstractContextManager[Any]]


class VirtualEngine(Engine):
    """See the module docstring.

    - `start`: when its time begins. `seed`: of run ids, jitter and `random()`; the same seed, the same test.
    - `always_replay`: before every turn the run is thrown away and rebuilt from its journal.
    - `delays=False`: retries come at once, and mocks take no time.
    - `strict=False`: workflow code may read clocks, randomness, the machine past perdure: `perdure.testing.strict`.
    - `guard`: a context manager entered around all workflow code, such as one that watches what it does.
    - `store`: another store object; one that wraps `MemoryStore` keeps everything here working.

    Settings go by name as in `Engine`. `arguments_check` is "park" here: a step that is given other arguments on
    replay is a mistake to be found.
    """

    def __init__(
        self,
        *,
        start: datetime = START,
        seed: int = 0,
        always_replay: bool = False,
        delays: bool = True,
        strict: bool = True,
        guard: Guard | None = None,
        store: Store | None = None,
        **settings: Any,
    ) -> None:
        self._virtual = VirtualClock(start)
        self._data = store if store is not None else MemoryStore()
        options: dict[str, Any] = {"timer_resolution": 0.0, "arguments_check": "park", **settings}
        super().__init__(self._data, clock=self._virtual, **options)
        self._seed = seed
        self.rng = random.Random(seed)
        self._always_replay = always_replay
        self._delays = delays
        self._guard = _both(guard, StrictGuard()) if strict else guard
        #: The steps that are replaced; `crash_everywhere` lets them outlive a crash.
        self.mocks = Mocks()
        self._background: _Background | None = None
        self._runner: asyncio.Runner | None = None
        #: Called for every attempt that begins, mocked or not.
        self.on_attempt: Callable[[Attempt], None] | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    async def open(self) -> VirtualEngine:
        loop = asyncio.get_running_loop()
        time = self._virtual.bind(loop)
        try:
            await super().open()
        except BaseException:
            self._virtual.unbind()
            raise
        self._background = _Background(self, self._data)
        time.background.append(self._background)
        return self

    def prepare(self, worker: Worker) -> None:
        super().prepare(worker)
        worker.attempts.replace_code(self._stand_in, delays=self._delays)
        rehearse(worker, self._data, seed=self._seed, always_replay=self._always_replay, guard=self._guard)

    async def close(self, grace: Duration | None = None) -> None:
        await super().close(grace)
        self._leave_time()

    async def abandon(self) -> None:
        await super().abandon()
        self._leave_time()

    async def __aenter__(self) -> VirtualEngine:
        return await self._ready()

    def shut(self) -> None:
        """Let go of everything from outside the event loop, which may be gone. What the fixture does at its end."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            with runner:
                if self.parts is not None and not self.is_closed:
                    runner.run(self.close())
        elif self._background is not None:
            self.let_go()
            self._leave_time()

    async def _ready(self) -> VirtualEngine:
        if self.parts is None and not self.is_closed:
            await self.open()
        return self

    def _leave_time(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            self.time.background.remove(background)
            self._virtual.unbind()

    @overload
    def run(self, what: Invocation[R], *, id: str | None = None) -> R: ...
    @overload
    def run(self, what: Coroutine[Any, Any, T]) -> T: ...
    def run(self, what: Any, *, id: str | None = None) -> Any:  # noqa: A002
        """For tests that are not async: run a workflow to its end, or a coroutine that uses this engine.

        >>> def test_shipping(engine):
        ...     assert engine.run(fulfil("o-1", 1999)) == "parcel-o-1"
        """
        if self.parts is not None and self._runner is None:
            raise BadArgument("this engine is open on an event loop: await what it should run there.")
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def main() -> Any:
            await self._ready()
            if isinstance(what, Invocation):
                handle: RunHandle[Any] = await self.start(what, id=id)
                return await handle.result()
            return await what

        return self._runner.run(main())

    # -- runs --------------------------------------------------------------------------------------------------------

    async def start(
        self,
        invocation: Invocation[R],
        *,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "return",
    ) -> RunHandle[R]:
        await self._ready()
        return await super().start(invocation, id=id, on_conflict=on_conflict)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def time(self) -> VirtualTime:
        if self._virtual.time is None:
            raise BadArgument("the engine has no time before it is opened.")
        return self._virtual.time

    @property
    def now(self) -> datetime:
        """What time it is in this test."""
        return self.time.datetime

    async def advance(self, duration: Duration | None = None, *, until: datetime | None = None) -> None:
        """Let this much time pass, with everything that happens in it, and then let things settle.

        Time also passes by itself whenever a test waits, as long as there is something to wait for.
        """
        await self._ready()
        if until is not None:
            seconds = max(0, microseconds(until) - self.time.now()) / 1_000_000
        else:
            seconds = seconds_of(duration if duration is not None else 0)
        await asyncio.sleep(seconds)
        await self.time.quiet()

    async def settle(self) -> None:
        """Return when nothing more can happen at this moment: every run waits for time or for the outside."""
        await self._ready()
        await self.time.quiet()

    async def wait_until(self, run: RunHandle[Any] | str, *, waiting_for: Wanted = None) -> None:
        """Let things happen, and time pass, until the run waits for this; None: for anything but a step.

        `waiting_for`: an event type, a step, a workflow (a child), or a text: the kind of wait ("timer", "receive",
        "step", "child"), a name ("sleep") or a location ("sleep#2"). No time passes between its return and what the
        test does next. Raises `NeverWaits` if the run ends or stands still without.
        """
        await self._ready()
        run_id = run if isinstance(run, str) else run.id
        moved = True
        while True:
            await self.time.quiet()
            if any(matches(operation, waiting_for) for operation in _operations(self, run_id)):
                return
            view = await self.status(run_id)
            if view.status.terminal or view.reason or not moved:
                state = f"it is {view.status}" + (f": {view.reason}" if view.reason else "")
                raise NeverWaits(
                    f"run {run_id!r} does not wait for {wanted_text(waiting_for)}: {state}. "
                    f"{describe_waits(run_id, _operations(self, run_id))}"
                )
            moved = await self.time.next_quiet()

    # -- steps -------------------------------------------------------------------------------------------------------

    def mock(
        self,
        step: Target,
        result: Any = UNSET,
        *,
        error: BaseException | type[BaseException] | None = None,
        sequence: Sequence[Any] | None = None,
        call: Callable[..., Any] | None = None,
        timeout: bool = False,
        delay: Duration = 0.0,
    ) -> Mock:
        """Replace the code of a step: given itself, by name (`"charge"`), or one call by location (`"charge#2"`).

        Every attempt returns `result`; or raises `error`; or takes the next of `sequence`, where exceptions are raised
        and `TIMEOUT` is one that takes too long; or calls `call` with the step's arguments; or (`timeout=True`) takes
        too long. `delay` is how long each attempt takes. The step's own retries and timeouts stay in force.

        >>> charged = engine.mock(charge, sequence=[ConnectionError("down"), TIMEOUT, "receipt-1"])
        """
        mock = make_mock(step, result, error, sequence, call, timeout, delay if self._delays else 0.0)
        self.mocks.add(step, mock)
        return mock

    def _stand_in(
        self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any] | None:
        if self.on_attempt is not None:
            self.on_attempt(attempt)
        mock = self.mocks.find(attempt)
        return mock.run(attempt, args, kwargs) if mock is not None else None

    # -- looking -----------------------------------------------------------------------------------------------------

    async def journal_text(self, run: RunHandle[Any] | str, *, names: Names = "short") -> str:
        """The journal of a run in readable form, the same in every test: for snapshots. See `perdure.testing.text`."""
        run_id = run if isinstance(run, str) else run.id
        return journal_text(await self.admin.history(run_id), names=names)


def _operations(engine: Engine, run_id: str) -> list[Any]:
    """What a run that is in memory waits for."""
    residents = engine.worker.residents if engine.worker is not None else ()
    return [operation for resident in residents if resident.id == run_id for operation in resident.run.pending]


def _both(guard: Guard | None, strict: StrictGuard) -> Guard:
    if guard is None:
        return strict

    @contextmanager
    def entered() -> Generator[None]:
        with guard(), strict:
            yield

    return entered


class _Background(Background):
    """What virtual time wants to know of an engine."""

    def __init__(self, engine: VirtualEngine, store: Store) -> None:
        self._engine = engine
        self._memory = memory_below(store)

    def next_due(self, now: int) -> int | None:
        if self._memory is None:
            return None
        return min((at for at in self._memory.ready_times() if at > now), default=None)

    def is_overdue(self, now: int) -> bool:
        if self._memory is None:
            return False
        return any(at <= now for at in self._memory.ready_times())

    def sweep(self) -> None:
        if self._engine.parts is not None:
            self._engine.parts.hint()

    def is_working(self) -> bool:
        worker = self._engine.worker
        return worker is not None and worker.attempts.running > 0

    def deadlocked(self) -> bool:
        """Tells those who wait for the result or an answer of a run that it will never come."""

        def deadlock(run_id: str) -> Deadlocked:
            waits = describe_waits(run_id, _operations(self._engine, run_id))
            return Deadlocked(f"run {run_id!r} will never end or answer: nothing can happen any more. {waits}")

        parts = self._engine.parts
        return parts is not None and parts.signals.refuse_all(deadlock)
