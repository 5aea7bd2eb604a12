"""A step with a recorded outcome never runs again, whatever its result was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, event, receive, step, workflow
from support.effects import Effects
from support.lives import Lives, run_async

FALSY: list[Any] = [None, False, 0, 0.0, "", b"", [], {}, (), set()]


@event
@dataclass
class GoOn:
    pass


@step
async def give(path: str, index: int) -> Any:
    from pathlib import Path

    Effects(Path(path)).add(f"give {index}")
    return FALSY[index]


@workflow
async def falsy_results(path: str) -> list[str]:
    seen = [repr(await give(path, index)) for index in range(len(FALSY))]
    await receive(GoOn)
    return seen


@workflow
async def two_alike(path: str) -> list[int]:
    first = await draw(path, "same")
    second = await draw(path, "same")
    await receive(GoOn)
    return [first, second, await draw(path, "same")]


@step
async def draw(path: str, _label: str) -> int:
    from pathlib import Path

    effects = Effects(Path(path))
    effects.add("draw")
    return len(effects.lines())


def test_falsy_results_are_results_and_never_run_again(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE R1: None, False, 0, "", [] are outcomes; presence is a record, never a value."""

    async def main() -> None:
        engine = await lives.engine().open()
        handle = await engine.start(falsy_results(str(effects.path)), id="run")
        await engine_waits(engine, "run")
        await lives.crash(engine)
        assert len(effects.lines()) == len(FALSY)
        async with lives.engine() as engine:
            await engine.send("run", GoOn())
            handle = engine.get("run")
            assert await handle.result() == [repr(value) for value in FALSY]

    run_async(main())
    assert effects.counts() == {f"give {index}": 1 for index in range(len(FALSY))}


def test_falsy_results_survive_a_crash_at_every_record(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE R1, with the crash anywhere: at each record in turn."""
    drive = send_go
    result = run_async(lives.crash_at_every_record(lambda: falsy_results(str(effects.path)), drive=drive), patience=60)
    assert result == [repr(value) for value in FALSY]


def test_identical_calls_keep_their_own_results(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE R3: the same step with the same arguments twice gets two results, also over a restart."""

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(two_alike(str(effects.path)), id="run")
        await engine_waits(engine, "run")
        await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", GoOn())
            assert await engine.result("run") == [1, 2, 3]
            history = await engine.admin.history("run")
        locations = [entry.location for entry in history if entry.kind == "step_done"]
        assert locations == ["draw", "draw#2", "draw#3"]

    run_async(main())


@pytest.mark.parametrize("count", [1, 2])
def test_a_finished_run_is_never_started_again(lives: Lives, effects: Effects, count: int) -> None:
    """CONFORMANCE R1: starting a finished id again returns its recorded result and runs nothing."""

    async def main() -> None:
        for _ in range(count + 1):
            async with lives.engine() as engine:
                handle = await engine.start(once(str(effects.path)), id="run")
                assert await handle.result() is None

    run_async(main())
    assert effects.lines() == ["give 0"]


@workflow
async def once(path: str) -> None:
    await give(path, 0)


async def engine_waits(engine: Engine, run_id: str) -> None:
    """Wait until the run is stored as waiting for an event."""
    from support.lives import until

    async def waits() -> bool:
        view = await engine.status(run_id)
        return view.status == "waiting" and any(wait.kind == "receive" for wait in view.waiting)

    await until(waits)


async def send_go(engine: Engine, handle: Any) -> None:
    """Once per life is too often: the key makes it one."""
    from perdure import RunFinished

    try:
        await handle.send(GoOn(), key="go")
    except RunFinished:
        return
