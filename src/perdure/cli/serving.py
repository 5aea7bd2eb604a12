"""The worker of `perdure worker`: an engine with nothing else, until somebody tells it to leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

import click

from perdure.authoring.registry import registry
from perdure.cli import logs
from perdure.cli.apps import import_apps
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import find_store, store_name
from perdure.cli.supervised import EXIT_SECONDS_MAX, LEAVING_SECONDS_MAX, Supervision, leaving_seconds
from perdure.engine.engine import Engine
from perdure.errors import PerdureError, StoreUnavailable


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, the second ends the process now. A supervised worker takes them all
    for one: its supervisor says it once, and what stops the supervisor may have told everybody (systemd does).

    Plain handlers rather than `loop.add_signal_handler`: those wait for the loop, and a step that blocks it is
    just when somebody sends the second signal.
    """

    def __init__(self, *, all_are_one: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[int] = self._loop.create_future()
        self._all_are_one = all_are_one
        self._received_one = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._received_one:
            if not self._all_are_one:
                os._exit(128 + number)  # no cleanup: what is not stored yet is recovered by the next worker
            return
        self._received_one = True
        self.ask(number)

    def ask(self, number: int) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._ask, number)

    def _ask(self, number: int) -> None:
        if not self._asked.done():
            self._asked.set_result(number)

    async def wait(self) -> int:
        return await self._asked


async def serve(
    store: str, apps: Sequence[str], grace: float, name: str | None, *, verbose: bool, as_json: bool
) -> None:
    """Run workflows until SIGTERM or SIGINT, or until the supervisor is gone."""
    supervision = Supervision.of_this_process()
    log = logs.configure(as_json=as_json, verbose=verbose)
    try:
        import_apps(apps)
        # After that: a module of the user's may have handlers of its own, and would not be the first.
        signals = StopSignals(all_are_one=supervision is not None)
        if supervision is not None:
            supervision.leave_by(lambda: _leave_orphaned(signals, grace))
        workflows = sorted(registry.workflow_names())
        if not workflows:
            raise click.UsageError("a worker needs workflows: --app module, --app file.py, or PERDURE_APP.")
        engine = Engine(find_store(store, create=True), name=name)
        await engine.open()
    except PerdureError as error:
        if supervision is not None and not isinstance(error, StoreUnavailable):
            supervision.tell("refused")
        raise
    try:
        log("ready", pid=os.getpid(), store=store_name(engine.store), workflows=workflows)
        if supervision is not None:
            supervision.tell("ready")
    except BrokenPipeError:
        if supervision is None:
            raise
        # The supervisor is gone already: its lifeline says so, and the worker leaves in order.
    await _until_told(signals, engine, grace, log)


def _leave_orphaned(signals: StopSignals, grace: float) -> None:
    """The supervisor is gone. In order, but not for ever: nobody would end this process by force any more."""
    signals.ask(signal.SIGTERM)
    timer = threading.Timer(leaving_seconds(grace), os._exit, args=(ExitCode.ERROR,))
    timer.daemon = True
    timer.start()


async def _until_told(signals: StopSignals, engine: Engine, grace: float, log: Callable[..., None]) -> None:
    number = await _asked_to_stop(signals, engine)
    if number is None:
        await _close(engine, 0)
        log("stopped", detail="a file of the store was deleted or replaced")
        raise ended(ExitCode.STORE_LOST)
    log("draining", signal=signal.Signals(number).name, grace_seconds=grace)
    if not await _close(engine, grace):
        log("gave up", detail="the store did not answer; the next worker recovers what was not stored")
        os._exit(ExitCode.ERROR)
    log("stopped")
    code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.OK
    if _is_something_left():
        _end_within(EXIT_SECONDS_MAX, code, log)
    if code:
        raise ended(code)


def _is_something_left() -> bool:
    """Code that the interpreter would wait for, perhaps for ever: a step that swallowed its cancellation, a call of
    `asyncio.to_thread` that never returns."""
    threads = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    return len(asyncio.all_tasks()) > 1 or bool(threads)


def _end_within(seconds: float, code: ExitCode, log: Callable[..., None]) -> None:
    """End the process at the latest then: everything of ours is stored and closed by now."""

    def end() -> None:
        log("gave up", detail="code of a step was still running; it was left behind")
        sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def _asked_to_stop(signals: StopSignals, engine: Engine) -> int | None:
    """The signal; None: the store is gone, and waiting for one would be waiting for nothing."""
    asked, lost = asyncio.ensure_future(signals.wait()), asyncio.ensure_future(engine.lost.wait())
    await asyncio.wait({asked, lost}, return_when=asyncio.FIRST_COMPLETED)
    lost.cancel()
    if asked.done():
        return asked.result()
    asked.cancel()
    return None


async def _close(engine: Engine, grace: float) -> bool:
    """Bounded, whatever the store does (FAULTS O17)."""
    try:
        async with asyncio.timeout(3 * grace + LEAVING_SECONDS_MAX):
            await engine.close(grace)
    except (TimeoutError, StoreUnavailable):
        return False
    return True
