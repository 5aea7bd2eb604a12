"""Raised but committed (law 6, CONFORMANCE W2): the store did what people asked and its answer got lost; asking again
is safe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from admin.flows import Outside, kinds, reaches
from events.kinds import Note
from perdure import Engine, RunFailed, RunNotFound, receive, step, workflow
from perdure.errors import StoreUnavailable
from perdure.types import Status
from support.faulty_stores import DisturbedStore, lose_answer
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step(max_attempts=1)
async def act(what: str) -> str:
    return await outside.do(what)


@step(max_attempts=9, initial_delay=3600, max_delay=3600)
async def stubborn(what: str) -> str:
    return await outside.do(what)


@workflow
async def waiting() -> str:
    return (await receive(Note)).text


@workflow
async def failing() -> str:
    return await act("x")


@workflow
async def backing_off() -> str:
    return await stubborn("y")


async def ready(engine: Engine) -> None:
    outside.broken = {"x", "y"}
    await engine.start(waiting(), id="open")
    await engine.start(failing(), id="failed")
    await engine.start(backing_off(), id="late")
    with pytest.raises(RunFailed):
        await engine.result("failed", timeout=20)

    async def backs_off() -> bool:
        return any(wait.until for wait in (await engine.status("late")).waiting)

    await until(backs_off)
    await reaches(engine, "open", Status.WAITING)


CASES: dict[str, tuple[str, Callable[[Engine], Awaitable[Any]]]] = {
    "pause": ("pause", lambda engine: engine.admin.pause("open")),
    "unpause": ("unpause", lambda engine: engine.admin.unpause("stopped")),
    "resume": ("reopen", lambda engine: engine.admin.resume("failed")),
    "retry": ("append", lambda engine: engine.admin.retry("late")),
    "fork": ("restore", lambda engine: engine.admin.fork("failed", id="forked", at="act", result="by hand")),
    "delete": ("delete", lambda engine: engine.admin.delete("failed")),
    "prune": ("delete", lambda engine: engine.admin.prune(0)),
}


@pytest.mark.parametrize("case", CASES)
def test_asking_again_is_safe(lives: Lives, case: str) -> None:
    """The repeat succeeds or finds it done; then the runs go on as if the first answer had come."""
    method, ask = CASES[case]

    async def main() -> None:
        async with lives.engine() as engine:
            await ready(engine)
            await engine.start(waiting(), id="stopped")
            assert await engine.admin.pause("stopped")
        store = DisturbedStore(lives.store())
        lost = store.after(method, lose_answer, times=1)
        async with Engine(store, worker=False) as client:
            if case == "delete":
                await ask(client)  # a repeat would find no such run, so it looks by itself whether it is gone
            else:
                with pytest.raises(StoreUnavailable):
                    await ask(client)
                await ask(client)
            assert lost.hits == 1
        outside.broken = set()
        async with lives.engine() as engine:
            match case:
                case "pause":
                    assert (await engine.status("open")).status is Status.PAUSED
                case "unpause":
                    await reaches(engine, "stopped", Status.WAITING)
                case "resume":
                    assert await engine.result("failed", timeout=20) == "x done"
                    assert (await kinds(engine, "failed")).count("resumed") == 1
                    assert outside.done["x"] == 2
                case "retry":
                    assert await engine.result("late", timeout=20) == "y done"
                    assert outside.done["y"] == 2
                case "fork":
                    assert await engine.result("forked", timeout=20) == "by hand"
                case _:
                    with pytest.raises(RunNotFound):
                        await engine.status("failed")
            if case != "pause":
                await engine.send("open", Note("fine"))
                assert await engine.result("open", timeout=20) == "fine"

    run_async(main())
