"""A worker that everybody takes for dead, and that is not: what it still does changes nothing."""

from __future__ import annotations

import asyncio
import os

import pytest

from perdure import Engine, current_step, step, workflow
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.liveness import lock_path
from support.lives import Lives, run_async, until
from support.postgres import server

did: list[str] = []
gates: list[asyncio.Event] = []


@step
async def held_up(where: str) -> str:
    """The first attempt is held inside the step; the second attempt is not."""
    number = len(did)
    did.append(current_step().idempotency_key)
    if number == 0:
        await gates[0].wait()
        return "from the first worker"
    return "from the second worker"


@step
async def follow_up(text: str) -> str:
    did.append(f"after {text}")
    return text


@workflow
async def taken_over() -> str:
    return await follow_up(await held_up(""))


@pytest.fixture(autouse=True)
def fresh() -> None:
    did.clear()
    gates.clear()


def declare_dead(lives: Lives, engine: Engine) -> None:
    """To everybody else the worker is gone: its lock is, or its lease; and it does not know."""
    assert engine.worker is not None
    if isinstance(engine.store, MemoryStore):
        engine.store.kill_worker(engine.worker.id)
    elif lives.kind == "postgres":
        server().declare_dead(lives.schema, engine.worker.id)
    else:
        os.unlink(lock_path(str(lives.path), engine.worker.id))


def test_a_step_that_ends_after_its_successor_is_refused(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS C3, C4: the run is claimed by another worker, which runs the step again and ends the run. Then the first
    one returns: its outcome is refused, nothing follows from it, and one line says so."""

    async def main() -> None:
        gates.append(asyncio.Event())
        async with lives.engine() as first:
            await first.start(taken_over(), id="run")
            await until(lambda: len(did) == 1)
            declare_dead(lives, first)
            async with lives.engine() as second:
                assert await second.result("run", timeout=20) == "from the second worker"
                history = [(entry.kind, entry.location) for entry in await second.admin.history("run")]
                gates[0].set()
                assert await first.result("run", timeout=20) == "from the second worker"
                assert first.worker is not None
                await until(lambda: not first.worker.residents.holds("run"))  # type: ignore[union-attr]
                assert [(entry.kind, entry.location) for entry in await second.admin.history("run")] == history
        assert did[0] == did[1], "both attempts had the same idempotency key"
        assert did[2:] == ["after from the second worker"]

    run_async(main())


def test_workers_of_one_name_do_not_disturb_each_other(lives: Lives) -> None:
    """FAULTS C10: the name is a label; ids are drawn at every start, so neither is taken for the other."""

    async def main() -> None:
        gates.append(asyncio.Event())
        async with lives.engine(name="worker") as first, lives.engine(name="worker") as second:
            assert first.worker is not None
            assert second.worker is not None
            assert first.worker.id != second.worker.id
            await first.start(taken_over(), id="run")
            await until(lambda: len(did) == 1)
            for _ in range(3):
                assert await second.store.reap(second.worker.id, 0) == 0
            gates[0].set()
            assert await second.result("run", timeout=20) == "from the first worker"

    run_async(main())
