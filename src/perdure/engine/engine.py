"""The facade: `Engine(url)`, and `RunHandle`, what `start` returns. Checks how it is used; the parts do the work."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from asyncio import events
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from perdure import limits
from perdure.admin.admin import Admin
from perdure.admin.views import RunView
from perdure.authoring.registry import Registry
from perdure.authoring.registry import registry as registry_of_this_process
from perdure.authoring.workflow import Invocation
from perdure.engine.client import OnConflict
from perdure.engine.clock import Clock, Timekeeper, timekeeper
from perdure.engine.guarding import install_guard
from perdure.engine.loading import refuse_while_loading
from perdure.engine.parts import EngineListener, EngineParts
from perdure.engine.settings import Settings, load_settings
from perdure.engine.waiting import value_of
from perdure.engine.worker import Worker
from perdure.errors import BadArgument, EngineNotOpen, Forbidden, WrongLoop
from perdure.given import class_name, shown, text_of
from perdure.kernel.journal import Record
from perdure.kernel.values import codec_for
from perdure.kernel.values.codec import ValueCodec
from perdure.kernel.verbs.checks import check_run_id, check_text
from perdure.kernel.verbs.current import running_run
from perdure.kernel.verbs.durations import Duration, positive_seconds_of
from perdure.store import open_store
from perdure.store.model import Status
from perdure.store.protocol import Store

R = TypeVar("R")


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
        opened, record = self._engine._opened(), self._last
        if record is None:  # otherwise it had ended when `start` returned
            record = await opened.waiters.end_of(self.id, timeout)
        return self._codec.decode(value_of(self.id, record), f"the result of run {self.id!r}")

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

    `url`: a path, `sqlite:///path`, `:memory:`, or a store object. `registry`: the workflows it knows, if not all that
    this process has defined. Settings may be given by name (`Engine("orders.db", residents_max=1000)`); see
    `perdure.engine.settings`. What people do with runs besides starting and cancelling them is `engine.admin`.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        *,
        worker: bool = True,
        name: str | None = None,
        clock: Clock | None = None,
        registry: Registry | None = None,
        **settings: Any,
    ) -> None:
        self.store: Store = _store_of(url)
        self._with_worker = worker
        self._name = check_text(name, "the name of a worker") or f"{socket.gethostname()}-{os.getpid()}"
        self.settings: Settings = load_settings(settings)
        self.clock: Timekeeper = timekeeper(clock)
        self.registry: Registry = registry if registry is not None else registry_of_this_process
        #: Draws worker ids, seeds of runs and jitter; nothing here is a secret. A test may put one with a seed here,
        #: before the engine is opened.
        self.rng = random.Random()
        #: Set when the worker has stopped because a file of the store was deleted or replaced (`StoreLost`): what an
        #: application that keeps a worker waits for, in order to end.
        self.lost = asyncio.Event()
        self.listener = EngineListener(self)
        self._admin: Admin | None = None
        #: What exists from `open` to `close`: for tests, and for programs that want to know what the worker does.
        self.parts: EngineParts | None = None
        #: Its worker, once it was opened with one; after the end too, when it does nothing more. If others take it for
        #: dead it loses its runs to them, and another one, with another id, takes its place here.
        self.worker: Worker | None = None
        self._closing = False

    # -- life ------------------------------------------------------------------------------------------------------

    async def open(self) -> Engine:
        """Make ready: open the store, register the worker, start the sweep."""
        if running_run() is not None:
            raise Forbidden("workflow code opened an engine. Do that in a step, or outside.")
        if self._closing:
            raise EngineNotOpen("this engine was closed. Make a new one: Engine(...).")
        if self.parts is not None:
            raise EngineNotOpen("this engine is already open; open() it once.")
        refuse_while_loading()
        install_guard()
        parts = EngineParts(self)
        await self.store.open()
        try:
            await parts.begin(with_worker=self._with_worker, name=self._name)
        except BaseException:
            await self.store.close()
            raise
        self.parts = parts
        return self

    def prepare(self, worker: Worker) -> None:
        """A worker is about to begin: the first one, or one in the place of a worker that others took for dead. For
        engines of tests, whose workers are others."""
        self.worker = worker

    async def close(self, grace: Duration | None = None) -> None:
        """Drain: running steps get `grace` to finish, their results are stored, runs are given back. Safe to repeat.

        It ends in bounded time, whatever steps and the store do. Raises `StoreUnavailable` if the store does not
        answer: nothing that was recorded is lost, and the next worker recovers the rest.
        """
        if running_run() is not None:
            raise Forbidden("workflow code closed an engine. Do that in a step, or outside.")
        seconds = self.settings.shutdown_grace if grace is None else positive_seconds_of(grace, "the grace of close")
        parts = self.parts
        if parts is None or self._closing or os.getpid() != parts.pid:
            return  # never opened, closed before, or the engine of the process that was forked: nothing here is ours
        _check_loop(parts)
        self._closing = True
        try:
            await parts.end(seconds)
        except GeneratorExit:
            # Thrown away with its loop: nothing can be awaited, and what is open goes with the process.
            self.parts = None
            raise
        except BaseException:
            await self._close_store(parts)
            raise
        await self._close_store(parts)

    async def _close_store(self, parts: EngineParts) -> None:
        self.parts = None
        parts.signals.look_again()
        await parts.answered(self.store.close())

    async def abandon(self) -> None:
        """Let go of everything at once, giving nothing back: what a crash leaves behind. For tests of recovery."""
        self.let_go()

    def let_go(self) -> None:
        """The same from outside of the event loop, which may be gone."""
        if self.parts is not None:
            parts, self.parts, self._closing = self.parts, None, True
            if not parts.loop.is_closed():
                parts.abandon()

    async def __aenter__(self) -> Engine:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _opened(self) -> EngineParts:
        parts = self.parts
        if parts is not None and events._get_running_loop() is parts.loop and os.getpid() == parts.pid:
            return parts
        if running_run() is not None:
            raise Forbidden(
                "workflow code called the engine. Use the verbs instead: send, start_child, cancel from `perdure`, "
                "or call the engine in a step."
            )
        if parts is None:
            state = "closed" if self._closing else "not open yet"
            raise EngineNotOpen(f"the engine is {state}. Use it inside `async with Engine(...) as engine:`.")
        if os.getpid() != parts.pid:
            raise EngineNotOpen("this engine belongs to the process that was forked. Open one in this process.")
        _check_loop(parts)
        return parts  # not reached: one of the checks above has raised

    def check_usable(self) -> None:
        """Raise if the engine cannot be used now or from here: `EngineNotOpen`, `WrongLoop`, `Forbidden`."""
        self._opened()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closing

    @property
    def admin(self) -> Admin:
        """What people do with runs: resume, pause, fork, prune, export, why, history, dead letters... See `Admin`.

        >>> await engine.admin.resume("order-1")
        """
        if self._admin is None:
            self._admin = Admin(
                self.store, registry=self.registry, now=self.clock.now, rng=self.rng,
                pending_events_max=self.settings.max_pending_events, listener=self.listener,
            )  # fmt: skip
        return self._admin

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
        run_id, last = await self._opened().client.start(invocation, id, on_conflict)
        return RunHandle(self, run_id, invocation.spec.result, last)

    def get(self, run_id: str) -> RunHandle[Any]:
        """A handle for a run that exists. Its result is decoded by the workflow's type if it is known here."""
        self._opened()
        return RunHandle(self, check_run_id(run_id, allow_children=True), None)

    async def result(self, run_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a run's end; see `RunHandle.result`. Decoded by the workflow's type if that is known here."""
        record = await self._opened().waiters.end_of(run_id, timeout)
        value = value_of(run_id, record)
        row = await self.admin.row(run_id)
        spec = self.registry.workflow(row.workflow, row.version)
        codec = spec.result if spec is not None else codec_for(Any)
        return codec.decode(value, f"the result of run {run_id!r}")

    async def result_json(self, run_id: str, timeout: Duration | None = None) -> Any:
        """The same as plain JSON values, whatever class it was: for programs that do not have the workflow's code."""
        record = await self._opened().waiters.end_of(run_id, timeout)
        return msgspec.json.decode(value_of(run_id, record))

    async def send(self, run_id: str, event: Any, *, key: str | None = None) -> None:
        """Send an event to a run: durable when this returns. The same `key` twice counts once.

        Raises `RunNotFound`, `RunFinished`, `InboxFull`.
        """
        await self._opened().client.send(run_id, event, key)

    async def publish(self, event: Any, *, key: str | None = None) -> None:
        """Publish an event: durable when this returns. The same `key` twice counts once.

        Who gets it is said by its class: `@event(delivery=, consume=, expires=)`.
        """
        await self._opened().client.publish(event, key)

    async def request(self, run_id: str, event: Any, *, timeout: Duration | None = None, key: str | None = None) -> Any:
        """Send an event to a run and wait for what its workflow answers with `reply(event, value)`.

        Raises `RunNotFound`, `RunFinished`, `InboxFull`; `NoReply` if the run ends without answering, `RunParked`,
        `TimeoutError`. Asking again with the same `key` is the same request: its answer is found also after a crash.
        """
        client = self._opened().client
        seconds = None if timeout is None else positive_seconds_of(timeout, "the timeout of request")
        return await client.request(run_id, event, seconds, key)

    async def cancel(self, run_id: str, reason: str = "") -> bool:
        """Ask a run to cancel: `CancelledError` is raised in its code, which may clean up with steps.

        False if it had ended, or was asked before. Raises `RunNotFound`.
        """
        return await self.admin.cancel(run_id, reason)

    async def status(self, run_id: str) -> RunView:
        """What is known about a run. Raises `RunNotFound`."""
        return await self.admin.status(run_id)

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
        return await self.admin.list(status=status, workflow=workflow, id_prefix=id_prefix, limit=limit, after=after)

    def __repr__(self) -> str:
        return f"<Engine on {self.store!r}>"


def _check_loop(parts: EngineParts) -> None:
    if events._get_running_loop() is not parts.loop:
        raise WrongLoop(
            "this engine was opened on another event loop. Use it where it was opened "
            "(asyncio.run_coroutine_threadsafe helps from other threads), or open one here."
        )


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
