"""Retrying as the engine does it: how often the code of a failing step really runs, and when."""

from __future__ import annotations

import itertools

import pytest

from perdure import Engine, NonRetryable, RetryAfter, RunFailed, current_step, step, workflow
from perdure.admin.views import HistoryEntry
from perdure.errors import BadArgument
from support.lives import Lives, run_async

attempts: list[int] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    attempts.clear()


class Refused(Exception):
    pass


@step(max_attempts=4, initial_delay=0.001, max_delay=0.002)
async def always_fails(kind: str) -> str:
    attempts.append(current_step().attempt)
    match kind:
        case "value":
            raise ValueError(f"attempt {current_step().attempt}")
        case "refused":
            raise Refused("no")
        case "never-again":
            raise NonRetryable("no use") from Refused("inside")
        case "later":
            raise RetryAfter(0.03)
        case "cancelled":
            import asyncio

            raise asyncio.CancelledError("by itself")
        case _:
            return "fine"


@workflow
async def retry_once_policy(kind: str, how: str) -> str:
    match how:
        case "plain":
            return await always_fails(kind)
        case "types":
            return await always_fails.options(retry_on=(ValueError, KeyError))(kind)
        case "type":
            return await always_fails.options(retry_on=ValueError)(kind)
        case "predicate":
            return await always_fails.options(retry_on=lambda error: isinstance(error, Refused))(kind)
        case "broken-predicate":
            return await always_fails.options(retry_on=lambda error: 1 / 0)(kind)  # type: ignore[arg-type, return-value]
        case "once":
            return await always_fails.options(max_attempts=1)(kind)
        case "cancel-is-retried":
            return await always_fails.options(retry_on=lambda error: True)(kind)
        case _:
            raise AssertionError(how)


async def failure_of(engine: Engine, kind: str, how: str) -> BaseException:
    handle = await engine.start(retry_once_policy(kind, how), id="run")
    with pytest.raises(RunFailed) as caught:
        await handle.result()
    assert caught.value.__cause__ is not None
    return caught.value.__cause__


def retries(history: list[HistoryEntry]) -> list[HistoryEntry]:
    return [entry for entry in history if entry.kind == "step_retry"]


def test_exactly_max_attempts_are_made_and_the_last_error_is_raised(lives: Lives) -> None:
    """Neither one attempt more nor one less. CONFORMANCE S1."""

    async def main() -> None:
        async with lives.engine() as engine:
            error = await failure_of(engine, "value", "plain")
            assert isinstance(error, ValueError)
            assert error.args == ("attempt 4",)
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds == ["started", "step_retry", "step_retry", "step_retry", "step_failed", "failed"]

    run_async(main())
    assert attempts == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("kind", "how", "made"),
    [
        ("value", "types", 4),
        ("refused", "types", 1),
        ("value", "type", 4),
        ("refused", "type", 1),
        ("refused", "predicate", 4),
        ("value", "predicate", 1),
        ("value", "once", 1),
        ("never-again", "plain", 1),
        ("cancelled", "plain", 4),
        ("cancelled", "cancel-is-retried", 4),
    ],
)
def test_only_what_retry_on_accepts_is_tried_again(lives: Lives, kind: str, how: str, made: int) -> None:
    """CONFORMANCE S1: types, one type, a predicate, a limit of one, `NonRetryable`, a step's own CancelledError."""

    async def main() -> None:
        async with lives.engine() as engine:
            await failure_of(engine, kind, how)

    run_async(main())
    assert attempts == list(range(1, made + 1))


def test_non_retryable_keeps_its_cause(lives: Lives) -> None:
    """CONFORMANCE S1: what was raised `from` is still there for the code that catches it."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure_of(engine, "never-again", "plain")

    error = run_async(main())
    assert isinstance(error, NonRetryable)
    assert isinstance(error.__cause__, Refused)


def test_predicate_that_raises_ends_the_step_with_its_own_error(lives: Lives) -> None:
    """A broken `retry_on` neither retries for ever nor hangs the run; both errors are shown."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure_of(engine, "value", "broken-predicate")

    error = run_async(main())
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(error.__context__ or error.__cause__, ValueError)


