"""`try`, `with` and `async with` around every kind of wait behave as in plain Python, and run once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, RunFinished, event, receive, sleep, start_child, step, workflow
from support.effects import Effects
from support.lives import Lives, run_async, until

KINDS = ["step", "sleep", "receive", "child", "handle"]


@event
@dataclass
class LetGo:
    pass


@step
async def write(path: str, line: str) -> None:
    Effects(Path(path)).add(line)


@step(max_attempts=1)
async def slow_or_failing(path: str, fails: bool) -> str:
    if fails:
        raise LookupError("as asked")
    return "step"


@workflow
async def child_run(fails: bool) -> str:
    await sleep(0.001)
    if fails:
        raise LookupError("as asked")
    return "child"


async def wait_for(kind: str, path: str, fails: bool = False) -> str:
    match kind:
        case "step":
            await slow_or_failing(path, fails)
        case "sleep":
            await sleep(0.002)
        case "receive":
            await receive(LetGo)
        case "child":
            await child_run(fails)
        case "handle":
            await (await start_child(child_run(fails)))
    return kind


@workflow
async def swallowing(kind: str, path: str) -> list[str]:
    seen = []
    try:
        seen.append(await wait_for(kind, path))
    except Exception:
        pass
    else:
        seen.append("else")
    finally:
        seen.append("finally")
        await write(path, "finally")
    return seen


@workflow
async def managed(kind: str, path: str) -> list[str]:
    seen: list[str] = []

    @contextlib.contextmanager
    def plain() -> Iterator[None]:
        seen.append("enter")
        try:
            yield
        finally:
            seen.append("exit")

    @contextlib.asynccontextmanager
    async def durable() -> AsyncIterator[None]:
        await write(path, "enter")
        try:
            yield
        finally:
            await write(path, "exit")

    with plain():
        async with durable():
            seen.append(await wait_for(kind, path))
    return seen


@workflow
async def catching(kind: str, path: str) -> list[str]:
    seen = []
    try:
        await wait_for(kind, path, fails=True)
    except Exception as error:
        cause = error.__cause__ if kind != "step" else error
        seen.append(type(cause).__name__)
        await write(path, "except")
    else:
        seen.append("else")
    finally:
        await write(path, "finally")
    return seen


async def release(engine: Engine, handle: Any) -> None:
    with contextlib.suppress(RunFinished):
        await handle.send(LetGo(), key="release")


@pytest.mark.parametrize("kind", KINDS)
def test_except_exception_never_swallows_a_suspension(lives: Lives, effects: Effects, kind: str) -> None:
    """CONFORMANCE P1, P2; law 10: `except Exception: pass` around a wait, with a crash at every record."""
    expected = [kind, "else", "finally"]
    run = lives.crash_at_every_record(lambda: swallowing(kind, str(effects.path)), drive=release)
    assert run_async(run) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_context_managers_enter_and_exit_once(lives: Lives, effects: Effects, kind: str) -> None:
    """CONFORMANCE P1, P2: `with` and `async with` around a wait; their steps run once."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(managed(kind, str(effects.path)), id="run")
            await release(engine, handle)
            return await handle.result()

    assert run_async(main()) == ["enter", kind, "exit"]
    assert effects.lines() == ["enter", "exit"]
    run = lives.crash_at_every_record(lambda: managed(kind, str(effects.path)), drive=release)
    assert run_async(run) == ["enter", kind, "exit"]


@pytest.mark.parametrize("kind", ["step", "child", "handle"])
def test_a_failed_wait_reaches_except_and_finally(lives: Lives, effects: Effects, kind: str) -> None:
    """CONFORMANCE P1: an error out of a wait is an ordinary exception."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            return await (await engine.start(catching(kind, str(effects.path)))).result()

    assert run_async(main()) == ["LookupError"]
    assert effects.lines() == ["except", "finally"]


@pytest.mark.parametrize("kind", ["receive"])
def test_finally_runs_once_over_a_crash_in_the_wait(lives: Lives, effects: Effects, kind: str) -> None:
    """CONFORMANCE P2: at the end, not at each suspension and not when the engine dies."""

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(swallowing(kind, str(effects.path)), id="run")

        async def receiving() -> bool:
            return any(wait.kind == "receive" for wait in (await engine.status("run")).waiting)

        await until(receiving)
        await lives.crash(engine)
        assert effects.lines() == []
        async with lives.engine() as engine:
            await engine.send("run", LetGo())
            await engine.result("run")

    run_async(main())
    assert effects.lines() == ["finally"]
