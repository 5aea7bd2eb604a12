"""A cancellation that perdure did not ask for never becomes an outcome: the attempt is abandoned, as by a crash.

Event loops that end cancel all their tasks, and so do some frameworks whose loop then goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from perdure import StepFailed, current_step, limits, sleep, step, workflow
from perdure.store.model import Status
from support.effects import Effects
from support.lives import Lives, run_async, until
from support.processes import Process

begun: list[tuple[str, int, str]] = []
let_go = threading.Event()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    begun.clear()
    let_go.clear()
    monkeypatch.setattr(limits, "CANCELLED_BY_OTHERS_SECONDS", 0.05)


def note(kind: str) -> None:
    context = current_step()
    begun.append((kind, context.attempt, context.idempotency_key))


@step
async def waits(kind: str) -> str:
    note(kind)
    while not let_go.is_set():
        await asyncio.sleep(0.005)
    return kind


@step
async def converts(kind: str) -> str:
    note(kind)
    try:
        while not let_go.is_set():
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        raise RuntimeError("something was lost on the way") from None
    return kind


@step(concurrency=1)
async def one_at_a_time(kind: str) -> str:
    return await waits.function(kind)  # type: ignore[no-any-return]


@step(timeout="20 s")
def in_a_thread(kind: str) -> str:
    note(kind)
    let_go.wait(20)
    return kind


STEPS = {"waits": waits, "converts": converts, "thread": in_a_thread, "capped": one_at_a_time}


@workflow
async def one_step(kind: str) -> str:
    return await STEPS[kind](kind)


@workflow
async def sleeps_and_works() -> str:
    await sleep(0.02)
    return await waits("waits")


def cancel_everything() -> None:
    """What some frameworks do when they shut down."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize("how", ["return", "error", "interrupt", "exit", "task"])
def test_host_that_ends_without_closing_fails_no_run(tmp_path: Path, effects: Effects, how: str) -> None:
    """The next process runs the same attempt again, and the run completes."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    with Process("steps.crash_children:ends_early", path, how, env=env) as process:
        process.expect("inside")
        process.expect("ending")
        process.wait()
    with Process("steps.crash_children:finishes", path, env={**env, "FINISH": "1", "QUIET": "1"}) as process:
        process.expect("['started', 'step_done', 'completed']")
        assert process.wait() == 0
    first, second = effects.lines()
    assert first == second, "the same attempt, with the same idempotency key"
    assert first.startswith("1 ")


@pytest.mark.parametrize("kind", list(STEPS))
def test_engine_goes_on_if_the_loop_does(lives: Lives, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """All tasks of the loop are cancelled, once; the same attempt begins again by itself, and is said so."""

    async def main() -> tuple[str, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(one_step(kind), id="run")
            await until(lambda: len(begun) == 1)
            cancel_everything()
            await until(lambda: len(begun) == 2)
            let_go.set()
            return await handle.result(timeout=10), [entry.kind for entry in await engine.admin.history("run")]

    with caplog.at_level(logging.WARNING):
        assert run_async(main()) == (kind, ["started", "step_done", "completed"])
    assert begun[0] == begun[1]
    assert sum("the tasks of this engine were cancelled" in record.getMessage() for record in caplog.records) == 1


def test_what_waits_for_its_place_is_not_lost(lives: Lives) -> None:
    """Queued attempts, sleeping runs, and new runs all go on after everything was cancelled."""

    async def main() -> list[str]:
        async with lives.engine(steps_max=2) as engine:
            handles = [await engine.start(one_step("capped")) for _ in range(3)]
            handles += [await engine.start(sleeps_and_works()) for _ in range(3)]
            await until(lambda: len(begun) >= 1)
            cancel_everything()
            handles.append(await engine.start(one_step("waits")))
            let_go.set()
            return [await handle.result(timeout=10) for handle in handles]

    assert run_async(main()) == ["capped"] * 3 + ["waits"] * 4


def test_server_that_is_cancelled_before_its_first_line_is_replaced(lives: Lives) -> None:
    """The attempts are queued and their task has not begun: cancelled now, none of its code ever runs."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            let_go.set()
            starts = [asyncio.ensure_future(engine.start(one_step("waits"))) for _ in range(5)]
            for _ in range(60):
                serving = engine.worker.attempts.serving  # type: ignore[union-attr]
                if serving.is_due:
                    for task in serving.tasks:
                        task.cancel()
                await asyncio.sleep(0)
            handles = [await start for start in starts]
            return [await handle.result(timeout=10) for handle in handles]

    assert run_async(main()) == ["waits"] * 5


