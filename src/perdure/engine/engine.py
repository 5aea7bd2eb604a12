"""The facade: `Engine(url)`, and `RunHandle`, what `start` returns. Checks how it is used; the parts do the work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from asyncio import events
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from perdure import limits
from perdure.admin.check import Checked
from perdure.admin.views import DeadLetterView, HistoryEntry, PublishedView, RunView
from perdure.admin.why import Reason
from perdure.authoring.registry import registry
from perdure.authoring.workflow import Invocation
from perdure.engine.client import Client, OnConflict
from perdure.engine.clock import Clock, Timekeeper, timekeeper
from perdure.engine.events import EventClient
from perdure.engine.guarding import install_guard
from perdure.engine.lifecycle import Lifecycle
from perdure.engine.loading import refuse_while_loading
from perdure.engine.outages import Outages
from perdure.engine.recovery import Recovery
from perdure.engine.settings import Settings, load_settings
from perdure.engine.signals import Signals
from perdure.engine.worker import Worker
from perdure.errors import BadArgument, EngineNotOpen, Forbidden, StoreLost, StoreUnavailable, WrongLoop
from perdure.given import class_name, shown, text_of
from perdure.kernel.codec import codec_for
from perdure.kernel.journal import Record
from perdure.kernel.values import ValueCodec
from perdure.kernel.verbs import Duration, check_run_id, check_text, positive_seconds_of, running_run
from perdure.store import open_store
from perdure.store.base import TERMINAL, Status, Store, WorkerInfo

R = TypeVar("R")

logger = logging.getLogger("perdure.engine")

#: What closing still waits for a store that has not answered once.
_STORE_HANGS_SECONDS = 1.0


class RunHandle(Generic[R]):
    """A run, by its id. Cheap: it holds no connection and stays good after the run has ended."""

    __slots__ = ("_codec", "_engine", "_last", "id")

    def __init__(self, engine: Engine, run_id: str, codec: ValueCodec[R] | None, last: Record | None = None) -> None:
        self._engine = engine
        #: Of what its workflow returns; None if it is not known which that is.
        self._codec = codec
        self._last = last
        self.id = run_id

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the run and return what it returned.

        Raises `RunFailed` (its cause is the error), `RunCancelled`, `RunParked`; `TimeoutError` after `timeout`,
        which does not disturb the run.
        """
        if self._codec is None:
            return await self._engine.result(self.id, timeout)  # type: ignore[no-any-return]
        client, record = self._engine._checked(), self._last
        if record is None:  # otherwise it had ended when `start` returned
            record = await (client.end_of(self.id) if timeout is None else client.end_within(self.id, timeout))
        return self._codec.decode(client.value_of(self.id, record), f"the result of run {self.id!r}")

    async def status(self) -> RunView:
        return await self._engine.status(self.id)

    async def send(self, event: Any, *, key: str | None = None) -> None:
        await self._engine.send(self.id, event, key=key)

    async def request(self, event: Any, *, timeout: Duration | None = None, key: str | None = None) -> Any:
        """Send an event and wait for the workflow's `reply`; see `Engine.request`."""
        return await self._engine.request(self.id, event, timeout=timeout, key=key)

    async def cancel(self, reason: str = "") -> bool:
        return await self._engine.cancel(self.id, reason)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"


