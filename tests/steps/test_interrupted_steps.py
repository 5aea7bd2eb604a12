"""Steps that end oddly: by an exit, an interrupt, a cancellation of their own. A failure of that attempt, no more.

Only what comes from outside is something else: a signal that strikes while the code of a step runs ends the process, as
it would without perdure, and the step runs again later.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import RunFailed, StepFailed, current_step, step, workflow
from perdure.errors import RunParked
from steps.isolated_steps import isolated_odd_end
from support.effects import Effects
from support.lives import Lives, run_async
from support.processes import Process


class Odd(BaseException):
    """Not an Exception, for whatever reason."""


async def cancels_what_it_waits_for() -> None:
    task = asyncio.ensure_future(asyncio.sleep(5))
    task.cancel()
    await task


def leave(how: str) -> None:
    match how:
        case "exit":
            sys.exit(3)
        case "keyboard":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "cancelled":
            raise asyncio.CancelledError("by itself")


HOW = {"exit": "SystemExit: 3", "keyboard": "KeyboardInterrupt", "generator": "GeneratorExit", "cancelled": "Cancelled"}


@step(initial_delay=0.001)
async def at_once(how: str) -> int:
    if current_step().attempt == 1:
        leave(how)
    return current_step().attempt


@step(initial_delay=0.001)
async def after_a_wait(how: str) -> int:
    await asyncio.sleep(0)
    if current_step().attempt == 1:
        leave(how)
    return current_step().attempt


@step(initial_delay=0.001, timeout=20)
async def within_its_timeout(how: str) -> int:
    await asyncio.sleep(0)
    if current_step().attempt == 1:
        leave(how)
    return current_step().attempt


@step(initial_delay=0.001)
def in_a_thread(how: str) -> int:
    if current_step().attempt == 1:
        leave(how)
    return current_step().attempt


KINDS: dict[str, Callable[[str], Any]] = {
    "at once": at_once,
    "after a wait": after_a_wait,
    "timeout": within_its_timeout,
    "thread": in_a_thread,
}


@workflow
async def ends_oddly(kind: str, how: str) -> int:
    return await KINDS[kind](how)  # type: ignore[no-any-return]


@step
async def plain() -> str:
    return "fine"


@workflow
async def neighbour() -> str:
    return await plain()


@step(max_attempts=2, initial_delay=0.001)
async def always(how: str) -> None:
    if how == "awaited":
        await cancels_what_it_waits_for()
    elif how == "task":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(5)
    leave(how)


@workflow
async def caught(how: str) -> str:
    try:
        await always(how)
    except Exception as error:
        name = error.type_name.rpartition(":")[2] if isinstance(error, StepFailed) else "no StepFailed"
        return f"{name} of {error}"
    return "nothing"


@pytest.mark.parametrize("how", list(HOW))
@pytest.mark.parametrize("kind", list(KINDS))
def test_exit_of_a_step_is_a_failed_attempt_and_harms_nobody_else(lives: Lives, kind: str, how: str) -> None:
    """FAULTS D24: recorded, tried again; the worker and its other runs go on."""

    async def main() -> tuple[int, str, list[str], str]:
        async with lives.engine() as engine:
            odd, other = await engine.start(ends_oddly(kind, how), id="odd"), await engine.start(neighbour())
            result = await odd.result(timeout=10)
            history = await engine.admin.history("odd")
            retried = next(entry.data["error"]["message"] for entry in history if entry.kind == "step_retry")
            return result, await other.result(timeout=10), [entry.kind for entry in history], retried

    result, other, kinds, retried = run_async(main())
    assert (result, other) == (2, "fine")
    assert kinds == ["started", "step_retry", "step_done", "completed"]
    assert HOW[how] in retried
    assert "attempt 1 of step" in retried


@pytest.mark.parametrize("how", [*HOW, "awaited", "task"])
def test_except_exception_catches_how_a_step_ended(lives: Lives, how: str) -> None:
    """Blamed on the step, and the same after a replay: a `StepFailed` that names what it was."""

    async def main() -> str:
        async with lives.engine() as engine:
            first = await (await engine.start(caught(how), id="run")).result(timeout=10)
            assert [entry.kind for entry in await engine.admin.history("run")] == [
                "started", "step_retry", "step_failed", "completed",
            ]  # fmt: skip
            return first

    names = {"exit": "SystemExit", "keyboard": "KeyboardInterrupt", "generator": "GeneratorExit"}
    name = names.get(how, "CancelledError")
    assert run_async(main()).startswith(f"{name} of attempt 2 of step 'always' raised {name}")


def test_failure_by_an_exit_is_the_same_on_replay(lives: Lives) -> None:
    """Law 9: a crash after each record changes nothing."""
    result = run_async(lives.crash_at_every_record(lambda: caught("exit")))
    assert result.startswith("SystemExit of attempt 2")


@pytest.mark.parametrize("how", ["exit", "keyboard", "generator"])
def test_exit_in_an_isolated_process_is_a_failed_attempt(lives: Lives, how: str) -> None:
    """FAULTS D24: the process of the step is not the worker."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(isolated_odd_end(how))).result(timeout=20)

    assert HOW[how] in run_async(main())


@step(max_attempts=3, initial_delay=0.001, retry_on=(SystemExit,))
async def retried_by_class() -> int:
    if current_step().attempt == 1:
        sys.exit("once more")
    if current_step().attempt == 2:
        raise ValueError("not of that class")
    return 3


