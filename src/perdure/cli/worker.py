"""`perdure worker`: runs workflows until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import click

from perdure import limits
from perdure.authoring.registry import registry
from perdure.cli import logs
from perdure.cli.apps import import_apps
from perdure.cli.command import app_option, changed_store_option, durable, json_option
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import find_store, store_name
from perdure.engine.engine import Engine
from perdure.errors import StoreUnavailable

#: On top of the grace: what `close` may take to store the last results, before the process ends anyway.
_LEAVING_SECONDS_MAX = 15.0
#: What the interpreter may take to exit after that.
_EXIT_SECONDS_MAX = 2.0


class StopSignals:
    """SIGTERM and SIGINT: the first asks to stop, the second ends the process now.

    Plain handlers rather than `loop.add_signal_handler`: those wait for the loop, and a step that blocks it is
    just when somebody sends the second signal.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[int] = self._loop.create_future()
        self._received_one = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._received_one:
            os._exit(128 + number)  # no cleanup: what is not stored yet is recovered by the next worker
        self._received_one = True
        self._loop.call_soon_threadsafe(self._asked.set_result, number)

    async def wait(self) -> int:
        return await self._asked


@click.command()
@changed_store_option
@app_option
@click.option(
    "--grace", default=limits.SHUTDOWN_GRACE_SECONDS_DEFAULT, show_default=True, type=click.FloatRange(0),
    metavar="SECONDS",
    help="What running steps get to finish after the first signal.",
)  # fmt: skip
@click.option("--name", help="A label for people.  [default: host and pid]")
@click.option("-v", "--verbose", is_flag=True, help="Also log what only developers of perdure read.")
@json_option
@durable
async def worker(
    store: str, apps: tuple[str, ...], grace: float, name: str | None, verbose: bool, as_json: bool
) -> None:
    """Run workflows until SIGTERM or SIGINT.

    The first signal drains: nothing new begins, running steps get --grace to finish, runs are given back.
    Then the exit code is 0 after SIGTERM and 130 after SIGINT. A second signal ends the process at once
    (143 or 130); nothing recorded is lost. With --json: one JSON document a line.

    A worker whose database, or its -wal or -shm file, is deleted or replaced under it ends with exit code 7.
    """
    log = logs.configure(as_json=as_json, verbose=verbose)
    import_apps(apps)
    workflows = sorted(registry.workflow_names())
    if not workflows:
        raise click.UsageError("a worker needs workflows: --app module, --app file.py, or PERDURE_APP.")
    signals = StopSignals()
    engine = Engine(find_store(store, create=True), name=name)
    await engine.open()
    log("ready", pid=os.getpid(), store=store_name(engine.store), workflows=workflows)
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
        _end_within(_EXIT_SECONDS_MAX, code, log)
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
        async with asyncio.timeout(3 * grace + _LEAVING_SECONDS_MAX):
            await engine.close(grace)
    except (TimeoutError, StoreUnavailable):
        return False
    return True
