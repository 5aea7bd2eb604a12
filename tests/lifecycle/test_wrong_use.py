"""An engine used before it is open, after it is closed, or where it does not belong: typed errors, never a hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, event, step, workflow
from perdure.errors import EngineNotOpen, Forbidden, NotInWorkflow, WrongLoop
from support.lives import Lives, run_async
from support.processes import Process


@event
@dataclass
class Anything:
    pass


@workflow
async def nothing_much() -> str:
    return "done"


CALLS: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "start": lambda engine: engine.start(nothing_much(), id="other"),
    "send": lambda engine: engine.send("run", Anything()),
    "cancel": lambda engine: engine.cancel("run"),
    "terminate": lambda engine: engine.admin.terminate("run"),
    "resume": lambda engine: engine.admin.resume("run"),
    "status": lambda engine: engine.status("run"),
    "result": lambda engine: engine.result("run"),
    "list": lambda engine: engine.list(),
    "history": lambda engine: engine.admin.history("run"),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_before_open_and_after_close(lives: Lives, name: str) -> None:
    """The issue's bad input, FAULTS F14: says which of the two, and how to use it."""

    async def main() -> None:
        engine = lives.engine()
        with pytest.raises(EngineNotOpen, match=r"not open yet.*async with"):
            await CALLS[name](engine)
        async with engine:
            handle = await engine.start(nothing_much(), id="run")
            await handle.result()
        with pytest.raises(EngineNotOpen, match=r"closed.*async with"):
            await CALLS[name](engine)
        with pytest.raises(EngineNotOpen):
            await handle.result()
        with pytest.raises(EngineNotOpen):
            engine.get("run")

    run_async(main())


@pytest.mark.parametrize("name", list(CALLS))
def test_from_another_loop_or_thread(lives: Lives, name: str) -> None:
    """The issue's bad input, FAULTS F14: names the way in (run_coroutine_threadsafe), and that way works."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(nothing_much(), id="run")).result()
            caught: list[BaseException] = []

            def elsewhere() -> None:
                async def call() -> None:
                    await CALLS[name](engine)

                try:
                    asyncio.run(call())
                except BaseException as error:
                    caught.append(error)

            await asyncio.to_thread(elsewhere)
            assert [type(error) for error in caught] == [WrongLoop]
            assert "run_coroutine_threadsafe" in str(caught[0])
            loop = asyncio.get_running_loop()

            def rightly() -> Any:
                return asyncio.run_coroutine_threadsafe(engine.result("run"), loop).result(10)

            assert await asyncio.to_thread(rightly) == "done"

    run_async(main())


def test_close_from_another_loop_is_refused(lives: Lives) -> None:
    """FAULTS F14 and F15: closing from a foreign loop would half close it."""

    async def main() -> None:
        async with lives.engine() as engine:
            caught: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(engine.close())
                except BaseException as error:
                    caught.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(thread.join, 10)
            assert [type(error) for error in caught] == [WrongLoop]
            assert await (await engine.start(nothing_much())).result() == "done"

    run_async(main())


def test_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    """FAULTS C11 and O15: every call is refused in the child; the parent's engine and file are unharmed."""
    with Process("lifecycle.script_children:forks", str(tmp_path / "test.db")) as process:
        for _ in range(3):
            process.expect("EngineNotOpen")
        assert process.line() in {"closed", "close raised EngineNotOpen"}
        process.expect("done")
        assert process.wait() == 0


@step
async def opens_nothing(where: str) -> str:
    return where


current: list[Engine] = []


@workflow
async def calls_the_engine(name: str) -> str:
    engine = current[0]
    if name == "close":
        await engine.close()
    elif name == "open":
        await Engine(":memory:").open()
    else:
        await CALLS[name](engine)
    return "allowed"


@pytest.mark.parametrize("name", [*CALLS, "open", "close"])
def test_workflow_code_that_calls_the_engine_is_told_the_verb(lives: Lives, name: str) -> None:
    """FAULTS D40 and F15: Forbidden, with what to use instead; a run that begins with it is not stored."""

    async def main() -> None:
        async with lives.engine() as engine:
            current[:] = [engine]
            with pytest.raises(Forbidden, match="step"):
                await engine.start(calls_the_engine(name))
            assert await engine.list() == []

    run_async(main())


def test_open_twice_is_refused(lives: Lives) -> None:
    """An engine is opened once. FAULTS F14."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(EngineNotOpen, match="already open"):
                await engine.open()
            assert await (await engine.start(nothing_much())).result() == "done"

    run_async(main())


def test_closed_engine_is_not_opened_again(lives: Lives) -> None:
    """FAULTS F14: a second life needs a second engine; a half-open one would never close."""

    async def main() -> None:
        engine = lives.engine()
        async with engine:
            pass
        with pytest.raises(EngineNotOpen, match="closed"):
            await engine.open()

    run_async(main())


def test_workflow_awaited_outside_is_told_how_to_start_it() -> None:
    """An invocation is not a coroutine that runs by itself."""

    async def main() -> None:
        with pytest.raises(NotInWorkflow, match=r"engine\.start"):
            await nothing_much()

    run_async(main())
