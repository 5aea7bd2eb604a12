"""A run that changes hands between a worker's claim and its load: only the newer owner runs it."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Engine, step, workflow
from perdure.store.memory import MemoryStore
from support.lives import run_async

begun: list[str] = []


@step
async def once() -> str:
    begun.append("once")
    await asyncio.sleep(0.05)
    return "done"


@workflow
async def simple() -> str:
    return await once()


class _Stopped:
    """The worker stands still between claim and load, until it is taken for dead and another takes over."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.successor: Engine | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, worker_id: str, *args: Any) -> Any:
        rows = await self._store.claim(worker_id, *args)
        if rows and self.successor is None:
            self._store.kill_worker(worker_id)
            self.successor = await Engine(self._store, sweep_interval=0.01).open()
            while not begun:
                await asyncio.sleep(0.001)
        return rows


def test_a_run_that_was_taken_over_before_it_was_loaded_has_one_owner() -> None:
    """FAULTS C1, C3: the load shows the successor's epoch, which gives no right to commit."""

    async def main() -> None:
        begun.clear()
        memory = MemoryStore()
        async with Engine(memory, worker=False) as client:
            await client.start(simple(), id="run")
            store = _Stopped(memory)
            async with Engine(store, sweep_interval=0.01) as engine:  # type: ignore[arg-type]
                assert await client.result("run", timeout=10) == "done"
                assert store.successor is not None
                await store.successor.close()
                assert engine._worker is not None
                assert not list(engine._worker.coordinator)
        assert begun == ["once"]

    run_async(main())
