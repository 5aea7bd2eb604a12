"""`on_retry`: called once for each failed attempt, after it is recorded, and never by a replay."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from perdure import current_step, sleep, step, workflow
from perdure.types import FailedAttempt
from support.lives import Lives, run_async

heard: list[tuple[int, str, bool]] = []


def listen(failed: FailedAttempt) -> None:
    heard.append((failed.attempt, str(failed.error), failed.next_at is None))


def breaks(failed: FailedAttempt) -> None:
    raise RuntimeError("the hook is broken")


@step(max_attempts=3, initial_delay=0.001, on_retry=listen)
async def observed(failures: int) -> str:
    attempt = current_step().attempt
    if attempt <= failures:
        raise ValueError(f"attempt {attempt}")
    return "done"


@step(max_attempts=2, initial_delay=0.001, on_retry=breaks)
async def observed_badly() -> str:
    if current_step().attempt == 1:
        raise ValueError
    return "done"


@workflow
async def with_hooks(failures: int) -> str:
    try:
        result = await observed(failures)
    except ValueError as error:
        result = str(error)
    await sleep(0.01)
    return result


@workflow
async def with_broken_hook() -> str:
    return await observed_badly()


async def listen_later(failed: FailedAttempt) -> None:
    await asyncio.sleep(0)
    listen(failed)


async def breaks_later(failed: FailedAttempt) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("the hook is broken")


async def listen_slowly(failed: FailedAttempt) -> None:
    await asyncio.sleep(0.05)
    listen(failed)


def exits(failed: FailedAttempt) -> None:
    sys.exit("the hook has had enough")


HOOKS = {"later": listen_later, "breaks": breaks_later, "slowly": listen_slowly, "exits": exits}


@workflow
async def with_hook(kind: str, failures: int) -> str:
    return await observed.options(on_retry=HOOKS[kind])(failures)


@pytest.fixture(autouse=True)
def fresh() -> None:
    heard.clear()


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (0, []),
        (2, [(1, "attempt 1", False), (2, "attempt 2", False)]),
        (3, [(1, "attempt 1", False), (2, "attempt 2", False), (3, "attempt 3", True)]),
    ],
)
def test_hook_is_called_once_for_each_failed_attempt(
    lives: Lives, failures: int, expected: list[tuple[int, str, bool]]
) -> None:
    """CONFORMANCE S8: also for the last one, which has no next attempt."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(with_hooks(failures))).result()

    run_async(main())
    assert heard == expected


def test_hook_is_not_called_again_by_a_rerun(lives: Lives) -> None:
    """CONFORMANCE S8: crash after every record; each failure is heard once (or not at all, when the crash came
    between its record and the hook), never twice."""

    async def main() -> None:
        calm = lives.fresh()
        async with calm.engine() as engine:
            handle = await engine.start(with_hooks(2), id="run")
            await handle.result()
            records = (await handle.status()).records

        async def act(engine: object) -> object:
            return await (await engine.start(with_hooks(2), id="run")).result()  # type: ignore[attr-defined]

        for limit in range(1, records + 1):
            one = lives.fresh()
            heard.clear()
            await one.live_until(limit, act)
            async with one.engine() as engine:
                assert await act(engine) == "done"
            assert len(heard) == len(set(heard)), f"heard twice after a crash at record {limit}: {heard}"
            assert heard == sorted(heard)
            assert len(heard) >= 1

    run_async(main())


def test_hook_that_raises_is_logged_and_changes_nothing(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE S8: an observer cannot fail what it observes."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(with_broken_hook())).result()

    with caplog.at_level(logging.ERROR, logger="perdure.steps"):
        assert run_async(main()) == "done"
    assert [record.levelname for record in caplog.records if "on_retry" in record.getMessage()] == ["ERROR"]


def test_async_hook_is_run(lives: Lives) -> None:
    """CONFORMANCE S8: once for each failed attempt, as one that is not async."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(with_hook("later", 2))).result()

    assert run_async(main()) == "done"
    assert heard == [(1, "attempt 1", False), (2, "attempt 2", False)]


def test_async_hook_that_is_under_way_at_the_end_is_waited_for(lives: Lives) -> None:
    """The step does not wait for it, `close` does, within its grace."""

    async def main() -> list[tuple[int, str, bool]]:
        async with lives.engine() as engine:
            await (await engine.start(with_hook("slowly", 1))).result()
            return list(heard)

    assert run_async(main()) == []
    assert heard == [(1, "attempt 1", False)]


@pytest.mark.parametrize("kind", ["breaks", "exits"])
def test_hook_that_ends_oddly_is_logged_too(lives: Lives, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """CONFORMANCE S8: an error of an async one, and an exit; the worker and its other runs go on."""

    async def main() -> tuple[str, str]:
        async with lives.engine() as engine:
            odd = await engine.start(with_hook(kind, 1))
            other = await engine.start(with_hooks(0))
            return await odd.result(timeout=10), await other.result(timeout=10)

    with caplog.at_level(logging.ERROR, logger="perdure.steps"):
        assert run_async(main()) == ("done", "done")
    messages = [record.getMessage() for record in caplog.records if "on_retry" in record.getMessage()]
    assert messages == ["the on_retry hook of step 'observed' raised"]