def test_close_after_a_cancellation_is_bounded_and_gives_runs_back(lives: Lives) -> None:
    """`async with Engine` in a main that cancels all else first."""

    async def main() -> str:
        async with lives.engine(shutdown_grace=0.01) as engine:
            await engine.start(one_step("waits"), id="run")
            await until(lambda: len(begun) == 1)
            cancel_everything()
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await engine.close()
        let_go.set()
        async with lives.engine() as engine:
            return await engine.result("run", timeout=10)  # type: ignore[no-any-return]

    assert run_async(main()) == "waits"


def test_runs_on_their_way_out_of_memory_come_back(lives: Lives) -> None:
    """A release that a stranger cancels is sent again: otherwise the run would be "being released" for ever."""

    async def main() -> list[str]:
        async with lives.engine(residents_max=1) as engine:
            handles = [await engine.start(sleeps_and_works()) for _ in range(6)]
            for _ in range(200):
                cancel_everything()
                await asyncio.sleep(0)
                if engine.worker.leaving._releasing:  # type: ignore[union-attr]
                    break
            let_go.set()
            return [await handle.result(timeout=10) for handle in handles]

    assert run_async(main()) == ["waits"] * 6


@step(max_attempts=2, initial_delay=0.001)
async def with_a_timer_of_its_own() -> str:
    note("timer")
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.005, task.cancel)
    await asyncio.sleep(20)
    return "never"


@workflow
async def timed_by_itself() -> str:
    try:
        return await with_a_timer_of_its_own()
    except StepFailed as error:
        return error.type_name


def test_helper_of_the_step_that_cancels_it_every_time_does_not_repeat_it_for_ever(lives: Lives) -> None:
    """Nobody cancels the rest of the engine, again and again: then it is the step's own affair, and its failure."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(timed_by_itself())).result(timeout=10)

    assert run_async(main()).endswith(":CancelledError")
    assert [attempt for _, attempt, _ in begun] == [1] * 3 + [2] * 3


def test_sweep_never_cancels_itself(lives: Lives) -> None:
    """A sweep that is being cancelled is how the engine knows that all tasks are: its own waits must not look so."""

    async def main() -> set[int]:
        async with lives.engine(sweep_interval=0.002) as engine:
            assert engine.parts is not None
            sweeper = engine.parts.sweeper
            assert sweeper is not None
            seen, until_then = set(), asyncio.get_running_loop().time() + 0.05
            while asyncio.get_running_loop().time() < until_then:
                seen.add(sweeper.cancelling())
                await asyncio.sleep(0)
            return seen

    assert run_async(main()) == {0}


@step(max_attempts=1)
async def answers_cancellation_with_an_error() -> str:
    note("answers")
    try:
        while not let_go.is_set():
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        raise ConnectionError("closed under way") from None
    return "done"


@workflow
async def drained() -> str:
    return await answers_cancellation_with_an_error()


def test_error_by_which_a_step_answers_the_end_of_the_engine_is_no_outcome(lives: Lives) -> None:
    """`close` cancels what is not over after its grace: what the code makes of that is not its failure."""

    async def main() -> str:
        async with lives.engine(shutdown_grace=0.01) as engine:
            await engine.start(drained(), id="run")
            await until(lambda: len(begun) == 1)
        let_go.set()
        async with lives.engine() as engine:
            assert (await engine.status("run")).status is not Status.FAILED
            return await engine.result("run", timeout=10)  # type: ignore[no-any-return]

    assert run_async(main()) == "done"
    assert [attempt for _, attempt, _ in begun] == [1, 1]