@workflow
async def by_class() -> int:
    return await retried_by_class()


def test_retry_on_means_the_class_that_the_step_raised(lives: Lives) -> None:
    """`retry_on=SystemExit` retries an exit, and nothing else."""

    async def main() -> BaseException | None:
        async with lives.engine() as engine:
            with pytest.raises(RunFailed) as caught:
                await (await engine.start(by_class())).result(timeout=10)
            return caught.value.__cause__

    assert isinstance(run_async(main()), ValueError)


@step
async def raises_odd(waits: bool) -> None:
    if waits:
        await asyncio.sleep(0)
    raise Odd("odd")


@step
def raises_odd_in_a_thread() -> None:
    raise Odd("odd")


@workflow
async def odd_base(kind: str) -> str:
    try:
        await (raises_odd_in_a_thread() if kind == "thread" else raises_odd(kind == "waits"))
    except Odd as error:
        return f"caught {error}"
    return "nothing"


@pytest.mark.parametrize("kind", ["at once", "waits", "thread"])
def test_base_exception_of_the_users_own_keeps_its_class(lives: Lives, kind: str) -> None:
    """A failure like others; by default it is not retried, because it is no Exception."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(odd_base(kind))).result(timeout=10)

    assert run_async(main()) == "caught odd"


# -- signals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "number"), [("runner", signal.SIGINT), ("default", signal.SIGINT), ("handler", signal.SIGTERM)]
)
def test_signal_that_strikes_in_a_step_ends_the_process_and_the_step_runs_again_later(
    tmp_path: Path, effects: Effects, how: str, number: int
) -> None:
    """FAULTS D24: Ctrl-C, and a handler that calls sys.exit(): nothing is recorded, the attempt stays the first."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    with Process("steps.crash_children:struck", path, how, env=env) as process:
        process.expect("inside")
        process.signal(number)
        if how == "runner":  # asyncio.run cancels the main task at the first, and raises at the second
            process.expect("first")
            process.signal(number)
        process.expect("gone")
        assert process.wait() == 0
    with Process("steps.crash_children:struck", path, how, env={**env, "FINISH": "1"}) as process:
        process.expect("finished at attempt 1")
        assert process.wait() == 0
    assert effects.lines() == ["struck 1", "struck 1"]


# -- values and errors that break what handles them ----------------------------------------------------------


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class Strange(metaclass=Unhashable):
    pass


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")

    def __repr__(self) -> str:
        raise RuntimeError


@step(initial_delay=0.001)
async def returns_strange() -> Any:
    return Strange()


@step(initial_delay=0.001)
async def returns_strange_as_int() -> int:
    return Strange()  # type: ignore[return-value]


@step(max_attempts=2, initial_delay=0.001)
async def raises_hostile() -> None:
    raise Hostile(Strange())


def _exits(error: BaseException) -> bool:
    sys.exit("from the predicate")


@step(retry_on=_exits)
async def judged_by_an_exit() -> None:
    raise ValueError("judge me")


HOSTILE: dict[str, Callable[[], Any]] = {
    "unhashable": returns_strange,
    "unhashable as int": returns_strange_as_int,
    "hostile error": raises_hostile,
    "predicate exits": judged_by_an_exit,
}


@workflow
async def hostile(kind: str) -> str:
    await plain()
    try:
        await HOSTILE[kind]()
    except Exception as error:
        return type(error).__name__
    return "nothing"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("unhashable", "NotStorable"),
        ("unhashable as int", "NotStorable"),
        ("hostile error", "StepFailed"),
        ("predicate exits", "StepFailed"),
    ],
)
def test_outcome_that_breaks_what_handles_it_is_a_failure(lives: Lives, kind: str, error: str) -> None:
    """Neither the run nor its worker hangs: whatever goes wrong with a result or an error is the step's failure."""

    async def main() -> tuple[str, str]:
        async with lives.engine() as engine:
            odd, other = await engine.start(hostile(kind)), await engine.start(neighbour())
            return await odd.result(timeout=10), await other.result(timeout=10)

    result, other = run_async(main())
    assert other == "fine"
    assert result == error


def test_run_is_parked_if_not_even_its_failure_can_be_recorded(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last resort: a person hears of it, with the reason."""

    def broken(error: BaseException) -> Any:
        raise ArithmeticError("cannot describe it")

    monkeypatch.setattr("perdure.engine.attempts.outcomes.encode_error", broken)

    async def main() -> str:
        async with lives.engine() as engine:
            handle = await engine.start(ends_oddly("at once", "exit"), id="run")
            with pytest.raises(RunParked) as caught:
                await handle.result(timeout=10)
            return str(caught.value)

    assert "cannot describe it" in run_async(main())


@step(initial_delay=0.001)
async def runs_out_of_memory() -> int:
    if current_step().attempt < 3:
        raise MemoryError
    return current_step().attempt


@workflow
async def short_of_memory() -> int:
    return await runs_out_of_memory()


def test_memory_error_in_a_step_is_an_ordinary_failed_attempt(lives: Lives) -> None:
    """FAULTS D26: recorded whole, and tried again."""

    async def main() -> tuple[int, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(short_of_memory())
            result = await handle.result()
            return result, [entry.kind for entry in await engine.admin.history(handle.id)]

    assert run_async(main()) == (3, ["started", "step_retry", "step_retry", "step_done", "completed"])