def test_delays_are_recorded_and_kept(lives: Lives) -> None:
    """CONFORMANCE S1: each attempt starts at or after the recorded moment, drawn within the jitter."""

    @step(max_attempts=4, initial_delay=0.02, factor=2, max_delay=0.05, jitter=0.1)
    async def slow_to_retry() -> None:
        raise ValueError

    moments: list[int] = []

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(retry_delays())
            with pytest.raises(RunFailed):
                await handle.result()
            history = await engine.admin.history(handle.id)
            failed = [e for e in history if e.kind in {"step_retry", "step_failed"}]
            for entry, following in itertools.pairwise(failed):
                next_at = entry.data["next_at"]
                at = round(entry.at.timestamp() * 1_000_000)
                moments.append(next_at - at)
                assert round(following.at.timestamp() * 1_000_000) >= next_at

    @workflow
    async def retry_delays() -> None:
        await slow_to_retry()

    run_async(main())
    # The moment is drawn when the attempt fails and recorded a little later, so a delay looks shorter, never longer.
    for delay, computed in zip(moments, (0.02, 0.04, 0.05), strict=True):
        assert delay <= computed * 1.1 * 1_000_000 + 1


def test_retry_after_is_obeyed(lives: Lives) -> None:
    """CONFORMANCE S1: `RetryAfter(0.03)` waits that long although the policy says 1 ms; attempts still count."""

    async def main() -> list[HistoryEntry]:
        async with lives.engine() as engine:
            await failure_of(engine, "later", "plain")
            return await engine.admin.history("run")

    history = run_async(main())
    assert attempts == [1, 2, 3, 4]
    failed = [entry for entry in history if entry.kind in {"step_retry", "step_failed"}]
    for entry, following in itertools.pairwise(failed):
        assert (following.at.timestamp() * 1_000_000) >= entry.data["next_at"] - 1
    assert (history[-1].at - history[0].at).total_seconds() >= 0.09


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e13, -5.0])
def test_impossible_retry_after_neither_hangs_nor_hides_the_run(lives: Lives, seconds: float) -> None:
    """A `RetryAfter` of NaN, infinity or a geological age ends the step; a negative one means now."""

    @step(max_attempts=2, initial_delay=0.001)
    async def absurd_delay() -> None:
        raise RetryAfter(seconds)

    @workflow
    async def retry_absurdly() -> None:
        await absurd_delay()

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(retry_absurdly())
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=5)
            assert isinstance(caught.value.__cause__, (RetryAfter, BadArgument)), repr(caught.value.__cause__)
            assert (await handle.status()).status == "failed"

    run_async(main())


def test_retrying_branch_does_not_hold_up_the_others(lives: Lives) -> None:
    """A step in a backoff waits alone: the branch beside it goes on meanwhile."""
    order: list[str] = []

    @step(max_attempts=2, initial_delay=0.1, jitter=0)
    async def second_time() -> str:
        order.append(f"flaky-{current_step().attempt}")
        if current_step().attempt == 1:
            raise ValueError
        return "flaky"

    @step
    async def beside(number: int) -> int:
        order.append(f"beside-{number}")
        return number

    async def besides() -> int:
        return sum([await beside(number) for number in range(3)])

    @workflow
    async def retry_beside() -> list[str | int]:
        import asyncio

        return list(await asyncio.gather(second_time(), besides()))

    async def main() -> list[str | int]:
        async with lives.engine() as engine:
            return await (await engine.start(retry_beside())).result()

    assert run_async(main()) == ["flaky", 3]
    assert order.index("beside-2") < order.index("flaky-2")


def test_step_outside_a_workflow_just_runs() -> None:
    """Called outside a workflow a step is its function: no retry, no record; sync ones too."""
    calls: list[str] = []

    @step
    async def asynchronous(text: str) -> str:
        calls.append(text)
        return text.upper()

    @step(max_attempts=5)
    def synchronous(text: str) -> str:
        calls.append(text)
        raise ValueError(text)

    async def main() -> None:
        assert await asynchronous("a") == "A"
        with pytest.raises(ValueError, match="b"):
            await synchronous("b")

    run_async(main())
    assert calls == ["a", "b"]
