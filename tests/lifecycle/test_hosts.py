"""Where an engine lives, and what it says there: other modes of the event loop, long outages."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import Engine, sleep, step, workflow
from support.faulty_stores import OutageStore
from support.lives import Lives, run_async


@step
async def number(value: int) -> int:
    return value


@workflow
async def sums() -> int:
    found = await asyncio.gather(*[number(value) for value in range(20)])
    await sleep(0.01)
    return sum(found)


def test_debug_mode_changes_nothing(lives: Lives) -> None:
    """FAULTS O18: asyncio's debug mode checks threads and slow callbacks, and wraps coroutines."""

    async def main() -> int:
        async with lives.engine() as engine:
            return await (await engine.start(sums(), id="run")).result(timeout=20)

    assert asyncio.run(main(), debug=True) == 190


def test_a_long_outage_is_said_once_not_at_every_try(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS O24, B4: two hundred calls fail in a row; the log says so once for each part that talks to the store."""
    monkeypatch.setattr("perdure.limits.STORAGE_RETRY_SECONDS_MIN", 0.0001)
    monkeypatch.setattr("perdure.limits.STORAGE_RETRY_SECONDS_MAX", 0.001)

    async def main() -> int:
        store = OutageStore(lives.store(), 0, after=False)
        engine = Engine(store, sweep_interval=0.01)  # type: ignore[arg-type]
        async with engine:
            run = await engine.start(sums(), id="run")
            store.fail_at = range(store.counts.total() + 1, store.counts.total() + 201)
            engine.worker.requests.claim()  # type: ignore[union-attr]
            while store.counts.total() not in store.fail_at and len(store.failed) < 200:
                await asyncio.sleep(0.001)
            while len(store.failed) < 200:
                await asyncio.sleep(0.001)
            store.fail_at = range(0)
            return await run.result(timeout=20)

    with caplog.at_level(logging.WARNING):
        assert run_async(main()) == 190
    said = [record for record in caplog.records if "did not answer" in record.getMessage()]
    assert 1 <= len(said) <= 2, [record.getMessage() for record in said]
