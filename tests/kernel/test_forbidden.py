"""What workflow code must not do is refused at once, and the message says what to do instead."""

from __future__ import annotations

import asyncio
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from kernel.kernel_kit import Drive
from perdure import Engine, workflow
from perdure.errors import Forbidden
from perdure.kernel.eventloop.loop import RunLoop
from support.lives import Lives, run_async

_act: dict[str, Any] = {}


@workflow
async def tries_something() -> str:
    try:
        result = _act["call"]()
        if hasattr(result, "__await__"):
            await result
    except Forbidden as error:
        return str(error)
    return "was allowed"


@workflow
async def sleeps_for_real() -> str:
    try:
        time.sleep(60)
    except Forbidden as error:
        return str(error)
    return "slept"


def _said(drive: Drive) -> str:
    outcome: Any = drive.run.outcome
    return bytes(outcome.value).decode()


CALLS: dict[str, Callable[[], Any]] = {
    "to_thread": lambda: asyncio.to_thread(print),
    "run_in_executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
    "open_connection": lambda: asyncio.open_connection("localhost", 1),
    "start_server": lambda: asyncio.start_server(lambda *_: None, "localhost", 0),
    "create_subprocess_exec": lambda: asyncio.create_subprocess_exec("true"),
    "create_subprocess_shell": lambda: asyncio.create_subprocess_shell("true"),
    "getaddrinfo": lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
    "call_soon_threadsafe": lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
    "add_signal_handler": lambda: asyncio.get_running_loop().add_signal_handler(2, print),
    "run_until_complete": lambda: asyncio.get_running_loop().run_until_complete(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_io_and_threads_through_the_loop_are_refused(name: str) -> None:
    """FAULTS D10: sockets, executors, subprocesses and signals raise `Forbidden`, which names the step to write."""
    _act["call"] = CALLS[name]
    with Drive(tries_something()) as drive:
        assert "@step" in _said(drive)


OFFERED = {
    "call_at", "call_exception_handler", "call_later", "call_soon", "create_future", "create_task",
    "default_exception_handler", "get_debug", "get_exception_handler", "get_task_factory", "is_closed", "is_running",
    "set_debug", "shutdown_asyncgens", "time",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(n for n in dir(AbstractEventLoop) if not n.startswith("_")))
def test_every_method_of_a_loop_is_offered_or_refused(name: str) -> None:
    """FAULTS D10: none is left to raise a bare NotImplementedError."""
    method = getattr(RunLoop, name)
    assert method is not getattr(AbstractEventLoop, name)
    if name not in OFFERED:
        with pytest.raises(Forbidden, match=r"@step"):
            method(None)


def test_blocking_sleep_is_refused_with_the_replacement() -> None:
    """FAULTS D15: `time.sleep` would block the worker."""
    with Drive(sleeps_for_real()) as drive:
        assert "await sleep" in _said(drive)


ENGINE_CALLS: dict[str, Callable[[Engine], Any]] = {
    "start": lambda engine: engine.start(sleeps_for_real(), id="other"),
    "send": lambda engine: engine.send("other", object()),
    "cancel": lambda engine: engine.cancel("other"),
    "result": lambda engine: engine.result("other"),
    "list": lambda engine: engine.list(),
    "status": lambda engine: engine.status("other"),
    "get": lambda engine: engine.get("other"),
    "close": lambda engine: engine.close(),
    "open": lambda engine: Engine(":memory:").open(),
    "run": lambda engine: perdure.run(sleeps_for_real()),
}


@pytest.mark.parametrize("name", ENGINE_CALLS)
def test_the_engine_called_from_workflow_code_is_refused(lives: Lives, name: str) -> None:
    """FAULTS D40, F15: every call of the engine inside a workflow raises `Forbidden` with the way out."""

    async def main() -> str:
        async with lives.engine() as engine:
            _act["call"] = lambda: ENGINE_CALLS[name](engine)
            said = await (await engine.start(tries_something(), id="run")).result()
            assert [view.id for view in await engine.list()] == ["run"]
            return said

    assert "workflow code" in run_async(main())
