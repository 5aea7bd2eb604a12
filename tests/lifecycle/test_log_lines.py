"""A worker says what went wrong: one line for each failed attempt, failed run and parked run, and never again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from events.kinds import Note
from perdure import Engine, RunCancelled, RunFailed, receive, step, workflow
from perdure.errors import RunParked
from support.lives import Lives, run_async, until

SECRET = "payload-that-is-nobodys-business"


@step(max_attempts=3, initial_delay=0.001, jitter=0)
async def declines(card: str) -> int:
    raise LookupError("no such card\nsecond line")


@workflow
async def pays(card: str) -> int:
    return await declines(card)


@workflow
async def pays_and_waits(card: str) -> str:
    try:
        await declines(card)
    except LookupError:
        await receive(Note)
    return "noted"


@workflow
async def stuck() -> None:
    import asyncio

    await asyncio.get_running_loop().create_future()


@workflow
async def patient() -> None:
    await receive(Note)


@pytest.fixture(autouse=True)
def _as_a_worker_has_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="perdure.worker")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "perdure.worker"]


async def ends(engine: Engine, invocation: Any, error: type[Exception]) -> None:
    handle = await engine.start(invocation, id="run")
    with pytest.raises(error):
        await handle.result(timeout=20)


def test_every_failed_attempt_and_the_failed_run_are_one_line_each(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    """Step, attempt n of m, the error with its line, and when the next one is; no arguments."""

    async def main() -> None:
        async with lives.engine() as engine:
            await ends(engine, pays(SECRET), RunFailed)

    run_async(main())
    said = lines(caplog)
    assert len(said) == 4
    for number, line in enumerate(said[:2], 1):
        expected = (
            f"run 'run': attempt {number} of 3 of step 'declines' failed: LookupError: no such card (test_log_lines"
        )
        assert line.startswith(expected)
        assert "; next at 20" in line
    assert said[2].startswith("run 'run': attempt 3 of 3 of step 'declines' failed: LookupError: no such card")
    assert said[2].endswith("; no more attempts")
    assert said[3].startswith("run 'run' failed: LookupError: no such card (test_log_lines.py:")
    assert [r.levelno for r in caplog.records if r.name == "perdure.worker"] == [logging.INFO] * 4
    assert all(r.run_id == "run" for r in caplog.records if r.name == "perdure.worker")  # type: ignore[attr-defined]
    assert not any("\n" in line or SECRET in line for line in said)


def test_a_replay_repeats_no_line(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        await engine.start(pays_and_waits("x"), id="run")

        async def waits() -> bool:
            return any(wait.kind == "receive" for wait in (await engine.status("run")).waiting)

        await until(waits)
        assert len([line for line in lines(caplog) if "attempt" in line]) == 3
        await lives.crash(engine)
        caplog.clear()
        async with lives.engine() as again:
            await again.send("run", Note("go on"))
            assert await again.result("run", timeout=20) == "noted"

    run_async(main())
    assert [line for line in lines(caplog) if "attempt" in line or "failed" in line] == []


def test_a_parked_run_is_one_line_when_that_is_stored(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(stuck(), id="run")
        async with lives.engine() as engine:
            with pytest.raises(RunParked):
                await engine.result("run", timeout=20)
            assert (await engine.status("run")).status == "parked"
            await until(lambda: bool(lines(caplog)))

    run_async(main())
    (line,) = lines(caplog)
    assert line.startswith("run 'run' is parked: Stuck: run 'run' waits for something that perdure does not know")
    assert line.endswith("(`perdure why run` says more)")


def test_a_cancelled_run_is_told_only_to_those_who_want_all(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(patient(), id="run")
            await handle.cancel("not wanted")
            with pytest.raises(RunCancelled):
                await handle.result(timeout=20)

    caplog.set_level(logging.DEBUG, logger="perdure.worker")
    run_async(main())
    assert [r.levelno for r in caplog.records if "run 'run' was cancelled: not wanted" in r.getMessage()] == [
        logging.DEBUG
    ]