class Engine:
    """A store, and a worker on it unless `worker=False`. Use as `async with Engine("orders.db") as engine:`.

    `url`: a path, `sqlite:///path`, `:memory:`, or a store object. Settings may be given by name
    (`Engine("orders.db", residents_max=1000)`); see `perdure.engine.settings`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        *,
        worker: bool = True,
        name: str | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self._store = _store_of(url)
        self._with_worker = worker
        self._name = check_text(name, "the name of a worker") or f"{socket.gethostname()}-{os.getpid()}"
        self.settings: Settings = load_settings(settings)
        self._clock: Timekeeper = timekeeper(clock)
        # Draws worker ids, seeds of runs and jitter; nothing here is a secret.
        self._rng = random.Random()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._closing = False
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._recovery: Recovery | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None
        self._signals = Signals()
        #: Set when the worker has stopped because a file of the store was deleted or replaced (`StoreLost`): what an
        #: application that keeps a worker waits for, in order to end.
        self.lost = asyncio.Event()
        self._store_answers = True

    # -- life ------------------------------------------------------------------------------------------------------

    async def open(self) -> Engine:
        """Make ready: open the store, register the worker, start the sweep."""
        if running_run() is not None:
            raise Forbidden("workflow code opened an engine. Do that in a step, or outside.")
        if self._closing:
            raise EngineNotOpen("this engine was closed. Make a new one: Engine(...).")
        if self._client is not None:
            raise EngineNotOpen("this engine is already open; open() it once.")
        refuse_while_loading()
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        install_guard()
        await self._store.open()
        try:
            await self._open_parts()
        except BaseException:
            await self._store.close()
            raise
        return self

    async def _open_parts(self) -> None:
        if self._with_worker:
            worker_id = uuid.UUID(int=self._rng.getrandbits(128), version=4).hex
            info = WorkerInfo(
                id=worker_id,
                name=self._name,
                host=socket.gethostname(),
                pid=self._pid,
                started_at=self._clock.now(),
            )
            await self._store.register_worker(info)
            worker = Worker(
                worker_id, self._store, registry, self.settings, self._clock, self._rng,
                finished=self._signals.ended, lost=self._store_lost,
            )  # fmt: skip
            # Before any run can be started here: an item that arrives between now and the first sweep is then news.
            news = await Outages(logger).insist(lambda: self._store.news(worker_id, 0))
            worker.cursor = news.cursor
            self._worker = worker
            # Chance of its own: how often it sweeps must not decide what runs draw in a test with a fixed seed.
            rng = random.Random(self._rng.getrandbits(64))
            recovery = Recovery(worker, self._store, self.settings, self._clock, rng)
            self._recovery = recovery
            self._start_sweep(worker, recovery)
        self._client = Client(self._store, self.settings, self._clock, self._rng, self._signals, self._worker)
        self._unwatch = self._store.watch(self._changed)

    def _start_sweep(self, worker: Worker, recovery: Recovery) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() and not self._closing:
                # Not by us: an event loop that ends cancels all its tasks, and so does many a framework. If this one
                # goes on after all, so does the engine (tests/steps/test_cancelled_by_strangers.py).
                logger.warning(
                    "the tasks of this engine were cancelled by something else than perdure, such as the end of the "
                    "event loop. No run fails by it; if the loop goes on, the engine does so in %g s. "
                    "Close the engine before the loop ends: `async with Engine(...)`.",
                    limits.CANCELLED_BY_OTHERS_SECONDS,
                )
                task.get_loop().call_later(limits.CANCELLED_BY_OTHERS_SECONDS, again)
            else:
                _report_death(task)

        def again() -> None:
            if not self._closing:
                self._start_sweep(worker, recovery)

        self._sweeper = asyncio.create_task(recovery.run(), name="perdure-sweep")
        self._sweeper.add_done_callback(ended)
        worker.swept_by(self._sweeper)

    async def close(self, grace: Duration | None = None) -> None:
        """Drain: running steps get `grace` to finish, their results are stored, runs are given back. Safe to repeat.

        It ends in bounded time, whatever steps and the store do. Raises `StoreUnavailable` if the store does not
        answer: nothing that was recorded is lost, and the next worker recovers the rest.
        """
        if running_run() is not None:
            raise Forbidden("workflow code closed an engine. Do that in a step, or outside.")
        seconds = self.settings.shutdown_grace if grace is None else positive_seconds_of(grace, "the grace of close")
        if self._client is None or self._closing or os.getpid() != self._pid:
            return  # never opened, closed before, or the engine of the process that was forked: nothing here is ours
        self._check_loop()
        self._closing = True
        self._client.closed = True
        if self._worker is not None:
            self._worker.begin_nothing_more()
        try:
            if self._unwatch is not None:
                self._unwatch()
            if self._sweeper is not None:
                self._sweeper.cancel()
                await asyncio.wait({self._sweeper}, timeout=self._clock.poll(limits.CLOSE_SECONDS_MAX))
            if self._worker is not None:
                await self._worker.close(seconds)
                await self._unregister(self._worker)
        except GeneratorExit:
            # Thrown away with its loop: nothing can be awaited, and what is open goes with the process.
            self._client = None
            raise
        except BaseException:
            await self._close_store()
            raise
        await self._close_store()

    async def _close_store(self) -> None:
        self._client = None
        self._signals.look_again()
        await self._answered(self._store.close())

    async def _answered(self, leaving: Awaitable[None]) -> None:
        """Wait for the store, not for ever: a disk that hangs must not keep the program from ending
        (tests/lifecycle/test_close_is_bounded.py)."""
        seconds = limits.CLOSE_SECONDS_MAX if self._store_answers else _STORE_HANGS_SECONDS
        limit = asyncio.timeout(self._clock.poll(seconds))
        try:
            async with limit:
                await leaving
        except TimeoutError:
            if not limit.expired():
                raise
            self._store_answers = False
            raise StoreUnavailable(
                f"the store did not answer for {seconds:g} seconds while the engine was closed. What was acknowledged "
                "is recorded; the next worker recovers the runs that this one had."
            ) from None

    async def _unregister(self, worker: Worker) -> None:
        try:
            await self._answered(self._store.unregister_worker(worker.id, self._clock.now()))
        except StoreLost:
            if not self.lost.is_set():  # otherwise it was said, and there is nothing to leave in order
                raise

    def _store_lost(self, error: StoreLost) -> None:
        if self._client is not None:
            self._client.lost = error
        self.lost.set()

    async def abandon(self) -> None:
        """Let go of everything at once, giving nothing back: what a crash leaves behind. For tests of recovery."""
        if self._client is None:
            return
        self._client, self._closing = None, True
        if self._unwatch is not None:
            self._unwatch()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._worker is not None:
            self._worker.abandon()

    async def __aenter__(self) -> Engine:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _changed(self) -> None:
        self._hint()
        if self._worker is None:  # a worker tells of its own runs; without one every end is somebody else's
            self._signals.look_again()

    def _hint(self) -> None:
        if self._worker is not None and not self._closing and self._recovery is not None:
            self._recovery.hint()

    def _checked(self) -> Client:
        client = self._client
        if client is not None and events._get_running_loop() is self._loop and os.getpid() == self._pid:
            return client
        if running_run() is not None:
            raise Forbidden(
                "workflow code called the engine. Use the verbs instead: send, start_child, cancel from `perdure`, "
                "or call the engine in a step."
            )
        if os.getpid() != self._pid:
            raise EngineNotOpen("this engine belongs to the process that was forked. Open one in this process.")
        if client is None:
            state = "closed" if self._closing else "not open yet"
            raise EngineNotOpen(f"the engine is {state}. Use it inside `async with Engine(...) as engine:`.")
        self._check_loop()
        return client  # not reached: one of the checks above has raised

    def _events(self) -> EventClient:
        client = self._checked()
        return EventClient(client, self._store, self.settings, self._clock, self._rng, self._signals, self._worker)

    def _check_loop(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop:
            raise WrongLoop(
                "this engine was opened on another event loop. Use it where it was opened "
                "(asyncio.run_coroutine_threadsafe helps from other threads), or open one here."
            )

    # -- runs ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        invocation: Invocation[R],
        *,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "return",
    ) -> RunHandle[R]:
        """Start a run: durable when this returns.

        Starting an id again with the same workflow and input returns the same run, finished or not; anything else
        is `RunConflict` (`on_conflict="raise"` makes every existing id one).

        >>> run = await engine.start(fulfil("o-1", 1999), id="order-1")
        """
        client = self._checked()
        run_id, last = await client.start(invocation, id, on_conflict)
        return RunHandle(self, run_id, invocation.spec.result, last)

    def get(self, run_id: str) -> RunHandle[Any]:
        """A handle for a run that exists. Its result is decoded by the workflow's type if it is known here."""
        self._checked()
        return RunHandle(self, check_run_id(run_id, allow_children=True), None)

    async def result(self, run_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a run's end; see `RunHandle.result`. Decoded by the workflow's type if that is known here."""
        client = self._checked()
        record = await (client.end_of(run_id) if timeout is None else client.end_within(run_id, timeout))
        value = client.value_of(run_id, record)
        view = await client.view(run_id)
        spec = registry.workflow(view.workflow, view.version)
        codec = spec.result if spec is not None else codec_for(Any)
        return codec.decode(value, f"the result of run {run_id!r}")

    async def send(self, run_id: str, event: Any, *, key: str | None = None) -> None:
        """Send an event to a run: durable when this returns. The same `key` twice counts once.

        Raises `RunNotFound`, `RunFinished`, `InboxFull`.
        """
        await self._checked().send(run_id, event, key)

    async def publish(self, event: Any, *, key: str | None = None) -> None:
        """Publish an event: durable when this returns. The same `key` twice counts once.

        Who gets it is said by its class: `@event(delivery=, consume=, expires=)`.
        """
        await self._events().publish(event, key)

    async def request(self, run_id: str, event: Any, *, timeout: Duration | None = None, key: str | None = None) -> Any:
        """Send an event to a run and wait for what its workflow answers with `reply(event, value)`.

        Raises `RunNotFound`, `RunFinished`, `InboxFull`; `NoReply` if the run ends without answering, `RunParked`,
        `TimeoutError`. Asking again with the same `key` is the same request: its answer is found also after a crash.
        """
        client = self._events()
        seconds = None if timeout is None else positive_seconds_of(timeout, "the timeout of request")
        return await client.request(run_id, event, seconds, key)

    async def published(
        self,
        *,
        type: str | None = None,  # noqa: A002
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: int = 0,
    ) -> list[PublishedView]:
        """Published events that somebody may still get, oldest first. `after` pages on."""
        return await self._events().published(type, limit, after)

    async def dead_letters(
        self,
        *,
        type: str | None = None,  # noqa: A002
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: int = 0,
    ) -> list[DeadLetterView]:
        """Events that did not reach their run, oldest first. `after` pages on: the number of the last one seen."""
        return await self._events().letters(type, limit, after)

    async def replay_dead_letter(self, letter_id: int, run_id: str | None = None) -> None:
        """Send a dead letter to a run, which wakes if it waits, or publish it to all. It is then no longer one.

        Raises `LetterNotFound`, `RunNotFound`, `RunFinished`, `InboxFull`; then it stays as it is.
        """
        await self._events().replay(letter_id, run_id)

    async def remove_dead_letters(self, *letter_ids: int) -> int:
        """Forget dead letters. Returns how many there were."""
        return await self._events().remove(letter_ids)

    async def cancel(self, run_id: str, reason: str = "") -> bool:
        """Ask a run to cancel: `CancelledError` is raised in its code, which may clean up with steps.

        False if it had ended, or was asked before. Raises `RunNotFound`.
        """
        return await self._checked().cancel(run_id, reason)

    async def terminate(self, run_id: str, reason: str = "") -> bool:
        """End a run now, without its cleanup. False if it had ended. Raises `RunNotFound`."""
        return await self._checked().terminate(run_id, reason)

    # -- what people do to runs --------------------------------------------------------------------------------------

    async def resume(self, run_id: str) -> bool:
        """Let a parked run go on, or a failed one from its last good record: what made it fail is tried again.

        False if it is neither. Raises `RunNotFound`, and `ActionRefused` where that makes no sense, with the reason.
        """
        return await self._people().resume(run_id)

    async def pause(self, run_id: str, by: str = "") -> bool:
        """Stop a run until `unpause`. Running attempts of its steps are cancelled, and run again afterwards, as after a
        crash; events go on arriving. False if it is paused already. Raises `RunNotFound`, `ActionRefused`."""
        return await self._people().pause(run_id, by)

    async def unpause(self, run_id: str) -> bool:
        """Let a paused run go on. False if it is not paused. Raises `RunNotFound`, `ActionRefused`."""
        return await self._people().unpause(run_id)

    async def retry(self, run_id: str, location: str = "") -> None:
        """Begin the next attempt of a step that is in a backoff now (of all such steps, without a location).

        Raises `RunNotFound`, `UnknownLocation`, and `ActionRefused` if nothing is in a backoff.
        """
        await self._people().retry(run_id, location)

    async def fork(
        self,
        run_id: str,
        *,
        id: str | None = None,  # noqa: A002
        at: str | None = None,
        result: Any = ...,
        arguments: Mapping[str, Any] | None = None,
        generation: int | None = None,
        paused: bool = False,
    ) -> RunHandle[Any]:
        """Make a new run from the past of another, which is only read: its journal up to the location `at`.

        The operation there happens again, or has the `result` given; `arguments` replaces some of the workflow's.
        Raises `RunNotFound`, `UnknownLocation`, `ActionRefused`, `RunConflict`.
        """
        people = self._people()
        return RunHandle(self, await people.fork(run_id, id, at, result, arguments, generation, paused), None)

    async def delete(self, run_id: str) -> None:
        """Remove a run that has ended. Raises `RunNotFound`, `ActionRefused`."""
        await self._people().delete(run_id)

    async def prune(
        self,
        older_than: Duration,
        *,
        status: str | Status | Iterable[str | Status] | None = None,
        workflow: str | None = None,
    ) -> int:
        """Remove runs that ended longer ago than this, in small transactions. Returns how many."""
        seconds = positive_seconds_of(older_than, "older_than of prune")
        pruning = self._people().prune(seconds, _statuses(status) or TERMINAL, workflow, dry_run=False)
        return sum([count async for count in pruning])

    async def export_run(self, run_id: str) -> bytes:
        """A run as one JSON file, to be kept or imported elsewhere. Raises `RunNotFound`."""
        return await self._people().export_run(run_id)

    async def import_run(
        self,
        data: bytes,
        *,
        id: str | None = None,  # noqa: A002
        source: str = "a file",
        paused: bool = True,
    ) -> RunHandle[Any]:
        """Create the run of an exported file, under its own or another id. An open one is paused unless told otherwise:
        the original may still be running. Raises `ExportUnusable`, `RunConflict`."""
        return RunHandle(self, await self._people().import_run(data, id, source, paused), None)

    async def why(self, run_id: str) -> Reason:
        """Why a run is not moving, exactly. Raises `RunNotFound`."""
        return await self._people().why(run_id)

    def check(self, workflow: str | None = None) -> AsyncIterator[Checked]:
        """Replay every open run against the code of this process, writing nothing: would it still match?

        >>> broken = [run async for run in engine.check() if not run.is_fine]
        """
        return self._people().check(workflow)

    def _people(self) -> Lifecycle:
        self._checked()
        return Lifecycle(self._store, registry, self._clock, self._rng, self._worker, self._hint)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def status(self, run_id: str) -> RunView:
        """What is known about a run. Raises `RunNotFound`."""
        return await self._checked().view(run_id)

    async def list(
        self,
        *,
        status: str | Status | Iterable[str | Status] | None = None,
        workflow: str | None = None,
        id_prefix: str | None = None,
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: str | None = None,
    ) -> list[RunView]:
        """Runs, newest first. `after` pages on: the id of the last run of the page before."""
        client = self._checked()
        return await client.list(_statuses(status), workflow, id_prefix, limit, after)

    async def history(self, run_id: str, *, generation: int | None = None) -> Sequence[HistoryEntry]:
        """The journal of a run's current (or a given) generation."""
        return await self._checked().history(run_id, generation)

    def __repr__(self) -> str:
        return f"<Engine on {self._store!r}>"


def _store_of(url: Any) -> Store:
    text = text_of(url)
    if text is not None:
        try:
            return open_store(text)
        except UnicodeEncodeError:
            raise BadArgument(f"the path of a store holds half a character: {shown(text)}.") from None
    try:
        is_path, is_store = isinstance(url, os.PathLike), hasattr(url, "commit")
        if is_path:
            os.fspath(url)
    except Exception:  # code of what was given
        is_path = is_store = False
    if not is_path and not is_store:
        raise BadArgument(
            "Engine needs a path such as 'orders.db', a URL such as 'sqlite:///orders.db', ':memory:' or a store, "
            f"not {class_name(type(url))}."
        )
    return open_store(url) if is_path else url


def _statuses(status: str | Status | Iterable[str | Status] | None) -> frozenset[Status]:
    if status is None:
        return frozenset()
    try:
        wanted: Any = [status] if text_of(status) is not None else list(status)
        return frozenset(Status(text_of(one) or "") for one in wanted)
    except Exception:  # it cannot be gone through, or holds what is no status
        raise BadArgument(f"{shown(status)} is not a status. Known: {', '.join(Status)}.") from None


def _report_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the sweep of this worker ended; runs will no longer be recovered", exc_info=error)


def run(
    invocation: Invocation[R],
    *,
    store: str | os.PathLike[str] | Store = ":memory:",
    id: str | None = None,  # noqa: A002
    **settings: Any,
) -> R:
    """Run a workflow to its end, as `asyncio.run` does for a coroutine. For scripts.

    With a file as `store` and an `id`, running the script again after a crash goes on where it was.
    """

    if running_run() is not None:
        raise Forbidden("workflow code called perdure.run(). Await the workflow instead: it becomes a child.")

    async def main() -> R:
        async with Engine(store, **settings) as engine:
            return await (await engine.start(invocation, id=id)).result()

    return asyncio.run(main())
